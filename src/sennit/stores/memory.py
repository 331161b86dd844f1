"""The store in memory: the twin of the real ones, for tests and for what need not last.

It keeps every promise of a Store except that of surviving the process. One lock makes each call one
step. A write changes the data in place and notes down how to take each change back, so that one
that fails half-way leaves nothing behind and one that succeeds copies nothing.

What goes in and out is copied: metadata passes through the codec, as on a disk, so that changing a
record in hand changes nothing in the store.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from sennit import clock
from sennit.errors import (
    ConflictError,
    ExistsError,
    NotFoundError,
    SennitError,
    StoreError,
    ValidationError,
)
from sennit.messages.codec import dumps, loads
from sennit.stores import words
from sennit.stores.base import no_branch, no_message, no_session
from sennit.stores.commits import (
    AddCommit,
    AddUses,
    CommitChange,
    CommitLog,
    CommitRecord,
    CommitsRecord,
    PutCommit,
)
from sennit.stores.files import (
    Derived,
    EndCommit,
    Evidence,
    FileChange,
    FileRecord,
    KeptFile,
    VersionRecord,
)
from sennit.stores.memory_files import FileLog
from sennit.stores.records import (
    AddBranch,
    AddEvents,
    AddMessages,
    Append,
    BranchRecord,
    Change,
    ChangeBranch,
    EventRecord,
    Found,
    Head,
    LabelRecord,
    Lease,
    MessageRecord,
    Owner,
    PutLabels,
    PutRun,
    RemoveBranch,
    RemoveMessages,
    RunRecord,
    SegmentRecord,
    SessionRecord,
    Snapshot,
    Whole,
    Write,
)
from sennit.stores.runs import RunLog

_K = TypeVar("_K")
_T = TypeVar("_T")
_V = TypeVar("_V")

_WORD = re.compile(r"\w+")
_STEM = 4


class MemoryStore:
    """A Store that keeps everything in this process and forgets it with the process."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._owners: dict[Owner, dict[UUID, _Kept]] = {}
        self._files = FileLog()
        self._closed = False

    def create_session(self, owner: Owner, session: SessionRecord) -> SessionRecord:
        with self._step():
            sessions = self._owners.setdefault(owner, {})
            if session.id not in sessions:
                sessions[session.id] = _Kept(_session(session))
            return _session(sessions[session.id].session)

    def find_session(self, owner: Owner, session: UUID) -> SessionRecord | None:
        with self._step():
            kept = self._of(owner).get(session)
            return None if kept is None else _session(kept.session)

    def list_sessions(
        self, owner: Owner, *, contains: str | None, before: tuple[int, UUID] | None, limit: int
    ) -> list[SessionRecord]:
        with self._step():
            found = [
                kept.session
                for kept in self._of(owner).values()
                if _contains(kept.session.key, contains)
                and (before is None or _when(kept.session) < before)
            ]
            found.sort(key=_when, reverse=True)
            return [_session(record) for record in found[: max(0, limit)]]

    def delete_session(self, owner: Owner, session: UUID) -> bool:
        with self._step():
            return self._of(owner).pop(session, None) is not None

    def load(self, owner: Owner, session: UUID) -> Snapshot:
        with self._step():
            return self._kept(owner, session).all()

    def with_everything(self, work: Callable[[Iterable[Whole], Iterable[KeptFile]], _T]) -> _T:
        """Hand `work` all sessions and all files of all owners, as they are at this moment."""
        with self._step():
            found = [
                Whole(owner, kept.all(), kept.log.journals(), kept.commits.all(), kept.judged())
                for owner, sessions in self._owners.items()
                for kept in sessions.values()
            ]
            files = [kept for owner in self._files.owners() for kept in self._files.of(owner)]
        return work(found, files)

    def changes(self, owner: Owner, session: UUID, known: Mapping[UUID, int]) -> Snapshot:
        with self._step():
            kept = self._kept(owner, session)
            segments = [
                segment.record(known.get(segment.id, 0))
                for segment in kept.needed()
                if segment.id not in known or len(segment.entries) > known[segment.id]
            ]
            branches = kept.listed()
            return Snapshot(
                _session(kept.session), kept.messages_of(segments, branches), segments, branches
            )

    def write(self, owner: Owner, session: UUID, changes: Sequence[Change]) -> list[Head]:
        with self._step():
            return self._kept(owner, session).make(changes)

    def write_many(self, writes: Sequence[Write]) -> list[list[Head] | SennitError]:
        with self._step():
            return [self._tried(write) for write in writes]

    def search(self, owner: Owner, text: str, *, session: UUID | None, limit: int) -> list[Found]:
        wanted = list(dict.fromkeys(words.asked(text)))
        with self._step():
            found = [
                (_score(said, wanted), message.created, message.id, uid, said)
                for uid, kept in self._of(owner).items()
                if session is None or uid == session
                for message in kept.messages.values()
                for said in [words.said(message.body)]
            ]
        best = sorted((hit for hit in found if hit[0]), key=lambda hit: hit[:3], reverse=True)
        return [
            Found(uid, message, words.snippet(said, wanted), float(score))
            for score, _, message, uid, said in best[: max(0, limit)]
        ]

    def acquire(self, owner: Owner, session: UUID, branch: UUID, holder: str, ttl: int) -> Lease:
        with self._step():
            return self._kept(owner, session).acquire(branch, holder, ttl)

    def renew(self, owner: Owner, session: UUID, lease: Lease, ttl: int) -> Lease:
        with self._step():
            return self._kept(owner, session).log.renew(lease, ttl)

    def release(self, owner: Owner, session: UUID, lease: Lease) -> None:
        with self._step():
            kept = self._of(owner).get(session)
            if kept is not None:
                kept.log.release(lease)

    def runs(self, owner: Owner, session: UUID, branch: UUID) -> list[RunRecord]:
        with self._step():
            return self._kept(owner, session).log.of_branch(branch)

    def last_run(self, owner: Owner, session: UUID, branch: UUID) -> RunRecord | None:
        with self._step():
            return self._kept(owner, session).log.last_of(branch)

    def events(
        self, owner: Owner, session: UUID, branch: UUID, after: int, limit: int
    ) -> list[EventRecord]:
        with self._step():
            return self._kept(owner, session).log.after(branch, after)[: max(0, limit)]

    def last_event(self, owner: Owner, session: UUID, branch: UUID) -> int:
        with self._step():
            return self._kept(owner, session).log.last_seq(branch)

    def change_files(self, changes: Sequence[FileChange], end: EndCommit | None = None) -> None:
        with self._step():
            if end is None:
                self._files = self._files.after(changes)
                return
            kept = self._kept(end.owner, end.session)
            ended = kept.commits.after(end.change)
            uid = end.change.commit
            if ended.commits[uid] is not kept.commits.commits[uid]:  # else it was made before
                self._files = self._files.after(changes)
                kept.commits = ended

    def find_file(self, owner: Owner, path: str) -> FileRecord | None:
        with self._step():
            return self._files.find(owner, path)

    def list_files(self, owner: Owner, under: str) -> list[FileRecord]:
        with self._step():
            found = self._files.of(owner)
        return [kept.file for kept in found if kept.file.path.startswith(under)]

    def file_versions(self, owner: Owner, file: UUID) -> list[VersionRecord]:
        with self._step():
            return self._files.versions(owner, file)

    def derived(
        self, owner: Owner, *, session: UUID | None, message: UUID | None = None
    ) -> list[Derived]:
        def is_meant(one: Evidence) -> bool:
            return (
                one.owner == owner
                and session in (None, one.session)
                and message in (None, one.message)
            )

        with self._step():
            return self._files.derived(lambda _, version: any(map(is_meant, version.evidence)))

    def written_by(self, tenant: str, commit: UUID) -> list[Derived]:
        with self._step():
            return self._files.derived(
                lambda owner, version: owner.tenant == tenant and version.commit == commit
            )

    def commits(self, owner: Owner, session: UUID) -> CommitsRecord:
        with self._step():
            return self._kept(owner, session).commits.all()

    def find_commit(self, owner: Owner, commit: UUID) -> tuple[UUID, CommitRecord] | None:
        with self._step():
            for uid, kept in self._of(owner).items():
                if (found := kept.commits.commits.get(commit)) is not None:
                    return uid, found
        return None

    def open_commits(self, owner: Owner) -> list[tuple[UUID, UUID]]:
        with self._step():
            found = [
                (one.created, one.id, uid)
                for uid, kept in self._of(owner).items()
                for one in kept.commits.commits.values()
                if one.state == "open"
            ]
        return [(session, uid) for _, uid, session in sorted(found)]

    def labels(self, owner: Owner, session: UUID) -> list[LabelRecord]:
        with self._step():
            return self._kept(owner, session).judged()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._owners.clear()
            self._files = FileLog()

    @contextmanager
    def _step(self) -> Generator[None]:
        with self._lock:
            if self._closed:
                raise StoreError("This store is closed; open another one.")
            yield

    def _of(self, owner: Owner) -> dict[UUID, _Kept]:
        return self._owners.get(owner, {})

    def _kept(self, owner: Owner, session: UUID) -> _Kept:
        kept = self._of(owner).get(session)
        if kept is None:
            raise no_session(session)
        return kept

    def _tried(self, write: Write) -> list[Head] | SennitError:
        try:
            return self.write(write.owner, write.session, write.changes)
        except SennitError as error:
            return error


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
        """Where these stand, counted from the root."""
        return [self.offset + at for at, entry in enumerate(self.entries) if entry in gone]

    def without(self, gone: set[UUID], below: int) -> _Segment:
        """The same less these, of which `below` stand below it."""
        segment = replace(self, offset=self.offset - below, entries=[], where={})
        segment.extend(entry for entry in self.entries if entry not in gone)
        return segment

    def record(self, start: int = 0) -> SegmentRecord:
        return SegmentRecord(self.id, self.base, self.offset, tuple(self.entries[start:]))


class _Kept:
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
        self._undo: list[Callable[[], object]] = []

    def all(self) -> Snapshot:
        """Everything."""
        segments = [segment.record() for segment in self.needed()]
        messages = list(self.messages.values())
        return Snapshot(_session(self.session), messages, segments, self.listed())

    def listed(self) -> list[BranchRecord]:
        """The branches, the oldest first."""
        ordered = sorted(self._branches.values(), key=lambda branch: (branch.created, branch.id))
        return [replace(branch, metadata=_copied(branch.metadata)) for branch in ordered]

    def needed(self) -> list[_Segment]:
        """The segments that branches stand on, each after its base."""
        found = (self._segments[uid] for uid in self._visible())
        return sorted(found, key=lambda segment: segment.depth)

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

    def make(self, changes: Sequence[Change]) -> list[Head]:
        """Make all changes, or take back those already made."""
        try:
            heads = [head for change in changes if (head := self._make(change)) is not None]
            if any(isinstance(change, (ChangeBranch, RemoveBranch)) for change in changes):
                self._forget_segments()
        except BaseException:
            for take_back in reversed(self._undo):
                take_back()
            raise
        finally:
            self._undo.clear()
        updated = max(self.session.updated, clock.now_us())
        self.session = replace(self.session, updated=updated)
        return heads

    def acquire(self, branch: UUID, holder: str, ttl: int) -> Lease:
        self._branch(branch)
        return self.log.acquire(branch, holder, ttl)

    def _make(self, change: Change) -> Head | None:
        match change:
            case AddMessages():
                self._add_messages(change.messages)
            case Append():
                return self._append(change)
            case AddBranch():
                self._add_branch(change.branch, change.segment)
            case ChangeBranch():
                self._change_branch(change.branch, change.segment)
            case RemoveBranch():
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
        return None

    def _put_labels(self, change: PutLabels) -> None:
        self._check_known(one.message for one in change.labels)
        for one in change.labels:
            key = (one.message, one.judge)
            self._drop(self._labels, [key])
            if one.score is not None:
                self._put(self._labels, key, one)

    def _commit(self, change: CommitChange) -> None:
        if isinstance(change, AddCommit):
            self._check_known(change.commit.entries)
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
            elif there != message:
                raise ExistsError(f"Message {message.id} is stored with another content.")

    def _append(self, change: Append) -> Head:
        self._check_known(change.entries)
        branch = self._branch(change.branch)
        segment = self._segments[branch.segment]
        head = Head(branch.id, segment.id, len(segment.entries), branch.version)
        standing = self._standing(segment, change.entries)
        if len(standing) == len(change.entries):
            # One that stands below the own segment begins before it, at no place of its own.
            first = [segment.where.get(entry, -1) for entry in change.entries[:1]]
            return msgspec.structs.replace(head, length=first[0]) if first else head
        if standing or len(set(change.entries)) < len(change.entries):
            raise ExistsError(f"Branch {branch.name!r} would hold a message twice.")
        self._undo.append(lambda: segment.cut(head.length))
        segment.extend(change.entries)
        grown = replace(branch, length=len(segment.entries))
        self._put(self._branches, branch.id, grown)
        return head

    def _add_branch(self, branch: BranchRecord, segment: SegmentRecord) -> None:
        if branch.segment != segment.id or branch.length != len(segment.entries):
            raise ValidationError(
                f"Branch {branch.name!r} must name its segment {segment.id} and the length "
                f"{len(segment.entries)}, got {branch.segment} and {branch.length}."
            )
        there = self._branches.get(branch.id)
        if there is not None and (there.name, there.segment) == (branch.name, segment.id):
            return
        if there is not None or branch.name in self._names:
            raise ExistsError(f"A branch named {branch.name!r} or with its id is already there.")
        self._check_system(branch)
        self._add_segment(segment)
        self._put(self._names, branch.name, branch.id)
        kept = replace(branch, metadata=_copied(branch.metadata), version=0)
        self._put(self._branches, branch.id, kept)

    def _change_branch(self, branch: BranchRecord, segment: SegmentRecord | None) -> None:
        there = self._branch(branch.id)
        if segment is not None and segment.id == there.segment and _is_like(there, branch):
            return
        moved = segment is not None and branch.length != there.length
        if branch.version != there.version or moved:
            raise ConflictError(f"Branch {there.name!r} was changed by someone else; refresh it.")
        changed = replace(
            there,
            system=branch.system,
            resources=branch.resources,
            capabilities=branch.capabilities,
            version=there.version + 1,
        )
        if segment is not None:
            self._add_segment(segment)
            changed = replace(changed, segment=segment.id, length=len(segment.entries))
        self._check_system(branch)
        self._put(self._branches, there.id, changed)

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
        self._drop(self.messages, gone)

    def _forget_events(self, gone: set[UUID]) -> None:
        for uid, events in list(self.log.events.items()):
            if any(event.message in gone for event in events):
                left = [event for event in events if event.message not in gone]
                self._put(self.log.events, uid, left)

    def _put_run(self, change: PutRun) -> None:
        self.log.check([change])
        self._put(self.log.runs.setdefault(change.run.branch, {}), change.run.id, change.run)

    def _add_events(self, change: AddEvents) -> None:
        self.log.check([change])
        events = self.log.events.setdefault(change.branch, [])
        length = len(events)
        self._undo.append(lambda: events.__delitem__(slice(length, None)))
        self.log.apply(change)

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

    def _add_segment(self, segment: SegmentRecord) -> None:
        if segment.id in self._segments:
            raise ExistsError(f"Segment {segment.id} is there already.")
        self._check_known(segment.entries)
        base = None
        if segment.base is not None:
            base = self._segments.get(segment.base)
            if base is None:
                raise NotFoundError(f"There is no segment {segment.base} to build on.")
        below = 0 if base is None else base.total
        if not 0 <= segment.offset <= below:
            raise ValidationError(
                f"Segment {segment.id} begins after {segment.offset} entries; below it are {below}."
            )
        added = _Segment(
            segment.id, segment.base, segment.offset, 0 if base is None else base.depth + 1
        )
        added.extend(segment.entries)
        self._put(self._segments, added.id, added)

    def _forget_segments(self) -> None:
        needed = self._visible()
        self._drop(self._segments, [uid for uid in self._segments if uid not in needed])

    def _visible(self) -> dict[UUID, int]:
        """How many of its own entries each segment shows, for those that branches need."""
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
            self._undo.append(lambda: table.pop(key))
        table[key] = value

    def _drop(self, table: dict[_K, _V], keys: Iterable[_K]) -> None:
        # Put back one by one they would stand at the end; their order is the order of adding.
        had = table.copy()
        for key in keys:
            table.pop(key, None)
        if len(table) < len(had):
            self._undo.append(lambda: (table.clear(), table.update(had)))


def _session(record: SessionRecord) -> SessionRecord:
    return replace(record, metadata=_copied(record.metadata))


def _copied(metadata: dict[str, Any]) -> dict[str, Any]:
    return loads(dumps(metadata)) if metadata else {}


def _when(session: SessionRecord) -> tuple[int, UUID]:
    return session.updated, session.id


def _contains(key: str | None, part: str | None) -> bool:
    return part is None or (key is not None and part.lower() in key.lower())


def _is_like(there: BranchRecord, wanted: BranchRecord) -> bool:
    return (there.system, there.resources, there.capabilities) == (
        wanted.system,
        wanted.resources,
        wanted.capabilities,
    )


def _score(said: str, wanted: list[str]) -> int:
    """How many of the wanted words are said."""
    spoken = set(_WORD.findall(said.lower()))
    return sum(word in spoken or any(_is_stem(word, other) for other in spoken) for word in wanted)


def _is_stem(one: str, other: str) -> bool:
    """Whether the shorter word begins the longer one, and is long enough to mean something."""
    short, long = sorted((one, other), key=len)
    return len(short) >= _STEM and long.startswith(short)
