"""Export and import of sessions.

`export_sessions` writes an archive (see `archive` and `lines` for its form), `import_sessions`
takes one in, both through the Store protocol alone, so that any store can take what any other gave.
One session at a time is in memory.

An import changes nothing until all of the archive has been checked, and compared with what is
there. Then each session is written in one step. What is there already is left alone, what has grown
since grows, and what differs is refused: an import never overwrites. The archive's sessions become
the importing owner's; what branches were granted is not imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

from msgspec import structs

from sennit import clock
from sennit.errors import ArchiveError, ExistsError, NotFoundError, SennitError
from sennit.ids import new_id
from sennit.messages.codec import loads
from sennit.stores.base import AFTER_ALL, Store, circular
from sennit.stores.records.commits import CommitChange, CommitsRecord
from sennit.stores.records.sessions import (
    AddBranch,
    AddMessages,
    Append,
    BranchRecord,
    Change,
    MessageRecord,
    Owner,
    PutLabels,
    PutStarts,
    RemoveBranch,
    SegmentRecord,
    SessionRecord,
    Snapshot,
)
from sennit.stores.segment_graph import shown
from sennit.stores.transfer import session_jsonl
from sennit.stores.transfer.commit_jsonl import new_commits
from sennit.stores.transfer.container import (
    Archive,
    ArchivedSession,
    ArchiveWriter,
    reading,
    writing,
)

__all__ = [
    "ExportSummary",
    "ImportSummary",
    "additions",
    "all_sessions",
    "export_sessions",
    "import_sessions",
    "needed_segments",
]

Progress: TypeAlias = Callable[[int, int], None]
"""Told how many sessions are done, and of how many."""

_PAGE = 500
_ALL = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """The result of an export."""

    path: Path
    sessions: int
    messages: int
    bytes: int
    """Of the session files, before packing."""


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """The result of an import: sessions found, and those that were new."""

    sessions: int
    new_sessions: int
    new_messages: int


def export_sessions(
    store: Store,
    owner: Owner,
    path: Path,
    sessions: Iterable[UUID] | None = None,
    progress: Progress | None = None,
) -> ExportSummary:
    """Write the owner's sessions, or those named, to a new archive.

    `path` becomes a zip file if it ends with ".zip", else a folder, and appears when complete.
    Raises ExistsError if it is there already, NotFoundError if a named session is not.
    """
    wanted = all_sessions(store, owner) if sessions is None else list(dict.fromkeys(sessions))
    with writing(path) as archive:
        for done, uid in enumerate(wanted, 1):
            try:
                # What was committed, judged or started is among the messages that are read next,
                # or was erased meanwhile.
                commits, labels = store.commits(owner, uid), store.labels(owner, uid)
                starts = store.starts(owner, uid, None)
                removed = store.removed(owner, uid, AFTER_ALL[0], _ALL)
                found = session_jsonl.LoadedSession(store.load(owner, uid), commits, labels, starts)
                left = _without(found, {one.message for one in removed})
                _export_session(archive, _among(left))
            except NotFoundError:
                if sessions is not None:
                    raise  # else it was deleted meanwhile
            if progress is not None:
                progress(done, len(wanted))
        manifest = archive.finish()
    return ExportSummary(
        path,
        len(manifest.sessions),
        sum(session.messages for session in manifest.sessions),
        sum(file.bytes for file in manifest.files),
    )


def _without(read: session_jsonl.LoadedSession, removed: set[UUID]) -> session_jsonl.LoadedSession:
    """A session less the messages that were removed from their last branch."""
    if not removed:
        return read
    found = read.snapshot
    reach = shown(
        {one.id: (one.base, one.offset) for one in found.segments},
        (branch.segment for branch in found.branches),
    )
    standing = {uid for one in found.segments for uid in one.entries[: reach.get(one.id, 0)]} | {
        branch.system for branch in found.branches
    }
    gone = removed - standing  # less what was put on a branch again since it was asked for
    segments = [replace(one, entries=one.entries[: reach.get(one.id, 0)]) for one in found.segments]
    messages = [one for one in found.messages if one.id not in gone]
    return read._replace(snapshot=replace(found, messages=messages, segments=segments))


def _among(read: session_jsonl.LoadedSession) -> session_jsonl.LoadedSession:
    """A session with no word of messages that are not there: a reader would refuse it whole."""
    there = {one.id for one in read.snapshot.messages}
    commits = [
        structs.replace(one, entries=tuple(uid for uid in one.entries if uid in there))
        for one in read.commits.commits
    ]
    return read._replace(
        commits=replace(read.commits, commits=commits),
        labels=[one for one in read.labels if one.message in there],
        starts={uid: times for uid, times in read.starts.items() if uid in there},
    )


def all_sessions(store: Store, owner: Owner) -> list[UUID]:
    """All ids. A session that changes moves to the front, so it is asked until nothing is new."""
    found: dict[UUID, None] = {}
    known = -1
    while len(found) > known:
        known = len(found)
        found.update((session.id, None) for session in _listed(store, owner))
    return list(found)


def _listed(store: Store, owner: Owner) -> Iterator[SessionRecord]:
    before: tuple[int, UUID] | None = None
    while page := store.list_sessions(owner, contains=None, before=before, limit=_PAGE):
        yield from page
        before = (page[-1].updated, page[-1].id)


def _export_session(archive: ArchiveWriter, read: session_jsonl.LoadedSession) -> None:
    found = read.snapshot
    ordered = replace(found, segments=needed_segments(found))
    archive.add(
        ArchivedSession(
            found.session.id,
            found.session.key,
            len(ordered.messages),
            len(ordered.segments),
            len(ordered.branches),
        ),
        session_jsonl.written(read._replace(snapshot=ordered)),
    )


def needed_segments(found: Snapshot) -> list[SegmentRecord]:
    """The segments that branches stand on, each after its base, the same from every store.

    Raises StoreError if one builds on itself.
    """
    by_id = {segment.id: segment for segment in found.segments}
    depths: dict[UUID, int] = {}
    for branch in found.branches:
        chain: dict[UUID, None] = {}
        at: UUID | None = branch.segment
        while at is not None and at not in depths:
            if at in chain:
                raise circular(at)
            chain[at] = None
            at = by_id[at].base
        below = -1 if at is None else depths[at]
        depths.update((uid, below + n) for n, uid in enumerate(reversed(chain), 1))
    return [by_id[uid] for uid in sorted(depths, key=lambda uid: (depths[uid], uid))]


def import_sessions(
    store: Store, owner: Owner, path: Path, progress: Progress | None = None
) -> ImportSummary:
    """Take in an archive as sessions of the owner; doing it again changes nothing.

    Raises ArchiveError if the archive is not sound, and ExistsError if a session is here with
    another content; nothing is imported then.
    """
    with reading(path) as archive:
        total = len(archive.manifest.sessions)
        _check(store, owner, archive)
        new_sessions = new_messages = 0
        for done, read in enumerate(_snapshots(archive, owner), 1):
            is_new, added = _import_session(store, owner, read)
            new_sessions += is_new
            new_messages += added
            if progress is not None:
                progress(done, total)
    return ImportSummary(total, new_sessions, new_messages)


def _snapshots(archive: Archive, owner: Owner) -> Iterator[session_jsonl.LoadedSession]:
    for file, said in zip(archive.manifest.files, archive.manifest.sessions, strict=True):
        try:
            read = session_jsonl.read(archive.lines(file), owner)
        except ArchiveError as error:
            raise ArchiveError(f"{file.name!r} cannot be imported. {error}") from error
        found = read.snapshot
        counts = len(found.messages), len(found.segments), len(found.branches)
        if (said.key, said.messages, said.segments, said.branches) != (found.session.key, *counts):
            raise ArchiveError(f"{file.name!r} does not match the manifest.")
        if said.key is None and said.id != found.session.id:
            raise ArchiveError(f"{file.name!r} contains a different session than its name says.")
        yield read


def _check(store: Store, owner: Owner, archive: Archive) -> None:
    """All is sound, and nothing that is here already differs."""
    seen: set[UUID] = set()
    for wanted, commits, *_ in _snapshots(archive, owner):
        if wanted.session.id in seen:
            raise ArchiveError(
                f"Two sessions of the archive would both become session {wanted.session.id}."
            )
        seen.add(wanted.session.id)
        there = _there(store, owner, wanted)
        additions(wanted, there)
        _new_commits(store, owner, wanted, there, commits)


def _there(store: Store, owner: Owner, wanted: Snapshot) -> Snapshot | None:
    if store.find_session(owner, wanted.session.id) is None:
        return None
    return store.load(owner, wanted.session.id)


def _new_commits(
    store: Store,
    owner: Owner,
    wanted: Snapshot,
    there: Snapshot | None,
    commits: CommitsRecord,
) -> list[CommitChange]:
    nothing = CommitsRecord([], [])
    known = nothing if there is None else store.commits(owner, wanted.session.id)
    return new_commits(commits, known)


def _import_session(
    store: Store, owner: Owner, read: session_jsonl.LoadedSession
) -> tuple[bool, int]:
    """Write what is not there yet; gives whether the session is new, and how many messages."""
    wanted, commits, labels, starts = read
    there = _there(store, owner, wanted)
    changes = additions(wanted, there)
    changes += _new_commits(store, owner, wanted, there, commits)
    uid = wanted.session.id
    judged = [] if there is None else store.labels(owner, uid)
    known = {(label.message, label.judge) for label in judged}
    if new := [label for label in labels if (label.message, label.judge) not in known]:
        changes.append(PutLabels(tuple(new)))
    noted = {} if there is None else store.starts(owner, uid, None)
    if more := [one for one in starts.items() if one[1] > noted.get(one[0], 0)]:
        changes.append(PutStarts(tuple(more)))
    if there is None:
        store.create_session(owner, replace(wanted.session, updated=clock.now_us()))
    try:
        if changes:
            store.write(owner, uid, changes)
    except BaseException:
        if there is None:
            with suppress(SennitError):
                _delete_if_empty(store, owner, uid)
        raise
    added = sum(len(one.messages) for one in changes if isinstance(one, AddMessages))
    return there is None, added


def _delete_if_empty(store: Store, owner: Owner, uid: UUID) -> None:
    left = store.load(owner, uid)
    if not left.messages and not left.branches:
        store.delete_session(owner, uid)


def additions(wanted: Snapshot, there: Snapshot | None) -> list[Change]:
    """Return the changes that `there` lacks; raises ExistsError if they contradict."""
    here = Snapshot(wanted.session, [], [], []) if there is None else there
    if here.session.key != wanted.session.key:
        raise _differs(wanted, f"it is known as {here.session.key!r} here")
    new = _new_messages(wanted, here)
    changes: list[Change] = [AddMessages(tuple(new))] if new else []
    return changes + _new_history(wanted, here)


def _new_messages(wanted: Snapshot, here: Snapshot) -> list[MessageRecord]:
    known = {message.id: message for message in here.messages}
    new: list[MessageRecord] = []
    for message in wanted.messages:
        found = known.get(message.id)
        if found is None:
            new.append(message)
        elif not _is_same(found, message):
            raise _differs(wanted, f"message {message.id} has another content")
    return new


def _is_same(one: MessageRecord, other: MessageRecord) -> bool:
    if one.created != other.created:
        return False
    return one.body == other.body or loads(one.body) == loads(other.body)


def _new_history(wanted: Snapshot, here: Snapshot) -> list[Change]:
    """A segment comes with its branch or, if none ends with it, with one that goes at once."""
    _refuse_other_branches(wanted, here)
    known = {segment.id: segment for segment in here.segments}
    on_top = {branch.segment: branch for branch in wanted.branches}
    changes: list[Change] = []
    carriers: list[BranchRecord] = []
    for segment in wanted.segments:
        branch = on_top.get(segment.id)
        if segment.id in known:
            changes.extend(_growth(wanted, segment, known[segment.id], branch))
            continue
        if branch is None:
            branch = _carrier(segment)
            carriers.append(branch)
        changes.append(AddBranch(branch, segment))
    changes.extend(RemoveBranch(carrier.id) for carrier in carriers)
    return changes


def _refuse_other_branches(wanted: Snapshot, here: Snapshot) -> None:
    """A branch that is here must be the same one; one that is not must find its place free."""
    known = {branch.id: branch for branch in here.branches}
    names = {branch.name for branch in here.branches}
    segments = {segment.id for segment in here.segments}
    for branch in wanted.branches:
        found = known.get(branch.id)
        if found is None:
            if branch.name in names:
                raise _differs(wanted, f"another branch is named {branch.name!r}")
            if branch.segment in segments:
                raise _differs(wanted, f"branch {branch.name!r} was removed")
        elif found.name != branch.name:
            raise _differs(wanted, f"branch {branch.name!r} is named {found.name!r}")
        elif _place(found) != _place(branch):
            raise _differs(wanted, f"branch {branch.name!r} was changed")


def _place(branch: BranchRecord) -> tuple[UUID, UUID | None, dict[str, Any]]:
    return branch.segment, branch.system, branch.metadata


def _growth(
    wanted: Snapshot, segment: SegmentRecord, found: SegmentRecord, branch: BranchRecord | None
) -> list[Change]:
    """Return the entries that the segment here lacks."""
    both = min(len(segment.entries), len(found.entries))
    rest = segment.entries[both:]
    same = (segment.base, segment.offset, segment.entries[:both])
    if same != (found.base, found.offset, found.entries[:both]) or (rest and branch is None):
        raise _differs(wanted, f"segment {segment.id} has another history")
    return [Append(branch.id, rest)] if rest and branch is not None else []


def _carrier(segment: SegmentRecord) -> BranchRecord:
    uid = new_id()
    none: frozenset[str] = frozenset()
    return BranchRecord(
        id=uid,
        name=f"import {uid}",
        created=clock.now_us(),
        system=None,
        segment=segment.id,
        length=len(segment.entries),
        resources=none,
        capabilities=none,
        metadata={},
    )


def _differs(wanted: Snapshot, how: str) -> ExistsError:
    name = wanted.session.key or str(wanted.session.id)
    return ExistsError(
        f"Session {name!r} already exists and differs from the archive: {how}. Nothing was "
        f"imported; delete it first, or import as another user."
    )
