"""The full-text index in PostgreSQL, updated before each search.

Building a tsvector takes as long as the rest of an append, so a write only flags its session as
unindexed. A search first indexes those sessions in batches, past a mark per session. One mark for
the whole table would not do: numbers are assigned before commit, so a lower one may become visible
after a higher one. Within a session they become visible in order, as writers lock its row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sennit.stores.postgres import search_statements as sql
from sennit.stores.postgres.files import FileReader
from sennit.stores.postgres.search_rows import PIECE, add_words, owner_mark
from sennit.stores.postgres.session_reader import message_in
from sennit.stores.postgres.session_writer import Connection, fetch_one
from sennit.stores.records.search import (
    FileHit,
    FileQuery,
    Hit,
    StoredMessage,
    TextQuery,
    in_order_of,
    part_of,
)
from sennit.stores.records.sessions import Owner
from sennit.stores.search import tokenizer

_BATCH_SESSIONS = 100
_BATCH = 200


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """A text query among the messages of one owner."""

    owner: int
    asked: TextQuery

    def is_unindexed(self, connection: Connection) -> bool:
        """Return whether a session in scope is not fully indexed."""
        return fetch_one(connection.execute(sql.IS_UNINDEXED, self._where()))[0]

    def index_more(self, connection: Connection) -> None:
        """Index the next batch of messages, inside a transaction."""
        sessions = dict(
            connection.execute(sql.LOCK_UNINDEXED, {**self._where(), "limit": _BATCH_SESSIONS})
        )
        values = {
            "owner": self.owner,
            "sessions": list(sessions),
            "marks": list(sessions.values()),
            "limit": _BATCH,
        }
        rows = connection.execute(sql.UNINDEXED, values, binary=True).fetchall()
        add_words(connection, self.owner, [row for row in rows if row[3] is not None])
        self._move_marks(connection, sessions, rows)

    def _move_marks(
        self, connection: Connection, sessions: dict[int, int], rows: Sequence[Any]
    ) -> None:
        marks = {session: number for session, number, *_ in rows}
        is_full = len(rows) == _BATCH
        last = rows[-1][0] if is_full else None
        # A full batch may have ended inside its last session, and says nothing about later ones.
        done = [number for number in sessions if last is None or number <= last]
        values = {
            "owner": self.owner,
            "sessions": done,
            "marks": [marks.get(number, sessions[number]) for number in done],
            "unindexed": [number == last for number in done],
        }
        connection.execute(sql.SET_MARKS, values)

    def hits(self, connection: Connection) -> list[Hit]:
        """Return the best places for the words, best first."""
        values = {
            **self._where(),
            "words": lexemes(self.asked.words),
            "mark": f"'{owner_mark(self.owner)}'",
            "since": self.asked.since,
            "until": self.asked.until,
            "limit": self.asked.limit,
        }
        return [_hit(row) for row in connection.execute(sql.HITS, values)]

    def _where(self) -> dict[str, Any]:
        return {"owner": self.owner, "session": self.asked.session}


def lexemes(words: Sequence[str]) -> list[str]:
    """Return the words as tsqueries, without those that have no lexemes."""
    return list(filter(None, map(_lexemes, words)))


def _lexemes(word: str) -> str:
    words = tokenizer.space_letters(tokenizer.normalize(word)).split()
    return (" <-> " if tokenizer.is_unspaced(word) else " & ").join(words)


def _hit(row: Any) -> Hit:
    place, session, archive, created, score, before, after = row
    group = (session, part_of(archive, created))
    return Hit(place, group, created, score, tuple(before), tuple(after))


def at_places(connection: Connection, owner: int, places: Sequence[int]) -> list[StoredMessage]:
    """Return the messages at these places, in that order."""
    values = {"owner": owner, "places": list(places)}
    rows = connection.execute(sql.AT_PLACES, values, binary=True)
    messages = (
        StoredMessage(number, session, key, archive, message_in(row), branched)
        for number, session, key, archive, branched, *row in rows
    )
    return in_order_of(places, messages)


def index_files(connection: Connection, owners: Sequence[int]) -> bool:
    """Index the next batch of files; return whether there were any."""
    rows = connection.execute(sql.UNINDEXED_FILES, (list(owners), _BATCH), binary=True).fetchall()
    if rows:
        texts = [
            tokenizer.normalize(tokenizer.space_letters(body.decode(errors="replace")))
            for _, _, body in rows
        ]
        owner_numbers, versions, _ = map(list, zip(*rows, strict=True))
        words = [tokenizer.pieces(text, PIECE)[0] for text in texts]
        connection.execute(sql.SET_FILE_WORDS, (owner_numbers, versions, words))
    return bool(rows)


def file_hits(
    connection: Connection, number: Callable[[Owner], int], query: FileQuery
) -> list[FileHit]:
    """Return the best files for the words, best first."""
    owners = {number(owner): owner for owner in query.owners}
    values = {
        "owners": list(owners),
        "words": lexemes(query.words),
        "under": query.under,
        "categories": list(query.categories),
        "since": query.since,
        "until": query.until,
        "at": query.at,
        "limit": query.limit,
        "places": [-place for place in query.places],
    }
    rows = connection.execute(sql.FILE_HITS, values, binary=True).fetchall()
    reader = FileReader(connection, number)
    hits: dict[int, FileHit] = {}
    for owner, place, score, *row in rows:  # best first; matches by place alone come last
        if place not in hits:
            hits[place] = FileHit(reader.files(owners[owner], owner, [row])[0], place, score)
    return list(hits.values())
