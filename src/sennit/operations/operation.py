"""An operation that was allowed and runs once."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from sennit.containers.element import Element
from sennit.errors import ValidationError
from sennit.services.models.limits.rate_limit import RateLimit

if TYPE_CHECKING:
    from sennit.operations.context import OperationContext
    from sennit.operations.ipu import IPU
    from sennit.operations.registry import OperationSpec
    from sennit.sessions.branch import Branch
    from sennit.sessions.grants import Needs
    from sennit.sessions.session import SessionCore

Status: TypeAlias = Literal["pending", "running", "done", "failed"]


class Operation(Element):
    """An operation that was allowed and has not run yet, as `session.conduct` returns it.

    result = await operation.invoke()

    It runs once. Invoked again, or by several tasks or threads at once, it gives the same result,
    or raises the same error, without asking anyone again. If whoever runs it is cancelled, it is
    pending as before and may be invoked again. The built-in ones have stored nothing then, except
    for operate and react, whose steps stand on the branch as they happen.
    """

    def __init__(
        self,
        spec: OperationSpec,
        context: OperationContext,
        params: Mapping[str, Any],
        needs: Needs,
        ipu: IPU | None = None,
    ) -> None:
        super().__init__()
        self._spec, self._context, self._needs, self._ipu = spec, context, needs, ipu
        self._params = MappingProxyType(dict(params))
        self._status: Status = "pending"
        self._result: Any = None
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
        """True if it has run, and how that ended."""
        return self._status

    @property
    def result(self) -> Any:
        """The result; None before it is done."""
        return self._result

    @property
    def error(self) -> Exception | None:
        """The error, if it failed."""
        return self._error

    async def invoke(self, ipu: IPU | None = None) -> Any:
        """Run it, or give what came of it; raises what it failed with.

        It runs inside the IPU it was conducted with; `ipu` is for one conducted without.
        Raises ValidationError if those are two.
        """
        if ipu is not None and ipu is not self._ipu:
            if self._ipu is not None:
                raise ValidationError(f"{self!r} belongs to another IPU; run it there.")
            self._ipu = ipu
        if self._status not in ("done", "failed"):
            await self._run_once()
        if self._error is not None:
            raise self._error
        return self._result

    async def _run_once(self) -> None:
        """Run it unless another task is faster; if that one is cancelled, the next one does."""
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
            if self._status == "running":  # whoever ran it was cancelled
                self._status = "pending"

    async def _execute(self) -> Any:
        # Between asking and running, the branch may have been removed or a grant revoked.
        branch = self.session.get_branch(self.branch)
        branch.check_access(self._needs)
        if self._ipu is not None:
            await self._ipu.admit(self)
        result = await self._spec.call(self._context, self._params)
        if self._ipu is not None:
            self._ipu.accept(self, result)
        return result

    def __repr__(self) -> str:
        return f"Operation({self.name!r} on {self.branch.name!r}, {self._status})"
