"""Public Client class.

ClientCore implements sessions and stores; this class opens the public Session, adds memory, export
and maintenance, and is a context manager: `with sennit.open() as client`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import cached_property, partial
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Final
from uuid import UUID

from sennit import clock, settings
from sennit.api.lazy_memory import LazyMemory
from sennit.api.own_store import DEFAULT
from sennit.api.session import Session, operation_registry
from sennit.closing import AsyncClosing, Closing
from sennit.errors import InvalidTypeError, ValidationError, short_repr
from sennit.paths import local_path, target_path
from sennit.services.registry import close_provider_models
from sennit.sessions.async_method import async_method
from sennit.sessions.client import ClientCore, blobs_of, drop_erased
from sennit.sessions.repository import SessionRepository
from sennit.sessions.session import ASSISTANT, BranchRef
from sennit.stores.base import Store
from sennit.stores.group_commit import GroupCommitter
from sennit.stores.records.sessions import SessionRecord
from sennit.stores.retention import check_retention, cutoff_us, purge, purge_if_possible

if TYPE_CHECKING:
    from sennit.learning.export import ExportOptions, ExportResult, SessionSource, TrainingLines
    from sennit.memory.commit.result import CommitResult
    from sennit.memory.files.filesystem import FileSystem
    from sennit.memory.files.resources import AddedResource, Metadata
    from sennit.memory.history.forget import ForgetResult, UndoResult
    from sennit.memory.memory import Memory, MemoryEngine
    from sennit.memory.retrieval.embedders import Embedder
    from sennit.memory.retrieval.find import Matches
    from sennit.memory.retrieval.query_planner import SearchResult
    from sennit.operations.registry import OperationRegistry
    from sennit.services.registry import ServiceRegistry
    from sennit.stores.doctor.checks import Finding
    from sennit.stores.transfer.chat_exports.import_chats import ImportFormat
    from sennit.stores.transfer.export_import import ExportSummary, ImportSummary, Progress


def validate_embedder(embedder: Any) -> Embedder | None:
    """Return `embedder` if it can embed or is None; raises InvalidTypeError."""
    embeds = hasattr(embedder, "name") and callable(getattr(embedder, "embed", None))
    if embedder is not None and (isinstance(embedder, type) or not embeds):
        raise InvalidTypeError(
            "embedder must have a name and embed(texts), as MiniLM() has, got "
            f"{short_repr(embedder)}."
        )
    return embedder


class Client(ClientCore[Session], Closing, AsyncClosing):
    """One user's sessions in a store; created by `sennit.open`."""

    session_type: ClassVar[type[Session]] = Session
    """The class of its sessions; a subclass may add names, but keeps the behaviour."""

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
        """Open a client on a store; for the other arguments see `sennit.open`.

        With `shared_space` it can read and change the files that all users of the tenant share.
        `services` and `operations` apply to all its sessions; by default they are new registries.
        `group` is the group committer that clients of one store share: see
        `sennit.api.client_pool`.
        """
        self._retention = check_retention(settings.retention() if retention is None else retention)
        self._closing = False
        super().__init__(
            store,
            session_type=self.session_type,
            tenant=DEFAULT if tenant is None else tenant,
            user=DEFAULT if user is None else user,
            agent=ASSISTANT if agent is None else agent,
            services=services,
            group=group,
        )
        self._shared_space = shared_space
        self._embedder = validate_embedder(embedder)
        self._memory = LazyMemory(self._create_memory)
        self._own_operations = None if operations is None else operation_registry(operations)

    @cached_property
    def operations(self) -> OperationRegistry:
        """The operations that sessions of this client accept."""
        return self._own_operations or operation_registry(None)

    def _opened(
        self, record: SessionRecord, repository: SessionRepository, **options: Any
    ) -> Session:
        return super()._opened(
            record, repository, operations=self.operations, memory=self._memory, **options
        )

    @property
    def memory(self) -> Memory:
        """The memory of this user and agent."""
        return self._memory.public

    def _create_memory(self) -> MemoryEngine:
        from sennit.memory.memory import MemoryEngine
        from sennit.memory.scope import MemoryScope

        scope = MemoryScope(self._store, self._owner, self.agent, self._shared_space)
        open_session = partial(self.session, create=False)
        return MemoryEngine(scope, self._embedder, open_session, self.services)

    @cached_property
    def fs(self) -> FileSystem:
        """Sessions, memories, skills and resources as a file system."""
        from sennit.memory.files.filesystem import FileSystem

        return FileSystem(self._memory.get().scope, lambda uid: self.session(uid, create=False))

    def get_task(self, task_id: str | UUID) -> CommitResult:
        """Return the progress of a commit by the `task_id` of its result; raises NotFoundError."""
        return self._memory.get().task(task_id)

    def retry_task(self, task_id: str | UUID) -> CommitResult:
        """Retry a failed commit."""
        return self._memory.get().retry(task_id)

    def finish_commits(self) -> list[CommitResult]:
        """Finish all unfinished commits, such as those interrupted by a crash."""
        return self._memory.get().finish_all()

    def add_resource(
        self,
        source: str | PathLike[str] | None = None,
        *,
        text: str | None = None,
        name: str | None = None,
        to: str | None = None,
        reason: str = "",
        metadata: Metadata | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> AddedResource:
        """Add a file, a folder of files, or a text below `viking://resources`, to be found.

        Text, Markdown, code, HTML and PDF (extra `pdf`) are read; long documents are stored in
        sections. `to` is another folder, `name` another name in it. `reason` says what it is for;
        a search can select by `metadata`. Adding it again replaces it. Files of a folder that
        cannot be read are in the result; `progress` is called with the number of files so far.
        Nothing is fetched from the network. Raises ValidationError, ExistsError.
        """
        from sennit.memory.files.resources import add_resource
        from sennit.memory.files.stored_files import StoredTree

        return add_resource(
            StoredTree(self._memory.get().scope),
            source,
            text=text,
            name=name,
            to=to,
            reason=reason,
            metadata=metadata,
            progress=progress,
        )

    def add_skill(self, skill: Mapping[str, Any] | str | PathLike[str]) -> AddedResource:
        """Add a skill of the agent, below `viking://agent/skills`.

        An existing skill of the same name is replaced, with all its files. A skill is a dict with
        `name`, `description` and `content`, the path of a `SKILL.md`, or that of a folder with one,
        whose other files are added too. Raises ValidationError.
        """
        from sennit.memory.files.resources import add_skill
        from sennit.memory.files.stored_files import StoredTree

        return add_skill(StoredTree(self._memory.get().scope), skill)

    def wait_processed(self) -> None:
        """Finish commits that run in the background, and embed what has no vector yet."""
        self.finish_commits()
        if self._memory.get().vectors is not None:
            self.embed()

    def undo_commit(self, commit_id: str | UUID) -> UndoResult:
        """Undo the memory changes of a commit; its archive stays.

        Memories are restored to their earlier versions. Raises NotFoundError.
        """
        return self._memory.get().undo(commit_id)

    def forget(
        self,
        *,
        user: str | None = None,
        uri: str | None = None,
        session: str | UUID | None = None,
    ) -> ForgetResult:
        """Erase permanently this user's data, the files at a URI, or a session; name one of them.

        Everything derived from the erased data is erased too: memories, their versions, index
        rows. The URI of a memory does not erase the message that it came from;
        `session.remove_message` and `session=` do. Raises NotFoundError if nothing is found,
        AccessError for another user.
        """
        from sennit.memory.history.forget import forget

        scope = self._memory.get().scope
        return forget(scope, super().delete_session, user=user, uri=uri, session=session)

    def delete_session(self, session_id: str | UUID) -> bool:
        """Erase a session and all its data; return False if there was none."""
        existed = super().delete_session(session_id)
        self._store.scrub()  # also after an earlier, interrupted call
        return existed

    def close(self) -> None:
        """Finish running work, then close the store, unless it is shared.

        The connections of models made from provider strings ("openai:gpt-5") are closed, too.
        """
        self._memory.close()
        if self._own_services is None and "services" in vars(self):
            close_provider_models(self.services)
        if not self._shares and not self._closing:
            self._closing = True
            purge_if_possible(
                self._store, self._owner, cutoff_us(self._retention), partial(drop_erased, self)
            )
        super().close()

    def export(
        self,
        path: str | PathLike[str],
        sessions: str | UUID | Iterable[str | UUID] | None = None,
        progress: Progress | None = None,
        *,
        memories: bool = False,
    ) -> ExportSummary:
        """Write sessions, by default all, to a new archive: a ".zip" file, or else a folder.

        `memories` adds the user's memories, which come from all sessions. Raises ExistsError if
        the path exists, NotFoundError for an unknown session or folder, ValidationError for
        `memories` with some of the sessions.
        """
        from sennit.memory.files.archived_memories import archived_memories
        from sennit.stores.transfer.export_import import export_sessions

        session_ids = self._session_ids(sessions)
        if memories and session_ids is not None:
            raise ValidationError(
                "Memories come from all sessions: export all sessions with them, or name some "
                "sessions and leave the memories out."
            )
        lines = archived_memories(self._memory.get().scope) if memories else None
        return export_sessions(
            self._store, self._owner, target_path(path), session_ids, progress, memories=lines
        )

    def _session_ids(self, sessions: str | UUID | Iterable[str | UUID] | None) -> list[UUID] | None:
        """Return the ids of one or more sessions, None for all; raises NotFoundError."""
        if sessions is None:
            return None
        if isinstance(sessions, (str, UUID)):
            sessions = [sessions]
        if not isinstance(sessions, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(
                f"sessions are keys or ids, one or a list of them, got {short_repr(sessions)}."
            )
        return [self.session_info(session).id for session in sessions]

    def import_sessions(
        self,
        path: str | PathLike[str],
        progress: Progress | None = None,
        *,
        format: ImportFormat | None = None,
    ) -> ImportSummary:
        """Import an archive, or the conversations that another program exported.

        Reads the exports of ChatGPT and Claude, OpenAI chat JSONL and llm's logs.db, and detects
        the format unless it is named. Importing again adds only what is new. An archive is
        imported without the grants of its branches, and as a whole or not at all: raises
        ExistsError if a session exists with other content. Of the other formats, conversations
        that cannot be read are skipped; `problems` of the result says why. Raises ArchiveError if
        the file cannot be read at all.
        """
        from sennit.memory.files.archived_memories import read_memories
        from sennit.stores.transfer.chat_exports.import_chats import import_file

        return import_file(
            self._store,
            self._owner,
            local_path(path),
            format,
            progress,
            read_memories=partial(read_memories, self._memory.get().scope),
        )

    def export_training(
        self,
        path: str | PathLike[str],
        options: ExportOptions | None = None,
        sessions: str | UUID | Iterable[str | UUID] | None = None,
        progress: Progress | None = None,
    ) -> ExportResult:
        """Write sessions, by default all, as training data: ".parquet", or else JSON Lines.

        Raises ExistsError if a file exists, NotFoundError for an unknown session or folder.
        """
        from sennit.learning.export import ExportOptions, export
        from sennit.stores.transfer.export_import import all_sessions

        session_ids = self._session_ids(sessions)
        wanted = all_sessions(self._store, self._owner) if session_ids is None else session_ids
        chosen = options or ExportOptions()
        return export(wanted, self._training_source(), target_path(path), chosen, progress)

    def training_lines(
        self, session: str | UUID, options: ExportOptions | None = None
    ) -> TrainingLines:
        """Return one session as JSON Lines of training data, generated lazily.

        Their `left_out` counts the omitted examples. Raises NotFoundError.
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
            inline=blobs_of(self).inline_chat,
            services=self.services,
        )

    def backup(self, path: str | PathLike[str]) -> None:
        """Copy the whole store, of all users, to a new SQLite file while it is in use.

        Raises ExistsError if the file exists, NotFoundError if its folder does not, StoreError if
        the store cannot be read.
        """
        from sennit.stores.transfer.backup import backup

        backup(self._store, target_path(path))

    def doctor(self, *, repair: bool = False) -> list[Finding]:
        """Check the whole store for corruption; with `repair`, repair as much as possible."""
        from sennit.stores.doctor import checks as doctor

        return doctor.repair(self._store) if repair else doctor.examine(self._store)

    def store_notes(self) -> list[str]:
        """Return notes about the store that are not corruption, as sentences.

        Examples: messages on no branch, a version of SQLite with a known bug.
        """
        from sennit.stores.doctor import checks as doctor

        return doctor.notes(self._store)

    def expire(self, older_than: datetime) -> int:
        """Delete the sessions last changed before `older_than`; return their number."""
        from sennit.stores.retention import expire

        expired = expire(self._store, self._owner, older_than)
        with self._lock:
            for session in expired:
                self._open.pop(session, None)
        return len(expired)

    def purge(self, older_than: datetime | None = None) -> int:
        """Erase messages removed from their last branch before `older_than`; return their number.

        By default those whose retention time is over. Closing a client does this too, so only
        long-running programs need to call it.
        """
        before = (
            cutoff_us(self._retention) if older_than is None else clock.from_datetime(older_than)
        )
        return purge(self._store, self._owner, before, partial(drop_erased, self))

    def _repository(self, session: UUID, new: SessionRecord | None = None) -> SessionRepository:
        repository = super()._repository(session, new)
        repository.erases_removed = not self._retention
        return repository

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
        metadata: Metadata | None = None,
        score_threshold: float = 0.0,
    ) -> Matches:
        """Return the memories, messages and files relevant to a query, the best first.

        `target_uri` restricts it to a folder, file, session or archive; `category` to kinds of
        memories, or "message"; `since` and `until` to a period; `at` to facts valid at that time;
        `metadata` to resources that were added with it. Results below `score_threshold` are left
        out. `explain` adds the components of each score. Raises ValidationError.
        """
        from sennit.memory.retrieval.find import find, where

        scope = self._memory.get().scope
        limits = where(
            scope, target_uri, category=category, since=since, until=until, at=at, metadata=metadata
        )
        return find(
            scope,
            query,
            limits,
            limit=limit,
            explain=explain,
            vectors=self._memory.get().vectors,
            score_threshold=score_threshold,
        )

    def search(
        self,
        query: str,
        session: str | UUID | Session | None = None,
        limit: int = 10,
        *,
        branch: BranchRef | None = None,
    ) -> SearchResult:
        """Plan up to five typed queries from a conversation, then search for each.

        The current messages of `session` resolve a query like "When was that?", and are excluded
        from the results. A model, if set with `client.memory.use`, makes the plan. Raises
        ValidationError, NotFoundError.
        """
        if session is not None and not isinstance(session, Session):
            session = self.session(session, create=False)
        return self._memory.get().search(query, session, branch, limit)

    def embed(self, progress: Callable[[int], object] | None = None) -> int:
        """Embed all stored texts that have no vector yet; return their number.

        Each search also embeds a few. `progress` is called with the number so far. Raises
        ValidationError without an embedder.
        """
        vectors = self._memory.get().vectors
        if vectors is None:
            raise ValidationError("There is no embedder; pass one with sennit.open(embedder=...).")
        return vectors.embed(progress=progress)

    afind: Final = async_method(find)
    asearch: Final = async_method(search)
    aembed: Final = async_method(embed)
    aexport: Final = async_method(export)
    aexport_training: Final = async_method(export_training)
    aimport_sessions: Final = async_method(import_sessions)
    abackup: Final = async_method(backup)
    adoctor: Final = async_method(doctor)
    astore_notes: Final = async_method(store_notes)
    aexpire: Final = async_method(expire)
    apurge: Final = async_method(purge)
    aget_task: Final = async_method(get_task)
    aretry_task: Final = async_method(retry_task)
    afinish_commits: Final = async_method(finish_commits)
    aadd_resource: Final = async_method(add_resource)
    aadd_skill: Final = async_method(add_skill)
    await_processed: Final = async_method(wait_processed)
    aundo_commit: Final = async_method(undo_commit)
    aforget: Final = async_method(forget)
