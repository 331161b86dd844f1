"""Checks before an operation: everything it names exists and is granted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from sennit.errors import AccessError, InvalidTypeError, ValidationError, shown
from sennit.messages.content import InstructionContent
from sennit.messages.message import Message
from sennit.messages.output_schema import as_model, model_name
from sennit.operations.context import OperationContext, named_model, named_tool
from sennit.operations.operation import Operation
from sennit.operations.registry import OperationRegistry
from sennit.services.tools.tool import Tool
from sennit.sessions.grants import Needs
from sennit.sessions.service_call import listed

if TYPE_CHECKING:
    from sennit.operations.ipu import IPU
    from sennit.services.registry import ServiceRegistry
    from sennit.sessions.branch import Branch
    from sennit.sessions.session import BranchRef, SessionCore


def conduct(
    session: SessionCore,
    registry: OperationRegistry,
    *,
    branch: BranchRef,
    operation: str,
    ipu: IPU | None = None,
    params: Mapping[str, Any] | None = None,
    **more: Any,
) -> Operation:
    """Make an operation that the branch may run; nothing has run yet.

    Raises NotFoundError if there is no such operation, branch or service, AccessError unless the
    branch was granted all that the operation requires and its parameters name (objects too, if it
    is fenced), and InvalidTypeError if the operation takes no such parameters.
    """
    spec = registry.get(operation)
    found = session.get_branch(branch)
    given = _joined(operation, params, more)
    if spec.needs_model and given.get("imodel") is None:
        given["imodel"] = _only_model(found)
    context = OperationContext(session, found)
    named, passed = _services(session.services, given)
    needs = Needs(
        resources=spec.required_resources | named,
        capabilities=spec.required_capabilities,
        passed_resources=frozenset(passed),
        passed_capabilities=frozenset(_schemas(given)),
    )
    found.check_access(needs)
    spec.check_params(context, given)
    if ipu is not None:
        ipu.register_session(session)
    return Operation(spec, context, given, needs, ipu)


def _joined(
    operation: str, params: Mapping[str, Any] | None, more: Mapping[str, Any]
) -> dict[str, Any]:
    if not isinstance(cast("Any", params), Mapping | None):
        raise InvalidTypeError(f"params is a dict of parameters by name, got {shown(params)}.")
    if twice := sorted(set(params or ()) & set(more)):
        raise ValidationError(
            f"{operation!r} was given {', '.join(twice)} twice: by name and in params; give one."
        )
    return {**(params or {}), **more}


def _services(services: ServiceRegistry, given: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    """The services in the parameters: the registered names, and the names of objects."""
    named: set[str] = set()
    passed: set[str] = set()
    for one in listed(given.get("tools")):
        (named if isinstance(one, str) else passed).add(named_tool(services, one))
    imodel = given.get("imodel")
    if imodel is not None:
        (named if isinstance(imodel, str) else passed).add(named_model(services, imodel))
    return named, passed


def _schemas(given: Mapping[str, Any]) -> set[str]:
    """The names of the output schemas that parameters name, also inside an instruction."""
    said = given.get("instruction")
    content = said.content if isinstance(said, Message) else said
    inside = content.response_model if isinstance(content, InstructionContent) else None
    wanted = (given.get("response_model"), inside or None)
    return {model_name(as_model(one, "response_model")) for one in wanted if one is not None}


def _only_model(branch: Branch) -> str:
    """The one model a branch may use; raises if there is none, or a choice."""
    services = branch.session.services
    models = [name for name in services if not isinstance(services.get(name), Tool)]
    allowed = [name for name in models if branch.may_use(name)]
    if len(allowed) == 1:
        return allowed[0]
    if allowed:
        raise ValidationError(f"Branch {branch.name!r} may use {allowed}; name one with imodel=.")
    raise AccessError(
        f"Branch {branch.name!r} may use no model; registered are {models}. Grant it one with "
        f"branch.grant(resources={{...}})."
    )
