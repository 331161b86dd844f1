"""Vectors of one owner and embedder in SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sennit.stores.records.vectors import Embedded, Unembedded
from sennit.stores.search.vector_matrix import VectorMatrix, packed
from sennit.stores.sql.connection import Row, SqlConnection
from sennit.stores.sql.search import unembedded_in

FIND_SERIES: Final = "SELECT no, messages, files, erased FROM series WHERE owner = ? AND model = ?"
ADD_SERIES: Final = """
    INSERT INTO series (owner, model, messages, files, erased) VALUES (?, ?, 0, 0, 0)
    ON CONFLICT DO NOTHING"""
SET_MARKS: Final = (
    "UPDATE series SET messages = max(messages, ?), files = max(files, ?) WHERE no = ?"
)
UNEMBEDDED_MESSAGES: Final = """
    SELECT m.no, m.id, m.created, m.body FROM messages m
    WHERE m.no > :mark AND m.owner = :owner AND NOT EXISTS (
        SELECT 1 FROM vectors v WHERE v.series = :series AND v.place = m.no)
      AND NOT EXISTS (
        SELECT 1 FROM detached d
        WHERE d.owner = m.owner AND d.session = m.session AND d.message = m.no)
    ORDER BY m.no LIMIT :limit"""
UNEMBEDDED_FILES: Final = """
    SELECT -v.no, f.id, v.body FROM versions v
    JOIN files f ON f.owner = v.owner AND f.no = v.file
    WHERE v.no > :mark AND v.owner = :owner AND NOT EXISTS (
        SELECT 1 FROM vectors x WHERE x.series = :series AND x.place = -v.no)
    ORDER BY v.no LIMIT :limit"""
ADD_MESSAGE_VECTOR: Final = """
    INSERT INTO vectors (series, place, vector) SELECT ?, no, ? FROM messages
    WHERE owner = ? AND no = ? AND id = ? ON CONFLICT DO NOTHING"""
ADD_FILE_VECTOR: Final = """
    INSERT INTO vectors (series, place, vector)
    SELECT ?, -v.no, ? FROM versions v JOIN files f ON f.owner = v.owner AND f.no = v.file
    WHERE v.owner = ? AND -v.no = ? AND f.id = ? ON CONFLICT DO NOTHING"""
VECTORS: Final = "SELECT no, place, vector FROM vectors WHERE series = ? AND no > ? ORDER BY no"

_NO_SERIES = (0, 0, 0, 0)


def unembedded(connection: SqlConnection, owner: int, model: str, limit: int) -> list[Unembedded]:
    """Return items without a vector, messages before files."""
    series, message_mark, file_mark, _ = _series(connection, owner, model)
    values = {"owner": owner, "series": series}
    messages = connection.rows(UNEMBEDDED_MESSAGES, **values, mark=message_mark, limit=limit)
    rest = limit - len(messages)
    files = connection.rows(UNEMBEDDED_FILES, **values, mark=file_mark, limit=rest)
    return unembedded_in(connection, messages, files)


def put(connection: SqlConnection, owner: int, model: str, embedded: Sequence[Embedded]) -> None:
    """Store vectors, and advance the marks of embedded messages and files."""
    connection.run(ADD_SERIES, owner, model)
    series = _series(connection, owner, model)[0]
    for item in embedded:
        statement = ADD_MESSAGE_VECTOR if item.place > 0 else ADD_FILE_VECTOR
        connection.run(statement, series, packed(item.vector), owner, item.place, item.id)
    messages = max((item.place for item in embedded), default=0)
    files = max((-item.place for item in embedded), default=0)
    connection.run(SET_MARKS, max(0, messages), max(0, files), series)


def continued(
    connection: SqlConnection, owner: int, model: str, matrix: VectorMatrix
) -> VectorMatrix:
    """Return the matrix with the new vectors, or a new one if something was erased."""
    series, _, _, erased = _series(connection, owner, model)
    if matrix.erased != erased:
        matrix = VectorMatrix()
        matrix.erased = erased
    rows = connection.rows(VECTORS, series, matrix.last)
    matrix.add([(place, vector) for _, place, vector in rows])
    matrix.last = rows[-1][0] if rows else matrix.last
    return matrix


def _series(connection: SqlConnection, owner: int, model: str) -> Row:
    return next(iter(connection.rows(FIND_SERIES, owner, model)), _NO_SERIES)
