"""Recovery of an interrupted run from its journal.

A run that crashed or waits for approval is unfinished. Its events say which tool calls were
started, what was decided, and which text was published but never became a message.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import dropwhile, takewhile
from typing import Any
from uuid import UUID

from sennit.errors import NotFoundError
from sennit.messages.codec import loads
from sennit.messages.message import Message
from sennit.services.models.reply import NO_USAGE, Usage
from sennit.sessions.run_repository import RunRepository
from sennit.stores.records.sessions import RunRecord
from sennit.turns.events import (
    AnyEvent,
    DraftDropped,
    HistoryReplaced,
    MessageCompleted,
    MessageQueued,
    ReasoningAdded,
    RunEnded,
    RunStarted,
    TextAdded,
    ToolCalled,
    ToolCompleted,
    ToolStarted,
    TurnStarted,
    from_record,
    restore_bodies,
)
from sennit.turns.result import SPECIAL_TURN_KEY
from sennit.turns.tools.call_state import ToolCallStates


@dataclass(slots=True)
class PartialText:
    """The published text of a message that was never completed."""

    text: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class UnfinishedRun:
    """A run that has not ended."""

    record: RunRecord
    turns: int = 0
    """The number of finished model turns; an interrupted one is repeated."""
    passes: int = 0
    """The number of finished passes over pending calls."""
    tool_calls: int = 0
    usage: Usage = NO_USAGE
    finish: str | None = None
    """The last finish reason of the model."""
    said: list[Message] = field(default_factory=list[Message])
    """The messages that it added to the branch."""
    drafts: dict[UUID, PartialText] = field(default_factory=dict[UUID, PartialText])
    calls: ToolCallStates = field(default_factory=ToolCallStates)
    """The tool calls that it made, and the decisions about them."""
    steered: dict[UUID, MessageQueued] = field(default_factory=dict[UUID, MessageQueued])
    """Queued user messages that it has not read yet."""
    _completed_passes: int = 0

    @property
    def notes(self) -> dict[str, Any]:
        """The stored data of the run."""
        return loads(self.record.body)

    def apply(self, event: AnyEvent) -> None:
        """Apply the next event."""
        self.calls.apply(event)
        match event:
            case TurnStarted():
                self.turns = event.turn - 1
                self.passes = self._completed_passes
            case TextAdded():
                self.drafts.setdefault(event.message_id, PartialText()).text.append(event.text)
            case ReasoningAdded():
                self.drafts.setdefault(event.message_id, PartialText()).reasoning.append(event.text)
            case DraftDropped():
                self.drafts.pop(event.message_id, None)
            case MessageCompleted() | ToolCalled():
                self.drafts.pop(event.message.id, None)
                self.steered.pop(event.message.id, None)
                self._add_message(event.message)
            case ToolStarted():
                self.tool_calls += 1
            case MessageQueued():
                self.steered[event.message_id] = event
            case ToolCompleted():
                self.said.append(event.message)
                self._completed_passes = self.passes + 1
            case HistoryReplaced(to_make_room=True):
                self.usage += _usage_of(event.message)
            case _:
                pass

    def _add_message(self, message: Message) -> None:
        self.said.append(message)
        metadata = message.metadata
        self.usage += _usage_of(message)
        if (
            "usage" in metadata and SPECIAL_TURN_KEY not in metadata
        ):  # the last of what was said in one turn
            self.turns += 1
            self.finish = metadata["finish_reason"]


def _usage_of(message: Message) -> Usage:
    """Return the usage of the turn that ended with this message."""
    return Usage(**message.metadata.get("usage", {}))


def find_unfinished_run(runs: RunRepository) -> UnfinishedRun | None:
    """Return the last run of a branch if it has not ended, after loading the changes of other
    processes.
    """
    runs.refresh()
    last = runs.last()
    if last is None or last.state == "ended":
        return None
    unfinished_run = UnfinishedRun(last)
    for event in events_of(runs, last):
        unfinished_run.apply(event)
    return unfinished_run


def events_of(runs: RunRepository, run: RunRecord) -> list[AnyEvent]:
    """Return all events of a run, in order."""
    after = loads(run.body).get("after", 0)
    rest = dropwhile(lambda record: record.run != run.id, runs.all_events(after))
    records = takewhile(lambda record: record.run == run.id, rest)
    return [from_record(record, runs.message) for record in records]


def replay(runs: RunRepository, run_id: UUID) -> list[AnyEvent]:
    """Return the events of a run as they were published; raises NotFoundError."""
    record = next((run for run in runs.runs() if run.id == run_id), None)
    if record is None:
        raise NotFoundError(f"There is no run {run_id} on branch {runs.branch.name!r}.")
    return restore_bodies(events_of(runs, record))


def shown_after(runs: RunRepository, after: int) -> list[AnyEvent]:
    """Return all events of a branch past a sequence number, in order and as they were published."""
    events = restore_bodies(
        [from_record(record, runs.message) for record in runs.all_events(after)]
    )
    started = {
        event.run_id for event in events if isinstance(event, RunStarted) and not event.resumed
    }
    return [
        # of a run that began earlier, more was said than is known from here
        _replay_end(runs, event)
        if isinstance(event, RunEnded) and event.run_id not in started
        else event
        for event in events
    ]


def _replay_end(runs: RunRepository, ended: RunEnded) -> AnyEvent:
    return next(event for event in replay(runs, ended.run_id) if event.seq == ended.seq)
