"""Vectors in PostgreSQL, on pgvector.

The table is created on first use, because not every server has the extension and a store without an
embedder needs none. A vector is deleted with its message or version, by a foreign key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sennit.errors import StoreError
from sennit.stores.records.vectors import Embedded, Unembedded, unit
from sennit.stores.sql.connection import SqlConnection
from sennit.stores.sql.search import unembedded_in

# Half the bytes of a plain vector; its length is not fixed, as embedders differ.
PREPARE: Final = (
    "SELECT pg_advisory_xact_lock(hashtext('sennit.vectors'))",
    "CREATE EXTENSION IF NOT EXISTS vector",
    """CREATE TABLE IF NOT EXISTS sennit.vectors (
        no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        owner integer NOT NULL,
        model text NOT NULL,
        session bigint,
        message bigint,
        version bigint,
        vector halfvec NOT NULL,
        UNIQUE (owner, model, message),
        UNIQUE (owner, model, version),
        FOREIGN KEY (owner, session, message)
            REFERENCES sennit.messages (owner, session, no) ON DELETE CASCADE ON UPDATE CASCADE,
        FOREIGN KEY (owner, version) REFERENCES sennit.versions (owner, no) ON DELETE CASCADE
    )""",
    """CREATE INDEX IF NOT EXISTS vectors_message
       ON sennit.vectors (owner, session, message) WHERE message IS NOT NULL""",
    """CREATE INDEX IF NOT EXISTS vectors_version
       ON sennit.vectors (owner, version) WHERE version IS NOT NULL""",
)
IS_AVAILABLE: Final = "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector')"
IS_PREPARED: Final = "SELECT to_regclass('sennit.vectors') IS NOT NULL"

# Numbers are given before commits, so a lower one may appear after a higher one: the last thousand
# before the mark are looked at again.
UNEMBEDDED_MESSAGES: Final = """
    SELECT m.no, m.id, m.created, m.body FROM sennit.messages m
    WHERE m.owner = %(owner)s AND m.no > -1000 + coalesce(
        (SELECT max(message) FROM sennit.vectors WHERE owner = %(owner)s AND model = %(model)s), 0)
      AND NOT EXISTS (
        SELECT FROM sennit.vectors v
        WHERE v.owner = %(owner)s AND v.model = %(model)s AND v.message = m.no)
      AND NOT EXISTS (
        SELECT FROM sennit.detached d
        WHERE d.owner = m.owner AND d.session = m.session AND d.message = m.no)
    ORDER BY m.no LIMIT %(limit)s"""
UNEMBEDDED_FILES: Final = """
    SELECT -v.no, f.id, v.body FROM sennit.versions v
    JOIN sennit.files f ON f.owner = v.owner AND f.no = v.file
    WHERE v.owner = %(owner)s AND NOT EXISTS (
        SELECT FROM sennit.vectors x
        WHERE x.owner = %(owner)s AND x.model = %(model)s AND x.version = v.no)
    ORDER BY v.no LIMIT %(limit)s"""
ADD_MESSAGES: Final = """
    INSERT INTO sennit.vectors (owner, model, session, message, vector)
    SELECT %(owner)s, %(model)s, m.session, m.no, g.vector::halfvec
    FROM unnest(%(places)s::bigint[], %(ids)s::uuid[], %(vectors)s::text[]) AS g (no, id, vector)
    JOIN sennit.messages m ON m.owner = %(owner)s AND m.no = g.no AND m.id = g.id
    ON CONFLICT DO NOTHING"""
ADD_FILES: Final = """
    INSERT INTO sennit.vectors (owner, model, version, vector)
    SELECT %(owner)s, %(model)s, v.no, g.vector::halfvec
    FROM unnest(%(places)s::bigint[], %(ids)s::uuid[], %(vectors)s::text[]) AS g (no, id, vector)
    JOIN sennit.versions v ON v.owner = %(owner)s AND v.no = -g.no
    JOIN sennit.files f ON f.owner = v.owner AND f.no = v.file AND f.id = g.id
    ON CONFLICT DO NOTHING"""
NEAREST: Final = """
    SELECT coalesce(message, -version), 1 - (vector <=> %(vector)s::halfvec)
    FROM sennit.vectors WHERE owner = %(owner)s AND model = %(model)s
    ORDER BY vector <=> %(vector)s::halfvec LIMIT %(limit)s"""
ALSO: Final = """
    SELECT coalesce(message, -version), 1 - (vector <=> %(vector)s::halfvec)
    FROM sennit.vectors WHERE owner = %(owner)s AND model = %(model)s
      AND (message = ANY (%(messages)s::bigint[]) OR version = ANY (%(versions)s::bigint[]))"""


def prepare(connection: SqlConnection) -> None:
    """Create the table if it does not exist; raises StoreError if pgvector is not available."""
    if connection.rows(IS_PREPARED)[0][0]:
        return
    if not connection.rows(IS_AVAILABLE)[0][0]:
        raise StoreError(
            "This PostgreSQL server cannot store embeddings: install the extension pgvector on the "
            "server, or open the store without an embedder."
        )
    for statement in PREPARE:
        connection.run(statement)


def unembedded(connection: SqlConnection, owner: int, model: str, limit: int) -> list[Unembedded]:
    """Return items without a vector, messages before files."""
    values = {"owner": owner, "model": model}
    messages = connection.rows(UNEMBEDDED_MESSAGES, **values, limit=limit)
    files = connection.rows(UNEMBEDDED_FILES, **values, limit=limit - len(messages))
    return unembedded_in(connection, messages, files)


def put(connection: SqlConnection, owner: int, model: str, embedded: Sequence[Embedded]) -> None:
    """Store vectors."""
    messages = [item for item in embedded if item.place > 0]
    connection.run(ADD_MESSAGES, **_columns(owner, model, messages))
    files = [item for item in embedded if item.place < 0]
    connection.run(ADD_FILES, **_columns(owner, model, files))


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
    cosines: dict[int, float] = dict(connection.rows(NEAREST, **values, limit=limit))
    if also:
        messages = [place for place in also if place > 0]
        versions = [-place for place in also if place < 0]
        cosines |= dict(connection.rows(ALSO, **values, messages=messages, versions=versions))
    return cosines


def _vector_literal(vector: Sequence[float]) -> str:
    return "[" + ",".join(f"{value:.6g}" for value in unit(vector)) + "]"
