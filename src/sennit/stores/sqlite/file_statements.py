"""SQL statements about files and commits in SQLite."""

_VERSION = """
    v.no, v.number, v.written, v.valid_from, v.body, v.valid_to, v.made_by, v.info, v.replaced,
    v.checksum"""
FILE_COLUMNS = f"f.no, f.id, f.path, f.category, f.created, f.active, {_VERSION}"
_FILE = f"SELECT {FILE_COLUMNS}"
_LATEST = "JOIN versions v ON v.owner = f.owner AND v.file = f.no AND v.number = f.latest"

FIND_FILE = f"{_FILE} FROM files f {_LATEST} WHERE f.owner = ? AND f.path = ?"
FILE_BY_ID = f"{_FILE} FROM files f {_LATEST} WHERE f.owner = ? AND f.id = ?"
LIST_FILES = f"""
    {_FILE} FROM files f {_LATEST}
    WHERE f.owner = ? AND f.path >= ? AND f.path < ? || char(1114111) ORDER BY f.path"""
ADD_FILE = """
    INSERT INTO files (owner, id, path, category, created, active, latest)
    VALUES (?, ?, ?, ?, ?, 0, 1) RETURNING no"""
PATH_TAKEN = "SELECT id FROM files WHERE owner = ? AND path = ?"
MOVE_FILE = "UPDATE files SET path = ?, category = ? WHERE owner = ? AND id = ?"
SET_LATEST = "UPDATE files SET latest = ?, category = ? WHERE owner = ? AND no = ?"
FALL_BACK = """
    UPDATE files SET latest = (SELECT max(number) FROM versions WHERE owner = ? AND file = ?)
    WHERE owner = ? AND no = ?"""
COUNT_USES = "UPDATE files SET active = active + ? WHERE owner = ? AND path = ?"
DELETE_FILE = "DELETE FROM files WHERE owner = ? AND no = ?"

VERSIONS = f"""
    SELECT {_VERSION} FROM versions v JOIN files f ON f.owner = v.owner AND f.no = v.file
    WHERE f.owner = ? AND f.id = ? ORDER BY v.number"""
ADD_VERSION = """
    INSERT INTO versions (owner, file, number, written, valid_from, body, valid_to, made_by, info,
                          checksum)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, row_checksum(?3, ?4, ?5, ?6, ?7, ?8, ?9))
    RETURNING no"""
# Each version ends where the next one that is left begins to hold.
SET_REPLACED = """
    UPDATE versions AS v SET replaced = (
        SELECT n.valid_from FROM versions n
        WHERE n.owner = v.owner AND n.file = v.file AND n.number > v.number
        ORDER BY n.number LIMIT 1)
    WHERE v.owner = ? AND v.file = ?"""
DELETE_VERSION = "DELETE FROM versions WHERE owner = ? AND no = ?"

EVIDENCE = """
    SELECT o.tenant, o.kind, o.name, o.of_user, e.session, e.message
    FROM evidence e JOIN owners o ON o.no = e.home
    WHERE e.owner = ? AND e.version = ?
    ORDER BY o.tenant, o.kind, o.name, o.of_user, e.session, e.message"""
ADD_EVIDENCE = """
    INSERT INTO evidence (owner, version, home, session, message) VALUES (?, ?, ?, ?, ?)"""
DELETE_EVIDENCE = "DELETE FROM evidence WHERE owner = ? AND version = ?"

_DERIVED = """
    SELECT DISTINCT o.tenant, o.kind, o.name, o.of_user, f.id, v.number
    FROM versions v JOIN files f ON f.owner = v.owner AND f.no = v.file
    JOIN owners o ON o.no = v.owner"""
DERIVED = f"""
    {_DERIVED} WHERE v.no IN (
        SELECT e.version FROM evidence e
        WHERE e.home = :home AND (:session IS NULL OR e.session = :session)
          AND (:message IS NULL OR e.message = :message))
    ORDER BY o.tenant, o.kind, o.name, o.of_user, f.id, v.number"""
WRITTEN_BY = f"""
    {_DERIVED} WHERE o.tenant = :tenant AND v.made_by = :commit
      AND (o.of_user = :user OR o.kind = 'user' AND o.name = :user)
    ORDER BY o.tenant, o.kind, o.name, o.of_user, f.id, v.number"""

OWNERS_OF_USER = """
    SELECT tenant, kind, name, of_user FROM owners WHERE tenant = ? AND of_user = ?
    ORDER BY kind, name"""

COMMITS = """
    SELECT id, number, branch, created, state, body, version FROM commits
    WHERE owner = ? AND session = ? ORDER BY number"""
COMMIT_BY_NUMBER = """
    SELECT id, number, branch, created, state, body, version FROM commits
    WHERE owner = ? AND session = ? AND number = ?"""
COMMITS_PAST = """
    SELECT number, id FROM commits WHERE owner = ? AND session = ? AND number > ? ORDER BY number"""
FIND_COMMIT = """
    SELECT s.no, s.id, c.number FROM commits c
    JOIN sessions s ON s.owner = c.owner AND s.no = c.session
    WHERE c.owner = ? AND c.id = ?"""
COMMIT_BY_ID = """
    SELECT id, number, branch, created, state, body, version FROM commits
    WHERE owner = ? AND session = ? AND id = ?"""
OPEN_COMMITS = """
    SELECT s.id, c.id FROM commits c JOIN sessions s ON s.owner = c.owner AND s.no = c.session
    WHERE c.owner = ? AND c.state = 'open' ORDER BY c.created, c.id"""
LAST_COMMIT = "SELECT coalesce(max(number), 0) FROM commits WHERE owner = ? AND session = ?"
ADD_COMMIT = """
    INSERT INTO commits (owner, session, number, id, branch, created, state, body, version)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)"""
CHANGE_COMMIT = """
    UPDATE commits SET state = ?, body = ?, version = ?
    WHERE owner = ? AND session = ? AND id = ?"""

ARCHIVED = """
    SELECT a.number, m.id FROM archived a JOIN messages m ON m.no = a.message
    WHERE a.owner = ? AND a.session = ? ORDER BY a.number, a.pos"""
ARCHIVED_PAST = """
    SELECT a.number, m.id FROM archived a JOIN messages m ON m.no = a.message
    WHERE a.owner = ? AND a.session = ? AND a.number > ? ORDER BY a.number, a.pos"""
ENTRIES_OF_COMMIT = """
    SELECT m.id FROM archived a JOIN messages m ON m.no = a.message
    WHERE a.owner = ? AND a.session = ? AND a.number = ? ORDER BY a.pos"""
NUMBERS_OF_COMMIT = """
    SELECT message FROM archived WHERE owner = ? AND session = ? AND number = ?"""
MESSAGE_BY_ID = """
    SELECT m.created, m.body, m.checksum FROM messages m
    JOIN sessions s ON s.owner = m.owner AND s.no = m.session
    WHERE s.owner = ? AND s.id = ? AND m.id = ?"""
MESSAGE_THERE = "SELECT 1 FROM messages WHERE owner = ? AND session = ? AND id = ?"
ADD_ARCHIVED = """
    INSERT INTO archived (owner, session, message, number, pos)
    SELECT owner, session, no, ?, ? FROM messages WHERE owner = ? AND session = ? AND id = ?"""
DELETE_ARCHIVED = "DELETE FROM archived WHERE owner = ? AND session = ? AND message = ?"

USES = """
    SELECT id, branch, created, head, body, number FROM uses
    WHERE owner = ? AND session = ? ORDER BY created, id"""
USES_OF = """
    SELECT id, branch, created, head, body, number FROM uses
    WHERE owner = ? AND session = ? AND number IS ? ORDER BY created, id"""
ADD_USE = """
    INSERT INTO uses (owner, session, id, branch, created, head, body)
    VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""
CLAIM_USE = """
    UPDATE uses SET number = ? WHERE owner = ? AND session = ? AND id = ? AND number IS NULL"""
_NAMES = "EXISTS (SELECT 1 FROM json_each(?) WHERE instr(body, value) > 0)"
UNNAME = (
    f"DELETE FROM uses WHERE owner = ? AND {_NAMES}",
    f"DELETE FROM events WHERE owner = ? AND {_NAMES}",
)
_REPLACED = "CAST(replace(CAST(body AS TEXT), :old, :new) AS BLOB)"
RENAME = tuple(
    f"UPDATE {table} SET body = {_REPLACED} WHERE owner = :owner AND instr(body, :old) > 0"
    for table in ("uses", "events")
)
COMMITS_NAMING = """
    SELECT s.id, c.id FROM commits c JOIN sessions s ON s.owner = c.owner AND s.no = c.session
    WHERE c.owner = ? AND EXISTS (SELECT 1 FROM json_each(?) WHERE instr(c.body, value) > 0)"""
