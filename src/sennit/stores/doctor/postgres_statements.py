"""SQL statements of the integrity checks and repairs of a PostgreSQL database."""

from sennit.stores.postgres.statements import LAST_CHECKSUM

# Nobody writes while it is mended, and everybody may read.
LOCK = "LOCK TABLE sennit.sessions, sennit.owners IN EXCLUSIVE MODE"

NOBODYS = """
    SELECT 'message ' || no FROM sennit.messages
    WHERE owner NOT IN (SELECT no FROM sennit.owners)
    UNION ALL
    SELECT 'session ' || no FROM sennit.sessions
    WHERE owner NOT IN (SELECT no FROM sennit.owners)"""

LOST_SESSIONS = """
    SELECT owner, session FROM (
        SELECT owner, session FROM sennit.messages UNION
        SELECT owner, session FROM sennit.segments UNION
        SELECT owner, session FROM sennit.branches
    ) AS kept
    WHERE owner IN (SELECT no FROM sennit.owners) AND NOT EXISTS (
        SELECT FROM sennit.sessions s WHERE s.owner = kept.owner AND s.no = kept.session)"""
# Their words come with them, so the mark stands behind the last message that has some.
ADD_SESSION = """
    INSERT INTO sennit.sessions (owner, id, key, sender, created, updated, metadata, indexed,
                                 unindexed)
    SELECT %(owner)s, %(id)s, NULL, 'user', %(now)s, %(now)s, '{"recovered":true}',
           coalesce(max(message), 0), true
    FROM sennit.words WHERE owner = %(owner)s AND session = %(session)s
    RETURNING no"""
MOVE_ROWS = (
    "UPDATE sennit.messages SET session = %s WHERE owner = %s AND session = %s",
    "UPDATE sennit.segments SET session = %s WHERE owner = %s AND session = %s",
    "UPDATE sennit.branches SET session = %s WHERE owner = %s AND session = %s",
    "UPDATE sennit.leases SET session = %s WHERE owner = %s AND session = %s",
    "UPDATE sennit.journals SET session = %s WHERE owner = %s AND session = %s",
    "UPDATE sennit.words SET session = %s WHERE owner = %s AND session = %s",
    "UPDATE sennit.commits SET session = %s WHERE owner = %s AND session = %s",
    "UPDATE sennit.archived SET session = %s WHERE owner = %s AND session = %s",
    "UPDATE sennit.uses SET session = %s WHERE owner = %s AND session = %s",
    "UPDATE sennit.starts SET session = %s WHERE owner = %s AND session = %s",
    "UPDATE sennit.labels SET session = %s WHERE owner = %s AND session = %s",
    "UPDATE sennit.detached SET session = %s WHERE owner = %s AND session = %s",
)

LOST_SYSTEMS = """
    SELECT name FROM sennit.branches b WHERE system IS NOT NULL AND NOT EXISTS (
        SELECT FROM sennit.messages m
        WHERE m.owner = b.owner AND m.session = b.session AND m.no = b.system)"""
FORGET_SYSTEMS = """
    UPDATE sennit.branches b SET system = NULL, version = version + 1
    WHERE system IS NOT NULL AND NOT EXISTS (
        SELECT FROM sennit.messages m
        WHERE m.owner = b.owner AND m.session = b.session AND m.no = b.system)"""

LOST_TAILS = """
    SELECT name, owner, session, id FROM sennit.branches b WHERE NOT EXISTS (
        SELECT FROM sennit.segments s
        WHERE s.owner = b.owner AND s.session = b.session AND s.no = b.segment)"""
SET_TAIL = """
    UPDATE sennit.branches SET segment = %s, tail = %s, length = 0, version = version + 1,
                               checksum = '\\x0000000000000000'
    WHERE owner = %s AND session = %s AND id = %s"""
WRONG_TAILS = """
    SELECT b.name FROM sennit.branches b JOIN sennit.segments s
      ON s.owner = b.owner AND s.session = b.session AND s.no = b.segment
    WHERE s.id <> b.tail"""
NAME_TAILS = """
    UPDATE sennit.branches b SET tail = s.id, version = version + 1 FROM sennit.segments s
    WHERE s.owner = b.owner AND s.session = b.session AND s.no = b.segment AND s.id <> b.tail"""

BASES = "SELECT no, base, owner, session FROM sennit.segments ORDER BY no"
SET_BASE = """
    UPDATE sennit.segments SET base = %s, start = %s
    WHERE owner = %s AND session = %s AND no = %s"""

LOST_ENTRIES = """
    SELECT e.segment || ':' || e.pos, s.owner, s.session FROM sennit.entries e
    JOIN sennit.segments s ON s.no = e.segment AND s.owner = e.owner
    LEFT JOIN sennit.messages m
      ON m.no = e.message AND m.owner = e.owner AND m.session = s.session
    WHERE m.no IS NULL"""
GAPS = """
    SELECT e.segment, s.owner, s.session FROM sennit.entries e
    JOIN sennit.segments s ON s.no = e.segment AND s.owner = e.owner
    GROUP BY e.segment, s.owner, s.session
    HAVING min(e.pos) <> 0 OR max(e.pos) <> count(*) - 1"""
WRONG_STARTS = """
    SELECT s.no, s.owner, s.session FROM sennit.segments s
    LEFT JOIN sennit.segments b
      ON b.owner = s.owner AND b.session = s.session AND b.no = s.base
    WHERE (s.base IS NULL AND s.start <> 0) OR s.start < b.start
       OR s.start > b.start + coalesce((SELECT max(pos) + 1 FROM sennit.entries e
                                        WHERE e.owner = b.owner AND e.segment = b.no), 0)"""
SEGMENTS_TO_RELAY = """
    SELECT no, base, start FROM sennit.segments WHERE owner = %s AND session = %s ORDER BY no"""
ENTRIES_TO_RELAY = """
    SELECT e.pos, e.message FROM sennit.entries e
    JOIN sennit.messages m ON m.owner = e.owner AND m.no = e.message
    WHERE e.owner = %s AND m.session = %s AND e.segment = %s ORDER BY e.pos"""
TOUCH_BRANCHES = """
    UPDATE sennit.branches SET version = version + 1 WHERE owner = %s AND session = %s"""

TAILS = "SELECT segment FROM sennit.branches"
STRAY_ENTRIES = """
    SELECT segment || ':' || pos FROM sennit.entries e WHERE NOT EXISTS (
        SELECT FROM sennit.segments s WHERE s.no = e.segment AND s.owner = e.owner)"""
DROP_STRAY_ENTRIES = """
    DELETE FROM sennit.entries e WHERE NOT EXISTS (
        SELECT FROM sennit.segments s WHERE s.no = e.segment AND s.owner = e.owner)"""
STRAY_LEASES = """
    SELECT holder FROM sennit.leases l WHERE NOT EXISTS (
        SELECT FROM sennit.branches b
        WHERE b.owner = l.owner AND b.session = l.session AND b.id = l.branch)"""
DROP_STRAY_LEASES = """
    DELETE FROM sennit.leases l WHERE NOT EXISTS (
        SELECT FROM sennit.branches b
        WHERE b.owner = l.owner AND b.session = l.session AND b.id = l.branch)"""

STRAY_JOURNALS = """
    SELECT 'journal ' || no FROM sennit.journals j WHERE NOT EXISTS (
        SELECT FROM sennit.branches b
        WHERE b.owner = j.owner AND b.session = j.session AND b.id = j.branch)"""
DROP_STRAY_JOURNALS = """
    DELETE FROM sennit.journals j WHERE NOT EXISTS (
        SELECT FROM sennit.branches b
        WHERE b.owner = j.owner AND b.session = j.session AND b.id = j.branch)"""
STRAY_LABELS = """
    SELECT 'label by ' || judge FROM sennit.labels l WHERE NOT EXISTS (
        SELECT 1 FROM sennit.messages m
        WHERE m.owner = l.owner AND m.session = l.session AND m.no = l.message)"""
DROP_STRAY_LABELS = """
    DELETE FROM sennit.labels AS l WHERE NOT EXISTS (
        SELECT 1 FROM sennit.messages m
        WHERE m.owner = l.owner AND m.session = l.session AND m.no = l.message)"""
STRAY_STARTS = """
    SELECT 'starts of message ' || message FROM sennit.starts c WHERE NOT EXISTS (
        SELECT FROM sennit.messages m
        WHERE m.owner = c.owner AND m.session = c.session AND m.id = c.message)"""
DROP_STRAY_STARTS = """
    DELETE FROM sennit.starts c WHERE NOT EXISTS (
        SELECT FROM sennit.messages m
        WHERE m.owner = c.owner AND m.session = c.session AND m.id = c.message)"""
STRAY_RUNS = """
    SELECT 'run ' || journal || ':' || no FROM sennit.runs r WHERE NOT EXISTS (
        SELECT FROM sennit.journals j WHERE j.owner = r.owner AND j.no = r.journal)"""
DROP_STRAY_RUNS = """
    DELETE FROM sennit.runs r WHERE NOT EXISTS (
        SELECT FROM sennit.journals j WHERE j.owner = r.owner AND j.no = r.journal)"""
STRAY_EVENTS = """
    SELECT 'event ' || journal || ':' || seq FROM sennit.events e WHERE NOT EXISTS (
        SELECT FROM sennit.runs r
        WHERE r.owner = e.owner AND r.journal = e.journal AND r.no = e.run)"""
DROP_STRAY_EVENTS = """
    DELETE FROM sennit.events e WHERE NOT EXISTS (
        SELECT FROM sennit.runs r
        WHERE r.owner = e.owner AND r.journal = e.journal AND r.no = e.run)"""

_COUNT = """(
        SELECT count(*) FROM sennit.entries e WHERE e.owner = b.owner AND e.segment = b.segment)"""
_COUNTED_WRONG = f"length <> {_COUNT} OR checksum <> {LAST_CHECKSUM}"
WRONG_LENGTHS = f"SELECT name FROM sennit.branches b WHERE {_COUNTED_WRONG}"
COUNT_LENGTHS = f"""
    UPDATE sennit.branches b
    SET version = version + 1, length = {_COUNT}, checksum = {LAST_CHECKSUM}
    WHERE {_COUNTED_WRONG}"""

LOOSE_MESSAGES = """
    SELECT m.id FROM sennit.messages m
    WHERE NOT EXISTS (SELECT FROM sennit.entries e WHERE e.owner = m.owner AND e.message = m.no)
      AND NOT EXISTS (
        SELECT FROM sennit.branches b WHERE b.owner = m.owner AND b.system = m.no)
    ORDER BY m.owner, m.session, m.no"""

STARTS = "SELECT no, base, start FROM sennit.segments"
ENTRIES = "SELECT segment, pos, message FROM sennit.entries"
SYSTEMS_AND_ARCHIVED = """
    SELECT system FROM sennit.branches WHERE system IS NOT NULL
    UNION ALL SELECT message FROM sennit.archived"""
DETACHED = """
    SELECT m.owner, m.session, m.no, EXISTS (
        SELECT 1 FROM sennit.detached d
        WHERE d.owner = m.owner AND d.session = m.session AND d.message = m.no)
    FROM sennit.messages m ORDER BY m.no"""
ADD_DETACHED = "INSERT INTO sennit.detached (owner, session, message) VALUES (%s, %s, %s)"
DROP_DETACHED = """
    DELETE FROM sennit.detached WHERE owner = %s AND session = %s AND message = %s"""
STRAY_DETACHED = """
    SELECT 'message ' || message FROM sennit.detached d WHERE NOT EXISTS (
        SELECT 1 FROM sennit.messages m
        WHERE m.owner = d.owner AND m.session = d.session AND m.no = d.message)"""
DROP_STRAY_DETACHED = """
    DELETE FROM sennit.detached AS d WHERE NOT EXISTS (
        SELECT 1 FROM sennit.messages m
        WHERE m.owner = d.owner AND m.session = d.session AND m.no = d.message)"""

STRAY_WORDS = """
    SELECT DISTINCT 'words of message ' || message FROM sennit.words w WHERE NOT EXISTS (
        SELECT FROM sennit.messages m
        WHERE m.owner = w.owner AND m.session = w.session AND m.no = w.message)"""
DROP_STRAY_WORDS = """
    DELETE FROM sennit.words w WHERE NOT EXISTS (
        SELECT FROM sennit.messages m
        WHERE m.owner = w.owner AND m.session = w.session AND m.no = w.message)"""
# Messages up to the mark have words unless they are detached, those beyond it have none, and their
# session says so. A mark
# past every number that was ever given would hide those to come.
WRONGLY_INDEXED = """
    SELECT 'message ' || m.id, m.owner, m.session FROM sennit.messages m
    JOIN sennit.sessions s ON s.owner = m.owner AND s.no = m.session
    LEFT JOIN sennit.detached d
      ON d.owner = m.owner AND d.session = m.session AND d.message = m.no
    WHERE (m.no > s.indexed AND NOT s.unindexed AND d.message IS NULL)
       OR (m.no <= s.indexed AND d.message IS NULL) <> EXISTS (
        SELECT FROM sennit.words w
        WHERE w.owner = m.owner AND w.session = m.session AND w.message = m.no)
    UNION ALL
    SELECT 'mark of session ' || no, owner, no FROM sennit.sessions WHERE indexed > coalesce(
        pg_sequence_last_value(pg_get_serial_sequence('sennit.messages', 'no')::regclass), 0)"""
DROP_WORDS = "DELETE FROM sennit.words WHERE owner = %s AND session = %s"
INDEX_AGAIN = """
    UPDATE sennit.sessions SET indexed = 0, unindexed = true WHERE owner = %s AND no = %s"""

BODIES = "SELECT id, created, body, checksum FROM sennit.messages ORDER BY owner, session, no"
SET_CHECKSUM = """
    UPDATE sennit.messages SET checksum = %s WHERE id = %s AND created = %s AND body = %s"""
ENTRY_CHECKSUMS = """
    SELECT e.owner, e.segment, e.pos, m.id, e.checksum FROM sennit.entries e
    JOIN sennit.messages m ON m.owner = e.owner AND m.no = e.message
    ORDER BY e.owner, e.segment, e.pos"""
SEGMENT_SESSION = "SELECT session FROM sennit.segments WHERE owner = %s AND no = %s"
SESSION_COLUMNS = "SELECT 'session ' || no, metadata, '[]', '[]' FROM sennit.sessions"
BRANCH_COLUMNS = """
    SELECT 'branch ' || name, metadata, resources, capabilities FROM sennit.branches"""
