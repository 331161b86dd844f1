"""Tools: validated arguments, and results that can be stored.

The turn loop must survive any tool, so `run` returns a ToolOutcome and raises only CancelledError
and KeyboardInterrupt. Arguments that fail validation never reach the function; the error tells the
model what to correct. A result is JSON data within the size limit, or the call has failed.

Each call runs in its own task: a tool that ignores cancellation, or a thread that cannot be
cancelled, is abandoned, and its caller continues.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from time import perf_counter
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    TypeAlias,
    TypedDict,
    Unpack,
    cast,
    get_args,
    overload,
)

from sennit import telemetry
from sennit.errors import (
    CodecError,
    InvalidTypeError,
    ToolError,
    ValidationError,
    did_you_mean,
    listed,
    short_repr,
)
from sennit.messages.codec import dumps, loads
from sennit.messages.json_values import plain, plain_dict, replace_invalid, validate_text
from sennit.messages.media import MediaPart
from sennit.messages.typescript import ToolSchema
from sennit.numbers import positive
from sennit.services.tools.backend import ToolBackend, ToolContext
from sennit.services.tools.function import FunctionBackend

if TYPE_CHECKING:
    from asyncio import Task

    from typing_extensions import ParamSpec, TypeVar

    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any)
    _P2 = ParamSpec("_P2")
    _R2 = TypeVar("_R2")
else:  # `default=` came with Python 3.13
    from typing import ParamSpec, TypeVar

    P, R = ParamSpec("P"), TypeVar("R")

Replay: TypeAlias = Literal["never", "safe", "ask"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MAX_RESULT_BYTES = 1_000_000
_MAX_ERROR_CHARS = 4_000
_CANCEL_GRACE_SECONDS = 1.0  # for a cancelled tool to clean up before it is abandoned


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The outcome of a call: a value or an error."""

    value: Any = None
    """The result as JSON data; None after an error."""
    error: str | None = None
    """The error message for the model; None on success."""
    ran: bool = True
    """False if the arguments were invalid and the tool was not called."""
    duration: float = 0.0
    """The duration in seconds."""
    cause: BaseException | None = field(default=None, compare=False, repr=False)
    """The exception behind the error."""
    returned: Any = field(default=None, compare=False, repr=False)
    """The object that the function returned, of which `value` is the JSON data."""
    files: tuple[MediaPart, ...] = ()
    """The pictures, files and recordings that the function returned, alone or in a list."""

    @property
    def success(self) -> bool:
        """True if there is a value."""
        return self.error is None

    def unwrap(self) -> Any:
        """Return the value; raises ToolError if the call failed."""
        if self.error is not None:
            raise ToolError(self.error) from self.cause
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """Options of a tool."""

    timeout: float | None = None
    """The maximum duration of a call in seconds; None for no limit."""
    needs_approval: bool = False
    """Whether a person must approve each call that a model requests."""
    replay: Replay = "never"
    """Whether a call interrupted by a crash is repeated: "never", "safe" (always), or "ask"."""
    max_result_bytes: int = _MAX_RESULT_BYTES
    """The maximum size of a result as JSON."""

    def __post_init__(self) -> None:
        if self.timeout is not None:
            positive(self.timeout, "timeout")
        positive(self.max_result_bytes, "max_result_bytes")
        if self.replay not in get_args(Replay):
            raise ValidationError(
                f"replay must be one of {listed(get_args(Replay))}, got {short_repr(self.replay)}."
            )
        if type(self.needs_approval) is not bool:
            raise InvalidTypeError(
                f"needs_approval must be True or False, got {short_repr(self.needs_approval)}."
            )


class ToolChanges(TypedDict, total=False):
    """The fields of ToolOptions, by name."""

    timeout: float | None
    """Seconds after which a call fails; None for no limit."""
    needs_approval: bool
    """Whether a person must approve each call."""
    replay: Replay
    """What happens to a call that a crash interrupted."""
    max_result_bytes: int
    """The maximum size of a result."""


class Tool(Generic[P, R]):
    """A tool that a model may call, made from a typed function.

    def weather(city: str, days: int = 1) -> str:
        '''The forecast for a city.'''

    Tool(weather, timeout=10)
    """

    __slots__ = ("_backend", "_options", "_schema")

    @overload
    def __init__(
        self: Tool[_P2, _R2],
        function: Callable[_P2, Awaitable[_R2]],
        name: str | None = None,
        description: str | None = None,
        **options: Unpack[ToolChanges],
    ) -> None: ...
    @overload
    def __init__(
        self: Tool[_P2, _R2],
        function: Callable[_P2, _R2],
        name: str | None = None,
        description: str | None = None,
        **options: Unpack[ToolChanges],
    ) -> None: ...
    @overload
    def __init__(
        self: Tool[..., Any],
        function: ToolBackend,
        name: str | None = None,
        description: str | None = None,
        **options: Unpack[ToolChanges],
    ) -> None: ...
    def __init__(
        self,
        function: Callable[..., Any] | ToolBackend,
        name: str | None = None,
        description: str | None = None,
        **options: Unpack[ToolChanges],
    ) -> None:
        """Name and description default to the function's own; for options see ToolOptions.

        Raises InvalidTypeError if the function cannot be offered to a model, ValidationError for a
        name that providers do not accept.
        """
        if isinstance(function, Tool):
            raise InvalidTypeError(
                f"{function!r} is a tool already; change it with its with_options()."
            )
        if name is not None:
            checked_tool_name(name)
        self._options = tool_options(options)
        self._backend = (
            function if isinstance(function, ToolBackend) else FunctionBackend(function, name)
        )
        schema = self._backend.schema
        self._schema = ToolSchema(
            checked_tool_name(schema.name if name is None else name),
            validate_text(
                schema.description if description is None else description, "description"
            ),
            schema.parameters,
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
        """The schema sent to a model: name, description and parameters."""
        return self._schema

    @property
    def options(self) -> ToolOptions:
        """The options."""
        return self._options

    @property
    def timeout(self) -> float | None:
        """The maximum duration of a call in seconds."""
        return self._options.timeout

    @property
    def needs_approval(self) -> bool:
        """True if a person must approve each call that a model requests."""
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
    ) -> Tool[P, R]:
        """Return a copy with another name, description or options."""
        changed = cast("ToolChanges", {**asdict(self._options), **options})
        tool = Tool(
            self._backend,
            self.name if name is None else name,
            self.description if description is None else description,
            **changed,
        )
        return cast("Tool[P, R]", tool)

    async def invoke(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the tool as its function is called, and return what that returns.

        Arguments are validated, and a ToolContext may be one of them. Raises ToolError if the call
        fails, or if the result is no JSON data.
        """
        named = {**self._named(args), **kwargs}
        contexts = {key: value for key, value in named.items() if isinstance(value, ToolContext)}
        arguments = {key: value for key, value in named.items() if key not in contexts}
        outcome = await self.arun(arguments, *contexts.values())
        outcome.unwrap()
        return outcome.returned

    def invoke_sync(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """`invoke` for programs without an event loop."""
        from sennit.blocking import run_blocking  # late: slow to import

        return run_blocking(self.invoke(*args, **kwargs), "await invoke()")

    def _named(self, args: tuple[object, ...]) -> dict[str, object]:
        """Return positional arguments by the names of the parameters."""
        names = self._backend.positional_names if args else ()
        if len(args) > len(names):
            raise ToolError(
                f"Tool {self.name!r} takes {len(names)} arguments by position, got {len(args)}."
            )
        return dict(zip(names, args, strict=False))

    def run(
        self, arguments: str | bytes | Mapping[str, Any] = "", context: ToolContext | None = None
    ) -> ToolOutcome:
        """`arun` for programs without an event loop."""
        from sennit.blocking import run_blocking  # late: slow to import

        return run_blocking(self.arun(arguments, context), "await arun()")

    async def arun(
        self, arguments: str | bytes | Mapping[str, Any] = "", context: ToolContext | None = None
    ) -> ToolOutcome:
        """Call the tool with a JSON object, as text or as a dict; empty text means no arguments.

        Failures are in the outcome. Only CancelledError, if the caller is cancelled, and
        KeyboardInterrupt are raised.
        """
        started = perf_counter()
        execute = self._run_traced if telemetry.on() else self._run
        outcome = await execute(arguments, context or ToolContext())
        return replace(outcome, duration=perf_counter() - started)

    async def _run_traced(self, arguments: Any, context: ToolContext) -> ToolOutcome:
        """Run within a telemetry span."""
        attributes = {
            telemetry.TOOL: self.name,
            telemetry.TOOL_TYPE: "function",
            telemetry.TOOL_CALL: context.call_id,
            telemetry.CONVERSATION: context.session_id and str(context.session_id),
            telemetry.ARGUMENTS: _telemetry_content(arguments),
        }
        with telemetry.traced(telemetry.EXECUTE_TOOL, self.name, attributes) as span:
            outcome = await self._run(arguments, context)
            if outcome.success:
                span.set_attributes({telemetry.RESULT: _telemetry_content(outcome.value)})
            else:
                span.fail(telemetry.error_kind(outcome.cause or ToolError()))
            return outcome

    async def _run(self, arguments: Any, context: ToolContext) -> ToolOutcome:
        try:
            bound = self._backend.bind(_parse_arguments(arguments))
        except Exception as error:
            message = f"Tool {self.name!r} was not called. {_error_text(error)}"
            return ToolOutcome(error=_bounded_text(message), ran=False, cause=error)
        try:
            returned = await self._await_result(self._backend.call(bound, context))
            rest, files = _split_files(returned)
            return ToolOutcome(self._storable(rest), returned=returned, files=files)
        except Exception as error:
            return ToolOutcome(error=_bounded_text(_error_text(error)), cause=error)

    async def _await_result(self, call: Coroutine[Any, Any, Any]) -> Any:
        """Return the result of the call, within its timeout."""
        import asyncio  # late: slow to import

        task = asyncio.create_task(_convert_exit(call), name=f"tool {self.name}")
        try:
            done, _ = await asyncio.wait({task}, timeout=self.timeout)
        except asyncio.CancelledError:
            await _cancel(task)
            raise
        if not done:
            await _cancel(task)
            raise ToolError(
                f"Tool {self.name!r} took longer than {self.timeout:g} seconds; it was stopped or "
                f"abandoned, so it may have done all of its work, some of it or none."
            )
        if task.cancelled():
            raise ToolError(f"Tool {self.name!r} was cancelled by its own code.")
        return task.result()

    def _storable(self, value: Any) -> Any:
        """Return `value` as JSON data; raises ToolError if it cannot be stored or is too large."""
        try:
            result = plain(value, "result")
            size = len(dumps(result))
        except ValidationError as error:
            raise ToolError(
                f"Tool {self.name!r} ran, but its result cannot be stored: {error}"
            ) from error
        if size > (limit := self._options.max_result_bytes):
            raise ToolError(
                f"Tool {self.name!r} ran, but its result has {size:,} bytes and {limit:,} are "
                f"allowed; request less data."
            )
        return result

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"


def checked_tool_name(name: Any) -> str:
    """Return `name` if every provider accepts it; raises ValidationError otherwise."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValidationError(
            f"{short_repr(name)} cannot be the name of a tool: providers take 1 to 64 letters, "
            f"digits, '_' and '-'; give another with name=."
        )
    return name


def tool_options(options: Mapping[str, Any]) -> ToolOptions:
    """Return options from keywords; raises ValidationError for an unknown or invalid one."""
    if unknown := options.keys() - ToolOptions.__dataclass_fields__.keys():
        name, valid = sorted(unknown)[0], ToolOptions.__dataclass_fields__
        raise InvalidTypeError(
            f"A tool has no option {name!r}.{did_you_mean(name, valid)} It has {', '.join(valid)}."
        )
    return ToolOptions(**options)


def _telemetry_content(value: Any) -> str | None:
    """Return arguments or results for telemetry, if content may be recorded."""
    if not telemetry.content():
        return None
    try:
        return value if isinstance(value, str) else dumps(value).decode()
    except CodecError:  # arguments are not validated yet
        return short_repr(value)


def _parse_arguments(arguments: Any) -> dict[str, Any]:
    """Return the arguments as a dict of JSON data; raises ValidationError otherwise."""
    if isinstance(arguments, str | bytes):
        if not arguments.strip():  # several providers send a call without arguments this way
            return {}
        try:
            arguments = loads(arguments)
        except CodecError as error:
            raise ValidationError(f"The arguments are not valid JSON: {error}") from error
    if not isinstance(arguments, Mapping):
        raise ValidationError(f"The arguments must be a JSON object, got {short_repr(arguments)}.")
    return plain_dict(arguments, "arguments")


def _split_files(value: Any) -> tuple[Any, tuple[MediaPart, ...]]:
    """Return a result without its files, and the files; a list of one item becomes the item."""
    if isinstance(value, MediaPart):
        return None, (value,)
    if not isinstance(value, list | tuple):
        return value, ()
    items = cast("Sequence[Any]", value)
    files = tuple(item for item in items if isinstance(item, MediaPart))
    if not files:
        return items, ()
    rest = [item for item in items if not isinstance(item, MediaPart)]
    return rest[0] if len(rest) == 1 else rest or None, files


async def _convert_exit(call: Coroutine[Any, Any, Any]) -> Any:
    """Await the call; SystemExit raised by the tool becomes a ToolError."""
    try:
        return await call
    except SystemExit as error:
        raise ToolError(f"SystemExit: {error}") from error


async def _cancel(task: Task[Any]) -> None:
    """Cancel a task and wait briefly for it to clean up; abandon it otherwise."""
    import asyncio

    from sennit.finish_uncancelled import finish_uncancelled

    task.add_done_callback(_retrieve_exception)
    task.cancel()
    await finish_uncancelled(asyncio.wait({task}, timeout=_CANCEL_GRACE_SECONDS))


def _retrieve_exception(task: Task[Any]) -> None:
    """Retrieve the exception of a task, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()


def _error_text(error: Exception) -> str:
    """Return the type and message of an exception, without its traceback."""
    try:
        message = str(error)
    except Exception:  # __str__ may raise anything
        message = ""
    if isinstance(error, ToolError | ValidationError):
        return message
    name = type(error).__name__
    return f"{name}: {message}" if message else name


def _bounded_text(message: str) -> str:
    """Return `message` as valid text of limited length."""
    clean = replace_invalid(message)
    return clean if len(clean) <= _MAX_ERROR_CHARS else f"{clean[:_MAX_ERROR_CHARS]}…"
