"""The SQLite store: one file, no set-up, the default.

WAL with `synchronous=FULL`, so what was acknowledged survives the machine. One connection writes,
under one lock, always with BEGIN IMMEDIATE (a transaction that reads first and writes later would
fail at once when another process writes); readers have connections of their own and see a snapshot.
The full-text index is written behind a durable mark, and a search first brings it up to date.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.resources import files
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Literal, TypeAlias
from uuid import UUID
from weakref import finalize

from sennit.errors import (
    NotFoundError,
    SennitError,
    StoreError,
    ValidationError,
)
from sennit.ids import id_from_bytes
from sennit.messages.codec import dumps
from sennit.stores import leases, points, words
from sennit.stores.base import no_branch
from sennit.stores.commits import CommitRecord, CommitsRecord
from sennit.stores.files import Derived, EndCommit, FileChange, FileRecord, VersionRecord
from sennit.stores.records import (
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
    Write,
)
from sennit.stores.sql import sqlite as sql
from sennit.stores.sql import sqlite_files as file_sql
from sennit.stores.sqlite_commits import CommitTable
from sennit.stores.sqlite_files import FileReader, FileWriter
from sennit.stores.sqlite_labels import LabelTable
from sennit.stores.sqlite_runs import JournalReader
from sennit.stores.sqlite_session import (
    SessionReader,
    SessionWriter,
    index_words,
    session_from,
    session_row,
)
from sennit.stores.whole import whole

Durability: TypeAlias = Literal["full", "normal"]

_BUSY_SECONDS = 30.0
_BATCH = 500
_REMEMBERED = 64


class SQLiteStore:
    """Sessions in one SQLite file; see `sennit.stores.base.Store` for what it promises."""

    def __init__(self, path: str | Path, *, durability: Durability = "full") -> None:
        """Open or create the file; raises StoreError if it is not ours, or newer than we know."""
        if durability not in ("full", "normal"):
            raise ValidationError(f"durability must be 'full' or 'normal', got {durability!r}.")
        self._path = Path(path)
        self._durability = durability
        self._lock = Lock()
        self._idle: list[sqlite3.Connection] = []
        self._connections: list[sqlite3.Connection] = []
        self._end = finalize(self, _close, self._connections)  # also if nobody calls close()
        self._owners: dict[Owner, int] = {}
        self._writers: dict[tuple[Owner, UUID], SessionWriter] = {}
        self._numbers = count()  # for new messages
        self._others = 0  # changes whenever another connection has written
        self._closed = False
        with _translated(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = self._connect()
            _bring_up_to_date(self._writer, self._path)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            factory=points.connection_class(),
        )
        try:
            connection.execute(f"PRAGMA synchronous = {self._durability}")
            connection.execute("PRAGMA secure_delete = ON")
            connection.create_function("folded", 1, _folded, deterministic=True)
            self._connections.append(connection)
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    @contextmanager
    def _writing(self) -> Generator[sqlite3.Connection]:
        """One transaction; whatever is raised inside undoes all of it."""
        with self._lock, _translated(self._path):
            self._refuse_if_closed()
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
                self._writers.clear()  # what they know may have been changed without them
            except BaseException:
                self._undo()
                raise

    def _undo(self) -> None:
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")
        # What was added in this transaction is gone again.
        self._owners.clear()
        self._writers.clear()

    @contextmanager
    def _reading(self) -> Generator[sqlite3.Connection]:
        """A snapshot, on a connection that nobody else uses meanwhile."""
        self._refuse_if_closed()
        with _translated(self._path):
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

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StoreError(f"The store {str(self._path)!r} is closed; open it again.")

    def close(self) -> None:
        """Let go of the file; a closed store refuses everything else."""
        with self._lock:
            self._closed = True
            self._end()

    def backup(self, path: str | Path) -> None:
        """Copy all of it, as it is at this moment, to a new file; others may write meanwhile."""
        with whole(Path(path)) as part, self._reading() as connection:
            copy = sqlite3.connect(part)
            try:
                connection.backup(copy)
            finally:
                copy.close()

    def _owner(self, connection: sqlite3.Connection, owner: Owner) -> int:
        """The owner's number; 0, which is nobody's, if nothing of theirs was ever written."""
        known = self._owners.get(owner)
        if known is None:
            found = connection.execute(sql.FIND_OWNER, _owner_key(owner)).fetchone()
            known = found[0] if found else 0
            if known:
                self._owners[owner] = known
        return known

    def _added_owner(self, connection: sqlite3.Connection, owner: Owner) -> int:
        """The owner's number, made if they have none; inside a transaction that writes."""
        known = self._owner(connection, owner)
        return known or connection.execute(sql.ADD_OWNER, _owner_key(owner)).fetchone()[0]

    def create_session(self, owner: Owner, session: SessionRecord) -> SessionRecord:
        """Keep a new session; if its id is there already, what is there is returned."""
        with self._writing() as connection:
            number = self._added_owner(connection, owner)
            connection.execute(
                sql.ADD_SESSION,
                (
                    number,
                    session.id.bytes,
                    session.key,
                    session.user,
                    session.created,
                    session.updated,
                    dumps(session.metadata).decode(),
                ),
            )
            return session_from(session_row(connection, number, session.id))

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
        with self._reading() as connection:
            rows = connection.execute(
                sql.LIST_SESSIONS,
                {
                    "owner": self._owner(connection, owner),
                    "contains": contains,
                    "updated": before[0] if before else None,
                    "id": before[1].bytes if before else None,
                    "limit": limit,
                },
            )
            return [session_from(row) for row in rows]

    def delete_session(self, owner: Owner, session: UUID) -> bool:
        """Erase a session and all that is in it; False if it was not there."""
        with self._writing() as connection:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session.bytes)).fetchone()
            if row is None:
                return False
            SessionWriter(connection, number, row[0], self._numbers).erase_all()
            return True

    def load(self, owner: Owner, session: UUID) -> Snapshot:
        """All of a session; raises NotFoundError."""
        with self._reading() as connection:
            number = self._owner(connection, owner)
            return SessionReader(connection, number, session_row(connection, number, session)).all()

    def changes(self, owner: Owner, session: UUID, known: Mapping[UUID, int]) -> Snapshot:
        """What is new beyond the `known` segments and their lengths; raises NotFoundError."""
        with self._reading() as connection:
            number = self._owner(connection, owner)
            row = session_row(connection, number, session)
            return SessionReader(connection, number, row).beyond(known)

    def write(self, owner: Owner, session: UUID, changes: Sequence[Change]) -> list[Head]:
        """Make changes, all or none; gives the head before each Append, in order."""
        return self._write_all([Write(owner, session, tuple(changes))])[0]

    def write_many(self, writes: Sequence[Write]) -> list[list[Head] | SennitError]:
        """Make several writes with one wait for the disk; each succeeds or fails alone."""
        try:
            return list(self._write_all(writes))
        except SennitError:
            # One of them is refused and has undone all: once more, each with a way back of its own.
            return self._write_each(writes)

    def _write_all(self, writes: Sequence[Write]) -> list[list[Head]]:
        """Make writes in one transaction, all or none."""
        with self._lock:
            self._refuse_if_closed()
            try:
                try:
                    return self._transaction(writes, careful=False)
                except sqlite3.IntegrityError:  # something is there already: look what
                    return self._transaction(writes, careful=True)
            except (sqlite3.Error, OSError, UnicodeError) as error:
                raise _as_store_error(self._path, error) from error

    def _transaction(self, writes: Sequence[Write], *, careful: bool) -> list[list[Head]]:
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            self._notice_others()
            writers = [self._writer_for(write) for write in writes]
            pairs = zip(writers, writes, strict=True)
            heads = [writer.apply(write.changes, careful=careful) for writer, write in pairs]
            for writer in dict.fromkeys(writers):
                writer.settle()
            self._writer.execute("COMMIT")
            return heads
        except BaseException:
            self._undo()
            raise

    def _notice_others(self) -> None:
        """Forget what is known of sessions if somebody else has written, or it is too much."""
        others = self._writer.execute("PRAGMA data_version").fetchone()[0]
        if others != self._others or len(self._writers) > _REMEMBERED:
            self._others = others
            self._writers.clear()
        if not self._writers:
            self._numbers = count(self._writer.execute(sql.LAST_MESSAGE).fetchone()[0] + 1)

    def _write_each(self, writes: Sequence[Write]) -> list[list[Head] | SennitError]:
        results: list[list[Head] | SennitError] = []
        with self._writing() as connection:
            for write in writes:
                connection.execute("SAVEPOINT one")
                try:
                    self._notice_others()
                    writer = self._writer_for(write)
                    results.append(writer.apply(write.changes, careful=True))
                    writer.settle()
                except SennitError as error:
                    connection.execute("ROLLBACK TO one")
                    results.append(error)
                self._writers.clear()
                connection.execute("RELEASE one")
        return results

    def _writer_for(self, write: Write) -> SessionWriter:
        """What changes the session of a write, with all it knows of it; raises NotFoundError."""
        key = (write.owner, write.session)
        writer = self._writers.get(key)
        if writer is None:
            owner = self._owner(self._writer, write.owner)
            session = session_row(self._writer, owner, write.session)[0]
            writer = SessionWriter(self._writer, owner, session, self._numbers)
            self._writers[key] = writer
        return writer

    def search(self, owner: Owner, text: str, *, session: UUID | None, limit: int) -> list[Found]:
        """Messages that hold the words of `text`, the best first."""
        asked = words.asked(text)
        if not asked:
            return []
        self._index_the_rest()
        with self._reading() as connection:
            number = self._owner(connection, owner)
            quoted = " OR ".join(f'"{word}"' for word in asked)
            rows = connection.execute(
                sql.SEARCH,
                {
                    "query": f'owner : "o{number}" AND said : ({quoted})',
                    "owner": number,
                    "session": session.bytes if session else None,
                    "limit": limit,
                },
            )
            return [
                Found(
                    id_from_bytes(row[0]),
                    id_from_bytes(row[1]),
                    words.snippet(words.said(row[2]), asked),
                    row[3],
                )
                for row in rows
            ]

    def _index_the_rest(self) -> None:
        """Bring the index up to date, in batches, so that no writer waits long."""
        while True:
            with self._reading() as connection:
                mark = connection.execute(sql.MARK).fetchone()[0]
                if not connection.execute(sql.UNINDEXED, (mark, 1)).fetchone():
                    return
            with self._writing() as connection:
                mark = connection.execute(sql.MARK).fetchone()[0]
                rows = connection.execute(sql.UNINDEXED, (mark, _BATCH)).fetchall()
                connection.executemany(sql.ADD_WORDS, [index_words(*row) for row in rows])
                if rows:
                    connection.execute(sql.SET_MARK, (rows[-1][0],))

    def acquire(self, owner: Owner, session: UUID, branch: UUID, holder: str, ttl: int) -> Lease:
        """Take the lease of a branch for `ttl` microseconds; raises ConflictError if it is held."""
        with self._writing() as connection:
            key = self._branch_key(connection, owner, session, branch)
            if connection.execute(sql.FIND_BRANCH, key).fetchone() is None:
                raise no_branch(branch)
            lease = leases.taken(_last_lease(connection, key, branch), branch, holder, ttl)
            connection.execute(sql.PUT_LEASE, (*key, holder, lease.token, lease.expires))
            return lease

    def renew(self, owner: Owner, session: UUID, lease: Lease, ttl: int) -> Lease:
        """Keep a lease longer; raises ConflictError if it was lost."""
        with self._writing() as connection:
            key = self._branch_key(connection, owner, session, lease.branch)
            renewed = leases.renewed(_last_lease(connection, key, lease.branch), lease, ttl)
            connection.execute(sql.PUT_LEASE, (*key, lease.holder, lease.token, renewed.expires))
            return renewed

    def release(self, owner: Owner, session: UUID, lease: Lease) -> None:
        """Give a lease back; one that was lost is left alone."""
        with suppress(NotFoundError), self._writing() as connection:
            key = self._branch_key(connection, owner, session, lease.branch)
            if leases.is_held(_last_lease(connection, key, lease.branch), lease):
                connection.execute(sql.END_LEASE, key)

    def runs(self, owner: Owner, session: UUID, branch: UUID) -> list[RunRecord]:
        """The runs of a branch, the newest first."""
        with self._journal(owner, session, branch) as journal:
            return journal.runs()

    def last_run(self, owner: Owner, session: UUID, branch: UUID) -> RunRecord | None:
        """The newest run of a branch, if there was any."""
        with self._journal(owner, session, branch) as journal:
            return next(iter(journal.runs(1)), None)

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

    def change_files(self, changes: Sequence[FileChange], end: EndCommit | None = None) -> None:
        """Make changes of files, all or none, and with them that of the commit they come from."""
        with self._writing() as connection:
            if end is None or self._end_commit(connection, end):
                FileWriter(connection, partial(self._added_owner, connection)).apply(changes)

    def _end_commit(self, connection: sqlite3.Connection, end: EndCommit) -> bool:
        owner = self._owner(connection, end.owner)
        session = session_row(connection, owner, end.session)[0]
        return CommitTable(connection, owner, session).put_commit(end.change)

    @contextmanager
    def _files(self) -> Generator[FileReader]:
        with self._reading() as connection:
            yield FileReader(connection, partial(self._owner, connection))

    def find_file(self, owner: Owner, path: str) -> FileRecord | None:
        """The file at that path, if there is one."""
        with self._files() as found:
            return found.find(owner, path)

    def list_files(self, owner: Owner, under: str) -> list[FileRecord]:
        """The files whose path begins so, in the order of their paths."""
        with self._files() as found:
            return found.under(owner, under)

    def file_versions(self, owner: Owner, file: UUID) -> list[VersionRecord]:
        """All versions of a file, the oldest first; none if there is no such file."""
        with self._files() as found:
            return found.versions(owner, file)

    def derived(
        self, owner: Owner, *, session: UUID | None, message: UUID | None = None
    ) -> list[Derived]:
        """Versions, of any owner's files, that came from this owner's sessions, or one of them."""
        with self._files() as found:
            return found.derived(owner, session, message)

    def written_by(self, tenant: str, commit: UUID) -> list[Derived]:
        """Versions, of any owner's files in the tenant, that a commit has written."""
        with self._files() as found:
            return found.written_by(tenant, commit)

    def commits(self, owner: Owner, session: UUID) -> CommitsRecord:
        """The commits and uses of a session; raises NotFoundError if that is not there."""
        with self._reading() as connection:
            number = self._owner(connection, owner)
            row = session_row(connection, number, session)
            return CommitTable(connection, number, row[0]).all()

    def find_commit(self, owner: Owner, commit: UUID) -> tuple[UUID, CommitRecord] | None:
        """A commit and its session, if the owner has it."""
        with self._reading() as connection:
            number = self._owner(connection, owner)
            row = connection.execute(file_sql.FIND_COMMIT, (number, commit.bytes)).fetchone()
            if row is None:
                return None
            place: int = row[2]
            found = CommitTable(connection, number, row[0]).all().commits
            return id_from_bytes(row[1]), found[place - 1]

    def open_commits(self, owner: Owner) -> list[tuple[UUID, UUID]]:
        """The commits that are not finished, as session and commit, the oldest first."""
        with self._reading() as connection:
            rows = connection.execute(file_sql.OPEN_COMMITS, (self._owner(connection, owner),))
            return [(id_from_bytes(session), id_from_bytes(uid)) for session, uid in rows]

    def labels(self, owner: Owner, session: UUID) -> list[LabelRecord]:
        """What was thought of a session's messages, the oldest first; raises NotFoundError."""
        with self._reading() as connection:
            number = self._owner(connection, owner)
            row = session_row(connection, number, session)
            return LabelTable(connection, number, row[0]).all()

    def _branch_key(
        self, connection: sqlite3.Connection, owner: Owner, session: UUID, branch: UUID
    ) -> tuple[int, int, bytes]:
        number = self._owner(connection, owner)
        return number, session_row(connection, number, session)[0], branch.bytes


def _last_lease(
    connection: sqlite3.Connection, key: tuple[int, int, bytes], branch: UUID
) -> Lease | None:
    row = connection.execute(sql.FIND_LEASE, key).fetchone()
    return None if row is None else Lease(branch, *row)


def _close(connections: list[sqlite3.Connection]) -> None:
    for connection in connections:
        connection.close()


def _folded(text: str | None) -> str | None:
    """What SQLite's own lower() does for ASCII alone."""
    return None if text is None else text.casefold()


def _owner_key(owner: Owner) -> tuple[str, str, str]:
    return owner.tenant, owner.kind, owner.name


@contextmanager
def _translated(path: Path) -> Generator[None]:
    """Turn what the driver raises into errors of ours that say what to look at."""
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeError) as error:
        raise _as_store_error(path, error) from error


def _as_store_error(path: Path, error: Exception) -> StoreError:
    return StoreError(f"The store {str(path)!r} {_reason(error)} ({error}).")


def _reason(error: Exception) -> str:
    text = str(error).lower()
    reasons = {
        "locked": "is busy with another process; try again",
        "not a database": "is not a SQLite database",
        "malformed": "is damaged; restore a backup",
        "readonly": "cannot be written to; check its permissions",
        "unable to open": "cannot be opened; check the folder and its permissions",
        "full": "has no room left on its disk; free some and try again",
        "disk i/o": "could not reach its disk; check that it is there and not full",
    }
    return next((said for sign, said in reasons.items() if sign in text), "could not be used")


def _bring_up_to_date(connection: sqlite3.Connection, path: Path) -> None:
    """Check whose file it is, and create or migrate the tables."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == sql.SCHEMA_VERSION and _is_ours(connection):
        return
    _use_wal(connection)
    connection.execute("BEGIN IMMEDIATE")
    try:
        _migrate(connection, path)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL; SQLite does not wait for others who do the same, so we have to."""
    until = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.005)


def _is_ours(connection: sqlite3.Connection) -> bool:
    return connection.execute("PRAGMA application_id").fetchone()[0] == sql.APPLICATION_ID


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    # Asked again inside the transaction: two processes may open a new file at once.
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if tables and not _is_ours(connection):
        raise StoreError(f"{str(path)!r} is a database of another program; choose another file.")
    if version > sql.SCHEMA_VERSION:
        raise StoreError(
            f"{str(path)!r} was written by a newer Sennit (schema {version}, this one knows "
            f"{sql.SCHEMA_VERSION}); update Sennit."
        )
    for number in range(version + 1, sql.SCHEMA_VERSION + 1):
        script = files("sennit.stores.sql").joinpath(f"sqlite_{number:03}.sql").read_text()
        for statement in _statements(script):
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {sql.APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {sql.SCHEMA_VERSION}")


def _statements(script: str) -> list[str]:
    """The statements of a migration, one by one: executescript would end the transaction."""
    found: list[str] = []
    rest = ""
    for line in script.splitlines():
        rest += line + "\n"
        if sqlite3.complete_statement(rest):
            found.append(rest)
            rest = ""
    return found
