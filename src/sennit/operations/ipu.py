"""IPU: the execution boundary of operations.

A program that runs operations for others (a server, a worker) limits here which sessions may run
them, the schemas of parameters and results, and the concurrency. Without an IPU, operations run
unrestricted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from uuid import UUID
from weakref import WeakValueDictionary

from sennit.blocking import run_blocking
from sennit.errors import NotFoundError, OutputError, ValidationError
from sennit.messages.output_schema import as_model, model_name
from sennit.messages.output_validation import problems_with
from sennit.numbers import count
from sennit.services.models.limits.rate_limit import RateLimit

if TYPE_CHECKING:
    from sennit.messages.output_schema import Model
    from sennit.operations.operation import Operation
    from sennit.operations.params import Schema
    from sennit.sessions.session import SessionCore

_T = TypeVar("_T")
Validator: TypeAlias = "Callable[[Operation], Awaitable[None] | None]"
"""Called with an operation before it runs; an exception stops it."""


class IPU:
    """A boundary that runs operations of registered sessions.

    ipu = IPU()
    ipu.specify("communicate", input=Question, output=Answer)
    operation = await session.conduct(branch=main, operation="communicate", ipu=ipu, ...)
    result = await ipu.execute(operation)

    `validator` is called before each operation; `concurrency` limits the queued operations that run
    at once. Sessions are held weakly.
    """

    def __init__(self, validator: Validator | None = None, *, concurrency: int = 1) -> None:
        count(concurrency, "concurrency")
        self._validator = validator
        self._sessions: WeakValueDictionary[UUID, SessionCore] = WeakValueDictionary()
        self._inputs: dict[str, Model | None] = {}
        self._outputs: dict[str, Model | None] = {}
        self._slots = RateLimit(concurrency=concurrency)

    @property
    def sessions(self) -> list[SessionCore]:
        """The registered sessions."""
        return list(self._sessions.values())

    def register_session(self, session: SessionCore) -> None:
        """Allow operations of a session; `session.conduct` does this itself."""
        self._sessions[session.id] = session

    def unregister_session(self, session: SessionCore | UUID) -> None:
        """Disallow operations of a session; raises NotFoundError if it is not registered."""
        uid = session if isinstance(session, UUID) else session.id
        self.get_session(uid)
        self._sessions.pop(uid, None)

    def get_session(self, uid: UUID) -> SessionCore:
        """Return a registered session; raises NotFoundError."""
        session = self._sessions.get(uid)
        if session is None:
            raise NotFoundError(
                f"Session {uid} is not known to this IPU; use register_session(), or pass ipu= to "
                f"session.conduct()."
            )
        return session

    def specify(self, operation: str, *, input: Schema = None, output: Schema = None) -> None:
        """Set the schemas of an operation's parameters and result.

        Each is a pydantic model class or a JSON schema, or None for no validation.
        """
        input_schema = None if input is None else as_model(input, "input")
        self._outputs[operation] = None if output is None else as_model(output, "output")
        self._inputs[operation] = input_schema

    async def execute(self, operation: Operation[_T]) -> _T:
        """Run an operation now; raises NotFoundError if its session is not registered."""
        self.get_session(operation.session.id)
        return await operation.invoke(self)

    async def queue(self, operation: Operation[_T]) -> _T:
        """Run an operation after those queued before it, from any thread."""
        async with self._slots.place():
            return await self.execute(operation)

    def execute_sync(self, operation: Operation[_T]) -> _T:
        """`execute` for programs without an event loop."""
        return run_blocking(self.execute(operation), "await execute()")

    def queue_sync(self, operation: Operation[_T]) -> _T:
        """`queue` for programs without an event loop."""
        return run_blocking(self.queue(operation), "await queue()")

    async def admit(self, operation: Operation) -> None:
        """Raise unless an operation may run here; called by the operation before it runs."""
        self.get_session(operation.session.id)
        if self._validator is not None:
            outcome = self._validator(operation)
            if isawaitable(outcome):
                await outcome
        schema = self._inputs.get(operation.name)
        if schema is not None and (problems := problems_with(dict(operation.params), schema)):
            raise ValidationError(
                f"The parameters of {operation.name!r} do not fit {model_name(schema)!r}: "
                f"{'; '.join(problems)}"
            )

    def accept(self, operation: Operation, result: object) -> None:
        """Raise OutputError unless a result fits its schema."""
        schema = self._outputs.get(operation.name)
        if schema is not None and (problems := problems_with(result, schema)):
            raise OutputError(
                f"The result of {operation.name!r} does not fit {model_name(schema)!r}: "
                f"{'; '.join(problems)}",
                problems=problems,
            )
