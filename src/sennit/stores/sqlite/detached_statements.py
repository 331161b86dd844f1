"""SQL statements about detached messages in SQLite."""

SEGMENTS = "SELECT no, base, start FROM segments WHERE owner = ? AND session = ?"
# Base and start of a segment; how many branches end with it and how many segments build on it, each
# counted up to two; and where the highest of those begins.
USE = """
    SELECT s.base, s.start,
        (SELECT count(*) FROM (SELECT 1 FROM branches b
                               WHERE b.owner = s.owner AND b.segment = s.no LIMIT 2)),
        (SELECT count(*) FROM (SELECT 1 FROM segments k
                               WHERE k.owner = s.owner AND k.base = s.no LIMIT 2)),
        (SELECT max(k.start) FROM segments k WHERE k.owner = s.owner AND k.base = s.no)
    FROM segments s WHERE s.owner = ? AND s.no = ?"""
MESSAGES_IN = """
    SELECT message FROM entries WHERE owner = ? AND segment = ? AND pos >= ? AND pos < ?"""
PLACES = """
    SELECT e.segment, e.pos FROM messages m
    CROSS JOIN entries e ON e.owner = m.owner AND e.message = m.no
    WHERE m.owner = ? AND m.session = ? AND m.id = ?"""
BRANCHES = """
    SELECT b.name, b.segment, m.id FROM branches b
    LEFT JOIN messages m ON m.no = b.system AND m.owner = b.owner
    WHERE b.owner = ? AND b.session = ? ORDER BY b.created, b.id"""

HAS_ANY = "SELECT 1 FROM detached WHERE owner = ? AND session = ? LIMIT 1"
# Messages by number, less those on branches, those that are system messages, and those in archives.
ADD = """
    INSERT INTO detached (owner, session, message, since, words)
    SELECT m.owner, m.session, m.no, :since,
        m.no <= coalesce((SELECT max(mark) FROM indexed), 0)
    FROM json_each(:messages) g CROSS JOIN messages m ON m.no = g.value
    WHERE m.owner = :owner AND m.session = :session AND NOT EXISTS (
        SELECT 1 FROM archived a
        WHERE a.owner = m.owner AND a.session = m.session AND a.message = m.no)
      AND NOT EXISTS (SELECT 1 FROM branches b WHERE b.owner = m.owner AND b.system = m.no)
      AND NOT EXISTS (
        SELECT 1 FROM entries e CROSS JOIN segments s ON s.no = e.segment
        WHERE e.owner = m.owner AND e.message = m.no AND (
            EXISTS (SELECT 1 FROM branches b WHERE b.owner = e.owner AND b.segment = e.segment)
            OR s.start + e.pos < (
                SELECT max(k.start) FROM segments k WHERE k.owner = e.owner AND k.base = e.segment)
        ))
    ON CONFLICT DO NOTHING"""
DROP = """
    DELETE FROM detached WHERE owner = :owner AND session = :session
      AND message IN (SELECT value FROM json_each(:messages)) RETURNING message, words"""
BODY = "SELECT created, body FROM messages WHERE owner = ? AND no = ?"
REMOVED_IN = """
    SELECT m.id FROM detached d CROSS JOIN messages m ON m.no = d.message
    WHERE d.owner = ? AND d.session = ? AND d.since < ? ORDER BY m.id LIMIT ?"""
SET_SINCE = """
    UPDATE detached SET since = ? WHERE owner = ? AND session = ? AND message = (
        SELECT no FROM messages m WHERE m.owner = detached.owner AND m.session = detached.session
        AND m.id = ?)"""
