"""The index of words in PostgreSQL: written late, complete when asked.

To make a tsvector takes as long as the rest of an append, so a write only notes that its session
has messages whose words are missing. A search first writes those, in batches, behind the mark of
each session. A mark for the whole table would not do: numbers are given before commits, and a lower
one may appear after a higher one. In one session they appear in order, as its writers hold its row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sennit.stores import words
from sennit.stores.postgres_session import Connection, one
from sennit.stores.records import Found
from sennit.stores.sql import postgres as sql

_SESSIONS = 100
_BATCH = 200
_PIECE = 50_000  # of a text; what becomes of it fits a tsvector (one megabyte)


@dataclass(frozen=True, slots=True)
class Question:
    """What is searched for: words, of one owner, in one session or in all."""

    owner: int
    session: UUID | None
    asked: Sequence[str]
    limit: int

    @property
    def query(self) -> str:
        """The words as a tsquery, "" if none can be searched for."""
        plain = (" & ".join(words.plain(word).split()) for word in self.asked)
        return " | ".join(filter(None, plain))

    def is_unindexed(self, connection: Connection) -> bool:
        """Whether words may be missing where it looks."""
        return one(connection.execute(sql.IS_UNINDEXED, self._where()))[0]

    def index_more(self, connection: Connection) -> None:
        """Write the words of the next messages, inside a transaction."""
        sessions = dict(
            connection.execute(sql.LOCK_UNINDEXED, {**self._where(), "limit": _SESSIONS})
        )
        given = {
            "owner": self.owner,
            "sessions": list(sessions),
            "marks": list(sessions.values()),
            "limit": _BATCH,
        }
        rows = connection.execute(sql.UNINDEXED, given, binary=True).fetchall()
        self._add_words(connection, rows)
        self._move_marks(connection, sessions, rows)

    def _add_words(self, connection: Connection, rows: Sequence[Any]) -> None:
        pieces = [
            (session, number, f"{owner_mark(self.owner)} {piece}")
            for session, number, body in rows
            for piece in words.pieces(words.plain(words.said(body)), _PIECE)
        ]
        if pieces:
            sessions, messages, said = map(list, zip(*pieces, strict=True))
            named = {"owner": self.owner, "sessions": sessions, "messages": messages, "said": said}
            connection.execute(sql.ADD_WORDS, named)

    def _move_marks(
        self, connection: Connection, sessions: dict[int, int], rows: Sequence[Any]
    ) -> None:
        marks = {session: number for session, number, _ in rows}
        full = len(rows) == _BATCH
        last = rows[-1][0] if full else None
        # A full batch may have ended within its last session, and says nothing of those after it.
        done = [number for number in sessions if last is None or number <= last]
        named = {
            "owner": self.owner,
            "sessions": done,
            "marks": [marks.get(number, sessions[number]) for number in done],
            "unindexed": [number == last for number in done],
        }
        connection.execute(sql.SET_MARKS, named)

    def answer(self, connection: Connection) -> list[Found]:
        """The messages found, the best first."""
        named = {
            **self._where(),
            "query": self.query,
            "mark": f"'{owner_mark(self.owner)}'",
            "limit": self.limit,
        }
        asked = list(self.asked)
        return [
            Found(session, message, words.snippet(words.said(body), asked), score)
            for session, message, body, score in connection.execute(sql.SEARCH, named)
        ]

    def _where(self) -> dict[str, Any]:
        return {"owner": self.owner, "session": self.session}


def owner_mark(owner: int) -> str:
    """A word of all messages of this owner; with its dot it cannot come from a text."""
    return f"o{owner}.sennit"
