"""SQL statements about vectors in SQLite."""

from typing import Final

FIND_SERIES: Final = "SELECT no, messages, files, erased FROM series WHERE owner = ? AND model = ?"
ADD_SERIES: Final = """
    INSERT INTO series (owner, model, messages, files, erased) VALUES (?, ?, 0, 0, 0)
    ON CONFLICT DO NOTHING"""
SET_MARKS: Final = (
    "UPDATE series SET messages = max(messages, ?), files = max(files, ?) WHERE no = ?"
)
UNEMBEDDED_MESSAGES: Final = """
    SELECT m.no, m.id, m.created, m.body FROM messages m
    WHERE m.no > :mark AND m.owner = :owner AND NOT EXISTS (
        SELECT 1 FROM vectors v WHERE v.series = :series AND v.place = m.no)
      AND NOT EXISTS (
        SELECT 1 FROM detached d
        WHERE d.owner = m.owner AND d.session = m.session AND d.message = m.no)
    ORDER BY m.no LIMIT :limit"""
UNEMBEDDED_FILES: Final = """
    SELECT -v.no, f.id, v.body FROM versions v
    JOIN files f ON f.owner = v.owner AND f.no = v.file
    WHERE v.no > :mark AND v.owner = :owner AND NOT EXISTS (
        SELECT 1 FROM vectors x WHERE x.series = :series AND x.place = -v.no)
    ORDER BY v.no LIMIT :limit"""
ADD_MESSAGE_VECTOR: Final = """
    INSERT INTO vectors (series, place, vector) SELECT ?, no, ? FROM messages
    WHERE owner = ? AND no = ? AND id = ? ON CONFLICT DO NOTHING"""
ADD_FILE_VECTOR: Final = """
    INSERT INTO vectors (series, place, vector)
    SELECT ?, -v.no, ? FROM versions v JOIN files f ON f.owner = v.owner AND f.no = v.file
    WHERE v.owner = ? AND -v.no = ? AND f.id = ? ON CONFLICT DO NOTHING"""
VECTORS: Final = "SELECT no, place, vector FROM vectors WHERE series = ? AND no > ? ORDER BY no"
