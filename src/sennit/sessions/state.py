"""In-memory state of a session, written through to its store.

Every change is written to the store first, if there is one, and then applied in memory. Writes of
other processes show in the store's answer and trigger a refresh. Memory is read and changed under
the session's lock. Event loops take that lock too, so async calls and refreshes release it while
they wait for the store. Callers validate their arguments first.
"""

# A session may write its branches and piles directly, bypassing their guards.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from threading import RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from sennit import clock
from sennit.containers.element import Element
from sennit.errors import ConflictError, ExistsError
from sennit.messages.content import SystemContent
from sennit.messages.message import Message
from sennit.sessions.append import AppendPlan
from sennit.sessions.async_method import async_method
from sennit.sessions.branch import Branch, FirstLease, LeaseTerms
from sennit.sessions.grants import Grants
from sennit.sessions.repository import (
    SessionRepository,
    branch_record,
    change_of,
    merge_segments,
    message_record,
    segment_record,
)
from sennit.sessions.segments import Segment
from sennit.sessions.unarchived import ArchiveIndex
from sennit.sessions.views import BranchPile, Conversations, MessagePile
from sennit.stores.records.sessions import (
    AddBranch,
    AddEvents,
    AddMessages,
    BranchHead,
    BranchRecord,
    Change,
    LabelRecord,
    PutRun,
    PutStarts,
    RenameBranch,
    Snapshot,
    TakeLease,
)

if TYPE_CHECKING:
    from sennit.sessions.session import SessionCore
    from sennit.stores.in_memory.runs import RunLog
    from sennit.stores.records.commits import ArchiveRecord


_MAX_REFRESH_ATTEMPTS = 3  # without holding the lock; then once more with it
_MAX_ENCODED_ON_LOOP = 64  # messages; more are encoded in a worker thread


class SessionData(Element):
    """Messages and branches in memory, written through to a store if there is one."""

    def __init__(
        self,
        *,
        id: UUID | str | None = None,
        created_at: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(id=id, created_at=created_at, metadata=metadata)
        self.lock = RLock()
        self._messages = MessagePile(self._as_session)
        self._branches = BranchPile(self._as_session)
        self._branches_by_name: dict[str, Branch] = {}
        self._repository: SessionRepository | None = None
        self._key: str | None = None
        self._pending_default: Branch | None = None  # until it is in the store
        self._remote_default: UUID | None = None  # created by another process
        self._labels: dict[tuple[UUID, str], LabelRecord] = {}
        self._archives = ArchiveIndex()
        self._last_seen_write: int | None = None  # `updated` of the last snapshot

    @cached_property
    def _conversations(self) -> Conversations:
        """The messages and branches as a flow."""
        return Conversations(self._messages, self._branches, self._branches_by_name)

    @cached_property
    def _run_log(self) -> RunLog:
        """The run log of a session without a store."""
        from sennit.stores.in_memory.runs import RunLog

        return RunLog()

    def _starts(self, messages: Sequence[UUID] | None = None) -> dict[UUID, int]:
        """Return how often each tool call was started, without those never started."""
        repository = self._repository
        if repository is not None:
            return repository.store.starts(repository.owner, repository.session, messages)
        with self.lock:
            counts = self._run_log.starts
            wanted = counts if messages is None else messages
            return {uid: counts[uid] for uid in wanted if uid in counts}

    def _put_starts(self, starts: Mapping[UUID, int]) -> None:
        """Import the start counts of tool calls from another session."""
        if not starts:
            return
        if self._repository is None:
            self._run_log.starts.update(starts)
        else:
            self._repository.write([PutStarts(tuple(starts.items()))])

    @property
    def repository(self) -> SessionRepository | None:
        """The repository of the session in its store; None without a store."""
        return self._repository

    @property
    def archives(self) -> ArchiveIndex:
        """The entries that commits cover, as of the last refresh."""
        return self._archives

    def add_archive(self, archive: ArchiveRecord) -> None:
        """Add the archive of a commit that this process just made."""
        with self.lock:
            self._bump_generation()
            self._archives.add([archive])

    def _bump_generation(self) -> None:
        """Invalidate refreshes in progress; call under the lock before changing memory."""
        if self._repository is not None:
            self._repository.generation += 1

    @property
    def _as_session(self) -> SessionCore:
        return cast("SessionCore", self)

    def append_messages(self, messages: Sequence[Message], branches: Sequence[Branch]) -> None:
        """Store messages and append them to branches that lack them; raises ConflictError."""
        if self._repository is None:
            for message in messages:
                self._append_in_memory(message, branches)
            return
        plan = AppendPlan.of(messages, branches, self._messages)
        try:
            heads = self._repository.write(plan.changes)
        except ConflictError:
            self.refresh()
            raise
        if self._apply(plan, heads):
            self.refresh()
        self._was_kept(messages, branches)

    def _was_kept(self, messages: Sequence[Message], branches: Sequence[Branch]) -> None:
        """Handle messages that were just appended to branches in the store; a hook."""

    def _append_in_memory(self, message: Message, branches: Sequence[Branch]) -> None:
        self._messages._insert(message)
        for branch in branches:
            if isinstance(message.content, SystemContent):
                branch._set_system(message.id)
            else:
                branch._tail.append(message.id)

    async def _aappend_messages(
        self,
        messages: Sequence[Message],
        branches: Sequence[Branch],
        run_changes: Sequence[PutRun | AddEvents] = (),
    ) -> None:
        """Do the same without blocking the event loop, in one write with the changes of a run."""
        if self._repository is None:
            with self.lock:
                self._run_log.check(run_changes)
                self.append_messages(messages, branches)
                for change in run_changes:
                    self._run_log.apply(change)
            return
        with self.lock:
            plan = AppendPlan.of(messages, branches, self._messages)
        if len(messages) > _MAX_ENCODED_ON_LOOP and not run_changes:
            import asyncio  # slow to import; only async callers need it

            changes = await asyncio.to_thread(getattr, plan, "changes")
        else:
            changes = plan.changes

        def apply(heads: list[BranchHead]) -> None:
            with self.lock:
                stale = self._apply(plan, heads)
            if stale:
                self.refresh()

        try:
            await self._repository.submit((*changes, *run_changes), apply)
        except ConflictError:
            await self.arefresh()
            raise
        self._was_kept(messages, branches)

    def _apply(self, plan: AppendPlan, heads: list[BranchHead]) -> bool:
        """Apply a stored append in memory; return True if other writers require a refresh."""
        self._bump_generation()
        for message in plan.new:
            self._messages._insert(message)
        stale = False
        for branch, head in zip(plan.branches, heads, strict=False):
            tail = branch._tail
            if head.segment.int == tail.id.int and head.length == len(tail):
                tail.grow(plan.ids)
                stale = stale or head.version != branch.version
            else:
                stale = True
        if plan.system is not None:
            for branch in plan.branches:
                branch._apply_system(plan.system)
        return stale

    async def _achange(self, change: Change, apply: Callable[[], None]) -> None:
        """Write a change without blocking the event loop, then apply it in memory."""

        def apply_locked(_heads: list[BranchHead]) -> None:
            with self.lock:
                self._bump_generation()
                apply()

        if self._repository is None:
            apply_locked([])
        else:
            await self._repository.submit((change,), apply_locked)

    def write_branch(
        self, branch: Branch, tail: Segment, system: UUID | None, grants: Grants
    ) -> None:
        """Write a changed branch to the store; raises ConflictError if its version is stale."""
        if self._repository is None:
            return
        record = branch_record(branch, tail, system, grants)
        try:
            self._repository.write([change_of(record, branch._tail, tail)])
        except ConflictError:
            self.refresh()
            raise
        branch.version += 1

    def _write_name(self, branch: Branch, name: str) -> None:
        """Rename a branch in the store, then in memory; raises ExistsError."""
        if self._repository is not None:
            try:
                self._repository.write([RenameBranch(branch.id, name)])
            except ExistsError:
                self.refresh()  # another process took the name
                raise
        self._rename_in_memory({branch: name})

    def _rename_in_memory(self, names: dict[Branch, str]) -> None:
        """Rename branches in memory, all at once, as they may swap names."""
        self._bump_generation()
        for branch in names:
            self._branches_by_name.pop(branch.name, None)
        for branch, name in names.items():
            branch._name = name
            self._branches_by_name[name] = branch

    def refresh(self) -> None:
        """Load what other processes have written to the store; a no-op without a store."""
        if self._repository is None:
            return
        for _ in range(_MAX_REFRESH_ATTEMPTS):
            if self._try_refresh(self._repository):
                return
        with self.lock:  # local writes keep interfering: block them
            self._try_refresh(self._repository)

    def _try_refresh(self, repository: SessionRepository) -> bool:
        """Load changes from the store; return False if memory changed during the read."""
        if repository.last_write() == self._last_seen_write:
            return True
        with self.lock:
            generation, after = repository.generation, self._archives.number
            segments = {
                segment.id: segment
                for branch in self._branches
                for segment, _ in branch._tail.chain()
            }
            sizes = {uid: len(segment) for uid, segment in segments.items()}
            versions = {branch.id: branch.version for branch in self._branches}
        snapshot = repository.changes(sizes)
        stored_versions = {record.id: record.version for record in snapshot.branches}
        # Appends and new branches load incrementally; any other change reloads everything.
        reload = any(stored_versions.get(uid) != version for uid, version in versions.items())
        if reload:
            segments, after, snapshot = {}, 0, repository.load()
        archived = repository.archived(after)
        with self.lock:
            if repository.generation != generation:
                return False
            if reload:
                self._archives = ArchiveIndex()
                self._drop_messages_except({record.id.int for record in snapshot.messages})
            self._apply_snapshot(snapshot, segments, archived)
        return True

    def _drop_messages_except(self, stored_keys: set[int]) -> None:
        for message in self._messages:
            if message.id.int not in stored_keys:
                self._messages._discard(message)

    def _apply_snapshot(
        self, snapshot: Snapshot, segments: dict[UUID, Segment], archived: Sequence[ArchiveRecord]
    ) -> None:
        """Update metadata, messages, branches and archives from a snapshot."""
        self._bump_generation()
        self._last_seen_write = snapshot.session.updated
        self._metadata = MappingProxyType(snapshot.session.metadata)
        self._messages.load(snapshot.messages)
        merge_segments(snapshot.segments, segments)
        names = {record.id: record.name for record in snapshot.branches}
        for branch in self._branches:
            if branch.id not in names:
                self._discard_branch(branch)
        self._rename_in_memory(
            {branch: new for branch in self._branches if (new := names[branch.id]) != branch.name}
        )
        for record in snapshot.branches:
            self._apply_branch(record, segments[record.segment])
        self._archives.add(archived)

    def _apply_branch(self, record: BranchRecord, tail: Segment) -> None:
        grants = Grants.stored(record.resources, record.capabilities)
        branch = self._branches.by_key(record.id.int)
        if branch is None:
            branch = Branch(
                self._as_session,
                record.name,
                tail=tail,
                system=record.system,
                grants=grants,
                id=record.id,
                created_at=clock.to_datetime(record.created),
                metadata=record.metadata,
            )
            self._branches._insert(branch)
            self._branches_by_name[record.name] = branch
        elif branch.version != record.version or branch._tail is not tail:
            branch._tail, branch._system, branch._grants = tail, record.system, grants
            branch._changed()
        branch.version = record.version

    arefresh = async_method(refresh)

    def _create_branch(
        self,
        name: str,
        tail: Segment,
        system: Message | UUID | None,
        grants: Grants,
        metadata: Mapping[str, Any] | None = None,
        id: UUID | None = None,
        messages: Sequence[Message] = (),
        source_version: int | None = None,
    ) -> Branch:
        """Create a branch, together with its system message and messages that are new.

        Raises ExistsError if the name is taken, and ConflictError if the source of the fork no
        longer has `source_version`.
        """
        branch, new_messages = self._draft_branch(
            name, tail, system, grants, metadata, id, messages
        )
        if self._repository is not None:
            try:
                self._repository.write(_creation_changes(branch, new_messages, source_version))
            except (ExistsError, ConflictError):
                self.refresh()  # another process took the name or changed the source
                raise
        self._insert_branch(branch, new_messages)
        if messages and self._repository is not None:
            self._was_kept(messages, [branch])
        return branch

    async def _acreate_branch(
        self,
        name: str,
        tail: Segment,
        system: Message | UUID | None,
        grants: Grants,
        metadata: Mapping[str, Any] | None = None,
        messages: Sequence[Message] = (),
        source_version: int | None = None,
        lease: LeaseTerms | None = None,
    ) -> Branch:
        """Create a branch for async callers; concurrent calls share one group commit.

        A `lease` for the first run is acquired in the same write.
        """
        with self.lock:
            branch, new_messages = self._draft_branch(
                name, tail, system, grants, metadata, None, messages
            )
        if self._repository is None:
            with self.lock:
                self._as_session._check_name_free(name)
                self._insert_branch(branch, new_messages)
            return branch

        changes = _creation_changes(branch, new_messages, source_version)
        if lease is not None:
            changes.append(TakeLease(branch.id, *lease))

        def apply(heads: list[BranchHead]) -> None:
            with self.lock:
                current = self._branches.by_key(branch.id.int)
                if current is None:  # no refresh has loaded it yet
                    current = branch
                    self._insert_branch(branch, new_messages)
                if lease is not None:
                    current.first_lease = FirstLease(lease, heads[-1], clock.monotonic())

        try:
            await self._repository.submit(tuple(changes), apply)
        except ExistsError:
            if len(self._branches) and name not in self._branches_by_name:
                await self.arefresh()  # another process took the name
            raise
        except ConflictError:
            await self.arefresh()
            raise
        with self.lock:
            loaded = self._branches.by_key(branch.id.int)
            result = branch if loaded is None else loaded  # an empty branch is falsy, like a list
        if messages:
            self._was_kept(messages, [result])
        return result

    def _draft_branch(
        self,
        name: str,
        tail: Segment,
        system: Message | UUID | None,
        grants: Grants,
        metadata: Mapping[str, Any] | None,
        id: UUID | None,
        messages: Sequence[Message],
    ) -> tuple[Branch, list[Message]]:
        """Return an unregistered branch, and those of its messages that the session lacks."""
        branch = Branch(
            self._as_session,
            name,
            tail=tail,
            system=system.id if isinstance(system, Message) else system,
            grants=grants,
            metadata=metadata,
            id=id,
        )
        candidates = (system, *messages) if isinstance(system, Message) else messages
        return branch, [message for message in candidates if message not in self._messages]

    def _insert_branch(self, branch: Branch, new_messages: Sequence[Message]) -> None:
        self._bump_generation()
        for message in new_messages:
            if message not in self._messages:
                self._messages._insert(message)
        self._branches._insert(branch)
        self._branches_by_name[branch.name] = branch

    def _discard_branch(self, branch: Branch) -> None:
        self._branches._discard(branch)
        del self._branches_by_name[branch.name]
        self._run_log.forget_branch(branch.id)


def _creation_changes(
    branch: Branch, new_messages: Sequence[Message], source_version: int | None
) -> list[Change]:
    """Return the changes that create a branch with its new messages."""
    tail = branch._tail
    record = branch_record(branch, tail, branch._system, branch._grants)
    changes: list[Change] = (
        [AddMessages(tuple(map(message_record, new_messages)))] if new_messages else []
    )
    return [*changes, AddBranch(record, segment_record(tail), source_version)]
