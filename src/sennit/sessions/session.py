"""A session: all the messages of a conversation, once, and the branches through them.

SessionCore knows messages and branches and nothing above them; the public Session of `sennit.api`
is this class plus doors to the rooms above. One lock guards all changes. A change is checked whole
before any of it is made, so that whatever is refused leaves no trace.
"""

# A session is the one friend that may change its branches and piles past their guards.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    Self,
    SupportsIndex,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)
from uuid import UUID

from sennit import clock
from sennit.containers.element import Ref, checked_name, key_of
from sennit.containers.flow import Flow
from sennit.containers.pile import Pile
from sennit.containers.progression import Progression
from sennit.errors import (
    ExistsError,
    InvalidTypeError,
    NotFoundError,
    OutOfRangeError,
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
from sennit.sessions.keeper import Keeper
from sennit.sessions.kept import Kept
from sennit.sessions.piles import RAISE, BranchPile, MessagePile
from sennit.sessions.segments import Segment, erase
from sennit.sessions.twins import async_twin
from sennit.stores.records import RemoveBranch, RemoveMessages, SessionRecord

if TYPE_CHECKING:
    from sennit.services.registry import ServiceRegistry

BranchRef: TypeAlias = Branch | UUID | str
Branches: TypeAlias = BranchRef | Iterable[BranchRef]
_Default = TypeVar("_Default")

DEFAULT_BRANCH = "main"
ASSISTANT = "assistant"
"""Who sends what a model says, unless told otherwise."""
_FORK_NUMBER = re.compile(r"_fork_\d+$")


class SessionCore(Kept):
    """Messages, and branches through them. Safe to use from many threads."""

    def __init__(
        self,
        user: SenderRecipient = "user",
        conversations: Flow[Message, Progression] | None = None,
        services: ServiceRegistry | None = None,
        *,
        agent: SenderRecipient = ASSISTANT,
        id: UUID | str | None = None,
        created_at: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """`user` and `agent` send what is added by role; each of `conversations` becomes a branch.

        `services` are the models and tools it may call, by default a registry of its own.
        """
        super().__init__(id=id, created_at=created_at, metadata=metadata)
        self._services = None if services is None else service_registry(services)
        self._user, self._agent = party(user, "user"), party(agent, "agent")
        self._numbers: dict[str, int] = {}
        if conversations is not None:
            self._take_over(conversations)

    @classmethod
    def opened(cls, record: SessionRecord, keeper: Keeper, **given: Any) -> Self:
        """The session a store has, as it is now; `given` is what no store keeps, its services."""
        session = cls(id=record.id, **given)
        session._keep(record, keeper)
        return session

    def _keep(self, record: SessionRecord, keeper: Keeper) -> None:
        """Be the session that a store has, from now on."""
        self._key, self._keeper = record.key, keeper
        self._user = party(record.user, "user")
        self._created, self._metadata = record.created, MappingProxyType(record.metadata)
        self._absorb(keeper.load(), {})

    @property
    def key(self) -> str | None:
        """The name it was opened by, if it has one."""
        return self._key

    @property
    def user(self) -> SenderRecipient:
        """The sender of what is added with the role "user"."""
        return self._user

    @property
    def agent(self) -> SenderRecipient:
        """The sender of what is added with the role "assistant", and of what models reply."""
        return self._agent

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
    def services(self) -> ServiceRegistry:
        """The models and tools it may call, by name."""
        with self.lock:
            if self._services is None:
                self._services = service_registry(None)
            return self._services

    async def request(self, name: str, /, *, branch: BranchRef | None = None, **given: Any) -> Any:
        """Call one service, low-level: nothing is stored, no turn is run.

        A tool takes its arguments and gives its result. A model takes `messages`, and if you like
        `tools`, `output` and the parameters of `sennit.services.params.PARAMS`, and gives a Reply.
        Without a branch, nothing asks whether it is granted. With one, raises AccessError unless
        the service, the tools and the output are. Raises NotFoundError, ToolError, ModelError.
        """
        from sennit.sessions.request import ask_service

        found = None if branch is None else self.get_branch(branch)
        return await ask_service(self, name, found, given)

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

            def make(chosen: str) -> Branch:
                tail = Segment(kept=self._keeper is not None)
                return self._new_branch(chosen, tail, kept, grants)

            return self._under_a_name(name, "branch", make)

    @overload
    def get_branch(self, branch: BranchRef) -> Branch: ...
    @overload
    def get_branch(self, branch: BranchRef, default: _Default) -> Branch | _Default: ...
    def get_branch(self, branch: BranchRef, default: Any = RAISE) -> Any:
        """The branch with that id or name; raises NotFoundError unless there is a default."""
        with self.lock:
            if isinstance(branch, Branch):
                found = branch if self._branches.by_key(branch.id.int) is branch else None
            elif isinstance(branch, str) and branch in self._named:
                found = self._named[branch]
            else:
                key = key_of(branch)
                found = None if key is None else self._branches.by_key(key)
        if found is not None:
            return found
        if default is not RAISE:
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

    def get_branch_system(self, branch: BranchRef) -> Message | None:
        """The branch's system message, if it has one."""
        return self.get_branch(branch).system

    def set_branch_system(self, branch: BranchRef, system: Message | UUID | None) -> None:
        """Give the branch this system message, or none; the history is not touched."""
        with self.lock:
            found, message = self.get_branch(branch), self._system_of(system)
            if message is None:
                found._set_system(None)
            else:
                self.place((message,), [found])

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
        said: Sequence[Message] = (),
    ) -> Branch:
        """A fork with the first `length` messages of the history, not counting the system message.

        What is `said` on it are new messages, kept together with it or not at all.
        """
        with self.lock:
            origin = {
                "branch_id": str(source.id),
                "branch_name": source.name,
                "created_at": clock.to_iso(source.created_us),
                "message_count": length + (source._system is not None),
            }

            def make(chosen: str) -> Branch:
                tail = source._tail.on_top(length, [message.id for message in said])
                metadata = {"forked_from": origin}
                return self._new_branch(chosen, tail, system, grants, metadata, said=said)

            # Forks of forks count on from the first name, or names would grow with each.
            stem = f"{_FORK_NUMBER.sub('', source.name)}_fork"
            return self._under_a_name(name, stem, make)

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

    def add_messages(
        self, messages: Iterable[Message], *, branches: Branches | None = None
    ) -> list[Message]:
        """Add several new messages in one step, all or none, in their order.

        Raises ExistsError if the session has one of them already.
        """
        with self.lock:
            new, targets = self._resolve_new(messages, branches)
            if new:
                self.place(new, targets)
        return new

    async def aadd_messages(
        self, messages: Iterable[Message], *, branches: Branches | None = None
    ) -> list[Message]:
        """`add_messages` for async callers: many at once share one wait for the disk."""
        with self.lock:
            new, targets = self._resolve_new(messages, branches)
        if new:
            await self._aplace(new, targets)
        return new

    def _resolve_new(
        self, messages: Iterable[Message], branches: Branches | None
    ) -> tuple[list[Message], list[Branch]]:
        new: dict[int, Message] = {}
        for message in messages:
            if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidTypeError(f"add_messages takes messages, got {shown(message)}.")
            if message.id.int in new or message in self._messages:
                raise ExistsError(f"The session already has message {message.id}.")
            new[message.id.int] = message
        return list(new.values()), self._targets(branches)

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
        senders = {"user": self._user, ASSISTANT: self._agent}
        group = split(cast("GroupRole", message), parts, sender=senders.get(message, message))
        if branches is None and self._begin_with(group.messages):
            return group, (), []
        targets = [self.default_branch] if branches is None else self._targets(branches)
        return group, group.messages, targets

    def _begin_with(self, messages: Sequence[Message]) -> bool:
        """Make the default branch with these on it, in one step; False if it is there already."""
        if DEFAULT_BRANCH in self._named:
            return False
        tail = Segment([one.id for one in messages], kept=self._keeper is not None)
        try:
            self._new_branch(DEFAULT_BRANCH, tail, None, NO_GRANTS, said=messages)
        except ExistsError:  # another process was faster
            return False
        return True

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
            self._log.forget_message(found.id)
            self._labels = {key: one for key, one in self._labels.items() if key[0] != found.id}
            return found

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

    def _under_a_name(self, name: str | None, stem: str, make: Callable[[str], Branch]) -> Branch:
        """Make a branch under `name`, or the next free automatic one.

        Another process may take an automatic name first; the store says so, and we take the next.
        """
        while True:
            chosen = self._free_name(name, stem)
            try:
                return make(chosen)
            except ExistsError:
                if name is not None or chosen not in self._named:
                    raise

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

    def _system_of(self, system: Any) -> Message | None:
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
        self.place(list(Pile(conversations.items, item_type=Message)), [])
        for progression in conversations.progressions:
            name = self._free_name(progression.name, "branch")
            tail = Segment(kept=self._keeper is not None)
            branch = self._new_branch(name, tail, None, NO_GRANTS, id=progression.id)
            branch.extend(list(progression))

    acreate_branch = async_twin(create_branch)
    afork = async_twin(fork)
    aremove_branch = async_twin(remove_branch)
    aremove_message = async_twin(remove_message)
    aset_branch_system = async_twin(set_branch_system)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise InvalidTypeError("A session cannot be copied or pickled; fork its branches instead.")

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({len(self._messages)} messages, "
            f"{len(self._branches)} branches, id={str(self._id)!r})"
        )


def service_registry(services: Any) -> ServiceRegistry:
    """The registry given, or a new one for None; raises InvalidTypeError for anything else."""
    from sennit.services.registry import registry_of  # with all that tools need: late

    return registry_of(services)
