"""Runs and events of one session in PostgreSQL.

Writers hold the lock of the session, so leases and the last event that they read stay current until
the end of the transaction. Each change costs a few statements, however many events it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from uuid import UUID

from sennit.stores import leases
from sennit.stores.postgres import statements as sql
from sennit.stores.records.sessions import (
    AddEvents,
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

if TYPE_CHECKING:
    import psycopg

    _Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

Key: TypeAlias = tuple[int, int]
"""An owner and a journal, by number."""


class JournalReader:
    """Reads the runs and events of one branch."""

    def __init__(self, connection: _Connection, key: tuple[int, int, UUID]) -> None:
        self._connection = connection
        self._branch = key[2]
        row = connection.execute(sql.FIND_JOURNAL, key).fetchone()
        self._key: Key = (key[0], row[0] if row else 0)  # 0 is no journal

    def _rows(self, statement: Any, *values: Any) -> list[tuple[Any, ...]]:
        # Binary, because the text format sends a body as twice as many hexadecimal digits.
        return self._connection.execute(statement, (*self._key, *values), binary=True).fetchall()

    def runs(self, limit: int | None = None) -> list[RunRecord]:
        """Return the newest runs, newest first."""
        return [RunRecord(uid, self._branch, *rest) for uid, *rest in self._rows(sql.RUNS, limit)]

    def events(self, after: int, limit: int | None) -> list[EventRecord]:
        """Return the events after a number, in order."""
        return [EventRecord(*row) for row in self._rows(sql.EVENTS, after, limit)]

    def last(self) -> int:
        """Return the number of the last event, or 0."""
        return self._rows(sql.LAST_EVENT)[0][0]


def last_runs(connection: _Connection, key: tuple[int, int]) -> dict[UUID, RunRecord]:
    """Return the newest run of each branch of a session, by branch."""
    rows = connection.execute(sql.LAST_RUNS, key, binary=True).fetchall()
    return {branch: RunRecord(uid, branch, *rest) for branch, uid, *rest in rows}


def journals(connection: _Connection, owner: int, session: int) -> list[JournalRecord]:
    """Return the runs and events of each branch of a session."""
    records: list[JournalRecord] = []
    for _, branch in connection.execute(sql.ALL_JOURNALS, (owner, session)).fetchall():
        journal = JournalReader(connection, (owner, session, branch))
        records.append(JournalRecord(branch, journal.runs()[::-1], journal.events(0, None)))
    return records


def starts(
    connection: _Connection, key: tuple[int, int], messages: Sequence[UUID] | None
) -> dict[UUID, int]:
    """Return the number of starts of tool calls in a session: of these messages, or of all."""
    uids = None if messages is None else list(messages)
    return dict(connection.execute(sql.STARTS, (*key, uids, uids)).fetchall())


class _LeasedJournal(NamedTuple):
    """The key of a branch's journal, and the number of its last event."""

    key: Key
    last: int


def lease_clock(connection: _Connection) -> int:
    """Return the server's clock in microseconds, by which leases expire."""
    row = connection.execute(sql.LEASE_CLOCK).fetchone()
    assert row is not None
    return row[0]


class JournalWriter:
    """Writes the runs and events of one session."""

    def __init__(self, connection: _Connection, owner: int, session: int) -> None:
        self._connection, self._run = connection, connection.execute
        self._key = (owner, session)

    def take(self, change: TakeLease, commits: int) -> LeaseGrant:
        """Acquire the lease of a branch; raises ConflictError if it is held."""
        branch = (*self._key, change.branch)
        row = self._run(sql.FIND_LEASE, branch).fetchone()
        last = None if row is None else Lease(change.branch, *row)
        journal, now = JournalReader(self._connection, branch), lease_clock(self._connection)
        lease = leases.next_lease(last, change.branch, change.holder, change.ttl, now)
        self._run(sql.PUT_LEASE, (*branch, lease.holder, lease.token, lease.expires))
        self._leased_journal(change.branch, lease.token)  # creates the journal
        return LeaseGrant(lease, journal.last(), next(iter(journal.runs(1)), None), commits)

    def put_run(self, change: PutRun) -> None:
        """Insert or update a run; raises ConflictError if its lease was lost."""
        run, key = change.run, self._leased_journal(change.run.branch, change.token).key
        values = (run.state, run.created, run.updated, run.body)
        if not self._run(sql.CHANGE_RUN, (*values, *key, run.id)).rowcount:
            self._run(sql.ADD_RUN, (*key, *key, run.id, *values))
        if change.release:
            self._run(sql.END_LEASE, (*self._key, run.branch))

    def add_events(self, change: AddEvents, new: Mapping[UUID, int]) -> None:
        """Append events; raises ConflictError if the lease was lost or a number is taken."""
        journal = self._leased_journal(change.branch, change.token)
        branch = (*self._key, change.branch)

        def stored_events() -> list[EventRecord]:
            first = min(event.seq for event in change.events)
            return JournalReader(self._connection, branch).events(first - 1, None)

        del new  # events name messages by id
        events = new_events(change, journal.last, stored_events)
        for start in change.starts if events else ():
            owner, session = self._key
            values = {"owner": owner, "session": session, "known": start.known}
            if self._run(sql.START_CALL, {**values, "message": start.message}).rowcount:
                continue
            if starts(self._connection, self._key, [start.message]):
                raise started_elsewhere(start.message)
        self._add(journal.key, events)

    def put_starts(self, change: PutStarts, numbers: Sequence[int]) -> None:
        """Raise the start counts of tool calls to at least these."""
        del numbers  # starts name messages by id
        for start in change.starts:
            self._run(sql.PUT_STARTS, (*self._key, *start))

    def _add(self, key: Key, events: Sequence[EventRecord]) -> None:
        if not events:
            return
        runs = self._numbers(key, {event.run for event in events})
        columns = (
            [event.seq for event in events],
            [runs[event.run] for event in events],
            [event.message for event in events],
            [event.body for event in events],
        )
        self._run(sql.ADD_EVENTS, (*key, *columns))

    def _numbers(self, key: Key, runs: Iterable[UUID]) -> dict[UUID, int]:
        numbers: dict[UUID, int] = dict(self._run(sql.RUN_NUMBERS, (key[0], list(runs), key[1])))
        for run in runs:
            if run not in numbers:
                raise no_run(run)
        return numbers

    def _leased_journal(self, branch: UUID, token: int) -> _LeasedJournal:
        """Return a branch's journal; raises ConflictError if `token` is not the last lease's."""
        owner, _ = self._key
        row = self._run(sql.HELD_JOURNAL, (*self._key, branch)).fetchone()
        if row is None or row[0] != token:
            raise lost_lease()
        _, number, last = row
        if number is None:
            added = self._run(sql.ADD_JOURNAL, (*self._key, branch)).fetchone()
            assert added is not None
            number = added[0]
        return _LeasedJournal((owner, number), last)

    def delete_messages(self, messages: Sequence[UUID], numbers: Sequence[int]) -> None:
        """Erase the events and starts of these messages."""
        del numbers
        uids = list(messages)
        self._run(sql.DELETE_STARTS_OF, (*self._key, uids))
        journals = [no for no, _ in self._run(sql.ALL_JOURNALS, self._key)]
        if journals:
            self._run(sql.DELETE_EVENTS_ABOUT, (self._key[0], journals, uids))

    def delete_branch(self, branch: UUID) -> None:
        """Erase the journal and the lease of a branch."""
        self._run(sql.DELETE_LEASE, (*self._key, branch))
        row = self._run(sql.FIND_JOURNAL, (*self._key, branch)).fetchone()
        if row is not None:
            for statement in sql.ERASE_JOURNAL:
                self._run(statement, (self._key[0], row[0]))
