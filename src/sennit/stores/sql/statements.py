"""SQL statements about files and commits.

Whoever changes files has locked the rows of their owners, and whoever changes commits that of the
session; what stands behind such a lock may rely on what it reads.
"""

from typing import Final, LiteralString

from sennit.stores.sql.connection import Sql

FIND_SESSION: Final = Sql("SELECT no FROM sennit.sessions WHERE owner = %s AND id = %s")
LOCK_SESSION: Final = Sql("SELECT no FROM sennit.sessions WHERE owner = %s AND id = %s FOR UPDATE")
LOCK_OWNERS: Final = Sql("SELECT no FROM sennit.owners WHERE no = ANY (%s) ORDER BY no FOR UPDATE")
OWNERS_OF_USER: Final = Sql("""
    SELECT tenant, kind, name, of_user FROM sennit.owners WHERE tenant = %s AND of_user = %s
    ORDER BY kind, name""")

_VERSION: Final = """
    v.no, v.number, v.written, v.valid_from, v.body, v.valid_to, v.made_by, v.info, v.replaced"""
FILE_COLUMNS: Final = f"f.no, f.id, f.path, f.category, f.created, f.active, {_VERSION}"
_LATEST: Final = """
    FROM sennit.files f
    JOIN sennit.versions v ON v.owner = f.owner AND v.file = f.no AND v.number = f.latest"""


def _versions(columns: LiteralString, rest: LiteralString) -> Sql:
    """Return a query of versions, which end with a checksum in SQLite."""
    return Sql(f"SELECT {columns} {rest}", f"SELECT {columns}, v.checksum {rest}")


FIND_FILE: Final = _versions(FILE_COLUMNS, f"{_LATEST} WHERE f.owner = %s AND f.path = %s")
FILES_BY_ID: Final = _versions(
    FILE_COLUMNS, f"{_LATEST} WHERE f.owner = %s AND f.id = ANY (%s::uuid[])"
)
LIST_FILES: Final = _versions(
    FILE_COLUMNS, f"{_LATEST} WHERE f.owner = %s AND f.path >= %s AND f.path < %s ORDER BY f.path"
)
ADD_FILE: Final = Sql("""
    INSERT INTO sennit.files (owner, id, path, category, created, active, latest)
    VALUES (%s, %s, %s, %s, %s, %s, %s) RETURNING no""")
FILE_AT: Final = Sql("SELECT id FROM sennit.files WHERE owner = %s AND path = %s")
FILE_STATE: Final = Sql("SELECT no, path, latest FROM sennit.files WHERE owner = %s AND id = %s")
CHANGE_FILE: Final = Sql("""
    UPDATE sennit.files SET path = %s, category = %s, latest = %s WHERE owner = %s AND no = %s""")
FALL_BACK: Final = Sql("""
    UPDATE sennit.files SET latest = (
        SELECT max(number) FROM sennit.versions WHERE owner = %s AND file = %s)
    WHERE owner = %s AND no = %s""")
COUNT_USES: Final = Sql(
    "UPDATE sennit.files SET active = active + %s WHERE owner = %s AND path = %s"
)
DELETE_FILE: Final = Sql("DELETE FROM sennit.files WHERE owner = %s AND no = %s")

VERSIONS: Final = _versions(
    _VERSION,
    """FROM sennit.versions v JOIN sennit.files f ON f.owner = v.owner AND f.no = v.file
    WHERE f.owner = %s AND f.id = %s ORDER BY v.number""",
)
ADD_VERSION: Final = Sql(
    """
    INSERT INTO sennit.versions
        (owner, file, number, written, valid_from, body, valid_to, made_by, info)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING no""",
    """
    INSERT INTO versions
        (owner, file, number, written, valid_from, body, valid_to, made_by, info, checksum)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, row_checksum(?3, ?4, ?5, ?6, ?7, ?8, ?9))
    RETURNING no""",
)
# Each version ends where the next one that is left begins to hold.
SET_REPLACED: Final = Sql("""
    UPDATE sennit.versions AS v SET replaced = (
        SELECT n.valid_from FROM sennit.versions n
        WHERE n.owner = v.owner AND n.file = v.file AND n.number > v.number
        ORDER BY n.number LIMIT 1)
    WHERE v.owner = %s AND v.file = %s""")
DELETE_VERSIONS: Final = Sql("DELETE FROM sennit.versions WHERE owner = %s AND no = ANY (%s)")

EVIDENCE: Final = Sql("""
    SELECT e.version, o.tenant, o.kind, o.name, o.of_user, e.session, e.message
    FROM sennit.evidence e JOIN sennit.owners o ON o.no = e.home
    WHERE e.owner = %s AND e.version = ANY (%s)""")
ADD_EVIDENCE: Final = Sql("""
    INSERT INTO sennit.evidence (owner, version, home, session, message)
    VALUES (%s, %s, %s, %s, %s)""")
DELETE_EVIDENCE: Final = Sql("DELETE FROM sennit.evidence WHERE owner = %s AND version = ANY (%s)")

_DERIVED: Final = """
    SELECT o.tenant, o.kind, o.name, o.of_user, f.id, v.number
    FROM sennit.versions v JOIN sennit.files f ON f.owner = v.owner AND f.no = v.file
    JOIN sennit.owners o ON o.no = v.owner"""
DERIVED: Final = Sql(f"""
    {_DERIVED} WHERE (v.owner, v.no) IN (
        SELECT e.owner, e.version FROM sennit.evidence e
        WHERE e.home = %(home)s
          AND (%(session)s::uuid IS NULL OR e.session = %(session)s::uuid)
          AND (%(message)s::uuid IS NULL OR e.message = %(message)s::uuid))""")
WRITTEN_BY: Final = Sql(f"""
    {_DERIVED} WHERE o.tenant = %(tenant)s AND v.made_by = %(commit)s
      AND (o.of_user = %(user)s OR o.kind = 'user' AND o.name = %(user)s)""")

_COMMIT: Final = """
    SELECT id, number, branch, created, state, body, version FROM sennit.commits
    WHERE owner = %s AND session = %s"""
COMMITS: Final = Sql(f"{_COMMIT} ORDER BY number")
COMMITS_BY_NUMBER: Final = Sql(f"{_COMMIT} AND number = ANY (%s) ORDER BY number")
COMMIT_BY_ID: Final = Sql(f"{_COMMIT} AND id = %s")
COMMITS_PAST: Final = Sql("""
    SELECT number, id FROM sennit.commits
    WHERE owner = %s AND session = %s AND number > %s ORDER BY number""")
FIND_COMMIT: Final = Sql("""
    SELECT s.no, s.id, c.number FROM sennit.commits c
    JOIN sennit.sessions s ON s.owner = c.owner AND s.no = c.session
    WHERE c.owner = %s AND c.id = %s""")
OPEN_COMMITS: Final = Sql("""
    SELECT s.id, c.id FROM sennit.commits c
    JOIN sennit.sessions s ON s.owner = c.owner AND s.no = c.session
    WHERE c.owner = %s AND c.state = 'open' ORDER BY c.created, c.id""")
LAST_COMMIT: Final = Sql("""
    SELECT coalesce(max(number), 0) FROM sennit.commits WHERE owner = %s AND session = %s""")
ADD_COMMIT: Final = Sql("""
    INSERT INTO sennit.commits (owner, session, number, id, branch, created, state, body, version)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, 0)""")
CHANGE_COMMIT: Final = Sql("""
    UPDATE sennit.commits SET state = %s, body = %s, version = %s
    WHERE owner = %s AND session = %s AND id = %s""")

_ARCHIVED: Final = """
    SELECT a.number, m.id FROM sennit.archived a CROSS JOIN sennit.messages m
    WHERE a.owner = %s AND a.session = %s
      AND m.owner = a.owner AND m.session = a.session AND m.no = a.message"""
ARCHIVED: Final = Sql(f"{_ARCHIVED} ORDER BY a.number, a.pos")
ARCHIVED_PAST: Final = Sql(f"{_ARCHIVED} AND a.number > %s ORDER BY a.number, a.pos")
ENTRIES_OF_COMMIT: Final = Sql(f"{_ARCHIVED} AND a.number = %s ORDER BY a.pos")
COVERED: Final = Sql("""
    SELECT 1 FROM sennit.archived
    WHERE owner = %s AND session = %s AND message = ANY (%s) LIMIT 1""")
ADD_ARCHIVED: Final = Sql(
    """
    INSERT INTO sennit.archived (owner, session, number, message, pos)
    SELECT %s, %s, %s, g.message, g.at - 1
    FROM unnest(%s::bigint[]) WITH ORDINALITY AS g (message, at)""",
    """
    INSERT INTO archived (owner, session, number, message, pos)
    SELECT ?, ?, ?, value, key FROM json_each(?)""",
)
DELETE_ARCHIVED: Final = Sql("""
    DELETE FROM sennit.archived WHERE owner = %s AND session = %s AND message = ANY (%s)""")

_USE: Final = """
    SELECT id, branch, created, head, body, number FROM sennit.uses
    WHERE owner = %s AND session = %s"""
USES: Final = Sql(f"{_USE} ORDER BY created, id")
USES_OF: Final = Sql(f"{_USE} AND number = %s ORDER BY created, id")
UNCOUNTED_USES: Final = Sql(f"{_USE} AND number IS NULL ORDER BY created, id")
ADD_USE: Final = Sql("""
    INSERT INTO sennit.uses (owner, session, id, branch, created, head, body)
    VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING""")
CLAIM_USES: Final = Sql("""
    UPDATE sennit.uses SET number = %s
    WHERE owner = %s AND session = %s AND id = ANY (%s::uuid[]) AND number IS NULL""")

MESSAGE_NUMBERS: Final = Sql("""
    SELECT id, no FROM sennit.messages
    WHERE owner = %s AND session = %s AND id = ANY (%s::uuid[])""")
MESSAGES_BY_ID: Final = Sql("""
    SELECT m.id, m.created, m.body, m.checksum FROM sennit.messages m
    JOIN sennit.sessions s ON s.owner = m.owner AND s.no = m.session
    WHERE s.owner = %s AND s.id = %s AND m.id = ANY (%s::uuid[])""")

REMOVED: Final = Sql("""
    SELECT o.tenant, o.kind, o.name, s.id, m.id, d.since
    FROM sennit.detached d CROSS JOIN sennit.owners o
    CROSS JOIN sennit.sessions s CROSS JOIN sennit.messages m
    WHERE d.since < %(before)s AND (%(owner)s::integer IS NULL OR d.owner = %(owner)s)
      AND o.no = d.owner AND s.owner = d.owner AND s.no = d.session
      AND (%(session)s::uuid IS NULL OR s.id = %(session)s::uuid)
      AND m.owner = d.owner AND m.session = d.session AND m.no = d.message
    ORDER BY d.since, m.id LIMIT %(limit)s""")

_NAMES: Final = """
    EXISTS (SELECT 1 FROM unnest(%s::bytea[]) AS g (name) WHERE position(g.name IN c.body) > 0)"""
COMMITS_NAMING: Final = Sql(f"""
    SELECT s.id, c.id FROM sennit.commits c
    JOIN sennit.sessions s ON s.owner = c.owner AND s.no = c.session
    WHERE c.owner = %s AND {_NAMES}""")
ERASE_USES: Final = Sql(f"DELETE FROM sennit.uses AS c WHERE owner = %s AND {_NAMES}")
ERASE_EVENTS: Final = Sql(f"DELETE FROM sennit.events AS c WHERE owner = %s AND {_NAMES}")


def _rename(table: LiteralString) -> Sql:
    return Sql(
        f"""UPDATE sennit.{table}
        SET body = convert_to(replace(convert_from(body, 'UTF8'), %(old)s, %(new)s), 'UTF8')
        WHERE owner = %(owner)s AND position(convert_to(%(old)s, 'UTF8') IN body) > 0""",
        f"""UPDATE {table} SET body = CAST(replace(CAST(body AS TEXT), :old, :new) AS BLOB)
        WHERE owner = :owner AND instr(body, :old) > 0""",
    )


RENAME: Final = (_rename("uses"), _rename("events"))
