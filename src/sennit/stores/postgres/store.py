"""The PostgreSQL store.

A write first locks the row of its session, so writers of one session are serialized and numbers are
assigned in commit order. The most frequent writes, appends and the steps of a run, are one
statement each (see `fast_path`), and a group of them is one round trip. Readers see one snapshot.
The full-text index is updated by the next search.

A write whose connection is lost is retried, see `connection`: a receipt tells whether it was
committed. A fast append needs none, because ids are the writer's and a repetition changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Any, TypeVar
from uuid import UUID

from sennit import clock
from sennit.closing import Closing
from sennit.errors import NotFoundError, SennitError
from sennit.stores import leases
from sennit.stores.base import FIRST_PAGE, no_session, reporting_corruption, session_taken
from sennit.stores.job_queue import CommitJob, Handler, WorkerOptions
from sennit.stores.postgres import queue_statements as queue_sql
from sennit.stores.postgres import statements as sql
from sennit.stores.postgres.adapter import PostgresConnection
from sennit.stores.postgres.connection import Database
from sennit.stores.postgres.detached import DetachedTable
from sennit.stores.postgres.fast_path import FastLease, FastPathWrite, appending, usual_of
from sennit.stores.postgres.prepared_connection import PreparedConnection, Refused
from sennit.stores.postgres.runs import JournalReader, journals, last_runs, lease_clock, starts
from sennit.stores.postgres.search import PostgresSearch
from sennit.stores.postgres.session_reader import SessionReader, labels, session_from
from sennit.stores.postgres.session_writer import Connection, PostgresSessionWriter, fetch_one
from sennit.stores.records.blobs import BLOB_GRACE_US, StoredBlob
from sennit.stores.records.files import EndCommit, FileChange, StoredFile, owners_of
from sennit.stores.records.sessions import (
    AddMessages,
    BranchHead,
    Change,
    EventRecord,
    LabelRecord,
    Lease,
    Owner,
    RunRecord,
    SessionDump,
    SessionRecord,
    Snapshot,
    TakeLease,
    Write,
)
from sennit.stores.sql.blobs import BlobTable
from sennit.stores.sql.commits import CommitTable
from sennit.stores.sql.connection import SqlConnection
from sennit.stores.sql.files import FileReader, FileWriter
from sennit.stores.sql.store import removed_messages
from sennit.stores.sql_json import text_of

_T = TypeVar("_T")

_WITHOUT_LIMIT = (FIRST_PAGE[0], 2**31 - 1)  # of time and number
_SILENCE_S = WorkerOptions().silence


class _FastPathFailedError(Exception):
    """A write of a group could not take the fast path."""


class PostgresStore(PostgresSearch, Closing):
    """Sessions in a PostgreSQL database; see `sennit.stores.base.Store` for its guarantees."""

    def __init__(self, url: str, *, pool_size: int = 10) -> None:
        """Connect, and create the schema `sennit` if there is none.

        Raises StoreError if the server cannot be reached or rejects the login, or if the schema has
        another version.
        """
        super().__init__()
        self._database = Database(url, pool_size=pool_size)
        self._owners: dict[Owner, int] = {}

    def __repr__(self) -> str:
        return f"PostgresStore({self._database.name!r})"

    def close(self) -> None:
        """Close the connections; every later call raises StoreError."""
        self._database.close()

    def _owner(self, connection: Connection, owner: Owner) -> int:
        """Return the owner's number; 0, which is never assigned, if the owner has no data."""
        number = self._owners.get(owner)
        if number is None:
            row = connection.execute(sql.FIND_OWNER, owner.key).fetchone()
            if row is None:
                return 0
            self._owners[owner] = number = row[0]
        return number

    def _number(self, connection: SqlConnection, owner: Owner) -> int:
        return self._owner(connection.connection, owner)

    def _run(self, work: Callable[[SqlConnection], _T]) -> _T:
        return self._database.run(lambda connection: work(PostgresConnection(connection)))

    def _read(self, work: Callable[[SqlConnection], _T]) -> _T:
        return self._database.read(lambda connection: work(PostgresConnection(connection)))

    def _change(self, work: Callable[[SqlConnection], _T]) -> _T:
        return self._database.change(lambda connection: work(PostgresConnection(connection)))

    def _detached(self, connection: SqlConnection, owner: int, session: int) -> DetachedTable:
        return DetachedTable(connection.connection, owner, session)

    def _file_writer(self, connection: SqlConnection) -> FileWriter:
        return FileWriter(connection, partial(self._number, connection))

    def change_files(self, changes: Sequence[FileChange], end: EndCommit | None = None) -> None:
        """Apply file changes and the end of their commit, all in one transaction."""
        for owner in {owner for change in changes for owner in owners_of(change)}:
            self._ensure_owner(owner)
        super().change_files(changes, end)

    def _ensure_owner(self, owner: Owner) -> int:
        def add(connection: Connection) -> int:
            number = self._owner(connection, owner)
            if not number:
                number = fetch_one(connection.execute(sql.ADD_OWNER, owner.key))[0]
                self._owners[owner] = number
            return number

        return self._database.run(add)

    def _ensure_owner_number(self, owner: Owner) -> int:
        return self._ensure_owner(owner)

    def _change_blobs(self, work: Callable[[SqlConnection], _T], *, durable: bool) -> _T:
        def change(connection: SqlConnection) -> _T:
            if not durable:
                connection.run(sql.WITHOUT_SYNC)
            return work(connection)

        return self._change(change)

    @property
    def identity(self) -> Hashable:
        """The key of this object: stores on the same server are not recognised as the same."""
        return id(self)

    def create_session(self, owner: Owner, session: SessionRecord) -> SessionRecord:
        """Add a session, or return the stored one if its id exists."""
        values = _session_values(self._ensure_owner(owner), session)
        return self._database.run(
            lambda connection: session_from(fetch_one(connection.execute(sql.ADD_SESSION, values)))
        )

    def find_session(self, owner: Owner, session: UUID) -> SessionRecord | None:
        """Return the owner's session with that id, or None."""

        def find(connection: Connection) -> SessionRecord | None:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session)).fetchone()
            return session_from(row) if row else None

        return self._database.run(find)

    def list_sessions(
        self, owner: Owner, *, contains: str | None, before: tuple[int, UUID] | None, limit: int
    ) -> list[SessionRecord]:
        """Return a page of sessions, last changed first; `before` is the last one seen."""
        updated, uid = before or FIRST_PAGE

        def read(connection: Connection) -> list[SessionRecord]:
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

        return self._database.run(read)

    def delete_session(self, owner: Owner, session: UUID, before: int | None = None) -> bool:
        """Erase a session; return False if it does not exist or changed at or after `before`."""

        def delete(connection: Connection) -> bool:
            number = self._owner(connection, owner)
            row = connection.execute(sql.LOCK_SESSION, (number, session)).fetchone()
            if row is None or (before is not None and row[1] >= before):
                return False
            for statement in sql.ERASE_SESSION:
                connection.execute(statement, (number, row[0]))
            return True

        return self._database.change(delete)

    def erase_removed(self, owner: Owner, session: UUID, before: int) -> list[UUID]:
        """Erase the messages removed from a session before a time; return their ids."""

        def erase(connection: Connection) -> list[UUID]:
            number = self._owner(connection, owner)
            row = connection.execute(sql.LOCK_SESSION, (number, session)).fetchone()
            if row is None:
                return []
            return PostgresSessionWriter(connection, number, row[0]).erase_removed(before)

        return self._database.change(erase)

    def load(self, owner: Owner, session: UUID) -> Snapshot:
        """Return the whole session; raises NotFoundError."""
        with reporting_corruption():
            return self._database.read(
                lambda connection: self._reader(connection, owner, session).all()
            )

    def with_everything(
        self,
        work: Callable[[Iterator[SessionDump], Iterator[StoredFile], Iterator[StoredBlob]], _T],
    ) -> _T:
        """Call `work` with all sessions, files and blobs of all owners, in one snapshot.

        If the connection is lost, `work` is called again from the start.
        """

        def read_sessions(connection: Connection) -> Iterator[SessionDump]:
            for number, *owner in connection.execute(sql.ALL_OWNERS).fetchall():
                for row in connection.execute(sql.ALL_SESSIONS, (number,)).fetchall():
                    snapshot = SessionReader(connection, number, row).all()
                    session_journals = journals(connection, number, row[0])
                    adapter = PostgresConnection(connection)
                    commits = CommitTable(adapter, number, row[0]).all()
                    session_labels = labels(connection, number, row[0])
                    removed = removed_messages(
                        adapter, number, snapshot.session.id, *_WITHOUT_LIMIT
                    )
                    call_starts = starts(connection, (number, row[0]), None)
                    yield SessionDump(
                        Owner(*owner),
                        snapshot,
                        session_journals,
                        commits,
                        session_labels,
                        removed,
                        call_starts,
                    )

        def read_files(connection: Connection) -> Iterator[StoredFile]:
            reader = FileReader(PostgresConnection(connection), partial(self._owner, connection))
            for _, *owner in connection.execute(sql.ALL_OWNERS).fetchall():
                yield from reader.all(Owner(*owner))

        def read_blobs(connection: Connection) -> Iterator[StoredBlob]:
            for number, *owner in connection.execute(sql.ALL_OWNERS).fetchall():
                table = BlobTable(PostgresConnection(connection), number)
                for record in table.all():
                    yield StoredBlob(Owner(*owner), record, table.chunks(record))

        return self._database.read(
            lambda connection: work(
                read_sessions(connection), read_files(connection), read_blobs(connection)
            )
        )

    def changes(self, owner: Owner, session: UUID, known: Mapping[UUID, int]) -> Snapshot:
        """Return changes beyond the `known` segments and their lengths; raises NotFoundError."""
        with reporting_corruption():
            return self._database.read(
                lambda connection: self._reader(connection, owner, session).beyond(known)
            )

    def _reader(self, connection: Connection, owner: Owner, session: UUID) -> SessionReader:
        number = self._owner(connection, owner)
        row = connection.execute(sql.FIND_SESSION, (number, session)).fetchone()
        if row is None:
            raise no_session(session)
        return SessionReader(connection, number, row)

    def write(self, owner: Owner, session: UUID, changes: Sequence[Change]) -> list[BranchHead]:
        """Apply changes atomically; return the head before each Append and TakeLease, in order."""
        write = Write(owner, session, tuple(changes))
        heads = self._database.run(lambda connection: self._try_fast_append(connection, write))
        return heads or self._database.change(lambda connection: self._apply(connection, write))

    def _try_fast_append(
        self, connection: PreparedConnection, write: Write
    ) -> list[BranchHead] | None:
        """Apply a write as a fast append; return None if it has to take the slow path."""
        append = appending(write, self._owner(connection, write.owner))
        head = append and append.make(connection)
        return [head] if head else None

    def _apply(self, connection: Connection, write: Write) -> list[BranchHead]:
        number = self._owner(connection, write.owner)
        if write.create is not None:
            values = _session_values(number, write.create)
            if connection.execute(sql.MAKE_SESSION, values).rowcount == 0:
                raise session_taken(write.session)
        has_new_messages = any(isinstance(change, AddMessages) for change in write.changes)
        row = connection.execute(
            sql.TOUCH_SESSION, (clock.now_us(), has_new_messages, number, write.session)
        ).fetchone()
        if row is None:
            raise no_session(write.session)
        return PostgresSessionWriter(connection, number, row[0]).apply(write.changes)

    def write_many(self, writes: Sequence[Write]) -> list[list[BranchHead] | SennitError]:
        """Apply several writes with one sync to disk; each succeeds or fails on its own."""
        self._database.refuse_if_closed()
        if not writes:
            return []
        for owner in {write.owner for write in writes if write.create is not None}:
            self._ensure_owner(owner)
        try:
            return self._database.change(lambda connection: self._write_group(connection, writes))
        except _FastPathFailedError:
            return self._database.change(lambda connection: self._write_each(connection, writes))

    def _write_group(
        self, connection: PreparedConnection, writes: Sequence[Write]
    ) -> list[list[BranchHead] | SennitError]:
        """Apply writes in order; consecutive fast ones share one round trip.

        Raises _FastPathFailedError if one of these needs the slow path.
        """
        self._lock(connection, writes)
        results: list[list[BranchHead] | SennitError] = []
        fast_paths = (
            (usual_of(write, self._owner(connection, write.owner)), write) for write in writes
        )
        for _, group in groupby(fast_paths, lambda pair: pair[0] is None):
            pairs = list(group)
            fast = [(fast_write, write) for fast_write, write in pairs if fast_write is not None]
            results += (
                self._write_fast(connection, fast)
                if fast
                else [self._try_write(connection, write) for _, write in pairs]
            )
        return results

    def _write_fast(
        self, connection: PreparedConnection, group: Sequence[tuple[FastPathWrite, Write]]
    ) -> list[list[BranchHead] | SennitError]:
        try:
            answers = connection.ask_each([fast_write.asked() for fast_write, _ in group])
        except Refused:
            raise _FastPathFailedError from None
        results: list[list[BranchHead] | SennitError] = []
        for (fast_write, write), answer in zip(group, answers, strict=True):
            heads = fast_write.heads(answer)
            if heads is not None:
                results.append(heads)
            elif (
                isinstance(fast_write, FastLease)  # most likely held by another
                and all(later.session != write.session for _, later in group[len(results) + 1 :])
            ):
                results.append(self._try_write(connection, write))
            else:
                raise _FastPathFailedError  # retry in order with the session's other writes
        return results

    def _write_each(
        self, connection: Connection, writes: Sequence[Write]
    ) -> list[list[BranchHead] | SennitError]:
        self._lock(connection, writes)
        return [self._try_write(connection, write) for write in writes]

    def _try_write(self, connection: Connection, write: Write) -> list[BranchHead] | SennitError:
        try:
            with connection.transaction():
                return self._apply(connection, write)
        except SennitError as error:
            return error

    def _lock(self, connection: Connection, writes: Sequence[Write]) -> None:
        """Lock all sessions in one order, so that two groups cannot deadlock."""
        pairs = {(self._owner(connection, write.owner), write.session) for write in writes}
        owners, sessions = zip(*pairs, strict=True)
        connection.execute(sql.LOCK_SESSIONS, (list(owners), list(sessions)))

    def acquire(self, owner: Owner, session: UUID, branch: UUID, holder: str, ttl: int) -> Lease:
        """Acquire a branch's lease for `ttl` microseconds; raises ConflictError if it is held."""
        (head,) = self.write(owner, session, [TakeLease(branch, holder, ttl)])
        assert head.taken is not None
        return head.taken.lease

    def renew(self, owner: Owner, session: UUID, lease: Lease, ttl: int) -> Lease:
        """Extend a lease; raises ConflictError if it was lost."""

        def renew(connection: Connection) -> Lease:
            key = self._lease_key(connection, owner, session, lease.branch)
            last = _last_lease(connection, key)
            renewed = leases.extend(last, lease, ttl, lease_clock(connection))
            connection.execute(sql.PUT_LEASE, (*key, lease.holder, lease.token, renewed.expires))
            return renewed

        return self._database.change(renew)

    def release(self, owner: Owner, session: UUID, lease: Lease) -> None:
        """Release a lease; do nothing if it was lost."""

        def release(connection: Connection) -> None:
            key = self._lease_key(connection, owner, session, lease.branch)
            if leases.is_held(_last_lease(connection, key), lease):
                connection.execute(sql.END_LEASE, key)

        with suppress(NotFoundError):
            self._database.change(release)

    def is_leased(self, owner: Owner, session: UUID, branch: UUID) -> bool:
        """Return whether a branch has a lease that has not expired."""

        def is_leased(connection: Connection) -> bool:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session)).fetchone()
            if row is None:
                raise no_session(session)
            last = _last_lease(connection, (number, row[0], branch))
            return leases.is_live(last, lease_clock(connection))

        return self._database.read(is_leased)

    def runs(self, owner: Owner, session: UUID, branch: UUID) -> list[RunRecord]:
        """Return the runs of a branch, newest first."""
        return self._read_journal(owner, session, branch, lambda journal: journal.runs())

    def last_run(self, owner: Owner, session: UUID, branch: UUID) -> RunRecord | None:
        """Return the newest run of a branch, or None."""
        runs = self._read_journal(owner, session, branch, lambda journal: journal.runs(1))
        return runs[0] if runs else None

    def last_runs(self, owner: Owner, session: UUID) -> dict[UUID, RunRecord]:
        """Return the newest run of each branch that has one, by branch."""

        def read(connection: Connection) -> dict[UUID, RunRecord]:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session)).fetchone()
            if row is None:
                raise no_session(session)
            return last_runs(connection, (number, row[0]))

        return self._database.read(read)

    def events(
        self, owner: Owner, session: UUID, branch: UUID, after: int, limit: int
    ) -> list[EventRecord]:
        """Return at most `limit` events of a branch after event number `after`, in order."""
        return self._read_journal(
            owner, session, branch, lambda journal: journal.events(after, max(0, limit))
        )

    def last_event(self, owner: Owner, session: UUID, branch: UUID) -> int:
        """Return the number of a branch's last event, or 0."""
        return self._read_journal(owner, session, branch, lambda journal: journal.last())

    def _read_journal(
        self, owner: Owner, session: UUID, branch: UUID, read: Callable[[JournalReader], _T]
    ) -> _T:
        def read_snapshot(connection: Connection) -> _T:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session)).fetchone()
            if row is None:
                raise no_session(session)
            return read(JournalReader(connection, (number, row[0], branch)))

        return self._database.read(read_snapshot)

    def scrub(self) -> None:
        """Collect blobs that are not used any more; VACUUM reclaims erased rows."""
        self.collect_blobs(clock.now_us() - BLOB_GRACE_US)

    def stored(self, owner: Owner) -> tuple[int, int]:
        """Return the number of an owner's sessions, and their total bytes with names."""

        def read(connection: Connection) -> tuple[int, int]:
            number = self._owner(connection, owner)
            row = connection.execute(sql.STORED, {"owner": number}).fetchone()
            assert row is not None
            return row[0], int(row[1])

        return self._database.read(read)

    def labels(self, owner: Owner, session: UUID) -> list[LabelRecord]:
        """Return the labels of a session's messages, oldest first; raises NotFoundError."""

        def read(connection: Connection) -> list[LabelRecord]:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session)).fetchone()
            if row is None:
                raise no_session(session)
            return labels(connection, number, row[0])

        return self._database.read(read)

    def starts(
        self, owner: Owner, session: UUID, messages: Sequence[UUID] | None
    ) -> dict[UUID, int]:
        """Return the number of starts of tool calls on any branch; raises NotFoundError."""

        def read(connection: Connection) -> dict[UUID, int]:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session)).fetchone()
            if row is None:
                raise no_session(session)
            return starts(connection, (number, row[0]), messages)

        return self._database.read(read)

    def has_workers(self) -> bool:
        """Return whether workers finish open commits, so that clients need not."""
        return self._database.run(
            lambda connection: fetch_one(connection.execute(queue_sql.IS_SERVED, (_SILENCE_S,)))[0]
        )

    def serve(self, handler: Handler, serving: WorkerOptions) -> None:
        """Run a worker that finishes the open commits of all owners.

        It shuts down gracefully on SIGTERM and SIGINT, or when the queue is drained if `serving`
        says so. Raises StoreError.
        """
        from sennit.stores.postgres.job_queue import QueueWorker, bring_up_to_date

        def take(number: int, commit: UUID, attempts: int) -> None:
            owner = self._database.run(
                lambda connection: connection.execute(queue_sql.OWNER, (number,)).fetchone()
            )
            if owner is not None:
                handler(CommitJob(Owner(*owner), commit, attempts))

        self._database.run(bring_up_to_date)
        # psycopg cannot use the default event loop of Windows.
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(QueueWorker(self._database.address, take, serving).run())

    def _lease_key(
        self, connection: Connection, owner: Owner, session: UUID, branch: UUID
    ) -> tuple[int, int, UUID]:
        """Return the key of a lease, with its session locked."""
        number = self._owner(connection, owner)
        row = connection.execute(sql.LOCK_SESSION, (number, session)).fetchone()
        if row is None:
            raise no_session(session)
        return number, row[0], branch


def _last_lease(connection: Connection, key: tuple[int, int, UUID]) -> Lease | None:
    row = connection.execute(sql.FIND_LEASE, key).fetchone()
    return None if row is None else Lease(key[2], *row)


def _session_values(owner: int, session: SessionRecord) -> tuple[Any, ...]:
    return (
        owner,
        session.id,
        session.key,
        session.user,
        session.created,
        session.updated,
        text_of(session.metadata),
    )
