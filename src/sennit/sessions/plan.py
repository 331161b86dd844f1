"""Plans: changes of a session, written to its repository and then applied in memory.

A plan is prepared under the session's lock, where everything is validated, so a refused plan has no
effect. The repository writes its changes and applies it in commit order: `write` for sync callers,
`submit` for async ones. If the store refuses a plan because another process was faster, the session
is refreshed, and a plan that does not depend on what has changed is prepared and written again.
"""

# Plans change branches and piles directly, bypassing their guards.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from uuid import UUID

from sennit import clock
from sennit.errors import ConflictError, ExistsError, NotFoundError, SennitError
from sennit.messages.blob_reference import OUTPUT_KEY, named_blobs
from sennit.messages.content import SystemContent
from sennit.messages.message import Message
from sennit.sessions.branch import Branch, FirstLease, LeaseTerms
from sennit.sessions.branches import DEFAULT_BRANCH
from sennit.sessions.forks import fork_metadata
from sennit.sessions.grants import UNFENCED, Grants
from sennit.sessions.records import branch_record, change_of, message_record, segment_record
from sennit.sessions.segments import Segment
from sennit.stores.records.sessions import (
    AddBranch,
    AddMessages,
    Append,
    BranchHead,
    Change,
    ChangeBranch,
    TakeLease,
)

if TYPE_CHECKING:
    from sennit.sessions.session import SessionCore

_R = TypeVar("_R")
_FORK_NUMBER = re.compile(r"_fork_\d+$")


class Plan(Generic[_R]):
    """A change of a session, and its result."""

    messages: Sequence[Message] = ()
    """The messages that it appends."""
    blobs: tuple[bytes, ...] = ()
    """The blobs that they name, by hash."""
    branches: Sequence[Branch] = ()
    """The branches that it appends to."""
    refreshing: tuple[type[SennitError], ...] = (ConflictError, ExistsError)
    """The refusals that mean that another process has changed the session."""

    def __init__(
        self,
        session: SessionCore,
        result: _R,
        *extras: Change,
        on_written: Callable[[], object] | None = None,
    ) -> None:
        """Plan changes that a session without a store has to see, too.

        `on_written` updates memory; a refresh may have done so already.
        """
        self.session: SessionCore = session
        self.result: _R = result
        self.extras: Sequence[Change] = extras
        self._on_written = on_written

    def prepare(self) -> None:
        """Decide what to write, under the lock of the session, and again before each retry."""

    def changes(self) -> Sequence[Change]:
        """Return the changes of the store."""
        return self.extras

    def apply(self, heads: Sequence[BranchHead]) -> bool:  # noqa: ARG002
        """Update memory under the lock; return whether the store has more to read.

        Without a store there are no heads.
        """
        if self._on_written is not None:
            self._on_written()
        return False

    def can_retry(self) -> bool:
        """Return whether a refused plan can be prepared again, after a refresh."""
        return False

    def attachments(self) -> bool:
        """Return whether its messages may name blobs, which are stored before them."""
        return any(
            message.content.attachment_urls or OUTPUT_KEY in message.metadata
            for message in self.messages
        )

    def replace_messages(self, stored: Mapping[UUID, Message]) -> None:
        """Replace messages by their stored form, in which attachments are references to blobs."""
        self.messages = [stored.get(message.id, message) for message in self.messages]
        self.blobs = named_blobs(stored.values())

    def finish(self, heads: Sequence[BranchHead]) -> None:
        """Apply the written plan."""
        session = self.session
        with session.lock:
            session._generation += 1
            is_stale = self.apply(heads)
        if is_stale:
            session.refresh()

    def recover(self, error: SennitError) -> bool:
        """Refresh after a refusal, if it helps; return whether the plan is prepared again."""
        if not isinstance(error, self.refreshing):
            return False
        self.session.refresh()
        with self.session.lock:
            if not self.can_retry():
                return False
            self.prepare()
            return True


class AppendPlan(Plan[_R]):
    """Messages to append to branches that lack them, with the changes of a run.

    The first append to the default branch creates it. Appends submitted before that is committed
    follow it to the same branch; if another process was faster, all of them go to its branch.
    """

    _system: UUID | None = None
    """The new system message of each branch."""
    _is_default = False
    _draft: Branch | None = None
    """A default branch that is not stored yet."""
    _creates = False

    def __init__(
        self,
        session: SessionCore,
        result: _R,
        messages: Sequence[Message],
        branches: Sequence[Branch] | None,
        run_changes: Sequence[Change] = (),
    ) -> None:
        """Plan to append to branches, or with None to the default branch."""
        self.session, self.result = session, result
        self.messages, self.extras = messages, run_changes
        if branches is None:
            self._is_default = True
        else:
            self.branches = branches
        ids: list[UUID] = []
        for message in messages:
            if isinstance(message.content, SystemContent):
                self._system = message.id
            else:
                ids.append(message.id)
        self._ids = tuple(ids)

    def replace_messages(self, stored: Mapping[UUID, Message]) -> None:
        super().replace_messages(stored)
        self.result = _with_stored(self.result, stored)

    def prepare(self) -> None:
        if self._is_default:
            self.branches = self._default()

    def _default(self) -> Sequence[Branch]:
        session = self.session
        self._draft, self._creates = None, False
        if (main := session.branches.named.get(DEFAULT_BRANCH)) is not None:
            return [main]
        if session._pending_default is None:
            session._pending_default = session.branch_type(
                session, DEFAULT_BRANCH, tail=Segment(), system=None, grants=UNFENCED
            )
            self._creates = True
        self._draft = session._pending_default
        self.refreshing = (ConflictError, ExistsError, NotFoundError)
        return [self._draft]

    def changes(self) -> Sequence[Change]:
        changes: list[Change] = []
        if self._creates:
            changes += [add_branch(branch) for branch in self.branches]
        stored = self.session.messages
        if new := [message for message in self.messages if message.id not in stored]:
            changes.append(AddMessages(tuple([message_record(message) for message in new])))
        if self._ids:
            changes += [Append(branch.id, self._ids) for branch in self.branches]
        if self._system is not None:
            changes += [
                ChangeBranch(branch_record(branch, branch._tail, self._system, branch._grants))
                for branch in self.branches
            ]
        changes += self.extras
        return changes

    def apply(self, heads: Sequence[BranchHead]) -> bool:
        session = self.session
        for message in self.messages:
            session._messages._insert(message)
        if self._draft is not None:
            self.branches = [session.branches.include_draft(self._draft)]
            session._pending_default = None
        is_stale = False
        for number, branch in enumerate(self.branches):
            tail = branch._tail
            if not heads:
                tail.grow(self._ids)
            elif (head := heads[number]).segment.int == tail.id.int and head.length == len(tail):
                tail.grow(self._ids)
                is_stale = is_stale or head.version != branch._version
            else:
                is_stale = True
            if self._system is not None:
                branch._apply(tail, self._system, branch._grants)
        return is_stale

    def can_retry(self) -> bool:
        if self._draft is not None and self.session._pending_default is self._draft:
            self.session._pending_default = None
        return self._draft is not None


class BranchPlan(Plan[Branch]):
    """A branch to create, together with its system message and messages that are new.

    It has a given name, or the next free automatic one of a stem; then it is created under another
    one if another process has taken the first.
    """

    _new: Sequence[Message]

    def __init__(
        self,
        session: SessionCore,
        name: str | None,
        *,
        stem: str = "branch",
        tail: Segment | None = None,
        system: Message | UUID | None = None,
        grants: Grants = UNFENCED,
        metadata: Mapping[str, Any] | None = None,
        id: UUID | None = None,
        messages: Sequence[Message] = (),
        source_version: int | None = None,
        lease: LeaseTerms | None = None,
    ) -> None:
        """Plan a branch; it is refused if its source no longer has the `source_version`.

        A `lease` for its first run is acquired in the same write.
        """
        draft = session.branch_type(
            session,
            name or stem,
            tail=Segment() if tail is None else tail,
            system=system.id if isinstance(system, Message) else system,
            grants=grants,
            metadata=metadata,
            id=id,
        )
        super().__init__(session, draft)
        self.messages, self.branches = messages, [draft]
        self._name, self._stem = name, stem
        self._system = [system] if isinstance(system, Message) else []
        self._source_version, self._lease = source_version, lease

    def prepare(self) -> None:
        session = self.session
        self.result._name = session.branches.free_name(self._name, self._stem)
        self._new = [
            message
            for message in (*self._system, *self.messages)
            if message not in session.messages
        ]

    def changes(self) -> Sequence[Change]:
        changes: list[Change] = [add_branch(self.result, self._source_version)]
        if self._new:
            changes.insert(0, AddMessages(tuple(map(message_record, self._new))))
        if self._lease is not None:
            changes.append(TakeLease(self.result.id, *self._lease))
        return changes

    def apply(self, heads: Sequence[BranchHead]) -> bool:
        for message in self._new:
            self.session.messages._insert(message)
        self.result = self.session.branches.include_draft(self.result)
        if self._lease is not None and heads:
            self.result._first_lease = FirstLease(self._lease, heads[-1], clock.monotonic())
        return False

    def can_retry(self) -> bool:
        return self._name is None and self.result.name in self.session.branches.named


def fork_plan(
    source: Branch,
    length: int,
    *,
    name: str | None,
    grants: Grants,
    system: Message | UUID | None,
    messages: Sequence[Message] = (),
    lease: LeaseTerms | None = None,
) -> BranchPlan:
    """Return the plan of a fork after `length` messages, not counting the system message.

    New `messages` are appended to it, and a `lease` for its first run is acquired, in the same
    write.
    """
    return BranchPlan(
        source.session,
        name,
        stem=f"{_FORK_NUMBER.sub('', source.name)}_fork",  # also of a fork of a fork
        tail=source._tail.fork(length, [message.id for message in messages]),
        system=system,
        grants=grants,
        metadata=fork_metadata(source, length),
        messages=messages,
        source_version=source._version,
        lease=lease,
    )


async def fork_history(
    source: Branch,
    length: int,
    *,
    system: Message | UUID | None,
    lease: LeaseTerms | None = None,
) -> Branch:
    """Fork with the grants of the source; see `fork_plan`.

    Raises ConflictError if another process has changed the history since the last refresh.
    """
    session = source.session
    with session.lock:
        plan = fork_plan(
            source, length, name=None, grants=source._grants, system=system, lease=lease
        )
    return await session._repository.submit(plan)


class BranchUpdate(Plan[None]):
    """Another history, system message or grants of a branch."""

    def __init__(self, branch: Branch, tail: Segment, system: UUID | None, grants: Grants) -> None:
        super().__init__(branch.session, None)
        self._branch, self._tail, self._system, self._grants = branch, tail, system, grants

    def changes(self) -> Sequence[Change]:
        record = branch_record(self._branch, self._tail, self._system, self._grants)
        return [change_of(record, self._branch._tail, self._tail)]

    def apply(self, heads: Sequence[BranchHead]) -> bool:  # noqa: ARG002
        self._branch._apply(self._tail, self._system, self._grants)
        return False


def _with_stored(result: Any, stored: Mapping[UUID, Message]) -> Any:
    """Return the result of adding messages with their stored form."""
    if isinstance(result, Message):
        return stored.get(result.id, result)
    if isinstance(result, list):
        return [_with_stored(item, stored) for item in cast("list[Any]", result)]
    if result is None:
        return None
    from sennit.messages.parts import MessageGroup  # slow to import

    group = cast("MessageGroup", result)
    return MessageGroup.of([stored.get(message.id, message) for message in group.messages])


def add_branch(branch: Branch, source_version: int | None = None) -> AddBranch:
    """Return the change that adds a branch, if its source has a version."""
    tail = branch._tail
    record = branch_record(branch, tail, branch._system, branch._grants)
    return AddBranch(record, segment_record(tail), source_version)
