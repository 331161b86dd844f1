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
from functools import cached_property
from itertools import chain
from threading import RLock
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Literal,
    Self,
    SupportsIndex,
    TypeVar,
    Unpack,
    cast,
    overload,
)
from uuid import UUID

from sennit.containers.element import Element, Ref, key_of
from sennit.containers.flow import Flow
from sennit.containers.pile import Pile
from sennit.errors import (
    ExistsError,
    InvalidTypeError,
    OutOfRangeError,
    StoreError,
    ValidationError,
    short_repr,
)
from sennit.messages.blob_reference import without_bytes
from sennit.messages.content import SystemContent
from sennit.messages.json_values import plain_dict
from sennit.messages.message import Message, SenderRecipient, party
from sennit.sessions.async_method import async_method, planned
from sennit.sessions.branch import Branch
from sennit.sessions.branches import DEFAULT_BRANCH, RAISE, Branches, BranchPile, BranchRef
from sennit.sessions.detached import DetachedRepository
from sennit.sessions.grants import (
    Capabilities,
    Grants,
    Resources,
    capability_names,
    resource_names,
)
from sennit.sessions.plan import AppendPlan, BranchPlan, BranchUpdate, Plan, fork_plan
from sennit.sessions.refresh import apply_snapshot
from sennit.sessions.repository import Repository, SessionRepository
from sennit.sessions.segments import Segment, erase
from sennit.sessions.title import title_of, with_title
from sennit.sessions.unarchived import ArchiveIndex
from sennit.sessions.views import Conversations, MessagePile
from sennit.stores.records.sessions import (
    BranchHead,
    DescribeSession,
    PutStarts,
    RemoveBranch,
    RemoveMessages,
    RenameBranch,
    SessionRecord,
    branch_name,
)

if TYPE_CHECKING:
    from pydantic import BaseModel

    from sennit.messages.output_schema import ModelSchema
    from sennit.messages.parts import GroupRole, MessageGroup, Part
    from sennit.services.models.params import ModelParams
    from sennit.services.models.reply import Reply
    from sennit.services.models.request import MessageInput, ToolInput
    from sennit.services.registry import ServiceRegistry
    from sennit.sessions.blobs import Blob, Blobs
    from sennit.stores.records.blobs import BlobLimits

ASSISTANT = "assistant"
"""The default sender of model replies."""
_Default = TypeVar("_Default")


class SessionCore(Element):
    """Messages, and branches over them; thread-safe."""

    branch_type: ClassVar[type[Branch]] = Branch
    """The class of its branches; a subclass may add names, but keeps the behaviour."""
    message_pile_type: ClassVar[type[MessagePile]] = MessagePile
    """The class of `messages`."""

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
        self.lock: Final = RLock()
        self._messages = self.message_pile_type(self)
        self._branches = BranchPile(self)
        self._repository: Repository = DetachedRepository(self)
        """Reads and writes what is not in memory."""
        self._archives = ArchiveIndex()
        """The entries that commits cover, as of the last refresh."""
        self._pending_default: Branch | None = None
        """The default branch from its first append until that is stored."""
        self._generation = 0
        """Increases with every local change, so that a refresh detects changes during its read."""
        self._last_seen_write: int | None = None
        """The time of the last write that was loaded from the store."""
        self._key: str | None = None
        self._services = None if services is None else service_registry(services)
        self._user, self._agent = party(user, "user"), party(agent, "agent")
        if conversations is not None:
            self._import_conversations(conversations)

    @classmethod
    def _from_store(
        cls, record: SessionRecord, repository: SessionRepository, **options: Any
    ) -> Self:
        """Load a stored session; `options` are what is not stored, such as its services."""
        session = cls(id=record.id, **options)
        session._keep(record, repository)
        return session

    def _keep(self, record: SessionRecord, repository: SessionRepository) -> None:
        """Bind this session to a store and load its state."""
        self._key, self._repository = record.key, repository
        self._user = party(record.user, "user")
        self._created, self._metadata = record.created, MappingProxyType(record.metadata)
        apply_snapshot(self, repository.load(), {}, repository.archived(after=0))

    def refresh(self) -> None:
        """Load what other processes have written to the store; a no-op without a store."""
        self._repository.refresh(self)

    arefresh: Final = async_method(refresh)

    def _was_written(self, plan: Plan[Any]) -> None:
        """Handle a plan that was just written to the store; a hook."""

    @property
    def messages(self) -> MessagePile:
        """All messages by id, whether on a branch or not."""
        return self._messages

    @property
    def branches(self) -> BranchPile:
        """All branches, by id."""
        return self._branches

    @cached_property
    def conversations(self) -> Flow[Message, Branch]:
        """Messages and branches as a flow."""
        return Conversations(self.messages, self.branches)

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

    @overload
    async def request(
        self,
        name: str,
        /,
        *,
        branch: BranchRef | None = None,
        messages: MessageInput | Iterable[MessageInput],
        tools: Iterable[str | ToolInput] | str | ToolInput = (),
        output: type[BaseModel] | ModelSchema | Mapping[str, object] | None = None,
        **params: Unpack[ModelParams],
    ) -> Reply: ...
    @overload
    async def request(
        self, name: str, /, *, branch: BranchRef | None = None, **arguments: object
    ) -> Any: ...
    async def request(
        self, name: str, /, *, branch: BranchRef | None = None, **arguments: object
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
    def request_sync(
        self,
        name: str,
        /,
        *,
        branch: BranchRef | None = None,
        messages: MessageInput | Iterable[MessageInput],
        tools: Iterable[str | ToolInput] | str | ToolInput = (),
        output: type[BaseModel] | ModelSchema | Mapping[str, object] | None = None,
        **params: Unpack[ModelParams],
    ) -> Reply: ...
    @overload
    def request_sync(
        self, name: str, /, *, branch: BranchRef | None = None, **arguments: object
    ) -> Any: ...
    def request_sync(
        self, name: str, /, *, branch: BranchRef | None = None, **arguments: object
    ) -> Any:
        """`request` for programs without an event loop."""
        from sennit.blocking import run_blocking  # late: slow to import

        return run_blocking(self.request(name, branch=branch, **arguments), "await request()")

    @property
    def default_branch(self) -> Branch:
        """The branch named "main", created on first access."""
        with self.lock:
            branch = self.branches.named.get(DEFAULT_BRANCH)
            if branch is not None:  # an empty branch is falsy, like a list
                return branch
            try:
                return self.create_branch(DEFAULT_BRANCH)
            except ExistsError:  # another process created it first
                return self.get_branch(DEFAULT_BRANCH)

    @planned
    def create_branch(
        self,
        name: str | None = None,
        *,
        system: Message | UUID | str | None = None,
        capabilities: Capabilities | None = None,
        resources: Resources | None = None,
    ) -> Plan[Branch]:
        """Create an empty branch.

        `system` is a system message or its text. `resources` and `capabilities` are the names of
        the services and output schemas it may use ("*" for all). With neither, it may use the
        objects that the program passes.
        Raises ExistsError if the name is taken.
        """
        grants = Grants.given(resources, capabilities)
        return BranchPlan(self, name, system=self._resolve_system(system), grants=grants)

    acreate_branch: Final = async_method(create_branch)

    @overload
    def get_branch(self, branch: BranchRef) -> Branch: ...
    @overload
    def get_branch(self, branch: BranchRef, default: _Default) -> Branch | _Default: ...
    def get_branch(self, branch: BranchRef, default: Any = RAISE) -> Any:
        """Return the branch with that id or name, or the default; raises NotFoundError."""
        return self.branches.get(branch, default)

    @planned
    def remove_branch(self, branch: BranchRef) -> Plan[Branch]:
        """Remove a branch; messages and other branches stay. Raises NotFoundError."""
        target = self.get_branch(branch)

        def apply() -> None:
            self.branches.discard(target)

        return Plan(self, target, RemoveBranch(target.id), on_written=apply)

    @planned
    def rename_branch(self, branch: BranchRef, name: str) -> Plan[None]:
        """Rename a branch; of concurrent renames, the last one wins.

        Raises ExistsError if another branch has the name, and ValidationError for "main", the
        default wherever no branch is named.
        """
        target, new_name = self.get_branch(branch), branch_name(name)
        if target.name == DEFAULT_BRANCH != new_name:
            raise ValidationError(
                f"Branch {DEFAULT_BRANCH!r} cannot be renamed, as it is the default wherever no "
                f"branch is named; fork it under the name {new_name!r} instead."
            )
        if target.name != new_name:  # else it is written too, as memory may be stale
            self.branches.check_free(new_name)

        def apply() -> None:
            if target in self.branches:
                self.branches.rename({target: new_name})

        return Plan(self, None, RenameBranch(target.id, new_name), on_written=apply)

    aremove_branch: Final = async_method(remove_branch)
    arename_branch: Final = async_method(rename_branch)

    def get_branch_system(self, branch: BranchRef) -> Message | None:
        """Return the system message of a branch, if it has one."""
        uid = self.get_branch(branch).system_id
        return None if uid is None else self.messages.get(uid)

    def set_branch_system(self, branch: BranchRef, system: Message | UUID | str | None) -> None:
        """Set or remove the system message of a branch; the history stays as it is."""
        with self.lock:
            target, message = self.get_branch(branch), self._resolve_system(system)
            if message is None:
                target._set_system(None)
            else:
                self._append_messages((message,), [target])

    def _append_messages(self, messages: Sequence[Message], branches: Sequence[Branch]) -> None:
        """Store messages and append them to branches that lack them; raises ConflictError."""
        self._repository.write(AppendPlan(self, None, messages, branches))

    def _update_branch(
        self, branch: Branch, tail: Segment, system: UUID | None, grants: Grants
    ) -> None:
        """Change a branch; raises ConflictError if its version is stale."""
        self._repository.write(BranchUpdate(branch, tail, system, grants))

    def _ensure_branch_system(self, branch: BranchRef, system: Message | str) -> None:
        """Set the system message of a branch unless it already has the same content."""
        with self.lock:
            message, current = self._resolve_system(system), self.get_branch_system(branch)
            assert message is not None
            if current is None or not current.content.says_the_same(message.content):
                self.set_branch_system(branch, message)

    aset_branch_system: Final = async_method(set_branch_system)

    @planned
    def fork(
        self,
        branch: BranchRef,
        *,
        at: Ref | int | None = None,
        name: str | None = None,
        capabilities: Capabilities | Literal[True] | None = None,
        resources: Resources | Literal[True] | None = None,
        system: Message | UUID | str | Literal[True] | None = None,
    ) -> Plan[Branch]:
        """Create a branch that shares the history of another, in constant time.

        It shares the messages up to and including `at`, a message or an index (default: the last).
        True copies the capabilities, resources or system message of the source; None, the default,
        sets none. A fork of a branch without grants has no grants either.
        """
        source = self.get_branch(branch)
        return fork_plan(
            source,
            _length_through(source, at),
            name=name,
            grants=_fork_grants(source, resources, capabilities),
            system=source.system_id if system is True else self._resolve_system(system),
        )

    afork: Final = async_method(fork)

    def _resolve_system(self, system: Any) -> Message | None:
        """Return the message for a system message, its id or its text, without storing it."""
        if system is None:
            return None
        by_id = not isinstance(system, Message) and key_of(system) is not None
        message = self.messages.get(system) if by_id else system
        if isinstance(message, str):
            message = Message(SystemContent(system_message=message))
        if not isinstance(message, Message) or not isinstance(message.content, SystemContent):
            raise InvalidTypeError(
                f"A system message is a text or a Message with a SystemContent, got "
                f"{short_repr(system)}."
            )
        existing = self.messages.get(message, message)
        if existing is not message and not existing.content.says_the_same(message.content):
            raise ExistsError(
                f"The session already has message {message.id} with a different content."
            )
        return message

    @overload
    def add_message(self, message: Message, branch: Branches, /) -> Message: ...
    @overload
    def add_message(self, message: Message, *, branches: Branches | None = None) -> Message: ...
    @overload
    def add_message(
        self,
        message: GroupRole,
        parts: str | Part | Iterable[str | Part],
        branches: Branches | None = None,
    ) -> MessageGroup: ...
    @overload
    def add_message(
        self,
        *,
        role: GroupRole,
        parts: str | Part | Iterable[str | Part],
        branches: Branches | None = None,
    ) -> MessageGroup: ...
    @overload
    def add_message(
        self, message: Mapping[str, Any], *, branches: Branches | None = None
    ) -> MessageGroup: ...
    @planned
    def add_message(
        self, message: Any = None, parts: Any = None, branches: Any = None, *, role: Any = None
    ) -> Plan[Any]:
        """Add a Message, or a message given by role and parts, to branches.

        A Message is stored once and appended to the branches that lack it; without branches it is
        on none. Raises ExistsError if its id is stored with another content. A role ("user",
        "assistant" or "system") with parts goes to the default branch unless branches are named,
        and returns a MessageGroup; so does an OpenAI-style dict such as
        `{"role": "user", "content": "Hello"}`. The role "system" sets the system message.
        """
        if isinstance(message, Message) and role is None:
            if parts is not None:
                branches = _only_branches(parts, branches)
            return self._plan_message(message, self.branches.resolve(branches))
        if role is not None and message is not None:
            raise InvalidTypeError("add_message takes a message or a role=, not both.")
        group = self._group(message if role is None else role, parts)
        targets = None if branches is None else self.branches.resolve(branches)
        return AppendPlan(self, group, group.messages, targets)

    def _plan_message(self, message: Message, branches: Sequence[Branch]) -> Plan[Message]:
        stored = self.messages.by_key(message.id.int)
        if stored is None:
            return AppendPlan(self, message, (message,), branches)
        if stored is not message and not _same_content(stored, message):
            raise ExistsError(
                f"The session already has message {message.id} with a different content; clone() "
                f"it to get a new id."
            )
        lacking = [branch for branch in branches if stored.id not in branch]
        return AppendPlan(self, stored, (stored,) if lacking else (), lacking)

    @planned
    def add_messages(
        self, messages: Iterable[Message], *, branches: Branches | None = None
    ) -> Plan[list[Message]]:
        """Add several new messages in order, all or none.

        Raises ExistsError if the session has one of them already.
        """
        new: dict[int, Message] = {}
        for message in messages:
            if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidTypeError(f"add_messages takes messages, got {short_repr(message)}.")
            if message.id.int in new or message in self.messages:
                raise ExistsError(f"The session already has message {message.id}.")
            new[message.id.int] = message
        added = list(new.values())
        return AppendPlan(self, added, added, self.branches.resolve(branches))

    aadd_message: Final = async_method(add_message)
    aadd_messages: Final = async_method(add_messages)

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

    def put_blob(
        self, data: bytes | Iterable[bytes], media_type: str, limits: BlobLimits | None = None
    ) -> Blob:
        """Store bytes, such as a large file in pieces, for a message that will name them.

        The same bytes are stored once. They are erased when the last message that names them is,
        or after a day if there is none. Raises ValidationError beyond the limits, and StoreError
        for a session without a store.
        """
        return self._blobs().put(data, media_type, limits)

    def open_blob(self, reference: str) -> Blob:
        """Return a blob, whose bytes are read in pieces, by the address that a message has.

        Raises NotFoundError if the user has no such blob, and ValidationError for another address.
        """
        return self._blobs().open(reference)

    def read_blob(self, reference: str, offset: int = 0, length: int | None = None) -> bytes:
        """Return bytes of a blob, by default all; raises as `open_blob` does.

        Raises StoreError if they are damaged.
        """
        return self._blobs().open(reference).read(offset, length)

    aput_blob: Final = async_method(put_blob)
    aopen_blob: Final = async_method(open_blob)
    aread_blob: Final = async_method(read_blob)

    def _blobs(self) -> Blobs:
        if (blobs := self._repository.blobs) is None:
            raise StoreError(
                "A session without a store has no blobs: its messages hold the bytes. Open it with "
                "sennit.open(...).session(key), or pass Session(store=...)."
            )
        return blobs

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
            if removed:
                self._erase_messages(removed)
            return removed

    def _erase_messages(self, messages: Sequence[Message]) -> None:
        """Erase messages of the session, under its lock."""
        self._repository.write(_RemovalPlan(self, messages))

    def _resolve_messages(self, messages: Iterable[Ref | MessageGroup]) -> list[Message]:
        """Resolve references and groups to distinct messages; raises NotFoundError."""
        groups = ((ref,) if isinstance(ref, _REFS) else _members(ref) for ref in messages)
        return list(dict.fromkeys(map(self.messages.get, chain.from_iterable(groups))))

    def _lose(self, messages: Iterable[UUID]) -> None:
        """Drop messages from memory that were erased in the store, where no branch had them.

        A branch that still has one in memory is stale, and the next refresh reloads it.
        """
        with self.lock:
            for uid in messages:
                if uid in self.messages:
                    self._forget_message(self.messages.get(uid))

    def _forget_message(self, message: Message) -> list[Branch]:
        """Drop an erased message from memory; return the branches that had it."""
        branches = list(self.branches)
        segment_keys = erase(message.id, [branch._tail for branch in branches])
        self.messages._discard(message)
        return [branch for branch in branches if branch._drop_erased(message.id, segment_keys)]

    @property
    def title(self) -> str | None:
        """The title that was set, else the first words of the conversation; None without either."""
        return title_of(self)

    def set_title(self, title: str | None) -> None:
        """Set the title, which lists of sessions show; None removes it."""
        self.refresh()  # keep what other processes have described
        self.describe(with_title(self.metadata, title))

    async def aset_title(self, title: str | None) -> None:
        """`set_title` for async callers."""
        await self.arefresh()
        await self.adescribe(with_title(self.metadata, title))

    def describe(self, metadata: Mapping[str, Any]) -> None:
        """Replace the metadata of the session."""
        self._describe(plain_dict(metadata, "metadata"))

    async def adescribe(self, metadata: Mapping[str, Any]) -> None:
        """`describe` for async callers."""
        await self._adescribe(await self._repository.read(lambda: plain_dict(metadata, "metadata")))

    @planned
    def _describe(self, metadata: dict[str, Any]) -> Plan[None]:
        def apply() -> None:
            self._metadata = MappingProxyType(metadata)

        return Plan(self, None, DescribeSession(metadata), on_written=apply)

    _adescribe: Final = async_method(_describe)
    aremove_message: Final = async_method(remove_message)
    aremove_messages: Final = async_method(remove_messages)

    def _import_conversations(self, conversations: Flow[Message, Any]) -> None:
        if not isinstance(conversations, Flow):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(
                f"conversations must be a Flow, got {short_repr(conversations)}."
            )
        self.add_messages(Pile(conversations.items, item_type=Message))
        if isinstance(conversations, Conversations) and (starts := conversations.starts()):
            self._repository.record(PutStarts(tuple(starts.items())))
        for progression in conversations.progressions:
            plan = BranchPlan(self, progression.name, id=progression.id)
            self._repository.write(plan).extend(list(progression))

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise InvalidTypeError("A session cannot be copied or pickled; fork its branches instead.")

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({len(self.messages)} messages, "
            f"{len(self.branches)} branches, id={str(self._id)!r})"
        )


class _RemovalPlan(Plan[None]):
    """Messages to erase from all branches and the session."""

    def __init__(self, session: SessionCore, removed: Sequence[Message]) -> None:
        super().__init__(session, None, RemoveMessages(tuple(message.id for message in removed)))
        self._removed = removed

    def apply(self, heads: Sequence[BranchHead]) -> bool:  # noqa: ARG002
        is_stale = len(self._removed) > 1
        systems = {branch.system_id for branch in self.session.branches}
        for message in self._removed:  # their contents may be damaged, so they are not read
            branches = self.session._forget_message(message)
            if message.id in systems:
                is_stale = is_stale or bool(branches)  # only the store knows the new versions
            else:
                for branch in branches:
                    branch._version += 1
        return is_stale


def _same_content(stored: Message, message: Message) -> bool:
    """Return whether a message is a stored one, whose attachments may be references."""
    content = message.content
    return stored.content.says_the_same(content) or (
        bool(content.attachment_urls)
        and stored.content.says_the_same(content.with_attachment_urls(without_bytes))
    )


def _length_through(branch: Branch, at: Ref | int | None) -> int:
    """Return the number of messages up to and including `at`."""
    if at is None:
        return branch._tail.total
    try:
        index = branch._position(at) if type(at) is int else branch.index(cast("Ref", at))
    except OutOfRangeError as error:
        raise OutOfRangeError(f"Cannot fork branch {branch.name!r} there. {error}") from None
    return index + (branch.system_id is None)


def _fork_grants(
    source: Branch,
    resources: Resources | Literal[True] | None,
    capabilities: Capabilities | Literal[True] | None,
) -> Grants:
    """Return the grants of a fork: True copies those of the source, None grants nothing.

    A source that is not fenced makes a fork that is not fenced, unless names are passed.
    """
    if not source.fenced and resources in (None, True) and capabilities in (None, True):
        return source._grants
    return Grants(
        source.resources if resources is True else resource_names(resources),
        source.capabilities if capabilities is True else capability_names(capabilities),
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
