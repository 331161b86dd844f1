"""SQL statements that erase a session of a SQLite file.

A session whose owner is the negative of a number was deleted, and is being erased.
"""

HIDE_SESSION = """
    UPDATE sessions SET owner = -owner, id = randomblob(16), key = NULL, sender = '',
        metadata = '{}'
    WHERE owner = ? AND no = ?"""
HIDDEN = "SELECT -owner, no FROM sessions WHERE owner < 0 LIMIT 1"
DELETE_HIDDEN = "DELETE FROM sessions WHERE owner = -:owner AND no = :session"

# Some rows of each table, to be deleted by key: the first column says how many bytes they have.
SOME_EVENTS = """
    SELECT length(e.body), e.owner, e.journal, e.seq FROM journals j
    CROSS JOIN events e ON e.owner = j.owner AND e.journal = j.no
    WHERE j.owner = :owner AND j.session = :session LIMIT :rows"""
DELETE_EVENT = "DELETE FROM events WHERE owner = ? AND journal = ? AND seq = ?"
SOME_RUNS = """
    SELECT length(r.body), r.owner, r.journal, r.no FROM journals j
    CROSS JOIN runs r ON r.owner = j.owner AND r.journal = j.no
    WHERE j.owner = :owner AND j.session = :session LIMIT :rows"""
DELETE_RUN = "DELETE FROM runs WHERE owner = ? AND journal = ? AND no = ?"
SOME_ENTRIES = """
    SELECT 0, e.owner, e.segment, e.pos FROM segments s
    CROSS JOIN entries e ON e.owner = s.owner AND e.segment = s.no
    WHERE s.owner = :owner AND s.session = :session LIMIT :rows"""
DELETE_ENTRY = "DELETE FROM entries WHERE owner = ? AND segment = ? AND pos = ?"
SOME_USES = """
    SELECT length(body), owner, session, id FROM uses
    WHERE owner = :owner AND session = :session LIMIT :rows"""
DELETE_USE = "DELETE FROM uses WHERE owner = ? AND session = ? AND id = ?"
SOME_COMMITS = """
    SELECT length(body), owner, session, number FROM commits
    WHERE owner = :owner AND session = :session LIMIT :rows"""
DELETE_COMMIT = "DELETE FROM commits WHERE owner = ? AND session = ? AND number = ?"
SOME_LABELS = """
    SELECT 0, owner, session, message, judge FROM labels
    WHERE owner = :owner AND session = :session LIMIT :rows"""
DELETE_LABEL = """
    DELETE FROM labels WHERE owner = ? AND session = ? AND message = ? AND judge = ?"""
SOME_STARTS = """
    SELECT 0, owner, session, message FROM starts
    WHERE owner = :owner AND session = :session LIMIT :rows"""
DELETE_START = "DELETE FROM starts WHERE owner = ? AND session = ? AND message = ?"
SOME_ARCHIVED = """
    SELECT 0, owner, session, message FROM archived
    WHERE owner = :owner AND session = :session LIMIT :rows"""
DELETE_ARCHIVED = "DELETE FROM archived WHERE owner = ? AND session = ? AND message = ?"
SOME_BLOB_REFS = """
    SELECT 0, owner, session, message, blob FROM blob_refs
    WHERE owner = :owner AND session = :session LIMIT :rows"""
DELETE_BLOB_REF = """
    DELETE FROM blob_refs WHERE owner = ? AND session = ? AND message = ? AND blob = ?"""
SOME_BRANCHES = """
    SELECT length(metadata), owner, session, id FROM branches
    WHERE owner = :owner AND session = :session LIMIT :rows"""
DELETE_BRANCH = "DELETE FROM branches WHERE owner = ? AND session = ? AND id = ?"
SOME_SEGMENTS = """
    SELECT 0, owner, no FROM segments
    WHERE owner = :owner AND session = :session LIMIT :rows"""
DELETE_SEGMENT = "DELETE FROM segments WHERE owner = ? AND no = ?"
SOME_JOURNALS = """
    SELECT 0, owner, no FROM journals
    WHERE owner = :owner AND session = :session LIMIT :rows"""
DELETE_JOURNAL = "DELETE FROM journals WHERE owner = ? AND no = ?"
SOME_LEASES = """
    SELECT 0, owner, session, branch FROM leases
    WHERE owner = :owner AND session = :session LIMIT :rows"""
DELETE_LEASE = "DELETE FROM leases WHERE owner = ? AND session = ? AND branch = ?"

# The messages of a session, and whether their words are in the index.
SOME_MESSAGES = """
    SELECT m.no, m.created, m.body, m.no <= (SELECT mark FROM indexed) AND coalesce((
        SELECT d.words FROM detached d
        WHERE d.owner = m.owner AND d.session = m.session AND d.message = m.no), 1)
    FROM messages m WHERE m.owner = :owner AND m.session = :session LIMIT :rows"""
DELETE_DETACHED = "DELETE FROM detached WHERE owner = ? AND session = ? AND message = ?"
DELETE_MESSAGE = "DELETE FROM messages WHERE owner = ? AND no = ?"
