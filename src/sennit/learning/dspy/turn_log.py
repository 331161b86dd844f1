"""Turn log of a session, a cache of the turns on a branch.

The branch is in memory or in a store; forking the log forks the branch. Every change is written to
the branch first, in one transaction, then to the log, so a failure leaves both unchanged. Other
processes may write to the same branch: their turns are read before a call and before an undo.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import inf
from threading import RLock
from typing import Any, Self, TypeVar

from sennit.learning.dspy.dspy_imports import History
from sennit.learning.dspy.history import Fields, HistoryEntry, HistorySpan, Turn
from sennit.learning.dspy.options import Options
from sennit.learning.dspy.plain_values import plain_fields, repair_text
from sennit.learning.dspy.turn_messages import (
    ConversationStart,
    StoredTurn,
    history_start,
    initial_messages,
    nested_fields,
    read_turns,
    stored_history,
    turn_messages,
)
from sennit.learning.examples import METADATA_KEY
from sennit.learning.labels import labels_by_message
from sennit.messages.content import SystemContent
from sennit.messages.message import Message
from sennit.sessions.branch import Branch, messages_from
from sennit.sessions.repository import repository_of
from sennit.sessions.retry_on_conflict import retry_on_conflict
from sennit.sessions.segments import tail_of
from sennit.sessions.session import SessionCore

_R = TypeVar("_R")

MAX_TRIES = 100  # of a write that conflicts with another writer
_MAX_STALE_ENTRIES = 64  # history entries beyond max_stored_turns before they are dropped


class TurnLog:
    """The turns of a session, in order."""

    def __init__(self, options: Options, branch: Branch | None = None) -> None:
        self.options: Options = options
        self._lock = RLock()
        self._branch = branch  # None until it is first needed
        self._synced_length = 0  # the length of the branch when it was last read
        self._synced_revision = 0
        self._reset([])
        self.catch_up()

    def _reset(self, initial: list[HistoryEntry], earlier: Iterable[HistoryEntry] = ()) -> None:
        self.initial, self.turns = initial, list[Turn]()
        self._entries = list(earlier)
        self._history_start = len(self._entries)  # of a new turn, at the earliest
        self._dropped = self._next_index = 0
        self._node_entries: dict[tuple[str, Fields], list[HistoryEntry | None]] = {}

    @classmethod
    def of(
        cls,
        options: Options,
        initial: Iterable[HistoryEntry],
        earlier: Iterable[HistoryEntry] = (),
        saved: Iterable[Mapping[str, Any]] = (),
    ) -> Self:
        """Return a log in memory with saved turns, each with its saved history."""
        log = cls(options)
        log._reset([dict(entry) for entry in initial], earlier)
        for data in saved:
            past = stored_history(data, log._entries, log.initial)
            log._append(
                Turn(
                    data.get("index", log._next_index),
                    data["inputs"],
                    data["outputs"],
                    log.span() if past is None else past,
                    data.get("score"),
                    **nested_fields(data),
                )
            )
        log._evict()
        return log

    @property
    def branch(self) -> Branch:
        """The branch with all turns; one in memory is created on first use."""
        if self._branch is not None:
            return self._branch  # without waiting for the lock
        with self._lock:
            if self._branch is None:
                branch = SessionCore().create_branch(name="main")
                self._write_to(branch)
                self._branch = branch
                self._mark_synced(branch)
            return self._branch

    @property
    def has_branch(self) -> bool:
        """True if the branch exists already."""
        return self._branch is not None

    async def read(self, work: Callable[[], _R]) -> _R:
        """Return the result of work that may wait for a store."""
        if self._branch is None:
            return work()
        return await repository_of(self._branch.session).read(work)

    @property
    def session(self) -> SessionCore:
        """The session of the branch."""
        return self.branch.session

    @property
    def earlier(self) -> list[HistoryEntry]:
        """The history entries before the first turn in the log."""
        return self._entries[: len(self._entries) - len(self.turns)]

    @property
    def dropped(self) -> int:
        """The number of earlier history entries that were dropped."""
        return self._dropped

    def set_options(self, options: Options) -> None:
        """Apply other history options from now on; the history of past turns does not change."""
        if options == self.options:
            return  # without waiting for the lock
        with self._lock:
            self.options = options
            entries = (options.to_entry(turn.inputs, turn.outputs) for turn in self.turns)
            self._entries, self._node_entries = [*self.earlier, *entries], {}

    def span(self, before: Sequence[HistoryEntry] = ()) -> HistorySpan:
        """Return the history of a call made now, preceded by the entries `before`."""
        start, stop, max_turns = self._history_start, len(self._entries), self.options.max_turns
        initial = [*before, *self.initial] if before else self.initial
        if max_turns is not None:
            start = max(start, stop - max_turns)
        if max_turns is not None and max_turns - (stop - start) < len(initial):
            initial = initial[len(initial) - (max_turns - (stop - start)) :]
        return HistorySpan(self._entries, start, stop, initial, self._dropped)

    def entries_for(self, span: HistorySpan, node: str, fields: Fields) -> list[HistoryEntry]:
        """Return the entries of a span that fit a predictor with these fields."""
        with self._lock:
            initial = fields.fit_all(span.initial)
            if span.entries is not self._entries:
                return initial + fields.fit_all(span.entries[span.start : span.stop])
            cached = self._node_entries.setdefault((node, fields), [])
            for index in range(len(cached), span.stop):
                turn_index = index - (len(self._entries) - len(self.turns))
                turn = self.turns[turn_index] if turn_index >= 0 else None
                nested = {} if turn is None else turn.nodes.get(node, {})
                node_values = self.options.to_node_entry(nested, fields.inputs)
                turn_inputs = frozenset[str]() if turn is None else turn.inputs.keys()
                entry = self._entry_for(fields, index, turn)
                cached.append(fields.fit(entry, node_values, turn_inputs))
            return initial + [fit for fit in cached[span.start : span.stop] if fit is not None]

    def _entry_for(self, fields: Fields, index: int, turn: Turn | None) -> HistoryEntry:
        """Return the history entry of a turn; the predictor's inputs win over equal outputs."""
        entry = self._entries[index]
        if turn is None:
            return entry
        both = fields.inputs & turn.inputs.keys() & turn.outputs.keys()
        if not both:
            return entry
        inputs = self.options.to_entry({name: turn.inputs[name] for name in both}, {})
        return {**{name: value for name, value in entry.items() if name not in both}, **inputs}

    def catch_up(self) -> None:
        """Read the changes that other writers made to the branch."""
        with self._lock:
            if self._branch is not None:
                self._branch.session.refresh()
                if not self._is_synced(self._branch):
                    self._read_new_messages(self._branch)

    def current_span(self, before: Sequence[HistoryEntry] = ()) -> HistorySpan:
        """Catch up, then return the history of a call made now, as `span` does."""
        with self._lock:
            self.catch_up()
            return self.span(before)

    def _is_synced(self, branch: Branch) -> bool:
        return (
            tail_of(branch).total == self._synced_length
            and branch.revision == self._synced_revision
        )

    def _read_new_messages(self, branch: Branch, own: Turn | None = None) -> None:
        """Read the new messages of the branch; among them may be a turn of our `own`."""
        with branch.session.lock:
            if branch.revision != self._synced_revision:
                self._reset([])  # another writer undid turns or started over
                self._synced_length = 0
            messages = self._unread_messages(branch)
            if self._dropped and min(map(history_start, messages), default=inf) < self._dropped:
                self._reset([])  # its history has entries dropped here
                self._synced_length = 0
                messages = self._unread_messages(branch)
            self._mark_synced(branch)
        labels = labels_by_message(branch.session)
        for record in read_turns(messages):
            if isinstance(record, ConversationStart):
                self._reset(record.initial, record.earlier)
            elif own is not None and record.answer_id == own.message:
                own.index = self._next_index
                self._append(own)
            else:
                # The newest label wins, as when several metrics score a session.
                scores = [label.score for label in labels.get(record.answer_id, ())]
                self._append(self._restore_turn(record, scores[-1] if scores else None))
        self._evict()

    def _unread_messages(self, branch: Branch) -> list[Message]:
        first = self._synced_length + (branch.system is not None)
        return messages_from(branch, first)

    def _restore_turn(self, stored: StoredTurn, score: float | None) -> Turn:
        past = stored_history(stored.metadata, self._entries, self.initial, self._dropped)
        turn = Turn(
            self._next_index,
            stored.inputs,
            stored.outputs,
            self.span() if past is None else past,
            score,
            **nested_fields(stored.metadata),
        )
        turn.asked, turn.message = stored.instruction_id, stored.answer_id
        return turn

    def _mark_synced(self, branch: Branch) -> None:
        """Record that the log contains the whole branch."""
        self._synced_length, self._synced_revision = tail_of(branch).total, branch.revision

    @property
    def memory(self) -> str:
        """The consolidated memory of a predictor: the text of the branch's system message."""
        system = self.branch.system
        return "" if system is None else system.content.words

    @memory.setter
    def memory(self, text: str) -> None:
        retry_on_conflict(lambda: self.remember(text), "the memory of a predictor", tries=MAX_TRIES)

    def remember(self, text: str) -> None:
        """Set the memory; raises ConflictError on a concurrent change. The turns do not change."""
        content = SystemContent(system_message=repair_text(text))
        message = Message(content, metadata={METADATA_KEY: {"memory": True}}) if text else None
        with self._lock:
            branch = self.branch
            was_synced = self._is_synced(branch)
            branch.session.set_branch_system(branch, message)
            if was_synced and tail_of(branch).total == self._synced_length:
                self._mark_synced(branch)

    def clear(self) -> None:
        """Remove all turns and the memory."""
        retry_on_conflict(self._clear, "the past of a predictor", tries=MAX_TRIES)

    def _clear(self) -> None:
        self.catch_up()
        self.restart_with([])
        if self.memory:
            self.remember("")

    def replace_with(self, other: TurnLog) -> None:
        """Replace all turns by those of another log, in one transaction.

        Raises ConflictError if the branch has changes that were not read.
        """
        with self._lock:
            if self._branch is not None:
                other._write_to(self._branch)
                self._mark_synced(self._branch)
            self._copy_from(other)

    def _write_to(self, branch: Branch) -> None:
        """Replace the messages of a branch by those of this log."""
        messages = initial_messages(self.initial, self.earlier)
        for turn in self.turns:
            messages += turn_messages(turn)
        with branch.session.lock:
            branch.session.add_messages(messages)  # on no branch yet, so no reader sees them
            first = 0 if branch.system is None else 1
            if messages or len(branch) > first:
                branch[first:] = [message.id for message in messages]

    def restart_with(self, initial: Iterable[HistoryEntry]) -> None:
        """Remove all turns and set the initial history."""
        self.replace_with(TurnLog.of(self.options, initial))

    def add(
        self,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        past: HistorySpan | None = None,
        history: list[HistoryEntry] | None = None,
        **nested: Any,
    ) -> Turn:
        """Append a turn to the branch and the log; `nested` are more fields of the turn."""
        own_inputs, own_outputs = map(self.options.copy_values, (inputs, outputs))
        nested["nodes"] = _without_outputs(nested.get("nodes") or {}, own_outputs)
        with self._lock:
            stored = self._history_to_store(past) if history is None else History(messages=history)
            turn = Turn(self._next_index, own_inputs, own_outputs, stored, **nested)
            branch = self.branch
            messages: list[Message] = turn_messages(turn)
            branch.session.add_messages(messages, branches=branch)
            expected = self._synced_length + len(messages), self._synced_revision
            if (tail_of(branch).total, branch.revision) == expected:
                self._append(turn)
                self._mark_synced(branch)
                self._evict()
            else:
                self._read_new_messages(branch, turn)
        return turn

    def _history_to_store(self, past: HistorySpan | None) -> Any:
        """Return the history of a call as stored with its turn.

        It is copied if turns were removed since the call began.
        """
        if past is None:
            return self.span()
        return past if past.entries is self._entries else History(messages=past.messages())

    def _append(self, turn: Turn) -> None:
        self.turns.append(turn)
        self._entries.append(self.options.to_entry(turn.inputs, turn.outputs))
        self._next_index = turn.index + 1

    def _evict(self) -> None:
        """Evict turns beyond `max_stored_turns`; their history entries are dropped in batches."""
        limit = self.options.max_stored_turns
        if limit is None or len(self.turns) <= limit:
            return
        del self.turns[: len(self.turns) - limit]
        self._history_start = len(self._entries) - len(self.turns)
        if self._history_start > max(_MAX_STALE_ENTRIES, 2 * limit):
            self._entries = self._entries[self._history_start :]
            self._dropped += self._history_start
            self._history_start, self._node_entries = 0, {}

    def set_scores(self, scores: Mapping[int, float]) -> None:
        """Set scores by `id(turn)`, on copies of the turns, since forks share them."""
        with self._lock:
            self.turns = [turn.again(score=scores.get(id(turn), turn.score)) for turn in self.turns]

    def undo(self, steps: int) -> list[Turn]:
        """Remove and return the last turns, newest first; other messages of the branch stay."""
        with self._lock:
            self.catch_up()
            undone = self.turns[max(0, len(self.turns) - max(0, steps)) :][::-1]
            self._remove_last(undone)
            return undone

    def _remove_last(self, removed: list[Turn]) -> None:
        """Remove the last turns from branch and log; they are passed newest first."""
        if not removed:
            return
        branch = self.branch
        branch.exclude(uid for turn in removed for uid in (turn.asked, turn.message) if uid)
        self._mark_synced(branch)
        del self.turns[-len(removed) :]
        self._entries, self._node_entries = self._entries[: -len(removed)], {}
        self._next_index = removed[-1].index

    def remove_calls(self, calls: AbstractSet[str | None]) -> None:
        """Remove the turns of these calls; the history of all other turns does not change."""
        with self._lock:
            retry_on_conflict(lambda: self._remove_calls(calls), "the turns", tries=MAX_TRIES)

    def _remove_calls(self, calls: AbstractSet[str | None]) -> None:
        self.catch_up()
        first = next((index for index, turn in enumerate(self.turns) if turn.call in calls), None)
        if first is None:
            return
        if all(turn.call in calls for turn in self.turns[first:]):
            self._remove_last(self.turns[first:][::-1])
        else:
            self.replace_with(self._without_calls(calls, first))

    def _without_calls(self, calls: AbstractSet[str | None], first: int) -> TurnLog:
        """Return a copy without the turns of these calls, the first of which is at `first`."""
        log = self._copy_on(None)
        log.turns = [_rebase_turn(turn, log._entries, self._dropped) for turn in self.turns[:first]]
        log._entries = log._entries[: len(self._entries) - len(self.turns) + first]
        log._dropped, log._next_index = 0, self.turns[first].index
        for turn in self.turns[first:]:
            if turn.call not in calls:
                copy = turn.again(past=History(messages=turn.history_snapshot.messages))
                copy.index = log._next_index
                log._append(copy)
        return log

    def fork(self, name: str | None = None) -> TurnLog:
        """Return the same turns on a fork of the branch."""
        with self._lock:
            return retry_on_conflict(lambda: self._fork(name), "the turns", tries=MAX_TRIES)

    def _fork(self, name: str | None) -> TurnLog:
        self.catch_up()
        forked = self.branch.fork(name=name, resources=True, capabilities=True, system=True)
        log = self._copy_on(forked)
        log._synced_length, log._synced_revision = self._synced_length, forked.revision
        return log

    def copy_in_memory(self) -> TurnLog:
        """Return the same turns in memory; their branch is created when needed."""
        with self._lock:
            log = self._copy_on(None)
            log.turns = [_rebase_turn(turn, log._entries, self._dropped) for turn in self.turns]
            log._dropped = 0
            return log

    def _copy_on(self, branch: Branch | None) -> TurnLog:
        log = TurnLog(self.options)
        log._copy_from(self)
        log._branch = branch
        return log

    def _copy_from(self, other: TurnLog) -> None:
        self.initial, self.turns, self._entries = other.initial, other.turns[:], other._entries[:]
        self._history_start, self._dropped, self._next_index = (
            other._history_start,
            other._dropped,
            other._next_index,
        )
        self._node_entries = {}


def _rebase_turn(turn: Turn, entries: list[HistoryEntry], dropped: int) -> Turn:
    """Return a copy of a turn whose history refers to `entries`."""
    past = turn.past
    if isinstance(past, HistorySpan):
        if past.dropped == dropped:
            past = HistorySpan(entries, past.start, past.stop, past.initial)
        else:
            past = History(messages=past.messages())
    return turn.again(past=past)


def _without_outputs(
    nodes: dict[str, dict[str, Any]], outputs: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the values of nested predictors without those that the program returned."""
    remaining = {
        node: {name: value for name, value in values.items() if name not in outputs}
        for node, values in nodes.items()
    }
    return {node: plain_fields(values) for node, values in remaining.items() if values}
