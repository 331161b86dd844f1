"""The memory of one client: commits, memories, undo and forget.

It belongs to a client (or to a session that was opened without one) and reaches what that one
reaches: see `realm`. Everything here works without a model; `use` gives it one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any
from uuid import UUID

from sennit import clock, failpoints
from sennit.errors import ConflictError, NotFoundError, StoreError, ValidationError, shown
from sennit.memory.commit.archive import archive, checked_recent, current, uncovered
from sennit.memory.commit.auto_commit import AutoCommit, CommitCounter
from sennit.memory.commit.background_worker import BackgroundWorker
from sennit.memory.commit.finalize import ArchivedMessages, CommitFinalizer, opening
from sennit.memory.commit.result import (
    CommitResult,
    CommitStatus,
    committed,
    failed,
    nothing_done,
    result_of,
)
from sennit.memory.commit.usage import uses
from sennit.memory.extraction.pipeline import digest, digest_by_rules
from sennit.memory.extraction.prompts import PROMPTS, Prompts
from sennit.memory.extraction.values import Digest
from sennit.memory.history import removal
from sennit.memory.history.forget import UndoResult, undo
from sennit.memory.history.history import MemoryReader
from sennit.memory.retrieval.embedders import Embedder
from sennit.memory.retrieval.find import where
from sennit.memory.retrieval.query_planner import SearchResult, plan, plan_by_rules, search
from sennit.memory.retrieval.vector_index import VectorIndex
from sennit.memory.scope import MemoryScope
from sennit.messages.content import MessageRole
from sennit.messages.json_values import text
from sennit.messages.message import Message
from sennit.messages.parts import TextPart
from sennit.services.models.protocol import Model
from sennit.sessions.async_method import async_method
from sennit.sessions.branch import Branch
from sennit.sessions.repository import SessionRepository
from sennit.sessions.session import DEFAULT_BRANCH, BranchRef, SessionCore
from sennit.stores.records.commits import AddUses

_log = logging.getLogger(__name__)

_LATELY = 20
"""How many sessions are looked at for pauses that nobody saw, those changed last."""


class Memory(MemoryReader):
    """The long-term memory of one user with one agent."""

    def __init__(
        self,
        realm: MemoryScope,
        embedder: Embedder | None = None,
        session: Callable[[UUID], SessionCore] | None = None,
    ) -> None:
        """`session` opens one of the user's sessions."""
        super().__init__(realm)
        self._session = session
        self.realm = realm
        self.vectors = None if embedder is None else VectorIndex(realm, embedder)
        self._model: Model | None = None
        self._prompts: Prompts = PROMPTS
        self._finishing = CommitFinalizer(realm, self._think)
        self._one = Lock()  # commits of one client are finished one after another
        self._worker = BackgroundWorker("sennit-memory")
        self._counting: CommitCounter | None = None
        self._resumed = False

    def use(self, *, model: Model | None = None, prompts: Prompts | None = None) -> None:
        """Let a model do the thinking, or none; and say what it is told."""
        self._model = model
        if prompts is not None:
            self._prompts = prompts

    def auto(self, policy: AutoCommit | None) -> None:
        """Commit without being asked, as the policy says, or no longer."""
        self._counting = None if policy is None else CommitCounter(policy)
        if policy is not None and policy.idle is not None and self._session is not None:
            catch_up = partial(self._catch_up, self._session, policy)
            self._worker.put_off("pauses nobody saw", policy.idle, catch_up)

    def _catch_up(self, session: Callable[[UUID], SessionCore], policy: AutoCommit) -> None:
        """Commit what was said before this program began, where nothing was said since."""
        if self._counting is None or self._counting.policy is not policy:
            return
        lately = self.realm.store.list_sessions(
            self.realm.user, contains=None, before=None, limit=_LATELY
        )
        for record in reversed(lately):  # what was said last changes what was said before
            if clock.now_us() - record.updated < (policy.idle or 0) * 1_000_000:
                continue
            with suppress(NotFoundError):  # it was deleted meanwhile
                found = session(record.id)
                for branch in list(found.branches):
                    self._commit_by_itself(found, branch, policy)

    def noticed(
        self, session: SessionCore, messages: Sequence[Message], branches: Sequence[Branch]
    ) -> None:
        """Take note of what was said; a commit that is due is made by the worker."""
        counting = self._counting
        if counting is None:
            return
        for branch in branches:
            commit = partial(self._commit_by_itself, session, branch, counting.policy)
            current = partial(_uncounted, session, branch, counting.policy)
            if counting.is_due(branch.id, messages, current):
                self._worker.submit(commit)
            elif counting.policy.idle is not None:
                self._worker.put_off(branch.id, counting.policy.idle, commit)

    def _commit_by_itself(self, session: SessionCore, branch: Branch, policy: AutoCommit) -> None:
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
        """Record what was used; see `Session.used`."""
        self._resume()
        target = session.default_branch if branch is None else session.get_branch(branch)
        with session.lock:
            used = uses(target, contexts, skill)
        _keeper(session).write([AddUses(used)])

    def current(self, session: SessionCore, branch: BranchRef | None) -> list[Message]:
        """Return the unarchived messages; see `Session.current`."""
        self._resume()
        target = _branch(session, branch)
        return [] if target is None else current(session, target)

    def commit(
        self, session: SessionCore, *, branch: BranchRef | None, wait: bool, keep_recent: int
    ) -> CommitResult:
        """Archive and remember; see `Session.commit`."""
        recent = checked_recent(keep_recent)
        if wait:
            self._refuse_a_loop()
        self._resume()
        target = _branch(session, branch)
        keeper = _keeper(session)
        here = wait or not keeper.store.is_served()
        body = opening(self.realm.agent_name, here=here, model=self._model is not None)
        made = None if target is None else archive(session, keeper, target, recent, body)
        failpoints.reach("memory.commit: archived")
        left = [uid for home, uid in keeper.store.open_commits(keeper.owner) if home == session.id]
        if made is not None:
            # Those that a crash has left open come first; others may have finished this one by now.
            left = [*(uid for uid in left if uid != made.id), made.id]
        if not left:
            return nothing_done()
        messages = [] if made is None else session.messages.pick(made.entries)
        if wait:
            return [self.finish(uid, messages) for uid in left][-1]
        if here:
            for uid in left:
                self._worker.submit(partial(self.finish, uid, messages))
        return self.task(left[-1])

    def _resume(self) -> None:
        """Once: have what a crash has left open finished in the background.

        It is left to the store's workers, if it has any, and for a while to whoever is at it.
        """
        if self._resumed:
            return
        left = self.realm.store.open_commits(self.realm.user)
        self._resumed = True
        if not left or self.realm.store.is_served():
            return
        for _, uid in left:
            with suppress(NotFoundError):  # its session was deleted meanwhile
                finish, held = partial(self.finish, uid), self._finishing.held(uid)
                if held:
                    self._worker.put_off(uid, held, finish)
                else:
                    self._worker.submit(finish)

    def finish(self, commit: UUID, messages: Sequence[Message] = ()) -> CommitResult:
        """Finish a commit, here and now; what goes wrong is in the result."""
        with self._one:
            try:
                return self._finishing.finish(commit, messages)
            except NotFoundError:
                raise
            except ConflictError as error:  # nothing is wrong with it: others try again
                return self._finishing.put_back(commit, str(error))
            except StoreError as error:  # then nothing can be noted either: it stays open
                return failed(self._finishing.found(commit)[1], str(error))
            except Exception as error:
                return self._finishing.fail(commit, f"{type(error).__name__}: {error}")

    def attempt(self, commit: UUID, *, last: bool) -> CommitResult:
        """Finish a commit; what goes wrong is noted with it, and raised unless it was the last try.

        Raises NotFoundError if the commit is gone.
        """
        with self._one:
            try:
                return self._finishing.finish(commit)
            except NotFoundError:
                raise
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                if last:
                    return self._finishing.fail(commit, reason)
                self._finishing.put_back(commit, reason)
                raise

    def give_up(self, commit: UUID, reason: str) -> CommitResult:
        """Note that a commit could not be finished."""
        return self._finishing.fail(commit, reason)

    def finish_all(self) -> list[CommitResult]:
        """Finish all commits of this user that are open, such as those a crash has left."""
        return [self.finish(uid) for _, uid in self.realm.store.open_commits(self.realm.user)]

    def task(self, task_id: str | UUID) -> CommitResult:
        """Return the progress of a commit; raises NotFoundError."""
        self._resume()
        return self.result(commit_id(task_id))

    def result(self, commit: UUID) -> CommitResult:
        """Return the result of a commit so far; raises NotFoundError."""
        return result_of(self._finishing.found(commit)[1])

    def retry(self, task_id: str | UUID) -> CommitResult:
        """Try again to finish a commit that failed; any other is left as it is."""
        uid = commit_id(task_id)
        self._refuse_a_loop()
        with self._one:
            self._finishing.reopen(uid, model=self._model is not None)
        return self.finish(uid)

    def commits(self, session: SessionCore) -> list[CommitStatus]:
        """The commits of a session, the newest first, each with what it decided."""
        found = self.realm.store.commits(self.realm.user, session.id).commits
        return [committed(session.id, one) for one in reversed(found)]

    def committed(self, task_id: str | UUID) -> CommitStatus:
        """One commit, with what it decided; raises NotFoundError."""
        session, record = self._finishing.found(commit_id(task_id))
        return committed(session, record)

    acommits = async_method(commits)
    acommitted = async_method(committed)

    def undo(self, task_id: str | UUID) -> UndoResult:
        """Take back what a commit has written; see `Client.undo_commit`."""
        with self._one:
            return undo(self.realm, commit_id(task_id))

    def remove_messages(
        self,
        session: SessionCore,
        messages: Sequence[Message],
        erase: Callable[[], list[Message]],
        *,
        forget: bool,
    ) -> list[Message]:
        """Erase messages, and what was learnt from them; see `Session.remove_messages`."""
        gone = [one.id for one in messages]
        return removal.remove(self.realm, session.id, gone, erase, forget=forget)

    def search(
        self, query: str, session: SessionCore | None, branch: BranchRef | None, limit: int
    ) -> SearchResult:
        """Plan queries and find what they ask for; see `Client.search`."""
        self._refuse_a_loop()
        query = text(query, "the text to search for")
        held = [] if session is None else self.current(session, branch)
        said = [
            part.text for message in held for part in message.parts if isinstance(part, TextPart)
        ]
        queries = (
            plan_by_rules(query, said)
            if self._model is None
            else asyncio.run(plan(query, said, self._model, self._prompts))
        )
        limits = where(self.realm, without=frozenset(message.id for message in held))
        return search(self.realm, queries, limits, limit=limit, vectors=self.vectors)

    def _think(self, archived: ArchivedMessages) -> Digest:
        if self._model is None:
            return digest_by_rules(archived.messages, archived.similar)
        return asyncio.run(
            digest(
                archived.messages,
                archived.similar,
                model=self._model,
                prompts=self._prompts,
            )
        )

    def _refuse_a_loop(self) -> None:
        """A model is asked in an event loop of its own, which cannot run inside another one."""
        if self._model is None:
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise ValidationError(
            "An event loop is running here; use acommit(), aretry_task() or asearch()."
        )

    def close(self) -> None:
        """Finish what the worker has to do."""
        self._worker.close()


def _uncounted(session: SessionCore, branch: Branch, policy: AutoCommit) -> Sequence[Message]:
    """Return messages that no commit covers, without those the last one was told to leave."""
    left = uncovered(session, branch)
    return session.messages.pick(left[policy.keep_recent if session.archives.number else 0 :])


def _branch(session: SessionCore, branch: BranchRef | None) -> Branch | None:
    """The branch that is meant, as it is now; without a name the default one, if there is any."""
    session.refresh()
    if branch is None:
        return session.get_branch(DEFAULT_BRANCH, None)
    return session.get_branch(branch)


def _keeper(session: SessionCore) -> SessionRepository:
    keeper = session.keeper
    if keeper is None:
        raise StoreError(
            "A session without a store cannot be committed; open it with "
            "sennit.open(...).session(key), or pass Session(store=...)."
        )
    return keeper


def memory_of(session: SessionCore) -> Memory:
    """The memory of a session that has no client; raises StoreError if it has no store either."""
    keeper, agent = _keeper(session), session.agent
    name = agent.value if isinstance(agent, MessageRole) else str(agent)
    return Memory(MemoryScope(keeper.store, keeper.owner, name))


def commit_id(given: Any) -> UUID:
    """The id of a commit as people have it; raises ValidationError."""
    if isinstance(given, UUID):
        return given
    try:
        return UUID(given)
    except (ValueError, TypeError, AttributeError):
        raise ValidationError(
            f"A commit id is the task_id of its result; got {shown(given)}."
        ) from None
