"""The full-text index in SQLite, updated before each search.

A search names no owner to the index, as a word that all messages of an owner share would be counted
in full for every search. Where a store has sessions of one owner only, which is the usual file, the
index alone decides; otherwise what it finds is kept to the owner's rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

from sennit.errors import StoreError
from sennit.ids import id_from_bytes
from sennit.messages.codec import dumps
from sennit.stores.checksums import checked_body
from sennit.stores.records.search import (
    FileHit,
    FileQuery,
    Hit,
    StoredMessage,
    TextQuery,
    in_order_of,
    part_of,
)
from sennit.stores.records.sessions import FoundMessage, MessageRecord, Owner
from sennit.stores.search import tokenizer
from sennit.stores.sqlite import search_statements as sql
from sennit.stores.sqlite.files import FileReader
from sennit.stores.sqlite.secure_delete import drop_words

_BATCH = 200
_BYTES = 32 * 1024  # after which a transaction works on no further rows


def is_complete(connection: sqlite3.Connection) -> bool:
    """Tell whether all messages are in the index that belong there, and no others.

    Files are indexed when they are written.
    """
    return bool(connection.execute(sql.IS_COMPLETE, (_mark(connection),)).fetchone()[0])


def index_more(connection: sqlite3.Connection) -> None:
    """Write the words of the next messages and drop those of some detached ones."""
    rows = _some(connection, sql.UNINDEXED, _mark(connection), _BATCH)
    if rows:
        live = [index_words(*row) for row in rows if row[2] is not None]
        connection.executemany(sql.ADD_WORDS, live)
        connection.execute(sql.SET_MARK, (rows[-1][0],))
        return
    rows = _some(connection, sql.TO_DROP, _BATCH)
    drop_words(connection, (index_words(*row) for *row, _, _ in rows))
    dropped = [(*home, number) for number, _, _, *home in rows]
    connection.executemany(sql.SET_DROPPED, dropped)


def _some(connection: sqlite3.Connection, question: str, *values: int) -> list[Any]:
    """Rows with a body as the third value: as many as one transaction should work on."""
    with closing(connection.execute(question, values)) as rows:
        return list(few(rows, lambda row: len(row[2] or b"")))


def index_words(number: int, created: int, body: bytes) -> tuple[int, str]:
    """A message's row in the index."""
    return number, tokenizer.indexed(body, created)


def forget_words(connection: sqlite3.Connection, number: int, created: int, body: bytes) -> None:
    """Take a message out of the index, if it is there."""
    if number <= _mark(connection):
        drop_words(connection, [index_words(number, created, body)])


def add_words(connection: sqlite3.Connection, number: int, created: int, body: bytes) -> None:
    """Put a message into the index again, unless the next search does so anyway."""
    if number <= _mark(connection):
        connection.execute(sql.ADD_WORDS, index_words(number, created, body))


def few(rows: Iterable[Any], size: Callable[[Any], int]) -> Iterator[Any]:
    """As many rows as one transaction should work on: at least one, if there is any."""
    left = _BYTES
    for row in rows:
        yield row
        left -= size(row)
        if left <= 0:
            return


def _mark(connection: sqlite3.Connection) -> int:
    found = connection.execute(sql.MARK).fetchone()
    if found is None:
        raise StoreError(
            "The full-text index is damaged. Repair it with client.doctor(repair=True)."
        )
    return found[0]


def search(connection: sqlite3.Connection, owner: int, asked: TextQuery) -> list[FoundMessage]:
    """Messages that hold the words, the best first, with the text around them."""
    found = {hit.place: hit.score for hit in hits(connection, owner, asked)}
    wanted = list(asked.words)
    return [
        FoundMessage(
            one.session,
            one.message.id,
            tokenizer.snippet(tokenizer.said(one.message.body), wanted),
            found[one.place],
        )
        for one in at_places(connection, owner, list(found))
    ]


def hits(connection: sqlite3.Connection, owner: int, asked: TextQuery) -> list[Hit]:
    """The best places for the words, the best first."""
    given = {
        "query": _query(asked.words),
        "owner": owner,
        "session": asked.session.bytes if asked.session else None,
        "since": asked.since,
        "until": asked.until,
        "limit": asked.limit,
    }
    narrow = (asked.session, asked.since, asked.until) != (None, None, None)
    if narrow or connection.execute(sql.HAS_OTHERS, (owner,)).fetchone():
        return [_hit(row) for row in connection.execute(sql.HITS_AMONG, given)]
    return [_hit(row) for row in connection.execute(sql.HITS, given)]


def _hit(row: Sequence[Any]) -> Hit:
    place, session, archive, created, score, before, after = row
    group = (session, part_of(archive, created))
    return Hit(place, group, created, score, _numbers(before), _numbers(after))


def _numbers(listed: str | None) -> tuple[int, ...]:
    return tuple(map(int, listed.split(","))) if listed else ()


def at_places(
    connection: sqlite3.Connection, owner: int, places: Sequence[int]
) -> list[StoredMessage]:
    """The messages at these places, in their order."""
    rows = connection.execute(sql.AT_PLACES, (owner, dumps(list(places)).decode()))
    found = (
        StoredMessage(
            no,
            id_from_bytes(session),
            key,
            archive,
            MessageRecord(id_from_bytes(uid), created, checked_body(uid, created, body, checksum)),
            bool(branched),
        )
        for no, session, key, archive, uid, created, body, checksum, branched in rows
    )
    return in_order_of(places, found)


def file_hits(
    connection: sqlite3.Connection, number: Callable[[Owner], int], asked: FileQuery
) -> list[FileHit]:
    """The best files for the words, the best first."""
    if not connection.execute(sql.HAS_FILES).fetchone():
        return []
    owners = {number(owner): owner for owner in asked.owners}
    given = {
        "query": _query(asked.words),
        "owners": dumps(list(owners)).decode(),
        "under": asked.under,
        "categories": dumps(list(asked.categories)).decode(),
        "since": asked.since,
        "until": asked.until,
        "at": asked.at,
        "limit": asked.limit,
        "places": dumps(list(asked.places)).decode(),
    }
    rows = connection.execute(sql.FILES_AT, given).fetchall() if asked.places else []
    rows += connection.execute(sql.FILE_HITS, given).fetchall() if asked.words else []
    reader = FileReader(connection, number)
    found = {
        place: FileHit(reader.file(owners[no], no, row), place, score)
        for no, place, score, *row in rows
    }
    return list(found.values())


def _query(asked: Sequence[str]) -> str:
    return " OR ".join(f'"{tokenizer.apart(word)}"' for word in asked)
