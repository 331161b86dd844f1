"""Checks before an operation: everything it names exists and is granted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from sennit.errors import AccessError, InvalidTypeError, ValidationError, short_repr
from sennit.messages.content import InstructionContent
from sennit.messages.message import Message
from sennit.messages.output_schema import as_model, model_name
from sennit.operations.context import OperationContext, model_grant_name, tool_grant_name
from sennit.operations.operation import Operation
from sennit.operations.registry import OperationRegistry
from sennit.services.tools.tool import Tool
from sennit.sessions.grants import Needs
from sennit.sessions.service_call import as_list

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
    target = session.get_branch(branch)
    all_params = _merge_params(operation, params, more)
    if spec.needs_model and all_params.get("imodel") is None:
        all_params["imodel"] = _only_model(target)
    context = OperationContext(session, target)
    registered_names, object_names = _named_services(session.services, all_params)
    needs = Needs(
        resources=spec.required_resources | registered_names,
        capabilities=spec.required_capabilities,
        passed_resources=frozenset(object_names),
        passed_capabilities=frozenset(_schema_names(all_params)),
    )
    target.check_access(needs)
    spec.check_params(context, all_params)
    if ipu is not None:
        ipu.register_session(session)
    return Operation(spec, context, all_params, needs, ipu)


def _merge_params(
    operation: str, params: Mapping[str, Any] | None, more: Mapping[str, Any]
) -> dict[str, Any]:
    if not isinstance(cast("Any", params), Mapping | None):
        raise InvalidTypeError(f"params is a dict of parameters by name, got {short_repr(params)}.")
    if duplicates := sorted(set(params or ()) & set(more)):
        raise ValidationError(
            f"{operation!r} got {', '.join(duplicates)} twice, by name and in params; pass it once."
        )
    return {**(params or {}), **more}


def _named_services(
    services: ServiceRegistry, params: Mapping[str, Any]
) -> tuple[set[str], set[str]]:
    """The services in the parameters: the registered names, and the names of objects."""
    registered_names: set[str] = set()
    object_names: set[str] = set()
    for tool in as_list(params.get("tools")):
        (registered_names if isinstance(tool, str) else object_names).add(
            tool_grant_name(services, tool)
        )
    imodel = params.get("imodel")
    if imodel is not None:
        (registered_names if isinstance(imodel, str) else object_names).add(
            model_grant_name(services, imodel)
        )
    return registered_names, object_names


def _schema_names(params: Mapping[str, Any]) -> set[str]:
    """The names of the output schemas that parameters name, also inside an instruction."""
    instruction = params.get("instruction")
    content = instruction.content if isinstance(instruction, Message) else instruction
    nested = content.response_model if isinstance(content, InstructionContent) else None
    response_models = (params.get("response_model"), nested or None)
    return {
        model_name(as_model(response_model, "response_model"))
        for response_model in response_models
        if response_model is not None
    }


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
