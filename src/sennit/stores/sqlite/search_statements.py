"""SQL statements about the full-text index in SQLite.

Messages stand in it by their number, versions of files by the negative of theirs: one index, so
that a word is as rare in both, and their scores can be compared.
"""

from typing import Final

from sennit.stores.sql.statements import FILE_COLUMNS

MARK: Final = "SELECT mark FROM indexed"
SET_MARK: Final = "UPDATE indexed SET mark = ?"
LOWER_MARK: Final = """
    UPDATE indexed SET mark = min(mark, (SELECT coalesce(max(no), 0) FROM messages))"""
IS_COMPLETE: Final = """
    SELECT coalesce(max(no), 0) <= ? AND NOT EXISTS (SELECT 1 FROM detached WHERE words = 1)
    FROM messages"""
UNINDEXED: Final = """
    SELECT no, created, CASE WHEN EXISTS (
        SELECT 1 FROM detached d
        WHERE d.owner = m.owner AND d.session = m.session AND d.message = m.no)
        THEN NULL ELSE body END
    FROM messages m WHERE no > ? ORDER BY no LIMIT ?"""
# Detached messages whose words are still in the index.
TO_DROP: Final = """
    SELECT m.no, m.created, m.body, d.owner, d.session FROM detached d
    CROSS JOIN messages m ON m.no = d.message WHERE d.words = 1 LIMIT ?"""
SET_DROPPED: Final = """
    UPDATE detached SET words = 0 WHERE owner = ? AND session = ? AND message = ?"""
ALL_FILES: Final = "SELECT no, body FROM versions ORDER BY no"
ADD_WORDS: Final = "INSERT INTO words (rowid, said) VALUES (?, ?)"
DROP_WORDS: Final = "INSERT INTO words (words, rowid, said) VALUES ('delete', ?, ?)"
# What was taken out stays in the index until its parts are merged.
COUNT_ERASED: Final = "UPDATE indexed SET erased = erased + ?"
ERASED: Final = "SELECT coalesce(max(erased), 0) FROM indexed"
# With a negative number of pages all parts are merged into one, not only those of a similar size.
MERGE_INDEX: Final = "INSERT INTO words (words, rank) VALUES ('merge', ?)"
SET_MERGED: Final = "UPDATE indexed SET erased = max(0, erased - ?)"

HAS_OTHERS: Final = "SELECT 1 FROM sessions WHERE owner < ?1 OR owner > ?1 LIMIT 1"

# Ids grow with time, so the key by id leads to the neighbours of a message in its session.
_AROUND: Final = """
    SELECT h.no, m.session, a.number, m.created, h.score,
           (SELECT group_concat(no) FROM (
                SELECT no FROM messages n WHERE n.owner = m.owner AND n.session = m.session
                AND n.id < m.id ORDER BY n.id DESC LIMIT 2)),
           (SELECT group_concat(no) FROM (
                SELECT no FROM messages n WHERE n.owner = m.owner AND n.session = m.session
                AND n.id > m.id ORDER BY n.id LIMIT 2))
    FROM found h CROSS JOIN messages m ON m.no = h.no
    LEFT JOIN archived a ON a.owner = m.owner AND a.session = m.session AND a.message = m.no
    WHERE m.owner = :owner ORDER BY h.score DESC, h.no DESC"""
HITS: Final = f"""
    WITH found (no, score) AS MATERIALIZED (
        SELECT rowid, -bm25(words) FROM words WHERE words MATCH :query AND rowid > 0
        ORDER BY bm25(words), rowid DESC LIMIT :limit
    ) {_AROUND}"""
HITS_AMONG: Final = f"""
    WITH found (no, score) AS MATERIALIZED (
        SELECT words.rowid, -bm25(words) FROM words
        CROSS JOIN messages m ON m.no = words.rowid
        CROSS JOIN sessions s ON s.no = m.session
        WHERE words MATCH :query AND words.rowid > 0 AND m.owner = :owner AND s.owner = :owner
          AND (:session IS NULL OR s.id = :session)
          AND (:since IS NULL OR m.created >= :since) AND (:until IS NULL OR m.created < :until)
        ORDER BY bm25(words), words.rowid DESC LIMIT :limit
    ) {_AROUND}"""
AT_PLACES: Final = """
    SELECT m.no, s.id, s.key, a.number, (
        SELECT 1 FROM branches b WHERE b.owner = s.owner AND b.session = s.no LIMIT 1 OFFSET 1),
        m.id, m.created, m.body, m.checksum
    FROM json_each(?2) p
    CROSS JOIN messages m ON m.no = p.value CROSS JOIN sessions s ON s.no = m.session
    LEFT JOIN archived a ON a.owner = m.owner AND a.session = m.session AND a.message = m.no
    WHERE m.owner = ?1 AND s.owner = ?1 AND NOT EXISTS (
        SELECT 1 FROM detached d
        WHERE d.owner = m.owner AND d.session = m.session AND d.message = m.no)"""
HAS_FILES: Final = "SELECT 1 FROM files LIMIT 1"
_WITHIN: Final = """
    v.owner IN (SELECT value FROM json_each(:owners))
    AND substr(f.path, 1, length(:under)) = :under
    AND (:categories = '[]' OR f.category IN (SELECT value FROM json_each(:categories)))
    AND (:since IS NULL OR v.valid_from >= :since)
    AND (:until IS NULL OR v.valid_from < :until)
    AND CASE WHEN :at IS NULL THEN v.number = f.latest
        ELSE v.valid_from <= :at AND (v.replaced IS NULL OR v.replaced > :at)
             AND (v.valid_to IS NULL OR v.valid_to > :at) END"""
FILE_HITS: Final = f"""
    SELECT v.owner, -v.no, -bm25(words), {FILE_COLUMNS}, v.checksum
    FROM words CROSS JOIN versions v ON v.no = -words.rowid
    CROSS JOIN files f ON f.no = v.file AND f.owner = v.owner
    WHERE words MATCH :query AND words.rowid < 0 AND {_WITHIN}
    ORDER BY bm25(words), v.no DESC LIMIT :limit"""
FILES_AT: Final = f"""
    SELECT v.owner, -v.no, 0.0, {FILE_COLUMNS}, v.checksum
    FROM json_each(:places) p CROSS JOIN versions v ON v.no = -p.value
    CROSS JOIN files f ON f.no = v.file AND f.owner = v.owner
    WHERE {_WITHIN}"""
