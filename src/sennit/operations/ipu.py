"""IPU: the execution boundary of operations.

Whoever runs operations for others (a server, a worker) decides here, in one place, for which
sessions, with what form of parameters and results, and how many at a time. Without one an operation
runs as it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID
from weakref import WeakValueDictionary

from sennit.errors import NotFoundError, OutputError, ValidationError
from sennit.messages.output_schema import as_model, model_name
from sennit.operations.output_validation import problems_with
from sennit.services.models.limits.rate_limit import RateLimit
from sennit.services.models.limits.validators import count

if TYPE_CHECKING:
    from sennit.messages.output_schema import Model
    from sennit.operations.operation import Operation
    from sennit.sessions.session import SessionCore

Validator: TypeAlias = "Callable[[Operation], Awaitable[None] | None]"
"""Looks at an operation before it runs; what it raises stops it."""


@dataclass(frozen=True, slots=True)
class _Spec:
    input: Model | None = None
    output: Model | None = None


_NO_SPEC = _Spec()


class IPU:
    """Runs operations of the sessions it knows.

    ipu = IPU()
    ipu.specify("communicate", input=Question, output=Answer)
    operation = await session.conduct(branch=main, operation="communicate", ipu=ipu, ...)
    result = await ipu.execute(operation)

    `validator` looks at each operation before it runs; `concurrency` is how many of those that
    queue run at once. Knowing a session does not keep it alive.
    """

    def __init__(self, validator: Validator | None = None, *, concurrency: int = 1) -> None:
        count(concurrency, "concurrency")
        self._validator = validator
        self._sessions: WeakValueDictionary[UUID, SessionCore] = WeakValueDictionary()
        self._specs: dict[str, _Spec] = {}
        self._slots = RateLimit(concurrency=concurrency)

    @property
    def sessions(self) -> list[SessionCore]:
        """The sessions whose operations may run here."""
        return list(self._sessions.values())

    def register_session(self, session: SessionCore) -> None:
        """Let operations of a session run here; `session.conduct` does it by itself."""
        self._sessions[session.id] = session

    def unregister_session(self, session: SessionCore | UUID) -> None:
        """Let them run here no longer; raises NotFoundError if they could not."""
        uid = session if isinstance(session, UUID) else session.id
        self.get_session(uid)
        self._sessions.pop(uid, None)

    def get_session(self, uid: UUID) -> SessionCore:
        """A session whose operations may run here; raises NotFoundError."""
        session = self._sessions.get(uid)
        if session is None:
            raise NotFoundError(
                f"Session {uid} is not known to this IPU; use register_session(), or pass ipu= to "
                f"session.conduct()."
            )
        return session

    def specify(self, operation: str, *, input: Any = None, output: Any = None) -> None:
        """Say what form the parameters and the result of an operation must have.

        Each is a pydantic model class or a JSON schema; None asks for nothing.
        """
        self._specs[operation] = _Spec(
            None if input is None else as_model(input, "input"),
            None if output is None else as_model(output, "output"),
        )

    async def execute(self, operation: Operation) -> Any:
        """Run an operation now; raises NotFoundError if its session is not known here."""
        self.get_session(operation.session.id)
        return await operation.invoke(self)

    async def queue(self, operation: Operation) -> Any:
        """Run an operation when its turn has come, in the order of asking, in whichever thread."""
        async with self._slots.place():
            return await self.execute(operation)

    async def admit(self, operation: Operation) -> None:
        """Raise unless an operation may run here as it is; it asks by itself before it runs."""
        self.get_session(operation.session.id)
        if self._validator is not None:
            outcome = self._validator(operation)
            if isawaitable(outcome):
                await outcome
        schema = self._specs.get(operation.name, _NO_SPEC).input
        if schema is not None and (problems := problems_with(dict(operation.params), schema)):
            raise ValidationError(
                f"The parameters of {operation.name!r} do not fit {model_name(schema)!r}: "
                f"{'; '.join(problems)}"
            )

    def accept(self, operation: Operation, result: Any) -> None:
        """Raise OutputError unless a result has the form that was specified."""
        schema = self._specs.get(operation.name, _NO_SPEC).output
        if schema is not None and (problems := problems_with(result, schema)):
            raise OutputError(
                f"The result of {operation.name!r} does not fit {model_name(schema)!r}: "
                f"{'; '.join(problems)}",
                problems=problems,
            )
