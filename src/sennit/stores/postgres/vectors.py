"""Vectors in PostgreSQL, on pgvector.

The table is created on first use, because not every server has the extension and a store without an
embedder needs none. A vector is deleted with its message or version, by a foreign key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sennit.errors import StoreError
from sennit.stores.postgres import vector_statements as sql
from sennit.stores.postgres.session_writer import Connection, fetch_one
from sennit.stores.records.vectors import Embedded, Unembedded, unit
from sennit.stores.search import tokenizer


def prepare(connection: Connection) -> None:
    """Create the table if it does not exist; raises StoreError if pgvector is not available."""
    if fetch_one(connection.execute(sql.IS_PREPARED))[0]:
        return
    if not fetch_one(connection.execute(sql.IS_AVAILABLE))[0]:
        raise StoreError(
            "This PostgreSQL server cannot store embeddings: install the extension pgvector on the "
            "server, or open the store without an embedder."
        )
    for statement in sql.PREPARE:
        connection.execute(statement)


def unembedded(connection: Connection, owner: int, model: str, limit: int) -> list[Unembedded]:
    """Return items without a vector, messages before files."""
    values = {"owner": owner, "model": model, "limit": limit}
    rows = connection.execute(sql.UNEMBEDDED_MESSAGES, values, binary=True).fetchall()
    items = [
        Unembedded(number, uid, tokenizer.embedded_text(body, created))
        for number, uid, created, body in rows
    ]
    values["limit"] = limit - len(items)
    rows = connection.execute(sql.UNEMBEDDED_FILES, values, binary=True).fetchall()
    return items + [
        Unembedded(place, uid, body.decode(errors="replace")) for place, uid, body in rows
    ]


def put(connection: Connection, owner: int, model: str, embedded: Sequence[Embedded]) -> None:
    """Keep vectors."""
    messages = [item for item in embedded if item.place > 0]
    connection.execute(sql.ADD_MESSAGES, _columns(owner, model, messages))
    files = [item for item in embedded if item.place < 0]
    connection.execute(sql.ADD_FILES, _columns(owner, model, files))


def _columns(owner: int, model: str, embedded: Sequence[Embedded]) -> dict[str, Any]:
    return {
        "owner": owner,
        "model": model,
        "places": [item.place for item in embedded],
        "ids": [item.id for item in embedded],
        "vectors": [_vector_literal(item.vector) for item in embedded],
    }


def nearest(
    connection: Connection,
    owner: int,
    model: str,
    vector: Sequence[float],
    limit: int,
    also: Sequence[int],
) -> dict[int, float]:
    """Return the cosines of the nearest places, and of those in `also`."""
    values = {
        "owner": owner,
        "model": model,
        "vector": _vector_literal(vector),
        "limit": limit,
        "messages": [place for place in also if place > 0],
        "versions": [-place for place in also if place < 0],
    }
    cosines = dict(connection.execute(sql.NEAREST, values).fetchall())
    return cosines | dict(connection.execute(sql.ALSO, values).fetchall()) if also else cosines


def _vector_literal(vector: Sequence[float]) -> str:
    return "[" + ",".join(f"{value:.6g}" for value in unit(vector)) + "]"
