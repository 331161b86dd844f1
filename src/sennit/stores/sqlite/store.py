"""The SQLite store: one file, the default.

WAL mode with `synchronous=FULL`, so acknowledged writes survive a power cut. One connection writes,
under one lock, always with BEGIN IMMEDIATE (a transaction that reads first and writes later would
fail at once if another process writes); readers use pooled connections and see a snapshot. The
full-text index is updated lazily: a search first indexes the messages past a stored mark.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from threading import Lock
from typing import TypeVar
from uuid import UUID
from weakref import finalize

from sennit import clock
from sennit.atomic_file import atomic_write
from sennit.closing import Closing
from sennit.errors import (
    ConflictError,
    NotFoundError,
    SennitError,
    StoreError,
    ValidationError,
)
from sennit.paths import create_private
from sennit.stores import after_fork, leases
from sennit.stores.base import FIRST_PAGE, reporting_corruption, session_taken
from sennit.stores.records.sessions import (
    BranchHead,
    Change,
    EventRecord,
    LabelRecord,
    Lease,
    Owner,
    RunRecord,
    SessionRecord,
    Snapshot,
    TakeLease,
    Write,
)
from sennit.stores.sql.connection import SqlConnection
from sennit.stores.sql_json import text_of
from sennit.stores.sqlite import secure_delete
from sennit.stores.sqlite import statements as sql
from sennit.stores.sqlite.adapter import SQLiteConnection
from sennit.stores.sqlite.batch_insert import InsertBuffer
from sennit.stores.sqlite.connection import (
    DRIVER_ERRORS,
    ROW_ERRORS,
    Durability,
    as_store_error,
    check_header,
    connect,
    identity,
    preallocate_wal,
    prepare,
    replaced,
    translated,
    usable,
    wal_path_of,
)
from sennit.stores.sqlite.detached import DetachedTable
from sennit.stores.sqlite.erase import ROWS, has_hidden_session, hide
from sennit.stores.sqlite.runs import JournalReader, last_runs, lease_from, lease_row, starts
from sennit.stores.sqlite.search import SQLiteSearch
from sennit.stores.sqlite.search_rows import IndexingFileWriter
from sennit.stores.sqlite.session_reader import SessionReader, labels, session_from, session_row
from sennit.stores.sqlite.session_writer import SQLiteSessionWriter

_T = TypeVar("_T")

_log = logging.getLogger(__name__)

_MAX_CACHED_WRITERS = 1000  # sessions whose tails and journals are cached
_CHECKPOINT_TIMEOUT_S = 1.0  # how long a checkpoint waits for readers
_READER_POLL_S = 0.001


class SQLiteStore(SQLiteSearch, Closing):
    """Sessions in one SQLite file; see `sennit.stores.base.Store` for its guarantees."""

    def __init__(self, path: str | Path, *, durability: Durability = "full") -> None:
        """Open or create the file; raises StoreError for a foreign file or another version."""
        if durability not in ("full", "normal"):
            raise ValidationError(f"durability must be 'full' or 'normal', got {durability!r}.")
        with translated(Path(path)):
            self._path = usable(Path(path))
            self._log = wal_path_of(self._path)
            check_header(self._path)
            create_private(self._path)  # the WAL and shm files inherit its permissions
            self._file = identity(self._path)
            self._wal_identity: tuple[int, int] | None = None
        self._open(durability)

    def _open(self, durability: Durability) -> None:
        """Connect to the database at `_path`, and create its tables if there are none."""
        super().__init__()
        self._durability: Durability = durability
        self._lock = Lock()
        self._idle: list[sqlite3.Connection] = []
        self._connections: list[sqlite3.Connection] = []
        finalize(self, _close_all, self._connections)  # if nobody calls close()
        self._owners: dict[Owner, int] = {}
        self._writers: dict[tuple[Owner, UUID], SQLiteSessionWriter] = {}
        self._numbers = count()  # for new messages
        self._data_version = 0  # changes when another connection has written
        self._closed = False
        self._forked = False
        with translated(self._path):
            self._writer = self._connect()
            self._rows = InsertBuffer(self._writer)
            try:
                prepare(self._writer, self._path)
            except BaseException:
                self._writer.close()
                raise
        after_fork.watch(self)
        try:
            with translated(self._path):
                has_hidden = has_hidden_session(self._writer)
            if has_hidden:
                self._erase_hidden_sessions()
        except StoreError as error:  # a full disk, for instance: reading still works
            _log.warning("A deleted session could not be erased yet: %s", error)

    def _connect(self) -> sqlite3.Connection:
        connection = connect(self._path, self._durability)
        self._connections.append(connection)
        return connection

    @contextmanager
    def _transaction(self, *, keep_caches: bool = False) -> Generator[sqlite3.Connection]:
        """Run a write transaction, rolled back if the block raises.

        With `keep_caches`, the block must not change anything that session writers have cached.
        """
        with self._lock, translated(self._path):
            self._refuse_if_closed()
            try:
                self._begin()
                yield self._writer
                self._writer.execute("COMMIT")
                if not keep_caches:
                    self._writers.clear()  # their caches may be stale
            except BaseException:
                self._rollback()
                raise

    @contextmanager
    def _unsynced_transaction(self) -> Generator[sqlite3.Connection]:
        """Run a write transaction with synchronous=NORMAL that keeps the writers' caches.

        The next durable commit syncs it to disk.
        """
        with self._lock, translated(self._path):
            self._refuse_if_closed()
            with self._without_sync():
                try:
                    self._begin()
                    yield self._writer
                    self._writer.execute("COMMIT")
                except BaseException:
                    self._rollback()
                    raise

    @contextmanager
    def _without_sync(self) -> Generator[None]:
        """Set synchronous=NORMAL for the block, so that a commit does not wait for the disk."""
        if self._durability != "full":
            yield
            return
        self._writer.execute("PRAGMA synchronous = NORMAL")
        try:
            yield
        finally:
            self._writer.execute("PRAGMA synchronous = FULL")

    @contextmanager
    def _lease_transaction(
        self, session: tuple[Owner, UUID], branch: UUID
    ) -> Generator[sqlite3.Connection]:
        """Run an unsynced transaction on a branch's lease: a lease need not survive a power cut.

        The session's writer drops only its cached lease.
        """
        with self._unsynced_transaction() as connection:
            yield connection
            if (writer := self._writers.get(session)) is not None:
                writer.forget_lease(branch)

    def _begin(self) -> None:
        """Begin a write transaction; raises StoreError if the file or its WAL was replaced."""
        self._writer.execute("BEGIN IMMEDIATE")
        self._refuse_if_replaced()
        self._check_log()

    def _refuse_if_replaced(self) -> None:
        try:
            same = identity(self._path) == self._file
        except FileNotFoundError:
            same = False
        if not same:
            raise replaced(self._path)

    def _check_log(self) -> None:
        """Pad the WAL; raises StoreError if it was replaced: writes to the old one would be lost.

        Only the last connection to a file deletes its WAL. But a program that copies the file while
        it has the store open drops its POSIX locks, and the file looks unused to others.
        """
        try:
            status = os.stat(self._log)
        except FileNotFoundError:
            status = None
        identity_now = None if status is None else (status.st_dev, status.st_ino)
        self._wal_identity = self._wal_identity or identity_now
        if identity_now != self._wal_identity:
            raise replaced(self._path)
        if status is not None:
            preallocate_wal(self._log, status.st_size)

    def _rollback(self) -> None:
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")
        # Rows and numbers of this transaction are gone.
        self._rows.forget()
        self._owners.clear()
        self._writers.clear()

    @contextmanager
    def _snapshot(self) -> Generator[sqlite3.Connection]:
        """Lend a connection of the pool for the block, inside a read transaction."""
        self._refuse_if_closed()
        with translated(self._path):
            self._refuse_if_replaced()
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = self._connect()
            try:
                connection.execute("BEGIN")
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("COMMIT")
                self._idle.append(connection)
                if self._closed:
                    _close_all(self._idle)

    def disown(self) -> list[object]:
        """Refuse all calls in a forked child; see `sennit.stores.after_fork`."""
        connections: list[object] = [*self._connections]
        self._connections.clear()
        self._idle.clear()
        self._lock = Lock()  # a thread of the parent may have held it
        self._closed = self._forked = True
        return connections

    def _refuse_if_closed(self) -> None:
        if self._forked:
            raise after_fork.forked(str(self._path))
        if self._closed:
            raise StoreError(f"The store {str(self._path)!r} is closed; open it again.")

    def close(self) -> None:
        """Close the file; every later call raises StoreError.

        Reads in progress finish, and then close their connections.
        """
        if self._forked:
            return
        with self._lock:
            self._closed = True
            self._writer.close()
            _close_all(self._idle)

    def backup(self, path: str | Path) -> None:
        """Copy a snapshot of the store to a new file; others may write meanwhile."""
        with (
            atomic_write(Path(path)) as part,
            self._snapshot() as connection,
            translated(Path(path)),
        ):
            create_private(part)
            with closing(sqlite3.connect(part)) as copy:
                copy.execute("PRAGMA journal_mode = OFF")  # a copy that fails is deleted
                connection.backup(copy)

    def _owner(self, connection: sqlite3.Connection, owner: Owner) -> int:
        """Return the owner's number; 0, which is never assigned, if the owner has no data."""
        number = self._owners.get(owner)
        if number is None:
            row = connection.execute(sql.FIND_OWNER, owner.key).fetchone()
            number = row[0] if row else 0
            if number:
                self._owners[owner] = number
        return number

    def _number(self, connection: SqlConnection, owner: Owner) -> int:
        return self._owner(connection.connection, owner)

    def _read(self, work: Callable[[SqlConnection], _T]) -> _T:
        with self._snapshot() as connection:
            return work(SQLiteConnection(connection))

    def _change(self, work: Callable[[SqlConnection], _T]) -> _T:
        with self._transaction() as connection:
            return work(SQLiteConnection(connection))

    def _detached(self, connection: SqlConnection, owner: int, session: int) -> DetachedTable:
        return DetachedTable(connection.connection, owner, session)

    def _file_writer(self, connection: SqlConnection) -> IndexingFileWriter:
        return IndexingFileWriter(connection, partial(self._ensure_owner, connection.connection))

    def _ensure_owner(self, connection: sqlite3.Connection, owner: Owner) -> int:
        """Return the owner's number, assigned if there is none; inside a write transaction."""
        number = self._owner(connection, owner)
        return number or connection.execute(sql.ADD_OWNER, owner.key).fetchone()[0]

    def _ensure_owner_number(self, owner: Owner) -> int:
        with self._snapshot() as connection:
            number = self._owner(connection, owner)
        if number:
            return number
        with self._transaction(keep_caches=True) as connection:
            return self._ensure_owner(connection, owner)

    def _change_blobs(self, work: Callable[[SqlConnection], _T], *, durable: bool) -> _T:
        transaction = (
            self._transaction(keep_caches=True) if durable else self._unsynced_transaction()
        )
        with transaction as connection:
            return work(SQLiteConnection(connection))

    @property
    def identity(self) -> Hashable:
        """The device and inode of the file: all stores opened on it share them."""
        return self._file

    def create_session(self, owner: Owner, session: SessionRecord) -> SessionRecord:
        """Add a session, or return the stored one if its id exists."""
        with self._transaction(keep_caches=True) as connection:
            number = self._ensure_owner(connection, owner)
            self._add_session(connection, number, session)
            return session_from(session_row(connection, number, session.id))

    def _add_session(
        self, connection: sqlite3.Connection, owner: int, session: SessionRecord
    ) -> int | None:
        """Add a session; return its number, or None if it exists."""
        added = connection.execute(
            sql.ADD_SESSION,
            (
                owner,
                session.id.bytes,
                session.key,
                session.user,
                session.created,
                session.updated,
                text_of(session.metadata),
            ),
        ).fetchone()
        return added[0] if added else None

    def find_session(self, owner: Owner, session: UUID) -> SessionRecord | None:
        """Return the owner's session with that id, or None."""
        with self._snapshot() as connection:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session.bytes)).fetchone()
            return session_from(row) if row else None

    def list_sessions(
        self, owner: Owner, *, contains: str | None, before: tuple[int, UUID] | None, limit: int
    ) -> list[SessionRecord]:
        """Return a page of sessions, last changed first; `before` is the last one seen."""
        updated, uid = before or FIRST_PAGE
        with self._snapshot() as connection:
            rows = connection.execute(
                sql.LIST_SESSIONS,
                {
                    "owner": self._owner(connection, owner),
                    "contains": contains,
                    "updated": updated,
                    "id": uid.bytes,
                    "limit": limit,
                },
            )
            return [session_from(row) for row in rows]

    def delete_session(self, owner: Owner, session: UUID, before: int | None = None) -> bool:
        """Erase a session; return False if it does not exist or changed at or after `before`."""
        with self._transaction() as connection:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session.bytes)).fetchone()
            if row is None or (before is not None and session_from(row).updated >= before):
                return False
            hide(connection, number, row[0])
        self._erase_hidden_sessions()
        return True

    def erase_removed(self, owner: Owner, session: UUID, before: int) -> list[UUID]:
        """Erase the removed messages of a session; return their ids."""
        erased: list[UUID] = []
        while len(erased) % ROWS == 0:
            batch = self._erase_removed_batch(owner, session, before)
            if not batch:
                break
            erased += batch
        return erased

    def _erase_removed_batch(self, owner: Owner, session: UUID, before: int) -> list[UUID]:
        with self._transaction() as connection:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session.bytes)).fetchone()
            if row is None:
                return []
            writer = SQLiteSessionWriter(self._rows, number, row[0], self._numbers)
            return writer.erase_removed(before, ROWS)

    def load(self, owner: Owner, session: UUID) -> Snapshot:
        """Return the whole session; raises NotFoundError."""
        with self._snapshot() as connection, reporting_corruption():
            number = self._owner(connection, owner)
            return SessionReader(connection, number, session_row(connection, number, session)).all()

    def changes(self, owner: Owner, session: UUID, known: Mapping[UUID, int]) -> Snapshot:
        """Return changes beyond the `known` segments and their lengths; raises NotFoundError."""
        with self._snapshot() as connection, reporting_corruption():
            number = self._owner(connection, owner)
            row = session_row(connection, number, session)
            return SessionReader(connection, number, row).beyond(known)

    def write(self, owner: Owner, session: UUID, changes: Sequence[Change]) -> list[BranchHead]:
        """Apply changes atomically; return the head before each Append and TakeLease, in order."""
        return self._write_all([Write(owner, session, tuple(changes))])[0]

    def write_many(self, writes: Sequence[Write]) -> list[list[BranchHead] | SennitError]:
        """Apply several writes with one sync to disk; each succeeds or fails on its own."""
        try:
            return list(self._write_all(writes))
        except SennitError:
            # One failed and rolled back all: retry each in a savepoint of its own.
            return self._write_each(writes)

    def _write_all(self, writes: Sequence[Write]) -> list[list[BranchHead]]:
        """Apply writes in one transaction."""
        with self._lock:
            self._refuse_if_closed()
            try:
                try:
                    if all(map(_is_lease_only, writes)):  # leases need not survive a power cut
                        with self._without_sync():
                            return self._commit_writes(writes, check_existing=False)
                    return self._commit_writes(writes, check_existing=False)
                except (sqlite3.IntegrityError, ConflictError):  # perhaps it is a retry
                    return self._commit_writes(writes, check_existing=True)
            except SennitError:
                raise
            except (*DRIVER_ERRORS, *ROW_ERRORS) as error:
                raise as_store_error(self._path, error) from error

    def _commit_writes(
        self, writes: Sequence[Write], *, check_existing: bool
    ) -> list[list[BranchHead]]:
        try:
            self._begin()
            self._drop_stale_writers()
            heads, writers = self._apply_writes(writes, check_existing=check_existing)
            self._flush(writers)
            self._writer.execute("COMMIT")
            return heads
        except BaseException:
            self._rollback()
            raise

    def _apply_writes(
        self, writes: Sequence[Write], *, check_existing: bool
    ) -> tuple[list[list[BranchHead]], Iterable[SQLiteSessionWriter]]:
        """Apply the changes of writes; return their heads and the writers used."""
        heads: list[list[BranchHead]] = []
        writers: dict[SQLiteSessionWriter, None] = {}
        owner = session = writer = None
        for write in writes:
            # Most groups are writes to one session, which share these objects.
            same = write.session is session and write.owner is owner and write.create is None
            if writer is None or not same:
                owner, session, writer = write.owner, write.session, self._writer_for(write)
                writers[writer] = None
            writer.check_existing = check_existing
            heads.append(writer.apply(write.changes))
        return heads, writers

    def _flush(self, writers: Iterable[SQLiteSessionWriter]) -> None:
        """Flush the insert buffer and update the sessions' `updated`."""
        self._rows.flush()
        self._rows.flush_journals()
        now = clock.now_us()
        self._writer.executemany(sql.TOUCH_SESSION, [(now, *writer.key) for writer in writers])

    def _drop_stale_writers(self) -> None:
        """Drop cached writers if another connection has written, or there are too many."""
        data_version = self._writer.execute("PRAGMA data_version").fetchone()[0]
        if data_version != self._data_version or len(self._writers) > _MAX_CACHED_WRITERS:
            self._data_version = data_version
            self._writers.clear()
        if not self._writers:
            self._numbers = count(self._writer.execute(sql.LAST_MESSAGE).fetchone()[0] + 1)

    def _write_each(self, writes: Sequence[Write]) -> list[list[BranchHead] | SennitError]:
        results: list[list[BranchHead] | SennitError] = []
        with self._transaction() as connection:
            for write in writes:
                connection.execute("SAVEPOINT one")
                try:
                    self._drop_stale_writers()
                    writer = self._writer_for(write)
                    writer.check_existing = True
                    results.append(writer.apply(write.changes))
                    self._flush([writer])
                except SennitError as error:
                    connection.execute("ROLLBACK TO one")
                    self._rows.forget()
                    results.append(error)
                self._writers.clear()
                connection.execute("RELEASE one")
        return results

    def _writer_for(self, write: Write) -> SQLiteSessionWriter:
        """Return the cached or a new writer for a write's session; raises NotFoundError."""
        key = (write.owner, write.session)
        writer = None if write.create else self._writers.get(key)
        if writer is None:
            owner, session = self._session_key(write)
            writer = SQLiteSessionWriter(self._rows, owner, session, self._numbers)
            self._writers[key] = writer
        return writer

    def _session_key(self, write: Write) -> tuple[int, int]:
        """Return the numbers of a write's owner and session, created if requested."""
        if write.create is None:
            owner = self._owner(self._writer, write.owner)
            return owner, session_row(self._writer, owner, write.session)[0]
        owner = self._ensure_owner(self._writer, write.owner)
        session = self._add_session(self._writer, owner, write.create)
        if session is None:
            raise session_taken(write.session)
        return owner, session

    def acquire(self, owner: Owner, session: UUID, branch: UUID, holder: str, ttl: int) -> Lease:
        """Acquire a branch's lease for `ttl` microseconds; raises ConflictError if it is held."""
        (head,) = self.write(owner, session, [TakeLease(branch, holder, ttl)])
        assert head.taken is not None
        return head.taken.lease

    def renew(self, owner: Owner, session: UUID, lease: Lease, ttl: int) -> Lease:
        """Extend a lease; raises ConflictError if it was lost."""
        with self._lease_transaction((owner, session), lease.branch) as connection:
            key = self._branch_key(connection, owner, session, lease.branch)
            last = _last_lease(connection, key, lease.branch)
            renewed = leases.extend(last, lease, ttl, leases.monotonic_us())
            connection.execute(sql.PUT_LEASE, (*key, *lease_row(renewed)))
            return renewed

    def release(self, owner: Owner, session: UUID, lease: Lease) -> None:
        """Release a lease; do nothing if it was lost."""
        with (
            suppress(NotFoundError),
            self._lease_transaction((owner, session), lease.branch) as connection,
        ):
            key = self._branch_key(connection, owner, session, lease.branch)
            if leases.is_held(_last_lease(connection, key, lease.branch), lease):
                connection.execute(sql.END_LEASE, key)

    def is_leased(self, owner: Owner, session: UUID, branch: UUID) -> bool:
        """Return whether a branch has a lease that has not expired."""
        with self._snapshot() as connection:
            key = self._branch_key(connection, owner, session, branch)
            return leases.is_live(_last_lease(connection, key, branch), leases.monotonic_us())

    def runs(self, owner: Owner, session: UUID, branch: UUID) -> list[RunRecord]:
        """Return the runs of a branch, newest first."""
        with self._journal(owner, session, branch) as journal:
            return journal.runs()

    def last_run(self, owner: Owner, session: UUID, branch: UUID) -> RunRecord | None:
        """Return the newest run of a branch, or None."""
        with self._journal(owner, session, branch) as journal:
            return next(iter(journal.runs(1)), None)

    def last_runs(self, owner: Owner, session: UUID) -> dict[UUID, RunRecord]:
        """Return the newest run of each branch that has one, by branch."""
        with self._snapshot() as connection:
            number = self._owner(connection, owner)
            row = session_row(connection, number, session)
            return last_runs(connection, (number, row[0]))

    def events(
        self, owner: Owner, session: UUID, branch: UUID, after: int, limit: int
    ) -> list[EventRecord]:
        """Return at most `limit` events of a branch after event number `after`, in order."""
        with self._journal(owner, session, branch) as journal:
            return journal.events(after, max(0, limit))

    def last_event(self, owner: Owner, session: UUID, branch: UUID) -> int:
        """Return the number of a branch's last event, or 0."""
        with self._journal(owner, session, branch) as journal:
            return journal.last()

    @contextmanager
    def _journal(self, owner: Owner, session: UUID, branch: UUID) -> Generator[JournalReader]:
        with self._snapshot() as connection:
            yield JournalReader(connection, self._branch_key(connection, owner, session, branch))

    def _truncate_wal(self) -> None:
        # Wait for this process's readers without the lock, so that writers go on.
        deadline = time.monotonic() + _CHECKPOINT_TIMEOUT_S
        while self._has_readers():
            if time.monotonic() > deadline:
                return
            time.sleep(_READER_POLL_S)
        with self._lock, translated(self._path):
            self._refuse_if_closed()
            self._refuse_if_replaced()
            secure_delete.empty_log(self._writer, _CHECKPOINT_TIMEOUT_S)

    def _has_readers(self) -> bool:
        return len(self._connections) - 1 > len(self._idle)  # one is the writer

    def has_workers(self) -> bool:
        """Return False: the process that opens a commit finishes it."""
        return False

    def stored(self, owner: Owner) -> tuple[int, int]:
        """Return the number of an owner's sessions, and their total bytes with names."""
        with self._snapshot() as connection:
            number = self._owner(connection, owner)
            sessions, size = connection.execute(sql.STORED, {"owner": number}).fetchone()
            return sessions, size

    def labels(self, owner: Owner, session: UUID) -> list[LabelRecord]:
        """Return the labels of a session's messages, oldest first; raises NotFoundError."""
        with self._snapshot() as connection:
            number = self._owner(connection, owner)
            row = session_row(connection, number, session)
            return labels(connection, number, row[0])

    def starts(
        self, owner: Owner, session: UUID, messages: Sequence[UUID] | None
    ) -> dict[UUID, int]:
        """Return the number of starts of tool calls on any branch; raises NotFoundError."""
        with self._snapshot() as connection:
            number = self._owner(connection, owner)
            row = session_row(connection, number, session)
            return starts(connection, (number, row[0]), messages)

    def _branch_key(
        self, connection: sqlite3.Connection, owner: Owner, session: UUID, branch: UUID
    ) -> tuple[int, int, bytes]:
        number = self._owner(connection, owner)
        return number, session_row(connection, number, session)[0], branch.bytes


def _is_lease_only(write: Write) -> bool:
    changes = write.changes
    return write.create is None and len(changes) == 1 and isinstance(changes[0], TakeLease)


def _last_lease(
    connection: sqlite3.Connection, key: tuple[int, int, bytes], branch: UUID
) -> Lease | None:
    row = connection.execute(sql.FIND_LEASE, key).fetchone()
    return None if row is None else lease_from(branch, row)


def _close_all(connections: list[sqlite3.Connection]) -> None:
    """Close and remove all connections; safe to run in two threads at once."""
    with suppress(IndexError):
        while True:
            connections.pop().close()
