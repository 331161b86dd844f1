"""A session of the in-memory store.

A write changes the data in place and keeps an undo log, so that a failed write is rolled back and a
successful one copies nothing. Metadata is copied through the codec, as on disk, so that changing a
record outside changes nothing here.
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
    branch_conflict,
    branch_taken,
    check_append,
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
    RequireBlobs,
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
    """A segment; `where` is the first position of each of its own entries."""

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

    def places(self, removed: set[UUID]) -> list[int]:
        """Return the positions of these ids from the root."""
        return [self.offset + index for index, entry in enumerate(self.entries) if entry in removed]

    def without(self, removed: set[UUID], below: int) -> _Segment:
        """Return a copy without these ids, `below` of which were below the segment."""
        segment = replace(self, offset=self.offset - below, entries=[], where={})
        segment.extend(entry for entry in self.entries if entry not in removed)
        return segment

    def shows(self, uid: UUID, first: int, end: int) -> bool:
        """Return whether an entry stands at one of these positions."""
        position = self.where.get(uid, end)
        return position < end and (position >= first or uid in self.entries[first:end])

    def record(self, start: int = 0) -> SegmentRecord:
        return SegmentRecord(self.id, self.base, self.offset, tuple(self.entries[start:]))


class InMemorySession:
    """The data of one session, and the changes to it."""

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
        self._unplaced: dict[UUID, None] = {}  # messages that a write added to no branch yet
        self._undo: list[Callable[[], object]] = []
        self._saved: set[int] = set()  # ids of tables that the undo log has a copy of

    def all(self) -> Snapshot:
        """Return the whole session."""
        segments = [segment.record() for segment in self.needed()]
        messages = list(self.messages.values())
        return Snapshot(copied(self.session), messages, segments, self.listed())

    def place(self, message: UUID) -> int:
        """Return the place of a message, unique across sessions."""
        return self.session.id.int << 128 | message.int

    def archives(self) -> dict[UUID, int]:
        """Return the number of the commit that archived each message."""
        commits = self.commits.commits.values()
        return {entry: commit.number for commit in commits for entry in commit.entries}

    def hits(self, scores: Mapping[int, float]) -> Iterator[Hit]:
        """Return search hits of messages, by the order in which they were added."""
        messages, archives = list(self.messages.values()), self.archives()
        places = [self.place(message.id) for message in messages]
        for index, score in scores.items():
            message = messages[index]
            group = (self.session.id.int, part_of(archives.get(message.id), message.created))
            yield Hit(places[index], group, message.created, score, *near(places, index))

    def placed(self, places: Container[int]) -> Iterator[StoredMessage]:
        """Yield the attached messages at these places."""
        uid, key, archives = self.session.id, self.session.key, self.archives()
        for message in self.messages.values():
            if (place := self.place(message.id)) in places and message.id not in self.detached:
                yield StoredMessage(
                    place, uid, key, archives.get(message.id), message, len(self._branches) > 1
                )

    def listed(self) -> list[BranchRecord]:
        """Return the branches, oldest first."""
        ordered = sorted(self._branches.values(), key=lambda branch: (branch.created, branch.id))
        return [replace(branch, metadata=_json_copy(branch.metadata)) for branch in ordered]

    def needed(self) -> list[_Segment]:
        """Return the segments that branches use, each after its base."""
        segments = (self._segments[uid] for uid in self._visible())
        return sorted(segments, key=lambda segment: segment.depth)

    def beyond(self, known: Mapping[UUID, int]) -> list[SegmentRecord]:
        """Return what segments of branches have beyond the known lengths.

        Bases are followed down to a known one: what others hold of it cannot have changed, though
        it may have entries that no branch shows any more.
        """
        reached: set[UUID] = set()
        pending = [branch.segment for branch in self._branches.values()]
        while pending:
            segment = self._segments[pending.pop()]
            if segment.id not in reached:
                reached.add(segment.id)
                if segment.base is not None and not known.keys() >= {segment.id, segment.base}:
                    pending.append(segment.base)
        return [
            segment.record(known.get(segment.id, 0))
            for segment in self.needed()
            if segment.id in reached
            and (segment.id not in known or len(segment.entries) > known[segment.id])
        ]

    def size(self) -> int:
        """Count the bytes of its key, names, metadata, messages, runs and events."""
        events = (event for branch_events in self.log.events.values() for event in branch_events)
        runs = (run for branch_runs in self.log.runs.values() for run in branch_runs.values())
        bodies = sum(len(record.body) for record in (*self.messages.values(), *runs, *events))
        names = [self.session.key or "", *(record.name for record in self._branches.values())]
        names += (record.judge for record in self._labels.values())
        return len(dumps(self.session.metadata)) + len("".join(names).encode()) + bodies

    def judged(self) -> list[LabelRecord]:
        """Return the labels, oldest first."""
        return sorted(self._labels.values(), key=lambda label: label.created)

    def messages_of(
        self, segments: list[SegmentRecord], branches: list[BranchRecord]
    ) -> list[MessageRecord]:
        """Return the messages of these entries and the system messages, without duplicates."""
        systems = [branch.system for branch in branches if branch.system is not None]
        entries = [entry for segment in segments for entry in segment.entries]
        return [self.messages[uid] for uid in dict.fromkeys([*systems, *entries])]

    def make(self, changes: Sequence[Change]) -> list[BranchHead]:
        """Apply all changes, or roll back those already applied."""
        try:
            heads: list[BranchHead] = []
            for change in changes:
                head = self._apply(change)
                if head is not None:
                    heads.append(head)
            if any(isinstance(change, (ChangeBranch, RemoveBranch)) for change in changes):
                self._forget_segments()
            self._detach(self._unplaced, None)
        except BaseException:
            for take_back in reversed(self._undo):
                take_back()
            raise
        finally:
            self._undo.clear()
            self._saved.clear()
            self._unplaced.clear()
        updated = max(self.session.updated + 1, clock.now_us())
        self.session = replace(self.session, updated=updated)
        return heads

    def _apply(self, change: Change) -> BranchHead | None:
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
                return self._take_lease(change)
            case RequireBlobs():
                pass  # the store has them
        return None

    def _describe(self, metadata: dict[str, Any]) -> None:
        previous = self.session
        self._undo.append(lambda: setattr(self, "session", previous))
        self.session = replace(previous, metadata=_json_copy(metadata))

    def _put_labels(self, change: PutLabels) -> None:
        self._check_messages_exist(label.message for label in change.labels)
        for label in change.labels:
            key = (label.message, label.judge)
            self._drop(self._labels, [key])
            if label.score is not None:
                self._put(self._labels, key, label)

    def _put_starts(self, change: PutStarts) -> None:
        self._check_messages_exist(message for message, _ in change.starts)
        starts = self.log.starts
        for message, times in change.starts:
            self._put(starts, message, max(times, starts.get(message, 0)))

    def _commit(self, change: CommitChange) -> None:
        if isinstance(change, AddCommit):
            self._check_messages_exist(change.commit.entries)
            self._attach(change.commit.entries)
        self._set_commits(self.commits.after(change))

    def _set_commits(self, commits: CommitLog) -> None:
        previous = self.commits
        self._undo.append(lambda: setattr(self, "commits", previous))
        self.commits = commits

    def _add_messages(self, messages: Iterable[MessageRecord]) -> None:
        for message in messages:
            stored = self.messages.get(message.id)
            if stored is None:
                self._put(self.messages, message.id, message)
                self._unplaced[message.id] = None
            elif stored != message:
                raise other_content(message.id)

    def _append(self, change: Append) -> BranchHead:
        self._check_messages_exist(change.entries)
        branch = self._branch(change.branch)
        segment = self._segments[branch.segment]
        head = BranchHead(branch.id, segment.id, len(segment.entries), branch.version)
        present = self._entries_in_history(segment, change.entries)
        if len(present) == len(change.entries):
            # An entry below the own segment has no position in it.
            positions = [segment.where.get(entry, -1) for entry in change.entries[:1]]
            return msgspec.structs.replace(head, length=positions[0]) if positions else head
        check_append(branch.name, change, segment.id, head.length)
        if present or len(set(change.entries)) < len(change.entries):
            raise ExistsError(f"Branch {branch.name!r} would contain a message twice.")
        self._undo.append(lambda: segment.cut(head.length))
        segment.extend(change.entries)
        self._attach(change.entries)
        grown = replace(branch, length=len(segment.entries))
        self._put(self._branches, branch.id, grown)
        return head

    def _take_lease(self, change: TakeLease) -> BranchHead:
        branch = self._branch(change.branch)
        last = self.log.leases.get(branch.id)
        seq, commits = self.log.last_seq(branch.id), len(self.commits.commits)
        head = BranchHead(branch.id, branch.segment, branch.length, branch.version)
        lease = leases.next_lease(last, branch.id, change.holder, change.ttl, leases.monotonic_us())
        self._put(self.log.leases, branch.id, lease)
        return head.with_grant(LeaseGrant(lease, seq, self.log.last_of(branch.id), commits))

    def _add_branch(self, change: AddBranch) -> None:
        branch, segment = change.branch, change.segment
        check_fit(branch, segment)
        stored = self._branches.get(branch.id)
        if stored is not None and (stored.name, stored.segment) == (branch.name, segment.id):
            return
        if stored is not None or branch.name in self._names:
            raise branch_taken(branch)
        source = source_of(branch)
        if change.source_version is not None and source is not None:
            check_source(branch, change.source_version, self._branch(source).version)
        self._check_system(branch)
        self._add_segment(segment)
        self._put(self._names, branch.name, branch.id)
        new = replace(branch, metadata=_json_copy(branch.metadata), version=0)
        self._put(self._branches, branch.id, new)

    def _is_shown_by_source(self, change: AddBranch) -> bool:
        """Return whether the source branch shows all entries that the new branch inherits."""
        segment = change.segment
        if segment.base is None:
            return True
        source = self._branches.get(source_of(change.branch) or segment.id)
        current, limit = None if source is None else source.segment, segment.offset
        while current is not None and current != segment.base:
            limit = min(limit, self._segments[current].offset)
            current = self._segments[current].base
        return current is not None and limit >= segment.offset

    def _change_branch(self, branch: BranchRecord, segments: Sequence[SegmentRecord]) -> None:
        stored = self._branch(branch.id)
        if segments and segments[-1].id == stored.segment and _has_same_settings(stored, branch):
            return
        has_grown = bool(segments) and branch.length != stored.length
        if branch.version != stored.version or has_grown:
            raise branch_conflict(branch)
        changed = replace(
            stored,
            system=branch.system,
            resources=branch.resources,
            capabilities=branch.capabilities,
            version=stored.version + 1,
        )
        for segment in segments:
            length = len(self._add_segment(segment).entries)
            changed = replace(changed, segment=segment.id, length=length)
        self._check_system(branch)
        self._put(self._branches, stored.id, changed)

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
        removed = {uid for uid in uids if uid in self.messages}
        removed_positions = self._remove_entries(removed)
        for branch in list(self._branches.values()):
            if removed_positions[branch.segment] or branch.system in removed:
                length = len(self._segments[branch.segment].entries)
                system = None if branch.system in removed else branch.system
                changed = replace(branch, length=length, system=system, version=branch.version + 1)
                self._put(self._branches, branch.id, changed)
        self._set_commits(self.commits.without(removed))
        self._drop(self._labels, [key for key in self._labels if key[0] in removed])
        self._drop(self.log.starts, removed)
        self._drop(self.messages, removed)
        self._attach(removed)

    def _graph(self) -> SegmentGraph:
        """Return the segment graph of the branches."""
        rows = {uid: (item.base, item.offset) for uid, item in self._segments.items()}
        branches = {uid: (item.segment, item.system) for uid, item in self._branches.items()}
        return SegmentGraph(rows, branches)

    @contextmanager
    def _attaching(self, branch: UUID) -> Generator[None]:
        """Detach the messages that a change hides, and attach those that it reveals."""
        before = self._graph()
        yield
        after = self._graph()
        hidden = self._messages_in(before.more_than(after)) | (before.systems - after.systems)
        if hidden:
            has_lost_system = before.systems - after.systems
            ranges = after.everything if has_lost_system else after.beside(branch, before)
            self._detach(hidden - after.systems - self._among(ranges, hidden), clock.now_us())
        self._attach(self._messages_in(after.more_than(before)) | (after.systems - before.systems))

    def _messages_in(self, ranges: Iterable[Range]) -> set[UUID]:
        return {uid for key, first, end in ranges for uid in self._segments[key].entries[first:end]}

    def _among(self, ranges: Iterable[Range], messages: set[UUID]) -> set[UUID]:
        return {
            uid
            for shown_range in ranges
            for uid in messages & self._segments[shown_range[0]].where.keys()
            if self._segments[shown_range[0]].shows(uid, *shown_range[1:])
        }

    def _detach(self, messages: Iterable[UUID], since: int | None) -> None:
        """Exclude messages from search, unless they are in an archive."""
        for uid in set(messages) - self.archives().keys() if messages else ():
            if uid not in self.detached:
                self._put(self.detached, uid, since)

    def _attach(self, messages: Iterable[UUID]) -> None:
        """Include messages in search again."""
        for uid in messages:
            self._unplaced.pop(uid, None)
            if self.detached:
                self._drop(self.detached, [uid])

    def removed(self, before: int) -> dict[UUID, int]:
        """Return the messages removed from their last branch before a time, and when."""
        detached = self.detached.items()
        return {uid: since for uid, since in detached if since is not None and since < before}

    def erase_removed(self, before: int) -> list[UUID]:
        """Erase them; return their ids."""
        removed, session = sorted(self.removed(before)), self.session
        self.make([RemoveMessages(tuple(removed))])
        self.session = session
        return removed

    def branches_holding(self, messages: Sequence[UUID]) -> dict[UUID, str]:
        """Return the branch name of each message."""
        ordered = sorted(
            self._branches.values(), key=lambda item: (item.name != MAIN, item.created)
        )
        names: dict[UUID, str] = {}
        for branch in ordered:
            chain = list(self._chain(self._segments[branch.segment]))
            for uid in messages:
                if uid == branch.system or any(item.shows(uid, 0, count) for item, count in chain):
                    names.setdefault(uid, branch.name)
        return names

    def _forget_events(self, removed: set[UUID]) -> None:
        for uid, events in list(self.log.events.items()):
            if any(event.message in removed for event in events):
                remaining = [event for event in events if event.message not in removed]
                self._put(self.log.events, uid, remaining)

    def _put_run(self, change: PutRun) -> None:
        self.log.check([change])
        run = change.run
        self._put(self.log.runs.setdefault(run.branch, {}), run.id, run)
        if change.release:
            self._put(self.log.leases, run.branch, leases.released(self.log.leases[run.branch]))

    def _add_events(self, change: AddEvents) -> None:
        starts = tuple(start for start in change.starts if start.message in self.messages)
        change = msgspec.structs.replace(change, starts=starts)
        events = self.log.events.setdefault(change.branch, [])
        length = len(events)
        self._undo.append(lambda: events.__delitem__(slice(length, None)))
        previous = {start.message: self.log.starts.get(start.message) for start in starts}
        self._undo.append(lambda: self._restore_starts(previous))
        self.log.apply(change)

    def _restore_starts(self, starts: Mapping[UUID, int | None]) -> None:
        for message, times in starts.items():
            if times is None:
                self.log.starts.pop(message, None)
            else:
                self.log.starts[message] = times

    def _remove_entries(self, removed: set[UUID]) -> dict[UUID, list[int]]:
        """Remove messages from all segments; return their positions in the history of each."""
        positions: dict[UUID, list[int]] = {}
        for segment in sorted(self._segments.values(), key=lambda item: item.depth):
            below = [] if segment.base is None else positions[segment.base]
            below = below[: bisect_left(below, segment.offset)]
            own = [] if removed.isdisjoint(segment.where) else segment.places(removed)
            positions[segment.id] = [*below, *own]
            if below or own:
                self._put(self._segments, segment.id, segment.without(removed, len(below)))
        return positions

    def _add_segment(self, segment: SegmentRecord) -> _Segment:
        if segment.id in self._segments:
            raise ExistsError(f"Segment {segment.id} already exists.")
        entries: Sequence[UUID] = segment.entries
        if segment.taken is not None:
            if segment.taken not in self._segments:
                raise no_segment(segment.taken)
            entries = self._segments[segment.taken].entries
        self._check_messages_exist(entries)
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
        """Return the number of visible entries of each used segment."""
        limits = {
            branch.segment: self._segments[branch.segment].total
            for branch in self._branches.values()
        }
        downwards = sorted(self._segments.values(), key=lambda item: item.depth, reverse=True)
        for segment in downwards:
            if segment.id in limits and segment.base is not None:
                limit = min(limits[segment.id], segment.offset)
                limits[segment.base] = max(limits.get(segment.base, 0), limit)
        return {uid: max(0, limit - self._segments[uid].offset) for uid, limit in limits.items()}

    def _entries_in_history(self, tail: _Segment, entries: tuple[UUID, ...]) -> list[UUID]:
        """Return those entries that are already in the history ending with `tail`."""
        chain = list(self._chain(tail))
        return [
            entry
            for entry in entries
            if any(segment.where.get(entry, count) < count for segment, count in chain)
        ]

    def _chain(self, tail: _Segment) -> Iterator[tuple[_Segment, int]]:
        """Yield the segments from `tail` down, each with the number of its visible entries."""
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

    def _check_messages_exist(self, entries: Iterable[UUID]) -> None:
        for uid in entries:
            if uid not in self.messages:
                raise no_message(uid)

    def _check_system(self, branch: BranchRecord) -> None:
        if branch.system is not None:
            self._check_messages_exist([branch.system])

    def _put(self, table: dict[_K, _V], key: _K, value: _V) -> None:
        if key in table:
            previous = table[key]
            self._undo.append(lambda: table.update({key: previous}))
        else:
            self._undo.append(lambda: table.pop(key, None))
        table[key] = value

    def _drop(self, table: dict[_K, _V], keys: Iterable[_K]) -> None:
        present = [key for key in keys if key in table]
        if present and id(table) not in self._saved:
            # Restored one by one they would come last, but dicts keep the order of insertion.
            previous = table.copy()
            self._saved.add(id(table))
            self._undo.append(lambda: (table.clear(), table.update(previous)))
        for key in present:
            table.pop(key, None)


def copied(record: SessionRecord) -> SessionRecord:
    """Return a record with a deep copy of its metadata."""
    return replace(record, metadata=_json_copy(record.metadata))


def _json_copy(metadata: dict[str, Any]) -> dict[str, Any]:
    return loads(dumps(metadata)) if metadata else {}


def _has_same_settings(stored: BranchRecord, other: BranchRecord) -> bool:
    return (stored.system, stored.resources, stored.capabilities) == (
        other.system,
        other.resources,
        other.capabilities,
    )
