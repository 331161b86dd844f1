"""Integrity checks of a store, and repairs.

Writes are atomic, so Sennit itself causes none of this damage; disks, other programs and manual SQL
do. Each check is one query over the whole store. Repair runs the same checks in the same order,
inside one transaction, and fixes as it goes, so that each check sees the fixes before it.

No readable content is ever deleted. Dangling references are removed, unused rows dropped, wrong
counts recomputed, and messages without a session or versions without a file get a new one.

A row does not tell what it was before; a backup does. Without one, repair accepts a row that does
not match its checksum as it is now, so that the session can be used again.

The checks are the same for both SQL stores, but for a few that their inspectors add.
"""

# Integrity checks may use the private parts of the store.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeAlias, TypeVar, cast
from uuid import UUID

from sennit import clock
from sennit.errors import SennitError, StoreError
from sennit.ids import new_id
from sennit.messages.blob_reference import named_blobs
from sennit.messages.codec import loads
from sennit.messages.message import Message
from sennit.stores.base import Store
from sennit.stores.checksums import DAMAGED, checked_body, message_checksum
from sennit.stores.doctor import statements as sql
from sennit.stores.records.blobs import BlobRecord, StoredBlob
from sennit.stores.records.files import StoredFile
from sennit.stores.records.sessions import SessionDump
from sennit.stores.segment_graph import shown, unused
from sennit.stores.sql.blob_statements import ADD_REFERENCE, SET_USED
from sennit.stores.sql.blobs import BlobTable
from sennit.stores.sql.connection import Row, Sql, SqlConnection, Statement
from sennit.stores.sql.store import SqlStore

_T = TypeVar("_T")

_MAX_SHOWN_ROWS = 5
_UNREADABLE = "Messages cannot be read; restore a backup."

_ADVICE = "Restore a backup; repair takes them as they are now."
CHANGED_ROWS = f"Rows do not match their checksums: something has changed them. {_ADVICE}"

Home: TypeAlias = tuple[int, int]
"""An owner and a session, by number."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A kind of damage found in a store."""

    kind: str
    said: str
    """A sentence that describes it."""
    count: int
    """The number of affected rows."""
    rows: tuple[str, ...]
    """The first few of them."""
    repairable: bool
    """Whether repair fixes it; if not, restore a backup."""


def examine(store: Store) -> list[Finding]:
    """Check the whole store, of all owners; raises StoreError if that is impossible."""
    return _inspect(store, mend=False)


def repair(store: Store) -> list[Finding]:
    """Repair what can be repaired, in one transaction; return what was wrong."""
    return _inspect(store, mend=True)


def notes(store: Store) -> list[str]:
    """Return remarks about a store that are no damage, as sentences."""
    inspector = _inspector_class(store)
    return [] if inspector is None else inspector.notes(cast("SqlStore", store))


def _inspect(store: Store, *, mend: bool) -> list[Finding]:
    from sennit.stores.in_memory.store import MemoryStore

    if isinstance(store, MemoryStore):
        return store.with_everything(_check_messages)
    inspector = _inspector_class(store)
    if inspector is None:
        raise StoreError(
            f"The integrity check supports only stores opened by `sennit.open`, not a "
            f"{type(store).__name__}."
        )
    return inspector.findings(cast("SqlStore", store), mend=mend)


def _inspector_class(store: Store) -> type[StoreInspector] | None:
    from sennit.stores.doctor.sqlite import SQLiteInspector
    from sennit.stores.sqlite.store import SQLiteStore

    if isinstance(store, SQLiteStore):
        return SQLiteInspector
    with suppress(ImportError):
        from sennit.stores.doctor.postgres import PostgresInspector
        from sennit.stores.postgres.store import PostgresStore

        if isinstance(store, PostgresStore):
            return PostgresInspector
    return None


def _check_messages(
    sessions: Iterable[SessionDump], _: Iterable[StoredFile], __: Iterable[StoredBlob]
) -> list[Finding]:
    """Return unreadable messages: the only damage that an in-memory store can have."""
    rows = [
        f"message {message.id}"
        for dump in sessions
        for message in dump.snapshot.messages
        if not is_readable(message.id, message.created, message.body)
    ]
    return [finding("messages", _UNREADABLE, rows, repairable=False)] if rows else []


class StoreInspector(ABC):
    """A store inside one transaction, in which checks and repairs run."""

    move_rows: tuple[Sql, ...] = sql.MOVE_ROWS
    """Statements that move rows to another session."""
    set_tail_checksums: Statement | None = None
    """A statement that updates copies of the last checksum of a segment, if there are any."""

    def __init__(self, connection: SqlConnection) -> None:
        self.rows, self.run, self.run_many = connection.rows, connection.run, connection.run_many
        self.uid, self.connection = connection.uid, connection
        self._connection: Any = connection.connection

    @classmethod
    def visit(cls, store: SqlStore, work: Callable[[StoreInspector], _T], *, mend: bool) -> _T:
        """Run work in a snapshot or, to repair, in a transaction."""
        run = store._change if mend else store._read
        return run(lambda connection: work(cls(connection)))

    @classmethod
    def findings(cls, store: SqlStore, *, mend: bool) -> list[Finding]:
        """Run all checks; with `mend`, repair what each one finds."""
        return cls.visit(store, lambda inspector: _run_checks(inspector, mend=mend), mend=mend)

    @classmethod
    def notes(cls, store: SqlStore) -> list[str]:
        """Return a remark about messages on no branch, which stay stored but are not searched."""
        return cls.visit(store, _loose_messages, mend=False)

    @abstractmethod
    def stream(self, query: Sql) -> Iterator[Row]:
        """Run a query and yield its rows, of which few are in memory."""

    @abstractmethod
    def next_checksum(self, before: Any, position: int, uid: bytes) -> Any:
        """Return the running checksum of an entry; `before` is None for the first."""

    @abstractmethod
    def index_faults(self) -> Iterable[str]:
        """Yield rows that are missing from the full-text index, or wrongly in it."""

    @abstractmethod
    def mend_index(self) -> None:
        """Complete the index, or have the next search do it."""

    def checks(self) -> Iterable[IntegrityCheck]:
        """Return all checks, in the order in which they run."""
        return _CHECKS


_Find: TypeAlias = Statement | Callable[[StoreInspector], Iterable[str]]
_Mend: TypeAlias = Statement | Callable[[StoreInspector], object]


@dataclass(frozen=True, slots=True)
class IntegrityCheck:
    """A check for one kind of damage, and its repair: queries and statements, or functions."""

    kind: str
    said: str
    find: _Find
    mend: _Mend | None = None

    def names(self, inspector: StoreInspector) -> list[str]:
        """Return the names of damaged rows."""
        if callable(self.find):
            return list(self.find(inspector))
        return [str(row[0]) for row in inspector.rows(self.find)]

    def repair(self, inspector: StoreInspector) -> None:
        """Repair the damage, if that is possible."""
        if callable(self.mend):
            self.mend(inspector)
        elif self.mend is not None:
            inspector.run(self.mend)


def _run_checks(inspector: StoreInspector, *, mend: bool) -> list[Finding]:
    results: list[Finding] = []
    for check in inspector.checks():
        if names := check.names(inspector):
            repairable = check.mend is not None
            results.append(finding(check.kind, check.said, names, repairable=repairable))
            if mend:
                check.repair(inspector)
    if results and mend:  # clients reload an open session only if `updated` has grown
        inspector.run(sql.TOUCH_SESSIONS)
    return results


def _loose_messages(inspector: StoreInspector) -> list[str]:
    rows = [str(inspector.uid(uid)) for (uid,) in inspector.rows(sql.LOOSE_MESSAGES)]
    if not rows:
        return []
    listed = ", ".join(rows[:_MAX_SHOWN_ROWS]) + (", …" if len(rows) > _MAX_SHOWN_ROWS else "")
    return [f"Messages that stand on no branch (no damage): {len(rows)} ({listed})."]


def finding(kind: str, said: str, rows: list[str], *, repairable: bool) -> Finding:
    """Return a finding about these rows, of which the first few are shown."""
    return Finding(kind, said, len(rows), tuple(rows[:_MAX_SHOWN_ROWS]), repairable)


def _lost_sessions(inspector: StoreInspector) -> Iterator[str]:
    for owner, session in inspector.rows(sql.LOST_SESSIONS):
        yield f"session {session} of owner {owner}"


def _recover_sessions(inspector: StoreInspector) -> None:
    for owner, session in inspector.rows(sql.LOST_SESSIONS):
        values = {"owner": owner, "session": session, "id": new_id(), "now": clock.now_us()}
        number = inspector.rows(sql.ADD_SESSION, **values)[0][0]
        for statement in inspector.move_rows:
            inspector.run(statement, number, owner, session)


def _renew_tails(inspector: StoreInspector) -> None:
    """Give branches that have lost their tail a new empty segment."""
    for _, owner, session, branch in inspector.rows(sql.LOST_TAILS):
        uid, home = new_id(), {"owner": owner, "session": session}
        segment = inspector.rows(sql.ADD_SEGMENT, owner, session, uid, None, 0)[0][0]
        inspector.run(sql.SET_TAIL, **home, branch=branch, segment=segment, tail=uid)


def _bases(inspector: StoreInspector) -> dict[int, tuple[int | None, Home]]:
    """Return the base and the session of all segments."""
    rows = inspector.rows(sql.BASES)
    return {number: (base, (owner, session)) for number, base, owner, session in rows}


def _baseless(inspector: StoreInspector) -> list[tuple[int, Home]]:
    """Return segments whose base is missing, in another session, or part of a cycle."""
    rows = _bases(inspector)
    baseless: list[tuple[int, Home]] = []
    checked: set[int] = set()
    for first in rows:
        current: int | None = first
        path: dict[int, None] = {}
        while current is not None and current not in checked:
            path[current] = None
            base, home = rows[current]
            if base is not None and (base in path or base not in rows or rows[base][1] != home):
                baseless.append((current, home))
                base = None
            current = base
        checked.update(path)
    return baseless


def _cut_loose(inspector: StoreInspector) -> None:
    for number, home in _baseless(inspector):
        _set_base(inspector, home, number, None, 0)
        inspector.run(sql.TOUCH_BRANCHES, *home)


def _set_base(
    inspector: StoreInspector, home: Home, segment: int, base: int | None, start: int
) -> None:
    owner, session = home
    values = {"owner": owner, "session": session, "segment": segment, "base": base, "start": start}
    inspector.run(sql.SET_BASE, **values)


def _relay_sessions(query: Sql) -> Callable[[StoreInspector], None]:
    """Return a repair that renumbers all sessions where the query finds damage."""

    def mend(inspector: StoreInspector) -> None:
        for owner, session in {tuple(row[1:]) for row in inspector.rows(query)}:
            _relay(inspector, (owner, session))
            inspector.run(sql.TOUCH_BRANCHES, owner, session)

    return mend


@dataclass(slots=True)
class _Relayed:
    """The old and new start of a segment, and the positions of its entries."""

    old: int
    new: int
    places: list[int]

    def moved(self, start: int) -> int:
        """Return the new position of an entry that was at `start`."""
        return self.new + bisect_left(self.places, start - self.old)


def _relay(inspector: StoreInspector, home: Home) -> None:
    """Renumber the entries of a session without gaps, and move the segments on top of them."""
    rows = {row[0]: row for row in inspector.rows(sql.SEGMENTS_TO_RELAY, *home)}
    relayed: dict[int, _Relayed] = {}
    for first in rows:
        path: list[int] = []
        current: int | None = first
        while current is not None and current not in relayed:
            path.append(current)
            current = rows[current][1]
        for number in reversed(path):
            _, base, start = rows[number]
            begins = 0 if base is None else relayed[base].moved(start)
            relayed[number] = _Relayed(start, begins, _renumber_entries(inspector, home, number))
            _set_base(inspector, home, number, base, begins)


def _renumber_entries(inspector: StoreInspector, home: Home, segment: int) -> list[int]:
    """Renumber the valid entries of a segment from 0; return their old positions."""
    owner, session = home
    entries = inspector.rows(sql.ENTRIES_TO_RELAY, owner, segment, session)
    inspector.run(sql.DELETE_ENTRIES, owner, segment)
    renumbered = [(place, message, uid) for place, (_, message, uid) in enumerate(entries)]
    inspector.run_many(
        sql.ADD_ENTRY,
        [
            (checksum, owner, segment, place, message)
            for checksum, place, message in _with_checksums(inspector, renumbered)
        ],
    )
    _set_tail_checksums(inspector, owner, segment)
    return [position for position, *_ in entries]


def _set_tail_checksums(inspector: StoreInspector, owner: int, segment: int) -> None:
    if inspector.set_tail_checksums is not None:
        inspector.run(inspector.set_tail_checksums, owner, segment)


def _with_checksums(
    inspector: StoreInspector, entries: Iterable[Row]
) -> Iterator[tuple[Any, int, int]]:
    """Yield the running checksum, position and message of all entries of a segment."""
    checksum = None
    for position, message, uid in entries:
        checksum = inspector.next_checksum(checksum, position, inspector.uid(uid).bytes)
        yield checksum, position, message


def _unused_segments(inspector: StoreInspector) -> list[tuple[Home, int]]:
    """Return segments that no branch uses."""
    rows = _bases(inspector)
    bases = {number: base for number, (base, _) in rows.items()}
    tails = [tail for (tail,) in inspector.rows(sql.TAILS)]
    return [(rows[number][1], number) for number in unused(bases, tails)]


def _drop_unused_segments(inspector: StoreInspector) -> None:
    for (owner, session), segment in _unused_segments(inspector):
        inspector.run(sql.DELETE_ENTRIES, owner, segment)
        inspector.run(sql.DELETE_SEGMENT, owner, session, segment)


def _attached_messages(inspector: StoreInspector) -> set[int]:
    """Return the numbers of messages on branches and in archives, and of system messages."""
    starts = {segment: (base, start) for segment, base, start in inspector.rows(sql.STARTS)}
    rows = {
        segment: (base if base in starts else None, offset)
        for segment, (base, offset) in starts.items()
    }
    reach = shown(rows, (tail for (tail,) in inspector.rows(sql.TAILS) if tail in rows))
    messages = {
        message
        for segment, position, message in inspector.rows(sql.POSITIONS)
        if position < reach.get(segment, 0)
    }
    return messages.union(number for (number,) in inspector.rows(sql.SYSTEMS_AND_ARCHIVED))


def _wrongly_detached(inspector: StoreInspector) -> Iterator[tuple[int, int, int, bool]]:
    """Yield messages that are wrongly recorded as detached, or wrongly not recorded."""
    attached = _attached_messages(inspector)
    for owner, session, number, is_recorded in inspector.rows(sql.DETACHED):
        if (number in attached) == bool(is_recorded):
            yield owner, session, number, bool(is_recorded)


def _mend_detached(inspector: StoreInspector) -> None:
    for owner, session, number, is_recorded in list(_wrongly_detached(inspector)):
        statement = sql.DROP_DETACHED if is_recorded else sql.ADD_DETACHED
        inspector.run(statement, owner, session, number)


def _unreadable(inspector: StoreInspector) -> Iterator[str]:
    for column, created, body, _ in inspector.stream(sql.BODIES):
        uid = inspector.uid(column)
        if not is_readable(uid, created, body):
            yield f"message {uid}"


def is_readable(uid: UUID, created: int, body: bytes) -> bool:
    """Return whether a stored message can be opened."""
    try:
        Message.from_record(uid, created, loads(body))
    except (SennitError, AttributeError, TypeError):  # such as a body that is a list
        return False
    return True


def _unreadable_columns(inspector: StoreInspector) -> Iterator[str]:
    for name, metadata, *grants in inspector.rows(sql.JSON_COLUMNS):
        try:
            is_valid = isinstance(loads(metadata), dict) and all(map(_is_name_list, grants))
        except SennitError:
            is_valid = False
        if not is_valid:
            yield name


def _is_name_list(column: str | None) -> bool:
    if column is None:  # a branch that was never given grants
        return True
    names: Any = loads(column)
    return isinstance(names, list) and all(
        isinstance(name, str) for name in cast("list[Any]", names)
    )


def _changed_histories(inspector: StoreInspector) -> Iterator[tuple[int, int, UUID]]:
    """Yield the first mismatch of each segment: owner, segment, message."""
    last, previous, matches = None, None, True
    for owner, segment, position, column, checksum in inspector.stream(sql.ENTRY_CHECKSUMS):
        if (owner, segment) != last:
            last, previous, matches = (owner, segment), None, True
        uid = inspector.uid(column)
        if matches and inspector.next_checksum(previous, position, uid.bytes) != checksum:
            yield owner, segment, uid
            matches = False
        previous = checksum


def _accept_histories(inspector: StoreInspector) -> None:
    for owner, segment, _ in list(_changed_histories(inspector)):
        entries = inspector.rows(sql.ENTRIES_OF_SEGMENT, owner, segment)
        inspector.run_many(
            sql.SET_ENTRY_CHECKSUM,
            [
                (checksum, owner, segment, position)
                for checksum, position, _ in _with_checksums(inspector, entries)
            ],
        )
        _set_tail_checksums(inspector, owner, segment)


def _changed_messages(inspector: StoreInspector) -> Iterator[tuple[UUID, int, bytes]]:
    """Yield readable messages that do not match their checksum."""
    for column, created, body, checksum in inspector.stream(sql.BODIES):
        uid = inspector.uid(column)
        matches = checked_body(uid.bytes, created, body, checksum) is not DAMAGED
        if not matches and is_readable(uid, created, body):
            yield uid, created, body


def _accept_messages(inspector: StoreInspector) -> None:
    for uid, created, body in list(_changed_messages(inspector)):
        checksum = message_checksum(uid.bytes, created, body)
        inspector.run(sql.SET_CHECKSUM, checksum, uid, created, body)


def _damaged_blobs(inspector: StoreInspector) -> Iterator[str]:
    for owner, hash, size in inspector.rows(sql.BLOBS):
        blob = BlobRecord(bytes(hash), "", size)
        digest = sha256()
        try:
            for chunk in BlobTable(inspector.connection, owner).chunks(blob):
                digest.update(chunk)
        except StoreError:
            digest.update(b"damaged")
        if digest.digest() != blob.hash:
            yield f"blob {blob.hash.hex()}"


def _named_in_messages(inspector: StoreInspector) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield the blobs that readable messages name: owner, session, message, hash."""
    for owner, session, number, column, created, body in inspector.rows(sql.NAMING_BLOBS):
        uid = inspector.uid(column)
        if is_readable(uid, created, body):
            for hash in named_blobs([Message.from_stored(uid, created, bytes(body))]):
                yield owner, session, number, hash


def _missing_blobs(inspector: StoreInspector) -> Iterator[str]:
    present = {(owner, bytes(hash)) for owner, hash, _ in inspector.rows(sql.BLOBS)}
    for owner, _, number, hash in _named_in_messages(inspector):
        if (owner, hash) not in present:
            yield f"blob {hash.hex()} of message {number}"


def _unnoted_blobs(inspector: StoreInspector) -> Iterator[tuple[int, int, int, int, bytes]]:
    """Yield blobs that a message names without a stored reference: they could be collected."""
    blobs = {(row[0], bytes(row[1])): row[2] for row in inspector.rows(sql.BLOB_NUMBERS)}
    notes = {tuple(row) for row in inspector.rows(sql.BLOB_REFS)}
    for owner, session, message, hash in _named_in_messages(inspector):
        blob = blobs.get((owner, hash))
        if blob is not None and (owner, session, message, blob) not in notes:
            yield owner, session, message, blob, hash


def _note_blobs(inspector: StoreInspector) -> None:
    for owner, session, message, blob, _ in list(_unnoted_blobs(inspector)):
        inspector.run(ADD_REFERENCE, owner, session, message, blob)
        inspector.run(SET_USED, owner, [blob])


def run_all(*statements: Statement) -> Callable[[StoreInspector], None]:
    """Return a repair that runs several statements."""

    def mend(inspector: StoreInspector) -> None:
        for statement in statements:
            inspector.run(statement)

    return mend


_CHECKS = (
    IntegrityCheck("owner", "Rows belong to an owner who is not there.", sql.NOBODYS),
    IntegrityCheck("session", "Rows have lost their session.", _lost_sessions, _recover_sessions),
    IntegrityCheck(
        "system", "Branches have lost their system message.", sql.LOST_SYSTEMS, sql.FORGET_SYSTEMS
    ),
    IntegrityCheck("tail", "Branches have lost their history.", sql.LOST_TAILS, _renew_tails),
    IntegrityCheck(
        "base",
        "Segments build on what is gone, or on themselves.",
        lambda inspector: (str(number) for number, _ in _baseless(inspector)),
        _cut_loose,
    ),
    IntegrityCheck(
        "entries",
        "Histories name messages that are gone.",
        sql.LOST_ENTRIES,
        _relay_sessions(sql.LOST_ENTRIES),
    ),
    IntegrityCheck("gaps", "Histories have gaps.", sql.GAPS, _relay_sessions(sql.GAPS)),
    IntegrityCheck(
        "starts",
        "Segments begin where their base does not reach.",
        sql.WRONG_STARTS,
        _relay_sessions(sql.WRONG_STARTS),
    ),
    IntegrityCheck(
        "unused",
        "No branch needs these segments.",
        lambda inspector: (str(number) for _, number in _unused_segments(inspector)),
        _drop_unused_segments,
    ),
    IntegrityCheck("strays", "Entries belong to no segment.", *sql.ENTRIES),
    IntegrityCheck("leases", "Leases belong to no branch.", *sql.LEASES),
    IntegrityCheck("journals", "Notes of runs belong to no branch.", *sql.JOURNALS),
    IntegrityCheck("runs", "Runs belong to no branch.", *sql.RUNS),
    IntegrityCheck(
        "events", "Events belong to no run, or speak of a message that is gone.", *sql.EVENTS
    ),
    IntegrityCheck("commits", "Commits belong to no session.", *sql.COMMITS),
    IntegrityCheck("commits", "Uses belong to no session.", *sql.USES),
    IntegrityCheck("archived", "Commits cover messages that are gone.", *sql.ARCHIVED),
    IntegrityCheck(
        "versions", "Versions have lost their file.", sql.LOST_VERSIONS, sql.RECOVER_FILES
    ),
    IntegrityCheck("files", "Files have lost all they said.", *sql.EMPTY_FILES),
    IntegrityCheck(
        "latest", "Files name another version than their last.", sql.WRONG_LATEST, sql.SET_LATEST
    ),
    IntegrityCheck("evidence", "Evidence belongs to no version.", *sql.EVIDENCE),
    IntegrityCheck("labels", "Labels belong to no message.", *sql.LABELS),
    IntegrityCheck("starts", "Starts of tool calls belong to no message.", *sql.CALL_STARTS),
    IntegrityCheck(
        "removed", "Notes of removed messages belong to no message.", *sql.DETACHED_STRAYS
    ),
    IntegrityCheck(
        "detached",
        "Messages on no branch are not noted as such, or others are.",
        lambda inspector: (f"message {number}" for _, _, number, _ in _wrongly_detached(inspector)),
        _mend_detached,
    ),
    IntegrityCheck(
        "index",
        "The index of words is not complete, or has messages that stand nowhere.",
        lambda inspector: inspector.index_faults(),
        lambda inspector: inspector.mend_index(),
    ),
    IntegrityCheck("messages", _UNREADABLE, _unreadable),
    IntegrityCheck("blobs", "Pieces belong to no blob.", *sql.STRAY_CHUNKS),
    IntegrityCheck(
        "blobs", "References to blobs lack their message or their blob.", *sql.STRAY_BLOB_REFS
    ),
    IntegrityCheck(
        "blobs",
        "Messages name blobs to which no reference is stored.",
        lambda inspector: (
            f"blob {hash.hex()} of message {number}"
            for _, _, number, _, hash in _unnoted_blobs(inspector)
        ),
        _note_blobs,
    ),
    IntegrityCheck(
        "blobs", "Blobs that messages name are missing; restore a backup.", _missing_blobs
    ),
    IntegrityCheck(
        "blobs",
        "The bytes of blobs are not what was written; restore a backup.",
        _damaged_blobs,
    ),
    IntegrityCheck("columns", "Metadata or grants cannot be read.", _unreadable_columns),
    IntegrityCheck(
        "histories",
        f"Histories do not match their checksums: messages may be missing or misplaced. {_ADVICE}",
        lambda inspector: (
            f"segment {segment} from message {uid}"
            for _, segment, uid in _changed_histories(inspector)
        ),
        _accept_histories,
    ),
    IntegrityCheck(
        "changed",
        f"Messages do not match their checksums: they are not what was written. {_ADVICE}",
        lambda inspector: (f"message {uid}" for uid, *_ in _changed_messages(inspector)),
        _accept_messages,
    ),
)
