"""The journal of a run: a write-ahead log whose events are durable before they are published.

Events that arrive during a write are batched into the next one, so a fast model costs a few writes
instead of one per token. Without a store, events are published at once. A rewrite of the branch is
a batch of its own.

The start of a tool call is claimed in the write that records it. If a run on another branch was
faster, the store refuses the write; a warning replaces the event, and `refused` has the call.
"""

from __future__ import annotations

from asyncio import Event, Task, create_task
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from uuid import UUID

import msgspec

from sennit import failpoints, telemetry
from sennit.errors import ConflictError
from sennit.messages.message import Message
from sennit.sessions.rewrite import Rewrite
from sennit.sessions.run_repository import RunRepository
from sennit.stores.records.sessions import AddEvents, CallStart, PutRun, RunRecord
from sennit.turns.branch_lease import BranchLease
from sennit.turns.events import AnyEvent, ToolStarted, WarningIssued, to_record
from sennit.turns.result import Notice

Publish = Callable[[list[AnyEvent]], None]


class _Batch(msgspec.Struct):
    """Changes written in one transaction."""

    rewrite: Rewrite | None = None
    messages: list[Message] = []
    events: list[AnyEvent] = []
    starts: list[CallStart] = []
    records: dict[UUID, PutRun] = {}

    @property
    def changes_branch(self) -> bool:
        """True if messages are added to the branch or it is rewritten."""
        return bool(self.messages) or self.rewrite is not None

    def accepts(self, rewrite: Rewrite | None) -> bool:
        """Return whether an event may join: a batch with a rewrite has only one event."""
        return self.rewrite is None and (rewrite is None or not self.events)


class Journal:
    """The journal of one run."""

    def __init__(self, runs: RunRepository, branch_lease: BranchLease, publish: Publish) -> None:
        self._runs, self._branch_lease, self._publish = runs, branch_lease, publish
        self._batches: list[_Batch] = []
        self._writer: Task[None] | None = None
        self._changing_branch = False  # by the batch being written
        self._idle = Event()
        self._error: BaseException | None = None
        self.refused: set[UUID] = set()
        """Calls that were not started, because another run has started them."""

    def add(
        self,
        event: AnyEvent,
        message: Message | None = None,
        rewrite: Rewrite | None = None,
        start: CallStart | None = None,
    ) -> None:
        """Append an event, with the message it adds to the branch or the rewrite of the branch.

        `start` is the tool call that the event starts.
        """
        messages = [] if message is None or rewrite is not None else [message]
        starts = [] if start is None else [start]
        last = self._batches[-1] if self._batches else None
        if last is None or not last.accepts(rewrite):
            self._enqueue(_Batch(rewrite, messages, [event], starts))
        else:
            last.rewrite = rewrite
            last.messages += messages
            last.events.append(event)
            last.starts += starts

    def put_run(self, run: RunRecord, *, release: bool = False) -> None:
        """Write the run record; with `release`, release the lease in the same transaction.

        The record joins the last batch, or waits for the next one.
        """
        change = {run.id: PutRun(run, self._branch_lease.lease.token, release)}
        if self._batches:
            self._batches[-1].records.update(change)
        else:
            self._enqueue(_Batch(records=change))

    async def flush_messages(self) -> None:
        """Wait until queued changes of the branch are durable; raises as `flush` does."""
        if self._changing_branch or (
            self._batches and any(batch.changes_branch for batch in self._batches)
        ):
            await self.flush()

    async def flush(self) -> None:
        """Wait until all events are durable and published; raise the error of a failed write."""
        while self._writer is not None:
            await self._idle.wait()
        if self._error is not None:
            raise self._error

    def _refuse(self, batch: _Batch, error: ConflictError) -> None:
        """Drop the start of a call that another run has started; re-raise any other error."""
        if error.call is None:
            raise error
        self.refused.add(error.call)
        batch.starts = [start for start in batch.starts if start.message != error.call]
        batch.events = [
            _started_elsewhere(event)
            if isinstance(event, ToolStarted) and event.message.id == error.call
            else event
            for event in batch.events
        ]

    def _enqueue(self, batch: _Batch) -> None:
        self._batches.append(batch)
        if self._writer is None and self._error is None:
            self._idle.clear()
            work = self._write_all()
            if self._runs.is_stored:
                self._writer = create_task(work)
            else:  # nothing in it waits; a task would make a delta cost a third more
                with suppress(StopIteration):
                    work.send(None)

    async def _write_all(self) -> None:
        try:
            while self._batches:
                batch = self._batches.pop(0)
                self._changing_branch = batch.changes_branch
                _reach_failpoints("before", batch.events)
                await self._write(batch)
                _reach_failpoints("after", batch.events)
                self._publish(batch.events)
        except BaseException as error:
            self._error = error
        finally:
            self._writer, self._changing_branch = None, False
            self._idle.set()

    async def _write(self, batch: _Batch) -> None:
        if not self._runs.is_stored or not telemetry.on():
            await self._write_batch(batch)
            return
        notes = {telemetry.MESSAGES: len(batch.messages), telemetry.EVENTS: len(batch.events)}
        with telemetry.traced(telemetry.STORE_WRITE, "", notes):
            await self._write_batch(batch)

    async def _write_batch(self, batch: _Batch) -> None:
        if batch.rewrite is not None:
            await self._runs.read(partial(self._runs.rewrite, batch.rewrite, self._changes(batch)))
            return
        try:
            await self._runs.write(batch.messages, self._changes(batch))
        except ConflictError as error:
            self._refuse(batch, error)
            await self._write_batch(batch)

    def _changes(self, batch: _Batch) -> list[PutRun | AddEvents]:
        changes: list[PutRun | AddEvents] = [*batch.records.values()]
        if batch.events:
            records = tuple(map(to_record, batch.events))
            token, starts = self._branch_lease.lease.token, tuple(batch.starts)
            changes.append(AddEvents(self._runs.branch.id, records, token, starts))
        return changes


def _started_elsewhere(started: ToolStarted) -> WarningIssued:
    text = f"The tool call of message {started.message.id} was started on another branch just now."
    notice = Notice("warning", "started_elsewhere", text)
    return WarningIssued(seq=started.seq, run_id=started.run_id, notice=notice)


def _reach_failpoints(when: str, events: list[AnyEvent]) -> None:
    """Reach a failpoint for each event, so that tests can crash before or after its write."""
    if failpoints.has_listener():
        for event in events:
            failpoints.reach(f"journal.{when}: {event.kind}")
