"""Integrity checks of a store, and repairs.

Writes are atomic, so Sennit itself causes none of this damage; disks, other programs and manual SQL
do. Each check is one query over the whole store. Repair runs the same checks in the same order,
inside one transaction, and fixes as it goes, so that each check sees the fixes before it.

No readable content is ever deleted. Dangling references are removed, unused rows dropped, wrong
counts recomputed, and messages without a session or versions without a file get a new one.

The checks are the same for every store; a `StoreInspector` runs the SQL of one kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from types import ModuleType
from typing import Any, TypeAlias, cast
from uuid import UUID

from sennit.errors import SennitError, StoreError
from sennit.messages.codec import loads
from sennit.messages.message import Message
from sennit.stores.base import Store
from sennit.stores.doctor import file_checks
from sennit.stores.records.files import StoredFile
from sennit.stores.records.sessions import SessionDump
from sennit.stores.segment_graph import shown, unused

_MAX_SHOWN_ROWS = 5
_UNREADABLE = "Messages cannot be read; restore a backup."

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
    from sennit.stores.sqlite.store import SQLiteStore

    if isinstance(store, SQLiteStore):
        from sennit.stores.doctor.sqlite import SQLiteInspector

        return SQLiteInspector.noted(store)
    try:
        from sennit.stores.doctor.postgres import PostgresInspector
        from sennit.stores.postgres.store import PostgresStore
    except ImportError:
        return []
    return PostgresInspector.noted(store) if isinstance(store, PostgresStore) else []


def _inspect(store: Store, *, mend: bool) -> list[Finding]:
    from sennit.stores.doctor.sqlite import SQLiteInspector
    from sennit.stores.in_memory.store import MemoryStore
    from sennit.stores.sqlite.store import SQLiteStore

    if isinstance(store, MemoryStore):
        return store.with_everything(_check_messages)
    if isinstance(store, SQLiteStore):
        return SQLiteInspector.visited(store, mend=mend)
    try:
        from sennit.stores.doctor.postgres import PostgresInspector
        from sennit.stores.postgres.store import PostgresStore
    except ImportError:
        raise _unsupported_store(store) from None
    if isinstance(store, PostgresStore):
        return PostgresInspector.visited(store, mend=mend)
    raise _unsupported_store(store)


def _check_messages(sessions: Iterable[SessionDump], _: Iterable[StoredFile]) -> list[Finding]:
    """Return unreadable messages: the only damage that an in-memory store can have."""
    rows = [
        f"message {message.id}"
        for dump in sessions
        for message in dump.snapshot.messages
        if not is_readable(message.id, message.created, message.body)
    ]
    return [finding("messages", _UNREADABLE, rows, repairable=False)] if rows else []


def _unsupported_store(store: Store) -> StoreError:
    return StoreError(
        f"The integrity check supports only stores opened by `sennit.open`, not a "
        f"{type(store).__name__}."
    )


class StoreInspector(ABC):
    """A store inside one transaction, in which checks and repairs run."""

    sql: ModuleType
    """Queries and statements, by names that all kinds share; the first column of a query names the
    row."""
    dialect: Mapping[str, str]
    """Placeholders of the statements about files: `at` before tables, `new_id`, `given`."""

    @abstractmethod
    def ask(self, question: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a query and return all rows."""

    @abstractmethod
    def tell(self, statement: str, *values: Any) -> None:
        """Run a statement."""

    @abstractmethod
    def bodies(self) -> Iterator[tuple[UUID, int, bytes, int]]:
        """Yield the id, time, body and checksum of every message."""

    @abstractmethod
    def key_of(self, uid: UUID) -> object:
        """Return an id as a column value."""

    @abstractmethod
    def entries(self) -> Iterator[tuple[int, int, int, bytes, Any]]:
        """Yield the owner, segment, position, message id and checksum of every entry, in order."""

    @abstractmethod
    def rolled(self, before: Any, position: int, uid: bytes) -> Any:
        """Return the running checksum of an entry; `before` is None for the first."""

    @abstractmethod
    def recompute_checksums(self, owner: int, segment: int) -> None:
        """Recompute the checksums of a segment's entries."""

    @abstractmethod
    def add_session(self, home: Home) -> int:
        """Add a session for the rows that lost this one; return its number."""

    @abstractmethod
    def renew_tail(self, home: Home, branch: Any) -> None:
        """Give a branch a new empty segment as its tail."""

    @abstractmethod
    def set_base(self, home: Home, segment: int, base: int | None, start: int) -> None:
        """Set the base and the start of a segment."""

    @abstractmethod
    def lay(self, home: Home, segment: int, messages: list[int]) -> None:
        """Replace a segment's entries."""

    @abstractmethod
    def drop_segments(self, segments: list[tuple[Home, int]]) -> None:
        """Drop segments and their entries."""

    @abstractmethod
    def index_faults(self) -> Iterable[str]:
        """Yield rows that are missing from the full-text index, or wrongly in it."""

    @abstractmethod
    def mend_index(self) -> None:
        """Complete the index, or have the next search do it."""

    def checks(self) -> Iterable[IntegrityCheck]:
        """Return all checks, in the order in which they run."""
        from sennit.stores.doctor.checksums import CHECKS

        return (*_CHECKS, *CHECKS)


@dataclass(frozen=True, slots=True)
class IntegrityCheck:
    """A query for one kind of damage, and its repair."""

    kind: str
    said: str
    find: Callable[[StoreInspector], Iterable[str]]
    mend: Callable[[StoreInspector], object] | None = None


def findings(opened: AbstractContextManager[StoreInspector], *, mend: bool) -> list[Finding]:
    """Run all checks; with `mend`, repair what each one finds."""
    with opened as inspector:
        results = list(_run_checks(inspector, mend=mend))
        if results and mend:  # clients reload an open session only if `updated` has grown
            touch = "UPDATE {at}sessions SET updated = updated + 1"
            inspector.tell(touch.format(**inspector.dialect))
        return results


def _run_checks(inspector: StoreInspector, *, mend: bool) -> Iterator[Finding]:
    for check in inspector.checks():
        rows = list(check.find(inspector))
        if not rows:
            continue
        yield finding(check.kind, check.said, rows, repairable=check.mend is not None)
        if mend and check.mend is not None:
            check.mend(inspector)


def loose_messages(inspector: StoreInspector) -> list[str]:
    """Return a remark about messages on no branch, which stay stored but are not searched."""
    rows = [str(row[0]) for row in inspector.ask(inspector.sql.LOOSE_MESSAGES)]
    if not rows:
        return []
    listed = ", ".join(rows[:_MAX_SHOWN_ROWS]) + (", …" if len(rows) > _MAX_SHOWN_ROWS else "")
    return [f"Messages that stand on no branch (no damage): {len(rows)} ({listed})."]


def finding(kind: str, said: str, rows: list[str], *, repairable: bool) -> Finding:
    """Return a finding about these rows, of which the first few are shown."""
    return Finding(kind, said, len(rows), tuple(rows[:_MAX_SHOWN_ROWS]), repairable)


def asking(name: str) -> Callable[[StoreInspector], Iterable[str]]:
    """Return a query function for the statement of that name."""
    return lambda inspector: (str(row[0]) for row in inspector.ask(getattr(inspector.sql, name)))


def telling(name: str) -> Callable[[StoreInspector], None]:
    """Return a repair function for the statement of that name."""
    return lambda inspector: inspector.tell(getattr(inspector.sql, name))


def _lost_sessions(inspector: StoreInspector) -> Iterator[str]:
    for owner, session in inspector.ask(inspector.sql.LOST_SESSIONS):
        yield f"session {session} of owner {owner}"


def _recover_sessions(inspector: StoreInspector) -> None:
    for owner, session in inspector.ask(inspector.sql.LOST_SESSIONS):
        number = inspector.add_session((owner, session))
        for statement in inspector.sql.MOVE_ROWS:
            inspector.tell(statement, number, owner, session)


def _renew_tails(inspector: StoreInspector) -> None:
    for _, owner, session, branch in inspector.ask(inspector.sql.LOST_TAILS):
        inspector.renew_tail((owner, session), branch)


def _baseless(inspector: StoreInspector) -> list[tuple[int, Home]]:
    """Return segments whose base is missing, in another session, or part of a cycle."""
    rows = {number: (base, (owner, session)) for number, base, owner, session in _bases(inspector)}
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


def _bases(inspector: StoreInspector) -> list[tuple[Any, ...]]:
    return inspector.ask(inspector.sql.BASES)


def _cut_loose(inspector: StoreInspector) -> None:
    for number, home in _baseless(inspector):
        inspector.set_base(home, number, None, 0)
        inspector.tell(inspector.sql.TOUCH_BRANCHES, *home)


def _relay_sessions(name: str) -> Callable[[StoreInspector], None]:
    """Return a repair that renumbers all sessions where the query of that name finds damage."""

    def mend(inspector: StoreInspector) -> None:
        for owner, session in {row[1:] for row in inspector.ask(getattr(inspector.sql, name))}:
            _relay(inspector, (owner, session))
            inspector.tell(inspector.sql.TOUCH_BRANCHES, owner, session)

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
    rows = {row[0]: row for row in inspector.ask(inspector.sql.SEGMENTS_TO_RELAY, *home)}
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
            inspector.set_base(home, number, base, begins)


def _renumber_entries(inspector: StoreInspector, home: Home, segment: int) -> list[int]:
    """Renumber the valid entries of a segment from 0; return their old positions."""
    entries = inspector.ask(inspector.sql.ENTRIES_TO_RELAY, *home, segment)
    inspector.lay(home, segment, [message for _, message in entries])
    return [position for position, _ in entries]


def _unused_segments(inspector: StoreInspector) -> list[tuple[Home, int]]:
    """Return segments that no branch uses."""
    rows = {number: (base, (owner, session)) for number, base, owner, session in _bases(inspector)}
    bases = {number: base for number, (base, _) in rows.items()}
    tails = [tail for (tail,) in inspector.ask(inspector.sql.TAILS)]
    return [(rows[number][1], number) for number in unused(bases, tails)]


def _attached_messages(inspector: StoreInspector) -> set[int]:
    """Return the numbers of messages on branches and in archives, and of system messages."""
    sql = inspector.sql
    starts = {segment: (base, start) for segment, base, start in inspector.ask(sql.STARTS)}
    rows = {
        segment: (base if base in starts else None, offset)
        for segment, (base, offset) in starts.items()
    }
    reach = shown(rows, (tail for (tail,) in inspector.ask(sql.TAILS) if tail in rows))
    messages = {
        message
        for segment, position, message in inspector.ask(sql.ENTRIES)
        if position < reach.get(segment, 0)
    }
    return messages.union(number for (number,) in inspector.ask(sql.SYSTEMS_AND_ARCHIVED))


def _wrongly_detached(inspector: StoreInspector) -> Iterator[tuple[int, int, int, bool]]:
    """Yield messages that are wrongly recorded as detached, or wrongly not recorded."""
    attached = _attached_messages(inspector)
    for owner, session, number, is_recorded in inspector.ask(inspector.sql.DETACHED):
        if (number in attached) == bool(is_recorded):
            yield owner, session, number, bool(is_recorded)


def _mend_detached(inspector: StoreInspector) -> None:
    for owner, session, number, is_recorded in list(_wrongly_detached(inspector)):
        statement = inspector.sql.DROP_DETACHED if is_recorded else inspector.sql.ADD_DETACHED
        inspector.tell(statement, owner, session, number)


def _unreadable(inspector: StoreInspector) -> Iterator[str]:
    for uid, created, body, _ in inspector.bodies():
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
    sql = inspector.sql
    rows: Iterable[tuple[Any, ...]] = chain(
        inspector.ask(sql.SESSION_COLUMNS),
        inspector.ask(sql.BRANCH_COLUMNS),
        file_checks.asked(inspector, file_checks.VERSION_COLUMNS),
    )
    for name, metadata, *grants in rows:
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


_CHECKS = (
    IntegrityCheck("owner", "Rows belong to an owner who is not there.", asking("NOBODYS")),
    IntegrityCheck("session", "Rows have lost their session.", _lost_sessions, _recover_sessions),
    IntegrityCheck(
        "system",
        "Branches have lost their system message.",
        asking("LOST_SYSTEMS"),
        telling("FORGET_SYSTEMS"),
    ),
    IntegrityCheck("tail", "Branches have lost their history.", asking("LOST_TAILS"), _renew_tails),
    IntegrityCheck(
        "base",
        "Segments build on what is gone, or on themselves.",
        lambda inspector: (str(number) for number, _ in _baseless(inspector)),
        _cut_loose,
    ),
    IntegrityCheck(
        "entries",
        "Histories name messages that are gone.",
        asking("LOST_ENTRIES"),
        _relay_sessions("LOST_ENTRIES"),
    ),
    IntegrityCheck("gaps", "Histories have gaps.", asking("GAPS"), _relay_sessions("GAPS")),
    IntegrityCheck(
        "starts",
        "Segments begin where their base does not reach.",
        asking("WRONG_STARTS"),
        _relay_sessions("WRONG_STARTS"),
    ),
    IntegrityCheck(
        "unused",
        "No branch needs these segments.",
        lambda inspector: (str(number) for _, number in _unused_segments(inspector)),
        lambda inspector: inspector.drop_segments(_unused_segments(inspector)),
    ),
    IntegrityCheck(
        "strays",
        "Entries belong to no segment.",
        asking("STRAY_ENTRIES"),
        telling("DROP_STRAY_ENTRIES"),
    ),
    IntegrityCheck(
        "leases",
        "Leases belong to no branch.",
        asking("STRAY_LEASES"),
        telling("DROP_STRAY_LEASES"),
    ),
    IntegrityCheck(
        "journals",
        "Notes of runs belong to no branch.",
        asking("STRAY_JOURNALS"),
        telling("DROP_STRAY_JOURNALS"),
    ),
    IntegrityCheck(
        "runs", "Runs belong to no branch.", asking("STRAY_RUNS"), telling("DROP_STRAY_RUNS")
    ),
    IntegrityCheck(
        "events",
        "Events belong to no run, or speak of a message that is gone.",
        asking("STRAY_EVENTS"),
        telling("DROP_STRAY_EVENTS"),
    ),
    IntegrityCheck(
        "commits",
        "Commits or uses belong to no session.",
        file_checks.finding(file_checks.LOST_COMMITS),
        file_checks.mending(file_checks.DROP_LOST_COMMITS),
    ),
    IntegrityCheck(
        "archived",
        "Commits cover messages that are gone.",
        file_checks.finding(file_checks.STRAY_ARCHIVED),
        file_checks.mending(file_checks.DROP_STRAY_ARCHIVED),
    ),
    IntegrityCheck(
        "versions",
        "Versions have lost their file.",
        file_checks.finding(file_checks.LOST_VERSIONS),
        file_checks.mending(file_checks.RECOVER_FILES),
    ),
    IntegrityCheck(
        "files",
        "Files have lost all they said.",
        file_checks.finding(file_checks.EMPTY_FILES),
        file_checks.mending(file_checks.DROP_EMPTY_FILES),
    ),
    IntegrityCheck(
        "latest",
        "Files name another version than their last.",
        file_checks.finding(file_checks.WRONG_LATEST),
        file_checks.mending(file_checks.SET_LATEST),
    ),
    IntegrityCheck(
        "evidence",
        "Evidence belongs to no version.",
        file_checks.finding(file_checks.STRAY_EVIDENCE),
        file_checks.mending(file_checks.DROP_STRAY_EVIDENCE),
    ),
    IntegrityCheck(
        "labels",
        "Labels belong to no message.",
        asking("STRAY_LABELS"),
        telling("DROP_STRAY_LABELS"),
    ),
    IntegrityCheck(
        "starts",
        "Starts of tool calls belong to no message.",
        asking("STRAY_STARTS"),
        telling("DROP_STRAY_STARTS"),
    ),
    IntegrityCheck(
        "removed",
        "Notes of removed messages belong to no message.",
        asking("STRAY_DETACHED"),
        telling("DROP_STRAY_DETACHED"),
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
    IntegrityCheck("columns", "Metadata or grants cannot be read.", _unreadable_columns),
)
