"""The journal of a run: events are durable before they are shown.

With a store, what comes in while a write is under way is written together by the next one: a fast
model costs a few writes, not one for each word. Without a store nothing has to be waited for. What
rewrites the branch is a write of its own.

A tool call is started in the write that records its start. If a run on another branch was faster,
the store refuses that; a warning stands in the place of the event, and `refused` names the call.
"""

from __future__ import annotations

from asyncio import Event as Bell
from asyncio import Task, create_task, to_thread
from collections.abc import Callable
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
    """The changes written in one step."""

    rewrite: Rewrite | None = None
    messages: list[Message] = []
    events: list[AnyEvent] = []
    starts: list[CallStart] = []
    records: dict[UUID, PutRun] = {}

    @property
    def changes_branch(self) -> bool:
        """True if the branch is another one afterwards."""
        return bool(self.messages) or self.rewrite is not None

    def takes(self, rewrite: Rewrite | None) -> bool:
        """Return whether it can hold what comes next: nothing is told before or after a rewrite in
        it.
        """
        return self.rewrite is None and (rewrite is None or not self.events)


class Journal:
    """The notes of one run."""

    def __init__(self, runs: RunRepository, held: BranchLease, publish: Publish) -> None:
        self._runs, self._held, self._publish = runs, held, publish
        self._durable = runs.durable
        self._batches: list[_Batch] = []
        self._pump: Task[None] | None = None
        self._placing = False  # whether what is being written changes the branch
        self._quiet = Bell()
        self._failed: BaseException | None = None
        self.refused: set[UUID] = set()
        """Calls that were not started, as someone else has done so meanwhile."""

    def add(
        self,
        event: AnyEvent,
        message: Message | None = None,
        rewrite: Rewrite | None = None,
        start: CallStart | None = None,
    ) -> None:
        """Note an event, with the message it puts on the branch, or how it rewrites that.

        `start` is the tool call that the event starts.
        """
        messages = [] if message is None or rewrite is not None else [message]
        starts = [] if start is None else [start]
        last = self._batches[-1] if self._batches else None
        if not self._durable:
            self._write_now(_Batch(rewrite, messages, [event], starts))
        elif last is None or not last.takes(rewrite):
            self._begin(_Batch(rewrite, messages, [event], starts))
        else:
            last.rewrite = rewrite
            last.messages += messages
            last.events.append(event)
            last.starts += starts

    def put(self, run: RunRecord, *, release: bool = False) -> None:
        """Note where the run stands; with `release`, the branch is held no longer.

        It is written with what was noted last, or with what is noted next.
        """
        change = {run.id: PutRun(run, self._held.lease.token, release)}
        if not self._durable:
            self._write_now(_Batch(records=change))
        elif self._batches:
            self._batches[-1].records.update(change)
        else:
            self._begin(_Batch(records=change))

    async def placed(self) -> None:
        """Wait until what was noted stands on the branch."""
        if self._placing or (self._batches and any(one.changes_branch for one in self._batches)):
            await self.settle()

    async def settle(self) -> None:
        """Wait until all that was noted is durable and shown; raises what kept it from that."""
        while self._pump is not None:
            await self._quiet.wait()
        if self._failed is not None:
            raise self._failed

    def _write_now(self, batch: _Batch) -> None:
        try:
            if batch.rewrite is None:
                self._runs.note(batch.messages, self._changes(batch))
            else:
                self._runs.rewrite(batch.rewrite, self._changes(batch))
        except ConflictError as error:
            self._refuse(batch, error)
            self._write_now(batch)
            return
        self._publish(batch.events)

    def _refuse(self, batch: _Batch, error: ConflictError) -> None:
        """Leave out the start of a call that someone else has started; raises any other error."""
        if error.call is None:
            raise error
        self.refused.add(error.call)
        batch.starts = [one for one in batch.starts if one.message != error.call]
        batch.events = [
            _warning(one) if isinstance(one, ToolStarted) and one.message.id == error.call else one
            for one in batch.events
        ]

    def _begin(self, batch: _Batch) -> None:
        self._batches.append(batch)
        if self._pump is None and self._failed is None:
            self._quiet.clear()
            self._pump = create_task(self._write_all())

    async def _write_all(self) -> None:
        try:
            while self._batches:
                batch = self._batches.pop(0)
                self._placing = batch.changes_branch
                _reach("before", batch.events)
                await self._write(batch)
                _reach("after", batch.events)
                self._publish(batch.events)
        except BaseException as error:
            self._failed = error
        finally:
            self._pump, self._placing = None, False
            self._quiet.set()

    async def _write(self, batch: _Batch) -> None:
        if not telemetry.on():
            await self._written(batch)
            return
        notes = {telemetry.MESSAGES: len(batch.messages), telemetry.EVENTS: len(batch.events)}
        with telemetry.watching(telemetry.STORE_WRITE, "", notes):
            await self._written(batch)

    async def _written(self, batch: _Batch) -> None:
        if batch.rewrite is not None:
            await to_thread(self._runs.rewrite, batch.rewrite, self._changes(batch))
            return
        try:
            await self._runs.write(batch.messages, self._changes(batch))
        except ConflictError as error:
            self._refuse(batch, error)
            await self._written(batch)

    def _changes(self, batch: _Batch) -> list[PutRun | AddEvents]:
        changes: list[PutRun | AddEvents] = [*batch.records.values()]
        if batch.events:
            told = tuple(map(to_record, batch.events))
            token, starts = self._held.lease.token, tuple(batch.starts)
            changes.append(AddEvents(self._runs.branch.id, told, token, starts))
        return changes


def _warning(started: ToolStarted) -> WarningIssued:
    told = f"The tool call of message {started.message.id} was started on another branch just now."
    notice = Notice("warning", "started_elsewhere", told)
    return WarningIssued(seq=started.seq, run_id=started.run_id, notice=notice)


def _reach(when: str, events: list[AnyEvent]) -> None:
    """A point for each event of a write, so that a test can end the program at any of them."""
    if failpoints.in_use():
        for event in events:
            failpoints.reach(f"journal.{when}: {event.kind}")
