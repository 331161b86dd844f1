"""The public Session.

SessionCore knows messages, branches and services; this class adds one-line doors to what is built
on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sennit.api.lazy_memory import LazyMemory
from sennit.api.own_store import OwnStore
from sennit.closing import AsyncClosing, Closing
from sennit.containers.flow import Flow
from sennit.errors import ExistsError, InvalidTypeError, shown
from sennit.messages.message import Message, SenderRecipient
from sennit.sessions.async_method import async_method
from sennit.sessions.branches import DEFAULT_BRANCH
from sennit.sessions.grants import NEVER_GIVEN
from sennit.sessions.session import ASSISTANT, BranchRef, SessionCore

if TYPE_CHECKING:
    from sennit.containers.element import Ref
    from sennit.learning.examples import Example, Metric, Which
    from sennit.learning.labels import Label, Thumb
    from sennit.learning.preferences import Preference
    from sennit.memory.commit.result import CommitResult
    from sennit.memory.memory import Memory
    from sennit.memory.retrieval.prompt_context import Context
    from sennit.messages.parts import MessageGroup
    from sennit.operations.ipu import IPU
    from sennit.operations.operation import Operation
    from sennit.operations.registry import OperationRegistry
    from sennit.services.models.protocol import Model
    from sennit.services.registry import ServiceRegistry
    from sennit.sessions.branch import Branch
    from sennit.sessions.diff import BranchDiff
    from sennit.sessions.tree import BranchTree
    from sennit.stores.base import Store
    from sennit.turns.conversation import ConversationSession
    from sennit.turns.request import RequestDraft


class Session(SessionCore, Closing, AsyncClosing):
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
        """`user` and `agent` send what is added by role; each of `conversations` becomes a branch.

        `services` and `operations` are what it may call and do, by default registries of its own.
        Without a `store` it lives in memory. With one (a Store, or an address as `sennit.open`
        takes) it is kept there under its `id`: opened as it is if it is there, else new. Use it
        as a context manager, or `close` it. Raises ExistsError for `conversations` it would have
        to mix into what is kept already.
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
        self._memory = LazyMemory(self._own_memory)
        self._home = None if store is None else self._move_into(OwnStore(store), conversations)

    def _move_into(self, home: OwnStore, conversations: Flow[Message, Any] | None) -> OwnStore:
        """Be the session that is kept there under this id; if there is none, keep this one."""
        try:
            self._keep(home.kept(self), home.keeper(self.id))
            if conversations is not None:
                self._bring_in(conversations)
        except BaseException:
            home.close()
            raise
        return home

    def _bring_in(self, conversations: Flow[Message, Any]) -> None:
        if len(self.messages) or len(self.branches):
            raise ExistsError(
                f"Session {self.id} already exists in the store, with {len(self.messages)} "
                f"messages; open it without conversations= and add messages to it."
            )
        self._take_over(conversations)

    def close(self) -> None:
        """Let go of the `store` it was made with, and close that if it was given as an address.

        Any other session has nothing to close: it lives in memory, or its client is closed.
        """
        if self._home is not None:
            self._memory.close()
            self._home.close()

    aclose = async_method(close)

    @property
    def operations(self) -> OperationRegistry:
        """The operations that `conduct` accepts, by name."""
        with self.lock:
            if self._operations is None:
                self._operations = operation_registry(None)
            return self._operations

    async def conduct(
        self,
        *,
        branch: BranchRef,
        operation: str,
        ipu: IPU | None = None,
        params: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Operation:
        """An operation that the branch may run, ready to `invoke`; nothing has run yet.

        Parameters go by name, or together in `params`. Raises NotFoundError if there is no such
        operation, branch or service, and AccessError unless the branch was granted every service
        (`imodel`, `tools`) and `response_model` it names, and all that the operation requires.
        """
        from sennit.operations.conduct import conduct

        return conduct(
            self,
            self.operations,
            branch=branch,
            operation=operation,
            ipu=ipu,
            params=params,
            **more,
        )

    def conversation(
        self,
        branch: BranchRef | None = None,
        *,
        model: str | Model,
        tools: Iterable[Any] = (),
        system: str | Message | None = None,
        observers: Iterable[Any] = (),
        policies: Iterable[Any] = (),
        contexts: Iterable[Any] = (),
        generate_greeting: bool = False,
        **params: Any,
    ) -> ConversationSession:
        """Run turns on a branch, by default on "main", which is made when first needed.

        `model` is an object, a registered name or a provider string such as "openai:gpt-5" or
        "local"; tools are objects or registered names. Registered names must be granted to the
        branch, and objects and provider strings as well once it was given any grants. `system` is
        the system message, unless the branch has the same already. Every question and answer
        passes the `policies`, `contexts` add to the prompt, and with `generate_greeting` the model
        speaks first. `params` are those of the model. Raises NotFoundError for an unknown name,
        ExistsError for two tools of one name, AccessError for what the branch may not use.
        """
        from sennit.turns.conversation import ConversationSession
        from sennit.turns.request import RequestDraft

        if isinstance(model, str) and model not in self.services:
            model = self.services.provider_model(model)
        draft = RequestDraft.of(
            self.services,
            model=model,
            tools=tools,
            policies=policies,
            contexts=contexts,
            **params,
        )
        request = draft.on(self._branch_for(draft, branch))
        if system is not None:
            self.ensure_branch_system(request.branch, system)
        return ConversationSession(
            request, observers=observers, generate_greeting=generate_greeting
        )

    def _branch_for(self, draft: RequestDraft, branch: BranchRef | None) -> Branch:
        """The branch that is meant; "main" is made if the draft may run on a new branch."""
        if branch is not None and branch != DEFAULT_BRANCH:
            return self.get_branch(branch)
        found = self.get_branch(DEFAULT_BRANCH, None)
        if found is None:
            NEVER_GIVEN.check(DEFAULT_BRANCH, draft.needs)
            found = self.default_branch
        return found

    @property
    def memory(self) -> Memory:
        """The memory of this session: its client's, or its own."""
        return self._memory.get()

    def _own_memory(self) -> Memory:
        from sennit.memory.memory import memory_of

        return memory_of(self)

    def share_memory(self, memory: LazyMemory) -> None:
        """Remember together with others; for the client."""
        self._memory = memory

    def _was_kept(self, messages: Sequence[Message], branches: Sequence[Branch]) -> None:
        if self._memory.made is not None:
            self._memory.made.noticed(self, messages, branches)

    def remove_messages(
        self, messages: Iterable[Ref | MessageGroup], *, forget: bool = True
    ) -> list[Message]:
        """Take messages off all branches and out of the session, with what was learnt from them.

        What was said elsewhere too is remembered on; with `forget=False` all of it.
        Raises NotFoundError, and removes none then.
        """
        if self.keeper is None:  # nothing is learnt where nothing is kept
            return super().remove_messages(messages)
        with self.lock:
            found = self._found(messages)
        if not found:
            return found
        erase = partial(super().remove_messages, found)
        if not self._is_committed():
            erase()
            if not self._is_committed():
                self.keeper.store.scrub()
                return found
            erase = found.copy  # a commit has come in between
        return self.memory.remove_messages(self, found, erase, forget=forget)

    def _is_committed(self) -> bool:
        """Return whether anything of it may have been remembered; asked of the store."""
        return self.keeper is not None and bool(
            self.archives.number or self.keeper.archived(after=0)
        )

    def used(
        self,
        contexts: Iterable[str] | None = None,
        skill: Mapping[str, Any] | None = None,
        branch: BranchRef | None = None,
    ) -> None:
        """Record contexts (by URI) or a skill that were used; the next commit counts each once.

        A skill is a dict with `uri` (under viking://agent/skills/), `input`, `output`, `success`.
        Raises ValidationError for what is none, and StoreError if the session has no store.
        """
        self.memory.used(self, contexts=contexts, skill=skill, branch=branch)

    def commit(
        self, branch: BranchRef | None = None, *, wait: bool = True, keep_recent: int = 0
    ) -> CommitResult:
        """Archive what is new on a branch, and remember what matters in it.

        The last `keep_recent` messages stay current. With `wait=False` a worker does the rest, and
        the result has a `task_id` for `client.get_task`. With nothing new it does nothing. A crash
        at any moment loses nothing: the next commit, or `client.finish_commits()`, goes on.
        """
        return self.memory.commit(self, branch=branch, wait=wait, keep_recent=keep_recent)

    def current(self, branch: BranchRef | None = None) -> list[Message]:
        """The messages of a branch that are not archived, its system message first."""
        return self.memory.current(self, branch)

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

        All of it together takes about `budget_tokens` at most, and each piece says how many. It is
        made for the newest instruction, or for `query`. What is in it is recorded as used, unless
        `record` is False. With `other_sessions` messages of other sessions that fit come too, as
        they were said. Raises ValidationError.
        """
        from sennit.memory.retrieval.prompt_context import context

        return context(
            self.memory,
            self,
            branch,
            budget_tokens=budget_tokens,
            query=query,
            record=record,
            other_sessions=other_sessions,
        )

    acontext = async_method(context)
    aused = async_method(used)
    acommit = async_method(commit)
    acurrent = async_method(current)

    def label(
        self,
        message: Ref,
        score: float | None = None,
        *,
        thumb: Thumb | None = None,
        by: str = "user",
    ) -> Label:
        """Judge a message by a score or a thumb (up is 1, down is 0); judging again replaces it.

        Raises NotFoundError if the message is not here, ValidationError for no finite number.
        """
        from sennit.learning.labels import label

        return label(self, message, score, thumb=thumb, by=by)

    def unlabel(self, message: Ref, *, by: str = "user") -> None:
        """Take back what a judge said of a message, if anything."""
        from sennit.learning.labels import unlabel

        unlabel(self, message, by=by)

    def labels(self, message: Ref | None = None, *, by: str | None = None) -> list[Label]:
        """Return the labels of a message, or of all, oldest first; `by` selects one judge."""
        from sennit.learning.labels import labels

        return labels(self, message, by=by)

    def to_examples(
        self,
        branches: Which = None,
        *,
        min_score: float | None = None,
        strict_trajectory: bool = False,
        by: str | None = None,
    ) -> list[Example]:
        """The answered instructions of branches, each once; by default of all that end somewhere.

        With `min_score` those that were scored lower, or not at all, are left out, and with
        `strict_trajectory` all that follows one on its branch; `by` counts one judge's labels.
        """
        from sennit.learning.examples import Filter, examples

        keep = Filter(min_score=min_score, strict_trajectory=strict_trajectory, by=by)
        return examples(self, branches, keep)

    def score(
        self, metric: Metric, branches: Which = None, *, by: str | None = None
    ) -> list[Example]:
        """Ask a metric about each example, once, and label the answers with what it says.

        The labels are `by` the metric's name unless told otherwise.
        """
        from sennit.learning.examples import score

        return score(self, metric, branches, by=by)

    def to_preferences(
        self, branches: Which = None, *, by: str | None = None, min_margin: float = 0.0
    ) -> list[Preference]:
        """The best answer to each prompt against each that was scored lower, over all branches."""
        from sennit.learning.preferences import preferences

        return preferences(self, branches, by=by, min_margin=min_margin)

    alabel = async_method(label)
    aunlabel = async_method(unlabel)
    alabels = async_method(labels)
    ato_examples = async_method(to_examples)
    ascore = async_method(score)
    ato_preferences = async_method(to_preferences)

    def diff(self, a: BranchRef, b: BranchRef) -> BranchDiff:
        """The common ancestor of two branches and what each has since; raises NotFoundError."""
        from sennit.sessions.diff import diff

        return diff(self.get_branch(a), self.get_branch(b))

    def tree(self) -> BranchTree:
        """The branches as a tree of forks; print it to see it."""
        from sennit.sessions.tree import tree

        return tree(self.branches)


def operation_registry(operations: Any) -> OperationRegistry:
    """The registry given, or a new one; raises InvalidTypeError for anything else."""
    from sennit.operations.registry import OperationRegistry  # with all that operations need: late

    if operations is None:
        return OperationRegistry()
    if not isinstance(operations, OperationRegistry):
        raise InvalidTypeError(f"operations must be an OperationRegistry, got {shown(operations)}.")
    return operations
