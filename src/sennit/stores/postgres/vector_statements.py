"""SQL statements about vectors in PostgreSQL."""

from typing import Final

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
