"""Public Session class.

SessionCore implements messages, branches and services; this class adds one-line methods for the
features built on them: operations, turns, memory, training data, diffs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Self, Unpack
from uuid import UUID

from sennit.api.conducting import Conducting
from sennit.api.lazy_memory import LazyMemory
from sennit.api.own_store import OwnStore
from sennit.closing import AsyncClosing, Closing
from sennit.containers.flow import Flow
from sennit.errors import ExistsError, InvalidTypeError, short_repr
from sennit.messages.message import Message, SenderRecipient
from sennit.sessions.async_method import async_method
from sennit.sessions.branches import DEFAULT_BRANCH
from sennit.sessions.grants import UNFENCED
from sennit.sessions.session import ASSISTANT, BranchRef, SessionCore

if TYPE_CHECKING:
    from sennit.containers.element import Ref
    from sennit.learning.examples import BranchSelection, Example, Metric
    from sennit.learning.labels import Label, Thumb
    from sennit.learning.preferences import Preference
    from sennit.memory.commit.result import CommitResult
    from sennit.memory.memory import Memory, MemoryEngine
    from sennit.memory.retrieval.prompt_context import Context
    from sennit.messages.parts import MessageGroup
    from sennit.operations.registry import OperationRegistry
    from sennit.services.models.params import ModelParams
    from sennit.services.models.protocol import Model
    from sennit.services.registry import ServiceRegistry, ToolSource
    from sennit.sessions.branch import Branch
    from sennit.sessions.diff import BranchDiff
    from sennit.sessions.plan import Plan
    from sennit.sessions.repository import SessionRepository
    from sennit.sessions.tree import BranchTree
    from sennit.stores.base import Store
    from sennit.stores.records.sessions import SessionRecord
    from sennit.turns.context import ContextProvider
    from sennit.turns.conversation import ConversationSession
    from sennit.turns.observers import ConversationObserver
    from sennit.turns.policies import PolicySource
    from sennit.turns.request import RequestDraft

_CONVERSATION_ARGUMENTS = (
    "branch",
    "model",
    "tools",
    "system",
    "observers",
    "policies",
    "contexts",
    "generate_greeting",
)


class Session(SessionCore, Conducting, Closing, AsyncClosing):
    """A conversation with many branches: typed messages, stored once, shared by all of them.

    session = Session()
    main = session.create_branch(name="main")
    session.add_message(Message(InstructionContent(instruction="Hello")), branches=main)
    other = session.fork(main, name="other")
    """

    def __init__(
        self,
        user: SenderRecipient = "user",
        conversations: Flow[Message, Any] | None = None,
        services: ServiceRegistry | None = None,
        operations: OperationRegistry | None = None,
        store: Store | str | PathLike[str] | None = None,
        *,
        agent: SenderRecipient = ASSISTANT,
        id: UUID | str | None = None,
        created_at: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Create a session, or open the stored one with this `id`.

        `user` and `agent` are the senders of messages added by role; each of `conversations`
        becomes a branch. `services` and `operations` default to new registries. Without a `store`
        the session lives in memory only. A `store` is a Store, or a URL as for `sennit.open`; use
        the session as a context manager then, or `close` it. Raises ExistsError for `conversations`
        if the stored session is not empty.
        """
        super().__init__(
            user,
            conversations if store is None else None,
            services,
            agent=agent,
            id=id,
            created_at=created_at,
            metadata=metadata,
        )
        self._operations = None if operations is None else operation_registry(operations)
        self._memory = LazyMemory(self._create_memory)
        self._own_store = (
            None if store is None else self._attach_store(OwnStore(store), conversations)
        )

    def _attach_store(
        self, own_store: OwnStore, conversations: Flow[Message, Any] | None
    ) -> OwnStore:
        """Load the stored session with this id, or store this one as new."""
        try:
            self._keep(own_store.load_or_create(self), own_store.repository(self.id))
            if conversations is not None:
                self._import_into_new(conversations)
        except BaseException:
            own_store.close()
            raise
        return own_store

    def _import_into_new(self, conversations: Flow[Message, Any]) -> None:
        if len(self.messages) or len(self.branches):
            raise ExistsError(
                f"Session {self.id} already exists in the store, with {len(self.messages)} "
                f"messages; open it without conversations= and add messages to it."
            )
        self._import_conversations(conversations)

    def close(self) -> None:
        """Release the `store` the session was created with, and close it if it was given as a URL.

        Sessions in memory or of a client have nothing to close.
        """
        if self._own_store is not None:
            self._memory.close()
            self._own_store.close()

    aclose: Final = async_method(close)

    @property
    def operations(self) -> OperationRegistry:
        """The operations that `conduct` accepts, by name."""
        with self.lock:
            if self._operations is None:
                self._operations = operation_registry(None)
            return self._operations

    def conversation(
        self,
        branch: BranchRef | None = None,
        *,
        model: str | Model,
        tools: Iterable[ToolSource] = (),
        system: str | Message | None = None,
        observers: Iterable[ConversationObserver] = (),
        policies: Iterable[PolicySource] = (),
        contexts: Iterable[ContextProvider] = (),
        generate_greeting: bool = False,
        **params: Unpack[ModelParams],
    ) -> ConversationSession:
        """Return a conversation that runs turns on a branch, by default "main", created if needed.

        `model` is a Model, a registered name or a provider string such as "openai:gpt-5" or
        "local"; `tools` are objects or registered names. Registered names must be granted to the
        branch; so must objects and provider strings once the branch has any grants. `system`
        becomes the system message, unless the branch already has it. Every request and reply is
        checked by the `policies`, `contexts` add to the prompt, and with `generate_greeting` the
        model speaks first. `params` are model parameters. Raises NotFoundError for an unknown name,
        ExistsError for a duplicate tool name, AccessError for a service that was not granted.
        """
        from sennit.services.models.params import check_params
        from sennit.services.registry import with_provider_model
        from sennit.turns.conversation import ConversationSession
        from sennit.turns.request import RequestDraft

        check_params(params, _CONVERSATION_ARGUMENTS)
        draft = RequestDraft.of(
            self.services,
            model=with_provider_model(self.services, model),
            tools=tools,
            policies=policies,
            contexts=contexts,
            **params,
        )
        request = draft.on(self._branch_for(draft, branch))
        if system is not None:
            self._ensure_branch_system(request.branch, system)
        return ConversationSession(
            request, observers=observers, generate_greeting=generate_greeting
        )

    def _branch_for(self, draft: RequestDraft, branch: BranchRef | None) -> Branch:
        """Return the branch, creating "main" if the draft may run without grants."""
        if branch is not None and branch != DEFAULT_BRANCH:
            return self.get_branch(branch)
        main = self.get_branch(DEFAULT_BRANCH, None)
        if main is None:
            UNFENCED.check(DEFAULT_BRANCH, draft.needs)
            main = self.default_branch
        return main

    @property
    def memory(self) -> Memory:
        """The memory of this session: its client's, or its own."""
        return self._memory.public

    def _create_memory(self) -> MemoryEngine:
        from sennit.memory.memory import session_memory

        return session_memory(self)

    @classmethod
    def _from_store(
        cls,
        record: SessionRecord,
        repository: SessionRepository,
        *,
        memory: LazyMemory | None = None,
        **options: Any,
    ) -> Self:
        """Load a stored session, with the `memory` of its client."""
        session = super()._from_store(record, repository, **options)
        if memory is not None:
            session._memory = memory
        return session

    def _was_written(self, plan: Plan[Any]) -> None:
        """Count new messages, if the memory commits automatically."""
        if plan.messages and self._memory.existing is not None:
            self._memory.existing.count_messages(self, plan.messages, plan.branches)

    def remove_messages(
        self, messages: Iterable[Ref | MessageGroup], *, forget: bool = True
    ) -> list[Message]:
        """Remove messages from all branches and the session, with the memories based on them.

        Memories with other sources stay; with `forget=False` all of them do.
        Raises NotFoundError, and removes none then.
        """
        with self.lock:
            removed = self._resolve_messages(messages)
            erases = bool(removed) and not self._is_committed()
            if erases:
                self._erase_messages(removed)
        if not removed:
            return removed
        if erases and not self._is_committed():
            self._repository.scrub()
            return removed
        # If it is erased already, a commit came in between.
        erase = removed.copy if erases else partial(super().remove_messages, removed)
        return self._memory.get().remove_messages(self, removed, erase, forget=forget)

    def _is_committed(self) -> bool:
        """Return whether the session may have memories, according to the store."""
        return bool(self._archives.number or self._repository.archived(after=0))

    def used(
        self,
        contexts: Iterable[str] | None = None,
        skill: Mapping[str, Any] | None = None,
        branch: BranchRef | None = None,
    ) -> None:
        """Record contexts (by URI) or a skill that were used; the next commit counts each once.

        A skill is a dict with `uri` (under viking://agent/skills/), `input`, `output`, `success`.
        Raises ValidationError for invalid values, and StoreError if the session has no store.
        """
        self._memory.get().used(self, contexts=contexts, skill=skill, branch=branch)

    def commit(
        self, branch: BranchRef | None = None, *, wait: bool = True, keep_recent: int = 0
    ) -> CommitResult:
        """Archive the new messages of a branch and extract memories from them.

        The last `keep_recent` messages stay current. With `wait=False` the extraction runs in the
        background, and the result has a `task_id` for `client.get_task`. Without new messages
        nothing happens. A crash loses nothing: the next commit, or `client.finish_commits()`,
        continues.
        """
        return self._memory.get().commit(self, branch=branch, wait=wait, keep_recent=keep_recent)

    def current(self, branch: BranchRef | None = None) -> list[Message]:
        """Return the messages of a branch that are not archived, its system message first."""
        return self._memory.get().current(self, branch)

    def context(
        self,
        branch: BranchRef | None = None,
        budget_tokens: int = 2_000,
        *,
        query: str | None = None,
        record: bool = True,
        other_sessions: bool = False,
    ) -> Context:
        """Return the context for the next prompt: profile, relevant memories, summaries, messages.

        It takes about `budget_tokens` at most, and each part states its own. Memories are selected
        for the newest instruction, or for `query`, and recorded as used unless `record` is False.
        With `other_sessions` it also quotes relevant messages of other sessions. Raises
        ValidationError.
        """
        from sennit.memory.retrieval.prompt_context import context

        return context(
            self._memory.get(),
            self,
            branch,
            budget_tokens=budget_tokens,
            query=query,
            record=record,
            other_sessions=other_sessions,
        )

    acontext: Final = async_method(context)
    aused: Final = async_method(used)
    acommit: Final = async_method(commit)
    acurrent: Final = async_method(current)

    def label(
        self,
        message: Ref,
        score: float | None = None,
        *,
        thumb: Thumb | None = None,
        by: str = "user",
    ) -> Label:
        """Label a message with a score or a thumb (up is 1, down is 0), replacing an earlier label.

        Raises NotFoundError for an unknown message, ValidationError if the score is not finite.
        """
        from sennit.learning.labels import label

        return label(self, message, score, thumb=thumb, by=by)

    def unlabel(self, message: Ref, *, by: str = "user") -> None:
        """Remove the label that `by` gave a message, if there is one."""
        from sennit.learning.labels import unlabel

        unlabel(self, message, by=by)

    def labels(self, message: Ref | None = None, *, by: str | None = None) -> list[Label]:
        """Return the labels of a message, or of all, oldest first; `by` selects one judge."""
        from sennit.learning.labels import labels

        return labels(self, message, by=by)

    def to_examples(
        self,
        branches: BranchSelection = None,
        *,
        min_score: float | None = None,
        strict_trajectory: bool = False,
        by: str | None = None,
    ) -> list[Example]:
        """Return the answered instructions of branches, each once; by default of all leaf branches.

        `min_score` leaves out those that were scored lower or not at all, `strict_trajectory` also
        all that follow one of these on its branch; `by` counts the labels of one judge only.
        """
        from sennit.learning.examples import Filter, examples

        keep = Filter(min_score=min_score, strict_trajectory=strict_trajectory, by=by)
        return examples(self, branches, keep)

    def score(
        self, metric: Metric, branches: BranchSelection = None, *, by: str | None = None
    ) -> list[Example]:
        """Score each example once with a metric, and label the replies with the scores.

        The labels are `by` the metric's name by default.
        """
        from sennit.learning.examples import score

        return score(self, metric, branches, by=by)

    def to_preferences(
        self, branches: BranchSelection = None, *, by: str | None = None, min_margin: float = 0.0
    ) -> list[Preference]:
        """Return pairs of the best reply to each prompt and each reply scored lower."""
        from sennit.learning.preferences import compare

        return compare(self, branches, by=by, min_margin=min_margin).pairs

    alabel: Final = async_method(label)
    aunlabel: Final = async_method(unlabel)
    alabels: Final = async_method(labels)
    ato_examples: Final = async_method(to_examples)
    ascore: Final = async_method(score)
    ato_preferences: Final = async_method(to_preferences)

    def diff(self, a: BranchRef, b: BranchRef) -> BranchDiff:
        """Return the common ancestor of two branches and the messages of each since then.

        Raises NotFoundError.
        """
        from sennit.sessions.diff import diff

        return diff(self.get_branch(a), self.get_branch(b))

    def tree(self) -> BranchTree:
        """Return the branches as a printable tree of forks."""
        from sennit.sessions.tree import tree

        return tree(self.branches)


def operation_registry(operations: Any) -> OperationRegistry:
    """Return the registry, or a new one for None; raises InvalidTypeError for anything else."""
    from sennit.operations.registry import OperationRegistry  # late: slow to import

    if operations is None:
        return OperationRegistry()
    if not isinstance(operations, OperationRegistry):
        raise InvalidTypeError(
            f"operations must be an OperationRegistry, got {short_repr(operations)}."
        )
    return operations
