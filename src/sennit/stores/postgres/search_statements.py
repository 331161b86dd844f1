"""SQL statements about the full-text index in PostgreSQL.

`ts_rank` knows how often a text says a word and how long it is, but not how rare the word is; so
each word is looked up for itself, and its rank weighs as much as its matches are few. How many rows
there are in all is taken from the planner's statistics: to count them would cost with the store.
"""

from typing import Final

IS_UNINDEXED: Final = """
    SELECT EXISTS (SELECT FROM sennit.sessions
                   WHERE owner = %(owner)s AND unindexed
                     AND (%(session)s::uuid IS NULL OR id = %(session)s::uuid))"""
LOCK_UNINDEXED: Final = """
    SELECT no, indexed FROM sennit.sessions
    WHERE owner = %(owner)s AND unindexed
      AND (%(session)s::uuid IS NULL OR id = %(session)s::uuid)
    ORDER BY no LIMIT %(limit)s FOR UPDATE"""
UNINDEXED: Final = """
    SELECT m.session, m.no, m.created, m.body
    FROM unnest(%(sessions)s::bigint[], %(marks)s::bigint[]) AS given (session, mark)
    CROSS JOIN LATERAL (
        SELECT m.session, m.no, m.created, CASE WHEN EXISTS (
            SELECT FROM sennit.detached d
            WHERE d.owner = %(owner)s AND d.session = m.session AND d.message = m.no)
            THEN NULL ELSE m.body END AS body
        FROM sennit.messages m
        WHERE m.owner = %(owner)s AND m.session = given.session AND m.no > given.mark
        ORDER BY m.no LIMIT %(limit)s
    ) m ORDER BY m.session, m.no LIMIT %(limit)s"""
ADD_WORDS: Final = """
    INSERT INTO sennit.words (owner, session, message, words)
    SELECT %(owner)s, g.session, g.message, to_tsvector('sennit.words', g.said)
    FROM unnest(%(sessions)s::bigint[], %(messages)s::bigint[], %(said)s::text[])
    AS g (session, message, said)"""
SET_MARKS: Final = """
    UPDATE sennit.sessions s SET indexed = given.mark, unindexed = given.unindexed
    FROM unnest(%(sessions)s::bigint[], %(marks)s::bigint[], %(unindexed)s::boolean[])
    AS given (no, mark, unindexed)
    WHERE s.owner = %(owner)s AND s.no = given.no"""

# The mark of the owner is a word of each of their messages, so that the index itself keeps owners
# apart. A long message has several rows.
HITS: Final = """
    WITH asked AS MATERIALIZED (
        SELECT g.at, to_tsquery('sennit.words', g.word) AS word, %(mark)s::tsquery AS mark
        FROM unnest(%(words)s::text[]) WITH ORDINALITY AS g (word, at)
    ), found AS MATERIALIZED (
        SELECT a.at, w.session, w.message AS no, max(ts_rank(w.words, a.word, 1)) AS fit
        FROM asked a JOIN sennit.words w ON w.words @@ (a.mark && a.word)
        WHERE w.owner = %(owner)s GROUP BY a.at, w.session, w.message
    ), every AS (
        SELECT greatest(reltuples::float8, (SELECT count(*) FROM found)::float8) AS n
        FROM pg_class WHERE oid = 'sennit.words'::regclass
    ), rare AS (
        SELECT f.at, ln(1 + (greatest(e.n - count(*), 0) + 0.5) / (count(*) + 0.5)) AS weight
        FROM found f, every e GROUP BY f.at, e.n
    ), best AS (
        SELECT f.session, f.no, m.created, sum(f.fit * 16 * r.weight)::float8 AS score
        FROM found f JOIN rare r ON r.at = f.at
        JOIN sennit.messages m
          ON m.owner = %(owner)s AND m.session = f.session AND m.no = f.no
        JOIN sennit.sessions s ON s.owner = %(owner)s AND s.no = f.session
        WHERE (%(session)s::uuid IS NULL OR s.id = %(session)s::uuid)
          AND (%(since)s::bigint IS NULL OR m.created >= %(since)s::bigint)
          AND (%(until)s::bigint IS NULL OR m.created < %(until)s::bigint)
        GROUP BY f.session, f.no, m.created ORDER BY 4 DESC, 2 DESC LIMIT %(limit)s
    )
    SELECT b.no, b.session, a.number, b.created, b.score,
           ARRAY(SELECT no FROM sennit.messages m
                 WHERE m.owner = %(owner)s AND m.session = b.session AND m.no < b.no
                 ORDER BY m.no DESC LIMIT 2),
           ARRAY(SELECT no FROM sennit.messages m
                 WHERE m.owner = %(owner)s AND m.session = b.session AND m.no > b.no
                 ORDER BY m.no LIMIT 2)
    FROM best b LEFT JOIN sennit.archived a
      ON a.owner = %(owner)s AND a.session = b.session AND a.message = b.no
    ORDER BY b.score DESC, b.no DESC"""
AT_PLACES: Final = """
    SELECT m.no, s.id, s.key, a.number, EXISTS (
        SELECT FROM sennit.branches b WHERE b.owner = s.owner AND b.session = s.no OFFSET 1),
        m.id, m.created, m.body, m.checksum
    FROM sennit.words w
    JOIN sennit.messages m ON m.owner = w.owner AND m.session = w.session AND m.no = w.message
    JOIN sennit.sessions s ON s.owner = m.owner AND s.no = m.session
    LEFT JOIN sennit.archived a
      ON a.owner = m.owner AND a.session = m.session AND a.message = m.no
    WHERE w.owner = %(owner)s AND w.message = ANY (%(places)s::bigint[])"""

UNINDEXED_FILES: Final = """
    SELECT owner, no, body FROM sennit.versions
    WHERE owner = ANY (%s::integer[]) AND words IS NULL ORDER BY owner, no LIMIT %s FOR UPDATE"""
SET_FILE_WORDS: Final = """
    UPDATE sennit.versions v SET words = to_tsvector('sennit.words', given.said)
    FROM unnest(%s::integer[], %s::bigint[], %s::text[]) AS given (owner, no, said)
    WHERE v.owner = given.owner AND v.no = given.no"""
HAS_UNINDEXED_FILES: Final = """
    SELECT EXISTS (
        SELECT FROM sennit.versions WHERE owner = ANY (%s::integer[]) AND words IS NULL)"""
FILE_HITS: Final = """
    WITH asked AS MATERIALIZED (
        SELECT g.at, to_tsquery('sennit.words', g.word) AS word
        FROM unnest(%(words)s::text[]) WITH ORDINALITY AS g (word, at)
    ), found AS MATERIALIZED (
        SELECT a.at, v.owner, v.no, ts_rank(v.words, a.word, 1) AS fit
        FROM asked a JOIN sennit.versions v ON v.words @@ a.word
        WHERE v.owner = ANY (%(owners)s::integer[])
    ), every AS (
        SELECT greatest(sum(reltuples)::float8, (SELECT count(*) FROM found)::float8) AS n
        FROM pg_class WHERE oid IN ('sennit.words'::regclass, 'sennit.versions'::regclass)
    ), rare AS (
        SELECT f.at, ln(1 + (greatest(e.n - count(*), 0) + 0.5) / (count(*) + 0.5)) AS weight
        FROM found f, every e GROUP BY f.at, e.n
    ), best AS (
        SELECT f.owner, f.no, sum(f.fit * 16 * r.weight)::float8 AS score
        FROM found f JOIN rare r ON r.at = f.at GROUP BY f.owner, f.no
        UNION ALL
        SELECT v.owner, v.no, 0 FROM sennit.versions v
        WHERE v.owner = ANY (%(owners)s::integer[]) AND v.no = ANY (%(places)s::bigint[])
    )
    SELECT b.owner, -v.no, b.score, f.no, f.id, f.path, f.category, f.created, f.active, v.no,
           v.number, v.written, v.valid_from, v.body, v.valid_to, v.made_by, v.info, v.replaced
    FROM best b JOIN sennit.versions v ON v.owner = b.owner AND v.no = b.no
    JOIN sennit.files f ON f.owner = v.owner AND f.no = v.file
    WHERE starts_with(f.path, %(under)s)
      AND (cardinality(%(categories)s::text[]) = 0 OR f.category = ANY (%(categories)s::text[]))
      AND (%(since)s::bigint IS NULL OR v.valid_from >= %(since)s::bigint)
      AND (%(until)s::bigint IS NULL OR v.valid_from < %(until)s::bigint)
      AND CASE WHEN %(at)s::bigint IS NULL THEN v.number = f.latest
          ELSE v.valid_from <= %(at)s::bigint
               AND (v.replaced IS NULL OR v.replaced > %(at)s::bigint)
               AND (v.valid_to IS NULL OR v.valid_to > %(at)s::bigint) END
    ORDER BY b.score DESC, v.no DESC LIMIT %(limit)s + cardinality(%(places)s::bigint[])"""
