"""Operations: checked by `conduct` against the grants of the branch, then run at most once."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, cast

from sennit.blocking import run_blocking
from sennit.containers.element import Element
from sennit.errors import (
    AccessError,
    InvalidTypeError,
    NotFoundError,
    ValidationError,
    listed,
    short_repr,
)
from sennit.messages.content import InstructionContent
from sennit.messages.message import Message
from sennit.messages.output_schema import as_model, model_name
from sennit.operations.context import OperationContext, model_grant_name, tool_grant_name
from sennit.operations.registry import OperationRegistry, OperationSpec
from sennit.services.models.limits.rate_limit import RateLimit
from sennit.services.tools.tool import Tool
from sennit.sessions.grants import Needs, check_access
from sennit.sessions.service_call import as_list

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from sennit.operations.ipu import IPU
    from sennit.services.registry import ServiceRegistry
    from sennit.sessions.branch import Branch
    from sennit.sessions.session import BranchRef, SessionCore

    T = TypeVar("T", default=Any)
else:  # `default=` came with Python 3.13
    from typing import TypeVar

    T = TypeVar("T")

Status: TypeAlias = Literal["pending", "running", "done", "failed"]


def conduct(
    session: SessionCore,
    registry: OperationRegistry,
    *,
    branch: BranchRef,
    operation: str | OperationSpec,
    ipu: IPU | None = None,
    params: Mapping[str, object] | None = None,
    **more: object,
) -> Operation:
    """Return an operation that the branch may run; nothing has run yet.

    Raises NotFoundError for an unknown operation, branch or service, AccessError unless the branch
    was granted everything that the operation requires and its parameters name (also objects, if it
    is fenced), and InvalidTypeError for parameters that the operation does not accept.
    """
    spec = _registered(registry, operation)
    target = session.get_branch(branch)
    all_params = _merge_params(spec.name, params, more)
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
    check_access(target, needs)
    spec.check_params(context, all_params)
    if ipu is not None:
        ipu.register_session(session)
    return Operation(spec, context, all_params, needs, ipu)


def _registered(registry: OperationRegistry, operation: str | OperationSpec) -> OperationSpec:
    """Return an operation of the registry; raises NotFoundError for one that is not there."""
    if not isinstance(operation, OperationSpec):
        return registry.get(operation)
    spec = registry.get(operation.name)
    if spec != operation:
        raise NotFoundError(
            f"Operation {operation.name!r} is another one in this session; register it there, or "
            f"name it."
        )
    return spec


def _merge_params(
    operation: str, params: Mapping[str, object] | None, more: Mapping[str, object]
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
    """Return the services in the parameters: registered names, and the names of objects."""
    named = [(tool, tool_grant_name(services, tool)) for tool in as_list(params.get("tools"))]
    if (imodel := params.get("imodel")) is not None:
        named.append((imodel, model_grant_name(services, imodel)))
    registered_names = {name for service, name in named if isinstance(service, str)}
    return registered_names, {name for service, name in named if not isinstance(service, str)}


def _schema_names(params: Mapping[str, Any]) -> set[str]:
    """Return the names of the output schemas in the parameters, also in an instruction."""
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
    """Return the only model a branch may use; raises if there is none or more than one."""
    services = branch.session.services
    models = [name for name in services if not isinstance(services.get(name), Tool)]
    allowed = [name for name in models if branch.may_use(name)]
    if len(allowed) == 1:
        return allowed[0]
    if allowed:
        raise ValidationError(
            f"Branch {branch.name!r} may use {listed(allowed)}; name one with imodel=."
        )
    raise AccessError(
        f"Branch {branch.name!r} may use no model; registered are: {listed(models)}. Grant "
        f"it one with branch.grant(resources={{...}})."
    )


class Operation(Element, Generic[T]):
    """An operation with its access checked, as `session.conduct` returns it.

    result = await operation.invoke()

    It runs once. Invoked again, or by several tasks or threads at once, it returns the same result
    or raises the same error, without calling a model again. If the task that runs it is cancelled,
    it is pending again and may be invoked again. The built-in operations have stored nothing then,
    except for operate and react, which store their steps as they happen.
    """

    def __init__(
        self,
        spec: OperationSpec[T],
        context: OperationContext,
        params: Mapping[str, Any],
        needs: Needs,
        ipu: IPU | None = None,
    ) -> None:
        super().__init__()
        self._spec, self._context, self._needs, self._ipu = spec, context, needs, ipu
        self._params = MappingProxyType(dict(params))
        self._status: Status = "pending"
        self._result: T | None = None
        self._error: Exception | None = None
        self._slot = RateLimit(concurrency=1)

    @property
    def name(self) -> str:
        """The name of the operation."""
        return self._spec.name

    @property
    def session(self) -> SessionCore:
        """The session it runs in."""
        return self._context.session

    @property
    def branch(self) -> Branch:
        """The branch it runs on."""
        return self._context.branch

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters; read-only."""
        return self._params

    @property
    def status(self) -> Status:
        """The status: pending, running, done or failed."""
        return self._status

    @property
    def result(self) -> T | None:
        """The result; None before it is done."""
        return self._result

    @property
    def error(self) -> Exception | None:
        """The error, if it failed."""
        return self._error

    async def invoke(self, ipu: IPU | None = None) -> T:
        """Run it once and return its result; raises its error.

        It runs inside the IPU it was conducted with, or else inside `ipu`. Raises ValidationError
        if these are two different IPUs.
        """
        if ipu is not None and ipu is not self._ipu:
            if self._ipu is not None:
                raise ValidationError(f"{self!r} belongs to another IPU; run it there.")
            self._ipu = ipu
        if self._status not in ("done", "failed"):
            await self._run_once()
        if self._error is not None:
            raise self._error
        return cast("T", self._result)

    def invoke_sync(self, ipu: IPU | None = None) -> T:
        """`invoke` for programs without an event loop."""
        return run_blocking(self.invoke(ipu), "await invoke()")

    async def _run_once(self) -> None:
        """Run it unless another task has; if that one is cancelled, the next one runs it."""
        async with self._slot.place():
            if self._status == "pending":
                await self._run()

    async def _run(self) -> None:
        self._status = "running"
        try:
            self._result = await self._execute()
            self._status = "done"
        except Exception as error:
            self._error, self._status = error, "failed"
        finally:
            if self._status == "running":  # cancelled
                self._status = "pending"

    async def _execute(self) -> T:
        # Since `conduct`, the branch may have been removed or a grant revoked.
        branch = self.session.get_branch(self.branch)
        check_access(branch, self._needs)
        if self._ipu is not None:
            await self._ipu.admit(self)
        result = await self._spec.call(self._context, self._params)
        if self._ipu is not None:
            self._ipu.accept(self, result)
        return result

    def __repr__(self) -> str:
        return f"Operation({self.name!r} on {self.branch.name!r}, {self._status})"
