"""A session: all the messages of a conversation, once, and the branches through them.

SessionCore knows messages and branches and nothing above them; the public Session of `sennit.api`
is this class plus doors to the rooms above. One lock guards all changes. A change is checked whole
before any of it is made, so that whatever is refused leaves no trace.
"""

# A session is the one friend that may change its branches and piles past their guards.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from threading import RLock
from typing import Any, Literal, Self, SupportsIndex, TypeAlias, TypeVar, cast, overload
from uuid import UUID

from sennit import clock
from sennit.containers.element import Element, Ref, checked_name, key_of
from sennit.containers.flow import Flow
from sennit.containers.pile import Pile
from sennit.containers.progression import Progression
from sennit.errors import (
    ConflictError,
    ExistsError,
    InvalidTypeError,
    NotFoundError,
    OutOfRangeError,
    ValidationError,
    shown,
)
from sennit.messages.content import SystemContent
from sennit.messages.message import Message, SenderRecipient, party
from sennit.messages.parts import GroupRole, MessageGroup, Part, split
from sennit.messages.plain import text
from sennit.sessions.access import (
    NO_GRANTS,
    Capabilities,
    Grants,
    Resources,
    capability_names,
    resource_names,
)
from sennit.sessions.branch import Branch
from sennit.sessions.keeper import (
    Keeper,
    branch_record,
    message_from,
    message_record,
    segment_record,
    segments_from,
)
from sennit.sessions.placement import Placement
from sennit.sessions.segments import Segment, erase
from sennit.sessions.twins import async_twin
from sennit.stores.records import (
    AddBranch,
    AddMessages,
    BranchRecord,
    Change,
    ChangeBranch,
    Head,
    RemoveBranch,
    RemoveMessages,
    SessionRecord,
    Snapshot,
)

BranchRef: TypeAlias = Branch | UUID | str
Branches: TypeAlias = BranchRef | Iterable[BranchRef]
_Default = TypeVar("_Default")
_RAISE: Any = object()

DEFAULT_BRANCH = "main"
_FORK_NUMBER = re.compile(r"_fork_\d+$")


class MessagePile(Pile[Message]):
    """The messages of a session, in the order they came; changes go through the session."""

    __slots__ = ("_session",)

    def __init__(self, session: SessionCore) -> None:
        super().__init__(item_type=Message)
        self._session = session

    def add(self, item: Message) -> None:
        """Store a message on no branch; raises ExistsError if its id is taken."""
        if not isinstance(item, Message):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise self._wrong_type(item)
        with self._session.lock:
            if item in self:
                raise ExistsError(f"The session already has message {item.id}.")
            self._session.add_message(item)

    def remove(self, ref: Ref) -> Message:
        """Take a message off all branches and out of the session; raises NotFoundError."""
        return self._session.remove_message(ref)

    def clear(self) -> None:
        """Take all messages off all branches and out of the session."""
        with self._session.lock:
            for message in self:
                self._session.remove_message(message)


class BranchPile(Pile[Branch]):
    """The branches of a session; changes go through the session."""

    __slots__ = ("_session",)

    def __init__(self, session: SessionCore) -> None:
        super().__init__(item_type=Branch)
        self._session = session

    def add(self, item: Branch) -> None:
        """Always refused: a branch is made by its session."""
        raise ValidationError(f"Cannot add {shown(item)}: use session.create_branch() or fork().")

    def __contains__(self, ref: object) -> bool:
        """Whether the branch, its id or its name is here."""
        return (isinstance(ref, str) and ref in self._session._named) or super().__contains__(ref)

    def get(self, ref: Any, default: Any = _RAISE) -> Any:
        """The branch with an id or a name, or the default; raises NotFoundError without."""
        return self._session.get_branch(ref, default)

    def by_key(self, key: int) -> Branch | None:
        """The branch with that id, as an int."""
        return self._items.get(key)

    def remove(self, ref: Ref) -> Branch:
        """Take a branch out of the session; its messages stay. Raises NotFoundError."""
        return self._session.remove_branch(cast("BranchRef", ref))

    def clear(self) -> None:
        """Take all branches out of the session; the messages stay."""
        with self._session.lock:
            for branch in self:
                self._session.remove_branch(branch)


class Conversations(Flow[Message, Branch]):
    """A session's messages and branches as a flow; they keep their own integrity."""

    __slots__ = ()

    def __init__(
        self, messages: MessagePile, branches: BranchPile, named: dict[str, Branch]
    ) -> None:
        Element.__init__(self)
        self._name = None
        self._items, self._progressions, self._named = messages, branches, named


class SessionCore(Element):
    """Messages, and branches through them. Safe to use from many threads."""

    def __init__(
        self,
        user: SenderRecipient = "user",
        conversations: Flow[Message, Progression] | None = None,
        *,
        id: UUID | str | None = None,
        created_at: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """`user` sends what is added by role; each of `conversations` becomes a branch."""
        super().__init__(id=id, created_at=created_at, metadata=metadata)
        self.lock = RLock()
        self._user = party(user, "user")
        self._messages = MessagePile(self)
        self._branches = BranchPile(self)
        self._named: dict[str, Branch] = {}
        self._numbers: dict[str, int] = {}
        self._conversations = Conversations(self._messages, self._branches, self._named)
        self._keeper: Keeper | None = None
        self._key: str | None = None
        if conversations is not None:
            self._take_over(conversations)

    @classmethod
    def opened(cls, record: SessionRecord, keeper: Keeper) -> Self:
        """The session a store has, as it is now."""
        session = cls(
            record.user,
            id=record.id,
            created_at=clock.to_datetime(record.created),
            metadata=record.metadata,
        )
        session._key, session._keeper = record.key, keeper
        session._absorb(keeper.load(), {})
        return session

    @property
    def key(self) -> str | None:
        """The name it was opened by, if it has one."""
        return self._key

    @property
    def user(self) -> SenderRecipient:
        """The sender of what is added with the role "user"."""
        return self._user

    @property
    def messages(self) -> MessagePile:
        """All messages, on a branch or not, by id."""
        return self._messages

    @property
    def branches(self) -> BranchPile:
        """All branches, by id."""
        return self._branches

    @property
    def conversations(self) -> Flow[Message, Branch]:
        """Messages and branches as a flow."""
        return self._conversations

    @property
    def default_branch(self) -> Branch:
        """The branch named "main", made when first needed."""
        with self.lock:
            found = self._named.get(DEFAULT_BRANCH)
            if found is not None:  # an empty branch is falsy, like a list
                return found
            try:
                return self.create_branch(DEFAULT_BRANCH)
            except ExistsError:  # another process was faster
                return self.get_branch(DEFAULT_BRANCH)

    def create_branch(
        self,
        name: str | None = None,
        *,
        system: Message | UUID | None = None,
        capabilities: Capabilities | None = None,
        resources: Resources | None = None,
    ) -> Branch:
        """A new, empty branch.

        `resources` and `capabilities` are sets of names it may use (`resources="*"`: all services).
        Raises ExistsError if the name is taken.
        """
        grants = Grants(resource_names(resources), capability_names(capabilities))
        with self.lock:
            kept = self._system_of(system)
            tail = Segment(kept=self._keeper is not None)
            return self._new_branch(self._free_name(name, "branch"), tail, kept, grants)

    @overload
    def get_branch(self, branch: BranchRef) -> Branch: ...
    @overload
    def get_branch(self, branch: BranchRef, default: _Default) -> Branch | _Default: ...
    def get_branch(self, branch: BranchRef, default: Any = _RAISE) -> Any:
        """The branch with that id or name; raises NotFoundError unless there is a default."""
        with self.lock:
            if isinstance(branch, Branch):
                found = branch if branch in self._branches and branch.session is self else None
            elif isinstance(branch, str) and branch in self._named:
                found = self._named[branch]
            else:
                key = key_of(branch)
                found = None if key is None else self._branches.by_key(key)
        if found is not None:
            return found
        if default is not _RAISE:
            return default
        raise self._no_branch(branch)

    def remove_branch(self, branch: BranchRef) -> Branch:
        """Take a branch out of the session; messages and other branches stay. NotFoundError."""
        with self.lock:
            found = self.get_branch(branch)
            if self._keeper is not None:
                self._keeper.write([RemoveBranch(found.id)])
            self._forget_branch(found)
            return found

    def _forget_branch(self, branch: Branch) -> None:
        self._branches._discard(branch)
        del self._named[branch.name]

    def get_branch_system(self, branch: BranchRef) -> Message | None:
        """The branch's system message, if it has one."""
        return self.get_branch(branch).system

    def set_branch_system(self, branch: BranchRef, system: Message | UUID | None) -> None:
        """Give the branch this system message, or none; the history is not touched."""
        with self.lock:
            found, message = self.get_branch(branch), self._system_of(system)
            if isinstance(message, Message) and message not in self._messages:
                self.place((message,), [])
            found._set_system(message.id if isinstance(message, Message) else message)

    def fork(
        self,
        branch: BranchRef,
        *,
        at: Ref | int | None = None,
        name: str | None = None,
        capabilities: Capabilities | Literal[True] | None = None,
        resources: Resources | Literal[True] | None = None,
        system: Message | UUID | Literal[True] | None = None,
    ) -> Branch:
        """A new branch that shares the history of another: the same cost at any length.

        It goes up to and including `at`, a message or an index (by default the last). True copies
        capabilities, resources or system message; None, the default, gives none.
        """
        with self.lock:
            source = self.get_branch(branch)
            grants = Grants(
                source.resources if resources is True else resource_names(resources),
                source.capabilities if capabilities is True else capability_names(capabilities),
            )
            kept = source._system if system is True else self._system_of(system)
            length = self._length_through(source, at)
            return self.fork_history(source, length, name=name, grants=grants, system=kept)

    def fork_history(
        self,
        source: Branch,
        length: int,
        *,
        name: str | None,
        grants: Grants,
        system: Message | UUID | None,
    ) -> Branch:
        """A fork with the first `length` messages of the history, which has no system message."""
        with self.lock:
            origin = {
                "branch_id": str(source.id),
                "branch_name": source.name,
                "created_at": clock.to_iso(clock.from_datetime(source.created_at)),
                "message_count": length + (source._system is not None),
            }
            # Forks of forks count on from the first name, or names would grow with each.
            chosen = self._free_name(name, f"{_FORK_NUMBER.sub('', source.name)}_fork")
            tail = source._tail.on_top(length)
            return self._new_branch(chosen, tail, system, grants, {"forked_from": origin})

    @overload
    def add_message(self, message: Message, *, branches: Branches | None = None) -> Message: ...
    @overload
    def add_message(
        self,
        message: GroupRole,
        parts: str | Part | Iterable[Part],
        branches: Branches | None = None,
    ) -> MessageGroup: ...
    def add_message(self, message: Any, parts: Any = None, branches: Any = None) -> Any:
        """Add a message to branches, or say something by role and parts.

        A Message is stored once and put at the end of the branches that lack it; without branches
        it is on none. Its id with another content raises ExistsError. A role ("user", "assistant")
        and parts go to the default branch unless told otherwise, and come back as a MessageGroup.
        """
        with self.lock:
            result, new, targets = self._resolve(message, parts, branches)
            if new:
                self.place(new, targets)
        return result

    @overload
    async def aadd_message(
        self, message: Message, *, branches: Branches | None = None
    ) -> Message: ...
    @overload
    async def aadd_message(
        self,
        message: GroupRole,
        parts: str | Part | Iterable[Part],
        branches: Branches | None = None,
    ) -> MessageGroup: ...
    async def aadd_message(self, message: Any, parts: Any = None, branches: Any = None) -> Any:
        """`add_message` for async callers: many at once share one wait for the disk."""
        with self.lock:
            result, new, targets = self._resolve(message, parts, branches)
        if new:
            await self._aplace(new, targets)
        return result

    def _resolve(
        self, message: Any, parts: Any, branches: Any
    ) -> tuple[Any, Sequence[Message], list[Branch]]:
        """What to give back, what to add, and where; all checked, nothing done."""
        if isinstance(message, Message):
            if parts is not None:
                raise InvalidTypeError("A Message has its parts already; name branches= instead.")
            return self._resolve_message(message, branches)
        if not isinstance(message, str):
            raise InvalidTypeError(
                f"add_message takes a Message, or a role and parts, got {shown(message)}."
            )
        sender = self._user if message == "user" else message
        group = split(cast("GroupRole", message), parts, sender=sender)
        targets = [self.default_branch] if branches is None else self._targets(branches)
        return group, group.messages, targets

    def _resolve_message(
        self, message: Message, branches: Branches | None
    ) -> tuple[Message, Sequence[Message], list[Branch]]:
        targets = self._targets(branches)
        stored = self._messages.get(message, None)
        if stored is None:
            return message, (message,), targets
        if stored is not message and not stored.content.says_the_same(message.content):
            raise ExistsError(
                f"The session already has message {message.id} with another content; "
                f"clone() it to get a new id."
            )
        lacking = [branch for branch in targets if stored.id not in branch]
        return stored, (stored,) if lacking else (), lacking

    def remove_message(self, message: Ref) -> Message:
        """Take a message off all branches and out of the session; raises NotFoundError."""
        with self.lock:
            found = self._messages.get(message)
            if self._keeper is not None:
                self._keeper.write([RemoveMessages((found.id,))])
            held = erase(found.id, (branch._tail for branch in self._branches))
            for branch in self._branches:
                branch._lose(found.id, held)
            self._messages._discard(found)
            return found

    def place(self, messages: Sequence[Message], branches: Sequence[Branch]) -> None:
        """Keep messages and put them at the end of branches that lack them: store, then memory."""
        if self._keeper is None:
            for message in messages:
                self._place_in_memory(message, branches)
            return
        placement = Placement.of(messages, branches, self._messages)
        self._apply(placement, self._keeper.write(placement.changes))

    def _place_in_memory(self, message: Message, branches: Sequence[Branch]) -> None:
        self._messages._insert(message)
        for branch in branches:
            if isinstance(message.content, SystemContent):
                branch._set_system(message.id)
            else:
                branch._tail.append(message.id)

    async def _aplace(self, messages: Sequence[Message], branches: Sequence[Branch]) -> None:
        """The same, without blocking the caller's loop."""
        if self._keeper is None:
            with self.lock:
                self.place(messages, branches)
            return
        with self.lock:
            placement = Placement.of(messages, branches, self._messages)

        def apply(heads: list[Head]) -> None:
            with self.lock:
                self._apply(placement, heads)

        await self._keeper.awrite(placement.changes, apply)

    def _apply(self, placement: Placement, heads: list[Head]) -> None:
        """Have in memory what the store has; what others put there meanwhile comes along."""
        for message in placement.new:
            self._messages._insert(message)
        stale = False
        for branch, head in zip(placement.branches, heads, strict=False):
            tail = branch._tail
            if head.segment == tail.id and head.length == len(tail):
                tail.extend(placement.ids)
                stale = stale or head.version != branch.version
            else:
                stale = True
        if stale:
            self.refresh()
        if placement.system is not None:
            for branch in placement.branches:
                branch._set_system(placement.system)

    def keep_branch(
        self, branch: Branch, tail: Segment, system: UUID | None, grants: Grants
    ) -> None:
        """Make a change of a branch durable; raises ConflictError if someone else was faster."""
        if self._keeper is None:
            return
        record = branch_record(branch, tail, system, grants)
        segment = None if tail is branch._tail else segment_record(tail)
        try:
            self._keeper.write([ChangeBranch(record, segment)])
        except ConflictError:
            self.refresh()
            raise
        branch.version += 1

    def refresh(self) -> None:
        """Take in what others have written to the store; without a store there is nothing to do."""
        with self.lock:
            if self._keeper is None:
                return
            known = {one.id: one for branch in self._branches for one, _ in branch._tail.chain()}
            found = self._keeper.changes({uid: len(one) for uid, one in known.items()})
            versions = {one.id: one.version for one in found.branches}
            # Appends and new branches come as they are; after anything else all is read anew.
            if any(versions.get(branch.id) != branch.version for branch in self._branches):
                known, found = {}, self._keeper.load()
                self._drop_messages_except({record.id.int for record in found.messages})
            self._absorb(found, known)

    def _drop_messages_except(self, stored: set[int]) -> None:
        for message in self._messages:
            if message.id.int not in stored:
                self._messages._discard(message)

    def _absorb(self, found: Snapshot, known: dict[UUID, Segment]) -> None:
        """Be as the store says."""
        for record in found.messages:
            if record.id not in self._messages:
                self._messages._insert(message_from(record))
        segments_from(found.segments, known)
        kept = {record.id for record in found.branches}
        for branch in self._branches:
            if branch.id not in kept:
                self._forget_branch(branch)
        for record in found.branches:
            self._absorb_branch(record, known[record.segment])

    def _absorb_branch(self, record: BranchRecord, tail: Segment) -> None:
        grants = Grants(record.resources, record.capabilities)
        branch = self._branches.by_key(record.id.int)
        if branch is None:
            branch = Branch(
                self,
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

    def _targets(self, branches: Branches | None) -> list[Branch]:
        if branches is None:
            return []
        if isinstance(branches, (Branch, UUID, str)):
            return [self.get_branch(branches)]
        if not isinstance(branches, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(
                f"branches must be a branch or a list of them, got {shown(branches)}."
            )
        found = [self.get_branch(branch) for branch in branches]
        return list({branch.id.int: branch for branch in found}.values())

    def _new_branch(
        self,
        name: str,
        tail: Segment,
        system: Message | UUID | None,
        grants: Grants,
        metadata: Mapping[str, Any] | None = None,
        id: UUID | None = None,
    ) -> Branch:
        branch = Branch(
            self,
            name,
            tail=tail,
            system=system.id if isinstance(system, Message) else system,
            grants=grants if grants.resources or grants.capabilities else NO_GRANTS,
            metadata=metadata,
            id=id,
        )
        if self._keeper is not None:
            self._keep_new_branch(self._keeper, branch, system)
        if isinstance(system, Message) and system not in self._messages:
            self._messages._insert(system)
        self._branches._insert(branch)
        self._named[name] = branch
        return branch

    def _free_name(self, name: str | None, stem: str) -> str:
        """`name` if it is free, or the next free automatic one."""
        if name is not None:
            chosen = text(checked_name(name), "A branch's name")
            if chosen in self._named:
                raise ExistsError(
                    f"There is already a branch named {chosen!r}; choose another name."
                )
            return chosen
        number = self._numbers.get(stem, 0) + 1
        while f"{stem}_{number}" in self._named:
            number += 1
        self._numbers[stem] = number
        return f"{stem}_{number}"

    def _system_of(self, system: Any) -> Message | UUID | None:
        """Check what is to become a system message; nothing is stored yet."""
        if system is None:
            return None
        named = not isinstance(system, Message) and key_of(system) is not None
        message = self._messages.get(system) if named else system
        if not isinstance(message, Message) or not isinstance(message.content, SystemContent):
            raise InvalidTypeError(
                f"A system message is a Message that holds a SystemContent, got {shown(system)}; "
                f"use Message(SystemContent(system_message=...))."
            )
        known = self._messages.get(message, message)
        if known is not message and not known.content.says_the_same(message.content):
            raise ExistsError(f"The session has message {message.id} with another content.")
        return message

    def _keep_new_branch(
        self, keeper: Keeper, branch: Branch, system: Message | UUID | None
    ) -> None:
        """Make a new branch durable, with its system message where that is new too."""
        changes: list[Change] = []
        if isinstance(system, Message) and system not in self._messages:
            changes.append(AddMessages((message_record(system),)))
        tail = branch._tail
        record = branch_record(branch, tail, branch._system, branch._grants)
        try:
            keeper.write([*changes, AddBranch(record, segment_record(tail))])
        except ExistsError:
            self.refresh()  # someone else took the name
            raise

    def _length_through(self, branch: Branch, at: Ref | int | None) -> int:
        """How many messages of the history come up to and including `at`."""
        if at is None:
            return branch._tail.total
        try:
            index = branch._position(at) if type(at) is int else branch.index(cast("Ref", at))
        except OutOfRangeError as error:
            raise OutOfRangeError(f"Cannot fork branch {branch.name!r} there. {error}") from None
        return index + (branch._system is None)

    def _no_branch(self, branch: object) -> NotFoundError:
        if isinstance(branch, Branch):
            return NotFoundError(
                f"Branch {branch.name!r} belongs to another session or was removed; "
                f"use a branch of this one."
            )
        names = ", ".join(map(repr, list(self._named)[:10])) or "none yet"
        return NotFoundError(f"No branch {branch!r} in this session; there are: {names}.")

    def _take_over(self, conversations: Flow[Message, Progression]) -> None:
        if not isinstance(conversations, Flow):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(f"conversations must be a Flow, got {shown(conversations)}.")
        for message in Pile(conversations.items, item_type=Message):
            self._messages._insert(message)
        for progression in conversations.progressions:
            name = self._free_name(progression.name, "branch")
            self._new_branch(name, Segment(), None, NO_GRANTS, id=progression.id)
            self._named[name].extend(list(progression))

    acreate_branch = async_twin(create_branch)
    afork = async_twin(fork)
    aremove_branch = async_twin(remove_branch)
    aremove_message = async_twin(remove_message)
    aset_branch_system = async_twin(set_branch_system)
    arefresh = async_twin(refresh)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise InvalidTypeError("A session cannot be copied or pickled; fork its branches instead.")

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({len(self._messages)} messages, "
            f"{len(self._branches)} branches, id={str(self._id)!r})"
        )
