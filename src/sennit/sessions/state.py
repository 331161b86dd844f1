"""In-memory state of a session, written through to its store.

Every change takes the same way: the store first, if there is one, then memory. What others have
written meanwhile is noticed when the store answers, and taken in. Memory is read and changed under
the session's lock, which event loops take as well: what they ask for, and what only reads, does not
hold it while it waits for the store. Callers check before they come here.
"""

# A session is the one friend that may change its branches and piles past their guards.
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
    message_record,
    segment_record,
    segments_from,
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


_TRIES = 3  # to read while others go on

_FEW = 64  # messages that are encoded on an event loop; more are in a thread


class SessionData(Element):
    """Messages and branches in memory, and the same in a store where there is one."""

    def __init__(
        self,
        *,
        id: UUID | str | None = None,
        created_at: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(id=id, created_at=created_at, metadata=metadata)
        self.lock = RLock()
        self._messages = MessagePile(self._whole)
        self._branches = BranchPile(self._whole)
        self._named: dict[str, Branch] = {}
        self._keeper: SessionRepository | None = None
        self._key: str | None = None
        self._coming: Branch | None = None  # the default branch, until it is in the store
        self._elsewhere: UUID | None = None  # the one that another program was faster to begin
        self._labels: dict[tuple[UUID, str], LabelRecord] = {}
        self._archives = ArchiveIndex()
        self._seen: int | None = None  # the last write that was taken in

    @cached_property
    def _conversations(self) -> Conversations:
        """All of it as a flow; few ask for that."""
        return Conversations(self._messages, self._branches, self._named)

    @cached_property
    def _log(self) -> RunLog:
        """The run log of a session without a store."""
        from sennit.stores.in_memory.runs import RunLog

        return RunLog()

    def _starts(self, messages: Sequence[UUID] | None = None) -> dict[UUID, int]:
        """Count the starts of these tool calls, or of all; those never started are left out."""
        keeper = self._keeper
        if keeper is not None:
            return keeper.store.starts(keeper.owner, keeper.session, messages)
        with self.lock:
            found = self._log.starts
            named = found if messages is None else messages
            return {uid: found[uid] for uid in named if uid in found}

    def _put_starts(self, starts: Mapping[UUID, int]) -> None:
        """Take over how often tool calls were started elsewhere."""
        if not starts:
            return
        if self._keeper is None:
            self._log.starts.update(starts)
        else:
            self._keeper.write([PutStarts(tuple(starts.items()))])

    @property
    def keeper(self) -> SessionRepository | None:
        """Its line to the store; None if it lives in memory alone."""
        return self._keeper

    @property
    def archives(self) -> ArchiveIndex:
        """The entries that commits cover, as of the last refresh."""
        return self._archives

    def note_archive(self, made: ArchiveRecord) -> None:
        """Know of a commit that was just made here; a refresh would tell the same."""
        with self.lock:
            self._moved()
            self._archives.take([made])

    def _moved(self) -> None:
        """Note that something changes in memory; under the lock."""
        if self._keeper is not None:
            self._keeper.edition += 1

    @property
    def _whole(self) -> SessionCore:
        return cast("SessionCore", self)

    def place(self, messages: Sequence[Message], branches: Sequence[Branch]) -> None:
        """Keep messages and put them at the end of branches that lack them: store, then memory."""
        if self._keeper is None:
            for message in messages:
                self._place_in_memory(message, branches)
            return
        placement = AppendPlan.of(messages, branches, self._messages)
        try:
            heads = self._keeper.write(placement.changes)
        except ConflictError:
            self.refresh()
            raise
        if self._apply(placement, heads):
            self.refresh()
        self._was_kept(messages, branches)

    def _was_kept(self, messages: Sequence[Message], branches: Sequence[Branch]) -> None:
        """Called when messages have been kept in a store at the end of branches."""

    def _place_in_memory(self, message: Message, branches: Sequence[Branch]) -> None:
        self._messages._insert(message)
        for branch in branches:
            if isinstance(message.content, SystemContent):
                branch._set_system(message.id)
            else:
                branch._tail.append(message.id)

    async def _aplace(
        self,
        messages: Sequence[Message],
        branches: Sequence[Branch],
        also: Sequence[PutRun | AddEvents] = (),
    ) -> None:
        """The same, without blocking the caller's loop, together with what a run has to note."""
        if self._keeper is None:
            with self.lock:
                self._log.check(also)
                self.place(messages, branches)
                for change in also:
                    self._log.apply(change)
            return
        with self.lock:
            placement = AppendPlan.of(messages, branches, self._messages)
        if len(messages) > _FEW and not also:
            import asyncio  # takes long, and only async callers need it

            changes = await asyncio.to_thread(getattr, placement, "changes")
        else:
            changes = placement.changes

        def apply(heads: list[BranchHead]) -> None:
            with self.lock:
                stale = self._apply(placement, heads)
            if stale:
                self.refresh()

        try:
            await self._keeper.submit((*changes, *also), apply)
        except ConflictError:
            await self.arefresh()
            raise
        self._was_kept(messages, branches)

    def _apply(self, placement: AppendPlan, heads: list[BranchHead]) -> bool:
        """Have in memory what the store has; True if others put more there, which is to be read."""
        self._moved()
        for message in placement.new:
            self._messages._insert(message)
        stale = False
        for branch, head in zip(placement.branches, heads, strict=False):
            tail = branch._tail
            if head.segment.int == tail.id.int and head.length == len(tail):
                tail.grow(placement.ids)
                stale = stale or head.version != branch.version
            else:
                stale = True
        if placement.system is not None:
            for branch in placement.branches:
                branch._note_system(placement.system)
        return stale

    async def _achange(self, change: Change, apply: Callable[[], None]) -> None:
        """Make a change durable without blocking the caller's loop, then have it in memory."""

        def done(_heads: list[BranchHead]) -> None:
            with self.lock:
                self._moved()
                apply()

        if self._keeper is None:
            done([])
        else:
            await self._keeper.submit((change,), done)

    def keep_branch(
        self, branch: Branch, tail: Segment, system: UUID | None, grants: Grants
    ) -> None:
        """Make a change of a branch durable; raises ConflictError if someone else was faster."""
        if self._keeper is None:
            return
        record = branch_record(branch, tail, system, grants)
        try:
            self._keeper.write([change_of(record, branch._tail, tail)])
        except ConflictError:
            self.refresh()
            raise
        branch.version += 1

    def _keep_name(self, branch: Branch, name: str) -> None:
        """Have a branch go by another name: store, then memory."""
        if self._keeper is not None:
            try:
                self._keeper.write([RenameBranch(branch.id, name)])
            except ExistsError:
                self.refresh()  # someone else took the name
                raise
        self._rename({branch: name})

    def _rename(self, names: dict[Branch, str]) -> None:
        """Know branches by other names, all at once: they may have swapped theirs."""
        self._moved()
        for branch in names:
            self._named.pop(branch.name, None)
        for branch, name in names.items():
            branch._name = name
            self._named[name] = branch

    def refresh(self) -> None:
        """Take in what others have written to the store; without a store there is nothing to do."""
        if self._keeper is None:
            return
        for _ in range(_TRIES):
            if self._refreshed(self._keeper):
                return
        with self.lock:  # so much changes here that nobody else may have a turn
            self._refreshed(self._keeper)

    def _refreshed(self, keeper: SessionRepository) -> bool:
        """Read what is new and take it in; False if something changed here while it was read."""
        if keeper.last_write() == self._seen:
            return True
        with self.lock:
            edition, after = keeper.edition, self._archives.number
            known = {one.id: one for branch in self._branches for one, _ in branch._tail.chain()}
            sizes = {uid: len(one) for uid, one in known.items()}
            versions = {branch.id: branch.version for branch in self._branches}
        found = keeper.changes(sizes)
        stored = {one.id: one.version for one in found.branches}
        # Appends and new branches come as they are; after anything else all is read anew.
        anew = any(stored.get(uid) != version for uid, version in versions.items())
        if anew:
            known, after, found = {}, 0, keeper.load()
        archived = keeper.archived(after)
        with self.lock:
            if keeper.edition != edition:
                return False
            if anew:
                self._archives = ArchiveIndex()
                self._drop_messages_except({record.id.int for record in found.messages})
            self._absorb(found, known, archived)
        return True

    def _drop_messages_except(self, stored: set[int]) -> None:
        for message in self._messages:
            if message.id.int not in stored:
                self._messages._discard(message)

    def _absorb(
        self, found: Snapshot, known: dict[UUID, Segment], archived: Sequence[ArchiveRecord]
    ) -> None:
        """Be as the store says."""
        self._moved()
        self._seen = found.session.updated
        self._metadata = MappingProxyType(found.session.metadata)
        self._messages.take(found.messages)
        segments_from(found.segments, known)
        names = {record.id: record.name for record in found.branches}
        for branch in self._branches:
            if branch.id not in names:
                self._forget_branch(branch)
        self._rename({one: new for one in self._branches if (new := names[one.id]) != one.name})
        for record in found.branches:
            self._absorb_branch(record, known[record.segment])
        self._archives.take(archived)

    def _absorb_branch(self, record: BranchRecord, tail: Segment) -> None:
        grants = Grants.stored(record.resources, record.capabilities)
        branch = self._branches.by_key(record.id.int)
        if branch is None:
            branch = Branch(
                self._whole,
                record.name,
                tail=tail,
                system=record.system,
                grants=grants,
                id=record.id,
                created_at=clock.to_datetime(record.created),
                metadata=record.metadata,
            )
            self._branches._insert(branch)
            self._named[record.name] = branch
        elif branch.version != record.version or branch._tail is not tail:
            branch._tail, branch._system, branch._grants = tail, record.system, grants
            branch._changed()
        branch.version = record.version

    arefresh = async_method(refresh)

    def _new_branch(
        self,
        name: str,
        tail: Segment,
        system: Message | UUID | None,
        grants: Grants,
        metadata: Mapping[str, Any] | None = None,
        id: UUID | None = None,
        said: Sequence[Message] = (),
        source_version: int | None = None,
    ) -> Branch:
        """A branch, with its system message and those `said` on it where they are new too.

        Raises ConflictError if the branch that it is forked from has another version by now.
        """
        branch, new = self._drafted(name, tail, system, grants, metadata, id, said)
        if self._keeper is not None:
            self._keep_new_branch(self._keeper, branch, new, source_version)
        self._take_in(branch, new)
        if said and self._keeper is not None:
            self._was_kept(said, [branch])
        return branch

    async def _anew_branch(
        self,
        name: str,
        tail: Segment,
        system: Message | UUID | None,
        grants: Grants,
        metadata: Mapping[str, Any] | None = None,
        said: Sequence[Message] = (),
        source_version: int | None = None,
        lease: LeaseTerms | None = None,
    ) -> Branch:
        """The same for async callers: many at once share one wait for the disk.

        With `lease`, it is taken in the same write, for the first run there.
        """
        with self.lock:
            branch, new = self._drafted(name, tail, system, grants, metadata, None, said)
        if self._keeper is None:
            with self.lock:
                self._whole._refuse_taken(name)
                self._take_in(branch, new)
            return branch

        changes = _for_new_branch(branch, new, source_version)
        if lease is not None:
            changes.append(TakeLease(branch.id, *lease))

        def apply(heads: list[BranchHead]) -> None:
            with self.lock:
                found = self._branches.by_key(branch.id.int)
                if found is None:  # nobody has read it meanwhile
                    found = branch
                    self._take_in(branch, new)
                if lease is not None:
                    found.first_lease = FirstLease(lease, heads[-1], clock.monotonic())

        try:
            await self._keeper.submit(tuple(changes), apply)
        except ExistsError:
            if len(self._branches) and name not in self._named:
                await self.arefresh()  # of a session that is there: someone else took the name
            raise
        except ConflictError:
            await self.arefresh()
            raise
        with self.lock:
            known = self._branches.by_key(branch.id.int)
            found = branch if known is None else known  # an empty branch is falsy, like a list
        if said:
            self._was_kept(said, [found])
        return found

    def _drafted(
        self,
        name: str,
        tail: Segment,
        system: Message | UUID | None,
        grants: Grants,
        metadata: Mapping[str, Any] | None,
        id: UUID | None,
        said: Sequence[Message],
    ) -> tuple[Branch, list[Message]]:
        """A branch that nobody knows of yet, and those of its messages that are new."""
        branch = Branch(
            self._whole,
            name,
            tail=tail,
            system=system.id if isinstance(system, Message) else system,
            grants=grants,
            metadata=metadata,
            id=id,
        )
        given = (system, *said) if isinstance(system, Message) else said
        return branch, [message for message in given if message not in self._messages]

    def _take_in(self, branch: Branch, new: Sequence[Message]) -> None:
        self._moved()
        for message in new:
            if message not in self._messages:
                self._messages._insert(message)
        self._branches._insert(branch)
        self._named[branch.name] = branch

    def _keep_new_branch(
        self,
        keeper: SessionRepository,
        branch: Branch,
        new: Sequence[Message],
        source_version: int | None,
    ) -> None:
        """Make a new branch durable together with its new messages."""
        try:
            keeper.write(_for_new_branch(branch, new, source_version))
        except (ExistsError, ConflictError):
            self.refresh()  # someone else took the name, or changed the source
            raise

    def _forget_branch(self, branch: Branch) -> None:
        self._branches._discard(branch)
        del self._named[branch.name]
        self._log.forget_branch(branch.id)


def _for_new_branch(
    branch: Branch, new: Sequence[Message], source_version: int | None
) -> list[Change]:
    """Return the changes that create a branch with its new messages."""
    tail = branch._tail
    record = branch_record(branch, tail, branch._system, branch._grants)
    added: list[Change] = [AddMessages(tuple(map(message_record, new)))] if new else []
    return [*added, AddBranch(record, segment_record(tail), source_version)]
