"""Runs and events of one session in SQLite.

Events are written for every streamed delta, so a writer caches the lease and the last event of a
branch across transactions: appending events is then one statement. The cache is dropped with the
session's writer, as soon as another connection may have written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sennit import clock, process
from sennit.ids import id_from_bytes
from sennit.messages.codec import dumps
from sennit.stores import leases
from sennit.stores.records.sessions import (
    AddEvents,
    CallStart,
    EventRecord,
    JournalRecord,
    Lease,
    LeaseGrant,
    PutRun,
    PutStarts,
    RunRecord,
    TakeLease,
)
from sennit.stores.run_rules import lost_lease, new_events, no_run, started_elsewhere
from sennit.stores.sqlite import statements as sql
from sennit.stores.sqlite.batch_insert import InsertBuffer

_MAX_LEASE_US = 600_000_000  # microseconds; leases of runs last 30 s
_EXPIRED = 1


class JournalReader:
    """Reads the runs and events of one branch."""

    def __init__(self, connection: sqlite3.Connection, key: tuple[int, int, bytes]) -> None:
        self._run = connection.execute
        self._branch = id_from_bytes(key[2])
        row = self._run(sql.FIND_JOURNAL, key).fetchone()
        self._key: tuple[int, int] = (key[0], row[0] if row else 0)  # 0 is no journal

    def runs(self, limit: int = -1) -> list[RunRecord]:
        """Return the newest runs, newest first."""
        return _runs(self._branch, self._run(sql.RUNS, (*self._key, limit)))

    def events(self, after: int, limit: int) -> list[EventRecord]:
        """Return the events after a number, in order."""
        return _events(self._run(sql.EVENTS, (*self._key, after, limit)))

    def last(self) -> int:
        """Return the number of the last event, or 0."""
        return self._run(sql.LAST_EVENT, self._key).fetchone()[0]


def last_runs(connection: sqlite3.Connection, key: tuple[int, int]) -> dict[UUID, RunRecord]:
    """Return the newest run of each branch of a session, by branch."""
    runs: dict[UUID, RunRecord] = {}
    for uid, *row in connection.execute(sql.LAST_RUNS, key):
        branch = id_from_bytes(uid)
        [runs[branch]] = _runs(branch, [row])
    return runs


def starts(
    connection: sqlite3.Connection, key: tuple[int, int], messages: Sequence[UUID] | None
) -> dict[UUID, int]:
    """Return the number of starts of tool calls in a session: of these messages, or of all."""
    if messages is None:
        return {id_from_bytes(uid): times for uid, times in connection.execute(sql.STARTS, key)}
    rows = {
        uid: connection.execute(sql.STARTS_OF, (*key, uid.bytes)).fetchone() for uid in messages
    }
    return {uid: row[0] for uid, row in rows.items() if row is not None}


def lease_row(lease: Lease) -> tuple[str, int, int, str, int]:
    """Return a lease's columns: with the id of its monotonic clock, and the wall time."""
    wall = clock.now_us() + lease.expires - leases.monotonic_us()
    return lease.holder, lease.token, lease.expires, process.monotonic_clock_id(), wall


def lease_from(branch: UUID, row: tuple[str, int, int, str, int]) -> Lease:
    """Return a stored lease, with `expires` by this machine's monotonic clock.

    After a reboot, or from another machine, only wall time can be compared; a lease longer than any
    allowed then means a wrong clock, and counts as expired.
    """
    holder, token, expires, clock_id, wall = row
    if expires and clock_id != process.monotonic_clock_id():
        remaining = wall - clock.now_us()
        expires = leases.monotonic_us() + remaining if 0 < remaining <= _MAX_LEASE_US else _EXPIRED
    return Lease(branch, holder, token, expires)


@dataclass(slots=True)
class _Journal:
    """The cached journal of a branch: its lease, last event and newest run."""

    key: tuple[int, int]
    lease: Lease | None
    last: int
    newest: RunRecord | None
    count: int
    """The number of the newest run; 0 if there is none."""
    runs: dict[int, int]
    """Cached run numbers by run id."""


class JournalWriter:
    """Writes the runs and events of one session."""

    def __init__(self, rows: InsertBuffer, owner: int, session: int) -> None:
        self._rows, self._run = rows, rows.connection.execute
        self._owner, self._session = owner, session
        self._cached: dict[int, _Journal] = {}

    def put_run(self, change: PutRun) -> None:
        """Insert or update a run; raises ConflictError if its lease was lost."""
        journal = self._leased_journal(change.run.branch, change.token)
        self._put(journal, change.run)
        if change.release and journal.lease is not None:
            self._put_lease(journal, leases.released(journal.lease))

    def take(self, change: TakeLease, commits: int) -> LeaseGrant:
        """Acquire the lease of a branch; raises ConflictError if it is held."""
        journal, branch = self._journal(change.branch), change.branch
        lease = leases.next_lease(
            journal.lease, branch, change.holder, change.ttl, leases.monotonic_us()
        )
        self._put_lease(journal, lease)
        if len(journal.runs) > 1:  # the previous holder writes no more
            self._rows.flush_journals()
            journal.runs.clear()
        if not journal.key[1]:
            key = (self._owner, self._session, branch.bytes)
            journal.key = (self._owner, self._run(sql.ADD_JOURNAL, key).fetchone()[0])
        return LeaseGrant(lease, journal.last, journal.newest, commits)

    def _put_lease(self, journal: _Journal, lease: Lease) -> None:
        journal.lease = lease
        self._rows.leases[self._owner, self._session, lease.branch.bytes] = lease_row(lease)

    def _put(self, journal: _Journal, run: RunRecord) -> None:
        number = self._run_number(journal, run.id)
        if number is None:
            number = journal.runs[run.id.int] = journal.count = journal.count + 1
        if number == journal.count:
            journal.newest = run
        values = (run.id.bytes, run.state, run.created, run.updated, run.body)
        self._rows.runs[*journal.key, number] = values

    def add_events(self, change: AddEvents, new: Mapping[UUID, int]) -> None:
        """Append events; raises ConflictError if the lease was lost or a number is taken.

        `new` are the numbers of the messages that the same write added.
        """
        if change.starts:
            self._rows.flush()  # starts refer to request messages
        journal = self._leased_journal(change.branch, change.token)
        events = new_events(
            change, journal.last, lambda: self._stored_events(journal, change.events)
        )
        for start in change.starts if events else ():
            self._start_call(start)
        self._add(journal, events, new)

    def _start_call(self, start: CallStart) -> None:
        key = (self._owner, self._session, start.message.bytes)
        if self._run(sql.START_CALL, (*key, start.known)).rowcount:
            return
        if self._run(sql.STARTS_OF, key).fetchone() is not None:
            raise started_elsewhere(start.message)

    def put_starts(self, change: PutStarts, numbers: Sequence[int]) -> None:
        """Raise the start counts of tool calls to at least these."""
        for number, (_, times) in zip(numbers, change.starts, strict=True):
            self._run(sql.PUT_STARTS, (self._owner, self._session, number, times))

    def _add(
        self, journal: _Journal, events: Sequence[EventRecord], new: Mapping[UUID, int]
    ) -> None:
        for event in events:
            run = self._run_number(journal, event.run)
            if run is None:
                raise no_run(event.run)
            message = event.message
            reference = None if message is None else new.get(message, message.bytes)
            self._rows.events.append((*journal.key, event.seq, run, reference, event.body))
            journal.last = event.seq

    def _stored_events(self, journal: _Journal, events: Sequence[EventRecord]) -> list[EventRecord]:
        self._rows.flush_journals()
        first = min(event.seq for event in events)
        return _events(self._run(sql.EVENTS, (*journal.key, first - 1, -1)))

    def _leased_journal(self, branch: UUID, token: int) -> _Journal:
        """Return a branch's journal; raises ConflictError if `token` is not the last lease's."""
        journal = self._journal(branch)
        if journal.lease is None or journal.lease.token != token:
            raise lost_lease()
        return journal

    def _journal(self, branch: UUID) -> _Journal:
        journal = self._cached.get(branch.int)
        if journal is None:
            journal = self._cached[branch.int] = self._read(branch)
        return journal

    def _read(self, branch: UUID) -> _Journal:
        key = (self._owner, self._session, branch.bytes)
        columns = self._run(sql.FIND_LEASE, key).fetchone()
        row = self._run(sql.FIND_JOURNAL, key).fetchone()
        if row is None and columns is not None:
            row = self._run(sql.ADD_JOURNAL, key).fetchone()
        journal_key = (self._owner, row[0] if row else 0)  # 0 is no journal
        last = self._run(sql.LAST_EVENT, journal_key).fetchone()[0]
        rows = self._run(sql.RUNS, (*journal_key, 1)).fetchall()
        newest, count = (_runs(branch, rows)[0], rows[0][0]) if rows else (None, 0)
        lease = lease_from(branch, columns) if columns else None
        return _Journal(journal_key, lease, last, newest, count, {})

    def _run_number(self, journal: _Journal, run_id: UUID) -> int | None:
        number = journal.runs.get(run_id.int)
        if number is None and journal.count:
            row = self._run(sql.FIND_RUN, (*journal.key, run_id.bytes)).fetchone()
            if row is None:
                return None
            number = journal.runs[run_id.int] = row[0]
        return number

    def copy(self, source: JournalRecord) -> None:
        """Copy a journal of another store, without a lease."""
        key = (self._owner, self._session, source.branch.bytes)
        number = self._run(sql.ADD_JOURNAL, key).fetchone()[0]
        journal = _Journal((self._owner, number), None, 0, None, 0, {})
        for run in source.runs:
            self._put(journal, run)
        self._add(journal, source.events, {})
        self._rows.flush_journals()

    def forget_lease(self, branch: UUID) -> None:
        """Drop the cached lease and journal of a branch."""
        self._cached.pop(branch.int, None)

    def delete_messages(self, messages: Iterable[UUID], numbers: Sequence[int]) -> None:
        """Erase events and starts of these messages; `numbers` are those of the stored ones."""
        self._flush_and_forget()
        starts = [(self._owner, self._session, number) for number in numbers]
        self._rows.connection.executemany(sql.DELETE_STARTS_OF, starts)
        names = dumps([*numbers, *(message.hex.upper() for message in messages)]).decode()
        key = (self._owner, self._owner, self._session)
        self._run(sql.DELETE_EVENTS_ABOUT, (*key, names))

    def delete_branch(self, branch: UUID) -> None:
        """Erase the journal and the lease of a branch."""
        self._flush_and_forget()
        key = (self._owner, self._session, branch.bytes)
        self._run(sql.DELETE_LEASE, key)
        self._delete_journals(self._run(sql.FIND_JOURNAL, key).fetchall())

    def _flush_and_forget(self) -> None:
        self._rows.flush_journals()
        self._cached.clear()

    def _delete_journals(self, rows: list[Any]) -> None:
        for number, *_ in rows:
            for statement in (sql.DELETE_EVENTS, sql.DELETE_RUNS, sql.DELETE_JOURNAL):
                self._run(statement, (self._owner, number))


def _runs(branch: UUID, rows: Iterable[Any]) -> list[RunRecord]:
    return [
        RunRecord(id_from_bytes(uid), branch, state, created, updated, body)
        for _, uid, state, created, updated, body in rows
    ]


def _events(rows: Iterable[Any]) -> list[EventRecord]:
    # Few runs have many events: convert each run id once.
    runs: dict[bytes, UUID] = {}
    events: list[EventRecord] = []
    for seq, run, message, body in rows:
        uid = runs.get(run) or runs.setdefault(run, id_from_bytes(run))
        message_id = None if message is None else id_from_bytes(message)
        events.append(EventRecord(seq, uid, message_id, body))
    return events
