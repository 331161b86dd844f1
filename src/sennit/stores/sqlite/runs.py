"""Runs and events of one session in SQLite.

Events are written for every piece of text that somebody is shown, so a writer remembers from one
transaction to the next who holds a branch and where its events end; then noting some more is one
statement. Like all a writer knows it is thrown away as soon as anyone else may have written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
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

_LONGEST = 600_000_000  # microseconds; leases of runs last 30 s
_OVER = 1


class JournalReader:
    """Reads what was noted of the runs of one branch."""

    def __init__(self, connection: sqlite3.Connection, key: tuple[int, int, bytes]) -> None:
        self._run = connection.execute
        self._branch = id_from_bytes(key[2])
        row = self._run(sql.FIND_JOURNAL, key).fetchone()
        self._key: tuple[int, int] = (key[0], row[0] if row else 0)  # 0 is no journal

    def runs(self, limit: int = -1) -> list[RunRecord]:
        """The newest runs, the newest first."""
        return _runs(self._branch, self._run(sql.RUNS, (*self._key, limit)))

    def events(self, after: int, limit: int) -> list[EventRecord]:
        """The events past a number, in order."""
        return _events(self._run(sql.EVENTS, (*self._key, after, limit)))

    def last(self) -> int:
        """The number of the last event; 0 if there is none."""
        return self._run(sql.LAST_EVENT, self._key).fetchone()[0]


def last_runs(connection: sqlite3.Connection, key: tuple[int, int]) -> dict[UUID, RunRecord]:
    """Find the newest run of each branch of a session, by branch."""
    found: dict[UUID, RunRecord] = {}
    for uid, *row in connection.execute(sql.LAST_RUNS, key):
        branch = id_from_bytes(uid)
        [found[branch]] = _runs(branch, [row])
    return found


def starts(
    connection: sqlite3.Connection, key: tuple[int, int], messages: Sequence[UUID] | None
) -> dict[UUID, int]:
    """Return the number of starts of tool calls in a session: of these messages, or of all."""
    if messages is None:
        return {id_from_bytes(uid): times for uid, times in connection.execute(sql.STARTS, key)}
    found = {
        uid: connection.execute(sql.STARTS_OF, (*key, uid.bytes)).fetchone() for uid in messages
    }
    return {uid: row[0] for uid, row in found.items() if row is not None}


def lease_row(lease: Lease) -> tuple[str, int, int, str, int]:
    """The columns of a lease: it names the clock of `expires`, and the same time by the wall."""
    wall = clock.now_us() + lease.expires - leases.ticks()
    return lease.holder, lease.token, lease.expires, process.monotonic_clock_id(), wall


def lease_from(branch: UUID, row: tuple[str, int, int, str, int]) -> Lease:
    """A lease as it was stored, with `expires` by our clock.

    After a restart of the machine, or from another one, all that can be compared is the time by the
    wall; a lease that would last longer than any does is then a wrong clock, and counts as over.
    """
    holder, token, expires, clock_id, wall = row
    if expires and clock_id != process.monotonic_clock_id():
        left = wall - clock.now_us()
        expires = leases.ticks() + left if 0 < left <= _LONGEST else _OVER
    return Lease(branch, holder, token, expires)


@dataclass(slots=True)
class _Journal:
    """A branch's journal, who holds the branch, and where it ends."""

    key: tuple[int, int]
    lease: Lease | None
    last: int
    newest: RunRecord | None
    count: int
    """The number of the newest run; 0 if there is none."""
    runs: dict[int, int]
    """The numbers of the runs that were asked for."""


class JournalWriter:
    """Notes runs and events of one session."""

    def __init__(self, rows: InsertBuffer, owner: int, session: int) -> None:
        self._rows, self._run = rows, rows.connection.execute
        self._owner, self._session = owner, session
        self._known: dict[int, _Journal] = {}

    def put_run(self, change: PutRun) -> None:
        """Keep a run as it is now; raises ConflictError if its lease was lost."""
        journal = self._held(change.run.branch, change.token)
        self._put(journal, change.run)
        if change.release and journal.lease is not None:
            self._put_lease(journal, leases.ended(journal.lease))

    def take(self, change: TakeLease, commits: int) -> LeaseGrant:
        """Take the lease of a branch; raises ConflictError if it is held."""
        journal, branch = self._journal(change.branch), change.branch
        lease = leases.taken(journal.lease, branch, change.holder, change.ttl, leases.ticks())
        self._put_lease(journal, lease)
        if len(journal.runs) > 1:  # whoever had it before notes no more
            self._rows.write_journals()
            journal.runs.clear()
        if not journal.key[1]:
            key = (self._owner, self._session, branch.bytes)
            journal.key = (self._owner, self._run(sql.ADD_JOURNAL, key).fetchone()[0])
        return LeaseGrant(lease, journal.last, journal.newest, commits)

    def _put_lease(self, journal: _Journal, lease: Lease) -> None:
        journal.lease = lease
        self._rows.leases[self._owner, self._session, lease.branch.bytes] = lease_row(lease)

    def _put(self, journal: _Journal, run: RunRecord) -> None:
        number = self._number(journal, run.id)
        if number is None:
            number = journal.runs[run.id.int] = journal.count = journal.count + 1
        if number == journal.count:
            journal.newest = run
        values = (run.id.bytes, run.state, run.created, run.updated, run.body)
        self._rows.runs[*journal.key, number] = values

    def add_events(self, change: AddEvents, numbers: Mapping[int, int]) -> None:
        """Keep events; raises ConflictError if the lease was lost or a number is another's.

        `numbers` are those of the messages that the same write has added, by their ids.
        """
        journal = self._held(change.branch, change.token)
        new = new_events(change, journal.last, lambda: self._there(journal, change.events))
        for start in change.starts if new else ():
            self._start(start)
        self._add(journal, new, numbers)

    def _start(self, start: CallStart) -> None:
        key = (self._owner, self._session, start.message.bytes)
        if self._run(sql.START_CALL, (*key, start.known)).rowcount:
            return
        if self._run(sql.STARTS_OF, key).fetchone() is not None:
            raise started_elsewhere(start.message)

    def put_starts(self, change: PutStarts, number: Callable[[UUID], int]) -> None:
        """Keep that tool calls were started at least so often.

        `number` gives that of a message, or raises NotFoundError.
        """
        key = (self._owner, self._session)
        for message, times in change.starts:
            self._run(sql.PUT_STARTS, (*key, number(message), times))

    def _add(
        self, journal: _Journal, events: Sequence[EventRecord], numbers: Mapping[int, int]
    ) -> None:
        for event in events:
            run = self._number(journal, event.run)
            if run is None:
                raise no_run(event.run)
            message = event.message
            about = None if message is None else numbers.get(message.int, message.bytes)
            self._rows.events.append((*journal.key, event.seq, run, about, event.body))
            journal.last = event.seq

    def _there(self, journal: _Journal, events: Sequence[EventRecord]) -> list[EventRecord]:
        self._rows.write_journals()
        first = min(event.seq for event in events)
        return _events(self._run(sql.EVENTS, (*journal.key, first - 1, -1)))

    def _held(self, branch: UUID, token: int) -> _Journal:
        """The journal of a branch; raises ConflictError if the token is not the last one."""
        journal = self._journal(branch)
        if journal.lease is None or journal.lease.token != token:
            raise lost_lease(branch)
        return journal

    def _journal(self, branch: UUID) -> _Journal:
        found = self._known.get(branch.int)
        if found is None:
            found = self._known[branch.int] = self._read(branch)
        return found

    def _read(self, branch: UUID) -> _Journal:
        key = (self._owner, self._session, branch.bytes)
        lease = self._run(sql.FIND_LEASE, key).fetchone()
        row = self._run(sql.FIND_JOURNAL, key).fetchone()
        if row is None and lease is not None:
            row = self._run(sql.ADD_JOURNAL, key).fetchone()
        found = (self._owner, row[0] if row else 0)  # 0 is no journal
        last = self._run(sql.LAST_EVENT, found).fetchone()[0]
        rows = self._run(sql.RUNS, (*found, 1)).fetchall()
        newest, count = (_runs(branch, rows)[0], rows[0][0]) if rows else (None, 0)
        held = lease_from(branch, lease) if lease else None
        return _Journal(found, held, last, newest, count, {})

    def begin(self, branch: UUID) -> None:
        """Know that nothing was noted on a branch yet, which has just been added."""
        self._known[branch.int] = _Journal((self._owner, 0), None, 0, None, 0, {})

    def _number(self, journal: _Journal, run: UUID) -> int | None:
        number = journal.runs.get(run.int)
        if number is None and journal.count:
            row = self._run(sql.FIND_RUN, (*journal.key, run.bytes)).fetchone()
            if row is None:
                return None
            number = journal.runs[run.int] = row[0]
        return number

    def copy(self, noted: JournalRecord) -> None:
        """Take over what another store has noted; nobody need hold the branch."""
        key = (self._owner, self._session, noted.branch.bytes)
        number = self._run(sql.ADD_JOURNAL, key).fetchone()[0]
        journal = _Journal((self._owner, number), None, 0, None, 0, {})
        for run in noted.runs:
            self._put(journal, run)
        self._add(journal, noted.events, {})
        self._rows.write_journals()

    def forget_lease(self, branch: UUID) -> None:
        """Look again who holds a branch, and where its journal ends."""
        self._known.pop(branch.int, None)

    def forget_messages(self, messages: Iterable[UUID], numbers: Sequence[int]) -> None:
        """Erase what speaks of these; `numbers` are theirs, as far as they were there."""
        self._forget_known()
        starts = [(self._owner, self._session, number) for number in numbers]
        self._rows.connection.executemany(sql.DELETE_STARTS_OF, starts)
        names = dumps([*numbers, *(message.hex.upper() for message in messages)]).decode()
        key = (self._owner, self._owner, self._session)
        self._run(sql.DELETE_EVENTS_ABOUT, (*key, names))

    def forget_branch(self, branch: UUID) -> None:
        """Erase all that was noted on a branch, and who holds it."""
        self._forget_known()
        key = (self._owner, self._session, branch.bytes)
        self._run(sql.DELETE_LEASE, key)
        self._forget(self._run(sql.FIND_JOURNAL, key).fetchall())

    def _forget_known(self) -> None:
        self._rows.write_journals()
        self._known.clear()

    def _forget(self, journals: list[Any]) -> None:
        for number, *_ in journals:
            for statement in (sql.DELETE_EVENTS, sql.DELETE_RUNS, sql.DELETE_JOURNAL):
                self._run(statement, (self._owner, number))


def _runs(branch: UUID, rows: Iterable[Any]) -> list[RunRecord]:
    return [
        RunRecord(id_from_bytes(uid), branch, state, created, updated, body)
        for _, uid, state, created, updated, body in rows
    ]


def _events(rows: Iterable[Any]) -> list[EventRecord]:
    # Runs are few and their events many: each id is made once.
    runs: dict[bytes, UUID] = {}
    found: list[EventRecord] = []
    for seq, run, message, body in rows:
        uid = runs.get(run) or runs.setdefault(run, id_from_bytes(run))
        about = None if message is None else id_from_bytes(message)
        found.append(EventRecord(seq, uid, about, body))
    return found
