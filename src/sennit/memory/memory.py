"""The memory of one client, and the engine behind it: commits, search, undo, removal of messages.

It belongs to a client (or to a session opened without one) and reaches the files of its
`MemoryScope`. Everything works without a model, by rules; `use` sets one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any, Final
from uuid import UUID

from sennit import clock, failpoints
from sennit.blocking import refuse_running_loop
from sennit.errors import ConflictError, NotFoundError, StoreError, ValidationError, short_repr
from sennit.memory.commit.archive import (
    archive,
    current_messages,
    unarchived_entries,
)
from sennit.memory.commit.auto_commit import AutoCommit, CommitCounter
from sennit.memory.commit.background_worker import BackgroundWorker
from sennit.memory.commit.finalize import ArchivedMessages, CommitFinalizer, new_commit_body
from sennit.memory.commit.result import (
    CommitResult,
    CommitStatus,
    commit_status,
    empty_result,
    failed_result,
    result_of,
)
from sennit.memory.commit.usage import usage_records
from sennit.memory.extraction.pipeline import digest, digest_by_rules
from sennit.memory.extraction.prompts import PROMPTS, Prompts
from sennit.memory.extraction.values import Digest
from sennit.memory.history.forget import UndoResult, remove_messages, undo
from sennit.memory.history.history import MemoryReader
from sennit.memory.retrieval.embedders import Embedder, VectorIndex
from sennit.memory.retrieval.find import where
from sennit.memory.retrieval.query_planner import SearchResult, plan, plan_by_rules, search
from sennit.memory.scope import MemoryScope
from sennit.messages.content import MessageRole
from sennit.messages.json_values import validate_text
from sennit.messages.message import Message
from sennit.messages.parts import TextPart
from sennit.numbers import count
from sennit.services.models.protocol import Model
from sennit.services.registry import ServiceRegistry, registry_of, with_provider_model
from sennit.sessions.async_method import async_method
from sennit.sessions.branch import Branch
from sennit.sessions.repository import repository_of
from sennit.sessions.session import DEFAULT_BRANCH, BranchRef, SessionCore
from sennit.sessions.unarchived import archives_of
from sennit.stores.records.commits import AddUses
from sennit.turns.request import resolve_model

_log = logging.getLogger(__name__)

_CATCH_UP_SESSIONS = 20
"""The number of most recently changed sessions that are checked for a missed idle commit."""


class MemoryEngine:
    """Carries out the commits and searches of one user with one agent."""

    def __init__(
        self,
        scope: MemoryScope,
        embedder: Embedder | None = None,
        session: Callable[[UUID], SessionCore] | None = None,
        services: ServiceRegistry | None = None,
    ) -> None:
        """`session` opens one of the user's sessions by id; `services` has models by name."""
        self._session = session
        self._services = registry_of(services)
        self.scope = scope
        self._worker = BackgroundWorker("sennit-memory")
        run_later = partial(self._worker.schedule, "embedding", 0.0)
        self.vectors: VectorIndex | None = (
            None if embedder is None else VectorIndex(scope, embedder, run_later)
        )
        self._model: Model | None = None
        self._prompts: Prompts = PROMPTS
        self._finalizer = CommitFinalizer(scope, self._extract)
        self._finish_lock = Lock()  # commits of one client are finished one after another
        self._counter: CommitCounter | None = None
        self._resumed = False

    def use(self, *, model: str | Model | None = None, prompts: Prompts | None = None) -> None:
        """Set the model that extracts memories and its prompts; see `Memory.use`."""
        if model is not None:
            model = resolve_model(self._services, with_provider_model(self._services, model))[1]
        self._model = model
        if prompts is not None:
            self._prompts = prompts

    def auto(self, policy: AutoCommit | None) -> None:
        """Set the policy for automatic commits; None turns them off."""
        self._counter = None if policy is None else CommitCounter(policy)
        if policy is not None and policy.idle is not None and self._session is not None:
            catch_up = partial(self._catch_up, self._session, policy)
            self._worker.schedule("pauses nobody saw", policy.idle, catch_up)

    def _catch_up(self, open_session: Callable[[UUID], SessionCore], policy: AutoCommit) -> None:
        """Commit branches that have been idle since before this process started."""
        if self._counter is None or self._counter.policy is not policy:
            return
        records = self.scope.store.list_sessions(
            self.scope.user, contains=None, before=None, limit=_CATCH_UP_SESSIONS
        )
        for record in reversed(records):  # oldest first: later statements supersede earlier ones
            if clock.now_us() - record.updated < (policy.idle or 0) * 1_000_000:
                continue
            with suppress(NotFoundError):  # deleted in the meantime
                session = open_session(record.id)
                for branch in list(session.branches):
                    self._auto_commit(session, branch, policy)

    def count_messages(
        self, session: SessionCore, messages: Sequence[Message], branches: Sequence[Branch]
    ) -> None:
        """Count new messages on branches; a commit that is due runs on the background worker."""
        counter = self._counter
        if counter is None:
            return
        for branch in branches:
            commit = partial(self._auto_commit, session, branch, counter.policy)
            load_uncounted = partial(_messages_to_count, session, branch, counter.policy)
            if counter.is_due(branch.id, messages, load_uncounted):
                self._worker.submit(commit)
            elif counter.policy.idle is not None:
                self._worker.schedule(branch.id, counter.policy.idle, commit)

    def _auto_commit(self, session: SessionCore, branch: Branch, policy: AutoCommit) -> None:
        recent = policy.keep_recent
        self.commit(session, branch=branch.id, wait=False, keep_recent=recent)

    def used(
        self,
        session: SessionCore,
        *,
        contexts: Iterable[str] | None,
        skill: Mapping[str, Any] | None,
        branch: BranchRef | None,
    ) -> None:
        """Record contexts and a skill as used; see `Session.used`."""
        self._resume()
        target = session.default_branch if branch is None else session.get_branch(branch)
        with session.lock:
            records = usage_records(self.scope, target, contexts, skill)
        repository_of(session).record(AddUses(records))

    def current(self, session: SessionCore, branch: BranchRef | None) -> list[Message]:
        """Return the unarchived messages; see `Session.current`."""
        self._resume()
        target = _find_branch(session, branch)
        return [] if target is None else current_messages(session, target)

    def commit(
        self, session: SessionCore, *, branch: BranchRef | None, wait: bool, keep_recent: int
    ) -> CommitResult:
        """Archive messages and extract memories from them; see `Session.commit`."""
        count(keep_recent, "keep_recent", minimum=0)
        if wait:
            refuse_running_loop("await acommit()")
        self._resume()
        target = _find_branch(session, branch)
        repository = repository_of(session).stored()
        here = wait or not repository.store.has_workers()
        if here and not wait and self._worker.closed:
            raise StoreError(
                "This client is closed and runs no commits in the background; pass wait=True, or "
                "open another client."
            )
        body = new_commit_body(self.scope.agent_name, here=here, model=self._model is not None)
        record = None if target is None else archive(session, repository, target, keep_recent, body)
        failpoints.reach("memory.commit: archived")
        commit_ids = [
            uid
            for session_id, uid in repository.store.open_commits(repository.owner)
            if session_id == session.id
        ]
        if record is not None:
            # Commits left open by a crash go first; another process may have finished this one.
            commit_ids = [*(uid for uid in commit_ids if uid != record.id), record.id]
        if not commit_ids:
            return empty_result()
        messages = [] if record is None else session.messages.pick(record.entries)
        if wait:
            return [self.finish(uid, messages) for uid in commit_ids][-1]
        if here:
            for uid in commit_ids:
                self._worker.submit(partial(self.finish, uid, messages))
        return self.task(commit_ids[-1])

    def _resume(self) -> None:
        """Schedule the open commits that a crash has left, once.

        Do nothing if the store has its own workers. A commit that its owner still holds is delayed
        until the hold ends.
        """
        if self._resumed:
            return
        open_commits = self.scope.store.open_commits(self.scope.user)
        self._resumed = True
        if not open_commits or self.scope.store.has_workers():
            return
        for _, uid in open_commits:
            with suppress(NotFoundError):  # deleted in the meantime
                finish, delay = partial(self.finish, uid), self._finalizer.takeover_delay(uid)
                if delay:
                    self._worker.schedule(uid, delay, finish)
                else:
                    self._worker.submit(finish)

    def finish(self, commit: UUID, messages: Sequence[Message] = ()) -> CommitResult:
        """Finish a commit in this thread and report errors in the result.

        Raises NotFoundError if the commit is gone.
        """
        with self._finish_lock:
            try:
                return self._finalizer.finish(commit, messages)
            except NotFoundError:
                raise
            except ConflictError as error:  # not a failure: it stays open for another attempt
                return self._finalizer.record_failure(commit, "open", str(error))
            except StoreError as error:  # the failure cannot be recorded either: it stays open
                return failed_result(self.scope.commit(commit)[1], str(error))
            except Exception as error:
                return self._finalizer.record_failure(commit, "failed", _reason(error))

    def attempt(self, commit: UUID, *, last: bool) -> CommitResult:
        """Finish a commit; record an error with it, and raise it unless this is the `last` attempt.

        Raises NotFoundError if the commit is gone.
        """
        with self._finish_lock:
            try:
                return self._finalizer.finish(commit)
            except NotFoundError:
                raise
            except Exception as error:
                state = "failed" if last else "open"
                result = self._finalizer.record_failure(commit, state, _reason(error))
                if last:
                    return result
                raise

    def mark_failed(self, commit: UUID, reason: str) -> CommitResult:
        """Mark a commit as failed."""
        return self._finalizer.record_failure(commit, "failed", reason)

    def finish_all(self) -> list[CommitResult]:
        """Finish all open commits of this user, such as those a crash has left."""
        return [self.finish(uid) for _, uid in self.scope.store.open_commits(self.scope.user)]

    def task(self, task_id: str | UUID) -> CommitResult:
        """Return the progress of a commit; raises NotFoundError."""
        self._resume()
        return self.result(commit_id(task_id))

    def result(self, commit: UUID) -> CommitResult:
        """Return the result of a commit so far; raises NotFoundError."""
        return result_of(self.scope.commit(commit)[1])

    def retry(self, task_id: str | UUID) -> CommitResult:
        """Reopen and finish a failed commit; any other commit is left unchanged."""
        uid = commit_id(task_id)
        refuse_running_loop("await aretry_task()")
        with self._finish_lock:
            self._finalizer.reopen(uid, model=self._model is not None)
        return self.finish(uid)

    def commits(self, session: SessionCore) -> list[CommitStatus]:
        """Return the commits of a session with their decisions, newest first."""
        records = self.scope.store.commits(self.scope.user, session.id).commits
        return [commit_status(session.id, record) for record in reversed(records)]

    def committed(self, task_id: str | UUID) -> CommitStatus:
        """Return one commit with its decisions; raises NotFoundError."""
        session, record = self.scope.commit(commit_id(task_id))
        return commit_status(session, record)

    def undo(self, task_id: str | UUID) -> UndoResult:
        """Undo what a commit has written; see `Client.undo_commit`."""
        with self._finish_lock:
            return undo(self.scope, commit_id(task_id))

    def remove_messages(
        self,
        session: SessionCore,
        messages: Sequence[Message],
        erase: Callable[[], list[Message]],
        *,
        forget: bool,
    ) -> list[Message]:
        """Erase messages and, with `forget`, the memories derived from them.

        See `Session.remove_messages`.
        """
        ids = [message.id for message in messages]
        return remove_messages(self.scope, session.id, ids, erase, forget=forget)

    def search(
        self, query: str, session: SessionCore | None, branch: BranchRef | None, limit: int
    ) -> SearchResult:
        """Plan queries for a question and run them; see `Client.search`."""
        if self._model is not None:
            refuse_running_loop("await asearch()")
        query = validate_text(query, "the text to search for")
        messages = [] if session is None else self.current(session, branch)
        texts = [
            part.text
            for message in messages
            for part in message.parts
            if isinstance(part, TextPart)
        ]
        queries = (
            plan_by_rules(query, texts)
            if self._model is None
            else asyncio.run(plan(query, texts, self._model, self._prompts))
        )
        filters = where(self.scope, without=frozenset(message.id for message in messages))
        return search(self.scope, queries, filters, limit=limit, vectors=self.vectors)

    def _extract(self, archived: ArchivedMessages) -> Digest:
        if self._model is None:
            return digest_by_rules(archived.messages, archived.similar)
        return asyncio.run(
            digest(archived.messages, archived.similar, model=self._model, prompts=self._prompts)
        )

    def close(self) -> None:
        """Finish the queued jobs and stop the worker."""
        self._worker.close()


class Memory(MemoryReader):
    """The long-term memory of one user with one agent."""

    def __init__(self, engine: MemoryEngine) -> None:
        """Show the memory of a client or session; `client.memory` does."""
        super().__init__(engine.scope)
        self._engine = engine

    def use(self, *, model: str | Model | None = None, prompts: Prompts | None = None) -> None:
        """Set the model that extracts memories, or None for rules, and its prompts.

        `model` is a Model, a registered name or a provider string such as "openai:gpt-5", as for
        `Session.conversation`. Raises NotFoundError for an unknown name, InvalidTypeError for
        anything else.
        """
        self._engine.use(model=model, prompts=prompts)

    def auto(self, policy: AutoCommit | None) -> None:
        """Set the policy for automatic commits; None turns them off."""
        self._engine.auto(policy)

    def commits(self, session: SessionCore) -> list[CommitStatus]:
        """Return the commits of a session with their decisions, newest first."""
        return self._engine.commits(session)

    def committed(self, task_id: str | UUID) -> CommitStatus:
        """Return one commit with its decisions; raises NotFoundError."""
        return self._engine.committed(task_id)

    acommits: Final = async_method(commits)
    acommitted: Final = async_method(committed)


def engine_of(memory: Memory) -> MemoryEngine:
    """Return the engine of a memory."""
    return memory._engine  # pyright: ignore[reportPrivateUsage]


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _messages_to_count(
    session: SessionCore, branch: Branch, policy: AutoCommit
) -> Sequence[Message]:
    """Return the unarchived messages, without those that the last commit left unarchived."""
    entries = unarchived_entries(session, branch)
    return session.messages.pick(
        entries[policy.keep_recent if archives_of(session).number else 0 :]
    )


def _find_branch(session: SessionCore, branch: BranchRef | None) -> Branch | None:
    """Refresh a session and return a branch; without a name the default one, or None."""
    session.refresh()
    if branch is None:
        return session.get_branch(DEFAULT_BRANCH, None)
    return session.get_branch(branch)


def session_memory(session: SessionCore) -> MemoryEngine:
    """Return the memory of a session without a client; raises StoreError if it has no store."""
    repository, agent = repository_of(session).stored(), session.agent
    name = agent.value if isinstance(agent, MessageRole) else str(agent)
    scope = MemoryScope(repository.store, repository.owner, name)
    return MemoryEngine(scope, services=session.services)


def commit_id(value: Any) -> UUID:
    """Parse the id of a commit; raises ValidationError."""
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except (ValueError, TypeError, AttributeError):
        raise ValidationError(
            f"A commit id is the task_id of its result; got {short_repr(value)}."
        ) from None
