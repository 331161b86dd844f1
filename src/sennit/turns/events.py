"""Events of a run, from which results, streams and observer calls are derived.

An event is numbered within its branch, and durable before anyone sees it. It names the message it
speaks of and does not copy it, so that erasing a message erases its traces; only text that is still
being said stands in events, until its message is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias
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
    seq: int
    """Its number on the branch, counted from 1 over all runs."""
    run_id: UUID

    def details(self) -> tuple[Any, ...]:
        """Return the stored fields beside its message."""
        return ()

    @property
    def about(self) -> UUID | None:
        """The message it speaks of."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(Event):
    """A run begins, or goes on after it was interrupted or suspended."""

    kind = "start"
    model: str
    resumed: bool = False

    def details(self) -> tuple[Any, ...]:
        return (self.model, True) if self.resumed else (self.model,)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted(Event):
    """The model is asked."""

    kind = "turn"
    turn: int

    def details(self) -> tuple[Any, ...]:
        return (self.turn,)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ahead(Event):
    message_id: UUID
    """The message it speaks of, which may not be there yet."""

    @property
    def about(self) -> UUID | None:
        return self.message_id


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece(_Ahead):
    text: str

    def details(self) -> tuple[Any, ...]:
        return (self.text,)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextAdded(_Piece):
    """More of the answer."""

    kind = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningAdded(_Piece):
    """More of what the model thinks aloud."""

    kind = "think"


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftDropped(_Ahead):
    """Text shown of a message is void: it is generated again, or was cancelled."""

    kind = "drop"


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfMessage(Event):
    message: Message

    @property
    def about(self) -> UUID | None:
        return self.message.id


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCompleted(_OfMessage):
    """A message stands on the branch: a text, a greeting, or what a person steered."""

    kind = "said"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled(_OfMessage):
    """The model asks for a tool; the request stands on the branch."""

    kind = "call"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted(_OfMessage):
    """The tool that this request asks for is about to be called."""

    kind = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReturned(_Ahead):
    """A tool is done before those asked for ahead of it; its result is told after theirs."""

    kind = "returned"
    request_id: UUID
    """The request it was called for."""
    outcome: Mapping[str, Any]
    """Its result or its error, under that name."""

    def details(self) -> tuple[Any, ...]:
        return (str(self.request_id), self.outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steered(_Piece):
    """A person has said something; the run takes it in before it asks the model again."""

    kind = "steer"
    record: Mapping[str, Any] | None = None
    """The message as stores keep it, if it is more than a text of the session's user."""

    def details(self) -> tuple[Any, ...]:
        return (self.text,) if self.record is None else (self.text, self.record)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished(_OfMessage):
    """The result of a call stands on the branch, good or bad."""

    kind = "result"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalNeeded(_OfMessage):
    """A person has to allow this request before it is run."""

    kind = "ask"
    starts: int = 0
    """How often the call had been started until then, on any branch."""

    def details(self) -> tuple[Any, ...]:
        return (self.starts,) if self.starts else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalGiven(_OfMessage):
    """A person has decided about this request."""

    kind = "decided"
    approved: bool
    reason: str = ""
    starts: int = 0
    """How often the call had been started until then, on any branch."""

    def details(self) -> tuple[Any, ...]:
        told = (self.approved, self.reason)
        return (*told, self.starts) if self.starts else told


@dataclass(frozen=True, slots=True, kw_only=True)
class Interjected(_OfMessage):
    """A message stands on the branch that is no answer of the run it comes in.

    It is one of a special turn, or what a person has said too late for the run to take it in.
    """

    kind = "aside"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryReplaced(_OfMessage):
    """A message, such as a summary, stands where others stood; those have a branch of their own."""

    kind = "replaced"
    branch_id: UUID
    """The branch that holds what was replaced."""
    count: int
    """How many messages were replaced."""
    to_make_room: bool = False
    """Whether the run did it by itself, for want of room; then what it used counts for the run."""

    def details(self) -> tuple[Any, ...]:
        return (str(self.branch_id), self.count, self.to_make_room)


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
class ContextAdded(_Ahead):
    """Context providers added items to the prompt of an instruction."""

    kind = "context"
    items: tuple[Injection, ...]

    def details(self) -> tuple[Any, ...]:
        return ([(one.source, one.uri, one.tokens) for one in self.items],)


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(Event):
    """Something went wrong that does not end the run."""

    kind = "warn"
    notice: Notice

    def details(self) -> tuple[Any, ...]:
        return (self.notice.severity, self.notice.code, self.notice.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded(Event):
    """The end of a run: exactly one, and the last."""

    kind = "end"
    result: Return

    def details(self) -> tuple[Any, ...]:
        result = self.result
        notices = [(one.severity, one.code, one.text) for one in result.messages]
        return (result.stop_reason, notices, _plain(result.metrics))


AnyEvent: TypeAlias = (
    RunStarted
    | TurnStarted
    | TextAdded
    | ReasoningAdded
    | DraftDropped
    | MessageCompleted
    | ToolCalled
    | ToolStarted
    | ToolReturned
    | ToolFinished
    | Steered
    | ApprovalNeeded
    | ApprovalGiven
    | Interjected
    | HistoryReplaced
    | ContextAdded
    | Warned
    | RunEnded
)


def to_record(event: AnyEvent) -> EventRecord:
    """An event as a store keeps it."""
    body = dumps([event.kind, *event.details()])
    return EventRecord(event.seq, event.run_id, event.about, body)


def from_record(record: EventRecord, message: Callable[[UUID], Message]) -> AnyEvent:
    """The event a store kept; `message` finds the one it speaks of."""
    kind, *details = loads(record.body)
    where: dict[str, Any] = {"seq": record.seq, "run_id": record.run}
    about = record.message
    if kind == "steer" and about is not None:
        text, *more = details
        where |= {"text": text, "record": more[0] if more else None}
        return Steered(message_id=about, **where)
    if kind in _PIECES and about is not None:
        return _PIECES[kind](message_id=about, text=details[0], **where)
    if kind == "returned" and about is not None:
        request, outcome = details
        where |= {"request_id": UUID(request), "outcome": outcome}
        return ToolReturned(message_id=about, **where)
    if kind == "drop" and about is not None:
        return DraftDropped(message_id=about, **where)
    if kind in _OF_MESSAGES and about is not None:
        return _OF_MESSAGES[kind](message=message(about), **where)
    if kind == "ask" and about is not None:
        return ApprovalNeeded(message=message(about), starts=sum(details), **where)
    if kind == "decided" and about is not None:
        approved, reason, *starts = details
        where |= {"approved": approved, "reason": reason, "starts": sum(starts)}
        return ApprovalGiven(message=message(about), **where)
    if kind == "replaced" and about is not None:
        branch, count, to_make_room = details
        where |= {"branch_id": UUID(branch), "count": count, "to_make_room": to_make_room}
        return HistoryReplaced(message=message(about), **where)
    if kind == "context" and about is not None:
        items = tuple(Injection(*one) for one in details[0])
        return ContextAdded(message_id=about, items=items, **where)
    return _BARE[kind](details, where)


_PIECES: Mapping[str, Any] = {one.kind: one for one in (TextAdded, ReasoningAdded)}
_OF_MESSAGES: Mapping[str, Any] = {
    one.kind: one
    for one in (
        MessageCompleted,
        ToolCalled,
        ToolStarted,
        ToolFinished,
        Interjected,
    )
}
_BARE: Mapping[str, Callable[[list[Any], dict[str, Any]], AnyEvent]] = {
    "start": lambda given, at: RunStarted(model=given[0], resumed=given[1:] == [True], **at),
    "turn": lambda given, at: TurnStarted(turn=given[0], **at),
    "warn": lambda given, at: Warned(notice=Notice(*given), **at),
    "end": lambda given, at: RunEnded(result=_return(given, at), **at),
}


def _return(given: list[Any], at: dict[str, Any]) -> Return:
    reason, notices, metrics = given
    return Return(
        stop_reason=reason,
        messages=tuple(Notice(*one) for one in notices),
        metrics=_metrics(metrics),
        run_id=at["run_id"],
        seq=at["seq"],
    )


def _plain(metrics: Metrics) -> list[Any]:
    """Metrics in the order of their names below, as far as there is anything to tell."""
    usage = metrics.usage
    told = [
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
    while told and not told[-1]:
        told.pop()
    return told


_METRICS = ("in", "out", "turns", "tools", "s", "finish", "model", "cached", "thought", "cost")


def _metrics(given: list[Any] | dict[str, Any]) -> Metrics:
    """Return metrics from `_plain`; earlier versions stored them by name."""
    told = given if isinstance(given, dict) else dict(zip(_METRICS, given, strict=False))
    return Metrics(
        usage=Usage(
            told.get("in", 0),
            told.get("out", 0),
            told.get("cached", 0),
            told.get("thought", 0),
            told.get("cost"),
        ),
        turns=told.get("turns", 0),
        tool_calls=told.get("tools", 0),
        seconds=told.get("s", 0.0),
        finish_reason=told.get("finish"),
        model=told.get("model", ""),
    )


def whole(events: Iterable[AnyEvent]) -> list[AnyEvent]:
    """Events as they were shown: the end of a run carries what it has said, which is not stored."""
    said: dict[UUID, list[Message]] = {}
    found: list[AnyEvent] = []
    for event in events:
        if isinstance(event, MessageCompleted | ToolCalled | ToolFinished):
            said.setdefault(event.run_id, []).append(event.message)
        if isinstance(event, RunEnded):
            body = Body(tuple(said.get(event.run_id, ())))
            found.append(replace(event, result=replace(event.result, body=body)))
        else:
            found.append(event)
    return found
