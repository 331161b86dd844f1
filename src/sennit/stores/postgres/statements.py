"""SQL statements of the PostgreSQL store.

Each one names the owner. A write first locks the row of its session, so that writers of a session
follow one another; what stands behind that lock may rely on what it reads.
"""

from typing import Final

HAS_SCHEMA: Final = """
    SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                   WHERE n.nspname = 'sennit' AND c.relname = 'schema')"""
IS_TAKEN: Final = """
    SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                   WHERE n.nspname = 'sennit')"""
VERSION: Final = "SELECT version FROM sennit.schema"
ADD_SCHEMA: Final = "CREATE SCHEMA IF NOT EXISTS sennit"
SET_VERSION: Final = "INSERT INTO sennit.schema (version, queue) VALUES (%s, %s)"
LOCK_SCHEMA: Final = "SELECT pg_advisory_xact_lock(6002821957385543252)"  # "SNNT", twice

# Statements are prepared, and all go by keys: to plan APPEND anew costs more than to run it.
PLAN_ONCE: Final = "SET plan_cache_mode = force_generic_plan"

# A transaction whose end was not heard of can be asked for by its number.
ADD_RECEIPT: Final = """
    INSERT INTO sennit.receipts (id) VALUES (%s) ON CONFLICT DO NOTHING RETURNING id"""
DROP_RECEIPTS: Final = """
    DELETE FROM sennit.receipts WHERE id IN (
        SELECT id FROM sennit.receipts WHERE made < now() - interval '1 day'
        LIMIT 10000 FOR UPDATE SKIP LOCKED)"""

WITHOUT_SYNC: Final = "SET LOCAL synchronous_commit = off"
SNAPSHOT: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"

FIND_OWNER: Final = """
    SELECT no FROM sennit.owners
    WHERE tenant = %s AND kind = %s AND name = %s AND of_user = %s"""
ADD_OWNER: Final = """
    INSERT INTO sennit.owners (tenant, kind, name, of_user) VALUES (%s, %s, %s, %s)
    ON CONFLICT (tenant, kind, name, of_user) DO UPDATE SET name = excluded.name RETURNING no"""

ADD_SESSION: Final = """
    INSERT INTO sennit.sessions (owner, id, key, sender, created, updated, metadata)
    VALUES (%s, %s, %s, %s, %s, %s, %s)
    ON CONFLICT (owner, id) DO UPDATE SET id = excluded.id
    RETURNING no, id, key, sender, created, updated, metadata"""
MAKE_SESSION: Final = """
    INSERT INTO sennit.sessions (owner, id, key, sender, created, updated, metadata)
    VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (owner, id) DO NOTHING"""
FIND_SESSION: Final = """
    SELECT no, id, key, sender, created, updated, metadata FROM sennit.sessions
    WHERE owner = %s AND id = %s"""
# Ordered by the hour first, for which there is an index: read from there, few are left to sort.
STORED: Final = """
    SELECT (SELECT count(*) FROM sennit.sessions WHERE owner = %(owner)s),
        (SELECT coalesce(sum(octet_length(metadata) + octet_length(coalesce(key, ''))), 0)
         FROM sennit.sessions WHERE owner = %(owner)s)
        + (SELECT coalesce(sum(octet_length(name)), 0) FROM sennit.branches WHERE owner = %(owner)s)
        + (SELECT coalesce(sum(octet_length(judge)), 0) FROM sennit.labels WHERE owner = %(owner)s)
        + (SELECT coalesce(sum(length(body)), 0) FROM sennit.messages WHERE owner = %(owner)s)
        + (SELECT coalesce(sum(length(body)), 0) FROM sennit.runs WHERE owner = %(owner)s)
        + (SELECT coalesce(sum(length(body)), 0) FROM sennit.events WHERE owner = %(owner)s)
        + (SELECT coalesce(sum(length(body)), 0) FROM sennit.versions WHERE owner = %(owner)s)"""
LIST_SESSIONS: Final = """
    SELECT no, id, key, sender, created, updated, metadata FROM sennit.sessions
    WHERE owner = %(owner)s
      AND (%(contains)s::text IS NULL OR strpos(lower(key), lower(%(contains)s::text)) > 0
           OR json_typeof(metadata::json -> 'title') = 'string'
              AND strpos(lower(metadata::json ->> 'title'), lower(%(contains)s::text)) > 0)
      AND hour <= %(updated)s::bigint / 3600000000
      AND (updated, id) < (%(updated)s::bigint, %(id)s::uuid)
    ORDER BY hour DESC, updated DESC, id DESC LIMIT %(limit)s"""
ALL_OWNERS: Final = "SELECT no, tenant, kind, name, of_user FROM sennit.owners ORDER BY no"
ALL_SESSIONS: Final = """
    SELECT no, id, key, sender, created, updated, metadata FROM sennit.sessions
    WHERE owner = %s ORDER BY no"""
LOCK_SESSION: Final = """
    SELECT no, updated FROM sennit.sessions WHERE owner = %s AND id = %s FOR UPDATE"""
LOCK_SESSIONS: Final = """
    SELECT s.no FROM sennit.sessions s
    JOIN unnest(%s::integer[], %s::uuid[]) AS given (owner, id)
      ON s.owner = given.owner AND s.id = given.id
    ORDER BY s.no FOR UPDATE OF s"""
TOUCH_SESSION: Final = """
    UPDATE sennit.sessions SET updated = greatest(updated + 1, %s), unindexed = unindexed OR %s
    WHERE owner = %s AND id = %s RETURNING no"""
DESCRIBE_SESSION: Final = "UPDATE sennit.sessions SET metadata = %s WHERE owner = %s AND no = %s"

# The usual write, a new message at the end of a branch, in one statement and so in one round trip.
# It does nothing if the session is missing, and fails if the branch is, or if the message is there.
# A message takes its number after the row of the session was locked, as its row comes from there.
APPEND: Final = """
    WITH session AS (
        UPDATE sennit.sessions SET updated = greatest(updated + 1, $1::bigint), unindexed = true
        WHERE owner = $2::integer AND id = $3::uuid RETURNING no
    ), branch AS (
        UPDATE sennit.branches SET length = length + 1, checksum =
            substring(sha256(checksum || int4send(length) || uuid_send($5::uuid)) FROM 1 FOR 8)
        WHERE owner = $2 AND session = (SELECT no FROM session) AND id = $4::uuid
        RETURNING session, segment, tail, length - 1 AS length, version, checksum
    ), message AS (
        INSERT INTO sennit.messages (owner, session, id, created, body, checksum)
        SELECT $2, (SELECT session FROM branch), $5, $6::bigint, $7::bytea, $8::bigint FROM session
        RETURNING no
    ), entry AS (
        INSERT INTO sennit.entries (owner, segment, pos, message, checksum)
        SELECT $2, segment, length, (SELECT no FROM message), checksum FROM branch
    )
    SELECT tail, length, version FROM branch"""

# Taking the lease of a branch, and all there is to know before a run begins. It gives nothing, and
# does nothing, if the branch is missing or held by another. The rules are those of `leases.taken`,
# judged by the clock of the server.
TAKE: Final = """
    WITH clock AS MATERIALIZED (
        SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now
    ), found AS (
        SELECT s.no AS session, b.tail, b.length, b.version, coalesce(l.token, 0) AS token,
               clock.now,
               (SELECT coalesce(max(seq), 0) FROM sennit.events
                WHERE owner = $1 AND journal = j.no) AS seq,
               (SELECT coalesce(max(number), 0) FROM sennit.commits
                WHERE owner = $1 AND session = s.no) AS commits,
               j.no AS journal
        FROM clock CROSS JOIN sennit.sessions s
        JOIN sennit.branches b ON b.owner = $1 AND b.session = s.no AND b.id = $3::uuid
        LEFT JOIN sennit.leases l ON l.owner = $1 AND l.session = s.no AND l.branch = $3
        LEFT JOIN sennit.journals j ON j.owner = $1 AND j.session = s.no AND j.branch = $3
        WHERE s.owner = $1::integer AND s.id = $2::uuid
          AND (l.token IS NULL OR l.holder = $4::text OR l.expires <= clock.now)
    ), lease AS (
        INSERT INTO sennit.leases (owner, session, branch, holder, token, expires)
        SELECT $1, session, $3, $4, token + 1, now + $6::bigint FROM found
        ON CONFLICT (owner, session, branch)
        DO UPDATE SET holder = excluded.holder, token = excluded.token, expires = excluded.expires
        RETURNING token, expires
    ), journal AS (
        INSERT INTO sennit.journals (owner, session, branch)
        SELECT $1, session, $3 FROM found WHERE journal IS NULL
    ), touched AS (
        UPDATE sennit.sessions s SET updated = greatest(s.updated + 1, $5::bigint)
        FROM found WHERE s.owner = $1 AND s.no = found.session
    )
    SELECT f.tail, f.length, f.version, lease.token, f.seq, f.commits::bigint, lease.expires,
           r.id, r.state, r.created, r.updated, r.body
    FROM found f CROSS JOIN lease LEFT JOIN LATERAL (
        SELECT id, state, created, updated, body FROM sennit.runs
        WHERE owner = $1 AND journal = f.journal
        ORDER BY no DESC LIMIT 1
    ) r ON true"""

# A step of a run: the messages it puts at the end of its branch, what happened, where it stands,
# and giving the branch back. It does nothing if the lease was lost, if the events do not follow
# the last one, or if a tool call was started more often than is known; it fails if a message is
# there.
# The session must have been locked before: this statement reads more rows than it writes.
NOTE: Final = """
    WITH held AS (
        SELECT s.no AS session, b.segment, b.tail, b.length, b.version, b.checksum, j.no AS journal,
               r.no AS run, cardinality($12::uuid[]) AS more,
               (SELECT coalesce(max(seq), 0) FROM sennit.events
                WHERE owner = $2 AND journal = j.no) AS last,
               (SELECT coalesce(max(no), 0) FROM sennit.runs
                WHERE owner = $2 AND journal = j.no) AS newest
        FROM sennit.sessions s
        JOIN sennit.branches b ON b.owner = $2 AND b.session = s.no AND b.id = $4::uuid
        JOIN sennit.leases l ON l.owner = $2 AND l.session = s.no AND l.branch = $4
                            AND l.token = $5::bigint
        JOIN sennit.journals j ON j.owner = $2 AND j.session = s.no AND j.branch = $4
        LEFT JOIN sennit.runs r ON r.owner = $2 AND r.journal = j.no AND r.id = $6::uuid
        WHERE s.owner = $2::integer AND s.id = $3::uuid
    ), fit AS (
        SELECT *, coalesce(run, newest + 1) AS no, sennit.rolled(checksum, length, $12) AS rolled
        FROM held
        WHERE (run IS NOT NULL OR $7::text IS NOT NULL)
          AND (cardinality($15::bigint[]) = 0 OR last + 1 = ($15::bigint[])[1])
          AND NOT EXISTS (
              SELECT FROM unnest($19::uuid[], $20::bigint[]) AS g (message, known)
              JOIN sennit.starts c ON c.owner = $2 AND c.session = held.session
                                  AND c.message = g.message
              WHERE c.times <> g.known)
    ), session AS (
        UPDATE sennit.sessions s
        SET updated = greatest(s.updated + 1, $1::bigint), unindexed = s.unindexed OR fit.more > 0
        FROM fit WHERE s.owner = $2 AND s.no = fit.session
    ), branch AS (
        UPDATE sennit.branches b SET length = b.length + fit.more, checksum = fit.rolled[fit.more]
        FROM fit WHERE b.owner = $2 AND b.session = fit.session AND b.id = $4 AND fit.more > 0
    ), message AS (
        INSERT INTO sennit.messages (owner, session, id, created, body, checksum)
        SELECT $2, fit.session, g.id, g.created, g.body, g.checksum
        FROM fit, unnest($12, $13::bigint[], $14::bytea[], $18::bigint[])
        WITH ORDINALITY AS g (id, created, body, checksum, at) ORDER BY g.at
        RETURNING no, id
    ), entry AS (
        INSERT INTO sennit.entries (owner, segment, pos, message, checksum)
        SELECT $2, fit.segment, fit.length + g.at - 1, message.no, fit.rolled[g.at]
        FROM fit, unnest($12) WITH ORDINALITY AS g (id, at) JOIN message ON message.id = g.id
    ), run AS (
        INSERT INTO sennit.runs (owner, journal, no, id, state, created, updated, body)
        SELECT $2, journal, no, $6, $7, $8::bigint, $9::bigint, $10::bytea
        FROM fit WHERE $7 IS NOT NULL
        ON CONFLICT (owner, journal, no)
        DO UPDATE SET state = excluded.state, created = excluded.created,
                      updated = excluded.updated, body = excluded.body
    ), event AS (
        INSERT INTO sennit.events (owner, journal, seq, run, message, body)
        SELECT $2, fit.journal, g.seq, fit.no, g.message, g.body
        FROM fit, unnest($15, $16::uuid[], $17::bytea[]) AS g (seq, message, body)
    ), start AS (
        INSERT INTO sennit.starts AS c (owner, session, message, times)
        SELECT $2, fit.session, g.id, 1 FROM fit, unnest($19) AS g (id)
        WHERE g.id = ANY ($12) OR EXISTS (
            SELECT FROM sennit.messages m
            WHERE m.owner = $2 AND m.id = g.id AND m.session = fit.session)
        ON CONFLICT (owner, session, message) DO UPDATE SET times = c.times + 1
    ), lease AS (
        UPDATE sennit.leases l SET expires = 0
        FROM fit WHERE l.owner = $2 AND l.session = fit.session AND l.branch = $4 AND $11::boolean
    )
    SELECT tail, length, version FROM fit"""

ADD_MESSAGES: Final = """
    INSERT INTO sennit.messages (owner, session, id, created, body, checksum)
    SELECT %(owner)s, %(session)s, g.id, g.created, g.body, g.checksum
    FROM unnest(%(ids)s::uuid[], %(created)s::bigint[], %(bodies)s::bytea[],
                %(checksums)s::bigint[])
    WITH ORDINALITY AS g (id, created, body, checksum, at) ORDER BY g.at
    ON CONFLICT (owner, id, session) DO NOTHING RETURNING no, id"""
# OFFSET 0 here and below keeps the planner to the key that was meant, also before a table has been
# analysed: until then it takes all that a session has for one row.
FIND_MESSAGES: Final = """
    SELECT no, id, created, body FROM (
        SELECT no, id, created, body, session FROM sennit.messages
        WHERE owner = %(owner)s AND id = ANY (%(ids)s) OFFSET 0
    ) m WHERE session = %(session)s"""
NUMBERS: Final = """
    SELECT no, id FROM (
        SELECT no, id, session FROM sennit.messages
        WHERE owner = %(owner)s AND id = ANY (%(ids)s) OFFSET 0
    ) m WHERE session = %(session)s"""
ALL_MESSAGES: Final = """
    SELECT no, id, created, body, checksum FROM sennit.messages
    WHERE owner = %s AND session = %s ORDER BY no"""
MESSAGES_BY_NO: Final = """
    SELECT no, id, created, body, checksum FROM sennit.messages
    WHERE owner = %s AND session = %s AND no = ANY (%s)"""
DELETE_MESSAGES: Final = """
    DELETE FROM sennit.messages WHERE owner = %s AND session = %s AND no = ANY (%s)"""
DELETE_WORDS: Final = """
    DELETE FROM sennit.words WHERE owner = %s AND session = %s AND message = ANY (%s)"""

ADD_SEGMENT: Final = """
    INSERT INTO sennit.segments (owner, session, id, base, start) VALUES (%s, %s, %s, %s, %s)
    RETURNING no"""
SEGMENT_SIZE: Final = """
    SELECT s.no, s.start, s.start + coalesce((SELECT max(e.pos) + 1 FROM sennit.entries e
                                              WHERE e.owner = %(owner)s AND e.segment = s.no), 0)
    FROM (
        SELECT no, start, session FROM sennit.segments
        WHERE owner = %(owner)s AND id = %(id)s OFFSET 0
    ) s WHERE s.session = %(session)s"""
SEGMENTS: Final = """
    SELECT no, id, base, start FROM sennit.segments WHERE owner = %s AND session = %s ORDER BY no"""
MOVE_SEGMENT: Final = """
    UPDATE sennit.segments SET id = %s, base = %s, start = %s
    WHERE owner = %s AND session = %s AND no = %s"""
SET_START: Final = """
    UPDATE sennit.segments SET start = %s WHERE owner = %s AND session = %s AND no = %s"""
COPY_ENTRIES: Final = """
    INSERT INTO sennit.entries (owner, segment, pos, message, checksum)
    SELECT owner, %s, pos, message, checksum FROM sennit.entries
    WHERE owner = %s AND segment = %s"""
DELETE_SEGMENTS: Final = """
    DELETE FROM sennit.segments WHERE owner = %s AND session = %s AND no = ANY (%s)"""

ADD_ENTRIES: Final = """
    INSERT INTO sennit.entries (owner, segment, pos, message, checksum)
    SELECT %s, %s, %s + g.at - 1, g.no, g.checksum
    FROM unnest(%s::bigint[], %s::bytea[]) WITH ORDINALITY AS g (no, checksum, at)"""
ALL_ENTRIES: Final = """
    SELECT e.segment, e.message, e.checksum FROM sennit.segments s
    JOIN sennit.entries e ON e.owner = s.owner AND e.segment = s.no
    WHERE s.owner = %s AND s.session = %s ORDER BY e.segment, e.pos"""
ENTRIES_FROM: Final = """
    SELECT e.segment, e.pos, e.checksum, m.no, m.id, m.created, m.body, m.checksum
    FROM unnest(%(segments)s::bigint[], %(places)s::integer[]) AS given (segment, pos)
    CROSS JOIN LATERAL (
        SELECT e.segment, e.pos, e.message, e.checksum FROM sennit.entries e
        WHERE e.owner = %(owner)s AND e.segment = given.segment AND e.pos >= given.pos OFFSET 0
    ) e
    CROSS JOIN LATERAL (
        SELECT m.no, m.id, m.created, m.body, m.checksum FROM sennit.messages m
        WHERE m.owner = %(owner)s AND m.session = %(session)s AND m.no = e.message OFFSET 0
    ) m
    ORDER BY e.segment, e.pos"""
# Where messages stand in the history that ends with a segment: in it, or in what is below it.
PLACES: Final = """
    WITH RECURSIVE chain (no, base, start, upto) AS (
        SELECT s.no, s.base, s.start, s.start + %(length)s::integer FROM sennit.segments s
        WHERE s.owner = %(owner)s AND s.session = %(session)s AND s.no = %(segment)s
        UNION
        SELECT s.no, s.base, s.start, least(c.start, c.upto) FROM chain c
        JOIN sennit.segments s
          ON s.owner = %(owner)s AND s.session = %(session)s AND s.no = c.base
    )
    SELECT e.message, e.pos, c.no = %(segment)s FROM chain c
    JOIN sennit.entries e ON e.owner = %(owner)s AND e.segment = c.no AND e.pos < c.upto - c.start
    WHERE e.message = ANY (%(messages)s::bigint[])"""
TAKE_ENTRIES: Final = """
    DELETE FROM sennit.entries
    WHERE owner = %s AND message = ANY (%s::bigint[])
    RETURNING segment, pos"""
ENTRY_CHECKSUM: Final = """
    SELECT checksum FROM sennit.entries WHERE owner = %s AND segment = %s AND pos = %s"""
ENTRY_IDS: Final = """
    SELECT e.message, m.id FROM sennit.entries e
    JOIN sennit.messages m ON m.owner = %s AND m.session = %s AND m.no = e.message
    WHERE e.owner = %s AND e.segment = %s AND e.pos >= %s ORDER BY e.pos"""
DELETE_ENTRIES_FROM: Final = """
    DELETE FROM sennit.entries WHERE owner = %s AND segment = %s AND pos >= %s"""
LAST_CHECKSUM: Final = """coalesce(
        (SELECT checksum FROM sennit.entries e WHERE e.owner = b.owner AND e.segment = b.segment
         ORDER BY pos DESC LIMIT 1), '\\x0000000000000000'::bytea)"""
# Branches know the length of their segment and the checksum of its last entry.
SET_TAILS: Final = f"""
    UPDATE sennit.branches b SET checksum = {LAST_CHECKSUM}, length = coalesce(
        (SELECT max(pos) + 1 FROM sennit.entries e
         WHERE e.owner = b.owner AND e.segment = b.segment), 0)
    WHERE owner = %s AND session = %s AND segment = ANY (%s)"""
DELETE_ENTRIES: Final = "DELETE FROM sennit.entries WHERE owner = %s AND segment = ANY (%s)"

ADD_BRANCH: Final = """
    INSERT INTO sennit.branches (owner, session, id, name, created, system, segment, tail, length,
                                 version, checksum, resources, capabilities, metadata)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, 0, %s, %s, %s, %s)"""
ALL_BRANCHES: Final = """
    SELECT id, name, created, system, segment, tail, length, version, resources, capabilities,
           metadata
    FROM sennit.branches WHERE owner = %s AND session = %s ORDER BY created, id"""
FIND_BRANCH: Final = """
    SELECT segment, tail, length, checksum, name, version, system
    FROM sennit.branches WHERE owner = %s AND session = %s AND id = %s"""
# A union, each half of which goes by its key, however many branches there are.
BRANCHES_LIKE: Final = """
    SELECT id, name, tail FROM sennit.branches
    WHERE owner = %(owner)s AND session = %(session)s AND id = %(id)s
    UNION SELECT id, name, tail FROM sennit.branches
    WHERE owner = %(owner)s AND session = %(session)s AND name = %(name)s"""
GROW_BRANCH: Final = """
    UPDATE sennit.branches SET length = %s, checksum = %s
    WHERE owner = %s AND session = %s AND id = %s"""
CHANGE_BRANCH: Final = """
    UPDATE sennit.branches SET system = %s, segment = %s, tail = %s, resources = %s,
                               capabilities = %s, version = version + 1
    WHERE owner = %s AND session = %s AND id = %s"""
TOUCH_BRANCHES: Final = """
    UPDATE sennit.branches SET version = version + 1
    WHERE owner = %(owner)s AND session = %(session)s
      AND (segment = ANY (%(segments)s::bigint[]) OR system = ANY (%(messages)s::bigint[]))"""
FORGET_SYSTEM: Final = """
    UPDATE sennit.branches SET system = NULL
    WHERE owner = %s AND session = %s AND system = ANY (%s)"""
RENAME_BRANCH: Final = """
    UPDATE sennit.branches SET name = %s WHERE owner = %s AND session = %s AND id = %s"""
DELETE_BRANCH: Final = """
    DELETE FROM sennit.branches WHERE owner = %s AND session = %s AND id = %s"""

# In the microseconds of the server's clock, by which leases are judged.
LEASE_CLOCK: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
FIND_LEASE: Final = """
    SELECT holder, token, expires FROM sennit.leases
    WHERE owner = %s AND session = %s AND branch = %s"""
PUT_LEASE: Final = """
    INSERT INTO sennit.leases (owner, session, branch, holder, token, expires)
    VALUES (%s, %s, %s, %s, %s, %s)
    ON CONFLICT (owner, session, branch)
    DO UPDATE SET holder = excluded.holder, token = excluded.token, expires = excluded.expires"""
END_LEASE: Final = """
    UPDATE sennit.leases SET expires = 0 WHERE owner = %s AND session = %s AND branch = %s"""
DELETE_LEASE: Final = """
    DELETE FROM sennit.leases WHERE owner = %s AND session = %s AND branch = %s"""

FIND_JOURNAL: Final = """
    SELECT no FROM sennit.journals WHERE owner = %s AND session = %s AND branch = %s"""
ALL_JOURNALS: Final = "SELECT no, branch FROM sennit.journals WHERE owner = %s AND session = %s"
ADD_JOURNAL: Final = """
    INSERT INTO sennit.journals (owner, session, branch) VALUES (%s, %s, %s) RETURNING no"""
# The token of a branch's last lease, its journal, and the number of its last event.
HELD_JOURNAL: Final = """
    SELECT l.token, j.no, coalesce((SELECT max(e.seq) FROM sennit.events e
                                    WHERE e.owner = l.owner AND e.journal = j.no), 0)
    FROM sennit.leases l LEFT JOIN sennit.journals j
      ON j.owner = l.owner AND j.session = l.session AND j.branch = l.branch
    WHERE l.owner = %s AND l.session = %s AND l.branch = %s"""

RUN_NUMBERS: Final = """
    SELECT id, no FROM sennit.runs WHERE owner = %s AND id = ANY (%s) AND journal = %s"""
RUNS: Final = """
    SELECT id, state, created, updated, body FROM sennit.runs
    WHERE owner = %s AND journal = %s ORDER BY no DESC LIMIT %s"""
LAST_RUNS: Final = """
    SELECT j.branch, r.id, r.state, r.created, r.updated, r.body FROM sennit.journals j
    CROSS JOIN LATERAL (
        SELECT l.id, l.state, l.created, l.updated, l.body FROM sennit.runs l
        WHERE l.owner = j.owner AND l.journal = j.no ORDER BY l.no DESC LIMIT 1) r
    WHERE j.owner = %s AND j.session = %s"""
ADD_RUN: Final = """
    INSERT INTO sennit.runs (owner, journal, no, id, state, created, updated, body)
    VALUES (%s, %s, (SELECT coalesce(max(no), 0) + 1 FROM sennit.runs
                     WHERE owner = %s AND journal = %s), %s, %s, %s, %s, %s)"""
CHANGE_RUN: Final = """
    UPDATE sennit.runs SET state = %s, created = %s, updated = %s, body = %s
    WHERE owner = %s AND journal = %s AND id = %s"""

ADD_EVENTS: Final = """
    INSERT INTO sennit.events (owner, journal, seq, run, message, body)
    SELECT %s, %s, g.seq, g.run, g.message, g.body
    FROM unnest(%s::bigint[], %s::integer[], %s::uuid[], %s::bytea[])
    AS g (seq, run, message, body)"""
EVENTS: Final = """
    SELECT e.seq, r.id, e.message, e.body FROM sennit.events e
    JOIN sennit.runs r ON r.owner = e.owner AND r.journal = e.journal AND r.no = e.run
    WHERE e.owner = %s AND e.journal = %s AND e.seq > %s ORDER BY e.seq LIMIT %s"""
LAST_EVENT: Final = """
    SELECT coalesce(max(seq), 0) FROM sennit.events WHERE owner = %s AND journal = %s"""
DELETE_EVENTS_ABOUT: Final = """
    DELETE FROM sennit.events
    WHERE owner = %s AND journal = ANY (%s::bigint[]) AND message = ANY (%s::uuid[])"""
LABELS: Final = """
    SELECT m.id, l.judge, l.score, l.created FROM sennit.labels l
    JOIN sennit.messages m ON m.owner = l.owner AND m.session = l.session AND m.no = l.message
    WHERE l.owner = %s AND l.session = %s ORDER BY l.created, m.no"""
PUT_LABEL: Final = """
    INSERT INTO sennit.labels (owner, session, message, judge, score, created)
    VALUES (%s, %s, %s, %s, %s, %s)
    ON CONFLICT (owner, session, message, judge)
    DO UPDATE SET score = excluded.score, created = excluded.created"""
DELETE_LABEL: Final = """
    DELETE FROM sennit.labels WHERE owner = %s AND session = %s AND message = %s AND judge = %s"""
DELETE_LABELS_OF: Final = """
    DELETE FROM sennit.labels WHERE owner = %s AND session = %s AND message = ANY (%s)"""
STARTS: Final = """
    SELECT message, times FROM sennit.starts
    WHERE owner = %s AND session = %s AND (%s::uuid[] IS NULL OR message = ANY (%s))"""
# Changes no row if the message is not there, or the call was started more often than is known.
START_CALL: Final = """
    INSERT INTO sennit.starts AS c (owner, session, message, times)
    SELECT owner, session, id, 1 FROM sennit.messages
    WHERE owner = %(owner)s AND session = %(session)s AND id = %(message)s
    ON CONFLICT (owner, session, message) DO UPDATE SET times = c.times + 1
    WHERE %(known)s::bigint IS NULL OR c.times = %(known)s"""
PUT_STARTS: Final = """
    INSERT INTO sennit.starts AS c (owner, session, message, times) VALUES (%s, %s, %s, %s)
    ON CONFLICT (owner, session, message) DO UPDATE SET times = greatest(c.times, excluded.times)"""
DELETE_STARTS_OF: Final = """
    DELETE FROM sennit.starts WHERE owner = %s AND session = %s AND message = ANY (%s)"""
# All that hangs on messages, in the order in which it is erased.
DELETE_DETACHED: Final = """
    DELETE FROM sennit.detached WHERE owner = %s AND session = %s AND message = ANY (%s)"""
FORGET_MESSAGES: Final = (
    FORGET_SYSTEM,
    DELETE_WORDS,
    DELETE_LABELS_OF,
    DELETE_DETACHED,
    DELETE_MESSAGES,
)
ERASE_JOURNAL: Final = (
    "DELETE FROM sennit.events WHERE owner = %s AND journal = %s",
    "DELETE FROM sennit.runs WHERE owner = %s AND journal = %s",
    "DELETE FROM sennit.journals WHERE owner = %s AND no = %s",
)

# All that hangs on a session, in the order in which it is erased.
ERASE_SESSION: Final = (
    """DELETE FROM sennit.events e USING sennit.journals j
       WHERE j.owner = %s AND j.session = %s AND e.owner = j.owner AND e.journal = j.no""",
    """DELETE FROM sennit.runs r USING sennit.journals j
       WHERE j.owner = %s AND j.session = %s AND r.owner = j.owner AND r.journal = j.no""",
    "DELETE FROM sennit.journals WHERE owner = %s AND session = %s",
    "DELETE FROM sennit.archived WHERE owner = %s AND session = %s",
    "DELETE FROM sennit.uses WHERE owner = %s AND session = %s",
    "DELETE FROM sennit.commits WHERE owner = %s AND session = %s",
    "DELETE FROM sennit.labels WHERE owner = %s AND session = %s",
    "DELETE FROM sennit.starts WHERE owner = %s AND session = %s",
    "DELETE FROM sennit.leases WHERE owner = %s AND session = %s",
    "DELETE FROM sennit.branches WHERE owner = %s AND session = %s",
    """DELETE FROM sennit.entries e USING sennit.segments s
       WHERE s.owner = %s AND s.session = %s AND e.owner = s.owner AND e.segment = s.no""",
    "DELETE FROM sennit.segments WHERE owner = %s AND session = %s",
    "DELETE FROM sennit.words WHERE owner = %s AND session = %s",
    "DELETE FROM sennit.detached WHERE owner = %s AND session = %s",
    "DELETE FROM sennit.blob_refs WHERE owner = %s AND session = %s",
    "DELETE FROM sennit.messages WHERE owner = %s AND session = %s",
    "DELETE FROM sennit.sessions WHERE owner = %s AND no = %s",
)

# Words are written behind a mark of each session, whose row is locked meanwhile, and which is only
# moved together with them.
