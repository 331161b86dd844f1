"""What happens becomes durable first, and is shown then, in the order in which it happened.

With a store, what comes in while a write is under way is written together by the next one: a fast
model costs a few writes, not one for each word. Without a store nothing has to be waited for.
"""

from __future__ import annotations

from asyncio import Event as Bell
from asyncio import Task, create_task
from collections.abc import Callable
from uuid import UUID

from sennit import failpoints
from sennit.messages.message import Message
from sennit.sessions.runs import BranchRuns
from sennit.stores.records import AddEvents, PutRun, RunRecord
from sennit.turns.events import AnyEvent, to_record

Publish = Callable[[list[AnyEvent]], None]


class Journal:
    """The notes of one run."""

    def __init__(self, runs: BranchRuns, token: int, publish: Publish) -> None:
        self._runs, self._token, self._publish = runs, token, publish
        self._events: list[AnyEvent] = []
        self._messages: list[Message] = []
        self._records: dict[UUID, PutRun] = {}
        self._pump: Task[None] | None = None
        self._placing = False  # whether what is being written holds messages
        self._quiet = Bell()
        self._failed: BaseException | None = None

    def add(self, event: AnyEvent, message: Message | None = None) -> None:
        """Note an event, together with the message it puts on the branch."""
        self._events.append(event)
        if message is not None:
            self._messages.append(message)
        self._go_on()

    def put(self, run: RunRecord, *, release: bool = False) -> None:
        """Note where the run stands; with `release`, the branch is held no longer."""
        self._records[run.id] = PutRun(run, self._token, release)
        self._go_on()

    async def placed(self) -> None:
        """Wait until the messages that were noted stand on the branch."""
        if self._messages or self._placing:
            await self.settle()

    async def settle(self) -> None:
        """Wait until all that was noted is durable and shown; raises what kept it from that."""
        while self._pump is not None:
            await self._quiet.wait()
        if self._failed is not None:
            raise self._failed

    def _go_on(self) -> None:
        if not self._runs.durable:
            messages, events, changes = self._taken()
            self._runs.note(messages, changes)
            self._publish(events)
        elif self._pump is None and self._failed is None:
            self._quiet.clear()
            self._pump = create_task(self._write_all())

    async def _write_all(self) -> None:
        try:
            while self._events or self._messages or self._records:
                messages, events, changes = self._taken()
                self._placing = bool(messages)
                _reach("before", events)
                await self._runs.write(messages, changes)
                _reach("after", events)
                self._publish(events)
        except BaseException as error:
            self._failed = error
        finally:
            self._pump, self._placing = None, False
            self._quiet.set()

    def _taken(self) -> tuple[list[Message], list[AnyEvent], list[PutRun | AddEvents]]:
        messages, self._messages = self._messages, []
        events, self._events = self._events, []
        records, self._records = self._records, {}
        changes: list[PutRun | AddEvents] = list(records.values())
        if events:
            told = tuple(map(to_record, events))
            changes.append(AddEvents(self._runs.branch.id, told, self._token))
        return messages, events, changes


def _reach(when: str, events: list[AnyEvent]) -> None:
    """A point for each event of a write, so that a test can end the program at any of them."""
    if failpoints.in_use():
        for event in events:
            failpoints.reach(f"journal.{when}: {event.kind}")
