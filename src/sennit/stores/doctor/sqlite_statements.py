"""SQL statements of the integrity checks and repairs of a SQLite file; queries name each row."""

NOBODYS = """
    SELECT 'message ' || no FROM messages WHERE owner NOT IN (SELECT no FROM owners)
    UNION ALL
    SELECT 'session ' || no FROM sessions WHERE owner NOT IN (SELECT no FROM owners)"""

LOST_SESSIONS = """
    SELECT owner, session FROM (
        SELECT owner, session FROM messages UNION
        SELECT owner, session FROM segments UNION
        SELECT owner, session FROM branches
    ) AS kept
    WHERE owner IN (SELECT no FROM owners) AND NOT EXISTS (
        SELECT 1 FROM sessions s WHERE s.no = kept.session AND s.owner = kept.owner)"""
ADD_SESSION = """
    INSERT INTO sessions (owner, id, key, sender, created, updated, metadata, checksum)
    VALUES (?1, ?2, NULL, 'user', ?3, ?4, '{"recovered":true}',
            row_checksum(?2, NULL, 'user', ?3, '{"recovered":true}')) RETURNING no"""
MOVE_ROWS = tuple(
    f"UPDATE {table} SET session = ? WHERE owner = ? AND session = ?"
    for table in (
        "messages",
        "segments",
        "branches",
        "leases",
        "journals",
        "commits",
        "archived",
        "uses",
        "labels",
        "starts",
        "detached",
    )
)

LOST_SYSTEMS = """
    SELECT name FROM branches b WHERE system IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM messages m
        WHERE m.no = b.system AND m.owner = b.owner AND m.session = b.session)"""
FORGET_SYSTEMS = """
    UPDATE branches AS b SET system = NULL, version = version + 1, checksum = row_checksum(
        id, name, created, NULL, segment, resources, capabilities, metadata)
    WHERE system IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM messages m
        WHERE m.no = b.system AND m.owner = b.owner AND m.session = b.session)"""

LOST_TAILS = """
    SELECT name, owner, session, id FROM branches b WHERE NOT EXISTS (
        SELECT 1 FROM segments s
        WHERE s.no = b.segment AND s.owner = b.owner AND s.session = b.session)"""
SET_TAIL = """
    UPDATE branches SET segment = ?1, version = version + 1, checksum = row_checksum(
        id, name, created, system, ?1, resources, capabilities, metadata)
    WHERE owner = ?2 AND session = ?3 AND id = ?4"""

BASES = "SELECT no, base, owner, session FROM segments ORDER BY no"
CUT_LOOSE = """
    UPDATE segments SET base = NULL, start = 0, checksum = row_checksum(id, NULL, 0)
    WHERE no = ?"""

LOST_ENTRIES = """
    SELECT e.segment || ':' || e.pos, s.owner, s.session FROM entries e
    JOIN segments s ON s.no = e.segment AND s.owner = e.owner
    LEFT JOIN messages m ON m.no = e.message AND m.owner = e.owner AND m.session = s.session
    WHERE m.no IS NULL"""
GAPS = """
    SELECT e.segment, s.owner, s.session FROM entries e
    JOIN segments s ON s.no = e.segment AND s.owner = e.owner
    GROUP BY e.owner, e.segment HAVING min(e.pos) <> 0 OR max(e.pos) <> count(*) - 1"""
WRONG_STARTS = """
    SELECT s.no, s.owner, s.session FROM segments s LEFT JOIN segments b ON b.no = s.base
    WHERE (s.base IS NULL AND s.start <> 0) OR s.start < b.start OR s.start > b.start + coalesce(
        (SELECT max(pos) + 1 FROM entries e WHERE e.owner = b.owner AND e.segment = b.no), 0)"""
SEGMENTS_TO_RELAY = """
    SELECT no, base, start FROM segments WHERE owner = ? AND session = ? ORDER BY no"""
ENTRIES_TO_RELAY = """
    SELECT e.pos, e.message FROM entries e
    JOIN messages m ON m.no = e.message AND m.owner = e.owner
    WHERE e.owner = ? AND m.session = ? AND e.segment = ? ORDER BY e.pos"""
SET_START = """
    UPDATE segments SET start = ?1, checksum = row_checksum(id, base, ?1) WHERE no = ?2"""
TOUCH_BRANCHES = "UPDATE branches SET version = version + 1 WHERE owner = ? AND session = ?"

TAILS = "SELECT segment FROM branches"
STRAY_ENTRIES = """
    SELECT segment || ':' || pos FROM entries e WHERE NOT EXISTS (
        SELECT 1 FROM segments s WHERE s.no = e.segment AND s.owner = e.owner)"""
DROP_STRAY_ENTRIES = """
    DELETE FROM entries AS e WHERE NOT EXISTS (
        SELECT 1 FROM segments s WHERE s.no = e.segment AND s.owner = e.owner)"""
STRAY_LEASES = """
    SELECT holder FROM leases l WHERE NOT EXISTS (
        SELECT 1 FROM branches b
        WHERE b.owner = l.owner AND b.session = l.session AND b.id = l.branch)"""
DROP_STRAY_LEASES = """
    DELETE FROM leases AS l WHERE NOT EXISTS (
        SELECT 1 FROM branches b
        WHERE b.owner = l.owner AND b.session = l.session AND b.id = l.branch)"""

STRAY_JOURNALS = """
    SELECT 'journal ' || no FROM journals j WHERE NOT EXISTS (
        SELECT 1 FROM branches b
        WHERE b.owner = j.owner AND b.session = j.session AND b.id = j.branch)"""
DROP_STRAY_JOURNALS = """
    DELETE FROM journals AS j WHERE NOT EXISTS (
        SELECT 1 FROM branches b
        WHERE b.owner = j.owner AND b.session = j.session AND b.id = j.branch)"""
STRAY_LABELS = """
    SELECT 'label by ' || judge FROM labels l WHERE NOT EXISTS (
        SELECT 1 FROM messages m
        WHERE m.owner = l.owner AND m.session = l.session AND m.no = l.message)"""
DROP_STRAY_LABELS = """
    DELETE FROM labels AS l WHERE NOT EXISTS (
        SELECT 1 FROM messages m
        WHERE m.owner = l.owner AND m.session = l.session AND m.no = l.message)"""
STRAY_STARTS = """
    SELECT 'starts of message ' || message FROM starts c WHERE NOT EXISTS (
        SELECT 1 FROM messages m
        WHERE m.owner = c.owner AND m.session = c.session AND m.no = c.message)"""
DROP_STRAY_STARTS = """
    DELETE FROM starts AS c WHERE NOT EXISTS (
        SELECT 1 FROM messages m
        WHERE m.owner = c.owner AND m.session = c.session AND m.no = c.message)"""
STRAY_RUNS = """
    SELECT 'run ' || journal || ':' || no FROM runs r WHERE NOT EXISTS (
        SELECT 1 FROM journals j WHERE j.owner = r.owner AND j.no = r.journal)"""
DROP_STRAY_RUNS = """
    DELETE FROM runs AS r WHERE NOT EXISTS (
        SELECT 1 FROM journals j WHERE j.owner = r.owner AND j.no = r.journal)"""
_STRAY_EVENT = """NOT EXISTS (
        SELECT 1 FROM runs r
        WHERE r.owner = e.owner AND r.journal = e.journal AND r.no = e.run)
       OR typeof(message) = 'integer' AND NOT EXISTS (
        SELECT 1 FROM messages m WHERE m.owner = e.owner AND m.no = e.message)"""
STRAY_EVENTS = f"""
    SELECT 'event ' || journal || ':' || seq FROM events e
    WHERE {_STRAY_EVENT}"""
DROP_STRAY_EVENTS = f"""
    DELETE FROM events AS e
    WHERE {_STRAY_EVENT}"""

STARTS = "SELECT no, base, start FROM segments"
ENTRIES = "SELECT segment, pos, message FROM entries"
SYSTEMS_AND_ARCHIVED = """
    SELECT system FROM branches WHERE system IS NOT NULL
    UNION ALL SELECT message FROM archived"""
DETACHED = """
    SELECT m.owner, m.session, m.no, EXISTS (
        SELECT 1 FROM detached d
        WHERE d.owner = m.owner AND d.session = m.session AND d.message = m.no)
    FROM messages m ORDER BY m.no"""
ADD_DETACHED = "INSERT INTO detached (owner, session, message) VALUES (?, ?, ?)"
DROP_DETACHED = """
    DELETE FROM detached WHERE owner = ? AND session = ? AND message = ?"""
STRAY_DETACHED = """
    SELECT 'message ' || message FROM detached d WHERE NOT EXISTS (
        SELECT 1 FROM messages m
        WHERE m.owner = d.owner AND m.session = d.session AND m.no = d.message)"""
DROP_STRAY_DETACHED = """
    DELETE FROM detached AS d WHERE NOT EXISTS (
        SELECT 1 FROM messages m
        WHERE m.owner = d.owner AND m.session = d.session AND m.no = d.message)"""

# A UUID as people write it.
_ID = " || '-' || ".join(
    f"substr(lower(hex(id)), {start}, {length})"
    for start, length in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
)
LOOSE_MESSAGES = f"""
    SELECT {_ID} FROM messages WHERE no NOT IN (SELECT message FROM entries)
      AND no NOT IN (SELECT system FROM branches WHERE system IS NOT NULL) ORDER BY no"""

UNINDEXED = """
    SELECT id, body FROM messages WHERE no <= (SELECT mark FROM indexed)
      AND no NOT IN (SELECT id FROM words_docsize)
      AND no NOT IN (SELECT message FROM detached)"""
WRONGLY_INDEXED = """
    SELECT 'index row ' || id FROM words_docsize
    WHERE id > (SELECT mark FROM indexed)
       OR (id >= 0 AND id NOT IN (SELECT no FROM messages))
       OR id IN (SELECT message FROM detached WHERE words = 0)
       OR (id < 0 AND -id NOT IN (SELECT no FROM versions))
    UNION ALL
    SELECT 'message ' || message FROM detached
    WHERE words = 1 AND message NOT IN (SELECT id FROM words_docsize)
    UNION ALL
    SELECT 'version ' || no FROM versions
    WHERE -no NOT IN (SELECT id FROM words_docsize)"""
# One mark, and not past the last message: those to come would never be indexed.
MARKS = """
    SELECT count(*) FROM indexed
    WHERE mark <= (SELECT coalesce(max(no), 0) FROM messages)
       OR (SELECT count(*) FROM indexed) > 1"""
DROP_MARKS = "DELETE FROM indexed"
ADD_MARK = "INSERT INTO indexed (mark) SELECT coalesce(max(no), 0) FROM messages"
DROPPED = "UPDATE detached SET words = 0 WHERE words = 1"
EMPTY_INDEX = "INSERT INTO words (words) VALUES ('delete-all')"
ALL_BODIES = """
    SELECT no, created, body FROM messages
    WHERE no NOT IN (SELECT message FROM detached) ORDER BY no"""

BODIES = "SELECT id, created, body, checksum FROM messages ORDER BY no"
SET_CHECKSUM = "UPDATE messages SET checksum = ? WHERE id = ? AND created = ? AND body = ?"
ENTRY_CHECKSUMS = """
    SELECT e.owner, e.segment, e.pos, m.id, e.checksum FROM entries e
    JOIN messages m ON m.no = e.message AND m.owner = e.owner
    ORDER BY e.owner, e.segment, e.pos"""
# What to call a row, and the columns that its checksum covers.
_COVERED = {
    "sessions": ("'session ' || no", "id, key, sender, created, metadata"),
    "segments": ("'segment ' || no", "id, base, start"),
    "branches": (
        "'branch ' || name",
        "id, name, created, system, segment, resources, capabilities, metadata",
    ),
    "versions": ("'version ' || no", "number, written, valid_from, body, valid_to, made_by, info"),
}
CHANGED_ROWS = " UNION ALL ".join(
    f"SELECT {name} FROM {table} WHERE checksum IS NOT row_checksum({columns})"
    for table, (name, columns) in _COVERED.items()
)
SET_ROW_CHECKSUMS = tuple(
    f"UPDATE {table} SET checksum = row_checksum({columns})"
    for table, (_, columns) in _COVERED.items()
)
SESSION_COLUMNS = "SELECT 'session ' || no, metadata, '[]', '[]' FROM sessions"
BRANCH_COLUMNS = "SELECT 'branch ' || name, metadata, resources, capabilities FROM branches"
