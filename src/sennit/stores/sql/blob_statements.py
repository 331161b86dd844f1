"""SQL statements about blobs."""

from typing import Final

from sennit.stores.sql.connection import Sql

FIND: Final = Sql("""
    SELECT no, media_type, size, unused FROM sennit.blobs WHERE owner = %s AND hash = %s""")
USED: Final = Sql("SELECT coalesce(sum(size), 0)::bigint FROM sennit.blobs WHERE owner = %s")
ADD_BLOB: Final = Sql("""
    INSERT INTO sennit.blobs (owner, hash, media_type, size, unused)
    VALUES (%s, %s, %s, %s, %s) RETURNING no""")
# Nothing happens to an upload whose row was collected.
GROW_UPLOAD: Final = Sql("""
    UPDATE sennit.blobs SET size = %s, unused = %s
    WHERE owner = %s AND no = %s AND hash IS NULL AND unused > 0""")
COMPLETE_UPLOAD: Final = Sql("""
    UPDATE sennit.blobs SET hash = %s, media_type = %s, size = %s, unused = %s
    WHERE owner = %s AND no = %s AND hash IS NULL AND unused > 0""")
# In binary format: as text the bytes would be twice as many.
ADD_CHUNK: Final = Sql(
    """
    INSERT INTO sennit.blob_chunks (owner, blob, pos, bytes, checksum)
    VALUES (%s, %s, %s, %b, %s)""",
    """
    INSERT INTO blob_chunks (owner, blob, pos, bytes, checksum) VALUES (?, ?, ?, ?, ?)""",
)
CHUNKS: Final = Sql("""
    SELECT bytes, checksum FROM sennit.blob_chunks
    WHERE owner = %s AND blob = %s AND pos >= %s AND pos < %s ORDER BY pos""")
TOUCH: Final = Sql("""
    UPDATE sennit.blobs SET unused = %s WHERE owner = %s AND no = %s AND hash IS NOT NULL""")
# Two clients that store the same bytes at once end one after the other.
LOCK_HASH: Final = Sql(
    "SELECT pg_advisory_xact_lock(%s, hashtext(encode(%b, 'hex')))", "SELECT ?, ? LIMIT 0"
)

# Locked, so that they are not collected before the message that names them is there.
NAMED: Final = Sql(
    """
    SELECT no, hash FROM sennit.blobs
    WHERE owner = %s AND hash IN (SELECT decode(hex, 'hex') FROM unnest(%s::text[]) AS g (hex))
    ORDER BY no FOR KEY SHARE""",
    """
    SELECT no, hash FROM blobs
    WHERE owner = ? AND hash IN (SELECT unhex(value) FROM json_each(?))""",
)
ADD_REFERENCE: Final = Sql("""
    INSERT INTO sennit.blob_refs (owner, session, message, blob) VALUES (%s, %s, %s, %s)
    ON CONFLICT DO NOTHING""")
SET_USED: Final = Sql("""
    UPDATE sennit.blobs SET unused = NULL
    WHERE owner = %s AND no = ANY (%s) AND unused IS NOT NULL""")
MOVE_REFERENCES: Final = Sql("UPDATE sennit.blob_refs SET blob = %s WHERE owner = %s AND blob = %s")
DELETE_REFERENCES: Final = Sql("""
    DELETE FROM sennit.blob_refs WHERE owner = %s AND session = %s AND message = ANY (%s)""")

# A blob that somebody is about to name is locked, and left for the next time.
UNUSED: Final = Sql(
    """
    SELECT no, hash FROM sennit.blobs
    WHERE unused < %s AND (unused > 0 OR hash IS NOT NULL) AND owner = coalesce(%s::integer, owner)
    ORDER BY unused LIMIT %s FOR UPDATE SKIP LOCKED""",
    """
    SELECT no, hash FROM blobs
    WHERE unused < ? AND (unused > 0 OR hash IS NOT NULL) AND owner = coalesce(?, owner)
    ORDER BY unused LIMIT ?""",
)
HAS_UNUSED: Final = Sql("""
    SELECT 1 FROM sennit.blobs
    WHERE unused < %s AND owner = coalesce(%s::integer, owner) LIMIT 1""")
STILL_NAMED: Final = Sql("""
    SELECT b.no FROM sennit.blobs b WHERE b.no = ANY (%s) AND EXISTS (
        SELECT 1 FROM sennit.blob_refs r WHERE r.owner = b.owner AND r.blob = b.no)""")
KEEP: Final = Sql("UPDATE sennit.blobs SET unused = NULL WHERE no = ANY (%s)")
# A blob without a hash is none: it is being stored, or erased if `unused` is 0.
DOOM: Final = Sql("UPDATE sennit.blobs SET hash = NULL, unused = 0 WHERE no = ANY (%s)")
DOOMED: Final = Sql("SELECT owner, no FROM sennit.blobs WHERE hash IS NULL AND unused = 0 LIMIT 1")
LAST_CHUNKS: Final = Sql("""
    SELECT pos FROM sennit.blob_chunks WHERE owner = %s AND blob = %s
    ORDER BY pos DESC LIMIT %s""")
DELETE_CHUNKS: Final = Sql("""
    DELETE FROM sennit.blob_chunks WHERE owner = %s AND blob = %s AND pos >= %s""")
DELETE_BLOB: Final = Sql("DELETE FROM sennit.blobs WHERE owner = %s AND no = %s")
ALL_BLOBS: Final = Sql("""
    SELECT no, hash, media_type, size FROM sennit.blobs
    WHERE owner = %s AND hash IS NOT NULL ORDER BY no""")
