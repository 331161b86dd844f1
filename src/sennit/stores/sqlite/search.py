"""The search of the SQLite store: by words in a full-text index, by vectors in a matrix.

The index has no owner term, because FTS5 would read the whole posting list of such a term for every
search. In the usual file with one owner the index alone decides; otherwise its matches are filtered
by the owner's rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import count
from threading import Lock

from sennit.stores.records.search import FileHit, FileQuery, Hit, StoredMessage, TextQuery
from sennit.stores.records.sessions import Owner
from sennit.stores.records.vectors import Embedded, Unembedded
from sennit.stores.search import tokenizer
from sennit.stores.search.vector_matrix import VectorMatrix
from sennit.stores.sql.connection import Row, SqlConnection
from sennit.stores.sql.search import file_hits_in, hit_in, messages_in
from sennit.stores.sql.store import SqlStore
from sennit.stores.sqlite import search_statements as sql
from sennit.stores.sqlite import vectors
from sennit.stores.sqlite.erase import SQLiteErasing
from sennit.stores.sqlite.search_rows import index_more, is_complete

_INDEX_PAUSE_S = 0.001


class SQLiteSearch(SqlStore, SQLiteErasing):
    """The search methods of the SQLite store."""

    def __init__(self) -> None:
        self._matrix_lock = Lock()
        self._matrices: dict[tuple[Owner, str], VectorMatrix] = {}

    def _index_pending(self) -> None:
        """Index pending messages in batches, so that no writer waits long."""
        for batch in count():
            with self._snapshot() as connection:
                if is_complete(connection):
                    return
            if batch:  # let waiting threads have the lock
                time.sleep(_INDEX_PAUSE_S)
            with self._unsynced_transaction() as connection:
                index_more(connection)

    def hits(self, owner: Owner, asked: TextQuery) -> list[Hit]:
        """Return the best places for the words, best first."""
        if not asked.words:
            return []
        self._index_pending()

        def read(connection: SqlConnection) -> list[Hit]:
            number = self._number(connection, owner)
            narrow = (asked.session, asked.since, asked.until) != (None, None, None)
            among = narrow or connection.rows(sql.HAS_OTHERS, number)
            rows = connection.rows(
                sql.HITS_AMONG if among else sql.HITS,
                query=_query(asked.words),
                owner=number,
                session=asked.session,
                since=asked.since,
                until=asked.until,
                limit=asked.limit,
            )
            return [hit_in(_with_neighbours(row)) for row in rows]

        return self._read(read)

    def at_places(self, owner: Owner, places: Sequence[int]) -> list[StoredMessage]:
        """Return the messages at places from `hits`, in that order."""

        def read(connection: SqlConnection) -> list[StoredMessage]:
            number = self._number(connection, owner)
            rows = connection.rows(sql.AT_PLACES, number, list(places))
            return messages_in(connection, places, rows)

        return self._read(read)

    def file_hits(self, asked: FileQuery) -> list[FileHit]:
        """Return the best files for the words, best first."""
        if not asked.words and not asked.places:
            return []

        def read(connection: SqlConnection) -> list[FileHit]:
            if not connection.rows(sql.HAS_FILES):
                return []
            owners = {self._number(connection, owner): owner for owner in asked.owners}
            values: dict[str, object] = {
                "query": _query(asked.words),
                "owners": list(owners),
                "under": asked.under,
                "categories": list(asked.categories),
                "since": asked.since,
                "until": asked.until,
                "at": asked.at,
                "limit": asked.limit,
                "places": list(asked.places),
            }
            rows = connection.rows(sql.FILE_HITS, **values) if asked.words else []
            rows += connection.rows(sql.FILES_AT, **values) if asked.places else []
            return file_hits_in(connection, owners, rows)

        return self._read(read)

    def unembedded(self, owner: Owner, model: str, limit: int) -> list[Unembedded]:
        """Return items without a vector of this embedder, oldest first."""
        return self._read(
            lambda connection: vectors.unembedded(
                connection, self._number(connection, owner), model, limit
            )
        )

    def put_vectors(self, owner: Owner, model: str, embedded: Sequence[Embedded]) -> None:
        """Store vectors; those of erased items are dropped."""
        self._change(
            lambda connection: vectors.put(
                connection, self._number(connection, owner), model, embedded
            )
        )

    def nearest(
        self, owner: Owner, model: str, vector: Sequence[float], limit: int, also: Iterable[int]
    ) -> dict[int, float]:
        """Return the cosines of the nearest places, and of those in `also` that have a vector."""

        def read(connection: SqlConnection) -> VectorMatrix:
            number = self._number(connection, owner)
            cached = self._matrices.get((owner, model)) or VectorMatrix()
            return vectors.continued(connection, number, model, cached)

        with self._matrix_lock:
            matrix = self._matrices[owner, model] = self._read(read)
            return matrix.nearest(vector, limit, also)


def _with_neighbours(row: Row) -> Row:
    """Return the row of a hit with the joined numbers of its neighbours split."""
    *columns, before, after = row
    return *columns, _split_numbers(before), _split_numbers(after)


def _split_numbers(joined: str | None) -> Sequence[int]:
    return tuple(map(int, joined.split(","))) if joined else ()


def _query(words: Sequence[str]) -> str:
    return " OR ".join(f'"{tokenizer.space_letters(word)}"' for word in words)
