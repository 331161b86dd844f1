"""What is asked about messages on no branch in SQLite, by name. Values are only ever parameters."""

SEGMENTS = "SELECT no, base, start FROM segments WHERE owner = ? AND session = ?"
BRANCHES = "SELECT id, segment, system FROM branches WHERE owner = ? AND session = ?"
# A cross join is read in its order: left to choose, SQLite goes through all entries of the owner.
_IN_RANGES = """
    SELECT DISTINCT e.message FROM json_each(:ranges) r
    CROSS JOIN entries e ON e.owner = :owner AND e.segment = json_extract(r.value, '$[0]')
        AND e.pos >= json_extract(r.value, '$[1]') AND e.pos < json_extract(r.value, '$[2]')"""
MESSAGES_IN = _IN_RANGES
MESSAGES_AMONG = f"{_IN_RANGES} WHERE e.message IN (SELECT value FROM json_each(:messages))"
PLACES = """
    SELECT m.id, e.segment, e.pos FROM segments s
    CROSS JOIN entries e ON e.owner = s.owner AND e.segment = s.no
    CROSS JOIN messages m ON m.no = e.message
    WHERE s.owner = :owner AND s.session = :session
      AND hex(m.id) IN (SELECT value FROM json_each(:ids))"""
NAMES = """
    SELECT b.name, b.id, m.id FROM branches b
    LEFT JOIN messages m ON m.no = b.system AND m.owner = b.owner
    WHERE b.owner = ? AND b.session = ? ORDER BY b.created, b.id"""

HAS_ANY = "SELECT 1 FROM detached WHERE owner = ? AND session = ? LIMIT 1"
# Messages by number, less those in archives.
ADD = """
    INSERT INTO detached (owner, session, message, since, words)
    SELECT m.owner, m.session, m.no, :since,
        m.no <= coalesce((SELECT max(mark) FROM indexed), 0)
    FROM json_each(:messages) g CROSS JOIN messages m ON m.no = g.value
    WHERE m.owner = :owner AND m.session = :session AND NOT EXISTS (
        SELECT 1 FROM archived a
        WHERE a.owner = m.owner AND a.session = m.session AND a.message = m.no)
    ON CONFLICT DO NOTHING"""
DROP = """
    DELETE FROM detached WHERE owner = :owner AND session = :session
      AND message IN (SELECT value FROM json_each(:messages)) RETURNING message, words"""
BODY = "SELECT created, body FROM messages WHERE owner = ? AND no = ?"
REMOVED = """
    SELECT o.tenant, o.kind, o.name, s.id, m.id, d.since FROM detached d
    CROSS JOIN owners o ON o.no = d.owner
    CROSS JOIN sessions s ON s.no = d.session AND s.owner = d.owner
    CROSS JOIN messages m ON m.no = d.message
    WHERE d.since < :before AND (:owner IS NULL OR d.owner = :owner)
      AND (:session IS NULL OR s.id = :session)
    ORDER BY d.since, m.id LIMIT :limit"""
REMOVED_IN = """
    SELECT m.id FROM detached d CROSS JOIN messages m ON m.no = d.message
    WHERE d.owner = ? AND d.session = ? AND d.since < ? ORDER BY m.id LIMIT ?"""
SET_SINCE = """
    UPDATE detached SET since = ? WHERE owner = ? AND session = ? AND message = (
        SELECT no FROM messages m WHERE m.owner = detached.owner AND m.session = detached.session
        AND m.id = ?)"""
