"""The result of a run: stop reason, messages and metrics."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias
from uuid import UUID

from sennit.errors import RunError
from sennit.messages.content import AssistantResponseContent
from sennit.messages.message import Message
from sennit.services.models.reply import NO_USAGE, Usage

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
"""What messages of special turns are marked with, in their metadata."""
Severity: TypeAlias = Literal["info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to know about a run."""

    severity: Severity
    code: str
    """A word for programs, such as "max_tool_passes"."""
    text: str
    """A sentence for people."""


BRANCH_MOVED = Notice(
    "error", "moved", "Another writer has added messages to this branch meanwhile."
)
"""Why a run is refused that was to begin where a branch ended before."""
NOTHING_TO_RESUME = Notice("error", "nothing_to_resume", "No run of this branch was interrupted.")
"""Why there is nothing to go on with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The usage of a run."""

    usage: Usage = NO_USAGE
    turns: int = 0
    """Provider turns."""
    tool_calls: int = 0
    """Tools that were called."""
    seconds: float = 0.0
    """From start to end, waiting for people not counted."""
    finish_reason: str | None = None
    """What the provider last said about why it stopped."""
    model: str = ""
    """The model that answered last."""


@dataclass(frozen=True, slots=True)
class Body:
    """The messages of a run."""

    interactions: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """The result of a run, or, while it streams, its next piece.

    Exactly one of three flags is set. An increment (`is_delta`) carries more of a text in its body,
    a finished message (`is_message`) that message, and the final result (`is_final`), which comes
    last, all that the run has added to the branch. `str()` of an increment is its text, and "" of
    the others, so the joined pieces of a stream are what the model has answered.
    """

    stop_reason: StopReason | None = None
    """Why it ended; None for a piece of a stream."""
    body: Body = Body()
    messages: tuple[Notice, ...] = ()
    metrics: Metrics = Metrics()
    run_id: UUID | None = None
    seq: int = 0
    """The number of the event it was made from."""
    is_delta: bool = False
    """Whether it is an increment of a message that is being said."""
    error: Exception | None = field(default=None, compare=False, repr=False)
    """What the run failed with, in the program that ran it."""

    @property
    def is_message(self) -> bool:
        """True if it is a message of a stream that is complete."""
        return self.stop_reason is None and not self.is_delta

    @property
    def is_final(self) -> bool:
        """True if it is the result of a run that has ended."""
        return self.stop_reason is not None

    def __str__(self) -> str:
        return self.text if self.is_delta else ""

    @property
    def success(self) -> bool:
        """True if the run came to a stable end."""
        return self.stop_reason == "stable"

    @property
    def text(self) -> str:
        """The text in the body, of the assistant alone."""
        contents = (message.content for message in self.body.interactions)
        return "".join(
            content.assistant_response or ""
            for content in contents
            if isinstance(content, AssistantResponseContent)
        )

    @property
    def answer(self) -> str:
        """The assistant's final text, after the last tool call or user message; "" if there is
        none.

        A greeting and an answer to what was said are two things.
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

    def worse(self, notice: Notice) -> Return:
        """The same as a failure, and why."""
        return replace(self, stop_reason="error", messages=(*self.messages, notice))

    def raise_for_error(self) -> Return:
        """Itself, or raises RunError if the run did not end well; for a suspended one it does not.

        Being cancelled or suspended is no error.
        """
        if self.stop_reason in (None, "stable", "cancelled", "suspended"):
            return self
        errors = "; ".join(notice.text for notice in self.messages if notice.severity == "error")
        text = errors or f"The run ended with {self.stop_reason!r}."
        raise RunError(text, self) from self.error
