"""Tools: validated arguments, and results that can be stored.

A call is safe to make for someone who must go on whatever happens (the turn loop): `run` gives an
Outcome and raises only what is not the tool's, a cancelled caller or Ctrl-C. Arguments that do not
parse or fit are never run with; the error says what to mend, so that the model can try again. A
result is plain data, in the form and the size a store takes, or the call has failed.

Each call is a task of its own: a tool that ignores being cancelled, or a thread that cannot be, is
left behind, and its caller goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, Unpack, cast, get_args

from sennit import telemetry
from sennit.errors import CodecError, InvalidTypeError, ToolError, ValidationError, shown
from sennit.messages.codec import dumps, loads
from sennit.messages.json_values import plain, plain_dict, readable, text
from sennit.messages.typescript import ToolSchema
from sennit.services.tools.backend import ToolBackend, ToolContext
from sennit.services.tools.function import FunctionBackend

if TYPE_CHECKING:
    from asyncio import Task

Replay: TypeAlias = Literal["never", "safe", "ask"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MAX_RESULT = 1_000_000
_MAX_ERROR = 4_000
_GRACE = 1.0  # seconds for a cancelled tool to clean up before it is left behind


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The outcome of a call: a value or an error."""

    value: Any = None
    """The result as plain data; None after an error."""
    error: str | None = None
    """What went wrong, for the model to read; None if nothing did."""
    ran: bool = True
    """False if the arguments did not fit, so that nothing was called."""
    duration: float = 0.0
    """How long it took, in seconds."""
    cause: BaseException | None = field(default=None, compare=False, repr=False)
    """The exception behind the error, for the program to look at."""

    @property
    def success(self) -> bool:
        """True if there is a value."""
        return self.error is None

    def unwrap(self) -> Any:
        """The value; raises ToolError if there is none."""
        if self.error is not None:
            raise ToolError(self.error) from self.cause
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """Options of a tool."""

    timeout: float | None = None
    """The most seconds a call may take; None for as long as it likes."""
    needs_approval: bool = False
    """Whether a person must allow each call that a model asks for."""
    replay: Replay = "never"
    """What to do with a call that a crash cut short: never make it again, it is safe to, or ask."""
    max_result_bytes: int = _MAX_RESULT
    """The most bytes a result may have as JSON."""

    def __post_init__(self) -> None:
        if self.timeout is not None and not _positive(self.timeout):
            raise ValidationError(
                f"timeout must be a number of seconds above 0 or None, got {shown(self.timeout)}."
            )
        if self.replay not in get_args(Replay):
            raise ValidationError(
                f"replay must be one of {', '.join(map(repr, get_args(Replay)))}, "
                f"got {shown(self.replay)}."
            )
        if not _positive(self.max_result_bytes):
            raise ValidationError(
                f"max_result_bytes must be above 0, got {shown(self.max_result_bytes)}."
            )
        if type(self.needs_approval) is not bool:
            raise InvalidTypeError(
                f"needs_approval must be True or False, got {shown(self.needs_approval)}."
            )


class ToolChanges(TypedDict, total=False):
    """The fields of ToolOptions, by name."""

    timeout: float | None
    needs_approval: bool
    replay: Replay
    max_result_bytes: int


class Tool:
    """Something a model may have called, made from a typed function.

    def weather(city: str, days: int = 1) -> str:
        '''The forecast for a city.'''

    Tool(weather, timeout=10)
    """

    __slots__ = ("_options", "_schema", "_target")

    def __init__(
        self,
        function: Callable[..., Any] | ToolBackend,
        name: str | None = None,
        description: str | None = None,
        **options: Unpack[ToolChanges],
    ) -> None:
        """Name and description are the function's own unless given; for options see ToolOptions.

        Raises InvalidTypeError if the function cannot be offered to a model, ValidationError for a
        name that providers do not take.
        """
        if isinstance(function, Tool):
            raise InvalidTypeError(
                f"{function!r} is a tool already; change it with its with_options()."
            )
        if name is not None:
            checked_tool_name(name)
        self._options = tool_options(options)
        self._target = (
            function if isinstance(function, ToolBackend) else FunctionBackend(function, name)
        )
        own = self._target.schema
        self._schema = ToolSchema(
            checked_tool_name(own.name if name is None else name),
            text(own.description if description is None else description, "description"),
            own.parameters,
        )

    @property
    def name(self) -> str:
        """The name a model calls it by."""
        return self._schema.name

    @property
    def description(self) -> str:
        """The description for the model."""
        return self._schema.description

    @property
    def schema(self) -> ToolSchema:
        """All a model is told of it."""
        return self._schema

    @property
    def options(self) -> ToolOptions:
        """The options."""
        return self._options

    @property
    def timeout(self) -> float | None:
        """The most seconds a call may take."""
        return self._options.timeout

    @property
    def needs_approval(self) -> bool:
        """True if a person must allow each call that a model asks for."""
        return self._options.needs_approval

    @property
    def replay(self) -> Replay:
        """The replay policy of a call that a crash interrupted."""
        return self._options.replay

    def with_options(
        self,
        name: str | None = None,
        description: str | None = None,
        **options: Unpack[ToolChanges],
    ) -> Tool:
        """The same tool under another name, or called in another way."""
        changed = cast("ToolChanges", {**asdict(self._options), **options})
        return Tool(
            self._target,
            self.name if name is None else name,
            self.description if description is None else description,
            **changed,
        )

    async def invoke(self, /, **arguments: Any) -> Any:
        """Call it and get the result as plain data; raises ToolError if there is none."""
        return (await self.run(arguments)).unwrap()

    async def run(
        self, arguments: str | bytes | Mapping[str, Any] = "", context: ToolContext | None = None
    ) -> ToolOutcome:
        """Call it with a JSON object, as text or as a dict; no text at all means no arguments.

        What goes wrong is in the Outcome. Only what is not the tool's own is raised: CancelledError
        when the caller is cancelled, and KeyboardInterrupt.
        """
        started = perf_counter()
        run = self._watched if telemetry.on() else self._outcome
        outcome = await run(arguments, context or ToolContext())
        return replace(outcome, duration=perf_counter() - started)

    async def _watched(self, arguments: Any, context: ToolContext) -> ToolOutcome:
        """The same, for someone who watches."""
        notes = {
            telemetry.TOOL: self.name,
            telemetry.TOOL_TYPE: "function",
            telemetry.TOOL_CALL: context.call_id,
            telemetry.CONVERSATION: context.session_id and str(context.session_id),
            telemetry.ARGUMENTS: _content(arguments),
        }
        with telemetry.watching(telemetry.EXECUTE_TOOL, self.name, notes) as watched:
            outcome = await self._outcome(arguments, context)
            if outcome.success:
                watched.note({telemetry.RESULT: _content(outcome.value)})
            else:
                watched.fail(telemetry.error_kind(outcome.cause or ToolError()))
            return outcome

    async def _outcome(self, arguments: Any, context: ToolContext) -> ToolOutcome:
        try:
            bound = self._target.bind(_object(arguments))
        except Exception as error:
            said = f"Tool {self.name!r} was not called. {_said(error)}"
            return ToolOutcome(error=_readable(said), ran=False, cause=error)
        try:
            return ToolOutcome(self._kept(await self._settled(self._target.call(bound, context))))
        except Exception as error:
            return ToolOutcome(error=_readable(_said(error)), cause=error)

    async def _settled(self, call: Coroutine[Any, Any, Any]) -> Any:
        """Return the result of the call, within its timeout."""
        import asyncio  # takes long, and only async callers need it

        task = asyncio.create_task(_contained(call), name=f"tool {self.name}")
        try:
            done, _ = await asyncio.wait({task}, timeout=self.timeout)
        except asyncio.CancelledError:
            await _stopped(task)
            raise
        if not done:
            await _stopped(task)
            raise ToolError(
                f"Tool {self.name!r} took longer than {self.timeout:g} seconds; it was stopped or "
                f"abandoned, so it may have done all of its work, some of it or none."
            )
        if task.cancelled():
            raise ToolError(f"Tool {self.name!r} was cancelled by its own code.")
        return task.result()

    def _kept(self, value: Any) -> Any:
        """`value` as plain data; raises ToolError if a store would not take it."""
        try:
            kept = plain(value, "result")
            size = len(dumps(kept))
        except ValidationError as error:
            raise ToolError(
                f"Tool {self.name!r} ran, but its result cannot be stored: {error}"
            ) from error
        if size > (limit := self._options.max_result_bytes):
            raise ToolError(
                f"Tool {self.name!r} ran, but its result has {size:,} bytes and {limit:,} are "
                f"allowed; request less data."
            )
        return kept

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"


def checked_tool_name(name: Any) -> str:
    """`name` if every provider takes it; raises ValidationError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValidationError(
            f"{shown(name)} cannot be the name of a tool: providers take 1 to 64 letters, digits, "
            f"'_' and '-'; give another with name=."
        )
    return name


def tool_options(given: Mapping[str, Any]) -> ToolOptions:
    """Options from keywords; raises ValidationError for one that is unknown or makes no sense."""
    if unknown := given.keys() - ToolOptions.__dataclass_fields__.keys():
        known = ", ".join(ToolOptions.__dataclass_fields__)
        raise InvalidTypeError(f"A tool has no option {sorted(unknown)[0]!r}; it has {known}.")
    return ToolOptions(**given)


def _content(value: Any) -> str | None:
    """Return arguments or results for telemetry, if content may be recorded."""
    if not telemetry.content():
        return None
    try:
        return value if isinstance(value, str) else dumps(value).decode()
    except CodecError:  # arguments that nobody has checked yet
        return shown(value)


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _object(arguments: Any) -> dict[str, Any]:
    """The arguments as a dict of plain data; raises ValidationError if they are none."""
    if isinstance(arguments, str | bytes):
        if not arguments.strip():  # how several providers write a call without arguments
            return {}
        try:
            arguments = loads(arguments)
        except CodecError as error:
            raise ValidationError(f"The arguments are not valid JSON: {error}") from error
    if not isinstance(arguments, Mapping):
        raise ValidationError(f"The arguments must be a JSON object, got {shown(arguments)}.")
    return plain_dict(arguments, "arguments")


async def _contained(call: Coroutine[Any, Any, Any]) -> Any:
    """The call, with an exit that some library asks for turned into a failure of the tool's."""
    try:
        return await call
    except SystemExit as error:
        raise ToolError(f"SystemExit: {error}") from error


async def _stopped(task: Task[Any]) -> None:
    """Cancel a task and give it a moment to clean up; it is left behind if it does not."""
    import asyncio

    from anyio import CancelScope

    task.add_done_callback(_heard)
    task.cancel()
    with CancelScope(shield=True):
        await asyncio.wait({task}, timeout=_GRACE)


def _heard(task: Task[Any]) -> None:
    """Look at how a task ended, or asyncio complains that nobody did."""
    if not task.cancelled():
        task.exception()


def _said(error: Exception) -> str:
    """An exception as a line: its type and message, without where in the program it came from."""
    try:
        message = str(error)
    except Exception:  # a message may do anything; the type says enough
        message = ""
    if isinstance(error, ToolError | ValidationError):
        return message
    name = type(error).__name__
    return f"{name}: {message}" if message else name


def _readable(message: str) -> str:
    """`message` as text that every store and provider takes, and not too much of it."""
    sound = readable(message)
    return sound if len(sound) <= _MAX_ERROR else f"{sound[:_MAX_ERROR]}…"
