"""Fast paths: the most frequent writes as one statement each.

Nearly all writes are one of these, so each is a statement that every connection prepares once, with
values packed here: a cursor takes a quarter longer. A statement applies its write completely, or
does nothing and returns no row or violates a constraint. `SessionWriter` then repeats the write the
slow way and raises the error, if any.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple, Protocol, cast
from uuid import UUID

from sennit import clock
from sennit.ids import id_from_bytes
from sennit.stores.checksums import message_checksum
from sennit.stores.postgres import statements as sql
from sennit.stores.postgres.prepared_connection import (
    Answer,
    Packed,
    PreparedConnection,
    Refused,
    Statement,
)
from sennit.stores.records.blobs import names_blobs
from sennit.stores.records.sessions import (
    AddEvents,
    AddMessages,
    Append,
    BranchHead,
    CallStart,
    EventRecord,
    Lease,
    LeaseGrant,
    MessageRecord,
    PutRun,
    RunRecord,
    RunState,
    TakeLease,
    Write,
    single_append,
)

_APPEND = Statement("sennit_append", sql.APPEND, parameters=8)
_TAKE = Statement("sennit_take", sql.TAKE, parameters=6)
_NOTE = Statement("sennit_note", sql.NOTE, parameters=20)

_integer, _bigint, _array = Struct("!i"), Struct("!q"), Struct("!iiiii")
_BIGINT, _BYTEA, _UUID = 20, 17, 2950  # type OIDs


class FastPathWrite(Protocol):
    """A write as one prepared statement."""

    def asked(self) -> tuple[Statement, Packed]:
        """Return the statement, and its values in PostgreSQL's binary format."""
        ...

    def heads(self, answer: Answer) -> list[BranchHead] | None:
        """Return the heads from the statement's result; None if the fast path failed."""
        ...


class FastAppend(NamedTuple):
    """One new message on one branch: the parameters of APPEND, in order."""

    now: int
    owner: int
    session: UUID
    branch: UUID
    id: UUID
    created: int
    body: bytes
    checksum: int

    def make(self, connection: PreparedConnection) -> BranchHead | None:
        """Apply the append; return its head, or None if it needs the slow path."""
        try:
            heads = self.heads(connection.ask(*self.asked()))
        except Refused:
            return None
        return heads[0] if heads else None

    def asked(self) -> tuple[Statement, Packed]:
        values: Packed = [
            _bigint.pack(self.now),
            _integer.pack(self.owner),
            self.session.bytes,
            self.branch.bytes,
            self.id.bytes,
            _bigint.pack(self.created),
            self.body,
            _bigint.pack(self.checksum),
        ]
        return _APPEND, values

    def heads(self, answer: Answer) -> list[BranchHead] | None:
        return [_head(self.branch, answer)] if answer.ntuples else None


class FastLease(NamedTuple):
    """Acquisition of a free lease of a branch."""

    owner: int
    session: UUID
    branch: UUID
    holder: str
    now: int
    ttl: int

    def asked(self) -> tuple[Statement, Packed]:
        values: Packed = [
            _integer.pack(self.owner),
            self.session.bytes,
            self.branch.bytes,
            self.holder.encode(),
            _bigint.pack(self.now),
            _bigint.pack(self.ttl),
        ]
        return _TAKE, values

    def heads(self, answer: Answer) -> list[BranchHead] | None:
        if not answer.ntuples:
            return None
        token, seq, commits, expires = (_number(answer, column) for column in range(3, 7))
        lease = Lease(self.branch, self.holder, token, expires)
        taken = LeaseGrant(lease, seq, self._run(answer), commits)
        return [_head(self.branch, answer).with_grant(taken)]

    def _run(self, answer: Answer) -> RunRecord | None:
        uid, state, body = (answer.get_value(0, column) for column in (7, 8, 11))
        if uid is None or state is None or body is None:
            return None
        run_state = cast("RunState", state.decode())
        times = _number(answer, 9), _number(answer, 10)
        return RunRecord(id_from_bytes(uid), self.branch, run_state, *times, body)


class FastJournalWrite(NamedTuple):
    """A journal write: events, the run's state and the messages it appended."""

    now: int
    owner: int
    session: UUID
    branch: UUID
    token: int
    run: UUID
    put: PutRun | None
    messages: tuple[MessageRecord, ...]
    events: tuple[EventRecord, ...]
    starts: tuple[CallStart, ...]

    def asked(self) -> tuple[Statement, Packed]:
        values: Packed = [
            _bigint.pack(self.now),
            _integer.pack(self.owner),
            self.session.bytes,
            self.branch.bytes,
            _bigint.pack(self.token),
            self.run.bytes,
            *self._put(),
            _pack_array(_UUID, [item.id.bytes for item in self.messages]),
            _pack_array(_BIGINT, [_bigint.pack(item.created) for item in self.messages]),
            _pack_array(_BYTEA, [item.body for item in self.messages]),
            _pack_array(_BIGINT, [_bigint.pack(item.seq) for item in self.events]),
            _pack_array(_UUID, [item.message and item.message.bytes for item in self.events]),
            _pack_array(_BYTEA, [item.body for item in self.events]),
            self._checksums(),
            _pack_array(_UUID, [item.message.bytes for item in self.starts]),
            _pack_array(_BIGINT, [_pack_known(item) for item in self.starts]),
        ]
        return _NOTE, values

    def _checksums(self) -> bytes:
        messages = self.messages
        checksums = [
            message_checksum(message.id.bytes, message.created, message.body)
            for message in messages
        ]
        return _pack_array(_BIGINT, [_bigint.pack(checksum) for checksum in checksums])

    def _put(self) -> Packed:
        if self.put is None:
            return [None, None, None, None, b"\0"]
        run = self.put.run
        times = _bigint.pack(run.created), _bigint.pack(run.updated)
        return [run.state.encode(), *times, run.body, bytes([self.put.release])]

    def heads(self, answer: Answer) -> list[BranchHead] | None:
        if not answer.ntuples:
            return None
        return [_head(self.branch, answer)] if self.messages else []


def usual_of(write: Write, owner: int) -> FastPathWrite | None:
    """Return the write as one that has a fast path, or None."""
    if write.create is not None or not write.changes:
        return None
    first, *others = write.changes
    if not isinstance(first, TakeLease):
        return appending(write, owner) or _as_journal_write(write, owner)
    if others:
        return None
    key = (owner, write.session, first.branch)
    return FastLease(*key, first.holder, clock.now_us(), first.ttl)


def appending(write: Write, owner: int) -> FastAppend | None:
    """Return the write as a fast append if it is one new message on one branch, or None."""
    append = single_append(write.changes)
    if append is None:
        return None
    message, branch = append
    if names_blobs((message,)):
        return None
    uid, created, body = message.id, message.created, message.body
    checksum = message_checksum(uid.bytes, created, body)
    return FastAppend(clock.now_us(), owner, write.session, branch, uid, created, body, checksum)


def _as_journal_write(write: Write, owner: int) -> FastJournalWrite | None:
    """Return the write as a fast journal write: an optional append, then a run and events."""
    append, messages, rest = None, (), list(write.changes)
    match rest:
        case [AddMessages() as added, Append() as append, *rest]:
            messages = added.messages
            if names_blobs(messages):
                return None
        case _:
            pass
    puts = [change for change in rest if isinstance(change, PutRun)]
    adds = [change for change in rest if isinstance(change, AddEvents)]
    if not 1 <= len(puts) + len(adds) == len(rest) or len(puts) > 1 or len(adds) > 1:
        return None
    events, starts = (adds[0].events, adds[0].starts) if adds else ((), ())
    leases = {(put.run.branch, put.token) for put in puts} | {
        (add.branch, add.token) for add in adds
    }
    runs = {put.run.id for put in puts} | {event.run for event in events}
    if len(leases) > 1 or len(runs) != 1 or not _are_consecutive(events):
        return None
    ((branch, token),), (run,) = leases, runs
    if append is not None and append != Append(branch, tuple([message.id for message in messages])):
        return None
    put = puts[0] if puts else None
    key = (owner, write.session, branch)
    return FastJournalWrite(clock.now_us(), *key, token, run, put, messages, events, starts)


def _pack_known(start: CallStart) -> bytes | None:
    return None if start.known is None else _bigint.pack(start.known)


def _are_consecutive(events: Sequence[EventRecord]) -> bool:
    return all(event.seq == events[0].seq + index for index, event in enumerate(events))


def _head(branch: UUID, answer: Answer) -> BranchHead:
    tail = id_from_bytes(answer.get_value(0, 0) or b"")
    return BranchHead(branch, tail, _number(answer, 1), _number(answer, 2))


def _number(answer: Answer, column: int) -> int:
    return int.from_bytes(answer.get_value(0, column) or b"", signed=True)


def _pack_array(oid: int, items: Sequence[bytes | None]) -> bytes:
    """Pack a one-dimensional array in PostgreSQL's binary format."""
    if not items:
        return _array.pack(0, 0, oid, 0, 0)[:12]
    parts = [_array.pack(1, None in items, oid, len(items), 1)]
    for item in items:
        parts += (_integer.pack(-1),) if item is None else (_integer.pack(len(item)), item)
    return b"".join(parts)
