"""SQL statements of the SQLite store."""

APPLICATION_ID = 0x534E4E54  # "SNNT", so that another program's file is recognised as such

FIND_OWNER = """
    SELECT no FROM owners WHERE tenant = ? AND kind = ? AND name = ? AND of_user = ?"""
ADD_OWNER = """
    INSERT INTO owners (tenant, kind, name, of_user) VALUES (?, ?, ?, ?) RETURNING no"""

ADD_SESSION = """
    INSERT INTO sessions (owner, id, key, sender, created, updated, metadata, checksum)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, row_checksum(?2, ?3, ?4, ?5, ?7))
    ON CONFLICT (owner, id) DO NOTHING RETURNING no"""
FIND_SESSION = """
    SELECT no, id, key, sender, created, updated, metadata FROM sessions
    WHERE owner = ? AND id = ?"""
STORED = """
    SELECT (SELECT count(*) FROM sessions WHERE owner = :owner),
        (SELECT coalesce(sum(length(CAST(metadata || coalesce(key, '') AS BLOB))), 0)
         FROM sessions WHERE owner = :owner)
        + (SELECT coalesce(sum(length(CAST(name AS BLOB))), 0) FROM branches WHERE owner = :owner)
        + (SELECT coalesce(sum(length(CAST(judge AS BLOB))), 0) FROM labels WHERE owner = :owner)
        + (SELECT coalesce(sum(length(body)), 0) FROM messages WHERE owner = :owner)
        + (SELECT coalesce(sum(length(body)), 0) FROM runs WHERE owner = :owner)
        + (SELECT coalesce(sum(length(body)), 0) FROM events WHERE owner = :owner)
        + (SELECT coalesce(sum(length(body)), 0) FROM versions WHERE owner = :owner)"""
LIST_SESSIONS = """
    SELECT no, id, key, sender, created, updated, metadata FROM sessions
    WHERE owner = :owner
      AND (:contains IS NULL OR instr(folded(key), folded(:contains)) > 0
           OR json_type(metadata, '$.title') = 'text'
              AND instr(folded(json_extract(metadata, '$.title')), folded(:contains)) > 0)
      AND (updated, id) < (:updated, :id)
    ORDER BY updated DESC, id DESC LIMIT :limit"""
TOUCH_SESSION = "UPDATE sessions SET updated = max(updated + 1, ?) WHERE owner = ? AND no = ?"
DESCRIBE_SESSION = """
    UPDATE sessions SET metadata = ?1, checksum = row_checksum(id, key, sender, created, ?1)
    WHERE owner = ?2 AND no = ?3"""

ADD_MESSAGE = """
    INSERT INTO messages (no, owner, session, id, created, body, checksum)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
LAST_MESSAGE = "SELECT coalesce(max(no), 0) FROM messages"
FIND_MESSAGE = """
    SELECT no, created, body FROM messages WHERE owner = ? AND session = ? AND id = ?"""
# Not ordered: they come nearly in order, and sorting them costs SQLite twice the reading.
ALL_MESSAGES = """
    SELECT no, id, created, body, checksum FROM messages WHERE owner = ? AND session = ?"""
MESSAGE_BY_NO = "SELECT no, id, created, body, checksum FROM messages WHERE owner = ? AND no = ?"
MESSAGE_BODY = "SELECT created, body FROM messages WHERE owner = ? AND no = ?"
DELETE_MESSAGE = "DELETE FROM messages WHERE owner = ? AND no = ?"

ADD_SEGMENT = """
    INSERT INTO segments (owner, session, id, base, start, checksum)
    VALUES (?1, ?2, ?3, ?4, ?5, row_checksum(?3, ?4, ?5)) RETURNING no"""
SEGMENT_SIZE = """
    SELECT s.no, s.start, s.start + coalesce(
        (SELECT max(e.pos) + 1 FROM entries e WHERE e.owner = s.owner AND e.segment = s.no), 0)
    FROM segments s WHERE s.owner = ? AND s.session = ? AND s.id = ?"""
# Its entries as one JSON text: to read them row by row takes twice as long.
ALL_SEGMENTS = """
    SELECT no, id, base, start, (
        SELECT json_group_array(message) FROM (
            SELECT message FROM entries e WHERE e.owner = s.owner AND e.segment = s.no
            ORDER BY e.pos)), coalesce((
        SELECT max(e.pos) FROM entries e WHERE e.owner = s.owner AND e.segment = s.no), -1), (
        SELECT checksum FROM entries e WHERE e.owner = s.owner AND e.segment = s.no
        ORDER BY e.pos DESC LIMIT 1)
    FROM segments s WHERE s.owner = ? AND s.session = ?"""
SEGMENTS = "SELECT no, id, base, start FROM segments WHERE owner = ? AND session = ?"
SEGMENT_BY_NO = "SELECT no, id, base, start FROM segments WHERE owner = ? AND no = ?"
DELETE_SEGMENT = "DELETE FROM segments WHERE owner = ? AND no = ?"
MOVE_SEGMENT = """
    UPDATE segments SET id = ?1, base = ?2, start = ?3, checksum = row_checksum(?1, ?2, ?3)
    WHERE owner = ?4 AND session = ?5 AND no = ?6"""
SET_START = """
    UPDATE segments SET start = ?1, checksum = row_checksum(id, base, ?1)
    WHERE owner = ?2 AND session = ?3 AND no = ?4"""

ADD_ENTRY = "INSERT INTO entries (owner, segment, pos, message, checksum) VALUES (?, ?, ?, ?, ?)"
COPY_ENTRIES = """
    INSERT INTO entries (owner, segment, pos, message, checksum)
    SELECT owner, ?, pos, message, checksum FROM entries WHERE owner = ? AND segment = ?"""
ENTRIES_FROM = """
    SELECT m.no, m.id, m.created, m.body, m.checksum, e.pos, e.checksum
    FROM entries e JOIN messages m ON m.no = e.message
    WHERE e.owner = ? AND e.segment = ? AND e.pos >= ? ORDER BY e.pos"""
ENTRY_CHECKSUM = "SELECT checksum FROM entries WHERE owner = ? AND segment = ? AND pos = ?"
ENTRY_IDS = """
    SELECT e.message, m.id FROM entries e JOIN messages m ON m.no = e.message
    WHERE e.owner = ? AND e.segment = ? AND e.pos >= ? ORDER BY e.pos"""
TAKE_ENTRIES = "DELETE FROM entries WHERE owner = ? AND message = ? RETURNING segment, pos"
DELETE_ENTRIES_FROM = "DELETE FROM entries WHERE owner = ? AND segment = ? AND pos >= ?"
FIND_ENTRY = """
    SELECT pos FROM entries WHERE owner = ? AND segment = ? AND pos < ? AND message = ?"""
TOUCH_BRANCHES = """
    UPDATE branches SET version = version + 1
    WHERE owner = ?1 AND session = ?2 AND (segment IN (SELECT value FROM json_each(?3))
                                           OR system IN (SELECT value FROM json_each(?4)))"""
FORGET_SYSTEM = """
    UPDATE branches SET system = NULL, checksum = row_checksum(
        id, name, created, NULL, segment, resources, capabilities, metadata)
    WHERE owner = ? AND session = ? AND system = ?"""
DELETE_ENTRIES = "DELETE FROM entries WHERE owner = ? AND segment = ?"

ADD_BRANCH = """
    INSERT INTO branches (owner, session, id, name, created, system, segment, resources,
                          capabilities, metadata, version, checksum)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 0,
            row_checksum(?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10))"""
_LENGTH = """(
        SELECT coalesce(max(e.pos) + 1, 0) FROM entries e
        WHERE e.owner = b.owner AND e.segment = b.segment)"""
ALL_BRANCHES = f"""
    SELECT b.id, b.name, b.created, b.system, b.segment, {_LENGTH}, b.resources, b.capabilities,
           b.metadata, b.version
    FROM branches b WHERE b.owner = ? AND b.session = ? ORDER BY b.created, b.id"""
FIND_BRANCH = f"""
    SELECT b.segment, s.id, {_LENGTH}, coalesce((
        SELECT checksum FROM entries e WHERE e.owner = b.owner AND e.segment = b.segment
        ORDER BY e.pos DESC LIMIT 1), 0), b.name, b.version, b.system
    FROM branches b JOIN segments s ON s.no = b.segment
    WHERE b.owner = ? AND b.session = ? AND b.id = ?"""
# A union, each half of which goes by its key: for an OR, SQLite looks at all branches of a session.
BRANCHES_LIKE = """
    SELECT b.id, b.name, s.id FROM branches b JOIN segments s ON s.no = b.segment
    WHERE b.owner = ?1 AND b.session = ?2 AND b.id = ?3
    UNION SELECT b.id, b.name, s.id FROM branches b JOIN segments s ON s.no = b.segment
    WHERE b.owner = ?1 AND b.session = ?2 AND b.name = ?4"""
CHANGE_BRANCH = """
    UPDATE branches SET system = ?1, segment = ?2, resources = ?3, capabilities = ?4,
                        version = version + 1,
                        checksum = row_checksum(id, name, created, ?1, ?2, ?3, ?4, metadata)
    WHERE owner = ?5 AND session = ?6 AND id = ?7"""
RENAME_BRANCH = """
    UPDATE branches SET name = ?1, checksum = row_checksum(
        id, ?1, created, system, segment, resources, capabilities, metadata)
    WHERE owner = ?2 AND session = ?3 AND id = ?4"""
DELETE_BRANCH = "DELETE FROM branches WHERE owner = ? AND session = ? AND id = ?"

FIND_LEASE = """
    SELECT holder, token, expires, clock, wall FROM leases
    WHERE owner = ? AND session = ? AND branch = ?"""
PUT_LEASE = """
    REPLACE INTO leases (owner, session, branch, holder, token, expires, clock, wall)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
END_LEASE = "UPDATE leases SET expires = 0 WHERE owner = ? AND session = ? AND branch = ?"
DELETE_LEASE = "DELETE FROM leases WHERE owner = ? AND session = ? AND branch = ?"

LABELS = """
    SELECT m.id, l.judge, l.score, l.created FROM labels l
    JOIN messages m ON m.no = l.message AND m.owner = l.owner
    WHERE l.owner = ? AND l.session = ? ORDER BY l.created, m.no"""
PUT_LABEL = """
    INSERT INTO labels (owner, session, message, judge, score, created) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (owner, session, message, judge)
    DO UPDATE SET score = excluded.score, created = excluded.created"""
DELETE_LABEL = """
    DELETE FROM labels WHERE owner = ? AND session = ? AND message = ? AND judge = ?"""
DELETE_LABELS_OF = "DELETE FROM labels WHERE owner = ? AND session = ? AND message = ?"

STARTS = """
    SELECT m.id, c.times FROM starts c JOIN messages m ON m.no = c.message AND m.owner = c.owner
    WHERE c.owner = ? AND c.session = ?"""
STARTS_OF = """
    SELECT c.times FROM messages m
    CROSS JOIN starts c ON c.owner = m.owner AND c.session = m.session AND c.message = m.no
    WHERE m.owner = ? AND m.session = ? AND m.id = ?"""
# Changes no row if the message is not there, or the call was started more often than is known.
START_CALL = """
    INSERT INTO starts (owner, session, message, times)
    SELECT owner, session, no, 1 FROM messages WHERE owner = ?1 AND session = ?2 AND id = ?3
    ON CONFLICT DO UPDATE SET times = times + 1 WHERE ?4 IS NULL OR times = ?4"""
PUT_STARTS = """
    INSERT INTO starts (owner, session, message, times) VALUES (?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET times = max(times, excluded.times)"""
DELETE_STARTS_OF = "DELETE FROM starts WHERE owner = ? AND session = ? AND message = ?"

FIND_JOURNAL = "SELECT no FROM journals WHERE owner = ? AND session = ? AND branch = ?"
ADD_JOURNAL = "INSERT INTO journals (owner, session, branch) VALUES (?, ?, ?) RETURNING no"
DELETE_JOURNAL = "DELETE FROM journals WHERE owner = ? AND no = ?"

# SQLite would rather look at all runs of the journal: it expects few.
FIND_RUN = """
    SELECT no FROM runs INDEXED BY runs_id
    WHERE owner = ?1 AND journal = ?2 AND substr(id, 13) = substr(?3, 13) AND id = ?3"""
RUNS = """
    SELECT no, id, state, created, updated, body FROM runs
    WHERE owner = ? AND journal = ? ORDER BY no DESC LIMIT ?"""
LAST_RUNS = """
    SELECT j.branch, r.no, r.id, r.state, r.created, r.updated, r.body FROM journals j
    CROSS JOIN runs r ON r.owner = j.owner AND r.journal = j.no AND r.no = (
        SELECT max(l.no) FROM runs l WHERE l.owner = j.owner AND l.journal = j.no)
    WHERE j.owner = ? AND j.session = ?"""
PUT_RUN = """
    REPLACE INTO runs (owner, journal, no, id, state, created, updated, body)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
DELETE_RUNS = "DELETE FROM runs WHERE owner = ? AND journal = ?"

ADD_EVENT = """
    INSERT INTO events (owner, journal, seq, run, message, body) VALUES (?, ?, ?, ?, ?, ?)"""
EVENTS = """
    SELECT e.seq, r.id, coalesce(m.id, e.message), e.body FROM events e
    JOIN runs r ON r.owner = e.owner AND r.journal = e.journal AND r.no = e.run
    LEFT JOIN messages m ON m.no = e.message AND m.owner = e.owner
    WHERE e.owner = ? AND e.journal = ? AND e.seq > ?
      AND (m.no IS NOT NULL OR typeof(e.message) <> 'integer')
    ORDER BY e.seq LIMIT ?"""
LAST_EVENT = "SELECT coalesce(max(seq), 0) FROM events WHERE owner = ? AND journal = ?"
# Messages by their numbers, and by their ids in hexadecimal.
DELETE_EVENTS_ABOUT = """
    DELETE FROM events
    WHERE owner = ? AND journal IN (SELECT no FROM journals WHERE owner = ? AND session = ?)
      AND iif(typeof(message) = 'blob', hex(message), message) IN (
          SELECT value FROM json_each(?))"""
DELETE_EVENTS = "DELETE FROM events WHERE owner = ? AND journal = ?"
