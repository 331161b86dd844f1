"""Vectors of one owner and embedder in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from sennit.ids import id_from_bytes
from sennit.stores.records.vectors import Embedded, Unembedded
from sennit.stores.search import tokenizer
from sennit.stores.search.vector_matrix import VectorMatrix, packed
from sennit.stores.sqlite import vector_statements as sql

_NO_SERIES = (0, 0, 0, 0)


def unembedded(
    connection: sqlite3.Connection, owner: int, model: str, limit: int
) -> list[Unembedded]:
    """Return items without a vector, messages before files."""
    series, messages, files, _ = _series(connection, owner, model)
    values = {"owner": owner, "series": series, "limit": limit}
    rows = connection.execute(sql.UNEMBEDDED_MESSAGES, {**values, "mark": messages}).fetchall()
    items = [
        Unembedded(number, id_from_bytes(uid), tokenizer.embedded_text(body, created))
        for number, uid, created, body in rows
    ]
    values["limit"] = limit - len(items)
    rows = connection.execute(sql.UNEMBEDDED_FILES, {**values, "mark": files}).fetchall()
    return items + [
        Unembedded(place, id_from_bytes(uid), body.decode(errors="replace"))
        for place, uid, body in rows
    ]


def put(
    connection: sqlite3.Connection, owner: int, model: str, embedded: Sequence[Embedded]
) -> None:
    """Store vectors, and advance the marks of embedded messages and files."""
    connection.execute(sql.ADD_SERIES, (owner, model))
    series = _series(connection, owner, model)[0]
    for item in embedded:
        statement = sql.ADD_MESSAGE_VECTOR if item.place > 0 else sql.ADD_FILE_VECTOR
        values = (series, packed(item.vector), owner, item.place, item.id.bytes)
        connection.execute(statement, values)
    messages = max((item.place for item in embedded), default=0)
    files = max((-item.place for item in embedded), default=0)
    connection.execute(sql.SET_MARKS, (max(0, messages), max(0, files), series))


def continued(
    connection: sqlite3.Connection, owner: int, model: str, matrix: VectorMatrix
) -> VectorMatrix:
    """Return the matrix with the new vectors, or a new one if something was erased."""
    series, _, _, erased = _series(connection, owner, model)
    if matrix.erased != erased:
        matrix = VectorMatrix()
        matrix.erased = erased
    rows = connection.execute(sql.VECTORS, (series, matrix.last)).fetchall()
    matrix.add([(place, vector) for _, place, vector in rows])
    matrix.last = rows[-1][0] if rows else matrix.last
    return matrix


def _series(connection: sqlite3.Connection, owner: int, model: str) -> Any:
    return connection.execute(sql.FIND_SERIES, (owner, model)).fetchone() or _NO_SERIES
