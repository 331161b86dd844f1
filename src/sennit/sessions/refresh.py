"""Refresh of a session: load what other processes have written to its store.

Memory is read and changed under the session's lock, which event loops take too, so the lock is
released during reads of the store. If memory changes meanwhile, the store is read again.
"""

# A refresh writes branches and piles directly, bypassing their guards.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING
from uuid import UUID

from sennit import clock
from sennit.sessions.grants import Grants
from sennit.sessions.records import merge_segments
from sennit.sessions.segments import Segment
from sennit.sessions.unarchived import ArchiveIndex
from sennit.stores.records.sessions import BranchRecord, Snapshot

if TYPE_CHECKING:
    from sennit.sessions.repository import SessionRepository
    from sennit.sessions.session import SessionCore
    from sennit.stores.records.commits import ArchiveRecord

_MAX_ATTEMPTS = 3  # without holding the lock; then once more with it


def refresh(session: SessionCore, repository: SessionRepository) -> None:
    """Load changes from the store, if there are any."""
    for _ in range(_MAX_ATTEMPTS):
        if _try_refresh(session, repository):
            return
    with session.lock:  # local writes keep interfering: block them
        _try_refresh(session, repository)


def _try_refresh(session: SessionCore, repository: SessionRepository) -> bool:
    """Load changes from the store; return False if memory changed during the read."""
    if repository.last_write() == session._last_seen_write:
        return True
    with session.lock:
        generation, after = session._generation, session._archives.number
        segments = {
            segment.id: segment
            for branch in session.branches
            for segment, _ in branch._tail.chain()
        }
        sizes = {uid: len(segment) for uid, segment in segments.items()}
        versions = {branch.id: branch._version for branch in session.branches}
    snapshot = repository.changes(sizes)
    stored_versions = {record.id: record.version for record in snapshot.branches}
    # Appends and new branches load incrementally; any other change reloads everything.
    reload = any(stored_versions.get(uid) != version for uid, version in versions.items())
    if reload:
        segments, after, snapshot = {}, 0, repository.load()
    archived = repository.archived(after)
    with session.lock:
        if session._generation != generation:
            return False
        if reload:
            session._archives = ArchiveIndex()
            stored_keys = {record.id.int for record in snapshot.messages}
            for message in session.messages:
                if message.id.int not in stored_keys:
                    session.messages._discard(message)
        apply_snapshot(session, snapshot, segments, archived)
    return True


def apply_snapshot(
    session: SessionCore,
    snapshot: Snapshot,
    segments: dict[UUID, Segment],
    archived: Sequence[ArchiveRecord],
) -> None:
    """Update metadata, messages, branches and archives from a snapshot."""
    session._generation += 1
    session._last_seen_write = snapshot.session.updated
    session._metadata = MappingProxyType(snapshot.session.metadata)
    session.messages.load(snapshot.messages)
    merge_segments(snapshot.segments, segments)
    branches = session.branches
    names = {record.id: record.name for record in snapshot.branches}
    for branch in branches:
        if branch.id not in names:
            branches.discard(branch)
    branches.rename(
        {branch: new for branch in branches if (new := names[branch.id]) != branch.name}
    )
    for record in snapshot.branches:
        _apply_branch(session, record, segments[record.segment])
    session._archives.add(archived)


def _apply_branch(session: SessionCore, record: BranchRecord, tail: Segment) -> None:
    grants = Grants.stored(record.resources, record.capabilities)
    branch = session.branches.by_key(record.id.int)
    if branch is None:
        branch = session.branches.include_draft(
            session.branch_type(
                session,
                record.name,
                tail=tail,
                system=record.system,
                grants=grants,
                id=record.id,
                created_at=clock.to_datetime(record.created),
                metadata=record.metadata,
            )
        )
    elif branch._version != record.version or branch._tail is not tail:
        branch._tail, branch._system, branch._grants = tail, record.system, grants
        branch._changed()
    branch._version = record.version
