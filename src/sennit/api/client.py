"""The public Client.

ClientCore knows sessions and stores; this class says which Session it opens, and is a context
manager: `with sennit.open() as client`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import cached_property, partial
from os import PathLike
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sennit import clock, settings
from sennit.api.lazy_memory import LazyMemory
from sennit.api.own_store import DEFAULT
from sennit.api.session import Session, operation_registry
from sennit.closing import AsyncClosing, Closing
from sennit.errors import InvalidTypeError, ValidationError, shown
from sennit.paths import local_path
from sennit.sessions.async_method import async_method
from sennit.sessions.client import ClientCore
from sennit.sessions.repository import SessionRepository
from sennit.sessions.session import ASSISTANT, BranchRef
from sennit.stores.base import Store
from sennit.stores.group_commit import GroupCommitter
from sennit.stores.records.sessions import Owner, SessionRecord
from sennit.stores.retention import checked_retention, due, purge, purge_if_possible

if TYPE_CHECKING:
    from sennit.learning.export import Exported, ExportOptions, SessionSource, TrainingLines
    from sennit.memory.commit.result import CommitResult
    from sennit.memory.files.filesystem import FileSystem
    from sennit.memory.history.forget import ForgetResult, UndoResult
    from sennit.memory.memory import Memory
    from sennit.memory.retrieval.embedders import Embedder
    from sennit.memory.retrieval.find import Match
    from sennit.memory.retrieval.query_planner import SearchResult
    from sennit.operations.registry import OperationRegistry
    from sennit.services.registry import ServiceRegistry
    from sennit.stores.doctor.checks import Finding
    from sennit.stores.transfer.export_import import ExportSummary, ImportSummary, Progress


def checked_embedder(given: Any) -> Embedder | None:
    """`given`, if it can embed or is None; raises InvalidTypeError."""
    embeds = hasattr(given, "name") and callable(getattr(given, "embed", None))
    if given is not None and (isinstance(given, type) or not embeds):
        raise InvalidTypeError(
            f"embedder must have a name and embed(texts), as MiniLM() has, got {shown(given)}."
        )
    return given


class Client(ClientCore[Session], Closing, AsyncClosing):
    """One user's sessions in a store; made by `sennit.open`."""

    def __init__(
        self,
        store: Store,
        *,
        tenant: str | None = None,
        user: str | None = None,
        agent: str | None = None,
        shared_space: bool = False,
        services: ServiceRegistry | None = None,
        operations: OperationRegistry | None = None,
        embedder: Embedder | None = None,
        group: GroupCommitter | None = None,
        retention: timedelta | None = None,
    ) -> None:
        """With `shared_space` it reaches what all users of the tenant share, and may change it.

        `services` and `operations` are those of all its sessions, by default its own.

        With an `embedder`, `find` goes by meaning too. `group` is what clients of one store have in
        common: see `sennit.api.client_pool`. `retention` is as for `sennit.open`.
        """
        self._retention = checked_retention(
            settings.retention() if retention is None else retention
        )
        self._closing = False
        super().__init__(
            store,
            session_type=Session,
            tenant=DEFAULT if tenant is None else tenant,
            user=DEFAULT if user is None else user,
            agent=ASSISTANT if agent is None else agent,
            services=services,
            group=group,
        )
        self._shared_space = shared_space
        self._embedder = checked_embedder(embedder)
        self._memory = LazyMemory(self._new_memory)
        self._given_operations = None if operations is None else operation_registry(operations)

    @cached_property
    def operations(self) -> OperationRegistry:
        """The operations that sessions of this client can conduct."""
        return self._given_operations or operation_registry(None)

    def _opened(self, record: SessionRecord, keeper: SessionRepository) -> Session:
        opened = Session.opened(
            record, keeper, services=self.services, operations=self.operations, agent=self.agent
        )
        opened.share_memory(self._memory)
        return opened

    @property
    def memory(self) -> Memory:
        """The memory of this user and agent."""
        return self._memory.get()

    def _new_memory(self) -> Memory:
        from sennit.memory.memory import Memory
        from sennit.memory.scope import MemoryScope

        realm = MemoryScope(self._store, self._owner, self.agent, self._shared_space)
        return Memory(realm, self._embedder, partial(self.session, create=False))

    @cached_property
    def fs(self) -> FileSystem:
        """Sessions, memories, skills and resources as one tree of files."""
        from sennit.memory.files.filesystem import FileSystem

        return FileSystem(self.memory.realm, lambda uid: self.session(uid, create=False))

    def get_task(self, task_id: str | UUID) -> CommitResult:
        """Return the progress of a commit by the `task_id` of its result; raises NotFoundError."""
        return self.memory.task(task_id)

    def retry_task(self, task_id: str | UUID) -> CommitResult:
        """Try again to finish a commit that failed."""
        return self.memory.retry(task_id)

    def finish_commits(self) -> list[CommitResult]:
        """Finish all commits that are open, such as those that a crash has left."""
        return self.memory.finish_all()

    def undo_commit(self, commit_id: str | UUID) -> UndoResult:
        """Take back what a commit has written to memory; its archive stays.

        Memories say again what they said before. Raises NotFoundError.
        """
        return self.memory.undo(commit_id)

    def forget(
        self,
        *,
        user: str | None = None,
        uri: str | None = None,
        session: str | UUID | None = None,
    ) -> ForgetResult:
        """Erase for good: this user's data, what is at a URI, or a session; name one of them.

        All that rests on what is erased goes too: memories, their versions, rows of the index.
        Raises NotFoundError if nothing is there, AccessError for another user.
        """
        from sennit.memory.history.forget import forget

        realm = self.memory.realm
        return forget(realm, super().delete_session, user=user, uri=uri, session=session)

    def delete_session(self, session_id: str | UUID) -> bool:
        """Erase a session and everything in it, every trace of it; False if there was none."""
        was_there = super().delete_session(session_id)
        self._store.scrub()  # also of one that was erased by a call that was cut off
        return was_there

    def close(self) -> None:
        """Finish what is under way, then close the store, unless others share it."""
        self._memory.close()
        if not self._shares and not self._closing:
            self._closing = True
            purge_if_possible(self._store, self._owner, due(self._retention), self.lose)
        super().close()

    def export(
        self,
        path: str | PathLike[str],
        sessions: str | UUID | Iterable[str | UUID] | None = None,
        progress: Progress | None = None,
    ) -> ExportSummary:
        """Write sessions, by default all, to a new archive: a ".zip" file, or else a folder.

        Raises ExistsError if the path is taken, NotFoundError if a named session is not here.
        """
        from sennit.stores.transfer.export_import import export_sessions

        named = self._ids(sessions)
        return export_sessions(self._store, self._owner, local_path(path), named, progress)

    def _ids(self, sessions: str | UUID | Iterable[str | UUID] | None) -> list[UUID] | None:
        """Of one session or several, None for all; raises NotFoundError for one that is not."""
        if sessions is None:
            return None
        if isinstance(sessions, (str, UUID)):
            sessions = [sessions]
        if not isinstance(sessions, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(
                f"sessions are keys or ids, one or a list of them, got {shown(sessions)}."
            )
        return [self.session_info(one).id for one in sessions]

    def import_(self, path: str | PathLike[str], progress: Progress | None = None) -> ImportSummary:
        """Take in an archive as sessions of this user; what branches were granted is not taken in.

        Doing it again changes nothing. Raises ArchiveError if the archive is not sound, ExistsError
        if a session is here with another content; nothing is imported then.
        """
        from sennit.stores.transfer.export_import import import_sessions

        return import_sessions(self._store, self._owner, local_path(path), progress)

    def export_training(
        self,
        path: str | PathLike[str],
        options: ExportOptions | None = None,
        sessions: str | UUID | Iterable[str | UUID] | None = None,
        progress: Progress | None = None,
    ) -> Exported:
        """Write sessions, by default all, as training data: ".parquet", or else lines of JSON.

        Raises ExistsError if a file is there already, NotFoundError if a named session is not here.
        """
        from sennit.learning.export import ExportOptions, export
        from sennit.stores.transfer.export_import import all_sessions

        named = self._ids(sessions)
        wanted = all_sessions(self._store, self._owner) if named is None else named
        chosen = options or ExportOptions()
        return export(wanted, self._training_source(), local_path(path), chosen, progress)

    def training_lines(
        self, session: str | UUID, options: ExportOptions | None = None
    ) -> TrainingLines:
        """One session as lines of training data in JSON, made as they are asked for.

        Their `left_out` counts what is in no line. Raises NotFoundError if it is not here.
        """
        from sennit.learning.export import ExportOptions, lines

        uid = self.session(session, create=False).id
        return lines(uid, self._training_source(), options or ExportOptions())

    def _training_source(self) -> SessionSource:
        from sennit.learning.export import SessionSource

        return SessionSource(
            kept=partial(self._store.load, self._owner),
            labels=partial(self._store.labels, self._owner),
            opened=partial(self.session, create=False),
            services=self.services,
        )

    def backup(self, path: str | PathLike[str]) -> None:
        """Copy the whole store, of all users, to a new SQLite file while others go on using it.

        Raises ExistsError if the file is there already, StoreError if the store cannot be read.
        """
        from sennit.stores.transfer.backup import backup

        backup(self._store, local_path(path))

    def doctor(self, *, repair: bool = False) -> list[Finding]:
        """Check the whole store for damage; with `repair`, repair what can be repaired."""
        from sennit.stores.doctor import checks as doctor

        return doctor.repair(self._store) if repair else doctor.examine(self._store)

    def store_notes(self) -> list[str]:
        """Tell what is worth knowing of the store and is no damage, in sentences.

        Such as messages that stand on no branch, and a version of SQLite with a known bug.
        """
        from sennit.stores.doctor import checks as doctor

        return doctor.notes(self._store)

    def expire(self, older_than: datetime) -> int:
        """Delete the sessions that were last changed before then; gives how many."""
        from sennit.stores.retention import expire

        gone = expire(self._store, self._owner, older_than)
        with self._lock:
            for session in gone:
                self._open.pop(session, None)
        return len(gone)

    def purge(self, older_than: datetime | None = None) -> int:
        """Erase messages that were removed from their last branch before then; gives how many.

        By default those whose retention time is over. This also happens by itself whenever a
        client is closed, so a program need call it only if it runs for long.
        """
        before = due(self._retention) if older_than is None else clock.from_datetime(older_than)
        return purge(self._store, self._owner, before, self.lose)

    def lose(self, owner: Owner, session: UUID, messages: Sequence[UUID]) -> None:
        """Have messages that were erased no more in a session that is open here."""
        with self._lock:
            found = self._open.get(session) if owner == self._owner else None
        if found is not None:
            found.lose(messages)

    def _keeper(self, session: UUID, new: SessionRecord | None = None) -> SessionRepository:
        keeper = super()._keeper(session, new)
        keeper.erases = not self._retention
        return keeper

    def find(
        self,
        query: str,
        target_uri: str | None = None,
        limit: int = 10,
        at: datetime | None = None,
        explain: bool = False,
        *,
        category: str | Iterable[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[Match]:
        """Memories and messages that fit a question, the best first.

        `target_uri` keeps it to a folder, a file, a session or an archive; `category` to kinds of
        memories, or "message"; `since` and `until` to a time; `at` to what was known to hold then.
        `explain` says of each what its score is made of. Raises ValidationError.
        """
        from sennit.memory.retrieval.find import find, where

        realm = self.memory.realm
        limits = where(realm, target_uri, category=category, since=since, until=until, at=at)
        vectors = self.memory.vectors
        return find(realm, query, limits, limit=limit, explain=explain, vectors=vectors)

    def search(
        self,
        query: str,
        session: str | UUID | Session | None = None,
        limit: int = 10,
        *,
        branch: BranchRef | None = None,
    ) -> SearchResult:
        """Plan up to five typed queries from a conversation, then find what they ask for.

        What is current in the session is what a question like "When was that?" leans on, and is
        not found again. With a model (`client.memory.use`) that makes the plan. Raises
        ValidationError, NotFoundError.
        """
        if session is not None and not isinstance(session, Session):
            session = self.session(session, create=False)
        return self.memory.search(query, session, branch, limit)

    def embed(self, progress: Callable[[int], object] | None = None) -> int:
        """Embed all that is kept and has no vector yet; gives how many texts there were.

        A search does a little of it by itself. `progress` is told the number so far. Raises
        ValidationError without an embedder.
        """
        if self.memory.vectors is None:
            raise ValidationError("There is no embedder; pass one with sennit.open(embedder=...).")
        return self.memory.vectors.embed(progress=progress)

    afind = async_method(find)
    asearch = async_method(search)
    aembed = async_method(embed)
    aexport = async_method(export)
    aexport_training = async_method(export_training)
    aimport_ = async_method(import_)
    abackup = async_method(backup)
    adoctor = async_method(doctor)
    astore_notes = async_method(store_notes)
    adelete_session = async_method(delete_session)
    aexpire = async_method(expire)
    apurge = async_method(purge)
    aget_task = async_method(get_task)
    aretry_task = async_method(retry_task)
    afinish_commits = async_method(finish_commits)
    aundo_commit = async_method(undo_commit)
    aforget = async_method(forget)
