"""Events of a run, from which results, streams and observer calls are derived.

An event is numbered within its branch and durable before anyone receives it. It refers to a message
by id instead of copying it, so erasing a message erases its traces; only the deltas of an
unfinished message are stored in events, until that message is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeAlias, cast
from uuid import UUID

from sennit.messages.codec import dumps, loads
from sennit.messages.message import Message
from sennit.services.models.reply import Usage
from sennit.stores.records.sessions import EventRecord
from sennit.turns.result import Body, Metrics, Notice, Return


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of a run."""

    kind: ClassVar[str]
    stored: ClassVar[tuple[str, ...]] = ()
    """The fields that `details` returns unchanged."""
    seq: int
    """The sequence number on the branch, counted from 1 over all runs."""
    run_id: UUID
    """The id of the run."""

    def details(self) -> tuple[Any, ...]:
        """Return the stored fields, in order, without the message."""
        return ()

    @classmethod
    def fields(cls, details: list[Any]) -> dict[str, Any]:
        """Return the fields, without the message, from stored details."""
        return dict(zip(cls.stored, details, strict=False))

    @property
    def about(self) -> UUID | None:
        """The id of the message the event refers to."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(Event):
    """A run starts, or continues after an interruption or suspension."""

    kind: ClassVar[str] = "run.started"
    stored: ClassVar[tuple[str, ...]] = ("model", "resumed")
    model: str
    """The name of the model."""
    resumed: bool = False
    """Whether this run continues an earlier one."""

    def details(self) -> tuple[Any, ...]:
        return (self.model, True) if self.resumed else (self.model,)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted(Event):
    """The model is called."""

    kind: ClassVar[str] = "turn.started"
    stored: ClassVar[tuple[str, ...]] = ("turn",)
    turn: int
    """The number of the turn in this run, from 1."""

    def details(self) -> tuple[Any, ...]:
        return (self.turn,)


@dataclass(frozen=True, slots=True, kw_only=True)
class _MessageIdEvent(Event):
    message_id: UUID
    """The id of the message, which may not be stored yet."""

    @property
    def about(self) -> UUID | None:
        return self.message_id


@dataclass(frozen=True, slots=True, kw_only=True)
class _TextEvent(_MessageIdEvent):
    stored: ClassVar[tuple[str, ...]] = ("text",)
    text: str
    """The text; of a delta, the increment."""

    def details(self) -> tuple[Any, ...]:
        return (self.text,)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextAdded(_TextEvent):
    """An increment of the answer."""

    kind: ClassVar[str] = "text.delta"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningAdded(_TextEvent):
    """An increment of the model's reasoning."""

    kind: ClassVar[str] = "reasoning.delta"


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftDropped(_MessageIdEvent):
    """The deltas of a message are void: it is generated again, or was cancelled."""

    kind: ClassVar[str] = "draft.dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class _MessageEvent(Event):
    message: Message
    """The message, as it is stored."""

    @property
    def about(self) -> UUID | None:
        return self.message.id


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCompleted(_MessageEvent):
    """A message was added to the branch: a text, a greeting, or a steered message."""

    kind: ClassVar[str] = "message.completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled(_MessageEvent):
    """The model called a tool; the request was added to the branch."""

    kind: ClassVar[str] = "tool.called"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted(_MessageEvent):
    """A tool call is about to be executed."""

    kind: ClassVar[str] = "tool.started"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultBuffered(_MessageIdEvent):
    """A tool finished before earlier calls of its turn; its result is published after theirs."""

    kind: ClassVar[str] = "tool.result_buffered"
    request_id: UUID
    """The request that the tool was called for."""
    outcome: Mapping[str, Any]
    """The result or the error, under that name."""

    def details(self) -> tuple[Any, ...]:
        return (str(self.request_id), self.outcome)

    @classmethod
    def fields(cls, details: list[Any]) -> dict[str, Any]:
        request, outcome = details
        return {"request_id": UUID(request), "outcome": outcome}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQueued(_TextEvent):
    """A user message was queued for the run, which reads it before its next model call."""

    kind: ClassVar[str] = "message.queued"
    stored: ClassVar[tuple[str, ...]] = ("text", "record")
    record: Mapping[str, Any] | None = None
    """The stored form of the message, if it is more than a text of the session's user."""

    def details(self) -> tuple[Any, ...]:
        return (self.text,) if self.record is None else (self.text, self.record)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCompleted(_MessageEvent):
    """The result of a tool call, which may be an error, was added to the branch."""

    kind: ClassVar[str] = "tool.completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequired(_MessageEvent):
    """A tool call waits for the approval of a person."""

    kind: ClassVar[str] = "approval.required"
    stored: ClassVar[tuple[str, ...]] = ("starts",)
    starts: int = 0
    """The number of starts of the call so far, on any branch."""

    def details(self) -> tuple[Any, ...]:
        return (self.starts,) if self.starts else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalDecided(_MessageEvent):
    """A person has approved or denied a tool call."""

    kind: ClassVar[str] = "approval.decided"
    stored: ClassVar[tuple[str, ...]] = ("approved", "reason", "starts")
    approved: bool
    """Whether the call was approved."""
    reason: str = ""
    """The reason given for a denial."""
    starts: int = 0
    """The number of starts of the call so far, on any branch."""

    def details(self) -> tuple[Any, ...]:
        decision = (self.approved, self.reason)
        return (*decision, self.starts) if self.starts else decision


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageInterjected(_MessageEvent):
    """A message was added to the branch that is not an answer of the run.

    It comes from a special turn, or was steered too late for the run.
    """

    kind: ClassVar[str] = "message.interjected"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryReplaced(_MessageEvent):
    """Messages were replaced by one, such as a summary, and moved to a branch of their own."""

    kind: ClassVar[str] = "history.replaced"
    branch_id: UUID
    """The branch of the replaced messages."""
    count: int
    """The number of replaced messages."""
    to_make_room: bool = False
    """Whether the run itself replaced them to make room; then the usage counts for the run."""

    def details(self) -> tuple[Any, ...]:
        return (str(self.branch_id), self.count, self.to_make_room)

    @classmethod
    def fields(cls, details: list[Any]) -> dict[str, Any]:
        branch, count, to_make_room = details
        return {"branch_id": UUID(branch), "count": count, "to_make_room": to_make_room}


@dataclass(frozen=True, slots=True)
class Injection:
    """An item that was added to a prompt, but to no branch."""

    source: str
    """The class name of the context provider."""
    uri: str | None
    """The URI of the item."""
    tokens: int
    """The estimated number of tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextAdded(_MessageIdEvent):
    """Context providers added items to the prompt of an instruction."""

    kind: ClassVar[str] = "context.added"
    items: tuple[Injection, ...]
    """What was added to the prompt, in order."""

    def details(self) -> tuple[Any, ...]:
        return ([(item.source, item.uri, item.tokens) for item in self.items],)

    @classmethod
    def fields(cls, details: list[Any]) -> dict[str, Any]:
        return {"items": tuple(Injection(*item) for item in details[0])}


ChangeReason: TypeAlias = Literal[
    "system", "tools", "edit", "commit", "summary", "forgotten", "other"
]
"""What changed in a prompt: its system message, its tools, or earlier messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptChanged(Event):
    """A prompt does not begin with the one before, so a provider's cache of that is lost."""

    kind: ClassVar[str] = "prompt.changed"
    stored: ClassVar[tuple[str, ...]] = ("reason", "tokens")
    reason: ChangeReason
    """What changed; an "edit" is also the removal of a message."""
    tokens: int
    """The estimated tokens of the prompt before that a cache can no longer serve."""

    def details(self) -> tuple[Any, ...]:
        return (self.reason, self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarningIssued(Event):
    """A problem that does not end the run."""

    kind: ClassVar[str] = "warning.issued"
    notice: Notice
    """The warning."""

    def details(self) -> tuple[Any, ...]:
        return (self.notice.severity, self.notice.code, self.notice.text)

    @classmethod
    def fields(cls, details: list[Any]) -> dict[str, Any]:
        return {"notice": Notice(*details)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded(Event):
    """The end of a run: emitted exactly once, as its last event."""

    kind: ClassVar[str] = "run.ended"
    result: Return
    """The result of the run."""

    def details(self) -> tuple[Any, ...]:
        result = self.result
        notices = [(notice.severity, notice.code, notice.text) for notice in result.notices]
        return (result.stop_reason, notices, _encode_metrics(result.metrics))

    @classmethod
    def fields(cls, details: list[Any]) -> dict[str, Any]:
        reason, notices, metrics = details
        all_notices = tuple(Notice(*notice) for notice in notices)
        result = Return(stop_reason=reason, notices=all_notices, metrics=_decode_metrics(metrics))
        return {"result": result}


AnyEvent: TypeAlias = (
    RunStarted
    | TurnStarted
    | TextAdded
    | ReasoningAdded
    | DraftDropped
    | MessageCompleted
    | ToolCalled
    | ToolStarted
    | ToolResultBuffered
    | ToolCompleted
    | MessageQueued
    | ApprovalRequired
    | ApprovalDecided
    | MessageInterjected
    | HistoryReplaced
    | ContextAdded
    | WarningIssued
    | RunEnded
    | PromptChanged
)


# A stored event begins with its index in this tuple, which takes one or two bytes where the kind
# would take ten to twenty. The indexes are stored: append new types at the end, and remove none.
_TYPES: tuple[type[Event], ...] = (
    RunStarted,
    TurnStarted,
    TextAdded,
    ReasoningAdded,
    DraftDropped,
    MessageCompleted,
    ToolCalled,
    ToolStarted,
    ToolResultBuffered,
    ToolCompleted,
    MessageQueued,
    ApprovalRequired,
    ApprovalDecided,
    MessageInterjected,
    HistoryReplaced,
    ContextAdded,
    WarningIssued,
    RunEnded,
    PromptChanged,
)
_NUMBERS: Mapping[type[Event], int] = {
    event_type: number for number, event_type in enumerate(_TYPES)
}


def to_record(event: AnyEvent) -> EventRecord:
    """Return the record of an event."""
    body = dumps([_NUMBERS[type(event)], *event.details()])
    return EventRecord(event.seq, event.run_id, event.about, body)


def from_record(record: EventRecord, message: Callable[[UUID], Message]) -> AnyEvent:
    """Return the event of a record; `message` looks messages up by id."""
    number, *details = loads(record.body)
    event_type = _TYPES[int(number)]
    fields = event_type.fields(details)
    if event_type is RunEnded:
        fields["result"] = replace(fields["result"], run_id=record.run, seq=record.seq)
    elif issubclass(event_type, _MessageIdEvent):
        fields["message_id"] = record.message
    elif issubclass(event_type, _MessageEvent) and record.message is not None:
        fields["message"] = message(record.message)
    construct = cast("Callable[..., AnyEvent]", event_type)
    return construct(seq=record.seq, run_id=record.run, **fields)


def is_stored_as(record: EventRecord, event_type: type[Event]) -> bool:
    """Return whether a stored event is of this type, without decoding it."""
    body, number = record.body, _NUMBERS[event_type]
    return body.startswith((b"[%d," % number, b"[%d]" % number))


def _encode_metrics(metrics: Metrics) -> list[Any]:
    """Return the metrics in the order of the names below, without trailing empty ones."""
    usage = metrics.usage
    values = [
        usage.input_tokens,
        usage.output_tokens,
        metrics.turns,
        metrics.tool_calls,
        metrics.seconds,
        metrics.finish_reason,
        metrics.model,
        usage.cached_tokens,
        usage.reasoning_tokens,
        usage.cost,
    ]
    while values and not values[-1]:
        values.pop()
    return values


def _decode_metrics(values: list[Any]) -> Metrics:
    """Return metrics from `_encode_metrics`; missing ones are empty."""
    names = ("in", "out", "turns", "tools", "s", "finish", "model", "cached", "reasoning", "cost")
    by_name = dict(zip(names, values, strict=False))
    usage = Usage(
        by_name.get("in", 0),
        by_name.get("out", 0),
        by_name.get("cached", 0),
        by_name.get("reasoning", 0),
        by_name.get("cost"),
    )
    return Metrics(
        usage=usage,
        turns=by_name.get("turns", 0),
        tool_calls=by_name.get("tools", 0),
        seconds=by_name.get("s", 0.0),
        finish_reason=by_name.get("finish"),
        model=by_name.get("model", ""),
    )


def restore_bodies(events: Iterable[AnyEvent]) -> list[AnyEvent]:
    """Return events as they were published: a result is stored without its messages."""
    messages: dict[UUID, list[Message]] = {}
    restored: list[AnyEvent] = []
    for event in events:
        if isinstance(event, MessageCompleted | ToolCalled | ToolCompleted):
            messages.setdefault(event.run_id, []).append(event.message)
        if isinstance(event, RunEnded):
            body = Body(tuple(messages.get(event.run_id, ())))
            restored.append(replace(event, result=replace(event.result, body=body)))
        else:
            restored.append(event)
    return restored
