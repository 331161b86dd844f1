"""Fixtures of the conformance checks: short records, a session to write to, a view of it.

They depend neither on the store under test nor on pytest: a check fails with an AssertionError
that names the expected value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import replace
from typing import Any, Self, TypeVar
from uuid import UUID

import msgspec

from sennit.errors import SennitError
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
    Lease,
    MessageRecord,
    Owner,
    PutRun,
    RemoveBranch,
    RemoveMessages,
    RenameBranch,
    RunRecord,
    SegmentRecord,
    SessionRecord,
    Snapshot,
)

OWNER = Owner("acme", "user", "ada")
STRANGER = Owner("acme", "user", "bob")
NOON = 1_600_000_000_000_000
"""A past time in microseconds, used as the creation time of records."""

TTL = 60_000_000
"""The duration of leases, in microseconds."""

_E = TypeVar("_E", bound=BaseException)


class FakeClock:
    """A clock that a check moves by hand; pass it to `sennit.clock.wall_clock_from`."""

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
        self.session: SessionRecord = snapshot.session
        self.messages: dict[UUID, MessageRecord] = {
            record.id: record for record in snapshot.messages
        }
        self.segments: dict[UUID, SegmentRecord] = {
            record.id: record for record in snapshot.segments
        }
        self.branches: dict[UUID, BranchRecord] = {
            record.id: record for record in snapshot.branches
        }
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


class Scenario:
    """One session in the store under test; messages are named by their text, branches by name.

    Texts are letters (`append("main", "ab")` appends two messages) or a list of sentences. A text
    that was used before stands for the same message. Methods return the scenario, so that a check
    reads as one sentence; `heads` has the result of the last write.
    """

    def __init__(self, store: Store, owner: Owner = OWNER, uid: UUID | None = None) -> None:
        self.store: Store = store
        self.owner: Owner = owner
        self.id: UUID = store.create_session(owner, session(uid)).id
        self.named: dict[str, MessageRecord] = {}
        self.heads: list[BranchHead] = []
        self._last: tuple[Change, ...] = ()

    def beside(self, owner: Owner | None = None, uid: UUID | None = None) -> Scenario:
        """Create another session in the same store."""
        return Scenario(self.store, owner or self.owner, uid)

    def __getitem__(self, text: str) -> UUID:
        return self.named[text].id

    def ids(self, texts: Iterable[str]) -> tuple[UUID, ...]:
        """Return the ids of messages."""
        return tuple(self[text] for text in texts)

    def adding(self, texts: Iterable[str]) -> AddMessages:
        """Return the change that stores the messages not used before."""
        new = {text: message(text) for text in texts if text not in self.named}
        self.named |= new
        return AddMessages(tuple(new.values()))

    def write(self, *changes: Change) -> Self:
        """Write to the session."""
        self._last = changes
        self.heads = self.store.write(self.owner, self.id, changes)
        return self

    def again(self) -> Self:
        """Repeat the last write, as after a lost acknowledgement; it must give the same heads."""
        first = self.heads
        same(self.write(*self._last).heads, first, "Heads of the repetition")
        return self

    def refuses(self, kind: type[SennitError], *changes: Change) -> Self:
        """Assert that a write raises `kind` and changes nothing in the session."""
        before = self.store.load(self.owner, self.id)
        raises(kind, lambda: self.store.write(self.owner, self.id, changes), f"{changes!r:.200}")
        same(self.store.load(self.owner, self.id), before, "The session after a refused write")
        return self

    def load(self) -> View:
        """Load the session and check its integrity."""
        view = View(self.store.load(self.owner, self.id))
        view.check_integrity()
        return view

    def changes(self, known: dict[UUID, int]) -> View:
        """Return the changes since `known`, a length per segment."""
        return View(self.store.changes(self.owner, self.id, known))

    def stored(self, name: str = "main") -> BranchRecord:
        """Load a branch record."""
        return self.load().named(name)

    def texts(self, name: str = "main") -> list[str]:
        """Load the message texts of a branch."""
        return self.load().texts(name)

    def shows(self, **texts: str) -> Self:
        """Assert the histories of branches."""
        view = self.load()
        for name, expected in texts.items():
            same("".join(view.texts(name)), expected, f"The branch {name!r}")
        return self

    def holds(self, texts: Iterable[str]) -> Self:
        """Assert which messages are stored, on a branch or not, in this order."""
        expected = [self.named[text] for text in texts]
        same(list(self.load().messages.values()), expected, "The messages")
        return self

    def add(self, texts: Iterable[str]) -> Self:
        """Store messages without appending them to a branch."""
        return self.write(self.adding(texts))

    def branch(self, name: str = "main", texts: Iterable[str] = (), **fields: Any) -> Self:
        """Create a branch with these messages."""
        added, on = self.adding(texts), segment()
        record = branch(name, on, **fields)
        return self.write(added, AddBranch(record, on), Append(record.id, self.ids(texts)))

    def append(self, name: str, texts: Iterable[str]) -> Self:
        """Append messages to a branch; those not used before are added in the same write."""
        added, to = self.adding(texts), self.stored(name).id
        return self.write(*([added] if added.messages else []), Append(to, self.ids(texts)))

    def forking(self, source: str, name: str, at: int | None = None, **fields: Any) -> AddBranch:
        """Return the change that forks a branch after its first `at` messages, or after all."""
        view = self.load()
        record = view.named(source)
        at = len(view.history(record.id)) if at is None else at
        on = segment((), view.holder(record.segment, at - 1) if at else None, at)
        return AddBranch(branch(name, on, **fields), on)

    def fork(self, source: str, name: str, at: int | None = None) -> Self:
        """Fork a branch after its first `at` messages, or after all."""
        return self.write(self.forking(source, name, at))

    def rewriting(self, name: str, texts: Iterable[str], keep: int = 0) -> ChangeBranch:
        """Return the change of a history to its first `keep` messages and these."""
        view = self.load()
        record = view.named(name)
        base = view.holder(record.segment, keep - 1) if keep else None
        on = segment(self.ids(texts), base, keep)
        return ChangeBranch(replace(record, segment=on.id), on)

    def rewrite(self, name: str, texts: Iterable[str], keep: int = 0) -> Self:
        """Replace a history by its first `keep` messages and these."""
        return self.write(self.rewriting(name, texts, keep))

    def changing(self, name: str, /, **fields: Any) -> ChangeBranch:
        """Return the change of a branch's fields."""
        return ChangeBranch(replace(self.stored(name), **fields))

    def change(self, name: str, /, **fields: Any) -> Self:
        """Change fields of a branch."""
        return self.write(self.changing(name, **fields))

    def rename(self, name: str, new: str) -> Self:
        """Rename a branch."""
        return self.write(RenameBranch(self.stored(name).id, new))

    def remove(self, *names: str) -> Self:
        """Remove branches."""
        return self.write(*(RemoveBranch(self.stored(name).id) for name in names))

    def erase(self, texts: Iterable[str]) -> Self:
        """Erase messages."""
        erased = self.ids(texts)
        for text in texts:
            del self.named[text]
        return self.write(RemoveMessages(erased))

    def found(self, text: str, *, here: bool = False) -> set[UUID]:
        """Search the owner's messages, or only those of this session."""
        scope = self.id if here else None
        hits = self.store.search(self.owner, text, session=scope, limit=100_000)
        return {hit.message for hit in hits}

    def finds(self, text: str, texts: Iterable[str] = ()) -> Self:
        """Assert which messages a search finds."""
        same(self.found(text), set(self.ids(texts)), f"Messages found for {text!r}")
        return self


class LeaseFixture:
    """A leased branch, with its runs and events."""

    def __init__(self, scene: Scenario, name: str = "main") -> None:
        self.scene, self.store, self.name = scene, scene.store, name
        self.branch = scene.branch(name, "a").stored(name).id
        self.lease = self.acquire("ada")
        self.token = self.lease.token

    @property
    def key(self) -> tuple[Owner, UUID, UUID]:
        """The owner, session and branch, as the store's methods take them."""
        return self.scene.owner, self.scene.id, self.branch

    def beside(self, name: str = "side") -> LeaseFixture:
        """Create and lease another branch."""
        return LeaseFixture(self.scene, name)

    def acquire(self, holder: str, ttl: int = TTL) -> Lease:
        """Acquire the lease; with a `ttl` of 0 it has expired at the next call."""
        return self.store.acquire(*self.key, holder, ttl)

    def renew(self, lease: Lease) -> Lease:
        """Renew a lease."""
        return self.store.renew(self.scene.owner, self.scene.id, lease, TTL)

    def release(self, lease: Lease) -> None:
        """Release a lease."""
        self.store.release(self.scene.owner, self.scene.id, lease)

    def putting(self, run: RunRecord, **fields: Any) -> PutRun:
        """Return the change that stores a run with other fields."""
        return PutRun(msgspec.structs.replace(run, **fields), self.token)

    def run(self, **fields: Any) -> RunRecord:
        """Store a run and return its record."""
        record = RunRecord(new_id(), self.branch, "running", NOON, NOON, b'{"model":"gpt"}')
        change = self.putting(record, **fields)
        self.scene.write(change)
        return change.run

    def adding(self, *events: EventRecord, token: int | None = None) -> AddEvents:
        """Return the change that stores events."""
        return AddEvents(self.branch, events, self.token if token is None else token)

    def add(self, *events: EventRecord, token: int | None = None) -> None:
        """Store events."""
        self.scene.write(self.adding(*events, token=token))

    def runs(self) -> list[RunRecord]:
        """Return the stored runs."""
        return self.store.runs(*self.key)

    def events(self, after: int = 0, limit: int = 10_000) -> list[EventRecord]:
        """Return a page of the stored events."""
        return self.store.events(*self.key, after, limit)

    def last(self) -> tuple[int, RunRecord | None]:
        """Return the number of the last event, and the newest run."""
        return self.store.last_event(*self.key), self.store.last_run(*self.key)

    def shows(self, runs: list[RunRecord], events: list[EventRecord]) -> None:
        """Assert the runs and events of the branch."""
        same(self.runs(), runs, "Runs")
        same(self.events(), events, "Events")


def deltas(run: RunRecord, *seqs: int, about: UUID | None = None) -> list[EventRecord]:
    """Build text events with these numbers."""
    return [EventRecord(seq, run.id, about, dumps(["text", f"piece {seq}"])) for seq in seqs]
