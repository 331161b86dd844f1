"""The doctor: what is wrong with a SQLite file, and the mending of what can be mended.

Sennit leaves none of this behind: a write is whole or not at all. Disks, other programs and people
with an SQL prompt do. Each check asks one question of the whole file. Repair asks the same ones in
the same order, inside one transaction, and mends as it goes, so that each check sees what the ones
before have mended.

Nothing that can be read is ever deleted. What points nowhere is cut off, what nobody needs is
dropped, what was counted wrong is counted again, and messages without a session get a new one.
"""

# The doctor is the one friend that may look inside the store.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

from sennit import clock
from sennit.errors import SennitError, StoreError
from sennit.ids import id_from_bytes, new_id
from sennit.messages.codec import loads
from sennit.messages.message import Message
from sennit.stores.base import Store
from sennit.stores.sql import sqlite as store_sql
from sennit.stores.sql import sqlite_doctor as sql
from sennit.stores.sqlite import SQLiteStore, _translated
from sennit.stores.sqlite_session import index_words

_SHOWN = 5


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
    """What is wrong with the whole file, of all owners; raises StoreError if it is no file."""
    file = _file(store)
    if damage := _damage(file):
        return [damage]
    with file._reading() as connection:
        return list(_found(connection, mend=False))


def repair(store: Store) -> list[Finding]:
    """Mend what can be mended, all or nothing; gives what was wrong."""
    file = _file(store)
    if damage := _damage(file):
        return [damage]
    with file._writing() as connection:
        return list(_found(connection, mend=True))


def _file(store: Store) -> SQLiteStore:
    if not isinstance(store, SQLiteStore):
        raise StoreError(f"The doctor knows SQLite files only, not a {type(store).__name__}.")
    return store


@dataclass(frozen=True, slots=True)
class _Check:
    kind: str
    said: str
    find: Callable[[sqlite3.Connection], Iterable[str]]
    mend: Callable[[sqlite3.Connection], object] | None = None


def _found(connection: sqlite3.Connection, *, mend: bool) -> Iterator[Finding]:
    for check in _CHECKS:
        rows = list(check.find(connection))
        if not rows:
            continue
        mendable = check.mend is not None
        yield Finding(check.kind, check.said, len(rows), tuple(rows[:_SHOWN]), mendable)
        if mend and check.mend is not None:
            check.mend(connection)


def _asking(question: str) -> Callable[[sqlite3.Connection], Iterable[str]]:
    """A check whose rows are named by the first column."""
    return lambda connection: (str(row[0]) for row in connection.execute(question))


def _telling(statement: str) -> Callable[[sqlite3.Connection], object]:
    return lambda connection: connection.execute(statement)


def _damage(file: SQLiteStore) -> Finding | None:
    """Asked first and apart: no other answer of a damaged file means anything."""
    file._refuse_if_closed()
    with _translated(file._path), closing(file._connect()) as connection:
        rows = [one for one in _complaints(connection) if not _is_of_index(one)]
    said = "SQLite finds the file damaged; restore a backup."
    return Finding("file", said, len(rows), tuple(rows[:_SHOWN]), False) if rows else None


def _complaints(connection: sqlite3.Connection) -> list[str]:
    try:
        said = [row[0] for row in connection.execute("PRAGMA integrity_check")]
    except sqlite3.OperationalError:
        raise  # a lock or a lost disk says nothing of the file
    except sqlite3.DatabaseError as error:
        said = [str(error)]
    return [] if said == ["ok"] else said


def _is_of_index(complaint: str) -> bool:
    return "missing from index" in complaint or "entries in index" in complaint


def _index_damage(connection: sqlite3.Connection) -> list[str]:
    return [one for one in _complaints(connection) if _is_of_index(one)]


def _lost_sessions(connection: sqlite3.Connection) -> Iterator[str]:
    for owner, session in connection.execute(sql.LOST_SESSIONS):
        yield f"session {session} of owner {owner}"


def _recover_sessions(connection: sqlite3.Connection) -> None:
    now = clock.now_us()
    for owner, session in connection.execute(sql.LOST_SESSIONS).fetchall():
        row = connection.execute(sql.ADD_SESSION, (owner, new_id().bytes, now, now)).fetchone()
        for statement in sql.MOVE_ROWS:
            connection.execute(statement, (row[0], owner, session))


def _new_tails(connection: sqlite3.Connection) -> None:
    for _, owner, session, branch in connection.execute(sql.LOST_TAILS).fetchall():
        values = (owner, session, new_id().bytes, None, 0)
        segment = connection.execute(store_sql.ADD_SEGMENT, values).fetchone()[0]
        connection.execute(sql.SET_TAIL, (segment, owner, session, branch))


def _baseless(connection: sqlite3.Connection) -> list[tuple[int, Any]]:
    """Segments whose base is gone, is another session's, or in the end builds on them."""
    rows = {row[0]: (row[1], row[2:]) for row in connection.execute(sql.BASES)}
    found: list[tuple[int, Any]] = []
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


def _cut_loose(connection: sqlite3.Connection) -> None:
    for number, home in _baseless(connection):
        connection.execute(sql.CUT_LOOSE, (number,))
        connection.execute(sql.TOUCH_BRANCHES, home)


def _relaying(question: str) -> Callable[[sqlite3.Connection], None]:
    """Lay the histories anew, in all sessions where the question finds something."""

    def mend(connection: sqlite3.Connection) -> None:
        for key in {row[1:] for row in connection.execute(question).fetchall()}:
            _relay(connection, key)
            connection.execute(sql.TOUCH_BRANCHES, key)

    return mend


@dataclass(slots=True)
class _Laid:
    """Where a segment began and begins, and the positions it had entries at."""

    old: int
    new: int
    places: list[int]

    def moved(self, start: int) -> int:
        """Where something begins that began at `start`."""
        return self.new + bisect_left(self.places, start - self.old)


def _relay(connection: sqlite3.Connection, key: tuple[int, int]) -> None:
    """Close up the entries of a session, and move what builds on them."""
    rows = {row[0]: row for row in connection.execute(sql.SEGMENTS_TO_RELAY, key)}
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
            laid[number] = _Laid(start, begins, _close_up(connection, key, number))
            connection.execute(sql.SET_START, (begins, number))


def _close_up(connection: sqlite3.Connection, key: tuple[int, int], segment: int) -> list[int]:
    """Number the sound entries of a segment from 0; gives the numbers they had."""
    owner, _ = key
    entries = connection.execute(sql.ENTRIES_TO_RELAY, (*key, segment)).fetchall()
    connection.execute(store_sql.DELETE_ENTRIES, (owner, segment))
    connection.executemany(
        store_sql.ADD_ENTRY,
        [(owner, segment, place, message) for place, (_, message) in enumerate(entries)],
    )
    return [place for place, _ in entries]


def _unused(connection: sqlite3.Connection) -> list[tuple[int, int]]:
    """Segments that no branch stands on, each with its owner."""
    rows = {no: (base, owner) for no, base, owner, _ in connection.execute(sql.BASES)}
    used: set[int] = set()
    for (tail,) in connection.execute(sql.TAILS):
        at: int | None = tail
        while at is not None and at in rows and at not in used:
            used.add(at)
            at = rows[at][0]
    return [(owner, no) for no, (_, owner) in rows.items() if no not in used]


def _drop_unused(connection: sqlite3.Connection) -> None:
    unused = _unused(connection)
    connection.executemany(store_sql.DELETE_ENTRIES, unused)
    connection.executemany(store_sql.DELETE_SEGMENT, unused)


def _index_faults(connection: sqlite3.Connection) -> Iterator[str]:
    if connection.execute(sql.MARKS).fetchone()[0] != 1:
        yield "the mark"
    for uid, body in connection.execute(sql.UNINDEXED):
        if _loads(uid, 0, body):
            yield f"message {id_from_bytes(uid)}"
    yield from _asking(sql.WRONGLY_INDEXED)(connection)


def _rebuild_index(connection: sqlite3.Connection) -> None:
    connection.execute(sql.EMPTY_INDEX)
    connection.executemany(store_sql.ADD_WORDS, _all_words(connection))
    connection.execute(sql.DROP_MARKS)
    connection.execute(sql.ADD_MARK)


def _all_words(connection: sqlite3.Connection) -> Iterator[tuple[int, str, str]]:
    for number, owner, body in connection.execute(sql.ALL_BODIES):
        if _loads(bytes(16), 0, body):
            yield index_words(number, owner, body)


def _unreadable(connection: sqlite3.Connection) -> Iterator[str]:
    for uid, created, body in connection.execute(sql.BODIES):
        if not _loads(uid, created, body):
            yield f"message {id_from_bytes(uid)}"


def _loads(uid: bytes, created: int, body: bytes) -> bool:
    try:
        Message.from_record(id_from_bytes(uid), created, loads(body))
    except (SennitError, AttributeError, TypeError):  # such as a body that is a list
        return False
    return True


def _unreadable_columns(connection: sqlite3.Connection) -> Iterator[str]:
    rows = chain(connection.execute(sql.SESSION_COLUMNS), connection.execute(sql.BRANCH_COLUMNS))
    for name, metadata, *grants in rows:
        try:
            sound = isinstance(loads(metadata), dict) and all(map(_is_names, grants))
        except SennitError:
            sound = False
        if not sound:
            yield name


def _is_names(column: str) -> bool:
    names: Any = loads(column)
    return isinstance(names, list) and all(
        isinstance(name, str) for name in cast("list[Any]", names)
    )


_CHECKS = (
    _Check("keys", "Keys disagree with their rows.", _index_damage, _telling("REINDEX")),
    _Check("owner", "Rows belong to an owner who is not there.", _asking(sql.NOBODYS)),
    _Check("session", "Rows have lost their session.", _lost_sessions, _recover_sessions),
    _Check(
        "system",
        "Branches have lost their system message.",
        _asking(sql.LOST_SYSTEMS),
        _telling(sql.FORGET_SYSTEMS),
    ),
    _Check("tail", "Branches have lost their history.", _asking(sql.LOST_TAILS), _new_tails),
    _Check(
        "base",
        "Segments build on what is gone, or on themselves.",
        lambda connection: (str(number) for number, _ in _baseless(connection)),
        _cut_loose,
    ),
    _Check(
        "entries",
        "Histories name messages that are gone.",
        _asking(sql.LOST_ENTRIES),
        _relaying(sql.LOST_ENTRIES),
    ),
    _Check("gaps", "Histories have gaps.", _asking(sql.GAPS), _relaying(sql.GAPS)),
    _Check(
        "starts",
        "Segments begin where their base does not reach.",
        _asking(sql.WRONG_STARTS),
        _relaying(sql.WRONG_STARTS),
    ),
    _Check(
        "unused",
        "No branch needs these segments.",
        lambda connection: (str(number) for _, number in _unused(connection)),
        _drop_unused,
    ),
    _Check(
        "strays",
        "Entries belong to no segment.",
        _asking(sql.STRAY_ENTRIES),
        _telling(sql.DROP_STRAY_ENTRIES),
    ),
    _Check(
        "leases",
        "Leases belong to no branch.",
        _asking(sql.STRAY_LEASES),
        _telling(sql.DROP_STRAY_LEASES),
    ),
    _Check(
        "lengths",
        "Branches were counted wrong.",
        _asking(sql.WRONG_LENGTHS),
        _telling(sql.COUNT_LENGTHS),
    ),
    _Check("index", "The index of words is not complete.", _index_faults, _rebuild_index),
    _Check("messages", "Messages cannot be read; restore a backup.", _unreadable),
    _Check("columns", "Metadata or grants cannot be read.", _unreadable_columns),
)
