"""Fixtures of the conformance checks: short records, a session to write to, a view of it.

They depend neither on the store under test nor on pytest: a check fails with an AssertionError
that names the expected value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from sennit.ids import new_id
from sennit.messages.codec import dumps, loads
from sennit.stores.base import Store
from sennit.stores.records.sessions import (
    AddBranch,
    AddEvents,
    AddMessages,
    Append,
    BranchHead,
    BranchRecord,
    Change,
    ChangeBranch,
    EventRecord,
    MessageRecord,
    Owner,
    PutRun,
    RemoveMessages,
    RunRecord,
    SegmentRecord,
    SessionRecord,
    Snapshot,
)

OWNER = Owner("acme", "user", "ada")
STRANGER = Owner("acme", "user", "bob")
NOON = 1_600_000_000_000_000
"""A past time in microseconds, used as the creation time of records."""

_TTL = 60_000_000

_E = TypeVar("_E", bound=BaseException)


class FakeClock:
    """A clock that a check moves by hand; pass it to `sennit.clock.using`."""

    def __init__(self, now: int = NOON) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now * 1000


def same(actual: object, expected: object, what: str) -> None:
    """Assert that two values are equal; `what` names them in the error."""
    assert actual == expected, f"{what}: expected {expected!r:.400}, got {actual!r:.400}"


def empty(what: str, *collections: Sized) -> None:
    """Assert that all collections are empty."""
    for collection in collections:
        assert not len(collection), f"{what}: expected nothing, got {collection!r:.400}"


def raises(kind: type[_E], action: Callable[[], object], why: str) -> _E:
    """Assert that the action raises `kind`, and return the error."""
    try:
        result = action()
    except kind as error:
        return error
    except Exception as error:
        raise AssertionError(f"{why}: expected {kind.__name__}, got {error!r:.300}") from error
    raise AssertionError(f"{why}: expected {kind.__name__}, but it gave {result!r:.300}")


def session(uid: UUID | None = None, key: str | None = None, **fields: Any) -> SessionRecord:
    """Build a session record."""
    record = SessionRecord(uid or new_id(), key, "ada", NOON, NOON, {})
    return replace(record, **fields)


def message(text: str, uid: UUID | None = None) -> MessageRecord:
    """Build an instruction message record."""
    body = dumps({"type": "instruction", "content": {"instruction": text}})
    return MessageRecord(uid or new_id(), NOON, body)


def text_of(record: MessageRecord) -> str:
    """Return the text of a record built by `message`."""
    return loads(record.body)["content"]["instruction"]


def messages(*texts: str) -> list[MessageRecord]:
    """Build several instruction message records."""
    return [message(text) for text in texts]


def ids(records: Iterable[MessageRecord]) -> tuple[UUID, ...]:
    """Return the ids of message records."""
    return tuple(record.id for record in records)


def segment(
    entries: Sequence[UUID] = (), base: UUID | None = None, offset: int = 0
) -> SegmentRecord:
    """Build a segment record with a new id."""
    return SegmentRecord(new_id(), base, offset, tuple(entries))


def branch(name: str, on: SegmentRecord, **fields: Any) -> BranchRecord:
    """Build a branch record with a new id, on a segment."""
    record = BranchRecord(
        new_id(), name, NOON, None, on.id, len(on.entries), frozenset(), frozenset(), {}
    )
    return replace(record, **fields)


class View:
    """A snapshot indexed by id, with the histories of its branches."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.session = snapshot.session
        self.messages = {record.id: record for record in snapshot.messages}
        self.segments = {record.id: record for record in snapshot.segments}
        self.branches = {record.id: record for record in snapshot.branches}
        same(len(self.messages), len(snapshot.messages), "Messages given, each only once")
        same(len(self.segments), len(snapshot.segments), "Segments given, each only once")
        same(len(self.branches), len(snapshot.branches), "Branches given, each only once")

    def named(self, name: str) -> BranchRecord:
        """Return the branch with that name; raise AssertionError without one."""
        for record in self.branches.values():
            if record.name == name:
                return record
        names = [record.name for record in self.branches.values()]
        raise AssertionError(f"There should be a branch {name!r}, found only {names!r:.300}.")

    def history(self, uid: UUID) -> list[UUID]:
        """Return the message ids of a branch, oldest first."""
        part = self.segments[self.branches[uid].segment]
        limit, pieces = part.offset + len(part.entries), list[tuple[UUID, ...]]()
        while True:
            own = max(0, limit - part.offset)
            assert own <= len(part.entries), f"Segment {part.id} lost entries others build on."
            pieces.append(part.entries[:own])
            if part.base is None:
                return [entry for piece in reversed(pieces) for entry in piece]
            limit, part = min(limit, part.offset), self.segments[part.base]

    def texts(self, name: str) -> list[str]:
        """Return the message texts of a branch."""
        return [text_of(self.messages[uid]) for uid in self.history(self.named(name).id)]

    def holder(self, uid: UUID, position: int) -> UUID:
        """Return the segment, `uid` or one of its bases, that holds a position of the history."""
        part = self.segments[uid]
        while part.base is not None and position < part.offset:
            part = self.segments[part.base]
        return part.id

    def check_integrity(self) -> None:
        """Assert that no reference dangles and every segment is needed."""
        needed: set[UUID] = set()
        for record in self.branches.values():
            part: UUID | None = record.segment
            while part is not None and part not in needed:
                assert part in self.segments, f"Segment {part} is needed, but was not given."
                needed.add(part)
                part = self.segments[part].base
            same(record.length, len(self.segments[record.segment].entries), "Length of a branch")
            exists = record.system is None or record.system in self.messages
            assert exists, f"The system message of {record.name!r} was not given."
        same(set(self.segments), needed, "Segments given, only those that branches need")
        for one in self.segments.values():
            lost = [entry for entry in one.entries if entry not in self.messages]
            assert not lost, f"Entries without a message: {lost!r:.300}"


class StoreFixture:
    """One session in the store under test."""

    def __init__(self, store: Store, owner: Owner = OWNER, uid: UUID | None = None) -> None:
        self.store, self.owner = store, owner
        self.id = store.create_session(owner, session(uid)).id
        self._spoken: UUID | None = None

    def write(self, *changes: Change) -> list[BranchHead]:
        """Write to the session."""
        return self.store.write(self.owner, self.id, changes)

    def load(self) -> View:
        """Load the session and check its integrity."""
        view = View(self.store.load(self.owner, self.id))
        view.check_integrity()
        return view

    def changes(self, known: dict[UUID, int]) -> View:
        """Return the changes since `known`, a length per segment."""
        return View(self.store.changes(self.owner, self.id, known))

    def stored(self, uid: UUID) -> BranchRecord:
        """Load a branch record."""
        return self.load().branches[uid]

    def texts(self, name: str = "main") -> list[str]:
        """Load the message texts of a branch."""
        return self.load().texts(name)

    def say(self, *texts: str) -> list[MessageRecord]:
        """Store messages without appending them to a branch."""
        records = messages(*texts)
        self.write(AddMessages(tuple(records)))
        return records

    def speak(self, *texts: str) -> list[MessageRecord]:
        """Append messages to a separate branch, created when first needed."""
        if self._spoken is None:
            self._spoken = self.branch("spoken").id
        return self.append(self._spoken, *texts)

    def branch(self, name: str = "main", *texts: str) -> BranchRecord:
        """Create a branch with these messages."""
        records, on = messages(*texts), segment()
        record = branch(name, on)
        self.write(
            AddMessages(tuple(records)), AddBranch(record, on), Append(record.id, ids(records))
        )
        return replace(record, length=len(records))

    def append(self, uid: UUID, *texts: str) -> list[MessageRecord]:
        """Append new messages to a branch."""
        records = messages(*texts)
        self.write(AddMessages(tuple(records)), Append(uid, ids(records)))
        return records

    def fork(self, source: UUID, name: str, at: int | None = None) -> BranchRecord:
        """Fork a branch after its first `at` messages, or after all."""
        view = self.load()
        at = len(view.history(source)) if at is None else at
        base = view.holder(view.branches[source].segment, at - 1) if at else None
        on = segment((), base, at)
        record = branch(name, on)
        self.write(AddBranch(record, on))
        return record

    def rewrite(self, uid: UUID, entries: Sequence[UUID]) -> ChangeBranch:
        """Replace the history of a branch by a new segment without a base; return the change."""
        on = segment(entries)
        change = ChangeBranch(replace(self.stored(uid), segment=on.id), on)
        self.write(change)
        return change

    def forget(self, *records: MessageRecord) -> None:
        """Erase messages."""
        self.write(RemoveMessages(ids(records)))


class LeaseFixture:
    """A leased branch, with its runs and events."""

    def __init__(self, scene: StoreFixture, name: str = "main") -> None:
        self.scene, self.store = scene, scene.store
        self.branch = scene.branch(name, "one").id
        self.lease = self.store.acquire(scene.owner, scene.id, self.branch, "ada", _TTL)
        self.token = self.lease.token

    def run(self, **fields: object) -> RunRecord:
        """Store a run and return its record."""
        record = RunRecord(new_id(), self.branch, "running", NOON, NOON, b'{"model":"gpt"}')
        record = msgspec.structs.replace(record, **fields)
        self.scene.write(PutRun(record, self.token))
        return record

    def add(self, *events: EventRecord, token: int | None = None) -> None:
        """Store events."""
        self.scene.write(self.adding(*events, token=token))

    def adding(self, *events: EventRecord, token: int | None = None) -> AddEvents:
        """Return the change that stores events."""
        return AddEvents(self.branch, events, self.token if token is None else token)

    def runs(self) -> list[RunRecord]:
        """Return the stored runs."""
        return self.store.runs(self.scene.owner, self.scene.id, self.branch)

    def events(self, after: int = 0, limit: int = 1000) -> list[EventRecord]:
        """Return a page of the stored events."""
        return self.store.events(self.scene.owner, self.scene.id, self.branch, after, limit)

    def last(self) -> int:
        """Return the number of the last event."""
        return self.store.last_event(self.scene.owner, self.scene.id, self.branch)

    def last_run(self) -> RunRecord | None:
        """Return the newest run."""
        return self.store.last_run(self.scene.owner, self.scene.id, self.branch)

    def last_runs(self) -> dict[UUID, RunRecord]:
        """Return the newest run of each branch."""
        return self.store.last_runs(self.scene.owner, self.scene.id)


def deltas(run: RunRecord, *seqs: int, about: UUID | None = None) -> list[EventRecord]:
    """Build text events with these numbers."""
    return [EventRecord(seq, run.id, about, dumps(["text", f"piece {seq}"])) for seq in seqs]
