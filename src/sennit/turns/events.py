"""Events of a run, from which results, streams and observer calls are derived.

An event is numbered within its branch, and durable before anyone sees it. It names the message it
speaks of and does not copy it, so that erasing a message erases its traces; only text that is still
being said stands in events, until its message is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias, cast
from uuid import UUID

from sennit.messages.codec import dumps, loads
from sennit.messages.message import Message
from sennit.services.models.reply import Usage
from sennit.stores.records.sessions import EventRecord
from sennit.turns.result import Body, Metrics, Notice, Return


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened in a run."""

    kind: ClassVar[str]
    stored: ClassVar[tuple[str, ...]] = ()
    """The fields that `details` returns, as far as they are stored as they are."""
    seq: int
    """Its number on the branch, counted from 1 over all runs."""
    run_id: UUID

    def details(self) -> tuple[Any, ...]:
        """Return the stored fields beside its message, in order."""
        return ()

    @classmethod
    def fields(cls, details: list[Any]) -> dict[str, Any]:
        """Return its own fields but for its message, from stored details."""
        return dict(zip(cls.stored, details, strict=False))

    @property
    def about(self) -> UUID | None:
        """The message it speaks of."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(Event):
    """A run begins, or goes on after it was interrupted or suspended."""

    kind = "run.started"
    stored = ("model", "resumed")
    model: str
    resumed: bool = False

    def details(self) -> tuple[Any, ...]:
        return (self.model, True) if self.resumed else (self.model,)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted(Event):
    """The model is asked."""

    kind = "turn.started"
    stored = ("turn",)
    turn: int

    def details(self) -> tuple[Any, ...]:
        return (self.turn,)


@dataclass(frozen=True, slots=True, kw_only=True)
class _MessageIdEvent(Event):
    message_id: UUID
    """The message it speaks of, which may not be there yet."""

    @property
    def about(self) -> UUID | None:
        return self.message_id


@dataclass(frozen=True, slots=True, kw_only=True)
class _TextEvent(_MessageIdEvent):
    stored = ("text",)
    text: str

    def details(self) -> tuple[Any, ...]:
        return (self.text,)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextAdded(_TextEvent):
    """More of the answer."""

    kind = "text.delta"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningAdded(_TextEvent):
    """More of what the model thinks aloud."""

    kind = "reasoning.delta"


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftDropped(_MessageIdEvent):
    """Text shown of a message is void: it is generated again, or was cancelled."""

    kind = "draft.dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class _MessageEvent(Event):
    message: Message

    @property
    def about(self) -> UUID | None:
        return self.message.id


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCompleted(_MessageEvent):
    """A message stands on the branch: a text, a greeting, or what a person steered."""

    kind = "message.completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled(_MessageEvent):
    """The model asks for a tool; the request stands on the branch."""

    kind = "tool.called"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted(_MessageEvent):
    """The tool that this request asks for is about to be called."""

    kind = "tool.started"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultBuffered(_MessageIdEvent):
    """A tool is done before those asked for ahead of it; its result is told after theirs."""

    kind = "tool.result_buffered"
    request_id: UUID
    """The request it was called for."""
    outcome: Mapping[str, Any]
    """Its result or its error, under that name."""

    def details(self) -> tuple[Any, ...]:
        return (str(self.request_id), self.outcome)

    @classmethod
    def fields(cls, details: list[Any]) -> dict[str, Any]:
        request, outcome = details
        return {"request_id": UUID(request), "outcome": outcome}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQueued(_TextEvent):
    """A person has said something; the run takes it in before it asks the model again."""

    kind = "message.queued"
    stored = ("text", "record")
    record: Mapping[str, Any] | None = None
    """The message as stores keep it, if it is more than a text of the session's user."""

    def details(self) -> tuple[Any, ...]:
        return (self.text,) if self.record is None else (self.text, self.record)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCompleted(_MessageEvent):
    """The result of a call stands on the branch, good or bad."""

    kind = "tool.completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequired(_MessageEvent):
    """A person has to allow this request before it is run."""

    kind = "approval.required"
    stored = ("starts",)
    starts: int = 0
    """How often the call had been started until then, on any branch."""

    def details(self) -> tuple[Any, ...]:
        return (self.starts,) if self.starts else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalDecided(_MessageEvent):
    """A person has decided about this request."""

    kind = "approval.decided"
    stored = ("approved", "reason", "starts")
    approved: bool
    reason: str = ""
    starts: int = 0
    """How often the call had been started until then, on any branch."""

    def details(self) -> tuple[Any, ...]:
        decision = (self.approved, self.reason)
        return (*decision, self.starts) if self.starts else decision


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageInterjected(_MessageEvent):
    """A message stands on the branch that is no answer of the run it comes in.

    It is one of a special turn, or what a person has said too late for the run to take it in.
    """

    kind = "message.interjected"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryReplaced(_MessageEvent):
    """A message, such as a summary, stands where others stood; those have a branch of their own."""

    kind = "history.replaced"
    branch_id: UUID
    """The branch that holds what was replaced."""
    count: int
    """How many messages were replaced."""
    to_make_room: bool = False
    """Whether the run did it by itself, for want of room; then what it used counts for the run."""

    def details(self) -> tuple[Any, ...]:
        return (str(self.branch_id), self.count, self.to_make_room)

    @classmethod
    def fields(cls, details: list[Any]) -> dict[str, Any]:
        branch, count, to_make_room = details
        return {"branch_id": UUID(branch), "count": count, "to_make_room": to_make_room}


@dataclass(frozen=True, slots=True)
class Injection:
    """Something that was added to a prompt and stands on no branch."""

    source: str
    """Who gave it."""
    uri: str | None
    """Where it can be found."""
    tokens: int
    """About how many tokens it took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextAdded(_MessageIdEvent):
    """Context providers added items to the prompt of an instruction."""

    kind = "context.added"
    items: tuple[Injection, ...]

    def details(self) -> tuple[Any, ...]:
        return ([(item.source, item.uri, item.tokens) for item in self.items],)

    @classmethod
    def fields(cls, details: list[Any]) -> dict[str, Any]:
        return {"items": tuple(Injection(*item) for item in details[0])}


@dataclass(frozen=True, slots=True, kw_only=True)
class WarningIssued(Event):
    """Something went wrong that does not end the run."""

    kind = "warning.issued"
    notice: Notice

    def details(self) -> tuple[Any, ...]:
        return (self.notice.severity, self.notice.code, self.notice.text)

    @classmethod
    def fields(cls, details: list[Any]) -> dict[str, Any]:
        return {"notice": Notice(*details)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded(Event):
    """The end of a run: exactly one, and the last."""

    kind = "run.ended"
    result: Return

    def details(self) -> tuple[Any, ...]:
        result = self.result
        notices = [(notice.severity, notice.code, notice.text) for notice in result.messages]
        return (result.stop_reason, notices, _encode_metrics(result.metrics))

    @classmethod
    def fields(cls, details: list[Any]) -> dict[str, Any]:
        reason, notices, metrics = details
        messages = tuple(Notice(*notice) for notice in notices)
        result = Return(stop_reason=reason, messages=messages, metrics=_decode_metrics(metrics))
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
)


# A stored event begins with its place in this tuple, which takes one or two bytes where the kind
# would take ten to twenty. Stores keep the numbers: append new types at the end, remove none.
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
)
_NUMBERS: Mapping[type[Event], int] = {
    event_type: number for number, event_type in enumerate(_TYPES)
}


def to_record(event: AnyEvent) -> EventRecord:
    """Return an event as a store keeps it."""
    body = dumps([_NUMBERS[type(event)], *event.details()])
    return EventRecord(event.seq, event.run_id, event.about, body)


def from_record(record: EventRecord, message: Callable[[UUID], Message]) -> AnyEvent:
    """Return the event that a store kept; `message` finds the one it is about."""
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
    """Metrics in the order of their names below, as far as there is anything to tell."""
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
    """Return metrics from `_plain`; those left out are empty."""
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
    """Events as they were shown: the end of a run carries what it has said, which is not stored."""
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
