"""SQL statements about files and commits in PostgreSQL.

Whoever changes files has locked the rows of their owners, and whoever changes commits that of the
session; what stands behind such a lock may rely on what it reads.
"""

from typing import Final

LOCK_OWNERS: Final = "SELECT no FROM sennit.owners WHERE no = ANY (%s) ORDER BY no FOR UPDATE"

FIND_FILE: Final = """
    SELECT f.no, f.id, f.path, f.category, f.created, f.active, v.no, v.number, v.written,
           v.valid_from, v.body, v.valid_to, v.made_by, v.info, v.replaced
    FROM sennit.files f JOIN sennit.versions v
      ON v.owner = f.owner AND v.file = f.no AND v.number = f.latest
    WHERE f.owner = %s AND f.path = %s"""
FILES_BY_ID: Final = """
    SELECT f.no, f.id, f.path, f.category, f.created, f.active, v.no, v.number, v.written,
           v.valid_from, v.body, v.valid_to, v.made_by, v.info, v.replaced
    FROM sennit.files f JOIN sennit.versions v
      ON v.owner = f.owner AND v.file = f.no AND v.number = f.latest
    WHERE f.owner = %s AND f.id = ANY (%s) ORDER BY array_position(%s::uuid[], f.id)"""
LIST_FILES: Final = """
    SELECT f.no, f.id, f.path, f.category, f.created, f.active, v.no, v.number, v.written,
           v.valid_from, v.body, v.valid_to, v.made_by, v.info, v.replaced
    FROM sennit.files f JOIN sennit.versions v
      ON v.owner = f.owner AND v.file = f.no AND v.number = f.latest
    WHERE f.owner = %s AND starts_with(f.path, %s) ORDER BY f.path"""
ADD_FILE: Final = """
    INSERT INTO sennit.files (owner, id, path, category, created, active, latest)
    VALUES (%s, %s, %s, %s, %s, 0, 1) RETURNING no"""
PATH_TAKEN: Final = "SELECT id FROM sennit.files WHERE owner = %s AND path = %s"
MOVE_FILE: Final = "UPDATE sennit.files SET path = %s, category = %s WHERE owner = %s AND id = %s"
SET_LATEST: Final = """
    UPDATE sennit.files SET latest = %s, category = %s WHERE owner = %s AND no = %s"""
FALL_BACK: Final = """
    UPDATE sennit.files SET latest = (
        SELECT max(number) FROM sennit.versions WHERE owner = %s AND file = %s)
    WHERE owner = %s AND no = %s"""
COUNT_USES: Final = """
    UPDATE sennit.files SET active = active + %s WHERE owner = %s AND path = %s"""
DELETE_FILE: Final = "DELETE FROM sennit.files WHERE owner = %s AND no = %s"

VERSIONS: Final = """
    SELECT v.no, v.number, v.written, v.valid_from, v.body, v.valid_to, v.made_by, v.info,
           v.replaced
    FROM sennit.versions v JOIN sennit.files f ON f.owner = v.owner AND f.no = v.file
    WHERE f.owner = %s AND f.id = %s ORDER BY v.number"""
ADD_VERSION: Final = """
    INSERT INTO sennit.versions
        (owner, file, number, written, valid_from, body, valid_to, made_by, info)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING no"""
# Each version ends where the next one that is left begins to hold.
SET_REPLACED: Final = """
    UPDATE sennit.versions v SET replaced = (
        SELECT n.valid_from FROM sennit.versions n
        WHERE n.owner = v.owner AND n.file = v.file AND n.number > v.number
        ORDER BY n.number LIMIT 1)
    WHERE v.owner = %s AND v.file = %s"""
DELETE_VERSIONS: Final = "DELETE FROM sennit.versions WHERE owner = %s AND no = ANY (%s)"

EVIDENCE: Final = """
    SELECT e.version, o.tenant, o.kind, o.name, o.of_user, e.session, e.message
    FROM sennit.evidence e JOIN sennit.owners o ON o.no = e.home
    WHERE e.owner = %s AND e.version = ANY (%s)"""
ADD_EVIDENCE: Final = """
    INSERT INTO sennit.evidence (owner, version, home, session, message)
    SELECT %s, %s, g.home, g.session, g.message
    FROM unnest(%s::integer[], %s::uuid[], %s::uuid[]) AS g (home, session, message)"""
DELETE_EVIDENCE: Final = "DELETE FROM sennit.evidence WHERE owner = %s AND version = ANY (%s)"

DERIVED: Final = """
    SELECT o.tenant, o.kind, o.name, o.of_user, f.id, v.number
    FROM sennit.versions v JOIN sennit.files f ON f.owner = v.owner AND f.no = v.file
    JOIN sennit.owners o ON o.no = v.owner
    WHERE (v.owner, v.no) IN (
        SELECT e.owner, e.version FROM sennit.evidence e
        WHERE e.home = %(home)s
          AND (%(session)s::uuid IS NULL OR e.session = %(session)s::uuid)
          AND (%(message)s::uuid IS NULL OR e.message = %(message)s::uuid))"""
WRITTEN_BY: Final = """
    SELECT o.tenant, o.kind, o.name, o.of_user, f.id, v.number
    FROM sennit.versions v JOIN sennit.files f ON f.owner = v.owner AND f.no = v.file
    JOIN sennit.owners o ON o.no = v.owner
    WHERE o.tenant = %(tenant)s AND v.made_by = %(commit)s
      AND (o.of_user = %(user)s OR o.kind = 'user' AND o.name = %(user)s)"""

OWNERS_OF_USER: Final = """
    SELECT tenant, kind, name, of_user FROM sennit.owners WHERE tenant = %s AND of_user = %s
    ORDER BY kind, name"""

COMMITS: Final = """
    SELECT id, number, branch, created, state, body, version FROM sennit.commits
    WHERE owner = %s AND session = %s ORDER BY number"""
COMMITS_BY_NUMBER: Final = """
    SELECT id, number, branch, created, state, body, version FROM sennit.commits
    WHERE owner = %s AND session = %s AND number = ANY (%s::integer[]) ORDER BY number"""
COMMITS_PAST: Final = """
    SELECT number, id FROM sennit.commits
    WHERE owner = %s AND session = %s AND number > %s ORDER BY number"""
FIND_COMMIT: Final = """
    SELECT s.no, s.id, c.number FROM sennit.commits c
    JOIN sennit.sessions s ON s.owner = c.owner AND s.no = c.session
    WHERE c.owner = %s AND c.id = %s"""
COMMIT_BY_ID: Final = """
    SELECT id, number, branch, created, state, body, version FROM sennit.commits
    WHERE owner = %s AND session = %s AND id = %s"""
OPEN_COMMITS: Final = """
    SELECT s.id, c.id FROM sennit.commits c
    JOIN sennit.sessions s ON s.owner = c.owner AND s.no = c.session
    WHERE c.owner = %s AND c.state = 'open' ORDER BY c.created, c.id"""
LAST_COMMIT: Final = """
    SELECT coalesce(max(number), 0) FROM sennit.commits WHERE owner = %s AND session = %s"""
ADD_COMMIT: Final = """
    INSERT INTO sennit.commits (owner, session, number, id, branch, created, state, body, version)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, 0)"""
CHANGE_COMMIT: Final = """
    UPDATE sennit.commits SET state = %s, body = %s, version = %s
    WHERE owner = %s AND session = %s AND id = %s"""

ARCHIVED: Final = """
    SELECT a.number, m.id FROM sennit.archived a
    JOIN sennit.messages m ON m.owner = a.owner AND m.session = a.session AND m.no = a.message
    WHERE a.owner = %s AND a.session = %s ORDER BY a.number, a.pos"""
ARCHIVED_PAST: Final = """
    SELECT a.number, m.id FROM sennit.archived a
    JOIN sennit.messages m ON m.owner = a.owner AND m.session = a.session AND m.no = a.message
    WHERE a.owner = %s AND a.session = %s AND a.number > %s ORDER BY a.number, a.pos"""
ENTRIES_OF_COMMIT: Final = """
    SELECT m.id FROM sennit.archived a
    JOIN sennit.messages m ON m.owner = a.owner AND m.session = a.session AND m.no = a.message
    WHERE a.owner = %s AND a.session = %s AND a.number = %s ORDER BY a.pos"""
COVERED: Final = """
    SELECT count(*) FROM sennit.archived
    WHERE owner = %s AND session = %s AND message = ANY (%s)"""
ADD_ARCHIVED: Final = """
    INSERT INTO sennit.archived (owner, session, message, number, pos)
    SELECT %s, %s, g.message, %s, g.at - 1
    FROM unnest(%s::bigint[]) WITH ORDINALITY AS g (message, at)"""
DELETE_ARCHIVED: Final = """
    DELETE FROM sennit.archived WHERE owner = %s AND session = %s AND message = ANY (%s)"""

USES: Final = """
    SELECT id, branch, created, head, body, number FROM sennit.uses
    WHERE owner = %s AND session = %s ORDER BY created, id"""
USES_OF: Final = """
    SELECT id, branch, created, head, body, number FROM sennit.uses
    WHERE owner = %s AND session = %s AND number IS NOT DISTINCT FROM %s::integer
    ORDER BY created, id"""
UNNAME: Final = (
    """DELETE FROM sennit.uses WHERE owner = %s AND EXISTS (
        SELECT 1 FROM unnest(%s::bytea[]) AS g (name) WHERE position(g.name IN body) > 0)""",
    """DELETE FROM sennit.events WHERE owner = %s AND EXISTS (
        SELECT 1 FROM unnest(%s::bytea[]) AS g (name) WHERE position(g.name IN body) > 0)""",
)
RENAME: Final = (
    """UPDATE sennit.uses
    SET body = convert_to(replace(convert_from(body, 'UTF8'), %(old)s, %(new)s), 'UTF8')
    WHERE owner = %(owner)s AND position(convert_to(%(old)s, 'UTF8') IN body) > 0""",
    """UPDATE sennit.events
    SET body = convert_to(replace(convert_from(body, 'UTF8'), %(old)s, %(new)s), 'UTF8')
    WHERE owner = %(owner)s AND position(convert_to(%(old)s, 'UTF8') IN body) > 0""",
)
COMMITS_NAMING: Final = """
    SELECT s.id, c.id FROM sennit.commits c
    JOIN sennit.sessions s ON s.owner = c.owner AND s.no = c.session
    WHERE c.owner = %s AND EXISTS (
        SELECT 1 FROM unnest(%s::bytea[]) AS g (name) WHERE position(g.name IN c.body) > 0)"""
MESSAGES_BY_ID: Final = """
    SELECT m.id, m.created, m.body, m.checksum FROM sennit.messages m
    JOIN sennit.sessions s ON s.owner = m.owner AND s.no = m.session
    WHERE s.owner = %s AND s.id = %s AND m.id = ANY (%s)
    ORDER BY array_position(%s::uuid[], m.id)"""
ADD_USE: Final = """
    INSERT INTO sennit.uses (owner, session, id, branch, created, head, body)
    VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"""
CLAIM_USES: Final = """
    UPDATE sennit.uses SET number = %s
    WHERE owner = %s AND session = %s AND id = ANY (%s) AND number IS NULL"""
