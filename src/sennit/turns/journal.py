"""What happens becomes durable first, and is shown then, in the order in which it happened.

With a store, what comes in while a write is under way is written together by the next one: a fast
model costs a few writes, not one for each word. Without a store nothing has to be waited for. What
rewrites the branch is a write of its own.
"""

from __future__ import annotations

from asyncio import Event as Bell
from asyncio import Task, create_task, to_thread
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from sennit import telemetry
from sennit.messages.message import Message
from sennit.sessions.rewriting import Rewrite
from sennit.sessions.runs import BranchRuns
from sennit.stores.records import AddEvents, PutRun, RunRecord
from sennit.turns.events import AnyEvent, to_record

Publish = Callable[[list[AnyEvent]], None]


@dataclass(slots=True)
class _Batch:
    """What is written in one step."""

    rewrite: Rewrite | None = None
    messages: list[Message] = field(default_factory=list[Message])
    events: list[AnyEvent] = field(default_factory=list[AnyEvent])


class Journal:
    """The notes of one run."""

    def __init__(self, runs: BranchRuns, token: int, publish: Publish) -> None:
        self._runs, self._token, self._publish = runs, token, publish
        self._durable = runs.durable
        self._batches: list[_Batch] = []
        self._records: dict[UUID, RunRecord] = {}
        self._pump: Task[None] | None = None
        self._quiet = Bell()
        self._failed: BaseException | None = None

    def add(
        self, event: AnyEvent, message: Message | None = None, rewrite: Rewrite | None = None
    ) -> None:
        """Note an event, with the message it puts on the branch, or how it rewrites that."""
        messages = [] if message is None or rewrite is not None else [message]
        last = self._batches[-1] if self._batches else None
        if not self._durable:
            self._write_now(_Batch(rewrite, messages, [event]))
        elif last is None or last.rewrite is not None or rewrite is not None:
            self._batches.append(_Batch(rewrite, messages, [event]))
            self._go_on()
        else:
            last.messages += messages
            last.events.append(event)

    def put(self, run: RunRecord) -> None:
        """Note where the run stands, together with what is noted next."""
        self._records[run.id] = run
        if self._durable:
            self._go_on()
        else:
            self._write_now(_Batch())

    async def settle(self) -> None:
        """Wait until all that was noted is durable and shown; raises what kept it from that."""
        while self._pump is not None:
            await self._quiet.wait()
        if self._failed is not None:
            raise self._failed

    def _write_now(self, batch: _Batch) -> None:
        changes = self._changes(batch)
        if batch.rewrite is None:
            self._runs.note(batch.messages, changes)
        else:
            self._runs.rewrite(batch.rewrite, changes)
        self._publish(batch.events)

    def _go_on(self) -> None:
        if self._pump is None and self._failed is None:
            self._quiet.clear()
            self._pump = create_task(self._write_all())

    async def _write_all(self) -> None:
        try:
            while self._batches or self._records:
                batch = self._batches.pop(0) if self._batches else _Batch()
                await self._write(batch, self._changes(batch))
                self._publish(batch.events)
        except BaseException as error:
            self._failed = error
        finally:
            self._pump = None
            self._quiet.set()

    async def _write(self, batch: _Batch, changes: list[PutRun | AddEvents]) -> None:
        if not telemetry.on():
            await self._written(batch, changes)
            return
        notes = {telemetry.MESSAGES: len(batch.messages), telemetry.EVENTS: len(batch.events)}
        with telemetry.watching(telemetry.STORE_WRITE, "", notes):
            await self._written(batch, changes)

    async def _written(self, batch: _Batch, changes: list[PutRun | AddEvents]) -> None:
        if batch.rewrite is None:
            await self._runs.write(batch.messages, changes)
        else:
            await to_thread(self._runs.rewrite, batch.rewrite, changes)

    def _changes(self, batch: _Batch) -> list[PutRun | AddEvents]:
        changes: list[PutRun | AddEvents] = []
        if self._records:
            changes += [PutRun(run, self._token) for run in self._records.values()]
            self._records = {}
        if batch.events:
            told = tuple(map(to_record, batch.events))
            changes.append(AddEvents(self._runs.branch.id, told, self._token))
        return changes
