"""A branch: an ordered list of messages in a session.

A branch is a progression of message ids without duplicates. It owns the segment it appends to and
shares the history below with other branches (see `segments`). Its system message comes first and is
not part of the shared history. Every change goes through the session: lock, validate, write.
"""

# A session keeps from users what this package shares.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    NamedTuple,
    SupportsIndex,
    cast,
    overload,
)
from uuid import UUID

from sennit.containers.element import Element, Ref, key_of, uid_of
from sennit.containers.progression import Progression
from sennit.errors import ExistsError, InvalidTypeError, NotFoundError, ValidationError
from sennit.messages.content import MessageContent, SystemContent
from sennit.messages.message import Message
from sennit.sessions.async_method import async_method, planned
from sennit.sessions.forks import ForkPoint, ForkStart, edit_start, fork_point, regeneration_start
from sennit.sessions.grants import (
    Capabilities,
    Grants,
    Needs,
    Resources,
    capability_names,
    check_access,
    resource_names,
)
from sennit.sessions.segments import Segment
from sennit.sessions.unarchived import UnarchivedView
from sennit.stores.records.sessions import BranchHead

if TYPE_CHECKING:
    from threading import RLock

    from sennit.sessions.plan import Plan
    from sennit.sessions.session import SessionCore


_SCAN_THRESHOLD = 8  # ids; from here on, one scan of the branch beats a lookup per id


class LeaseTerms(NamedTuple):
    """The holder of a lease, and its duration in microseconds."""

    holder: str
    ttl: int


class FirstLease(NamedTuple):
    """The lease that was acquired in the write that created a branch."""

    terms: LeaseTerms
    head: BranchHead
    """The head of the new branch, with the granted lease."""
    acquired_at: float
    """The time of the acquisition, in seconds of `clock.monotonic`."""


class Branch(Progression):
    """A line of messages; created by `create_branch`, `fork`, `edit` or `regenerate`."""

    __slots__ = (
        "_first_lease",
        "_grants",
        "_sent_prompt",
        "_session",
        "_system",
        "_tail",
        "_unarchived",
        "_version",
    )

    _session: SessionCore
    _tail: Segment
    _system: UUID | None
    _grants: Grants
    _version: int
    """The version of the branch record in the store, for optimistic locking."""
    _first_lease: FirstLease | None
    """The lease acquired on creation, until the first run takes it over."""
    _sent_prompt: Any
    """The prompt that a run of this process last sent, to be compared with the next one."""

    def __init__(
        self,
        session: SessionCore,
        name: str,
        *,
        tail: Segment,
        system: UUID | None,
        grants: Grants,
        id: UUID | None = None,
        created_at: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        # The ids are in the segments, so Progression.__init__ and its storage are skipped.
        Element.__init__(self, id=id, created_at=created_at, metadata=metadata)
        self._name = name
        self._guard = self._memo = None
        self._revision = 0
        self._session = session
        self._tail = tail
        self._system = system
        self._grants = grants
        self._unarchived: UnarchivedView | None = None
        self._version = 0
        self._first_lease = None
        self._sent_prompt = None

    @property
    def name(self) -> str:
        """The name, unique within the session."""
        return self._name

    @property
    def session(self) -> SessionCore:
        """The session this branch belongs to."""
        return self._session

    @property
    def lock(self) -> RLock:
        """The lock of its session."""
        return self._session.lock

    @property
    def messages(self) -> list[Message]:
        """The messages in order, the system message first."""
        return messages_from(self, 0)

    @property
    def system(self) -> Message | None:
        """The system message, if there is one."""
        with self._session.lock:
            return None if self._system is None else self._session.messages.get(self._system)

    @property
    def system_id(self) -> UUID | None:
        """The id of the system message, if there is one."""
        return self._system

    @property
    def current(self) -> Progression:
        """The messages that no commit covers, with the system message.

        Others may have committed since the last `session.refresh()`; every turn begins with one.
        """
        with self._session.lock:
            archives = self._session._archives
            if not archives.covering:
                return self
            if self._unarchived is None or not self._unarchived.is_current(archives):
                self._unarchived = UnarchivedView(self, archives)
            self._unarchived.catch_up()
            return self._unarchived

    @property
    def resources(self) -> frozenset[str]:
        """The registered services that this branch was granted."""
        return self._grants.resources

    @property
    def capabilities(self) -> frozenset[str]:
        """The output schemas that this branch was granted."""
        return self._grants.capabilities

    @property
    def fenced(self) -> bool:
        """True once any grants were set, even empty ones; then passed objects need a grant, too."""
        return self._grants.fenced

    def grant(
        self, *, resources: Resources | None = None, capabilities: Capabilities | None = None
    ) -> None:
        """Allow more services or output schemas; from then on the branch is fenced."""
        more = Grants.given(resources, capabilities)
        with self._session.lock:
            self._check_attached()
            self._regrant(self._grants.plus(more))

    def revoke(
        self, *, resources: Resources | None = None, capabilities: Capabilities | None = None
    ) -> None:
        """Revoke services or output schemas; names that were not granted are ignored.

        The branch is fenced from then on. Raises ValidationError for single names where all ("*")
        were granted.
        """
        less = Grants.given(resources, capabilities)
        with self._session.lock:
            self._check_attached()
            self._regrant(self._grants.minus(less))

    agrant: Final = async_method(grant)
    arevoke: Final = async_method(revoke)

    def _regrant(self, grants: Grants) -> None:
        if grants != self._grants:  # programs repeat their grants at every start
            self._update(grants=grants)

    def require(
        self, *, resources: Resources | None = None, capabilities: Capabilities | None = None
    ) -> None:
        """Raise AccessError unless all of these services and output schemas are granted."""
        check_access(self, Needs(resource_names(resources), capability_names(capabilities)))

    def may_use(self, service: str) -> bool:
        """Return whether a registered service is granted."""
        return self._grants.allow_service(service)

    @property
    def forked_from(self) -> ForkPoint | None:
        """The fork point, if this branch is a fork."""
        return fork_point(self)

    def lineage(self) -> tuple[ForkPoint, ...]:
        """Return the fork points of all ancestors, nearest first."""
        points: list[ForkPoint] = []
        branch: Branch | None = self
        while branch is not None and (origin := branch.forked_from) is not None:
            points.append(origin)
            branch = self._session.get_branch(origin.branch_id, None)
        return tuple(points)

    def rename(self, name: str) -> None:
        """Rename this branch; see `session.rename_branch`."""
        self._session.rename_branch(self, name)

    async def arename(self, name: str) -> None:
        """`rename` for async callers."""
        await self._session.arename_branch(self, name)

    def fork(
        self,
        *,
        at: Ref | int | None = None,
        name: str | None = None,
        capabilities: Capabilities | Literal[True] | None = None,
        resources: Resources | Literal[True] | None = None,
        system: Message | UUID | str | Literal[True] | None = None,
    ) -> Branch:
        """Fork this branch; see `session.fork`."""
        return self._session.fork(
            self, at=at, name=name, capabilities=capabilities, resources=resources, system=system
        )

    async def afork(
        self,
        *,
        at: Ref | int | None = None,
        name: str | None = None,
        capabilities: Capabilities | Literal[True] | None = None,
        resources: Resources | Literal[True] | None = None,
        system: Message | UUID | str | Literal[True] | None = None,
    ) -> Branch:
        """`fork` for async callers."""
        return await self._session.afork(
            self, at=at, name=name, capabilities=capabilities, resources=resources, system=system
        )

    @planned
    def edit(
        self,
        message: Ref | int,
        content: MessageContent | Mapping[str, Any] | str,
        *,
        name: str | None = None,
    ) -> Plan[Branch]:
        """Fork before `message` and append it with another `content`.

        A string replaces the text and keeps the rest of the content. The fork keeps the system
        message and the grants. Editing the system message keeps the whole history.
        """
        return self._plan_fork(edit_start(self, self._get_message(message), content), name)

    @planned
    def regenerate(self, message: Ref | int, *, name: str | None = None) -> Plan[Branch]:
        """Fork before an assistant's `message`, ready for another reply."""
        return self._plan_fork(regeneration_start(self, self._get_message(message)), name)

    aedit: Final = async_method(edit)
    aregenerate: Final = async_method(regenerate)

    def _plan_fork(self, start: ForkStart, name: str | None) -> Plan[Branch]:
        from sennit.sessions.plan import fork_plan  # which imports this module

        return fork_plan(
            self,
            start.length,
            name=name,
            grants=self._grants,
            system=start.system,
            messages=start.messages,
        )

    def _check_attached(self) -> None:
        self._session.get_branch(self)

    def _get_message(self, ref: Ref | int) -> Message:
        self._check_attached()
        uid = self[ref] if isinstance(ref, int) else uid_of(ref)
        if uid not in self:
            raise NotFoundError(f"Branch {self.name!r} does not contain message {uid}.")
        return self._session.messages.get(uid)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise InvalidTypeError(
            f"Branch {self.name!r} belongs to its session and cannot be copied; use fork()."
        )

    def __len__(self) -> int:
        return self._tail.total + (self._system is not None)

    def __iter__(self) -> Iterator[UUID]:
        """Iterate over a snapshot of the ids, the system message's first."""
        return iter(self[:])

    def __contains__(self, ref: object) -> bool:
        """Return whether the message, its id or the id as a string is on this branch."""
        if not isinstance(ref, UUID):
            if (key := key_of(ref)) is None:
                return False
            ref = UUID(int=key)
        with self._session.lock:
            return self._is_system(ref) or self._tail.position(ref) is not None

    @overload
    def __getitem__(self, key: SupportsIndex) -> UUID: ...
    @overload
    def __getitem__(self, key: slice) -> list[UUID]: ...
    def __getitem__(self, key: SupportsIndex | slice) -> UUID | list[UUID]:
        """Return the id at an index, or the ids in a slice; raises OutOfRangeError."""
        with self._session.lock:
            if not isinstance(key, slice):
                return self._at(self._position(key))
            indices = self._slice_range(key)
            if indices.step != 1:
                return self[:][key]
            start, stop = indices.start, indices.stop
            first = 1 if self._system is not None else 0
            ids = self._tail.between(max(start - first, 0), stop - first)
            return [cast("UUID", self._system), *ids] if start < first <= stop else ids

    def index(self, ref: Ref, start: int = 0, stop: int | None = None) -> int:
        """Return the index of a message; raises NotFoundError if it is not in [start, stop)."""
        uid = uid_of(ref)
        with self._session.lock:
            if self._is_system(uid):
                index = 0
            else:
                position = self._tail.position(uid)
                index = -1 if position is None else position + (self._system is not None)
            bounds = self._slice_range(slice(start, stop))
            low, high = bounds.start, bounds.stop
            if low <= index < high:
                return index
        raise NotFoundError(f"Branch {self.name!r} does not contain message {uid} there.")

    def append(self, ref: Ref) -> None:
        """Append one of the session's messages; a system message replaces the branch's own.

        Raises NotFoundError if the session has no such message, ExistsError if the branch has it.
        """
        self.extend([uid_of(ref)])

    aappend: Final = async_method(append)
    aextend: Final = async_method(Progression.extend)
    aremove: Final = async_method(Progression.remove)

    def reverse(self) -> None:
        """Reverse the order; the system message stays first."""
        first = 1 if self._system is not None else 0
        self._rewrite([*self[:first], *self[first:][::-1]], first)

    def _drop_erased(self, uid: UUID, segment_keys: set[int]) -> bool:
        """Update after a message was erased from segments; return whether it was on this branch."""
        if not self._is_system(uid) and self._tail.id.int not in segment_keys:
            return False
        if self._is_system(uid):
            self._system = None
        self._changed()
        return True

    def _is_system(self, uid: UUID) -> bool:
        return self._system is not None and self._system.int == uid.int

    def _admit(self, ids: Sequence[UUID]) -> None:
        messages = self._session.messages
        if unknown := [uid for uid in ids if uid not in messages]:
            raise NotFoundError(
                f"The session has no message {unknown[0]}; add it with session.add_message first."
            )
        keys = {uid.int for uid in ids}
        if len(ids) < _SCAN_THRESHOLD:
            duplicate = any(uid in self for uid in ids)
        else:
            duplicate = any(uid.int in keys for uid in self)
        if duplicate or len(keys) < len(ids):
            raise ExistsError(f"Branch {self.name!r} would contain a message twice.")
        contents = [messages.get(uid).content for uid in ids]
        if sum(isinstance(content, SystemContent) for content in contents) > 1:
            raise ValidationError(f"Branch {self.name!r} can have only one system message.")

    def _extend(self, ids: list[UUID]) -> None:
        self._session._append_messages(self._session.messages.pick(ids), [self])

    def _set_system(self, uid: UUID | None) -> None:
        self._update(system=uid, keep_system=False)

    def _apply(self, tail: Segment, system: UUID | None, grants: Grants) -> None:
        """Change the history, system message or grants in memory."""
        self._tail, self._system, self._grants = tail, system, grants
        self._version += 1
        self._changed()

    def _update(
        self,
        *,
        tail: Segment | None = None,
        system: UUID | None = None,
        keep_system: bool = True,
        grants: Grants | None = None,
    ) -> None:
        """Change the history, system message or grants, in the store and then in memory."""
        tail = self._tail if tail is None else tail
        system = self._system if keep_system else system
        grants = self._grants if grants is None else grants
        self._session._update_branch(self, tail, system, grants)

    def _at(self, index: int) -> UUID:
        if self._system is None:
            return self._tail.id_at(index)
        return self._system if index == 0 else self._tail.id_at(index - 1)

    def _drop(self, uid: UUID) -> bool:
        if self._is_system(uid):
            self._set_system(None)
            return True
        if self._tail.shared == 0 and not self._tail.stored and uid in self._tail:
            self._tail.remove(uid)  # unshared and unstored: no position needed
            self._changed()
            return True
        position = self._tail.position(uid)
        if position is not None:
            self._update(tail=self._tail.without(position))
        return position is not None

    def _delete(self, index: int) -> UUID:
        uid = self._at(index)
        if self._is_system(uid):
            self._set_system(None)
        else:
            self._update(tail=self._tail.without(index - (self._system is not None)))
        return uid

    def _rewrite(self, order: list[UUID], first: int) -> None:
        if len({uid.int for uid in order}) < len(order):
            raise ExistsError(f"Branch {self.name!r} would contain a message twice.")
        system = self._system
        if system is not None and system.int in {uid.int for uid in order}:
            if order[0].int != system.int:
                raise ValidationError("The system message of a branch stays first; it cannot move.")
            order, first = order[1:], max(first - 1, 0)
        else:
            first = max(first - (system is not None), 0)
            system = None
        if any(
            isinstance(self._session.messages.get(uid).content, SystemContent)
            for uid in order[first:]
        ):
            raise ValidationError(
                "A system message must come first; use append() or set_branch_system()."
            )
        tail = self._tail.rewrite_from(order[first:], first)
        self._update(tail=tail, system=system, keep_system=False)


def messages_from(branch: Branch, start: int) -> list[Message]:
    """Return the messages from index `start` on, read under the lock of the session."""
    session = branch.session
    with session.lock:
        return session.messages.pick(branch[start:])


def _under_lock(change: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(change)
    def locked(self: Branch, *args: Any, **kwargs: Any) -> Any:
        with self.session.lock:
            self.session.get_branch(self)  # raises if the branch was removed
            return change(self, *args, **kwargs)

    return locked


# Progression's methods take several steps; on a branch they are atomic to other threads.
for _name in (
    "__delitem__",
    "__setitem__",
    "append",
    "clear",
    "exclude",
    "extend",
    "include",
    "insert",
    "move",
    "pop",
    "popleft",
    "remove",
    "reverse",
    "swap",
):
    setattr(Branch, _name, _under_lock(getattr(Branch, _name)))
