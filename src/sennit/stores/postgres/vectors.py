"""Vectors in PostgreSQL, on pgvector.

The table is created on first use, because not every server has the extension and a store without an
embedder needs none. A vector is deleted with its message or version, by a foreign key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sennit.errors import StoreError
from sennit.stores.postgres import vector_statements as sql
from sennit.stores.records.vectors import Embedded, Unembedded, unit
from sennit.stores.sql.connection import SqlConnection
from sennit.stores.sql.search import unembedded_in


def prepare(connection: SqlConnection) -> None:
    """Create the table if it does not exist; raises StoreError if pgvector is not available."""
    if connection.rows(sql.IS_PREPARED)[0][0]:
        return
    if not connection.rows(sql.IS_AVAILABLE)[0][0]:
        raise StoreError(
            "This PostgreSQL server cannot store embeddings: install the extension pgvector on the "
            "server, or open the store without an embedder."
        )
    for statement in sql.PREPARE:
        connection.run(statement)


def unembedded(connection: SqlConnection, owner: int, model: str, limit: int) -> list[Unembedded]:
    """Return items without a vector, messages before files."""
    values = {"owner": owner, "model": model}
    messages = connection.rows(sql.UNEMBEDDED_MESSAGES, **values, limit=limit)
    files = connection.rows(sql.UNEMBEDDED_FILES, **values, limit=limit - len(messages))
    return unembedded_in(connection, messages, files)


def put(connection: SqlConnection, owner: int, model: str, embedded: Sequence[Embedded]) -> None:
    """Store vectors."""
    messages = [item for item in embedded if item.place > 0]
    connection.run(sql.ADD_MESSAGES, **_columns(owner, model, messages))
    files = [item for item in embedded if item.place < 0]
    connection.run(sql.ADD_FILES, **_columns(owner, model, files))


def _columns(owner: int, model: str, embedded: Sequence[Embedded]) -> dict[str, Any]:
    return {
        "owner": owner,
        "model": model,
        "places": [item.place for item in embedded],
        "ids": [item.id for item in embedded],
        "vectors": [_vector_literal(item.vector) for item in embedded],
    }


def nearest(
    connection: SqlConnection,
    owner: int,
    model: str,
    vector: Sequence[float],
    limit: int,
    also: Sequence[int],
) -> dict[int, float]:
    """Return the cosines of the nearest places, and of those in `also`."""
    values: dict[str, Any] = {"owner": owner, "model": model, "vector": _vector_literal(vector)}
    cosines: dict[int, float] = dict(connection.rows(sql.NEAREST, **values, limit=limit))
    if also:
        messages = [place for place in also if place > 0]
        versions = [-place for place in also if place < 0]
        cosines |= dict(connection.rows(sql.ALSO, **values, messages=messages, versions=versions))
    return cosines


def _vector_literal(vector: Sequence[float]) -> str:
    return "[" + ",".join(f"{value:.6g}" for value in unit(vector)) + "]"
