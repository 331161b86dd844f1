"""Schemas of events and runs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal, TypeAlias
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from sennit import clock
from sennit.messages.codec import loads
from sennit.messages.message import Message
from sennit.server.http.endpoint import ResponseModel
from sennit.server.schemas import MessageShape, message_shape
from sennit.sessions.branch import Branch
from sennit.sessions.run_repository import RunRepository
from sennit.stores.records.sessions import RunRecord
from sennit.turns import events
from sennit.turns.result import Metrics, Notice, Return
from sennit.turns.subscription import has_active_run

_COPIED_FIELDS = (
    "model",
    "resumed",
    "turn",
    "message_id",
    "text",
    "approved",
    "reason",
    "branch_id",
    "count",
    "tokens",
)


class MetricsShape(ResponseModel):
    """The usage of a run."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    cost: float | None
    turns: int
    tool_calls: int
    seconds: float
    finish_reason: str | None
    model: str


class ResultShape(ResponseModel):
    """The result of a run."""

    stop_reason: str
    success: bool
    notices: list[Notice]
    metrics: MetricsShape


RecalledKind: TypeAlias = Literal["memory", "profile", "summary", "recalled"]
"""Text added to a prompt; "recalled" is a message of another session."""


class ItemShape(ResponseModel):
    """Text that was added to a prompt."""

    source: str
    kind: RecalledKind
    uri: str | None
    tokens: int


class EventShape(ResponseModel):
    """An event of a run; the fields after the first three depend on `kind`."""

    seq: int
    run_id: UUID
    kind: str
    message: MessageShape | UnsetType = UNSET
    message_id: UUID | UnsetType = UNSET
    text: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    resumed: bool | UnsetType = UNSET
    turn: int | UnsetType = UNSET
    approved: bool | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    branch_id: UUID | UnsetType = UNSET
    count: int | UnsetType = UNSET
    tokens: int | UnsetType = UNSET
    items: list[ItemShape] | UnsetType = UNSET
    notice: Notice | UnsetType = UNSET
    result: ResultShape | UnsetType = UNSET


class RunShape(ResponseModel):
    """A run of turns."""

    id: UUID
    branch_id: UUID
    state: str
    """running, suspended (waits for approval or to be resumed), interrupted, or ended."""
    model: str
    created_at: str
    updated_at: str
    after: int
    """The sequence number of the last event before it: read its events from there."""
    result: ResultShape | None = None


def event_shape(event: events.AnyEvent, branch: Branch) -> EventShape:
    """Return an event of a branch as its schema."""
    fields: dict[str, Any] = {}
    for name in _COPIED_FIELDS:
        if hasattr(event, name):
            fields[name] = getattr(event, name)
    match event:
        case events.RunEnded():
            fields["result"] = result_shape(event.result)
        case events.WarningIssued():
            fields["notice"] = event.notice
        case events.ContextAdded():
            fields["items"] = [item_shape(item) for item in event.items]
        case _:
            message: Message | None = getattr(event, "message", None)
            if message is not None:
                fields["message"] = message_shape(message, _index(branch, message))
    return EventShape(seq=event.seq, run_id=event.run_id, kind=event.kind, **fields)


def item_shape(item: events.Injection) -> ItemShape:
    """Return an addition to a prompt as its schema."""
    return ItemShape(
        source=item.source, kind=recalled_kind(item.uri), uri=item.uri, tokens=item.tokens
    )


def recalled_kind(uri: str | None) -> RecalledKind:
    """Return the kind of an addition to a prompt, by its URI."""
    path = uri or ""
    if "messages.jsonl#" in path:
        return "recalled"
    if path.endswith("/profile.md"):
        return "profile"
    return "summary" if path.endswith("/.abstract.md") else "memory"


def _index(branch: Branch, message: Message) -> int | None:
    with branch.session.lock:
        return branch.index(message.id) if message.id in branch else None


def result_shape(result: Return) -> ResultShape:
    """Return the result of a run as its schema."""
    return ResultShape(
        stop_reason=result.stop_reason or "",
        success=result.success,
        notices=list(result.notices),
        metrics=_metrics(result.metrics),
    )


def _metrics(metrics: Metrics) -> MetricsShape:
    return msgspec.convert({**asdict(metrics.usage), **asdict(metrics)}, MetricsShape)


def run_shapes(branch: Branch, limit: int) -> list[RunShape]:
    """Return the runs of a branch, newest first; reads the store, so call it in a thread."""
    runs = RunRepository(branch)
    records = runs.runs()[:limit]
    results = _results(runs, records)
    return [_run(record, results.get(record.id), runs) for record in records]


def _results(runs: RunRepository, records: list[RunRecord]) -> dict[UUID, Return]:
    """Return the results of runs in one read; the last one of a resumed run."""
    first = min((loads(record.body).get("after", 0) for record in records), default=0)
    ended = (
        event for event in runs.all_events(first) if events.is_stored_as(event, events.RunEnded)
    )
    parsed = (events.from_record(event, runs.message) for event in ended)
    return {event.run_id: event.result for event in parsed if isinstance(event, events.RunEnded)}


def _run(record: RunRecord, result: Return | None, runs: RunRepository) -> RunShape:
    state = record.state
    if state == "running" and not has_active_run(runs):
        state = "interrupted"
    body = loads(record.body)
    return RunShape(
        id=record.id,
        branch_id=record.branch,
        state=state,
        model=body.get("model", ""),
        created_at=clock.to_iso(record.created),
        updated_at=clock.to_iso(record.updated),
        after=body.get("after", 0),
        result=None if result is None or state == "running" else result_shape(result),
    )
