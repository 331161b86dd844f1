"""The PostgreSQL store: many servers and workers on one database.

A write locks the row of its session first, so writers of one session follow one another and what
they number is numbered in the order of commits. The usual write, new messages at the end of a
branch, is one statement and one round trip. Readers see one snapshot.

A connection that dies in mid-write leaves open whether the write was made. On a fresh one we ask
the server what became of the transaction, and only if it came to nothing make it again; the usual
write is simply repeated, as ids are the writer's and what is there is found, not doubled. Errors
name the database without its password.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, TypeVar
from uuid import UUID

from sennit import clock
from sennit.errors import SennitError, StoreError, ValidationError
from sennit.messages.codec import dumps
from sennit.stores import leases, words
from sennit.stores.base import no_branch, no_session
from sennit.stores.postgres_session import (
    Connection,
    SessionReader,
    SessionWriter,
    one,
    owner_mark,
    plain_words,
    session_from,
    word_pieces,
)
from sennit.stores.records import (
    AddMessages,
    Append,
    Change,
    Found,
    Head,
    Lease,
    Owner,
    SessionRecord,
    Snapshot,
    Write,
)
from sennit.stores.sql import postgres as sql

try:
    import psycopg
    from psycopg import errors as pg
    from psycopg.conninfo import conninfo_to_dict
    from psycopg_pool import ConnectionPool, PoolTimeout

    from sennit.stores.postgres_points import connection_class
except ImportError as error:
    raise ImportError(
        f"The PostgreSQL store needs an extra ({error}): pip install 'sennit[postgres]'"
    ) from error

_T = TypeVar("_T")

_WAIT_SECONDS = 15.0
_CLASHES = 5
_LOSSES = 4


class _UnusualError(Exception):
    """A group holds a write that needs a closer look."""


class PostgresStore:
    """Sessions in a PostgreSQL database; see `sennit.stores.base.Store` for what it promises."""

    def __init__(self, url: str, *, pool_size: int = 10) -> None:
        """Connect, and create or migrate the tables in the schema `sennit`.

        Raises StoreError if the server cannot be reached or refuses us, or if the tables are newer
        than we know.
        """
        if pool_size < 1:
            raise ValidationError(f"pool_size must be at least 1, got {pool_size}.")
        self._name = _shown(url)
        self._owners: dict[Owner, int] = {}
        self._closed = False
        with self._translated():
            kind = connection_class()
            with kind.connect(url, **_options(url)) as connection:
                _bring_up_to_date(connection, self._name)
            self._pool = ConnectionPool(
                url,
                min_size=1,
                max_size=pool_size,
                timeout=_WAIT_SECONDS,
                kwargs=_options(url),
                connection_class=kind,
                configure=_plan_once,
                open=True,
            )

    def __repr__(self) -> str:
        return f"PostgresStore({self._name!r})"

    def close(self) -> None:
        """Let go of the connections; a closed store refuses everything else."""
        self._closed = True
        self._pool.close()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StoreError(f"The store {self._name!r} is closed; open it again.")

    def _run(self, work: Callable[[Connection], _T]) -> _T:
        """Do something on a connection; if that dies, again on another."""
        losses, clashes = 0, 0
        with self._translated():
            while True:
                self._refuse_if_closed()
                connection = self._pool.getconn()
                try:
                    return work(connection)
                except (pg.DeadlockDetected, pg.SerializationFailure):
                    clashes += 1
                    if clashes > _CLASHES:
                        raise
                except psycopg.Error as error:
                    losses += 1
                    if not _is_lost(connection, error) or losses > _LOSSES:
                        raise
                finally:
                    self._pool.putconn(connection)
                if losses:
                    # The others have most likely died with it, or are just about to.
                    self._pool.check()

    @contextmanager
    def _translated(self) -> Generator[None]:
        """Turn what the driver raises into errors of ours that say what to look at."""
        try:
            yield
        except (psycopg.DataError, UnicodeError) as error:
            raise ValidationError(f"PostgreSQL cannot keep such a value ({error}).") from error
        except (psycopg.Error, OSError) as error:
            self._refuse_if_closed()
            said = str(error).strip().partition("\n")[0]
            raise StoreError(f"The store {self._name!r} {_reason(error)} ({said}).") from error

    def _read(self, work: Callable[[Connection], _T]) -> _T:
        """Do something in one snapshot."""

        def read(connection: Connection) -> _T:
            with connection.transaction():
                connection.execute(sql.SNAPSHOT)
                return work(connection)

        return self._run(read)

    def _change(self, work: Callable[[Connection], _T]) -> _T:
        """Do something in one transaction; whatever is raised inside undoes all of it."""
        tried: list[tuple[str, _T]] = []

        def change(connection: Connection) -> _T:
            if tried and _was_made(connection, tried[-1][0]):
                return tried[-1][1]
            with connection.transaction():
                number = one(connection.execute(sql.THIS_TRANSACTION))[0]
                result = work(connection)
                tried.append((number, result))
            if connection.closed:  # then the driver leaves out the commit and says nothing
                raise psycopg.OperationalError("the connection was lost before the commit")
            return result

        return self._run(change)

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

        return self._run(add)

    def create_session(self, owner: Owner, session: SessionRecord) -> SessionRecord:
        """Keep a new session; if its id is there already, what is there is returned."""
        values = (
            self._add_owner(owner),
            session.id,
            session.key,
            session.user,
            session.created,
            session.updated,
            dumps(session.metadata).decode(),
        )
        return self._run(
            lambda connection: session_from(one(connection.execute(sql.ADD_SESSION, values)))
        )

    def find_session(self, owner: Owner, session: UUID) -> SessionRecord | None:
        """The session with that id, if the owner has it."""

        def find(connection: Connection) -> SessionRecord | None:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session)).fetchone()
            return session_from(row) if row else None

        return self._run(find)

    def list_sessions(
        self, owner: Owner, *, contains: str | None, before: tuple[int, UUID] | None, limit: int
    ) -> list[SessionRecord]:
        """Sessions, the one changed last first; `before` is the last one of the page before."""

        def listed(connection: Connection) -> list[SessionRecord]:
            rows = connection.execute(
                sql.LIST_SESSIONS,
                {
                    "owner": self._owner(connection, owner),
                    "contains": contains,
                    "updated": before[0] if before else None,
                    "id": before[1] if before else None,
                    "limit": limit,
                },
            )
            return [session_from(row) for row in rows]

        return self._run(listed)

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

        return self._change(delete)

    def load(self, owner: Owner, session: UUID) -> Snapshot:
        """All of a session; raises NotFoundError."""
        return self._read(lambda connection: self._reader(connection, owner, session).all())

    def changes(self, owner: Owner, session: UUID, known: Mapping[UUID, int]) -> Snapshot:
        """What is new beyond the `known` segments and their lengths; raises NotFoundError."""
        return self._read(lambda connection: self._reader(connection, owner, session).beyond(known))

    def _reader(self, connection: Connection, owner: Owner, session: UUID) -> SessionReader:
        number = self._owner(connection, owner)
        row = connection.execute(sql.FIND_SESSION, (number, session)).fetchone()
        if row is None:
            raise no_session(session)
        return SessionReader(connection, number, row)

    def write(self, owner: Owner, session: UUID, changes: Sequence[Change]) -> list[Head]:
        """Make changes, all or none; gives the head before each Append, in order."""
        write = Write(owner, session, tuple(changes))
        quick = self._run(lambda connection: self._append(connection, write))
        return quick or self._change(lambda connection: self._apply(connection, write))

    def _append(self, connection: Connection, write: Write) -> list[Head] | None:
        """Make a write of the usual kind; None if it is another, or needs a closer look."""
        usual = _usual(write, self._owner(connection, write.owner))
        if usual is None:
            return None
        try:
            row = connection.execute(sql.APPEND, usual).fetchone()
        except pg.UniqueViolation:
            return None
        return [Head(usual["branch"], *row)] if row else None

    def _apply(self, connection: Connection, write: Write) -> list[Head]:
        number = self._owner(connection, write.owner)
        touched = connection.execute(
            sql.TOUCH_SESSION, (clock.now_us(), number, write.session)
        ).fetchone()
        if touched is None:
            raise no_session(write.session)
        return SessionWriter(connection, number, touched[0]).apply(write.changes)

    def write_many(self, writes: Sequence[Write]) -> list[list[Head] | SennitError]:
        """Make several writes with one wait for the disk; each succeeds or fails alone."""
        self._refuse_if_closed()
        if not writes:
            return []
        try:
            return self._change(lambda connection: self._append_all(connection, writes))
        except _UnusualError:
            return self._change(lambda connection: self._one_by_one(connection, writes))

    def _append_all(
        self, connection: Connection, writes: Sequence[Write]
    ) -> list[list[Head] | SennitError]:
        """Make writes of the usual kind together; raises _UnusualError if one is not."""
        found = [_usual(write, self._owner(connection, write.owner)) for write in writes]
        usual = [values for values in found if values is not None]
        if len(usual) < len(writes):
            raise _UnusualError
        self._lock(connection, writes)
        heads: list[list[Head] | SennitError] = []
        with connection.cursor() as cursor:
            try:
                cursor.executemany(sql.APPEND, usual, returning=True)
            except pg.UniqueViolation:
                raise _UnusualError from None
            for values in usual:
                row = cursor.fetchone()
                if row is None:
                    raise _UnusualError
                heads.append([Head(values["branch"], *row)])
                cursor.nextset()
        return heads

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
        query = " | ".join(filter(None, (" & ".join(plain_words(word).split()) for word in asked)))

        def search(connection: Connection) -> list[Found]:
            number = self._owner(connection, owner)
            if not query:
                return []
            rows = connection.execute(
                sql.SEARCH,
                {
                    "query": query,
                    "mark": f"'{owner_mark(number)}'",
                    "owner": number,
                    "session": session,
                    "limit": limit,
                },
            )
            return [
                Found(uid, message, words.snippet(words.said(body), asked), score)
                for uid, message, body, score in rows
            ]

        return self._run(search)

    def acquire(self, owner: Owner, session: UUID, branch: UUID, holder: str, ttl: int) -> Lease:
        """Take the lease of a branch for `ttl` microseconds; raises ConflictError if it is held."""

        def acquire(connection: Connection) -> Lease:
            key = self._lease_key(connection, owner, session, branch)
            if connection.execute(sql.FIND_BRANCH, key).fetchone() is None:
                raise no_branch(branch)
            lease = leases.taken(_last_lease(connection, key), branch, holder, ttl)
            connection.execute(sql.PUT_LEASE, (*key, holder, lease.token, lease.expires))
            return lease

        return self._change(acquire)

    def renew(self, owner: Owner, session: UUID, lease: Lease, ttl: int) -> Lease:
        """Keep a lease longer; raises ConflictError if it was lost."""

        def renew(connection: Connection) -> Lease:
            key = self._lease_key(connection, owner, session, lease.branch)
            renewed = leases.renewed(_last_lease(connection, key), lease, ttl)
            connection.execute(sql.PUT_LEASE, (*key, lease.holder, lease.token, renewed.expires))
            return renewed

        return self._change(renew)

    def release(self, owner: Owner, session: UUID, lease: Lease) -> None:
        """Give a lease back; one that was lost is left alone."""

        def release(connection: Connection) -> None:
            key = self._lease_key(connection, owner, session, lease.branch)
            if leases.is_held(_last_lease(connection, key), lease):
                connection.execute(sql.END_LEASE, key)

        self._change(release)

    def _lease_key(
        self, connection: Connection, owner: Owner, session: UUID, branch: UUID
    ) -> tuple[int, int, UUID]:
        """What a lease is kept under, with its session locked."""
        number = self._owner(connection, owner)
        row = connection.execute(sql.LOCK_SESSION, (number, session)).fetchone()
        if row is None:
            raise no_session(session)
        return number, row[0], branch


def _last_lease(connection: Connection, key: tuple[int, int, UUID]) -> Lease | None:
    row = connection.execute(sql.FIND_LEASE, key).fetchone()
    return None if row is None else Lease(key[2], *row)


def _usual(write: Write, owner: int) -> dict[str, Any] | None:
    """What APPEND needs, if a write is that: one new message, put at the end of one branch."""
    match write.changes:
        case (AddMessages((message,)), Append(branch, (entry,))) if message.id == entry:
            said = word_pieces(owner, message.body)
        case _:
            return None
    if len(said) > 1:
        return None
    return {
        "now": clock.now_us(),
        "owner": owner,
        "session": write.session,
        "branch": branch,
        "id": message.id,
        "created": message.created,
        "body": message.body,
        "said": said[0],
    }


def _owner_key(owner: Owner) -> tuple[str, str, str]:
    return owner.tenant, owner.kind, owner.name


def _shown(url: str) -> str:
    """The address without what is secret in it; raises StoreError if it is none."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        # What the driver says of it would show the address, and with it the password.
        raise StoreError(
            "The address of the PostgreSQL store cannot be read; it should look like "
            "postgresql://user:password@host:5432/database, with signs in the password escaped."
        ) from None
    user = f"{parts['user']}@" if "user" in parts else ""
    port = f":{parts['port']}" if "port" in parts else ""
    return f"postgresql://{user}{parts.get('host', '')}{port}/{parts.get('dbname', '')}"


def _options(url: str) -> dict[str, Any]:
    """How to connect; each statement is a transaction of its own unless one is begun."""
    options: dict[str, Any] = {"autocommit": True}
    given = conninfo_to_dict(url)
    options |= {"connect_timeout": 10} if "connect_timeout" not in given else {}
    options |= {"application_name": "sennit"} if "application_name" not in given else {}
    return options


def _plan_once(connection: Connection) -> None:
    connection.execute(sql.PLAN_ONCE)


def _was_made(connection: Connection, number: str) -> bool:
    """Whether a transaction was committed; waits for one that has not ended yet."""
    until = time.monotonic() + _WAIT_SECONDS
    while True:
        status = one(connection.execute(sql.STATUS, (number,)))[0]
        if status != "in progress":
            return status == "committed"
        if time.monotonic() > until:
            raise StoreError("A write was cut off and is still under way; try again later.")
        time.sleep(0.02)


def _is_lost(connection: Connection, error: psycopg.Error) -> bool:
    """Whether a connection is gone; then it is closed, so that the pool does not lend it again."""
    lost = connection.closed or isinstance(error, (pg.AdminShutdown, pg.CrashShutdown))
    if lost:
        connection.close()
    return lost


def _reason(error: Exception) -> str:
    if isinstance(error, PoolTimeout):
        return "cannot be reached, or has too few connections; try again later"
    text = str(error).lower()
    reasons = {
        "permission denied": "does not allow this; grant the user rights on the schema sennit",
        "authentication": "refuses this user and password",
        "password": "refuses this user and password",
        'role "': "refuses this user and password",
        'database "': "has no such database; create it first",
        "no space left": "has no room left on its disk; free some and try again",
        "deadlock": "is busy with other writers; try again",
        "serialize": "is busy with other writers; try again",
    }
    if reason := next((said for sign, said in reasons.items() if sign in text), None):
        return reason
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError, OSError)):
        return "cannot be reached; check the address, and that the server runs"
    return "could not do it"


def _bring_up_to_date(connection: Connection, name: str) -> None:
    """Create or migrate the tables, one server at a time."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreError(f"The store {name!r} must have the encoding UTF8, not {encoding!r}.")
    if _found(connection) == sql.SCHEMA_VERSION:
        return
    with connection.transaction():
        # Asked again behind the lock: many servers may start at once.
        connection.execute(sql.LOCK_SCHEMA)
        version = _found(connection)
        if version == 0 and one(connection.execute(sql.IS_TAKEN))[0]:
            raise StoreError(
                f"The store {name!r} has a schema 'sennit' of another program; name another one."
            )
        if version > sql.SCHEMA_VERSION:
            raise StoreError(
                f"The store {name!r} was written by a newer Sennit (schema {version}, this one "
                f"knows {sql.SCHEMA_VERSION}); update Sennit."
            )
        for number in range(version + 1, sql.SCHEMA_VERSION + 1):
            script = files("sennit.stores.sql").joinpath(f"postgres_{number:03}.sql")
            connection.execute(script.read_bytes())
        connection.execute(sql.SET_VERSION, (sql.SCHEMA_VERSION,))


def _found(connection: Connection) -> int:
    """The version of the tables, 0 if there are none of ours."""
    if not one(connection.execute(sql.HAS_SCHEMA))[0]:
        return 0
    return one(connection.execute(sql.VERSION))[0]
