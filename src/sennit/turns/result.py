"""The result of a run: stop reason, messages and metrics."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias
from uuid import UUID

from sennit import process
from sennit.errors import OutputError, RunError, SennitError, UsageError
from sennit.messages.content import AssistantResponseContent, MessageRole
from sennit.messages.message import Message
from sennit.messages.unset import Unset
from sennit.services.models.reply import NO_USAGE, Usage
from sennit.turns.wait_graph import would_deadlock

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from sennit.sessions.branch import Branch

    _T_co = TypeVar("_T_co", covariant=True, default=object)
else:
    from typing import TypeVar

    _T_co = TypeVar("_T_co", covariant=True)

StopReason: TypeAlias = Literal[
    "stable",  # the model has answered and waits for nothing
    "max_turns",  # no more provider turns, or no more tool passes, are allowed
    "cancelled",
    "invalid",  # the request makes no sense; nothing was run
    "error",  # the model or its provider failed
    "suspended",  # a tool call waits for approval
    "budget",  # what the run may use is used up
    "loop",  # the model keeps asking for the same call
    "length",  # the answer was cut off by the length limit
]
SPECIAL_TURN_KEY = "special_turn"
"""The metadata key of messages of special turns."""
Severity: TypeAlias = Literal["info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice about a run."""

    severity: Severity
    """How serious it is: "info", "warning" or "error"."""
    code: str
    """A code for programs, such as "max_tool_passes"."""
    text: str
    """A sentence for people."""


BRANCH_MOVED = Notice(
    "error", "moved", "Another writer has added messages to this branch meanwhile."
)
"""The notice of a run that expected another end of the branch."""


def busy_notice(branch: Branch, holder: str, *, same_conversation: bool = False) -> Notice:
    """Return the notice that another run, with this lease holder, holds the branch."""
    if would_deadlock(holder):
        text = (
            f"Branch {branch.name!r} is busy with a run that waits for this code, so this code "
            f"cannot wait for it. Use a fork of the branch, or steer() to send that run a message."
        )
        return Notice("error", "busy", text)
    process_name = process.in_words(holder.partition("/")[0])
    by = "this conversation" if same_conversation else process_name
    text = (
        f"Branch {branch.name!r} is busy: {by} is answering on it. Wait for that with "
        f"SessionOptions(when_busy='wait'), or end it with when_busy='interrupt'."
    )
    return Notice("error", "busy", text)


NOTHING_TO_RESUME = Notice("warning", "nothing_to_resume", "No run of this branch was interrupted.")
"""The notice when there is no run to resume, which is no failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The usage of a run."""

    usage: Usage = NO_USAGE
    """The tokens of all model calls together."""
    turns: int = 0
    """The number of model calls."""
    tool_calls: int = 0
    """The number of tool calls."""
    seconds: float = 0.0
    """The duration, without the time spent waiting for approval."""
    finish_reason: str | None = None
    """The last finish reason of the provider."""
    model: str = ""
    """The model of the last reply."""


@dataclass(frozen=True, slots=True)
class Body:
    """The messages of a run."""

    interactions: tuple[Message, ...] = ()
    """The messages that the run added, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Return(Generic[_T_co]):
    """The result of a run, or an item of its stream.

    Exactly one of three flags is set. An increment (`is_delta`) has more of a text in its body, a
    finished message (`is_message`) has that message, and the final result (`is_final`), which comes
    last, has all messages that the run added to the branch. `str()` of an increment is its text and
    "" of the other items, so the joined items of a stream are the model's answer. `str()` of the
    final item raises RunError if the run failed without an answer, so that a loop that prints the
    items does not hide it; the other attributes can be read. `str()` of the result of `say` or
    `run` is the answer, or the error if there is none.
    """

    stop_reason: StopReason | None = None
    """Why the run ended; None for other items of a stream."""
    body: Body = Body()
    """The messages of the run."""
    notices: tuple[Notice, ...] = ()
    """Warnings and errors, in order."""
    metrics: Metrics = Metrics()
    """Model calls, tool calls, tokens and time."""
    run_id: UUID | None = None
    """The id of the run; None if it could not start."""
    seq: int = 0
    """The sequence number of its event."""
    is_delta: bool = False
    """True for an increment of an unfinished message."""
    error: Exception | None = field(default=None, compare=False, repr=False)
    """The exception that the run failed with; only in the process that ran it."""
    is_streamed: bool = field(default=False, compare=False, repr=False)
    """True for the final item of a stream, whose text the increments before it have shown."""
    _output: Any = field(default=None, compare=False, repr=False)
    """The output; Unset if one was asked for and there is none."""

    @property
    def output(self) -> _T_co:
        """The validated output, an instance of the class passed as `output`; None without one.

        Only the final result of a stream has it. Raises OutputError if no answer fits the class,
        and RunError if the run ended for another reason than an answer.
        """
        if self.stop_reason is None:
            raise UsageError("Only the final result has an output (is_final).")
        if self._output is not Unset:
            return self._output
        if isinstance(self.error, OutputError):
            raise self.error
        self.raise_for_error()
        raise RunError(f"The run ended as {self.stop_reason!r} and has no output.", self)

    @property
    def is_message(self) -> bool:
        """True for a finished message of a stream."""
        return self.stop_reason is None and not self.is_delta

    @property
    def is_final(self) -> bool:
        """True for the final result of a run."""
        return self.stop_reason is not None

    def __str__(self) -> str:
        if self.is_streamed and not self.answer:
            self.raise_for_error()  # for `print(piece)`, which would hide the failure
        if self.is_message or self.is_streamed:
            return ""
        return self._text() or self.error_text

    @property
    def success(self) -> bool:
        """True if the run ended as stable."""
        return self.stop_reason == "stable"

    @property
    def text(self) -> str:
        """The text of the assistant in the body.

        Raises RunError if the run failed before there was any.
        """
        text = self._text()
        if not text:
            self.raise_for_error()
        return text

    def _text(self) -> str:
        contents = (message.content for message in self.body.interactions)
        return "".join(
            content.assistant_response or ""
            for content in contents
            if isinstance(content, AssistantResponseContent)
        )

    @property
    def answer(self) -> str:
        """The assistant's final text, after the last tool call or user message; "" if there is
        none, also if the run failed.

        A greeting is not part of an answer.
        """
        answer: list[Message] = []
        for message in reversed(self.body.interactions):
            if not isinstance(message.content, AssistantResponseContent):
                break
            if answer and answer[-1].metadata.get(SPECIAL_TURN_KEY) != message.metadata.get(
                SPECIAL_TURN_KEY
            ):
                break
            answer.append(message)
        return Return(body=Body(tuple(reversed(answer)))).text

    def worse(self, notice: Notice) -> Return[_T_co]:
        """Return a copy that failed with another notice."""
        output = None if self._output is None else Unset
        notices = (*self.notices, notice)
        return replace(self, stop_reason="error", notices=notices, _output=output)

    def raise_for_error(self) -> Return[_T_co]:
        """Return itself, or raise RunError if the run failed.

        A cancelled or suspended run has not failed, nor has `resume` if there is nothing to
        resume. The RunError has the text of the run's own
        error, such as a ModelError, which is `result.error`; an exception of other code, such as a
        policy, is its cause.
        """
        if self.stop_reason in (None, "stable", "cancelled", "suspended"):
            return self
        if NOTHING_TO_RESUME in self.notices:
            return self
        text = self.error_text or f"The run ended with {self.stop_reason!r}."
        added = self.body.interactions
        if added and added[-1].role is MessageRole.USER:
            text = f"{text.rstrip('.')}; the message is kept, run() asks again."
        # The traceback of an error of the library would repeat the text and add our own frames.
        cause = None if isinstance(self.error, SennitError) else self.error
        raise RunError(text, self) from cause

    @property
    def error_text(self) -> str:
        """The texts of its errors; "" if there are none."""
        return "; ".join(notice.text for notice in self.notices if notice.severity == "error")
