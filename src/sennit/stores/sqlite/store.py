"""The SQLite store: one file, the default.

WAL with `synchronous=FULL`, so what was acknowledged survives the machine. One connection writes,
under one lock, always with BEGIN IMMEDIATE (a transaction that reads first and writes later would
fail at once when another process writes); readers have connections of their own and see a snapshot.
The full-text index is written behind a durable mark, and a search first brings it up to date.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Generator, Hashable, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from threading import Lock
from uuid import UUID
from weakref import finalize

from sennit import clock
from sennit.atomic_file import whole
from sennit.closing import Closing
from sennit.errors import (
    NotFoundError,
    SennitError,
    StoreError,
    ValidationError,
)
from sennit.paths import create_private
from sennit.stores import after_fork, leases
from sennit.stores.base import AFTER_ALL, of_one_piece, session_taken
from sennit.stores.records.search import TextQuery
from sennit.stores.records.sessions import (
    BranchHead,
    Change,
    EventRecord,
    FoundMessage,
    LabelRecord,
    Lease,
    Owner,
    RunRecord,
    SessionRecord,
    Snapshot,
    TakeLease,
    Write,
)
from sennit.stores.search import tokenizer
from sennit.stores.sql_json import text_of
from sennit.stores.sqlite import search as sqlite_words
from sennit.stores.sqlite import secure_delete
from sennit.stores.sqlite import statements as sql
from sennit.stores.sqlite.batch_insert import InsertBuffer
from sennit.stores.sqlite.connection import (
    OF_DRIVER,
    OF_ROWS,
    Durability,
    as_store_error,
    connect,
    identity,
    lengthen,
    log_of,
    prepare,
    refuse_foreign,
    replaced,
    translated,
    usable,
)
from sennit.stores.sqlite.erase import ROWS, SQLiteErasing, hide, is_any_hidden
from sennit.stores.sqlite.labels import LabelTable
from sennit.stores.sqlite.memory_store import SQLiteMemory
from sennit.stores.sqlite.runs import JournalReader, last_runs, lease_from, lease_row, starts
from sennit.stores.sqlite.session_reader import SessionReader, session_from, session_row
from sennit.stores.sqlite.session_writer import SessionWriter

_log = logging.getLogger(__name__)

_REMEMBERED = 1000  # sessions of which it is known where their branches and journals end
_PATIENCE = 1.0  # seconds with those who read while the log is to be emptied
_LOOK_AGAIN = 0.001


class SQLiteStore(SQLiteMemory, SQLiteErasing, Closing):
    """Sessions in one SQLite file; see `sennit.stores.base.Store` for what it promises."""

    def __init__(self, path: str | Path, *, durability: Durability = "full") -> None:
        """Open or create the file; raises StoreError if it is not ours, or of another version."""
        if durability not in ("full", "normal"):
            raise ValidationError(f"durability must be 'full' or 'normal', got {durability!r}.")
        super().__init__()
        with translated(Path(path)):
            self._path = usable(Path(path))
        self._durability: Durability = durability
        self._lock = Lock()
        self._idle: list[sqlite3.Connection] = []
        self._connections: list[sqlite3.Connection] = []
        finalize(self, _close, self._connections)  # if nobody calls close()
        self._owners: dict[Owner, int] = {}
        self._writers: dict[tuple[Owner, UUID], SessionWriter] = {}
        self._numbers = count()  # for new messages
        self._others = 0  # changes whenever another connection has written
        self._closed = False
        self._forked = False
        with translated(self._path):
            self._log = log_of(self._path)
            refuse_foreign(self._path)
            create_private(self._path)  # what SQLite puts beside it gets the same rights
            self._file = identity(self._path)
            self._written_log: tuple[int, int] | None = None
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
                left = is_any_hidden(self._writer)
            if left:
                self._erase_hidden()
        except StoreError as error:  # a full disk, for instance: what is there can be read
            _log.warning("A deleted session could not be erased yet: %s", error)

    def _connect(self) -> sqlite3.Connection:
        connection = connect(self._path, self._durability)
        self._connections.append(connection)
        return connection

    @contextmanager
    def _writing(self, *, aside: bool = False) -> Generator[sqlite3.Connection]:
        """One transaction; whatever is raised inside undoes all of it.

        What is done `aside` changes nothing that the writers of sessions know.
        """
        with self._lock, translated(self._path):
            self._refuse_if_closed()
            try:
                self._begin()
                yield self._writer
                self._writer.execute("COMMIT")
                if not aside:
                    self._writers.clear()  # what they know may have been changed without them
            except BaseException:
                self._undo()
                raise

    @contextmanager
    def _unhurried(self) -> Generator[sqlite3.Connection]:
        """One transaction that does not wait for the disk, and changes nothing writers know.

        The next write that has to last brings it along.
        """
        with self._lock, translated(self._path):
            self._refuse_if_closed()
            with self._not_synced():
                try:
                    self._begin()
                    yield self._writer
                    self._writer.execute("COMMIT")
                except BaseException:
                    self._undo()
                    raise

    @contextmanager
    def _not_synced(self) -> Generator[None]:
        """Have a transaction inside not wait for the disk."""
        if self._durability != "full":
            yield
            return
        self._writer.execute("PRAGMA synchronous = NORMAL")
        try:
            yield
        finally:
            self._writer.execute("PRAGMA synchronous = FULL")

    @contextmanager
    def _leasing(self, session: tuple[Owner, UUID], branch: UUID) -> Generator[sqlite3.Connection]:
        """A transaction about who holds a branch.

        What is held ends with the machine anyway. All but the holder stays as the session's writer
        knows it.
        """
        with self._unhurried() as connection:
            yield connection
            if (writer := self._writers.get(session)) is not None:
                writer.forget_lease(branch)

    def _begin(self) -> None:
        """Begin a transaction that writes to the file that was opened, and to no other."""
        self._writer.execute("BEGIN IMMEDIATE")
        self._refuse_if_replaced()
        self._refuse_if_log_replaced()

    def _refuse_if_replaced(self) -> None:
        try:
            same = identity(self._path) == self._file
        except FileNotFoundError:
            same = False
        if not same:
            raise replaced(self._path)

    def _refuse_if_log_replaced(self) -> None:
        """Raise StoreError if what is written now would be read by nobody.

        Only the last user of a file deletes its log. A program that copies the file while it has
        the store open ends the locks by which others see that it is in use.
        """
        try:
            found = identity(self._log)
        except FileNotFoundError:
            found = None
        self._written_log = self._written_log or found
        if found != self._written_log:
            raise replaced(self._path)

    def _undo(self) -> None:
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")
        # What was added in this transaction is gone again.
        self._rows.forget()
        self._owners.clear()
        self._writers.clear()

    @contextmanager
    def _reading(self) -> Generator[sqlite3.Connection]:
        """A snapshot, on a connection that nobody else uses meanwhile."""
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
                    _close(self._idle)

    def disown(self) -> list[object]:
        """Refuse everything from now on, in a forked child; see `sennit.stores.after_fork`."""
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
        """Let go of the file; a closed store refuses everything else.

        Whoever is reading just now reads on, and closes the connection they read from.
        """
        if self._forked:
            return
        with self._lock:
            self._closed = True
            self._writer.close()
            _close(self._idle)

    def backup(self, path: str | Path) -> None:
        """Copy all of it, as it is at this moment, to a new file; others may write meanwhile."""
        with (
            whole(Path(path)) as part,
            self._reading() as connection,
            translated(Path(path)),
        ):
            create_private(part)
            with closing(sqlite3.connect(part)) as copy:
                connection.backup(copy)

    def _owner(self, connection: sqlite3.Connection, owner: Owner) -> int:
        """The owner's number; 0, which is nobody's, if nothing of theirs was ever written."""
        known = self._owners.get(owner)
        if known is None:
            found = connection.execute(sql.FIND_OWNER, owner.key).fetchone()
            known = found[0] if found else 0
            if known:
                self._owners[owner] = known
        return known

    def _added_owner(self, connection: sqlite3.Connection, owner: Owner) -> int:
        """The owner's number, made if they have none; inside a transaction that writes."""
        known = self._owner(connection, owner)
        return known or connection.execute(sql.ADD_OWNER, owner.key).fetchone()[0]

    @property
    def identity(self) -> Hashable:
        """The key of the file: all stores that were opened on it have the same."""
        return self._file

    def create_session(self, owner: Owner, session: SessionRecord) -> SessionRecord:
        """Keep a new session; if its id is there already, what is there is returned."""
        with self._writing(aside=True) as connection:
            number = self._added_owner(connection, owner)
            self._add_session(connection, number, session)
            return session_from(session_row(connection, number, session.id))

    def _add_session(
        self, connection: sqlite3.Connection, owner: int, session: SessionRecord
    ) -> int | None:
        """Add a session; gives its number, or None if it is there already."""
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
        """The session with that id, if the owner has it."""
        with self._reading() as connection:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session.bytes)).fetchone()
            return session_from(row) if row else None

    def list_sessions(
        self, owner: Owner, *, contains: str | None, before: tuple[int, UUID] | None, limit: int
    ) -> list[SessionRecord]:
        """Sessions, the one changed last first; `before` is the last one of the page before."""
        updated, uid = before or AFTER_ALL
        with self._reading() as connection:
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
        """Erase a session, if it was last changed `before`; False if it was not there."""
        with self._writing() as connection:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session.bytes)).fetchone()
            if row is None or (before is not None and session_from(row).updated >= before):
                return False
            hide(connection, number, row[0])
        self._erase_hidden()
        return True

    def erase_removed(self, owner: Owner, session: UUID, before: int) -> list[UUID]:
        """Erase those of a session; gives their ids."""
        gone: list[UUID] = []
        while len(gone) % ROWS == 0:
            found = self._erase_removed(owner, session, before)
            if not found:
                break
            gone += found
        return gone

    def _erase_removed(self, owner: Owner, session: UUID, before: int) -> list[UUID]:
        with self._writing() as connection:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session.bytes)).fetchone()
            if row is None:
                return []
            writer = SessionWriter(self._rows, number, row[0], self._numbers)
            return writer.erase_removed(before, ROWS)

    def load(self, owner: Owner, session: UUID) -> Snapshot:
        """All of a session; raises NotFoundError."""
        with self._reading() as connection, of_one_piece():
            number = self._owner(connection, owner)
            return SessionReader(connection, number, session_row(connection, number, session)).all()

    def changes(self, owner: Owner, session: UUID, known: Mapping[UUID, int]) -> Snapshot:
        """Return changes beyond the `known` segments and their lengths; raises NotFoundError."""
        with self._reading() as connection, of_one_piece():
            number = self._owner(connection, owner)
            row = session_row(connection, number, session)
            return SessionReader(connection, number, row).beyond(known)

    def write(self, owner: Owner, session: UUID, changes: Sequence[Change]) -> list[BranchHead]:
        """Make changes, all or none; gives the head before each Append, in order."""
        return self._write_all([Write(owner, session, tuple(changes))])[0]

    def write_many(self, writes: Sequence[Write]) -> list[list[BranchHead] | SennitError]:
        """Make several writes with one wait for the disk; each succeeds or fails alone."""
        try:
            return list(self._write_all(writes))
        except SennitError:
            # One of them is refused and has undone all: once more, each with a way back of its own.
            return self._write_each(writes)

    def _write_all(self, writes: Sequence[Write]) -> list[list[BranchHead]]:
        """Make writes in one transaction, all or none."""
        with self._lock:
            self._refuse_if_closed()
            try:
                try:
                    if all(map(_only_leases, writes)):  # which end with the machine anyway
                        with self._not_synced():
                            return self._transaction(writes, careful=False)
                    return self._transaction(writes, careful=False)
                except sqlite3.IntegrityError:  # something is there already: look what
                    return self._transaction(writes, careful=True)
            except SennitError:
                raise
            except (*OF_DRIVER, *OF_ROWS) as error:
                raise as_store_error(self._path, error) from error

    def _transaction(self, writes: Sequence[Write], *, careful: bool) -> list[list[BranchHead]]:
        try:
            self._begin()
            lengthen(self._log)
            self._notice_others()
            heads, used = self._applied(writes, careful=careful)
            self._settle(used)
            self._writer.execute("COMMIT")
            return heads
        except BaseException:
            self._undo()
            raise

    def _applied(
        self, writes: Sequence[Write], *, careful: bool
    ) -> tuple[list[list[BranchHead]], Iterable[SessionWriter]]:
        """Make the changes of writes; gives their heads, and who has to settle them."""
        heads: list[list[BranchHead]] = []
        used: dict[SessionWriter, None] = {}
        owner = session = writer = None
        for write in writes:
            # Most groups are of one session, whose writes hold the same objects.
            same = write.session is session and write.owner is owner and write.create is None
            if writer is None or not same:
                owner, session, writer = write.owner, write.session, self._writer_for(write)
                used[writer] = None
            heads.append(writer.apply(write.changes, careful=careful))
        return heads, used

    def _settle(self, used: Iterable[SessionWriter]) -> None:
        """Write down all that is left of a transaction, and when these sessions were changed."""
        self._rows.write_down()
        self._rows.write_journals()
        now = clock.now_us()
        self._writer.executemany(sql.TOUCH_SESSION, [(now, *writer.key) for writer in used])

    def _notice_others(self) -> None:
        """Forget what is known of sessions if somebody else has written, or it is too much."""
        others = self._writer.execute("PRAGMA data_version").fetchone()[0]
        if others != self._others or len(self._writers) > _REMEMBERED:
            self._others = others
            self._writers.clear()
        if not self._writers:
            self._numbers = count(self._writer.execute(sql.LAST_MESSAGE).fetchone()[0] + 1)

    def _write_each(self, writes: Sequence[Write]) -> list[list[BranchHead] | SennitError]:
        results: list[list[BranchHead] | SennitError] = []
        with self._writing() as connection:
            for write in writes:
                connection.execute("SAVEPOINT one")
                try:
                    self._notice_others()
                    writer = self._writer_for(write)
                    results.append(writer.apply(write.changes, careful=True))
                    self._settle([writer])
                except SennitError as error:
                    connection.execute("ROLLBACK TO one")
                    self._rows.forget()
                    results.append(error)
                self._writers.clear()
                connection.execute("RELEASE one")
        return results

    def _writer_for(self, write: Write) -> SessionWriter:
        """Return the writer of the session of a write; raises NotFoundError."""
        key = (write.owner, write.session)
        writer = None if write.create else self._writers.get(key)
        if writer is None:
            owner, session = self._place_of(write)
            empty = write.create is not None
            writer = SessionWriter(self._rows, owner, session, self._numbers, empty=empty)
            self._writers[key] = writer
        return writer

    def _place_of(self, write: Write) -> tuple[int, int]:
        """The numbers of a write's owner and session, which is made if it is to be."""
        if write.create is None:
            owner = self._owner(self._writer, write.owner)
            return owner, session_row(self._writer, owner, write.session)[0]
        owner = self._added_owner(self._writer, write.owner)
        session = self._add_session(self._writer, owner, write.create)
        if session is None:
            raise session_taken(write.session)
        return owner, session

    def search(
        self, owner: Owner, text: str, *, session: UUID | None, limit: int
    ) -> list[FoundMessage]:
        """Messages that hold the words of `text`, the best first."""
        asked = TextQuery(tuple(tokenizer.asked(text)), session, limit=limit)
        if not asked.words:
            return []
        self._index_the_rest()
        with self._reading() as connection:
            return sqlite_words.search(connection, self._owner(connection, owner), asked)

    def acquire(self, owner: Owner, session: UUID, branch: UUID, holder: str, ttl: int) -> Lease:
        """Take the lease of a branch for `ttl` microseconds; raises ConflictError if it is held."""
        (head,) = self.write(owner, session, [TakeLease(branch, holder, ttl)])
        assert head.taken is not None
        return head.taken.lease

    def renew(self, owner: Owner, session: UUID, lease: Lease, ttl: int) -> Lease:
        """Keep a lease longer; raises ConflictError if it was lost."""
        with self._leasing((owner, session), lease.branch) as connection:
            key = self._branch_key(connection, owner, session, lease.branch)
            last = _last_lease(connection, key, lease.branch)
            renewed = leases.renewed(last, lease, ttl, leases.ticks())
            connection.execute(sql.PUT_LEASE, (*key, *lease_row(renewed)))
            return renewed

    def release(self, owner: Owner, session: UUID, lease: Lease) -> None:
        """Give a lease back; one that was lost is left alone."""
        with suppress(NotFoundError), self._leasing((owner, session), lease.branch) as connection:
            key = self._branch_key(connection, owner, session, lease.branch)
            if leases.is_held(_last_lease(connection, key, lease.branch), lease):
                connection.execute(sql.END_LEASE, key)

    def is_leased(self, owner: Owner, session: UUID, branch: UUID) -> bool:
        """Return whether someone holds the lease of a branch, which has not expired."""
        with self._reading() as connection:
            key = self._branch_key(connection, owner, session, branch)
            return leases.is_live(_last_lease(connection, key, branch), leases.ticks())

    def runs(self, owner: Owner, session: UUID, branch: UUID) -> list[RunRecord]:
        """The runs of a branch, the newest first."""
        with self._journal(owner, session, branch) as journal:
            return journal.runs()

    def last_run(self, owner: Owner, session: UUID, branch: UUID) -> RunRecord | None:
        """The newest run of a branch, if there was any."""
        with self._journal(owner, session, branch) as journal:
            return next(iter(journal.runs(1)), None)

    def last_runs(self, owner: Owner, session: UUID) -> dict[UUID, RunRecord]:
        """Find the newest run of each branch of a session on which there was any, by branch."""
        with self._reading() as connection:
            number = self._owner(connection, owner)
            row = session_row(connection, number, session)
            return last_runs(connection, (number, row[0]))

    def events(
        self, owner: Owner, session: UUID, branch: UUID, after: int, limit: int
    ) -> list[EventRecord]:
        """The events of a branch past a number, in order, at most `limit` of them."""
        with self._journal(owner, session, branch) as journal:
            return journal.events(after, max(0, limit))

    def last_event(self, owner: Owner, session: UUID, branch: UUID) -> int:
        """The number of a branch's last event; 0 if there is none."""
        with self._journal(owner, session, branch) as journal:
            return journal.last()

    @contextmanager
    def _journal(self, owner: Owner, session: UUID, branch: UUID) -> Generator[JournalReader]:
        with self._reading() as connection:
            yield JournalReader(connection, self._branch_key(connection, owner, session, branch))

    def _empty_log(self) -> None:
        # Those who read here are waited for without the lock, so that nobody waits to write.
        until = time.monotonic() + _PATIENCE
        while self._is_read():
            if time.monotonic() > until:
                return
            time.sleep(_LOOK_AGAIN)
        with self._lock, translated(self._path):
            self._refuse_if_closed()
            self._refuse_if_replaced()
            secure_delete.empty_log(self._writer, _PATIENCE)

    def _is_read(self) -> bool:
        return len(self._connections) - 1 > len(self._idle)  # one of them writes

    def is_served(self) -> bool:
        """Never: who opens commits here finishes them."""
        return False

    def stored(self, owner: Owner) -> tuple[int, int]:
        """Count an owner's sessions, and the bytes of all they hold, names included."""
        with self._reading() as connection:
            number = self._owner(connection, owner)
            sessions, size = connection.execute(sql.STORED, {"owner": number}).fetchone()
            return sessions, size

    def labels(self, owner: Owner, session: UUID) -> list[LabelRecord]:
        """Return the labels of a session's messages, oldest first; raises NotFoundError."""
        with self._reading() as connection:
            number = self._owner(connection, owner)
            row = session_row(connection, number, session)
            return LabelTable(connection, number, row[0]).all()

    def starts(
        self, owner: Owner, session: UUID, messages: Sequence[UUID] | None
    ) -> dict[UUID, int]:
        """Return the number of starts of tool calls on any branch; raises NotFoundError."""
        with self._reading() as connection:
            number = self._owner(connection, owner)
            row = session_row(connection, number, session)
            return starts(connection, (number, row[0]), messages)

    def _branch_key(
        self, connection: sqlite3.Connection, owner: Owner, session: UUID, branch: UUID
    ) -> tuple[int, int, bytes]:
        number = self._owner(connection, owner)
        return number, session_row(connection, number, session)[0], branch.bytes


def _only_leases(write: Write) -> bool:
    changes = write.changes
    return write.create is None and len(changes) == 1 and isinstance(changes[0], TakeLease)


def _last_lease(
    connection: sqlite3.Connection, key: tuple[int, int, bytes], branch: UUID
) -> Lease | None:
    row = connection.execute(sql.FIND_LEASE, key).fetchone()
    return None if row is None else lease_from(branch, row)


def _close(connections: list[sqlite3.Connection]) -> None:
    """Close them all; two threads may do it at once."""
    with suppress(IndexError):
        while True:
            connections.pop().close()
