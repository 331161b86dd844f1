"""The PostgreSQL store: many servers and workers on one database.

A write locks the row of its session first, so writers of one session follow one another and what
they number is numbered in the order of commits. The usual write, new messages at the end of a
branch, is one statement and one round trip. Readers see one snapshot. Words are written when
somebody searches.

A write whose connection dies is made again where it was not made, see `postgres_database`; the
usual one is simply repeated, as ids are the writer's and what is there is found, not doubled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar
from uuid import UUID

from sennit import clock
from sennit.errors import NotFoundError, SennitError
from sennit.messages.codec import dumps
from sennit.stores import leases, postgres_vectors, words
from sennit.stores.base import AFTER_ALL, no_branch, no_session
from sennit.stores.columns import text_of
from sennit.stores.commits import ArchiveRecord, CommitRecord, CommitsRecord, UseRecord
from sennit.stores.files import (
    Derived,
    EndCommit,
    FileChange,
    FileRecord,
    KeptFile,
    PutFile,
    VersionRecord,
)
from sennit.stores.hits import Asked, AskedFiles, FileHit, Hit, Placed
from sennit.stores.postgres_append import append_all, appending
from sennit.stores.postgres_commits import CommitTable
from sennit.stores.postgres_database import Database
from sennit.stores.postgres_files import FileReader, FileWriter
from sennit.stores.postgres_index import Question, at_places, file_hits, index_files, lexemes
from sennit.stores.postgres_line import Line
from sennit.stores.postgres_runs import JournalReader, journals
from sennit.stores.postgres_session import (
    Connection,
    SessionReader,
    SessionWriter,
    labels,
    one,
    session_from,
)
from sennit.stores.queue import Handler, Job, Serving
from sennit.stores.records import (
    AddMessages,
    Change,
    EventRecord,
    Found,
    Head,
    LabelRecord,
    Lease,
    Owner,
    RunRecord,
    SessionRecord,
    Snapshot,
    Whole,
    Write,
)
from sennit.stores.sql import postgres as sql
from sennit.stores.sql import postgres_files as file_sql
from sennit.stores.sql import postgres_queue as queue_sql
from sennit.stores.sql import postgres_words as word_sql
from sennit.stores.vectors import Embedded, Unembedded

_T = TypeVar("_T")

_SILENCE = Serving().silence


class _UnusualError(Exception):
    """A group holds a write that needs a closer look."""


class PostgresStore:
    """Sessions in a PostgreSQL database; see `sennit.stores.base.Store` for what it promises."""

    starts_in_groups = False

    def __init__(self, url: str, *, pool_size: int = 10) -> None:
        """Connect, and create or migrate the tables in the schema `sennit`.

        Raises StoreError if the server cannot be reached or refuses us, or if the tables are newer
        than we know.
        """
        self._url = url
        self._database = Database(url, pool_size=pool_size)
        self._owners: dict[Owner, int] = {}
        self._has_vectors = False

    def __repr__(self) -> str:
        return f"PostgresStore({self._database.name!r})"

    def close(self) -> None:
        """Let go of the connections; a closed store refuses everything else."""
        self._database.close()

    def _owner(self, connection: Connection, owner: Owner) -> int:
        """The owner's number; 0, which is nobody's, if nothing of theirs was ever written."""
        known = self._owners.get(owner)
        if known is None:
            found = connection.execute(sql.FIND_OWNER, _owner_key(owner)).fetchone()
            if found is None:
                return 0
            self._owners[owner] = known = found[0]
        return known

    def _add_owner(self, owner: Owner) -> int:
        def add(connection: Connection) -> int:
            number = self._owner(connection, owner)
            if not number:
                number = one(connection.execute(sql.ADD_OWNER, _owner_key(owner)))[0]
                self._owners[owner] = number
            return number

        return self._database.run(add)

    def create_session(self, owner: Owner, session: SessionRecord) -> SessionRecord:
        """Keep a new session; if its id is there already, what is there is returned."""
        values = (
            self._add_owner(owner),
            session.id,
            session.key,
            session.user,
            session.created,
            session.updated,
            text_of(session.metadata),
        )
        return self._database.run(
            lambda connection: session_from(one(connection.execute(sql.ADD_SESSION, values)))
        )

    def find_session(self, owner: Owner, session: UUID) -> SessionRecord | None:
        """The session with that id, if the owner has it."""

        def find(connection: Connection) -> SessionRecord | None:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session)).fetchone()
            return session_from(row) if row else None

        return self._database.run(find)

    def list_sessions(
        self, owner: Owner, *, contains: str | None, before: tuple[int, UUID] | None, limit: int
    ) -> list[SessionRecord]:
        """Sessions, the one changed last first; `before` is the last one of the page before."""
        updated, uid = before or AFTER_ALL

        def listed(connection: Connection) -> list[SessionRecord]:
            rows = connection.execute(
                sql.LIST_SESSIONS,
                {
                    "owner": self._owner(connection, owner),
                    "contains": contains,
                    "updated": updated,
                    "id": uid,
                    "limit": limit,
                },
            )
            return [session_from(row) for row in rows]

        return self._database.run(listed)

    def delete_session(self, owner: Owner, session: UUID) -> bool:
        """Erase a session and all that is in it; False if it was not there."""

        def delete(connection: Connection) -> bool:
            number = self._owner(connection, owner)
            row = connection.execute(sql.LOCK_SESSION, (number, session)).fetchone()
            if row is None:
                return False
            for statement in sql.ERASE_SESSION:
                connection.execute(statement, (number, row[0]))
            return True

        return self._database.change(delete)

    def load(self, owner: Owner, session: UUID) -> Snapshot:
        """All of a session; raises NotFoundError."""
        return self._database.read(
            lambda connection: self._reader(connection, owner, session).all()
        )

    def with_everything(self, work: Callable[[Iterator[Whole], Iterator[KeptFile]], _T]) -> _T:
        """Hand `work` all sessions and all files of all owners in one snapshot, one by one.

        If the connection dies, `work` is called again with all of them.
        """

        def everything(connection: Connection) -> Iterator[Whole]:
            for number, *owner in connection.execute(sql.ALL_OWNERS).fetchall():
                for row in connection.execute(sql.ALL_SESSIONS, (number,)).fetchall():
                    snapshot = SessionReader(connection, number, row).all()
                    noted = journals(connection, number, row[0])
                    commits = CommitTable(connection, number, row[0]).all()
                    judged = labels(connection, number, row[0])
                    yield Whole(Owner(*owner), snapshot, noted, commits, judged)

        def files(connection: Connection) -> Iterator[KeptFile]:
            found = FileReader(connection, partial(self._owner, connection))
            for _, *owner in connection.execute(sql.ALL_OWNERS).fetchall():
                yield from found.all(Owner(*owner))

        return self._database.read(
            lambda connection: work(everything(connection), files(connection))
        )

    def changes(self, owner: Owner, session: UUID, known: Mapping[UUID, int]) -> Snapshot:
        """What is new beyond the `known` segments and their lengths; raises NotFoundError."""
        return self._database.read(
            lambda connection: self._reader(connection, owner, session).beyond(known)
        )

    def _reader(self, connection: Connection, owner: Owner, session: UUID) -> SessionReader:
        number = self._owner(connection, owner)
        row = connection.execute(sql.FIND_SESSION, (number, session)).fetchone()
        if row is None:
            raise no_session(session)
        return SessionReader(connection, number, row)

    def write(self, owner: Owner, session: UUID, changes: Sequence[Change]) -> list[Head]:
        """Make changes, all or none; gives the head before each Append, in order."""
        write = Write(owner, session, tuple(changes))
        quick = self._database.run(lambda connection: self._append(connection, write))
        return quick or self._database.change(lambda connection: self._apply(connection, write))

    def _append(self, connection: Line, write: Write) -> list[Head] | None:
        """Make a write of the usual kind; None if it is another, or needs a closer look."""
        found = appending(write, self._owner(connection, write.owner))
        head = found and found.make(connection)
        return [head] if head else None

    def _apply(self, connection: Connection, write: Write) -> list[Head]:
        number = self._owner(connection, write.owner)
        says_more = any(isinstance(change, AddMessages) for change in write.changes)
        touched = connection.execute(
            sql.TOUCH_SESSION, (clock.now_us(), says_more, number, write.session)
        ).fetchone()
        if touched is None:
            raise no_session(write.session)
        return SessionWriter(connection, number, touched[0]).apply(write.changes)

    def write_many(self, writes: Sequence[Write]) -> list[list[Head] | SennitError]:
        """Make several writes with one wait for the disk; each succeeds or fails alone."""
        self._database.refuse_if_closed()
        if not writes:
            return []
        try:
            return self._database.change(lambda connection: self._append_all(connection, writes))
        except _UnusualError:
            return self._database.change(lambda connection: self._one_by_one(connection, writes))

    def _append_all(
        self, connection: Line, writes: Sequence[Write]
    ) -> list[list[Head] | SennitError]:
        """Make writes of the usual kind together; raises _UnusualError if one is not."""
        found = [appending(write, self._owner(connection, write.owner)) for write in writes]
        usuals = [one for one in found if one is not None]
        if len(usuals) < len(writes):
            raise _UnusualError
        self._lock(connection, writes)
        heads = append_all(connection, usuals)
        if heads is None:
            raise _UnusualError
        return [[head] for head in heads]

    def _one_by_one(
        self, connection: Connection, writes: Sequence[Write]
    ) -> list[list[Head] | SennitError]:
        results: list[list[Head] | SennitError] = []
        self._lock(connection, writes)
        for write in writes:
            try:
                with connection.transaction():
                    results.append(self._apply(connection, write))
            except SennitError as error:
                results.append(error)
        return results

    def _lock(self, connection: Connection, writes: Sequence[Write]) -> None:
        """Lock all sessions in one order, so that two groups do not wait for each other."""
        pairs = {(self._owner(connection, write.owner), write.session) for write in writes}
        owners, sessions = zip(*pairs, strict=True)
        connection.execute(sql.LOCK_SESSIONS, (list(owners), list(sessions)))

    def search(self, owner: Owner, text: str, *, session: UUID | None, limit: int) -> list[Found]:
        """Messages that hold the words of `text`, the best first."""
        asked = words.asked(text)
        found = self.hits(owner, Asked(tuple(asked), session, limit=limit))
        scores = {hit.place: hit.score for hit in found}
        return [
            Found(
                one.session,
                one.message.id,
                words.snippet(words.said(one.message.body), asked),
                scores[one.place],
            )
            for one in self.at_places(owner, list(scores))
        ]

    def hits(self, owner: Owner, asked: Asked) -> list[Hit]:
        """The best places for words, the best first."""
        number = self._database.run(lambda connection: self._owner(connection, owner))
        question = Question(number, asked)
        if not lexemes(asked.words):
            return []
        while self._database.run(question.is_unindexed):
            self._database.change(question.index_more)
        return self._database.run(question.hits)

    def at_places(self, owner: Owner, places: Sequence[int]) -> list[Placed]:
        """The messages at places that `hits` named, in their order."""
        return self._database.run(
            lambda connection: at_places(connection, self._owner(connection, owner), places)
        )

    def file_hits(self, asked: AskedFiles) -> list[FileHit]:
        """The best files for words, the best first."""

        def numbers(connection: Connection) -> list[int]:
            return [self._owner(connection, owner) for owner in asked.owners]

        def is_unindexed(connection: Connection) -> bool:
            return one(connection.execute(word_sql.HAS_UNINDEXED_FILES, (numbers(connection),)))[0]

        if not lexemes(asked.words) and not asked.places:
            return []
        while self._database.run(is_unindexed):
            self._database.change(lambda connection: index_files(connection, numbers(connection)))
        return self._database.run(
            lambda connection: file_hits(connection, partial(self._owner, connection), asked)
        )

    def unembedded(self, owner: Owner, model: str, limit: int) -> list[Unembedded]:
        """What has no vector of this embedder yet, the oldest first."""
        self._prepare_vectors()
        return self._database.run(
            lambda connection: postgres_vectors.unembedded(
                connection, self._owner(connection, owner), model, limit
            )
        )

    def put_vectors(self, owner: Owner, model: str, embedded: Sequence[Embedded]) -> None:
        """Keep vectors of things that are still there."""
        self._prepare_vectors()
        self._database.change(
            lambda connection: postgres_vectors.put(
                connection, self._owner(connection, owner), model, embedded
            )
        )

    def nearest(
        self, owner: Owner, model: str, vector: Sequence[float], limit: int, also: Iterable[int]
    ) -> dict[int, float]:
        """The cosines of the nearest places, and of those in `also` that have a vector."""
        self._prepare_vectors()
        wanted = list(also)
        return self._database.run(
            lambda connection: postgres_vectors.nearest(
                connection, self._owner(connection, owner), model, vector, limit, wanted
            )
        )

    def _prepare_vectors(self) -> None:
        """Make their tables when they are first needed: not every server has the extension."""
        if not self._has_vectors:
            self._database.change(postgres_vectors.prepare)
            self._has_vectors = True

    def acquire(self, owner: Owner, session: UUID, branch: UUID, holder: str, ttl: int) -> Lease:
        """Take the lease of a branch for `ttl` microseconds; raises ConflictError if it is held."""

        def acquire(connection: Connection) -> Lease:
            key = self._lease_key(connection, owner, session, branch)
            if connection.execute(sql.FIND_BRANCH, key).fetchone() is None:
                raise no_branch(branch)
            lease = leases.taken(_last_lease(connection, key), branch, holder, ttl)
            connection.execute(sql.PUT_LEASE, (*key, holder, lease.token, lease.expires))
            return lease

        return self._database.change(acquire)

    def renew(self, owner: Owner, session: UUID, lease: Lease, ttl: int) -> Lease:
        """Keep a lease longer; raises ConflictError if it was lost."""

        def renew(connection: Connection) -> Lease:
            key = self._lease_key(connection, owner, session, lease.branch)
            renewed = leases.renewed(_last_lease(connection, key), lease, ttl)
            connection.execute(sql.PUT_LEASE, (*key, lease.holder, lease.token, renewed.expires))
            return renewed

        return self._database.change(renew)

    def release(self, owner: Owner, session: UUID, lease: Lease) -> None:
        """Give a lease back; one that was lost is left alone."""

        def release(connection: Connection) -> None:
            key = self._lease_key(connection, owner, session, lease.branch)
            if leases.is_held(_last_lease(connection, key), lease):
                connection.execute(sql.END_LEASE, key)

        with suppress(NotFoundError):
            self._database.change(release)

    def runs(self, owner: Owner, session: UUID, branch: UUID) -> list[RunRecord]:
        """The runs of a branch, the newest first."""
        return self._journal(owner, session, branch, lambda journal: journal.runs())

    def last_run(self, owner: Owner, session: UUID, branch: UUID) -> RunRecord | None:
        """The newest run of a branch, if there was any."""
        found = self._journal(owner, session, branch, lambda journal: journal.runs(1))
        return found[0] if found else None

    def events(
        self, owner: Owner, session: UUID, branch: UUID, after: int, limit: int
    ) -> list[EventRecord]:
        """The events of a branch past a number, in order, at most `limit` of them."""
        return self._journal(
            owner, session, branch, lambda journal: journal.events(after, max(0, limit))
        )

    def last_event(self, owner: Owner, session: UUID, branch: UUID) -> int:
        """The number of a branch's last event; 0 if there is none."""
        return self._journal(owner, session, branch, lambda journal: journal.last())

    def _journal(
        self, owner: Owner, session: UUID, branch: UUID, read: Callable[[JournalReader], _T]
    ) -> _T:
        def look(connection: Connection) -> _T:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session)).fetchone()
            if row is None:
                raise no_session(session)
            return read(JournalReader(connection, (number, row[0], branch)))

        return self._database.read(look)

    def change_files(self, changes: Sequence[FileChange], end: EndCommit | None = None) -> None:
        """Make changes of files, all or none, and with them that of the commit they come from."""
        for owner in {owner for change in changes for owner in _owners_of(change)}:
            self._add_owner(owner)

        def change(connection: Connection) -> None:
            if (end is None or self._end_commit(connection, end)) and changes:
                FileWriter(connection, partial(self._owner, connection)).apply(changes)

        self._database.change(change)

    def _end_commit(self, connection: Connection, end: EndCommit) -> bool:
        number = self._owner(connection, end.owner)
        row = connection.execute(sql.LOCK_SESSION, (number, end.session)).fetchone()
        if row is None:
            raise no_session(end.session)
        return CommitTable(connection, number, row[0]).put_commit(end.change)

    def _read_files(self, read: Callable[[FileReader], _T]) -> _T:
        return self._database.read(
            lambda connection: read(FileReader(connection, partial(self._owner, connection)))
        )

    def find_file(self, owner: Owner, path: str) -> FileRecord | None:
        """The file at that path, if there is one."""
        return self._read_files(lambda files: files.find(owner, path))

    def list_files(self, owner: Owner, under: str) -> list[FileRecord]:
        """The files whose path begins so, in the order of their paths."""
        return self._read_files(lambda files: files.under(owner, under))

    def file_versions(self, owner: Owner, file: UUID) -> list[VersionRecord]:
        """All versions of a file, the oldest first; none if there is no such file."""
        return self._read_files(lambda files: files.versions(owner, file))

    def derived(
        self, owner: Owner, *, session: UUID | None, message: UUID | None = None
    ) -> list[Derived]:
        """Versions, of any owner's files, that came from this owner's sessions, or one of them."""
        return self._read_files(lambda files: files.derived(owner, session, message))

    def written_by(self, tenant: str, commit: UUID) -> list[Derived]:
        """Versions, of any owner's files in the tenant, that a commit has written."""
        return self._read_files(lambda files: files.written_by(tenant, commit))

    def commits(self, owner: Owner, session: UUID) -> CommitsRecord:
        """The commits and uses of a session; raises NotFoundError if that is not there."""
        return self._read_commits(owner, session, CommitTable.all)

    def _read_commits(self, owner: Owner, session: UUID, work: Callable[[CommitTable], _T]) -> _T:
        def read(connection: Connection) -> _T:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session)).fetchone()
            if row is None:
                raise no_session(session)
            return work(CommitTable(connection, number, row[0]))

        return self._database.read(read)

    def archived(self, owner: Owner, session: UUID, after: int) -> list[ArchiveRecord]:
        """What the commits past a number cover, in their order."""
        return self._read_commits(owner, session, lambda found: found.archived(after))

    def commits_numbered(
        self, owner: Owner, session: UUID, numbers: Sequence[int]
    ) -> list[CommitRecord]:
        """Commits by their numbers, in order, without their entries; those that are there."""
        return self._read_commits(owner, session, lambda found: found.numbered(numbers))

    def uses_of(self, owner: Owner, session: UUID, commit: int | None) -> list[UseRecord]:
        """The uses that a commit counts, by its number; with None those that none counts yet."""
        return self._read_commits(owner, session, lambda found: found.uses_of(commit))

    def find_commit(self, owner: Owner, commit: UUID) -> tuple[UUID, CommitRecord] | None:
        """A commit and its session, if the owner has it."""

        def find(connection: Connection) -> tuple[UUID, CommitRecord] | None:
            number = self._owner(connection, owner)
            row = connection.execute(file_sql.FIND_COMMIT, (number, commit)).fetchone()
            if row is None:
                return None
            return row[1], CommitTable(connection, number, row[0]).get(row[2])

        return self._database.read(find)

    def unname(self, owner: Owner, text: str) -> None:
        """Erase the uses and events in an owner's sessions that hold this text as a JSON string."""

        def erase(connection: Connection) -> None:
            values = (self._owner(connection, owner), dumps(text))
            for statement in file_sql.UNNAME:
                connection.execute(statement, values)

        self._database.change(erase)

    def scrub(self) -> None:
        """Nothing to do: when the server reuses what was erased is for its vacuum to say."""
        self._database.refuse_if_closed()

    def labels(self, owner: Owner, session: UUID) -> list[LabelRecord]:
        """What was thought of a session's messages, the oldest first; raises NotFoundError."""

        def found(connection: Connection) -> list[LabelRecord]:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session)).fetchone()
            if row is None:
                raise no_session(session)
            return labels(connection, number, row[0])

        return self._database.read(found)

    def open_commits(self, owner: Owner) -> list[tuple[UUID, UUID]]:
        """The commits that are not finished, as session and commit, the oldest first."""

        def read(connection: Connection) -> list[tuple[UUID, UUID]]:
            number = self._owner(connection, owner)
            rows = connection.execute(file_sql.OPEN_COMMITS, (number,)).fetchall()
            return [(session, uid) for session, uid in rows]

        return self._database.read(read)

    def is_served(self) -> bool:
        """Whether workers are there that finish open commits, so that nobody else need."""
        return self._database.run(
            lambda connection: one(connection.execute(queue_sql.IS_SERVED, (_SILENCE,)))[0]
        )

    def serve(self, handler: Handler, serving: Serving) -> None:
        """Be a worker: have the open commits of all owners finished, until told to stop.

        It ends in good order on SIGTERM and SIGINT, and when `serving` says to. Raises StoreError.
        """
        from sennit.stores.postgres_queue import QueueWorker, bring_up_to_date

        def take(number: int, commit: UUID, attempts: int) -> None:
            owner = self._database.run(
                lambda connection: connection.execute(queue_sql.OWNER, (number,)).fetchone()
            )
            if owner is not None:
                handler(Job(Owner(*owner), commit, attempts))

        self._database.run(bring_up_to_date)
        asyncio.run(QueueWorker(self._url, take, serving).run())

    def _lease_key(
        self, connection: Connection, owner: Owner, session: UUID, branch: UUID
    ) -> tuple[int, int, UUID]:
        """What a lease is kept under, with its session locked."""
        number = self._owner(connection, owner)
        row = connection.execute(sql.LOCK_SESSION, (number, session)).fetchone()
        if row is None:
            raise no_session(session)
        return number, row[0], branch


def _owners_of(change: FileChange) -> Iterator[Owner]:
    """Whose rows a change needs: those of the file, and of the sessions it came from."""
    yield change.owner
    if isinstance(change, PutFile):
        yield from (one.owner for one in change.version.evidence)


def _last_lease(connection: Connection, key: tuple[int, int, UUID]) -> Lease | None:
    row = connection.execute(sql.FIND_LEASE, key).fetchone()
    return None if row is None else Lease(key[2], *row)


def _owner_key(owner: Owner) -> tuple[str, str, str]:
    return owner.tenant, owner.kind, owner.name
