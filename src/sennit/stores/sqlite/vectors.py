"""Vectors of one owner and embedder in SQLite."""

from __future__ import annotations

from collections.abc import Sequence

from sennit.stores.records.vectors import Embedded, Unembedded
from sennit.stores.search.vector_matrix import VectorMatrix, packed
from sennit.stores.sql.connection import Row, SqlConnection
from sennit.stores.sql.search import unembedded_in
from sennit.stores.sqlite import vector_statements as sql

_NO_SERIES = (0, 0, 0, 0)


def unembedded(connection: SqlConnection, owner: int, model: str, limit: int) -> list[Unembedded]:
    """Return items without a vector, messages before files."""
    series, message_mark, file_mark, _ = _series(connection, owner, model)
    values = {"owner": owner, "series": series}
    messages = connection.rows(sql.UNEMBEDDED_MESSAGES, **values, mark=message_mark, limit=limit)
    rest = limit - len(messages)
    files = connection.rows(sql.UNEMBEDDED_FILES, **values, mark=file_mark, limit=rest)
    return unembedded_in(connection, messages, files)


def put(connection: SqlConnection, owner: int, model: str, embedded: Sequence[Embedded]) -> None:
    """Store vectors, and advance the marks of embedded messages and files."""
    connection.run(sql.ADD_SERIES, owner, model)
    series = _series(connection, owner, model)[0]
    for item in embedded:
        statement = sql.ADD_MESSAGE_VECTOR if item.place > 0 else sql.ADD_FILE_VECTOR
        connection.run(statement, series, packed(item.vector), owner, item.place, item.id)
    messages = max((item.place for item in embedded), default=0)
    files = max((-item.place for item in embedded), default=0)
    connection.run(sql.SET_MARKS, max(0, messages), max(0, files), series)


def continued(
    connection: SqlConnection, owner: int, model: str, matrix: VectorMatrix
) -> VectorMatrix:
    """Return the matrix with the new vectors, or a new one if something was erased."""
    series, _, _, erased = _series(connection, owner, model)
    if matrix.erased != erased:
        matrix = VectorMatrix()
        matrix.erased = erased
    rows = connection.rows(sql.VECTORS, series, matrix.last)
    matrix.add([(place, vector) for _, place, vector in rows])
    matrix.last = rows[-1][0] if rows else matrix.last
    return matrix


def _series(connection: SqlConnection, owner: int, model: str) -> Row:
    return next(iter(connection.rows(sql.FIND_SERIES, owner, model)), _NO_SERIES)
