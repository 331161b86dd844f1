"""The PostgreSQL store.

A write locks the row of its session first, so writers of one session follow one another and what
they number is numbered in the order of commits. The usual writes, new messages at the end of a
branch and the steps of a run, are one statement each, and a group of them is one round trip.
Readers see one snapshot. Words are written when somebody searches.

A write whose connection dies is made again where it was not made, see `postgres_database`; the
usual one is simply repeated, as ids are the writer's and what is there is found, not doubled.
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
from sennit.stores.base import AFTER_ALL, no_session, of_one_piece, session_taken
from sennit.stores.job_queue import CommitJob, Handler, WorkerOptions
from sennit.stores.postgres import detached
from sennit.stores.postgres import queue_statements as queue_sql
from sennit.stores.postgres import statements as sql
from sennit.stores.postgres.commits import CommitTable
from sennit.stores.postgres.connection import Database
from sennit.stores.postgres.fast_path import FastLease, FastPathWrite, appending, usual_of
from sennit.stores.postgres.files import FileReader
from sennit.stores.postgres.memory_store import PostgresMemory
from sennit.stores.postgres.prepared_connection import PreparedConnection, Refused
from sennit.stores.postgres.runs import JournalReader, journals, last_runs, lease_clock, starts
from sennit.stores.postgres.session_reader import SessionReader, labels, session_from
from sennit.stores.postgres.session_writer import Connection, SessionWriter, one
from sennit.stores.records.files import (
    StoredFile,
)
from sennit.stores.records.search import TextQuery
from sennit.stores.records.sessions import (
    AddMessages,
    BranchHead,
    Change,
    EventRecord,
    FoundMessage,
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
from sennit.stores.search import tokenizer
from sennit.stores.sql_json import text_of

_T = TypeVar("_T")

_ALL_REMOVED = (AFTER_ALL[0], 2**31 - 1)  # whenever it was, and however many
_SILENCE = WorkerOptions().silence


class _UnusualError(Exception):
    """A group holds a write that needs a closer look."""


class PostgresStore(PostgresMemory, Closing):
    """Sessions in a PostgreSQL database; see `sennit.stores.base.Store` for what it promises."""

    def __init__(self, url: str, *, pool_size: int = 10) -> None:
        """Connect, and create the tables in the schema `sennit` if there are none.

        Raises StoreError if the server cannot be reached or refuses us, or if the tables are of
        another version.
        """
        super().__init__(Database(url, pool_size=pool_size))
        self._owners: dict[Owner, int] = {}

    def __repr__(self) -> str:
        return f"PostgresStore({self._database.name!r})"

    def close(self) -> None:
        """Let go of the connections; a closed store refuses everything else."""
        self._database.close()

    def _owner(self, connection: Connection, owner: Owner) -> int:
        """The owner's number; 0, which is nobody's, if nothing of theirs was ever written."""
        known = self._owners.get(owner)
        if known is None:
            found = connection.execute(sql.FIND_OWNER, owner.key).fetchone()
            if found is None:
                return 0
            self._owners[owner] = known = found[0]
        return known

    def _add_owner(self, owner: Owner) -> int:
        def add(connection: Connection) -> int:
            number = self._owner(connection, owner)
            if not number:
                number = one(connection.execute(sql.ADD_OWNER, owner.key))[0]
                self._owners[owner] = number
            return number

        return self._database.run(add)

    @property
    def identity(self) -> Hashable:
        """The key of this very store: others on the same server are not known to be."""
        return id(self)

    def create_session(self, owner: Owner, session: SessionRecord) -> SessionRecord:
        """Keep a new session; if its id is there already, what is there is returned."""
        values = _session_values(self._add_owner(owner), session)
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

    def delete_session(self, owner: Owner, session: UUID, before: int | None = None) -> bool:
        """Erase a session, if it was last changed `before`; False if it was not there."""

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
        """Erase what was removed before a time from a session; gives the ids."""

        def erase(connection: Connection) -> list[UUID]:
            number = self._owner(connection, owner)
            row = connection.execute(sql.LOCK_SESSION, (number, session)).fetchone()
            if row is None:
                return []
            return SessionWriter(connection, number, row[0]).erase_removed(before)

        return self._database.change(erase)

    def load(self, owner: Owner, session: UUID) -> Snapshot:
        """All of a session; raises NotFoundError."""
        with of_one_piece():
            return self._database.read(
                lambda connection: self._reader(connection, owner, session).all()
            )

    def with_everything(
        self, work: Callable[[Iterator[SessionDump], Iterator[StoredFile]], _T]
    ) -> _T:
        """Hand `work` all sessions and all files of all owners in one snapshot, one by one.

        If the connection dies, `work` is called again with all of them.
        """

        def everything(connection: Connection) -> Iterator[SessionDump]:
            for number, *owner in connection.execute(sql.ALL_OWNERS).fetchall():
                for row in connection.execute(sql.ALL_SESSIONS, (number,)).fetchall():
                    snapshot = SessionReader(connection, number, row).all()
                    noted = journals(connection, number, row[0])
                    commits = CommitTable(connection, number, row[0]).all()
                    judged = labels(connection, number, row[0])
                    gone = detached.removed(connection, number, snapshot.session.id, *_ALL_REMOVED)
                    calls = starts(connection, (number, row[0]), None)
                    yield SessionDump(Owner(*owner), snapshot, noted, commits, judged, gone, calls)

        def files(connection: Connection) -> Iterator[StoredFile]:
            found = FileReader(connection, partial(self._owner, connection))
            for _, *owner in connection.execute(sql.ALL_OWNERS).fetchall():
                yield from found.all(Owner(*owner))

        return self._database.read(
            lambda connection: work(everything(connection), files(connection))
        )

    def changes(self, owner: Owner, session: UUID, known: Mapping[UUID, int]) -> Snapshot:
        """Return changes beyond the `known` segments and their lengths; raises NotFoundError."""
        with of_one_piece():
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
        """Make changes, all or none; gives the head before each Append, in order."""
        write = Write(owner, session, tuple(changes))
        quick = self._database.run(lambda connection: self._append(connection, write))
        return quick or self._database.change(lambda connection: self._apply(connection, write))

    def _append(self, connection: PreparedConnection, write: Write) -> list[BranchHead] | None:
        """Make a write of the usual kind; None if it is another, or needs a closer look."""
        found = appending(write, self._owner(connection, write.owner))
        head = found and found.make(connection)
        return [head] if head else None

    def _apply(self, connection: Connection, write: Write) -> list[BranchHead]:
        number = self._owner(connection, write.owner)
        if write.create is not None:
            values = _session_values(number, write.create)
            if connection.execute(sql.MAKE_SESSION, values).rowcount == 0:
                raise session_taken(write.session)
        says_more = any(isinstance(change, AddMessages) for change in write.changes)
        touched = connection.execute(
            sql.TOUCH_SESSION, (clock.now_us(), says_more, number, write.session)
        ).fetchone()
        if touched is None:
            raise no_session(write.session)
        return SessionWriter(connection, number, touched[0]).apply(write.changes)

    def write_many(self, writes: Sequence[Write]) -> list[list[BranchHead] | SennitError]:
        """Make several writes with one wait for the disk; each succeeds or fails alone."""
        self._database.refuse_if_closed()
        if not writes:
            return []
        for owner in {write.owner for write in writes if write.create is not None}:
            self._add_owner(owner)
        try:
            return self._database.change(lambda connection: self._make_all(connection, writes))
        except _UnusualError:
            return self._database.change(lambda connection: self._one_by_one(connection, writes))

    def _make_all(
        self, connection: PreparedConnection, writes: Sequence[Write]
    ) -> list[list[BranchHead] | SennitError]:
        """Make writes in their order, usual ones that follow each other with one round trip.

        Raises _UnusualError if one of these needs a closer look.
        """
        self._lock(connection, writes)
        results: list[list[BranchHead] | SennitError] = []
        found = ((usual_of(one, self._owner(connection, one.owner)), one) for one in writes)
        for _, part in groupby(found, lambda pair: pair[0] is None):
            pairs = list(part)
            usuals = [(usual, one) for usual, one in pairs if usual is not None]
            results += (
                self._make_usual(connection, usuals)
                if usuals
                else [self._made(connection, one) for _, one in pairs]
            )
        return results

    def _make_usual(
        self, connection: PreparedConnection, part: Sequence[tuple[FastPathWrite, Write]]
    ) -> list[list[BranchHead] | SennitError]:
        try:
            answers = connection.ask_each([usual.asked() for usual, _ in part])
        except Refused:
            raise _UnusualError from None
        results: list[list[BranchHead] | SennitError] = []
        for (usual, write), answer in zip(part, answers, strict=True):
            heads = usual.heads(answer)
            if heads is not None:
                results.append(heads)
            elif (
                isinstance(usual, FastLease)  # somebody holds it, most likely
                and all(one.session != write.session for _, one in part[len(results) + 1 :])
            ):
                results.append(self._made(connection, write))
            else:
                raise _UnusualError  # once more, in its place among those of the same session
        return results

    def _one_by_one(
        self, connection: Connection, writes: Sequence[Write]
    ) -> list[list[BranchHead] | SennitError]:
        self._lock(connection, writes)
        return [self._made(connection, write) for write in writes]

    def _made(self, connection: Connection, write: Write) -> list[BranchHead] | SennitError:
        try:
            with connection.transaction():
                return self._apply(connection, write)
        except SennitError as error:
            return error

    def _lock(self, connection: Connection, writes: Sequence[Write]) -> None:
        """Lock all sessions in one order, so that two groups do not wait for each other."""
        pairs = {(self._owner(connection, write.owner), write.session) for write in writes}
        owners, sessions = zip(*pairs, strict=True)
        connection.execute(sql.LOCK_SESSIONS, (list(owners), list(sessions)))

    def search(
        self, owner: Owner, text: str, *, session: UUID | None, limit: int
    ) -> list[FoundMessage]:
        """Messages that hold the words of `text`, the best first."""
        asked = tokenizer.asked(text)
        found = self.hits(owner, TextQuery(tuple(asked), session, limit=limit))
        scores = {hit.place: hit.score for hit in found}
        return [
            FoundMessage(
                one.session,
                one.message.id,
                tokenizer.snippet(tokenizer.said(one.message.body), asked),
                scores[one.place],
            )
            for one in self.at_places(owner, list(scores))
        ]

    def acquire(self, owner: Owner, session: UUID, branch: UUID, holder: str, ttl: int) -> Lease:
        """Take the lease of a branch for `ttl` microseconds; raises ConflictError if it is held."""
        (head,) = self.write(owner, session, [TakeLease(branch, holder, ttl)])
        assert head.taken is not None
        return head.taken.lease

    def renew(self, owner: Owner, session: UUID, lease: Lease, ttl: int) -> Lease:
        """Keep a lease longer; raises ConflictError if it was lost."""

        def renew(connection: Connection) -> Lease:
            key = self._lease_key(connection, owner, session, lease.branch)
            last = _last_lease(connection, key)
            renewed = leases.renewed(last, lease, ttl, lease_clock(connection))
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

    def is_leased(self, owner: Owner, session: UUID, branch: UUID) -> bool:
        """Return whether someone holds the lease of a branch, which has not expired."""

        def is_leased(connection: Connection) -> bool:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session)).fetchone()
            if row is None:
                raise no_session(session)
            last = _last_lease(connection, (number, row[0], branch))
            return leases.is_live(last, lease_clock(connection))

        return self._database.read(is_leased)

    def runs(self, owner: Owner, session: UUID, branch: UUID) -> list[RunRecord]:
        """The runs of a branch, the newest first."""
        return self._journal(owner, session, branch, lambda journal: journal.runs())

    def last_run(self, owner: Owner, session: UUID, branch: UUID) -> RunRecord | None:
        """The newest run of a branch, if there was any."""
        found = self._journal(owner, session, branch, lambda journal: journal.runs(1))
        return found[0] if found else None

    def last_runs(self, owner: Owner, session: UUID) -> dict[UUID, RunRecord]:
        """Find the newest run of each branch of a session on which there was any, by branch."""

        def found(connection: Connection) -> dict[UUID, RunRecord]:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session)).fetchone()
            if row is None:
                raise no_session(session)
            return last_runs(connection, (number, row[0]))

        return self._database.read(found)

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

    def scrub(self) -> None:
        """Nothing to do: when the server reuses what was erased is for its vacuum to say."""
        self._database.refuse_if_closed()

    def stored(self, owner: Owner) -> tuple[int, int]:
        """Count an owner's sessions, and the bytes of all they hold, names included."""

        def found(connection: Connection) -> tuple[int, int]:
            number = self._owner(connection, owner)
            row = connection.execute(sql.STORED, {"owner": number}).fetchone()
            assert row is not None
            return row[0], int(row[1])

        return self._database.read(found)

    def labels(self, owner: Owner, session: UUID) -> list[LabelRecord]:
        """Return the labels of a session's messages, oldest first; raises NotFoundError."""

        def found(connection: Connection) -> list[LabelRecord]:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session)).fetchone()
            if row is None:
                raise no_session(session)
            return labels(connection, number, row[0])

        return self._database.read(found)

    def starts(
        self, owner: Owner, session: UUID, messages: Sequence[UUID] | None
    ) -> dict[UUID, int]:
        """Return the number of starts of tool calls on any branch; raises NotFoundError."""

        def found(connection: Connection) -> dict[UUID, int]:
            number = self._owner(connection, owner)
            row = connection.execute(sql.FIND_SESSION, (number, session)).fetchone()
            if row is None:
                raise no_session(session)
            return starts(connection, (number, row[0]), messages)

        return self._database.read(found)

    def is_served(self) -> bool:
        """Return whether workers are there that finish open commits, so that nobody else need."""
        return self._database.run(
            lambda connection: one(connection.execute(queue_sql.IS_SERVED, (_SILENCE,)))[0]
        )

    def serve(self, handler: Handler, serving: WorkerOptions) -> None:
        """Be a worker: have the open commits of all owners finished, until told to stop.

        It ends in good order on SIGTERM and SIGINT, and when `serving` says to. Raises StoreError.
        """
        from sennit.stores.postgres.job_queue import QueueWorker, bring_up_to_date

        def take(number: int, commit: UUID, attempts: int) -> None:
            owner = self._database.run(
                lambda connection: connection.execute(queue_sql.OWNER, (number,)).fetchone()
            )
            if owner is not None:
                handler(CommitJob(Owner(*owner), commit, attempts))

        self._database.run(bring_up_to_date)
        asyncio.run(QueueWorker(self._database.address, take, serving).run())

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
