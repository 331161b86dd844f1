"""The core of a session: messages stored once, and branches through them.

SessionCore knows messages and branches (`braid`) and nothing above them; the public Session of
`sennit.api` is this class plus doors to the rooms above. One lock guards all changes. A change is
checked whole before any of it is made, so that whatever is refused leaves no trace.
"""

# A session is the one friend that may change its branches and piles past their guards.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Self,
    SupportsIndex,
    cast,
    overload,
)
from uuid import UUID

from sennit.containers.element import Element, Ref
from sennit.containers.flow import Flow
from sennit.containers.pile import Pile
from sennit.errors import (
    ExistsError,
    InvalidTypeError,
    shown,
)
from sennit.messages.content import SystemContent
from sennit.messages.json_values import plain_dict
from sennit.messages.message import Message, SenderRecipient, party
from sennit.sessions.async_method import async_method
from sennit.sessions.branch import Branch
from sennit.sessions.branches import DEFAULT_BRANCH, Branches, BranchRef, BranchRegistry
from sennit.sessions.grants import (
    NEVER_GIVEN,
)
from sennit.sessions.repository import SessionRepository
from sennit.sessions.segments import Segment, erase
from sennit.sessions.views import Conversations
from sennit.stores.records.sessions import DescribeSession, RemoveMessages, SessionRecord

if TYPE_CHECKING:
    from sennit.messages.parts import GroupRole, MessageGroup, Part
    from sennit.services.registry import ServiceRegistry

ASSISTANT = "assistant"
"""Who sends what a model says, unless told otherwise."""


class SessionCore(BranchRegistry):
    """Messages, and branches through them. Safe to use from many threads."""

    def __init__(
        self,
        user: SenderRecipient = "user",
        conversations: Flow[Message, Any] | None = None,
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
        if conversations is not None:
            self._take_over(conversations)

    @classmethod
    def opened(cls, record: SessionRecord, keeper: SessionRepository, **given: Any) -> Self:
        """The session a store has, as it is now; `given` is what no store keeps, its services."""
        session = cls(id=record.id, **given)
        session._keep(record, keeper)
        return session

    def _keep(self, record: SessionRecord, keeper: SessionRepository) -> None:
        """Be the session that a store has, from now on."""
        self._key, self._keeper = record.key, keeper
        self._user = party(record.user, "user")
        self._created, self._metadata = record.created, MappingProxyType(record.metadata)
        self._absorb(keeper.load(), {}, keeper.archived(after=0))

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
    def services(self) -> ServiceRegistry:
        """The models and tools it may call, by name."""
        with self.lock:
            if self._services is None:
                self._services = service_registry(None)
            return self._services

    async def request(self, name: str, /, *, branch: BranchRef | None = None, **given: Any) -> Any:
        """Call one service, low-level: nothing is stored, no turn is run.

        A tool takes its arguments and gives its result. A model takes `messages`, and if you like
        `tools`, `output` and the parameters of `sennit.services.PARAMS`, and gives a Reply.
        Without a branch, nothing asks whether it is granted. With one, raises AccessError unless
        the service, the tools and the output are. Raises NotFoundError, ToolError, ModelError.
        """
        from sennit.sessions.service_call import ask_service

        found = None if branch is None else self.get_branch(branch)
        return await ask_service(self, name, found, given)

    @overload
    def add_message(self, message: Message, branch: Branches, /) -> Message: ...
    @overload
    def add_message(self, message: Message, *, branches: Branches | None = None) -> Message: ...
    @overload
    def add_message(
        self,
        message: GroupRole,
        parts: str | Part | Iterable[Part],
        branches: Branches | None = None,
    ) -> MessageGroup: ...
    @overload
    def add_message(
        self,
        *,
        role: GroupRole,
        parts: str | Part | Iterable[Part],
        branches: Branches | None = None,
    ) -> MessageGroup: ...
    @overload
    def add_message(
        self, message: Mapping[str, Any], *, branches: Branches | None = None
    ) -> MessageGroup: ...
    def add_message(
        self, message: Any = None, parts: Any = None, branches: Any = None, *, role: Any = None
    ) -> Any:
        """Add a message to branches, or say something by role and parts.

        A Message is stored once and put at the end of the branches that lack it; without branches
        it is on none. Its id with another content raises ExistsError. A role ("user", "assistant"
        or "system") and parts go to the default branch unless told otherwise, and come back as a
        MessageGroup; so does an OpenAI-style dict, `{"role": "user", "content": "Hello"}`. The role
        "system" sets the system message of the branch.
        """
        with self.lock:
            result, new, targets = self._resolve(message, parts, branches, role)
            if targets is None:
                is_system = isinstance(new[0].content, SystemContent)
                if not is_system and self._begin_with(new):
                    return result
                targets = [self.default_branch]
            if new:
                self.place(new, targets)
        return result

    @overload
    async def aadd_message(self, message: Message, branch: Branches, /) -> Message: ...
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
    @overload
    async def aadd_message(
        self,
        *,
        role: GroupRole,
        parts: str | Part | Iterable[Part],
        branches: Branches | None = None,
    ) -> MessageGroup: ...
    @overload
    async def aadd_message(
        self, message: Mapping[str, Any], *, branches: Branches | None = None
    ) -> MessageGroup: ...
    async def aadd_message(
        self, message: Any = None, parts: Any = None, branches: Any = None, *, role: Any = None
    ) -> Any:
        """`add_message` for async callers: many at once share one wait for the disk."""
        keeper = self._keeper
        if keeper is None:
            add: Any = self.add_message
            return add(message, parts, branches, role=role)
        with self.lock:
            result, new, targets = self._resolve(message, parts, branches, role)
        if targets is None and isinstance(new[0].content, SystemContent):
            await self._aplace(new, [await self._adefault_branch()])
        elif targets is None:
            await self._abegin_with(keeper, new)
        elif new:
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
        self, message: Any, parts: Any, branches: Any, role: Any
    ) -> tuple[Any, Sequence[Message], list[Branch] | None]:
        """Resolve what to give back, what to add, and where; all checked, nothing done.

        Where is None for the default branch when that is not there yet.
        """
        if isinstance(message, Message) and role is None:
            if parts is not None:
                branches = _only_branches(parts, branches)
            return self._resolve_message(message, branches)
        if role is not None and message is not None:
            raise InvalidTypeError("add_message takes a message or a role=, not both.")
        group = self._group(message if role is None else role, parts)
        if branches is not None:
            return group, group.messages, self._targets(branches)
        main = self._named.get(DEFAULT_BRANCH)
        return group, group.messages, None if main is None else [main]

    def _group(self, said: Any, parts: Any) -> MessageGroup:
        """The group that a role and parts, or an OpenAI-style dict, becomes."""
        if isinstance(said, str):
            from sennit.messages.parts import split  # late: not everyone speaks in parts

            role: Any = said
            return split(role, parts, sender=self._sender(said))
        if isinstance(said, Mapping) and parts is None:
            from sennit.messages.openai_chat import chat_role, from_chat  # late: few speak in dicts

            chat = cast("Mapping[str, Any]", said)
            return from_chat(chat, sender=self._sender(chat_role(chat)))
        raise InvalidTypeError(
            f"add_message takes a Message, a role and parts, or a dict with role and content; "
            f"got {shown(cast('object', said))}."
        )

    def _sender(self, role: str) -> SenderRecipient:
        return {"user": self._user, ASSISTANT: self._agent}.get(role, role)

    async def _adefault_branch(self) -> Branch:
        import asyncio  # takes long, and only async callers need it

        return await asyncio.to_thread(lambda: self.default_branch)

    def _begin_with(self, messages: Sequence[Message]) -> bool:
        """Make the default branch with these on it, in one step; False if someone else did."""
        try:
            tail = Segment([one.id for one in messages], kept=self._keeper is not None)
            self._new_branch(DEFAULT_BRANCH, tail, None, NEVER_GIVEN, said=messages)
        except ExistsError:
            return False
        return True

    async def _abegin_with(self, keeper: SessionRepository, messages: Sequence[Message]) -> None:
        """The same for async callers; if someone else did, they go to the end of that branch."""
        from sennit.sessions.first_append import FirstAppend  # late: only where something begins

        with self.lock:
            begun = FirstAppend(self, keeper, messages, DEFAULT_BRANCH)
        await keeper.submit(begun.changes, begun.apply, begun.otherwise)
        self._was_kept(messages, [self.get_branch(DEFAULT_BRANCH)])

    def _resolve_message(
        self, message: Message, branches: Branches | None
    ) -> tuple[Message, Sequence[Message], list[Branch]]:
        targets = self._targets(branches)
        stored = self._messages.by_key(message.id.int)
        if stored is None:
            return message, (message,), targets
        if stored is not message and not stored.content.says_the_same(message.content):
            raise ExistsError(
                f"The session already has message {message.id} with a different content; clone() "
                f"it to get a new id."
            )
        lacking = [branch for branch in targets if stored.id not in branch]
        return stored, (stored,) if lacking else (), lacking

    @overload
    def remove_message(self, message: Ref) -> Message: ...
    @overload
    def remove_message(self, message: MessageGroup) -> MessageGroup: ...
    def remove_message(self, message: Ref | MessageGroup) -> Message | MessageGroup:
        """Take a message off all branches and out of the session; raises NotFoundError.

        Of a group, as `add_message` gives for parts, all messages go, in one step.
        """
        removed = self.remove_messages([message])
        return removed[0] if isinstance(message, _REFS) else message

    def remove_messages(self, messages: Iterable[Ref | MessageGroup]) -> list[Message]:
        """Take several off all branches and out of the session, in one step.

        Raises NotFoundError, and removes none then.
        """
        with self.lock:
            found = self._found(messages)
            if found and self._keeper is not None:
                self._keeper.write([RemoveMessages(tuple(one.id for one in found))])
            systems = {branch: branch.system_id for branch in self._branches}
            for branch in [branch for one in found for branch in self._lose(one)]:
                if branch.system_id == systems[branch]:
                    branch.version += 1  # else the store may have none for what was replaced there
            # Branches may have got a version for all of them, too.
            if len(found) > 1 or any(one.system_id != was for one, was in systems.items()):
                self.refresh()
            return found

    def _found(self, messages: Iterable[Ref | MessageGroup]) -> list[Message]:
        """Find messages, and those of groups, each once; raises NotFoundError."""
        several = ((one,) if isinstance(one, _REFS) else _members(one) for one in messages)
        return list(dict.fromkeys(map(self._messages.get, chain.from_iterable(several))))

    def lose(self, messages: Iterable[UUID]) -> None:
        """Be without messages that were erased in the store, where they stood on no branch.

        A branch that has one here was changed by somebody else, and its version there says so.
        """
        with self.lock:
            for uid in messages:
                if uid in self._messages:
                    self._lose(self._messages.get(uid))

    def _lose(self, message: Message) -> list[Branch]:
        """Be without a message that was erased; gives the branches that had it."""
        held = erase(message.id, (branch._tail for branch in self._branches))
        changed = [branch for branch in self._branches if branch._lose(message.id, held)]
        self._messages._discard(message)
        self._log.forget_message(message.id)
        self._labels = {key: one for key, one in self._labels.items() if key[0] != message.id}
        return changed

    def describe(self, metadata: Mapping[str, Any]) -> None:
        """Give the session other metadata, in place of all it has."""
        kept = plain_dict(metadata, "metadata")
        with self.lock:
            if self._keeper is not None:
                self._keeper.write([DescribeSession(kept)])
            self._metadata = MappingProxyType(kept)

    async def adescribe(self, metadata: Mapping[str, Any]) -> None:
        """`describe` for async callers."""
        import asyncio  # takes long, and only async callers need it

        kept = await asyncio.to_thread(plain_dict, metadata, "metadata")

        def apply() -> None:
            self._metadata = MappingProxyType(kept)

        await self._achange(DescribeSession(kept), apply)

    def _take_over(self, conversations: Flow[Message, Any]) -> None:
        if not isinstance(conversations, Flow):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(f"conversations must be a Flow, got {shown(conversations)}.")
        self.place(list(Pile(conversations.items, item_type=Message)), [])
        if isinstance(conversations, Conversations):
            self._put_starts(conversations.starts())
        for progression in conversations.progressions:
            name = self._free_name(progression.name, "branch")
            tail = Segment(kept=self._keeper is not None)
            branch = self._new_branch(name, tail, None, NEVER_GIVEN, id=progression.id)
            branch.extend(list(progression))

    @overload
    async def aremove_message(self, message: Ref) -> Message: ...
    @overload
    async def aremove_message(self, message: MessageGroup) -> MessageGroup: ...
    async def aremove_message(self, message: Any) -> Message | MessageGroup:
        """`remove_message` for async callers."""
        import asyncio  # takes long, and only async callers need it

        return await asyncio.to_thread(self.remove_message, message)

    aremove_messages = async_method(remove_messages)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise InvalidTypeError("A session cannot be copied or pickled; fork its branches instead.")

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({len(self._messages)} messages, "
            f"{len(self._branches)} branches, id={str(self._id)!r})"
        )


_REFS = (UUID, str, Element)


def _members(given: Any) -> Sequence[Message]:
    """The messages of a group; raises InvalidTypeError for anything else."""
    from sennit.messages.parts import MessageGroup  # late: few speak in parts

    if isinstance(given, MessageGroup):
        return given.messages
    raise InvalidTypeError(
        f"Expected a message, its id, or the group that add_message returned, got {shown(given)}."
    )


def _only_branches(given: Any, branches: Branches | None) -> Any:
    """The branches that were given behind a Message; raises InvalidTypeError for parts."""
    several = isinstance(given, list | tuple | set)
    listed = list(cast("Iterable[Any]", given)) if several else [given]
    if branches is not None or not all(isinstance(one, Branch | UUID | str) for one in listed):
        raise InvalidTypeError("A Message already has its parts; pass branches= instead.")
    return given


def service_registry(services: Any) -> ServiceRegistry:
    """The registry given, or a new one for None; raises InvalidTypeError for anything else."""
    from sennit.services.registry import registry_of  # with all that tools need: late

    return registry_of(services)
