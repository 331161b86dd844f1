"""The core of a session: messages stored once, and branches over them.

SessionCore handles messages and branches. The public Session of `sennit.api` adds turns, operations
and memory. One lock guards all changes, and a change is validated completely before any of it is
applied, so a refused change has no effect.
"""

# A session may write its branches and piles directly, bypassing their guards.
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
    short_repr,
)
from sennit.messages.content import SystemContent
from sennit.messages.json_values import plain_dict
from sennit.messages.message import Message, SenderRecipient, party
from sennit.sessions.async_method import async_method
from sennit.sessions.branch import Branch
from sennit.sessions.branches import DEFAULT_BRANCH, Branches, BranchRef, BranchRegistry
from sennit.sessions.grants import (
    UNFENCED,
)
from sennit.sessions.repository import SessionRepository
from sennit.sessions.segments import Segment, erase
from sennit.sessions.views import Conversations
from sennit.stores.records.sessions import DescribeSession, RemoveMessages, SessionRecord

if TYPE_CHECKING:
    from sennit.messages.parts import GroupRole, MessageGroup, Part
    from sennit.services.registry import ServiceRegistry

ASSISTANT = "assistant"
"""The default sender of model replies."""


class SessionCore(BranchRegistry):
    """Messages, and branches over them; thread-safe."""

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
        """Create a session in memory; each progression of `conversations` becomes a branch.

        `user` and `agent` are the senders of messages added by role. `services` are the models and
        tools it may call, by default an empty registry.
        """
        super().__init__(id=id, created_at=created_at, metadata=metadata)
        self._services = None if services is None else service_registry(services)
        self._user, self._agent = party(user, "user"), party(agent, "agent")
        if conversations is not None:
            self._import_conversations(conversations)

    @classmethod
    def opened(cls, record: SessionRecord, repository: SessionRepository, **options: Any) -> Self:
        """Load a stored session; `options` are what is not stored, such as its services."""
        session = cls(id=record.id, **options)
        session._keep(record, repository)
        return session

    def _keep(self, record: SessionRecord, repository: SessionRepository) -> None:
        """Bind this session to a store and load its state."""
        self._key, self._repository = record.key, repository
        self._user = party(record.user, "user")
        self._created, self._metadata = record.created, MappingProxyType(record.metadata)
        self._apply_snapshot(repository.load(), {}, repository.archived(after=0))

    @property
    def key(self) -> str | None:
        """The key it was opened with, if it has one."""
        return self._key

    @property
    def user(self) -> SenderRecipient:
        """The sender of messages added with the role "user"."""
        return self._user

    @property
    def agent(self) -> SenderRecipient:
        """The sender of messages added with the role "assistant" and of model replies."""
        return self._agent

    @property
    def services(self) -> ServiceRegistry:
        """The models and tools it may call, by name."""
        with self.lock:
            if self._services is None:
                self._services = service_registry(None)
            return self._services

    async def request(
        self, name: str, /, *, branch: BranchRef | None = None, **arguments: Any
    ) -> Any:
        """Call one service directly: nothing is stored and no turn is run.

        A tool takes its arguments and returns its result. A model takes `messages`, optionally
        `tools`, `output` and the parameters of `sennit.services.PARAMS`, and returns a Reply.
        Access is checked only if a branch is named: then raises AccessError unless the service,
        the tools and the output are granted. Raises NotFoundError, ToolError, ModelError.
        """
        from sennit.sessions.service_call import ask_service

        target = None if branch is None else self.get_branch(branch)
        return await ask_service(self, name, target, arguments)

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
        """Add a Message, or a message given by role and parts, to branches.

        A Message is stored once and appended to the branches that lack it; without branches it is
        on none. Raises ExistsError if its id is stored with another content. A role ("user",
        "assistant" or "system") with parts goes to the default branch unless branches are named,
        and returns a MessageGroup; so does an OpenAI-style dict such as
        `{"role": "user", "content": "Hello"}`. The role "system" sets the system message.
        """
        with self.lock:
            result, new, targets = self._resolve(message, parts, branches, role)
            if targets is None:
                is_system = isinstance(new[0].content, SystemContent)
                if not is_system and self._create_default_branch(new):
                    return result
                targets = [self.default_branch]
            if new:
                self.append_messages(new, targets)
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
        """`add_message` for async callers; concurrent calls share one group commit."""
        repository = self._repository
        if repository is None:
            add: Any = self.add_message
            return add(message, parts, branches, role=role)
        with self.lock:
            result, new, targets = self._resolve(message, parts, branches, role)
        if targets is None and isinstance(new[0].content, SystemContent):
            await self._aappend_messages(new, [await self._adefault_branch()])
        elif targets is None:
            await self._aappend_first(repository, new)
        elif new:
            await self._aappend_messages(new, targets)
        return result

    def add_messages(
        self, messages: Iterable[Message], *, branches: Branches | None = None
    ) -> list[Message]:
        """Add several new messages in order, all or none.

        Raises ExistsError if the session has one of them already.
        """
        with self.lock:
            new, targets = self._resolve_new(messages, branches)
            if new:
                self.append_messages(new, targets)
        return new

    async def aadd_messages(
        self, messages: Iterable[Message], *, branches: Branches | None = None
    ) -> list[Message]:
        """`add_messages` for async callers; concurrent calls share one group commit."""
        with self.lock:
            new, targets = self._resolve_new(messages, branches)
        if new:
            await self._aappend_messages(new, targets)
        return new

    def _resolve_new(
        self, messages: Iterable[Message], branches: Branches | None
    ) -> tuple[list[Message], list[Branch]]:
        new: dict[int, Message] = {}
        for message in messages:
            if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidTypeError(f"add_messages takes messages, got {short_repr(message)}.")
            if message.id.int in new or message in self._messages:
                raise ExistsError(f"The session already has message {message.id}.")
            new[message.id.int] = message
        return list(new.values()), self._targets(branches)

    def _resolve(
        self, message: Any, parts: Any, branches: Any, role: Any
    ) -> tuple[Any, Sequence[Message], list[Branch] | None]:
        """Validate the arguments; return the result, the messages to add and the target branches.

        The branches are None for a default branch that does not exist yet.
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
        main = self._branches_by_name.get(DEFAULT_BRANCH)
        return group, group.messages, None if main is None else [main]

    def _group(self, source: Any, parts: Any) -> MessageGroup:
        """Return the message group of a role with parts, or of an OpenAI-style dict."""
        if isinstance(source, str):
            from sennit.messages.parts import split  # slow to import

            role: Any = source
            return split(role, parts, sender=self._sender(source))
        if isinstance(source, Mapping) and parts is None:
            from sennit.messages.openai_chat import chat_role, from_chat  # slow to import

            chat = cast("Mapping[str, Any]", source)
            return from_chat(chat, sender=self._sender(chat_role(chat)))
        raise InvalidTypeError(
            f"add_message takes a Message, a role and parts, or a dict with role and content; "
            f"got {short_repr(cast('object', source))}."
        )

    def _sender(self, role: str) -> SenderRecipient:
        return {"user": self._user, ASSISTANT: self._agent}.get(role, role)

    async def _adefault_branch(self) -> Branch:
        import asyncio  # slow to import; only async callers need it

        return await asyncio.to_thread(lambda: self.default_branch)

    def _create_default_branch(self, messages: Sequence[Message]) -> bool:
        """Create the default branch with its first messages; return False if it exists."""
        try:
            tail = Segment(
                [message.id for message in messages], stored=self._repository is not None
            )
            self._create_branch(DEFAULT_BRANCH, tail, None, UNFENCED, messages=messages)
        except ExistsError:
            return False
        return True

    async def _aappend_first(
        self, repository: SessionRepository, messages: Sequence[Message]
    ) -> None:
        """Append the first messages of the default branch, creating it if needed."""
        from sennit.sessions.first_append import FirstAppend  # slow to import

        with self.lock:
            first_append = FirstAppend(self, repository, messages, DEFAULT_BRANCH)
        await repository.submit(first_append.changes, first_append.apply, first_append.fallback)
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
        """Remove a message from all branches and the session; raises NotFoundError.

        For a group, as `add_message` returns for parts, removes all its messages in one step.
        """
        removed = self.remove_messages([message])
        return removed[0] if isinstance(message, _REFS) else message

    def remove_messages(self, messages: Iterable[Ref | MessageGroup]) -> list[Message]:
        """Remove several messages from all branches and the session, all or none.

        Raises NotFoundError if one is missing.
        """
        with self.lock:
            removed = self._resolve_messages(messages)
            if removed and self._repository is not None:
                self._repository.write([RemoveMessages(tuple(message.id for message in removed))])
            systems = {branch: branch.system_id for branch in self._branches}
            for branch in [
                branch for message in removed for branch in self._forget_message(message)
            ]:
                if branch.system_id == systems[branch]:
                    branch.version += 1  # else the store may not have raised the version
            # In other cases the new versions are only known to the store.
            if len(removed) > 1 or any(
                branch.system_id != old_system for branch, old_system in systems.items()
            ):
                self.refresh()
            return removed

    def _resolve_messages(self, messages: Iterable[Ref | MessageGroup]) -> list[Message]:
        """Resolve references and groups to distinct messages; raises NotFoundError."""
        groups = ((ref,) if isinstance(ref, _REFS) else _members(ref) for ref in messages)
        return list(dict.fromkeys(map(self._messages.get, chain.from_iterable(groups))))

    def lose(self, messages: Iterable[UUID]) -> None:
        """Drop messages from memory that were erased in the store, where no branch had them.

        A branch that still has one in memory is stale, and the next refresh reloads it.
        """
        with self.lock:
            for uid in messages:
                if uid in self._messages:
                    self._forget_message(self._messages.get(uid))

    def _forget_message(self, message: Message) -> list[Branch]:
        """Drop an erased message from memory; return the branches that had it."""
        segment_keys = erase(message.id, (branch._tail for branch in self._branches))
        changed = [
            branch for branch in self._branches if branch._drop_erased(message.id, segment_keys)
        ]
        self._messages._discard(message)
        self._run_log.forget_message(message.id)
        self._labels = {key: label for key, label in self._labels.items() if key[0] != message.id}
        return changed

    def describe(self, metadata: Mapping[str, Any]) -> None:
        """Replace the metadata of the session."""
        copied = plain_dict(metadata, "metadata")
        with self.lock:
            if self._repository is not None:
                self._repository.write([DescribeSession(copied)])
            self._metadata = MappingProxyType(copied)

    async def adescribe(self, metadata: Mapping[str, Any]) -> None:
        """`describe` for async callers."""
        import asyncio  # slow to import; only async callers need it

        copied = await asyncio.to_thread(plain_dict, metadata, "metadata")

        def apply() -> None:
            self._metadata = MappingProxyType(copied)

        await self._achange(DescribeSession(copied), apply)

    def _import_conversations(self, conversations: Flow[Message, Any]) -> None:
        if not isinstance(conversations, Flow):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(
                f"conversations must be a Flow, got {short_repr(conversations)}."
            )
        self.append_messages(list(Pile(conversations.items, item_type=Message)), [])
        if isinstance(conversations, Conversations):
            self._put_starts(conversations.starts())
        for progression in conversations.progressions:
            name = self._free_name(progression.name, "branch")
            tail = Segment(stored=self._repository is not None)
            branch = self._create_branch(name, tail, None, UNFENCED, id=progression.id)
            branch.extend(list(progression))

    @overload
    async def aremove_message(self, message: Ref) -> Message: ...
    @overload
    async def aremove_message(self, message: MessageGroup) -> MessageGroup: ...
    async def aremove_message(self, message: Any) -> Message | MessageGroup:
        """`remove_message` for async callers."""
        import asyncio  # slow to import; only async callers need it

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


def _members(group: Any) -> Sequence[Message]:
    """Return the messages of a group; raises InvalidTypeError for anything else."""
    from sennit.messages.parts import MessageGroup  # slow to import

    if isinstance(group, MessageGroup):
        return group.messages
    raise InvalidTypeError(
        "Expected a message, its id, or the group that add_message returned, got "
        f"{short_repr(group)}."
    )


def _only_branches(value: Any, branches: Branches | None) -> Any:
    """Return the branches passed in place of parts; raises InvalidTypeError for real parts."""
    is_collection = isinstance(value, list | tuple | set)
    refs = list(cast("Iterable[Any]", value)) if is_collection else [value]
    if branches is not None or not all(isinstance(ref, Branch | UUID | str) for ref in refs):
        raise InvalidTypeError("A Message already has its parts; pass branches= instead.")
    return value


def service_registry(services: Any) -> ServiceRegistry:
    """Return the registry itself, or a new one for None; raises InvalidTypeError."""
    from sennit.services.registry import registry_of  # slow to import

    return registry_of(services)
