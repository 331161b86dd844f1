"""A session of the in-memory store.

A write changes the data in place and notes down how to take each change back, so that one that
fails half-way leaves nothing behind and one that succeeds copies nothing. Metadata passes through
the codec, as on a disk, so that changing a record in hand changes nothing here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import (
    Callable,
    Container,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from sennit import clock
from sennit.errors import ExistsError
from sennit.messages.codec import dumps, loads
from sennit.stores import leases
from sennit.stores.base import (
    branch_taken,
    changed_meanwhile,
    check_fit,
    check_source,
    misplaced,
    name_taken,
    no_branch,
    no_message,
    no_segment,
    other_content,
)
from sennit.stores.in_memory.runs import RunLog
from sennit.stores.records.commits import AddCommit, AddUses, CommitChange, CommitLog, PutCommit
from sennit.stores.records.search import Hit, StoredMessage, near, part_of
from sennit.stores.records.sessions import (
    AddBranch,
    AddEvents,
    AddMessages,
    Append,
    BranchHead,
    BranchRecord,
    Change,
    ChangeBranch,
    DescribeSession,
    LabelRecord,
    LeaseGrant,
    MessageRecord,
    PutLabels,
    PutRun,
    PutStarts,
    RemoveBranch,
    RemoveMessages,
    RenameBranch,
    SegmentRecord,
    SessionRecord,
    Snapshot,
    TakeLease,
)
from sennit.stores.segment_graph import MAIN, Range, SegmentGraph, source_of

_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(slots=True, eq=False)
class _Segment:
    """A segment; `where` is the first place of each of its own entries."""

    id: UUID
    base: UUID | None
    offset: int
    depth: int
    entries: list[UUID] = field(default_factory=list[UUID])
    where: dict[UUID, int] = field(default_factory=dict[UUID, int])

    @property
    def total(self) -> int:
        return self.offset + len(self.entries)

    def extend(self, entries: Iterable[UUID]) -> None:
        for entry in entries:
            self.where.setdefault(entry, len(self.entries))
            self.entries.append(entry)

    def cut(self, length: int) -> None:
        for entry in self.entries[length:]:
            if self.where.get(entry, -1) >= length:
                del self.where[entry]
        del self.entries[length:]

    def places(self, gone: set[UUID]) -> list[int]:
        """Return the positions of these ids from the root."""
        return [self.offset + at for at, entry in enumerate(self.entries) if entry in gone]

    def without(self, gone: set[UUID], below: int) -> _Segment:
        """The same less these, of which `below` stand below it."""
        segment = replace(self, offset=self.offset - below, entries=[], where={})
        segment.extend(entry for entry in self.entries if entry not in gone)
        return segment

    def shows(self, uid: UUID, first: int, end: int) -> bool:
        """Return whether an entry stands at one of these positions."""
        at = self.where.get(uid, end)
        return at < end and (at >= first or uid in self.entries[first:end])

    def record(self, start: int = 0) -> SegmentRecord:
        return SegmentRecord(self.id, self.base, self.offset, tuple(self.entries[start:]))


class InMemorySession:
    """All that is kept of one session, and the changes it takes."""

    def __init__(self, session: SessionRecord) -> None:
        self.session = session
        self.messages: dict[UUID, MessageRecord] = {}
        self._segments: dict[UUID, _Segment] = {}
        self._branches: dict[UUID, BranchRecord] = {}
        self._names: dict[str, UUID] = {}
        self.log = RunLog()
        self.commits = CommitLog()
        self._labels: dict[tuple[UUID, str], LabelRecord] = {}
        self.detached: dict[UUID, int | None] = {}  # see `stores.base`, promise 7
        self._loose: dict[UUID, None] = {}  # what a write has added that stands nowhere yet
        self._undo: list[Callable[[], object]] = []
        self._saved: set[int] = set()  # tables that this write has a copy of

    def all(self) -> Snapshot:
        """Everything."""
        segments = [segment.record() for segment in self.needed()]
        messages = list(self.messages.values())
        return Snapshot(copied(self.session), messages, segments, self.listed())

    def place(self, message: UUID) -> int:
        """The number of a message among those of all sessions."""
        return self.session.id.int << 128 | message.int

    def archives(self) -> dict[UUID, int]:
        """By which commit each message was archived."""
        commits = self.commits.commits.values()
        return {entry: one.number for one in commits for entry in one.entries}

    def hits(self, scores: Mapping[int, float]) -> Iterator[Hit]:
        """Return search hits of messages, by the order in which they were added."""
        messages, archives = list(self.messages.values()), self.archives()
        places = [self.place(one.id) for one in messages]
        for at, score in scores.items():
            one = messages[at]
            group = (self.session.id.int, part_of(archives.get(one.id), one.created))
            yield Hit(places[at], group, one.created, score, *near(places, at))

    def placed(self, places: Container[int]) -> Iterator[StoredMessage]:
        """The messages at these places."""
        uid, key, archives = self.session.id, self.session.key, self.archives()
        for one in self.messages.values():
            if (place := self.place(one.id)) in places and one.id not in self.detached:
                yield StoredMessage(
                    place, uid, key, archives.get(one.id), one, len(self._branches) > 1
                )

    def listed(self) -> list[BranchRecord]:
        """The branches, the oldest first."""
        ordered = sorted(self._branches.values(), key=lambda branch: (branch.created, branch.id))
        return [replace(branch, metadata=_through_codec(branch.metadata)) for branch in ordered]

    def needed(self) -> list[_Segment]:
        """The segments that branches stand on, each after its base."""
        found = (self._segments[uid] for uid in self._visible())
        return sorted(found, key=lambda segment: segment.depth)

    def size(self) -> int:
        """Count the bytes of its key, names, metadata, messages, runs and events."""
        events = (event for told in self.log.events.values() for event in told)
        runs = (run for held in self.log.runs.values() for run in held.values())
        bodies = sum(len(one.body) for one in (*self.messages.values(), *runs, *events))
        names = [self.session.key or "", *(one.name for one in self._branches.values())]
        names += (one.judge for one in self._labels.values())
        return len(dumps(self.session.metadata)) + len("".join(names).encode()) + bodies

    def judged(self) -> list[LabelRecord]:
        """The labels, the oldest first."""
        return sorted(self._labels.values(), key=lambda label: label.created)

    def messages_of(
        self, segments: list[SegmentRecord], branches: list[BranchRecord]
    ) -> list[MessageRecord]:
        """The messages of these entries and the system messages, each once."""
        systems = [branch.system for branch in branches if branch.system is not None]
        entries = [entry for segment in segments for entry in segment.entries]
        return [self.messages[uid] for uid in dict.fromkeys([*systems, *entries])]

    def make(self, changes: Sequence[Change]) -> list[BranchHead]:
        """Make all changes, or take back those already made."""
        try:
            heads: list[BranchHead] = []
            for change in changes:
                head = self._make(change)
                if head is not None:
                    heads.append(head)
            if any(isinstance(change, (ChangeBranch, RemoveBranch)) for change in changes):
                self._forget_segments()
            self._detach(self._loose, None)
        except BaseException:
            for take_back in reversed(self._undo):
                take_back()
            raise
        finally:
            self._undo.clear()
            self._saved.clear()
            self._loose.clear()
        updated = max(self.session.updated + 1, clock.now_us())
        self.session = replace(self.session, updated=updated)
        return heads

    def _make(self, change: Change) -> BranchHead | None:
        match change:
            case AddMessages():
                self._add_messages(change.messages)
            case Append():
                return self._append(change)
            case AddBranch() if self._is_shown_by_source(change):
                self._add_branch(change)
                self._attach(change.named)
            case AddBranch():
                with self._attaching(change.branch.id):
                    self._add_branch(change)
            case ChangeBranch():
                with self._attaching(change.branch.id):
                    self._change_branch(change.branch, change.segments)
            case RenameBranch():
                self._rename_branch(change.branch, change.name)
            case RemoveBranch():
                with self._attaching(change.branch):
                    self._remove_branch(change.branch)
            case RemoveMessages():
                self._remove_messages(change.messages)
            case PutRun():
                self._put_run(change)
            case AddEvents():
                self._add_events(change)
            case AddCommit() | PutCommit() | AddUses():
                self._commit(change)
            case PutLabels():
                self._put_labels(change)
            case PutStarts():
                self._put_starts(change)
            case DescribeSession():
                self._describe(change.metadata)
            case TakeLease():
                return self._take(change)
        return None

    def _describe(self, metadata: dict[str, Any]) -> None:
        had = self.session
        self._undo.append(lambda: setattr(self, "session", had))
        self.session = replace(had, metadata=_through_codec(metadata))

    def _put_labels(self, change: PutLabels) -> None:
        self._check_known(one.message for one in change.labels)
        for one in change.labels:
            key = (one.message, one.judge)
            self._drop(self._labels, [key])
            if one.score is not None:
                self._put(self._labels, key, one)

    def _put_starts(self, change: PutStarts) -> None:
        self._check_known(message for message, _ in change.starts)
        starts = self.log.starts
        for message, times in change.starts:
            self._put(starts, message, max(times, starts.get(message, 0)))

    def _commit(self, change: CommitChange) -> None:
        if isinstance(change, AddCommit):
            self._check_known(change.commit.entries)
            self._attach(change.commit.entries)
        self._have(self.commits.after(change))

    def _have(self, commits: CommitLog) -> None:
        had = self.commits
        self._undo.append(lambda: setattr(self, "commits", had))
        self.commits = commits

    def _add_messages(self, messages: Iterable[MessageRecord]) -> None:
        for message in messages:
            there = self.messages.get(message.id)
            if there is None:
                self._put(self.messages, message.id, message)
                self._loose[message.id] = None
            elif there != message:
                raise other_content(message.id)

    def _append(self, change: Append) -> BranchHead:
        self._check_known(change.entries)
        branch = self._branch(change.branch)
        segment = self._segments[branch.segment]
        head = BranchHead(branch.id, segment.id, len(segment.entries), branch.version)
        standing = self._standing(segment, change.entries)
        if len(standing) == len(change.entries):
            # One that stands below the own segment begins before it, at no place of its own.
            first = [segment.where.get(entry, -1) for entry in change.entries[:1]]
            return msgspec.structs.replace(head, length=first[0]) if first else head
        if standing or len(set(change.entries)) < len(change.entries):
            raise ExistsError(f"Branch {branch.name!r} would contain a message twice.")
        self._undo.append(lambda: segment.cut(head.length))
        segment.extend(change.entries)
        self._attach(change.entries)
        grown = replace(branch, length=len(segment.entries))
        self._put(self._branches, branch.id, grown)
        return head

    def _take(self, change: TakeLease) -> BranchHead:
        branch = self._branch(change.branch)
        last = self.log.leases.get(branch.id)
        seq, commits = self.log.last_seq(branch.id), len(self.commits.commits)
        head = BranchHead(branch.id, branch.segment, branch.length, branch.version)
        lease = leases.taken(last, branch.id, change.holder, change.ttl, leases.ticks())
        self._put(self.log.leases, branch.id, lease)
        return head.with_taken(LeaseGrant(lease, seq, self.log.last_of(branch.id), commits))

    def _add_branch(self, change: AddBranch) -> None:
        branch, segment = change.branch, change.segment
        check_fit(branch, segment)
        there = self._branches.get(branch.id)
        if there is not None and (there.name, there.segment) == (branch.name, segment.id):
            return
        if there is not None or branch.name in self._names:
            raise branch_taken(branch)
        source = source_of(branch)
        if change.source_version is not None and source is not None:
            check_source(branch, change.source_version, self._branch(source).version)
        self._check_system(branch)
        self._add_segment(segment)
        self._put(self._names, branch.name, branch.id)
        kept = replace(branch, metadata=_through_codec(branch.metadata), version=0)
        self._put(self._branches, branch.id, kept)

    def _is_shown_by_source(self, change: AddBranch) -> bool:
        """Tell whether the branch it was forked from shows all that a new one stands on."""
        segment = change.segment
        if segment.base is None:
            return True
        source = self._branches.get(source_of(change.branch) or segment.id)
        at, upto = None if source is None else source.segment, segment.offset
        while at is not None and at != segment.base:
            upto = min(upto, self._segments[at].offset)
            at = self._segments[at].base
        return at is not None and upto >= segment.offset

    def _change_branch(self, branch: BranchRecord, segments: Sequence[SegmentRecord]) -> None:
        there = self._branch(branch.id)
        if segments and segments[-1].id == there.segment and _is_like(there, branch):
            return
        moved = bool(segments) and branch.length != there.length
        if branch.version != there.version or moved:
            raise changed_meanwhile(branch)
        changed = replace(
            there,
            system=branch.system,
            resources=branch.resources,
            capabilities=branch.capabilities,
            version=there.version + 1,
        )
        for segment in segments:
            length = len(self._add_segment(segment).entries)
            changed = replace(changed, segment=segment.id, length=length)
        self._check_system(branch)
        self._put(self._branches, there.id, changed)

    def _rename_branch(self, uid: UUID, name: str) -> None:
        branch = self._branch(uid)
        if self._names.get(name, uid) != uid:
            raise name_taken(name)
        self._drop(self._names, [branch.name])
        self._put(self._names, name, uid)
        self._put(self._branches, uid, replace(branch, name=name))

    def _remove_branch(self, uid: UUID) -> None:
        branch = self._branch(uid)
        self._drop(self._branches, [uid])
        self._drop(self._names, [branch.name])
        self._drop(self.log.leases, [uid])
        self._drop(self.log.runs, [uid])
        self._drop(self.log.events, [uid])

    def _remove_messages(self, uids: Sequence[UUID]) -> None:
        self._forget_events(set(uids))
        gone = {uid for uid in uids if uid in self.messages}
        places = self._take_out(gone)
        for branch in list(self._branches.values()):
            if places[branch.segment] or branch.system in gone:
                length = len(self._segments[branch.segment].entries)
                system = None if branch.system in gone else branch.system
                changed = replace(branch, length=length, system=system, version=branch.version + 1)
                self._put(self._branches, branch.id, changed)
        self._have(self.commits.without(gone))
        self._drop(self._labels, [key for key in self._labels if key[0] in gone])
        self._drop(self.log.starts, gone)
        self._drop(self.messages, gone)
        self._attach(gone)

    def _layout(self) -> SegmentGraph:
        """Return the segment graph of the branches."""
        rows = {uid: (one.base, one.offset) for uid, one in self._segments.items()}
        branches = {uid: (one.segment, one.system) for uid, one in self._branches.items()}
        return SegmentGraph(rows, branches)

    @contextmanager
    def _attaching(self, branch: UUID) -> Generator[None]:
        """Change one branch; what that takes off it is detached, what it puts on it attached."""
        before = self._layout()
        yield
        after = self._layout()
        gone = self._in(before.more_than(after)) | (before.systems - after.systems)
        if gone:
            anew = before.systems - after.systems
            ranges = after.everything if anew else after.beside(branch, before)
            self._detach(gone - after.systems - self._among(ranges, gone), clock.now_us())
        self._attach(self._in(after.more_than(before)) | (after.systems - before.systems))

    def _in(self, ranges: Iterable[Range]) -> set[UUID]:
        return {uid for no, first, end in ranges for uid in self._segments[no].entries[first:end]}

    def _among(self, ranges: Iterable[Range], messages: set[UUID]) -> set[UUID]:
        return {
            uid
            for one in ranges
            for uid in messages & self._segments[one[0]].where.keys()
            if self._segments[one[0]].shows(uid, *one[1:])
        }

    def _detach(self, messages: Iterable[UUID], since: int | None) -> None:
        """Keep messages without finding them, unless they are in an archive."""
        for uid in set(messages) - self.archives().keys() if messages else ():
            if uid not in self.detached:
                self._put(self.detached, uid, since)

    def _attach(self, messages: Iterable[UUID]) -> None:
        """Have messages found again."""
        for uid in messages:
            self._loose.pop(uid, None)
            if self.detached:
                self._drop(self.detached, [uid])

    def removed(self, before: int) -> dict[UUID, int]:
        """The messages that were removed from their last branch before a time, and when."""
        found = self.detached.items()
        return {uid: since for uid, since in found if since is not None and since < before}

    def erase_removed(self, before: int) -> list[UUID]:
        """Erase those."""
        gone, had = sorted(self.removed(before)), self.session
        self.make([RemoveMessages(tuple(gone))])
        self.session = had
        return gone

    def branches_holding(self, messages: Sequence[UUID]) -> dict[UUID, str]:
        """The branch on which each message stands."""
        ordered = sorted(self._branches.values(), key=lambda one: (one.name != MAIN, one.created))
        found: dict[UUID, str] = {}
        for branch in ordered:
            chain = list(self._chain(self._segments[branch.segment]))
            for uid in messages:
                if uid == branch.system or any(one.shows(uid, 0, own) for one, own in chain):
                    found.setdefault(uid, branch.name)
        return found

    def _forget_events(self, gone: set[UUID]) -> None:
        for uid, events in list(self.log.events.items()):
            if any(event.message in gone for event in events):
                left = [event for event in events if event.message not in gone]
                self._put(self.log.events, uid, left)

    def _put_run(self, change: PutRun) -> None:
        self.log.check([change])
        run = change.run
        self._put(self.log.runs.setdefault(run.branch, {}), run.id, run)
        if change.release:
            self._put(self.log.leases, run.branch, leases.ended(self.log.leases[run.branch]))

    def _add_events(self, change: AddEvents) -> None:
        starts = tuple(one for one in change.starts if one.message in self.messages)
        change = msgspec.structs.replace(change, starts=starts)
        self.log.check([change])
        events = self.log.events.setdefault(change.branch, [])
        length = len(events)
        self._undo.append(lambda: events.__delitem__(slice(length, None)))
        had = {one.message: self.log.starts.get(one.message) for one in starts}
        self._undo.append(lambda: self._have_starts(had))
        self.log.apply(change)

    def _have_starts(self, starts: Mapping[UUID, int | None]) -> None:
        for message, times in starts.items():
            if times is None:
                self.log.starts.pop(message, None)
            else:
                self.log.starts[message] = times

    def _take_out(self, gone: set[UUID]) -> dict[UUID, list[int]]:
        """Take messages out of all segments; gives where they stood in the history of each."""
        places: dict[UUID, list[int]] = {}
        for segment in sorted(self._segments.values(), key=lambda one: one.depth):
            below = [] if segment.base is None else places[segment.base]
            below = below[: bisect_left(below, segment.offset)]
            own = [] if gone.isdisjoint(segment.where) else segment.places(gone)
            places[segment.id] = [*below, *own]
            if below or own:
                self._put(self._segments, segment.id, segment.without(gone, len(below)))
        return places

    def _add_segment(self, segment: SegmentRecord) -> _Segment:
        if segment.id in self._segments:
            raise ExistsError(f"Segment {segment.id} already exists.")
        entries: Sequence[UUID] = segment.entries
        if segment.taken is not None:
            if segment.taken not in self._segments:
                raise no_segment(segment.taken)
            entries = self._segments[segment.taken].entries
        self._check_known(entries)
        base = None
        if segment.base is not None:
            base = self._segments.get(segment.base)
            if base is None:
                raise no_segment(segment.base)
        start, below = (0, 0) if base is None else (base.offset, base.total)
        if not start <= segment.offset <= below:
            raise misplaced(segment, start, below)
        added = _Segment(
            segment.id, segment.base, segment.offset, 0 if base is None else base.depth + 1
        )
        added.extend(entries)
        self._put(self._segments, added.id, added)
        return added

    def _forget_segments(self) -> None:
        needed = self._visible()
        self._drop(self._segments, [uid for uid in self._segments if uid not in needed])

    def _visible(self) -> dict[UUID, int]:
        """Return the number of own entries that each needed segment shows."""
        limits = {
            branch.segment: self._segments[branch.segment].total
            for branch in self._branches.values()
        }
        downwards = sorted(self._segments.values(), key=lambda one: one.depth, reverse=True)
        for segment in downwards:
            if segment.id in limits and segment.base is not None:
                limit = min(limits[segment.id], segment.offset)
                limits[segment.base] = max(limits.get(segment.base, 0), limit)
        return {uid: max(0, limit - self._segments[uid].offset) for uid, limit in limits.items()}

    def _standing(self, tail: _Segment, entries: tuple[UUID, ...]) -> list[UUID]:
        """Those of the entries that stand in the history that ends with `tail`."""
        chain = list(self._chain(tail))
        return [
            entry
            for entry in entries
            if any(segment.where.get(entry, own) < own for segment, own in chain)
        ]

    def _chain(self, tail: _Segment) -> Iterator[tuple[_Segment, int]]:
        """The segments from `tail` down, each with how many of its own entries count."""
        segment, limit = tail, tail.total
        while True:
            yield segment, max(0, limit - segment.offset)
            if segment.base is None:
                return
            limit = min(limit, segment.offset)
            segment = self._segments[segment.base]

    def _branch(self, uid: UUID) -> BranchRecord:
        branch = self._branches.get(uid)
        if branch is None:
            raise no_branch(uid)
        return branch

    def _check_known(self, entries: Iterable[UUID]) -> None:
        for uid in entries:
            if uid not in self.messages:
                raise no_message(uid)

    def _check_system(self, branch: BranchRecord) -> None:
        if branch.system is not None:
            self._check_known([branch.system])

    def _put(self, table: dict[_K, _V], key: _K, value: _V) -> None:
        if key in table:
            had = table[key]
            self._undo.append(lambda: table.update({key: had}))
        else:
            self._undo.append(lambda: table.pop(key, None))
        table[key] = value

    def _drop(self, table: dict[_K, _V], keys: Iterable[_K]) -> None:
        gone = [key for key in keys if key in table]
        if gone and id(table) not in self._saved:
            # Put back one by one they would stand at the end; their order is the order of adding.
            had = table.copy()
            self._saved.add(id(table))
            self._undo.append(lambda: (table.clear(), table.update(had)))
        for key in gone:
            table.pop(key, None)


def copied(record: SessionRecord) -> SessionRecord:
    """The same record, with metadata of its own."""
    return replace(record, metadata=_through_codec(record.metadata))


def _through_codec(metadata: dict[str, Any]) -> dict[str, Any]:
    return loads(dumps(metadata)) if metadata else {}


def _is_like(there: BranchRecord, wanted: BranchRecord) -> bool:
    return (there.system, there.resources, there.capabilities) == (
        wanted.system,
        wanted.resources,
        wanted.capabilities,
    )
