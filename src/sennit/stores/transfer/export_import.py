"""Export and import of sessions.

`export_sessions` writes an archive (see `container` and `session_jsonl` for its format),
`import_sessions` reads one, both through the Store protocol alone, so that any store can import
from any other. One session at a time is in memory.

An import changes nothing until the whole archive has been checked and compared with the stored
sessions. Then each session is written in one transaction. Existing content is left unchanged,
branches that have grown are extended, and differences are refused: an import never overwrites. The
sessions become the importing owner's; grants are not imported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from msgspec import structs

from sennit import clock
from sennit.errors import ArchiveError, ConflictError, ExistsError, NotFoundError, SennitError
from sennit.ids import new_id
from sennit.messages.blob_reference import named_blobs
from sennit.messages.codec import loads
from sennit.messages.message import Message
from sennit.stores.base import FIRST_PAGE, Store, segment_cycle
from sennit.stores.records.blobs import (
    BlobLimits,
    blob_chunks,
    blob_reference,
    missing_blob,
    names_blobs,
)
from sennit.stores.records.commits import (
    AddCommit,
    AddUses,
    CommitChange,
    CommitsRecord,
    uses_by_commit,
)
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
    RequireBlobs,
    SegmentRecord,
    SessionRecord,
    Snapshot,
)
from sennit.stores.segment_graph import shown
from sennit.stores.session_ids import session_id
from sennit.stores.transfer import session_jsonl
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
    "MemoryCounts",
    "ReadMemories",
    "additions",
    "all_sessions",
    "export_sessions",
    "import_sessions",
    "needed_segments",
]

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number of sessions done, and of all; for JSON of other programs, of bytes."""

_PAGE = 500
_LIMITS = BlobLimits()
_MAX_ATTEMPTS = 5  # to import a session that others change
_NO_LIMIT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """The result of an export."""

    path: Path
    sessions: int
    messages: int
    bytes: int
    """The size of the files, uncompressed."""
    memories: bool = False
    """Whether the memories were exported too."""


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """The result of an import: sessions found, and what was new."""

    sessions: int
    new_sessions: int
    new_messages: int
    new_branches: int = 0
    """The number of new branches."""
    format: str = "archive"
    skipped: int = 0
    """The number of conversations that could not be read."""
    problems: tuple[str, ...] = ()
    """The position and the reason of each, of the first 100."""
    new_memories: int = 0
    """The number of memories that are new or got new versions."""
    different_memories: int = 0
    """The number of memories that were left as they are, because they differ here."""


class MemoryCounts(NamedTuple):
    """The numbers of imported memories."""

    new: int
    different: int


ReadMemories: TypeAlias = Callable[
    [Iterable[bytes], Mapping[UUID, UUID]], Callable[[], MemoryCounts]
]
"""Checks lines of memories, for sessions of the archive and what they become; returns the write."""


def export_sessions(
    store: Store,
    owner: Owner,
    path: Path,
    sessions: Iterable[UUID] | None = None,
    progress: Progress | None = None,
    *,
    memories: Iterable[bytes] | None = None,
) -> ExportSummary:
    """Write the owner's sessions, or those named, to a new archive, and lines of `memories`.

    `path` becomes a zip file if it ends with ".zip", else a folder, and appears when complete.
    Raises ExistsError if it exists, NotFoundError if a named session does not.
    """
    uids = all_sessions(store, owner) if sessions is None else list(dict.fromkeys(sessions))
    with writing(path) as archive:
        for done, uid in enumerate(uids, 1):
            try:
                # What was committed, judged or started is among the messages that are read next,
                # or was erased meanwhile.
                commits, labels = store.commits(owner, uid), store.labels(owner, uid)
                starts = store.starts(owner, uid, None)
                removed = store.removed(owner, uid, FIRST_PAGE[0], _NO_LIMIT)
                loaded = session_jsonl.LoadedSession(
                    store.load(owner, uid), commits, labels, starts
                )
                remaining = _without_removed(loaded, {message.message for message in removed})
                _export_blobs(store, owner, archive, remaining.snapshot.messages)
                _export_session(archive, _without_missing(remaining))
            except NotFoundError:
                if sessions is not None:
                    raise  # else it was deleted meanwhile
            if progress is not None:
                progress(done, len(uids))
        if memories is not None:
            archive.add_memories(memories)
        manifest = archive.finish()
    return ExportSummary(
        path,
        len(manifest.sessions),
        sum(session.messages for session in manifest.sessions),
        sum(file.bytes for file in manifest.line_files),
        memories is not None,
    )


def _export_blobs(
    store: Store, owner: Owner, archive: ArchiveWriter, messages: Iterable[MessageRecord]
) -> None:
    """Write the blobs that messages name; raises NotFoundError, StoreError."""
    for hash in _named_blobs(messages):
        if archive.has_blob(hash):
            continue
        blob = store.find_blob(owner, hash)
        if blob is None:
            raise missing_blob(hash)
        try:
            archive.add_blob(hash, blob.media_type, blob_chunks(store, owner, blob))
        except NotFoundError as error:
            raise missing_blob(hash) from error


def _named_blobs(messages: Iterable[MessageRecord]) -> tuple[bytes, ...]:
    """Return the hashes of the blobs that stored messages name, each once."""
    return named_blobs(
        Message.from_stored(record.id, record.created, record.body)
        for record in messages
        if names_blobs((record,))
    )


def _without_removed(
    loaded: session_jsonl.LoadedSession, removed: set[UUID]
) -> session_jsonl.LoadedSession:
    """Return a session without its removed messages."""
    if not removed:
        return loaded
    snapshot = loaded.snapshot
    reach = shown(
        {item.id: (item.base, item.offset) for item in snapshot.segments},
        (branch.segment for branch in snapshot.branches),
    )
    attached = {
        uid for item in snapshot.segments for uid in item.entries[: reach.get(item.id, 0)]
    } | {branch.system for branch in snapshot.branches}
    detached = removed - attached  # some may have been attached again meanwhile
    segments = [
        replace(item, entries=item.entries[: reach.get(item.id, 0)]) for item in snapshot.segments
    ]
    messages = [item for item in snapshot.messages if item.id not in detached]
    return loaded._replace(snapshot=replace(snapshot, messages=messages, segments=segments))


def _without_missing(loaded: session_jsonl.LoadedSession) -> session_jsonl.LoadedSession:
    """Drop references to missing messages, which an import would refuse."""
    present = {item.id for item in loaded.snapshot.messages}
    commits = [
        structs.replace(item, entries=tuple(uid for uid in item.entries if uid in present))
        for item in loaded.commits.commits
    ]
    return loaded._replace(
        commits=replace(loaded.commits, commits=commits),
        labels=[item for item in loaded.labels if item.message in present],
        starts={uid: times for uid, times in loaded.starts.items() if uid in present},
    )


def all_sessions(store: Store, owner: Owner) -> list[UUID]:
    """Return all session ids; list again until none is new, as changed ones move to the front."""
    uids: dict[UUID, None] = {}
    count = -1
    while len(uids) > count:
        count = len(uids)
        uids.update((session.id, None) for session in _list_sessions(store, owner))
    return list(uids)


def _list_sessions(store: Store, owner: Owner) -> Iterator[SessionRecord]:
    before: tuple[int, UUID] | None = None
    while page := store.list_sessions(owner, contains=None, before=before, limit=_PAGE):
        yield from page
        before = (page[-1].updated, page[-1].id)


def _export_session(archive: ArchiveWriter, loaded: session_jsonl.LoadedSession) -> None:
    snapshot = loaded.snapshot
    ordered = replace(snapshot, segments=needed_segments(snapshot))
    archive.add(
        ArchivedSession(
            snapshot.session.id,
            snapshot.session.key,
            len(ordered.messages),
            len(ordered.segments),
            len(ordered.branches),
        ),
        session_jsonl.written(loaded._replace(snapshot=ordered)),
    )


def needed_segments(snapshot: Snapshot) -> list[SegmentRecord]:
    """Return the segments that branches use, bases first, in the same order for every store.

    Raises StoreError if there is a cycle.
    """
    by_id = {segment.id: segment for segment in snapshot.segments}
    depths: dict[UUID, int] = {}
    for branch in snapshot.branches:
        chain: dict[UUID, None] = {}
        current: UUID | None = branch.segment
        while current is not None and current not in depths:
            if current in chain:
                raise segment_cycle(current)
            chain[current] = None
            current = by_id[current].base
        depth = -1 if current is None else depths[current]
        depths.update((uid, depth + height) for height, uid in enumerate(reversed(chain), 1))
    return [by_id[uid] for uid in sorted(depths, key=lambda uid: (depths[uid], uid))]


def import_sessions(
    store: Store,
    owner: Owner,
    path: Path,
    progress: Progress | None = None,
    *,
    read_memories: ReadMemories | None = None,
) -> ImportSummary:
    """Import an archive as sessions of the owner; repeating it changes nothing.

    Its memories are imported by `read_memories`, after the sessions. Raises ArchiveError if the
    archive is invalid, and ExistsError if a session exists with a different content; nothing is
    imported then.
    """
    with reading(path) as archive:
        total = len(archive.manifest.sessions)
        _check(store, owner, archive)
        write_memories = _memories_to_write(archive, owner, read_memories)
        for blob in archive.manifest.blobs:
            hash = bytes.fromhex(blob.sha256)
            store.put_blob(owner, archive.chunks(blob), blob.media_type, _LIMITS, hash)
        new = Counter[str]()
        for done, loaded in enumerate(_snapshots(archive, owner), 1):
            new.update(_import_session(store, owner, loaded))
            if progress is not None:
                progress(done, total)
        memories = write_memories()
    return ImportSummary(
        total,
        new["sessions"],
        new["messages"],
        new["branches"],
        new_memories=memories.new,
        different_memories=memories.different,
    )


def _memories_to_write(
    archive: Archive, owner: Owner, read_memories: ReadMemories | None
) -> Callable[[], MemoryCounts]:
    """Check the memories of an archive; return a function that writes them."""
    manifest = archive.manifest
    if manifest.memories is None or read_memories is None:
        return lambda: MemoryCounts(0, 0)
    sessions = {
        session.id: session.id if session.key is None else session_id(owner, session.key)
        for session in manifest.sessions
    }
    return read_memories(archive.lines(manifest.memories), sessions)


def _snapshots(archive: Archive, owner: Owner) -> Iterator[session_jsonl.LoadedSession]:
    for file, described in zip(archive.manifest.files, archive.manifest.sessions, strict=True):
        try:
            loaded = session_jsonl.read(archive.lines(file), owner)
        except ArchiveError as error:
            raise ArchiveError(f"{file.name!r} cannot be imported. {error}") from error
        snapshot = loaded.snapshot
        counts = len(snapshot.messages), len(snapshot.segments), len(snapshot.branches)
        if (described.key, described.messages, described.segments, described.branches) != (
            snapshot.session.key,
            *counts,
        ):
            raise ArchiveError(f"{file.name!r} does not match the manifest.")
        if described.key is None and described.id != snapshot.session.id:
            raise ArchiveError(f"{file.name!r} contains a different session than its name says.")
        yield loaded


def _check(store: Store, owner: Owner, archive: Archive) -> None:
    """Raise ArchiveError if the archive is invalid, ExistsError if it contradicts the store."""
    seen: set[UUID] = set()
    archived = {bytes.fromhex(blob.sha256) for blob in archive.manifest.blobs}
    for loaded in _snapshots(archive, owner):
        for hash in _named_blobs(loaded.snapshot.messages):
            if hash not in archived:
                raise ArchiveError(
                    f"A message names blob {blob_reference(hash)!r}, which is not in the archive."
                )
        uid = loaded.snapshot.session.id
        if uid in seen:
            raise ArchiveError(f"Two sessions of the archive would both become session {uid}.")
        seen.add(uid)
        _missing_changes(store, owner, loaded)


def _missing_changes(
    store: Store, owner: Owner, loaded: session_jsonl.LoadedSession
) -> tuple[bool, list[Change]]:
    """Return whether the session is stored, and the changes that the store lacks.

    Raises ExistsError if they contradict.
    """
    snapshot, commits, labels, starts = loaded
    uid = snapshot.session.id
    if store.find_session(owner, uid) is None:
        stored, stored_commits = None, CommitsRecord([], [])
        known_labels, known_starts = set[tuple[UUID, str]](), dict[UUID, int]()
    else:
        stored, stored_commits = store.load(owner, uid), store.commits(owner, uid)
        known_labels = {(label.message, label.judge) for label in store.labels(owner, uid)}
        known_starts = store.starts(owner, uid, None)
    changes = additions(snapshot, stored)
    changes += _missing_commits(commits, stored_commits)
    new_labels = [label for label in labels if (label.message, label.judge) not in known_labels]
    if new_labels:
        changes.append(PutLabels(tuple(new_labels)))
    new_starts = [item for item in starts.items() if item[1] > known_starts.get(item[0], 0)]
    if new_starts:
        changes.append(PutStarts(tuple(new_starts)))
    return stored is not None, changes


def _missing_commits(archived: CommitsRecord, stored: CommitsRecord) -> list[CommitChange]:
    """Return the commits that `there` lacks; raises ExistsError if they contradict."""
    for commit, other in zip(archived.commits, stored.commits, strict=False):
        if (commit.id, commit.number) != (other.id, other.number):
            raise ExistsError(
                f"Commit {commit.number} of the session differs from the stored one. Nothing was "
                f"imported; delete the session first, or import as another user."
            )
    known_uses = {use.id for use in stored.uses}
    last = len(stored.commits)
    # One that a commit here has counted was erased here: none would count it again.
    uses = [
        use
        for use in archived.uses
        if use.id not in known_uses and (use.commit is None or use.commit > last)
    ]
    changes: list[CommitChange] = [AddUses(tuple(uses))] if uses else []
    counted = uses_by_commit(archived.uses)
    return changes + [
        AddCommit(commit, tuple(counted.get(commit.number, ())))
        for commit in archived.commits[last:]
    ]


def _import_session(
    store: Store, owner: Owner, loaded: session_jsonl.LoadedSession
) -> dict[str, int]:
    """Write missing content; return the numbers of new sessions, messages and branches."""
    for _ in range(_MAX_ATTEMPTS - 1):
        with suppress(ConflictError):  # it has changed since it was compared
            return _import_session_once(store, owner, loaded)
    return _import_session_once(store, owner, loaded)


def _import_session_once(
    store: Store, owner: Owner, loaded: session_jsonl.LoadedSession
) -> dict[str, int]:
    uid = loaded.snapshot.session.id
    is_stored, changes = _missing_changes(store, owner, loaded)
    if not is_stored:
        store.create_session(owner, replace(loaded.snapshot.session, updated=clock.now_us()))
    try:
        if changes:
            store.write(owner, uid, changes)
    except BaseException:
        if not is_stored:
            with suppress(SennitError):
                _delete_if_empty(store, owner, uid)
        raise
    messages = sum(len(item.messages) for item in changes if isinstance(item, AddMessages))
    added = sum(isinstance(item, AddBranch) for item in changes)
    temporary = sum(isinstance(item, RemoveBranch) for item in changes)
    return {"sessions": int(not is_stored), "messages": messages, "branches": added - temporary}


def _delete_if_empty(store: Store, owner: Owner, uid: UUID) -> None:
    snapshot = store.load(owner, uid)
    if not snapshot.messages and not snapshot.branches:
        store.delete_session(owner, uid)


def additions(snapshot: Snapshot, stored: Snapshot | None) -> list[Change]:
    """Return the changes that `there` lacks; raises ExistsError if they contradict."""
    existing = Snapshot(snapshot.session, [], [], []) if stored is None else stored
    if existing.session.key != snapshot.session.key:
        raise _differs(snapshot, f"it is known as {existing.session.key!r} here")
    new = _new_messages(snapshot, existing)
    changes: list[Change] = [AddMessages(tuple(new))] if new else []
    if blobs := _named_blobs(new):
        changes.insert(0, RequireBlobs(blobs))
    return changes + _new_branches(snapshot, existing)


def _new_messages(snapshot: Snapshot, existing: Snapshot) -> list[MessageRecord]:
    known = {message.id: message for message in existing.messages}
    new: list[MessageRecord] = []
    for message in snapshot.messages:
        stored = known.get(message.id)
        if stored is None:
            new.append(message)
        elif not _is_same(stored, message):
            raise _differs(snapshot, f"message {message.id} has another content")
    return new


def _is_same(message: MessageRecord, other: MessageRecord) -> bool:
    if message.created != other.created:
        return False
    return message.body == other.body or loads(message.body) == loads(other.body)


def _new_branches(snapshot: Snapshot, existing: Snapshot) -> list[Change]:
    """Return changes that add segments, each with its branch or with a temporary one."""
    _refuse_other_branches(snapshot, existing)
    known = {segment.id: segment for segment in existing.segments}
    branches_by_segment = {branch.segment: branch for branch in snapshot.branches}
    changes: list[Change] = []
    temporary: list[BranchRecord] = []
    for segment in snapshot.segments:
        branch = branches_by_segment.get(segment.id)
        if segment.id in known:
            changes.extend(_new_entries(snapshot, segment, known[segment.id], branch))
            continue
        if branch is None:
            branch = _temporary_branch(segment)
            temporary.append(branch)
        changes.append(AddBranch(branch, segment))
    changes.extend(RemoveBranch(carrier.id) for carrier in temporary)
    return changes


def _refuse_other_branches(snapshot: Snapshot, existing: Snapshot) -> None:
    """Raise ExistsError if a branch differs from the stored one, or its name is taken."""
    known = {branch.id: branch for branch in existing.branches}
    names = {branch.name for branch in existing.branches}
    segments = {segment.id for segment in existing.segments}
    for branch in snapshot.branches:
        stored = known.get(branch.id)
        if stored is None:
            if branch.name in names:
                raise _differs(snapshot, f"another branch is named {branch.name!r}")
            if branch.segment in segments:
                raise _differs(snapshot, f"branch {branch.name!r} was removed")
        elif stored.name != branch.name:
            raise _differs(snapshot, f"branch {branch.name!r} is named {stored.name!r}")
        elif _settings(stored) != _settings(branch):
            raise _differs(snapshot, f"branch {branch.name!r} was changed")


def _settings(branch: BranchRecord) -> tuple[UUID, UUID | None, dict[str, Any]]:
    return branch.segment, branch.system, branch.metadata


def _new_entries(
    snapshot: Snapshot, segment: SegmentRecord, stored: SegmentRecord, branch: BranchRecord | None
) -> list[Change]:
    """Return the entries that the segment here lacks."""
    both = min(len(segment.entries), len(stored.entries))
    rest = segment.entries[both:]
    same = (segment.base, segment.offset, segment.entries[:both])
    if same != (stored.base, stored.offset, stored.entries[:both]) or (rest and branch is None):
        raise _differs(snapshot, f"segment {segment.id} has another history")
    return [Append(branch.id, rest, (segment.id, both))] if rest and branch is not None else []


def _temporary_branch(segment: SegmentRecord) -> BranchRecord:
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


def _differs(snapshot: Snapshot, how: str) -> ExistsError:
    name = snapshot.session.key or str(snapshot.session.id)
    return ExistsError(
        f"Session {name!r} already exists and differs from the archive: {how}. Nothing was "
        f"imported; delete it first, or import as another user."
    )
