"""SQL statements of the integrity checks and repairs; the first column of a query names the row."""

from typing import Final, LiteralString

from sennit.stores.postgres import statements as postgres
from sennit.stores.sql.connection import Sql
from sennit.stores.sqlite import statements as sqlite

TOUCH_SESSIONS: Final = Sql("UPDATE sennit.sessions SET updated = updated + 1")
TOUCH_BRANCHES: Final = Sql("""
    UPDATE sennit.branches SET version = version + 1 WHERE owner = %s AND session = %s""")


def _without(parent: LiteralString, key: LiteralString) -> LiteralString:
    """Return the condition that a row `x` has no parent `p`."""
    return f"NOT EXISTS (SELECT 1 FROM sennit.{parent} p WHERE p.owner = x.owner AND {key})"


_NO_SESSION: Final = _without("sessions", "p.no = x.session")
_NO_BRANCH: Final = _without("branches", "p.session = x.session AND p.id = x.branch")
_NO_MESSAGE: Final = _without("messages", "p.session = x.session AND p.no = x.message")
_NO_RUN: Final = _without("runs", "p.journal = x.journal AND p.no = x.run")
_NO_FILE: Final = _without("files", "p.no = x.file")
_NO_VERSION: Final = _without("versions", "p.file = x.no")


def strays(
    table: LiteralString,
    name: LiteralString,
    condition: LiteralString,
    sqlite_condition: LiteralString | None = None,
) -> tuple[Sql, Sql]:
    """Return the query for rows under a condition, and the statement that deletes them."""
    rows = f"FROM sennit.{table} AS x WHERE "
    in_sqlite = rows + (sqlite_condition or condition)
    return (
        Sql(f"SELECT {name} {rows}{condition}", f"SELECT {name} {in_sqlite}"),
        Sql(f"DELETE {rows}{condition}", f"DELETE {in_sqlite}"),
    )


ENTRIES: Final = strays(
    "entries", "x.segment || ':' || x.pos", _without("segments", "p.no = x.segment")
)
LEASES: Final = strays("leases", "x.holder", _NO_BRANCH)
JOURNALS: Final = strays("journals", "'journal ' || x.no", _NO_BRANCH)
RUNS: Final = strays(
    "runs", "'run ' || x.journal || ':' || x.no", _without("journals", "p.no = x.journal")
)
EVENTS: Final = strays(
    "events",
    "'event ' || x.journal || ':' || x.seq",
    _NO_RUN,
    f"""{_NO_RUN}
    OR typeof(x.message) = 'integer' AND {_without("messages", "p.no = x.message")}""",
)
COMMITS: Final = strays("commits", "'commit ' || x.number", _NO_SESSION)
USES: Final = strays("uses", "'a use of session ' || x.session", _NO_SESSION)
ARCHIVED: Final = strays(
    "archived",
    "'commit ' || x.number || ' of session ' || x.session",
    f"{_NO_MESSAGE} OR {_without('commits', 'p.session = x.session AND p.number = x.number')}",
)
EMPTY_FILES: Final = strays("files", "x.path", _NO_VERSION)
EVIDENCE: Final = strays(
    "evidence", "'evidence of version ' || x.version", _without("versions", "p.no = x.version")
)
LABELS: Final = strays("labels", "'label by ' || x.judge", _NO_MESSAGE)
CALL_STARTS: Final = strays(
    "starts",
    "'starts of message ' || x.message",
    _without("messages", "p.session = x.session AND p.id = x.message"),
    _NO_MESSAGE,
)
DETACHED_STRAYS: Final = strays("detached", "'message ' || x.message", _NO_MESSAGE)
WORDS: Final = strays("words", "DISTINCT 'words of message ' || x.message", _NO_MESSAGE)

_NO_BLOB: Final = _without("blobs", "p.no = x.blob")
STRAY_CHUNKS: Final = strays("blob_chunks", "'a piece of blob ' || x.blob", _NO_BLOB)
STRAY_BLOB_REFS: Final = strays(
    "blob_refs",
    "'blob ' || x.blob || ' of message ' || x.message",
    f"{_NO_MESSAGE} OR {_NO_BLOB}",
)
BLOBS: Final = Sql("""
    SELECT owner, hash, size FROM sennit.blobs WHERE hash IS NOT NULL ORDER BY no""")
BLOB_NUMBERS: Final = Sql("""
    SELECT owner, hash, no FROM sennit.blobs WHERE hash IS NOT NULL""")
BLOB_REFS: Final = Sql("SELECT owner, session, message, blob FROM sennit.blob_refs")
NAMING_BLOBS: Final = Sql("""
    SELECT owner, session, no, id, created, body FROM sennit.messages
    WHERE position('sennit-blob:sha256:' IN body) > 0""")

NOBODYS: Final = Sql("""
    SELECT 'message ' || no FROM sennit.messages
    WHERE owner NOT IN (SELECT no FROM sennit.owners)
    UNION ALL
    SELECT 'session ' || no FROM sennit.sessions
    WHERE owner NOT IN (SELECT no FROM sennit.owners)""")

LOST_SESSIONS: Final = Sql(f"""
    SELECT owner, session FROM (
        SELECT owner, session FROM sennit.messages UNION
        SELECT owner, session FROM sennit.segments UNION
        SELECT owner, session FROM sennit.branches
    ) AS x
    WHERE owner IN (SELECT no FROM sennit.owners) AND {_NO_SESSION}""")
# In PostgreSQL their words come with them: the mark stands behind the last message that has some.
ADD_SESSION: Final = Sql(
    """
    INSERT INTO sennit.sessions (owner, id, key, sender, created, updated, metadata, indexed,
                                 unindexed)
    SELECT %(owner)s, %(id)s, NULL, 'user', %(now)s, %(now)s, '{"recovered":true}',
           coalesce(max(message), 0), true
    FROM sennit.words WHERE owner = %(owner)s AND session = %(session)s
    RETURNING no""",
    """
    INSERT INTO sessions (owner, id, key, sender, created, updated, metadata, checksum)
    VALUES (:owner, :id, NULL, 'user', :now, :now, '{"recovered":true}',
            row_checksum(:id, NULL, 'user', :now, '{"recovered":true}')) RETURNING no""",
)


def move_rows(table: LiteralString) -> Sql:
    """Return the statement that moves the rows of a table to another session."""
    return Sql(f"UPDATE sennit.{table} SET session = %s WHERE owner = %s AND session = %s")


MOVE_ROWS: Final = (
    *(move_rows("messages"), move_rows("segments"), move_rows("branches"), move_rows("leases")),
    *(move_rows("journals"), move_rows("commits"), move_rows("archived"), move_rows("uses")),
    *(move_rows("starts"), move_rows("labels"), move_rows("detached")),
)

_LOST_SYSTEM: Final = f"""x.system IS NOT NULL
    AND {_without("messages", "p.session = x.session AND p.no = x.system")}"""
LOST_SYSTEMS: Final = Sql(f"SELECT name FROM sennit.branches x WHERE {_LOST_SYSTEM}")
FORGET_SYSTEMS: Final = Sql(
    f"""
    UPDATE sennit.branches AS x SET system = NULL, version = version + 1 WHERE {_LOST_SYSTEM}""",
    f"""
    UPDATE branches AS x SET system = NULL, version = version + 1, checksum = row_checksum(
        id, name, created, NULL, segment, resources, capabilities, metadata)
    WHERE {_LOST_SYSTEM}""",
)
_NO_TAIL: Final = _without("segments", "p.session = x.session AND p.no = x.segment")
LOST_TAILS: Final = Sql(f"SELECT name, owner, session, id FROM sennit.branches x WHERE {_NO_TAIL}")
ADD_SEGMENT: Final = Sql(postgres.ADD_SEGMENT, sqlite.ADD_SEGMENT)
SET_TAIL: Final = Sql(
    """
    UPDATE sennit.branches SET segment = %(segment)s, tail = %(tail)s, length = 0,
                               version = version + 1, checksum = '\\x0000000000000000'
    WHERE owner = %(owner)s AND session = %(session)s AND id = %(branch)s""",
    """
    UPDATE branches SET segment = :segment, version = version + 1, checksum = row_checksum(
        id, name, created, system, :segment, resources, capabilities, metadata)
    WHERE owner = :owner AND session = :session AND id = :branch""",
)

BASES: Final = Sql("SELECT no, base, owner, session FROM sennit.segments ORDER BY no")
SET_BASE: Final = Sql(
    """
    UPDATE sennit.segments SET base = %(base)s, start = %(start)s
    WHERE owner = %(owner)s AND session = %(session)s AND no = %(segment)s""",
    """
    UPDATE segments SET base = :base, start = :start, checksum = row_checksum(id, :base, :start)
    WHERE no = :segment""",
)
LOST_ENTRIES: Final = Sql("""
    SELECT e.segment || ':' || e.pos, s.owner, s.session FROM sennit.entries e
    JOIN sennit.segments s ON s.no = e.segment AND s.owner = e.owner
    LEFT JOIN sennit.messages m
      ON m.no = e.message AND m.owner = e.owner AND m.session = s.session
    WHERE m.no IS NULL""")
GAPS: Final = Sql("""
    SELECT e.segment, s.owner, s.session FROM sennit.entries e
    JOIN sennit.segments s ON s.no = e.segment AND s.owner = e.owner
    GROUP BY e.segment, s.owner, s.session
    HAVING min(e.pos) <> 0 OR max(e.pos) <> count(*) - 1""")
WRONG_STARTS: Final = Sql("""
    SELECT s.no, s.owner, s.session FROM sennit.segments s
    LEFT JOIN sennit.segments b
      ON b.owner = s.owner AND b.session = s.session AND b.no = s.base
    WHERE (s.base IS NULL AND s.start <> 0) OR s.start < b.start
       OR s.start > b.start + coalesce((SELECT max(pos) + 1 FROM sennit.entries e
                                        WHERE e.owner = b.owner AND e.segment = b.no), 0)""")
SEGMENTS_TO_RELAY: Final = Sql("""
    SELECT no, base, start FROM sennit.segments WHERE owner = %s AND session = %s ORDER BY no""")
_ENTRIES: Final = """
    SELECT e.pos, e.message, m.id FROM sennit.entries e
    JOIN sennit.messages m ON m.owner = e.owner AND m.no = e.message
    WHERE e.owner = %s AND e.segment = %s"""
ENTRIES_TO_RELAY: Final = Sql(f"{_ENTRIES} AND m.session = %s ORDER BY e.pos")
ENTRIES_OF_SEGMENT: Final = Sql(f"{_ENTRIES} ORDER BY e.pos")
DELETE_ENTRIES: Final = Sql("DELETE FROM sennit.entries WHERE owner = %s AND segment = %s")
ADD_ENTRY: Final = Sql("""
    INSERT INTO sennit.entries (checksum, owner, segment, pos, message)
    VALUES (%s, %s, %s, %s, %s)""")
SET_ENTRY_CHECKSUM: Final = Sql("""
    UPDATE sennit.entries SET checksum = %s WHERE owner = %s AND segment = %s AND pos = %s""")
ENTRY_CHECKSUMS: Final = Sql("""
    SELECT e.owner, e.segment, e.pos, m.id, e.checksum FROM sennit.entries e
    JOIN sennit.messages m ON m.owner = e.owner AND m.no = e.message
    ORDER BY e.owner, e.segment, e.pos""")
DELETE_SEGMENT: Final = Sql(
    "DELETE FROM sennit.segments WHERE owner = %s AND session = %s AND no = %s"
)

TAILS: Final = Sql("SELECT segment FROM sennit.branches")
STARTS: Final = Sql("SELECT no, base, start FROM sennit.segments")
POSITIONS: Final = Sql("SELECT segment, pos, message FROM sennit.entries")
SYSTEMS_AND_ARCHIVED: Final = Sql("""
    SELECT system FROM sennit.branches WHERE system IS NOT NULL
    UNION ALL SELECT message FROM sennit.archived""")
DETACHED: Final = Sql("""
    SELECT m.owner, m.session, m.no, EXISTS (
        SELECT 1 FROM sennit.detached d
        WHERE d.owner = m.owner AND d.session = m.session AND d.message = m.no)
    FROM sennit.messages m ORDER BY m.no""")
ADD_DETACHED: Final = Sql(
    "INSERT INTO sennit.detached (owner, session, message) VALUES (%s, %s, %s)"
)
DROP_DETACHED: Final = Sql(
    "DELETE FROM sennit.detached WHERE owner = %s AND session = %s AND message = %s"
)
LOOSE_MESSAGES: Final = Sql("""
    SELECT m.id FROM sennit.messages m
    WHERE NOT EXISTS (SELECT 1 FROM sennit.entries e WHERE e.owner = m.owner AND e.message = m.no)
      AND NOT EXISTS (
        SELECT 1 FROM sennit.branches b WHERE b.owner = m.owner AND b.system = m.no)
    ORDER BY m.owner, m.session, m.no""")

LOST_VERSIONS: Final = Sql(f"SELECT 'version ' || x.no FROM sennit.versions x WHERE {_NO_FILE}")
_LOST_FILES: Final = f"""'recovered/' || x.file || '.md', NULL, min(x.written), 0, max(x.number)
    FROM sennit.versions x WHERE {_NO_FILE} GROUP BY x.owner, x.file"""
RECOVER_FILES: Final = Sql(
    f"""
    INSERT INTO sennit.files (no, owner, id, path, category, created, active, latest)
    OVERRIDING SYSTEM VALUE
    SELECT x.file, x.owner, gen_random_uuid(), {_LOST_FILES}""",
    f"""
    INSERT INTO files (no, owner, id, path, category, created, active, latest)
    SELECT x.file, x.owner, randomblob(16), {_LOST_FILES}""",
)
_LAST: Final = """(
        SELECT max(v.number) FROM sennit.versions v WHERE v.owner = x.owner AND v.file = x.no)"""
WRONG_LATEST: Final = Sql(f"SELECT path FROM sennit.files x WHERE latest <> {_LAST}")
SET_LATEST: Final = Sql(f"UPDATE sennit.files AS x SET latest = {_LAST} WHERE latest <> {_LAST}")

BODIES: Final = Sql(
    "SELECT id, created, body, checksum FROM sennit.messages ORDER BY owner, session, no",
    "SELECT id, created, body, checksum FROM messages ORDER BY no",
)
SET_CHECKSUM: Final = Sql("""
    UPDATE sennit.messages SET checksum = %s WHERE id = %s AND created = %s AND body = %s""")
JSON_COLUMNS: Final = Sql("""
    SELECT 'session ' || no, metadata, '[]', '[]' FROM sennit.sessions
    UNION ALL
    SELECT 'branch ' || name, metadata, resources, capabilities FROM sennit.branches
    UNION ALL
    SELECT 'version ' || no, info, '[]', '[]' FROM sennit.versions""")
