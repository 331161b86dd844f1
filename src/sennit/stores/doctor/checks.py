"""Integrity checks of a store, and repairs.

Sennit leaves none of this behind: a write is whole or not at all. Disks, other programs and people
with an SQL prompt do. Each check asks one question of the whole store. Repair asks the same ones in
the same order, inside one transaction, and mends as it goes, so that each check sees what the ones
before have mended.

Nothing that can be read is ever deleted. What points nowhere is cut off, what nobody needs is
dropped, what was counted wrong is counted again, messages without a session get a new one, and so
do versions without a file.

The checks and the thinking are here, for every kind of store; how to ask and tell one kind is a
`StoreInspector`.
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

_SHOWN = 5
_UNREADABLE = "Messages cannot be read; restore a backup."

Home: TypeAlias = tuple[int, int]
"""An owner and a session, by number."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong."""

    kind: str
    said: str
    """A sentence for people."""
    count: int
    """How many rows are concerned."""
    rows: tuple[str, ...]
    """The first few of them."""
    mendable: bool
    """Whether repair mends it; if not, restore a backup."""


def examine(store: Store) -> list[Finding]:
    """Check the whole store, of all owners; raises StoreError if that is impossible."""
    return _visit(store, mend=False)


def repair(store: Store) -> list[Finding]:
    """Mend what can be mended, all or nothing; gives what was wrong."""
    return _visit(store, mend=True)


def notes(store: Store) -> list[str]:
    """Tell what is worth knowing of a store and is no damage, in sentences."""
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


def _visit(store: Store, *, mend: bool) -> list[Finding]:
    from sennit.stores.doctor.sqlite import SQLiteInspector
    from sennit.stores.in_memory.store import MemoryStore
    from sennit.stores.sqlite.store import SQLiteStore

    if isinstance(store, MemoryStore):
        return store.with_everything(_look_at_messages)
    if isinstance(store, SQLiteStore):
        return SQLiteInspector.visited(store, mend=mend)
    try:
        from sennit.stores.doctor.postgres import PostgresInspector
        from sennit.stores.postgres.store import PostgresStore
    except ImportError:
        raise _unknown(store) from None
    if isinstance(store, PostgresStore):
        return PostgresInspector.visited(store, mend=mend)
    raise _unknown(store)


def _look_at_messages(sessions: Iterable[SessionDump], _: Iterable[StoredFile]) -> list[Finding]:
    """All that can go wrong where no disk, other program or SQL prompt is near."""
    rows = [
        f"message {one.id}"
        for whole in sessions
        for one in whole.snapshot.messages
        if not is_readable(one.id, one.created, one.body)
    ]
    return [finding("messages", _UNREADABLE, rows, mendable=False)] if rows else []


def _unknown(store: Store) -> StoreError:
    return StoreError(
        f"The integrity check supports only stores opened by `sennit.open`, not a "
        f"{type(store).__name__}."
    )


class StoreInspector(ABC):
    """A store inside one transaction, in which all is asked and mended."""

    sql: ModuleType
    """Questions and statements, by names that are the same for all kinds; the first column of a
    question is what to call the row."""
    dialect: Mapping[str, str]
    """What statements about files say differently: `at` before tables, `new_id`, `given`."""

    @abstractmethod
    def ask(self, question: str, *values: Any) -> list[tuple[Any, ...]]:
        """All rows."""

    @abstractmethod
    def tell(self, statement: str, *values: Any) -> None:
        """Change something."""

    @abstractmethod
    def bodies(self) -> Iterator[tuple[UUID, int, bytes, int]]:
        """The id, time, body and checksum of every message, one by one."""

    @abstractmethod
    def key_of(self, uid: UUID) -> object:
        """An id as its column holds it."""

    @abstractmethod
    def entries(self) -> Iterator[tuple[int, int, int, bytes, Any]]:
        """The owner, segment, position, message id and checksum of every entry, in order."""

    @abstractmethod
    def rolled(self, before: Any, position: int, uid: bytes) -> Any:
        """The running checksum of an entry; that before the first is None."""

    @abstractmethod
    def roll_again(self, owner: int, segment: int) -> None:
        """Compute the checksums of a segment's entries anew."""

    @abstractmethod
    def add_session(self, home: Home) -> int:
        """A new session for the rows that lost this one; gives its number."""

    @abstractmethod
    def renew_tail(self, home: Home, branch: Any) -> None:
        """Let a branch end with a new empty segment."""

    @abstractmethod
    def set_base(self, home: Home, segment: int, base: int | None, start: int) -> None:
        """Let a segment begin after the first `start` entries below it."""

    @abstractmethod
    def lay(self, home: Home, segment: int, messages: list[int]) -> None:
        """Replace a segment's entries."""

    @abstractmethod
    def drop_segments(self, segments: list[tuple[Home, int]]) -> None:
        """Drop segments and their entries."""

    @abstractmethod
    def index_faults(self) -> Iterable[str]:
        """Return rows that are missing from the full-text index, or too many in it."""

    @abstractmethod
    def mend_index(self) -> None:
        """Make the index complete, or have the next search do it."""

    def checks(self) -> Iterable[IntegrityCheck]:
        """All checks, in the order in which they are made."""
        from sennit.stores.doctor.checksums import CHECKS

        return (*_CHECKS, *CHECKS)


@dataclass(frozen=True, slots=True)
class IntegrityCheck:
    """Something that may be wrong, and how to mend it."""

    kind: str
    said: str
    find: Callable[[StoreInspector], Iterable[str]]
    mend: Callable[[StoreInspector], object] | None = None


def findings(opened: AbstractContextManager[StoreInspector], *, mend: bool) -> list[Finding]:
    """Make all checks; with `mend`, mend what each one finds."""
    with opened as patient:
        found = list(_found(patient, mend=mend))
        if found and mend:  # who has a session open looks whether it was written to
            touch = "UPDATE {at}sessions SET updated = updated + 1"
            patient.tell(touch.format(**patient.dialect))
        return found


def _found(patient: StoreInspector, *, mend: bool) -> Iterator[Finding]:
    for check in patient.checks():
        rows = list(check.find(patient))
        if not rows:
            continue
        yield finding(check.kind, check.said, rows, mendable=check.mend is not None)
        if mend and check.mend is not None:
            check.mend(patient)


def loose_messages(patient: StoreInspector) -> list[str]:
    """Tell of messages on no branch: they are kept, and neither searched nor recalled."""
    rows = [str(row[0]) for row in patient.ask(patient.sql.LOOSE_MESSAGES)]
    if not rows:
        return []
    named = ", ".join(rows[:_SHOWN]) + (", …" if len(rows) > _SHOWN else "")
    return [f"Messages that stand on no branch (no damage): {len(rows)} ({named})."]


def finding(kind: str, said: str, rows: list[str], *, mendable: bool) -> Finding:
    """Return a finding about these rows, of which the first few are shown."""
    return Finding(kind, said, len(rows), tuple(rows[:_SHOWN]), mendable)


def asking(name: str) -> Callable[[StoreInspector], Iterable[str]]:
    """Return a query function for the statement of that name."""
    return lambda patient: (str(row[0]) for row in patient.ask(getattr(patient.sql, name)))


def telling(name: str) -> Callable[[StoreInspector], None]:
    """Return a repair function for the statement of that name."""
    return lambda patient: patient.tell(getattr(patient.sql, name))


def _lost_sessions(patient: StoreInspector) -> Iterator[str]:
    for owner, session in patient.ask(patient.sql.LOST_SESSIONS):
        yield f"session {session} of owner {owner}"


def _recover_sessions(patient: StoreInspector) -> None:
    for owner, session in patient.ask(patient.sql.LOST_SESSIONS):
        number = patient.add_session((owner, session))
        for statement in patient.sql.MOVE_ROWS:
            patient.tell(statement, number, owner, session)


def _renew_tails(patient: StoreInspector) -> None:
    for _, owner, session, branch in patient.ask(patient.sql.LOST_TAILS):
        patient.renew_tail((owner, session), branch)


def _baseless(patient: StoreInspector) -> list[tuple[int, Home]]:
    """Segments whose base is gone, is another session's, or in the end builds on them."""
    rows = {no: (base, (owner, session)) for no, base, owner, session in _bases(patient)}
    found: list[tuple[int, Home]] = []
    sound: set[int] = set()
    for first in rows:
        at: int | None = first
        path: dict[int, None] = {}
        while at is not None and at not in sound:
            path[at] = None
            base, home = rows[at]
            if base is not None and (base in path or base not in rows or rows[base][1] != home):
                found.append((at, home))
                base = None
            at = base
        sound.update(path)
    return found


def _bases(patient: StoreInspector) -> list[tuple[Any, ...]]:
    return patient.ask(patient.sql.BASES)


def _cut_loose(patient: StoreInspector) -> None:
    for number, home in _baseless(patient):
        patient.set_base(home, number, None, 0)
        patient.tell(patient.sql.TOUCH_BRANCHES, *home)


def _relaying(name: str) -> Callable[[StoreInspector], None]:
    """Lay the histories anew, in all sessions where the question of that name finds something."""

    def mend(patient: StoreInspector) -> None:
        for owner, session in {row[1:] for row in patient.ask(getattr(patient.sql, name))}:
            _relay(patient, (owner, session))
            patient.tell(patient.sql.TOUCH_BRANCHES, owner, session)

    return mend


@dataclass(slots=True)
class _Laid:
    """The old and new start of a segment, and the positions of its entries."""

    old: int
    new: int
    places: list[int]

    def moved(self, start: int) -> int:
        """Return the new position of an entry that was at `start`."""
        return self.new + bisect_left(self.places, start - self.old)


def _relay(patient: StoreInspector, home: Home) -> None:
    """Close up the entries of a session, and move what builds on them."""
    rows = {row[0]: row for row in patient.ask(patient.sql.SEGMENTS_TO_RELAY, *home)}
    laid: dict[int, _Laid] = {}
    for first in rows:
        path: list[int] = []
        at: int | None = first
        while at is not None and at not in laid:
            path.append(at)
            at = rows[at][1]
        for number in reversed(path):
            _, base, start = rows[number]
            begins = 0 if base is None else laid[base].moved(start)
            laid[number] = _Laid(start, begins, _close_up(patient, home, number))
            patient.set_base(home, number, base, begins)


def _close_up(patient: StoreInspector, home: Home, segment: int) -> list[int]:
    """Number the sound entries of a segment from 0; gives the numbers they had."""
    entries = patient.ask(patient.sql.ENTRIES_TO_RELAY, *home, segment)
    patient.lay(home, segment, [message for _, message in entries])
    return [place for place, _ in entries]


def _unused(patient: StoreInspector) -> list[tuple[Home, int]]:
    """Segments that no branch stands on."""
    rows = {no: (base, (owner, session)) for no, base, owner, session in _bases(patient)}
    bases = {no: base for no, (base, _) in rows.items()}
    tails = [tail for (tail,) in patient.ask(patient.sql.TAILS)]
    return [(rows[no][1], no) for no in unused(bases, tails)]


def _attached(patient: StoreInspector) -> set[int]:
    """The messages on branches and in archives, by number, and all system messages."""
    sql = patient.sql
    starts = {no: (base, start) for no, base, start in patient.ask(sql.STARTS)}
    rows = {no: (base if base in starts else None, at) for no, (base, at) in starts.items()}
    reach = shown(rows, (tail for (tail,) in patient.ask(sql.TAILS) if tail in rows))
    found = {
        message for segment, pos, message in patient.ask(sql.ENTRIES) if pos < reach.get(segment, 0)
    }
    return found.union(number for (number,) in patient.ask(sql.SYSTEMS_AND_ARCHIVED))


def _wrongly_detached(patient: StoreInspector) -> Iterator[tuple[int, int, int, bool]]:
    """Messages, as owner, session and number, that are noted as detached and are not, or not so."""
    attached = _attached(patient)
    for owner, session, number, noted in patient.ask(patient.sql.DETACHED):
        if (number in attached) == bool(noted):
            yield owner, session, number, bool(noted)


def _mend_detached(patient: StoreInspector) -> None:
    for owner, session, number, noted in list(_wrongly_detached(patient)):
        statement = patient.sql.DROP_DETACHED if noted else patient.sql.ADD_DETACHED
        patient.tell(statement, owner, session, number)


def _unreadable(patient: StoreInspector) -> Iterator[str]:
    for uid, created, body, _ in patient.bodies():
        if not is_readable(uid, created, body):
            yield f"message {uid}"


def is_readable(uid: UUID, created: int, body: bytes) -> bool:
    """Return whether a stored message can be opened."""
    try:
        Message.from_record(uid, created, loads(body))
    except (SennitError, AttributeError, TypeError):  # such as a body that is a list
        return False
    return True


def _unreadable_columns(patient: StoreInspector) -> Iterator[str]:
    sql = patient.sql
    rows: Iterable[tuple[Any, ...]] = chain(
        patient.ask(sql.SESSION_COLUMNS),
        patient.ask(sql.BRANCH_COLUMNS),
        file_checks.asked(patient, file_checks.VERSION_COLUMNS),
    )
    for name, metadata, *grants in rows:
        try:
            sound = isinstance(loads(metadata), dict) and all(map(_is_names, grants))
        except SennitError:
            sound = False
        if not sound:
            yield name


def _is_names(column: str | None) -> bool:
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
        lambda patient: (str(number) for number, _ in _baseless(patient)),
        _cut_loose,
    ),
    IntegrityCheck(
        "entries",
        "Histories name messages that are gone.",
        asking("LOST_ENTRIES"),
        _relaying("LOST_ENTRIES"),
    ),
    IntegrityCheck("gaps", "Histories have gaps.", asking("GAPS"), _relaying("GAPS")),
    IntegrityCheck(
        "starts",
        "Segments begin where their base does not reach.",
        asking("WRONG_STARTS"),
        _relaying("WRONG_STARTS"),
    ),
    IntegrityCheck(
        "unused",
        "No branch needs these segments.",
        lambda patient: (str(number) for _, number in _unused(patient)),
        lambda patient: patient.drop_segments(_unused(patient)),
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
        lambda patient: (f"message {number}" for _, _, number, _ in _wrongly_detached(patient)),
        _mend_detached,
    ),
    IntegrityCheck(
        "index",
        "The index of words is not complete, or has messages that stand nowhere.",
        lambda patient: patient.index_faults(),
        lambda patient: patient.mend_index(),
    ),
    IntegrityCheck("messages", _UNREADABLE, _unreadable),
    IntegrityCheck("columns", "Metadata or grants cannot be read.", _unreadable_columns),
)
