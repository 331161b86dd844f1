"""The full-text index in SQLite, updated before each search.

The index has no owner term, because FTS5 would read the whole posting list of such a term for every
search. In the usual file with one owner the index alone decides; otherwise its matches are filtered
by the owner's rows.
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
_MAX_BATCH_BYTES = 32 * 1024


def is_complete(connection: sqlite3.Connection) -> bool:
    """Return whether the index has exactly the attached messages; files are indexed on write."""
    return bool(connection.execute(sql.IS_COMPLETE, (_read_mark(connection),)).fetchone()[0])


def index_more(connection: sqlite3.Connection) -> None:
    """Index the next batch of messages or, if there is none, drop a batch of detached ones."""
    rows = _limited(connection, sql.UNINDEXED, _read_mark(connection), _BATCH)
    if rows:
        words = [index_words(*row) for row in rows if row[2] is not None]
        connection.executemany(sql.ADD_WORDS, words)
        connection.execute(sql.SET_MARK, (rows[-1][0],))
        return
    rows = _limited(connection, sql.TO_DROP, _BATCH)
    drop_words(connection, (index_words(*row) for *row, _, _ in rows))
    dropped = [(*home, number) for number, _, _, *home in rows]
    connection.executemany(sql.SET_DROPPED, dropped)


def _limited(connection: sqlite3.Connection, statement: str, *parameters: int) -> list[Any]:
    """Return rows with a body as third column, up to the byte limit of a batch."""
    with closing(connection.execute(statement, parameters)) as rows:
        return list(few(rows, lambda row: len(row[2] or b"")))


def index_words(number: int, created: int, body: bytes) -> tuple[int, str]:
    """Return a message's row in the index."""
    return number, tokenizer.indexed_text(body, created)


def remove_words(connection: sqlite3.Connection, number: int, created: int, body: bytes) -> None:
    """Remove a message from the index if it is indexed."""
    if number <= _read_mark(connection):
        drop_words(connection, [index_words(number, created, body)])


def add_words(connection: sqlite3.Connection, number: int, created: int, body: bytes) -> None:
    """Index a message again, unless the next search does so anyway."""
    if number <= _read_mark(connection):
        connection.execute(sql.ADD_WORDS, index_words(number, created, body))


def few(rows: Iterable[Any], size: Callable[[Any], int]) -> Iterator[Any]:
    """Yield rows up to the byte limit of a batch: at least one, if there is any."""
    budget = _MAX_BATCH_BYTES
    for row in rows:
        yield row
        budget -= size(row)
        if budget <= 0:
            return


def _read_mark(connection: sqlite3.Connection) -> int:
    row = connection.execute(sql.MARK).fetchone()
    if row is None:
        raise StoreError(
            "The full-text index is damaged. Repair it with client.doctor(repair=True)."
        )
    return row[0]


def search(connection: sqlite3.Connection, owner: int, query: TextQuery) -> list[FoundMessage]:
    """Return messages that contain the words, best first, with snippets."""
    scores = {hit.place: hit.score for hit in hits(connection, owner, query)}
    words = list(query.words)
    return [
        FoundMessage(
            message.session,
            message.message.id,
            tokenizer.snippet(tokenizer.message_text(message.message.body), words),
            scores[message.place],
        )
        for message in at_places(connection, owner, list(scores))
    ]


def hits(connection: sqlite3.Connection, owner: int, query: TextQuery) -> list[Hit]:
    """Return the best places for the words, best first."""
    values = {
        "query": _query(query.words),
        "owner": owner,
        "session": query.session.bytes if query.session else None,
        "since": query.since,
        "until": query.until,
        "limit": query.limit,
    }
    narrow = (query.session, query.since, query.until) != (None, None, None)
    if narrow or connection.execute(sql.HAS_OTHERS, (owner,)).fetchone():
        return [_hit(row) for row in connection.execute(sql.HITS_AMONG, values)]
    return [_hit(row) for row in connection.execute(sql.HITS, values)]


def _hit(row: Sequence[Any]) -> Hit:
    place, session, archive, created, score, before, after = row
    group = (session, part_of(archive, created))
    return Hit(place, group, created, score, _split_numbers(before), _split_numbers(after))


def _split_numbers(joined: str | None) -> tuple[int, ...]:
    return tuple(map(int, joined.split(","))) if joined else ()


def at_places(
    connection: sqlite3.Connection, owner: int, places: Sequence[int]
) -> list[StoredMessage]:
    """Return the messages at these places, in that order."""
    rows = connection.execute(sql.AT_PLACES, (owner, dumps(list(places)).decode()))
    messages = (
        StoredMessage(
            number,
            id_from_bytes(session),
            key,
            archive,
            MessageRecord(id_from_bytes(uid), created, checked_body(uid, created, body, checksum)),
            bool(branched),
        )
        for number, session, key, archive, uid, created, body, checksum, branched in rows
    )
    return in_order_of(places, messages)


def file_hits(
    connection: sqlite3.Connection, number: Callable[[Owner], int], query: FileQuery
) -> list[FileHit]:
    """Return the best files for the words, best first."""
    if not connection.execute(sql.HAS_FILES).fetchone():
        return []
    owners = {number(owner): owner for owner in query.owners}
    values = {
        "query": _query(query.words),
        "owners": dumps(list(owners)).decode(),
        "under": query.under,
        "categories": dumps(list(query.categories)).decode(),
        "since": query.since,
        "until": query.until,
        "at": query.at,
        "limit": query.limit,
        "places": dumps(list(query.places)).decode(),
    }
    rows = connection.execute(sql.FILES_AT, values).fetchall() if query.places else []
    rows += connection.execute(sql.FILE_HITS, values).fetchall() if query.words else []
    reader = FileReader(connection, number)
    hits_by_place = {
        place: FileHit(reader.file(owners[owner], owner, row), place, score)
        for owner, place, score, *row in rows
    }
    return list(hits_by_place.values())


def _query(words: Sequence[str]) -> str:
    return " OR ".join(f'"{tokenizer.space_letters(word)}"' for word in words)
