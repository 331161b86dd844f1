"""SQL statements about detached messages in PostgreSQL."""

from typing import Final

SEGMENTS: Final = """
    SELECT no, base, start FROM sennit.segments WHERE owner = %s AND session = %s"""
# Base and start of a segment; how many branches end with it and how many segments build on it, each
# counted up to two; and where the highest of those begins. A scalar subquery is always asked for
# each row, by the key that was meant.
USES: Final = """
    SELECT s.no, s.base, s.start,
        (SELECT count(*) FROM (SELECT FROM sennit.branches b
                               WHERE b.owner = %(owner)s AND b.segment = s.no LIMIT 2) b),
        (SELECT count(*) FROM (SELECT FROM sennit.segments k
                               WHERE k.owner = %(owner)s AND k.base = s.no LIMIT 2) k),
        (SELECT max(k.start) FROM sennit.segments k
         WHERE k.owner = %(owner)s AND k.base = s.no)
    FROM unnest(%(segments)s::bigint[]) AS given (no)
    CROSS JOIN LATERAL (
        SELECT no, base, start FROM sennit.segments
        WHERE owner = %(owner)s AND session = %(session)s AND no = given.no OFFSET 0
    ) s"""
MESSAGES_IN: Final = """
    SELECT DISTINCT e.message
    FROM unnest(%(segments)s::bigint[], %(firsts)s::integer[], %(ends)s::integer[])
    AS r (segment, first, ending)
    CROSS JOIN LATERAL (
        SELECT e.message FROM sennit.entries e
        WHERE e.owner = %(owner)s AND e.segment = r.segment
          AND e.pos >= r.first AND e.pos < r.ending OFFSET 0
    ) e"""
PLACES: Final = """
    SELECT m.id, e.segment, e.pos FROM (
        SELECT no, id, session FROM sennit.messages
        WHERE owner = %(owner)s AND id = ANY (%(ids)s::uuid[]) OFFSET 0
    ) m
    CROSS JOIN LATERAL (
        SELECT segment, pos FROM sennit.entries
        WHERE owner = %(owner)s AND message = m.no OFFSET 0
    ) e WHERE m.session = %(session)s"""
BRANCHES: Final = """
    SELECT b.name, b.segment, m.id FROM sennit.branches b LEFT JOIN sennit.messages m
      ON m.owner = b.owner AND m.session = b.session AND m.no = b.system
    WHERE b.owner = %s AND b.session = %s ORDER BY b.created, b.id"""

HAS_ANY: Final = """
    SELECT EXISTS (SELECT FROM sennit.detached WHERE owner = %s AND session = %s)"""
# Messages by number, less those on branches, those that are system messages, and those in archives.
ADD: Final = """
    INSERT INTO sennit.detached (owner, session, message, since)
    SELECT %(owner)s, %(session)s, g.no, %(since)s::bigint
    FROM unnest(%(messages)s::bigint[]) AS g (no)
    WHERE NOT EXISTS (
        SELECT FROM sennit.archived a
        WHERE a.owner = %(owner)s AND a.session = %(session)s AND a.message = g.no)
      AND (SELECT true FROM sennit.branches b
           WHERE b.owner = %(owner)s AND b.system = g.no LIMIT 1) IS NULL
      AND (SELECT true FROM sennit.entries e
           WHERE e.owner = %(owner)s AND e.message = g.no AND (
               (SELECT true FROM sennit.branches b
                WHERE b.owner = %(owner)s AND b.segment = e.segment LIMIT 1)
               OR e.pos < (SELECT max(k.start) FROM sennit.segments k
                           WHERE k.owner = %(owner)s AND k.base = e.segment)
                        - (SELECT s.start FROM sennit.segments s
                           WHERE s.owner = %(owner)s AND s.session = %(session)s
                             AND s.no = e.segment)
           ) LIMIT 1) IS NULL
    ON CONFLICT DO NOTHING RETURNING message"""
DROP: Final = """
    DELETE FROM sennit.detached
    WHERE owner = %s AND session = %s AND message = ANY (%s) RETURNING message"""
# Those up to the mark of their session get their words now, others by the next search.
TO_INDEX: Final = """
    SELECT m.session, m.no, m.created, m.body FROM sennit.messages m
    JOIN sennit.sessions s ON s.owner = m.owner AND s.no = m.session
    WHERE m.owner = %s AND m.session = %s AND m.no = ANY (%s) AND m.no <= s.indexed"""
INDEX_MORE: Final = "UPDATE sennit.sessions SET unindexed = true WHERE owner = %s AND no = %s"
REMOVED_IN: Final = """
    SELECT m.id FROM sennit.detached d JOIN sennit.messages m
      ON m.owner = d.owner AND m.session = d.session AND m.no = d.message
    WHERE d.owner = %s AND d.session = %s AND d.since < %s ORDER BY m.id"""
