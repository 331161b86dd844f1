"""The search of the PostgreSQL store: by words in a full-text index, by vectors on pgvector.

Building a tsvector takes as long as the rest of an append, so a write only flags its session as
unindexed. A search first indexes those sessions in batches, past a mark per session. One mark for
the whole table would not do: numbers are assigned before commit, so a lower one may become visible
after a higher one. Within a session they become visible in order, as writers lock its row.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from sennit.stores.postgres import search_statements as sql
from sennit.stores.postgres import vectors
from sennit.stores.postgres.search_rows import PIECE, add_words, owner_mark
from sennit.stores.records.search import FileHit, FileQuery, Hit, StoredMessage, TextQuery
from sennit.stores.records.sessions import Owner
from sennit.stores.records.vectors import Embedded, Unembedded
from sennit.stores.search import tokenizer
from sennit.stores.sql.connection import SqlConnection
from sennit.stores.sql.search import file_hits_in, hit_in, messages_in
from sennit.stores.sql.store import SqlStore

_T = TypeVar("_T")

_BATCH_SESSIONS = 100
_BATCH = 200


class PostgresSearch(SqlStore):
    """The search methods of the PostgreSQL store."""

    def __init__(self) -> None:
        self._has_vectors = False

    @abstractmethod
    def _run(self, work: Callable[[SqlConnection], _T]) -> _T:
        """Run work on a connection, each statement for itself."""

    def hits(self, owner: Owner, asked: TextQuery) -> list[Hit]:
        """Return the best places for the words, best first."""
        words = lexemes(asked.words)
        if not words:
            return []
        number = self._run(lambda connection: self._number(connection, owner))
        where = {"owner": number, "session": asked.session}
        while self._run(lambda connection: connection.rows(sql.IS_UNINDEXED, **where))[0][0]:
            self._change(lambda connection: _index_messages(connection, number, asked))
        rows = self._run(
            lambda connection: connection.rows(
                sql.HITS,
                **where,
                words=words,
                mark=f"'{owner_mark(number)}'",
                since=asked.since,
                until=asked.until,
                limit=asked.limit,
            )
        )
        return [hit_in(row) for row in rows]

    def at_places(self, owner: Owner, places: Sequence[int]) -> list[StoredMessage]:
        """Return the messages at places from `hits`, in that order."""

        def read(connection: SqlConnection) -> list[StoredMessage]:
            number = self._number(connection, owner)
            rows = connection.rows(sql.AT_PLACES, owner=number, places=list(places))
            return messages_in(connection, places, rows)

        return self._run(read)

    def file_hits(self, asked: FileQuery) -> list[FileHit]:
        """Return the best files for the words, best first."""
        words = lexemes(asked.words)
        if not words and not asked.places:
            return []

        def number_owners(connection: SqlConnection) -> dict[int, Owner]:
            return {self._number(connection, owner): owner for owner in asked.owners}

        def read(connection: SqlConnection) -> list[FileHit]:
            rows = connection.rows(
                sql.FILE_HITS,
                owners=list(owners),
                words=words,
                under=asked.under,
                categories=list(asked.categories),
                since=asked.since,
                until=asked.until,
                at=asked.at,
                limit=asked.limit,
                places=[-place for place in asked.places],
            )
            return file_hits_in(connection, owners, rows)

        owners = self._run(number_owners)
        while self._run(lambda connection: connection.rows(sql.HAS_UNINDEXED_FILES, list(owners)))[
            0
        ][0]:
            self._change(lambda connection: _index_files(connection, list(owners)))
        return self._run(read)

    def unembedded(self, owner: Owner, model: str, limit: int) -> list[Unembedded]:
        """Return items without a vector of this embedder, oldest first."""
        self._prepare_vectors()
        return self._run(
            lambda connection: vectors.unembedded(
                connection, self._number(connection, owner), model, limit
            )
        )

    def put_vectors(self, owner: Owner, model: str, embedded: Sequence[Embedded]) -> None:
        """Store vectors; those of erased items are dropped."""
        self._prepare_vectors()
        self._change(
            lambda connection: vectors.put(
                connection, self._number(connection, owner), model, embedded
            )
        )

    def nearest(
        self, owner: Owner, model: str, vector: Sequence[float], limit: int, also: Iterable[int]
    ) -> dict[int, float]:
        """Return the cosines of the nearest places, and of those in `also` that have a vector."""
        self._prepare_vectors()
        places = list(also)
        return self._run(
            lambda connection: vectors.nearest(
                connection, self._number(connection, owner), model, vector, limit, places
            )
        )

    def _prepare_vectors(self) -> None:
        """Create the vector table on first use: not every server has pgvector."""
        if not self._has_vectors:
            self._change(vectors.prepare)
            self._has_vectors = True


def _index_messages(connection: SqlConnection, owner: int, asked: TextQuery) -> None:
    """Index the next batch of messages, inside a transaction."""
    sessions: dict[int, int] = dict(
        connection.rows(
            sql.LOCK_UNINDEXED, owner=owner, session=asked.session, limit=_BATCH_SESSIONS
        )
    )
    rows = connection.rows(
        sql.UNINDEXED,
        owner=owner,
        sessions=list(sessions),
        marks=list(sessions.values()),
        limit=_BATCH,
    )
    add_words(connection, owner, [row for row in rows if row[3] is not None])
    marks: dict[int, int] = {session: number for session, number, *_ in rows}
    last = rows[-1][0] if len(rows) == _BATCH else None
    # A full batch may have ended inside its last session, and says nothing about later ones.
    done = [number for number in sessions if last is None or number <= last]
    connection.run(
        sql.SET_MARKS,
        owner=owner,
        sessions=done,
        marks=[marks.get(number, sessions[number]) for number in done],
        unindexed=[number == last for number in done],
    )


def _index_files(connection: SqlConnection, owners: list[int]) -> None:
    """Index the next batch of files, inside a transaction."""
    if rows := connection.rows(sql.UNINDEXED_FILES, owners, _BATCH):
        texts = [
            tokenizer.normalize(tokenizer.space_letters(body.decode(errors="replace")))
            for _, _, body in rows
        ]
        owner_numbers, versions, _ = map(list, zip(*rows, strict=True))
        words = [tokenizer.pieces(text, PIECE)[0] for text in texts]
        connection.run(sql.SET_FILE_WORDS, owner_numbers, versions, words)


def lexemes(words: Sequence[str]) -> list[str]:
    """Return the words as tsqueries, without those that have no lexemes."""
    return list(filter(None, map(_lexemes, words)))


def _lexemes(word: str) -> str:
    words = tokenizer.space_letters(tokenizer.normalize(word)).split()
    return (" <-> " if tokenizer.is_unspaced(word) else " & ").join(words)
