-- All tables of a PostgreSQL database. Raise SCHEMA_VERSION (stores/schema_version.py) with every change here.

-- The schema `sennit` and the tables of the job queue in it (`procrastinate_…`) are made just before
-- this. `queue` is the last of the job queue's own migrations that was made.
CREATE TABLE sennit.schema (version integer NOT NULL, queue text);

-- English stems without a stop list: which words tell nothing is decided when a question is asked.
CREATE TEXT SEARCH DICTIONARY sennit.stems (TEMPLATE = snowball, LANGUAGE = english);
CREATE TEXT SEARCH CONFIGURATION sennit.words (COPY = pg_catalog.english);
ALTER TEXT SEARCH CONFIGURATION sennit.words ALTER MAPPING REPLACE english_stem WITH sennit.stems;

-- Whose everything is. The number stands first in every key, so that tables can be partitioned.
-- `of_user` is the user whose own agent or resources they are, or empty.
CREATE TABLE sennit.owners (
    no integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    of_user text NOT NULL,
    UNIQUE (tenant, kind, name, of_user)
);

-- Changed by every write, so no index holds `updated` and pages keep room: the new row then stays
-- on its page and no index is touched. Sessions are paged by the hour of their last change, so that
-- no more than those of one hour are sorted at a time.
--
-- The words of a session's messages up to the number `indexed` are written, but for detached ones; `unindexed` says that
-- there may be more. A session's writers follow one another, so its numbers grow in the order of
-- commits, which numbers of the whole table do not. Only the first append after a search changes
-- `unindexed`, and with it an index.
CREATE TABLE sennit.sessions (
    no bigint GENERATED ALWAYS AS IDENTITY,
    owner integer NOT NULL,
    id uuid NOT NULL,
    key text,
    sender text NOT NULL,
    created bigint NOT NULL,
    updated bigint NOT NULL,
    metadata text NOT NULL,
    indexed bigint NOT NULL DEFAULT 0,
    unindexed boolean NOT NULL DEFAULT false,
    hour bigint GENERATED ALWAYS AS (updated / 3600000000) STORED,
    PRIMARY KEY (owner, no),
    UNIQUE (owner, id)
) WITH (fillfactor = 60);
CREATE INDEX sessions_unindexed ON sennit.sessions (owner, no) WHERE unindexed;
CREATE INDEX sessions_by_hour ON sennit.sessions (owner, hour);

-- Keys by id put the session last. Before a table is analysed the planner takes all that a session
-- has for one row; with the session first, such a key would seem as good for finding a number.
CREATE TABLE sennit.messages (
    no bigint GENERATED ALWAYS AS IDENTITY,
    session bigint NOT NULL,
    created bigint NOT NULL,
    owner integer NOT NULL,
    id uuid NOT NULL,
    checksum bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (owner, session, no),
    UNIQUE (owner, id, session)
);

-- Words are written after the messages, when somebody searches, and so have a table of their own: to
-- put them into the rows of messages later would write each body twice. A message whose words are
-- too many for one tsvector has several rows. Who said it and on which day are words of it too.
CREATE TABLE sennit.words (
    owner integer NOT NULL,
    session bigint NOT NULL,
    message bigint NOT NULL,
    words tsvector NOT NULL
);
CREATE INDEX words_message ON sennit.words (owner, session, message);
CREATE INDEX words_by_message ON sennit.words (owner, message);
CREATE INDEX words_words ON sennit.words USING gin (words);

-- Messages that stand on no branch, are no branch's system message and in no archive; they have no
-- words. `since` is when they were removed from their last branch; NULL if they never stood on one.
CREATE TABLE sennit.detached (
    owner integer NOT NULL,
    session bigint NOT NULL,
    message bigint NOT NULL,
    since bigint,
    PRIMARY KEY (owner, session, message)
);
CREATE INDEX detached_since ON sennit.detached (since) WHERE since IS NOT NULL;

-- A run of messages on top of the first `start` of the runs below it, of which the last are in its base.
CREATE TABLE sennit.segments (
    no bigint GENERATED ALWAYS AS IDENTITY,
    session bigint NOT NULL,
    base bigint,
    owner integer NOT NULL,
    start integer NOT NULL,
    id uuid NOT NULL,
    PRIMARY KEY (owner, session, no),
    UNIQUE (owner, id, session)
);
CREATE INDEX segments_base ON sennit.segments (owner, base, start) WHERE base IS NOT NULL;

CREATE TABLE sennit.entries (
    segment bigint NOT NULL,
    message bigint NOT NULL,
    owner integer NOT NULL,
    pos integer NOT NULL,
    checksum bytea NOT NULL,
    PRIMARY KEY (owner, segment, pos)
);
CREATE INDEX entries_message ON sennit.entries (owner, message);

-- The running checksums of entries from position `place`, as `stores.checksums` defines them.
CREATE FUNCTION sennit.rolled(before bytea, place integer, ids uuid[]) RETURNS bytea[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    id uuid;
    found bytea[] := '{}';
BEGIN
    FOREACH id IN ARRAY ids LOOP
        before := substring(sha256(before || int4send(place) || uuid_send(id)) FROM 1 FOR 8);
        found := found || before;
        place := place + 1;
    END LOOP;
    RETURN found;
END;
$$;

-- `tail` is the id of the segment, and `checksum` that of its last entry: an append that waited for
-- another writer may not see their rows.
CREATE TABLE sennit.branches (
    owner integer NOT NULL,
    session bigint NOT NULL,
    id uuid NOT NULL,
    name text NOT NULL,
    created bigint NOT NULL,
    system bigint,
    segment bigint NOT NULL,
    tail uuid NOT NULL,
    length integer NOT NULL,
    version integer NOT NULL,
    checksum bytea NOT NULL,
    -- NULL in both: the branch was never given grants.
    resources text,
    capabilities text,
    metadata text NOT NULL,
    PRIMARY KEY (owner, session, id),
    UNIQUE (owner, name, session),
    CHECK ((resources IS NULL) = (capabilities IS NULL))
) WITH (fillfactor = 60);
CREATE INDEX branches_segment ON sennit.branches (owner, segment);
CREATE INDEX branches_system ON sennit.branches (owner, system) WHERE system IS NOT NULL;

-- Who may run turns on a branch now. The token grows with each holder and is never taken back.
CREATE TABLE sennit.leases (
    owner integer NOT NULL,
    session bigint NOT NULL,
    branch uuid NOT NULL,
    holder text NOT NULL,
    token bigint NOT NULL,
    expires bigint NOT NULL,
    PRIMARY KEY (owner, session, branch)
);

-- What is noted of the runs of a branch. The number stands in place of session and branch in every
-- row below: events are many and short.
CREATE TABLE sennit.journals (
    no bigint GENERATED ALWAYS AS IDENTITY,
    session bigint NOT NULL,
    owner integer NOT NULL,
    branch uuid NOT NULL,
    PRIMARY KEY (owner, no),
    UNIQUE (owner, session, branch)
);

-- Runs of turns, numbered from 1 in the order in which they began.
CREATE TABLE sennit.runs (
    journal bigint NOT NULL,
    owner integer NOT NULL,
    no integer NOT NULL,
    created bigint NOT NULL,
    updated bigint NOT NULL,
    id uuid NOT NULL,
    state text NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (owner, journal, no),
    UNIQUE (owner, id, journal)
) WITH (fillfactor = 80);

-- A message is named by its id, as the text of one that is still being said is here before it. No
-- index leads from it: it would double what is written, and a message is seldom erased.
CREATE TABLE sennit.events (
    journal bigint NOT NULL,
    owner integer NOT NULL,
    run integer NOT NULL,
    seq bigint NOT NULL,
    message uuid,
    body bytea NOT NULL,
    PRIMARY KEY (owner, journal, seq)
);

-- Writes that were made, by the id their writer gave them: whoever lost the connection asks here
-- whether a write was made. Transaction numbers cannot say it: those of a crash are given again.
CREATE TABLE sennit.receipts (
    id uuid PRIMARY KEY,
    made timestamptz NOT NULL DEFAULT now()
);

-- What is remembered for good. `active` counts how often a file was used; `latest` is the number of
-- its last version.
CREATE TABLE sennit.files (
    no bigint GENERATED ALWAYS AS IDENTITY,
    owner integer NOT NULL,
    id uuid NOT NULL,
    path text COLLATE "C" NOT NULL,
    category text,
    created bigint NOT NULL,
    active bigint NOT NULL,
    latest integer NOT NULL,
    PRIMARY KEY (owner, no),
    UNIQUE (owner, id),
    UNIQUE (owner, path)
);

-- What files say and said. A row never changes but for `replaced`, when the next one begins to hold, and
-- `words`, which the first search after it was written adds.
CREATE TABLE sennit.versions (
    no bigint GENERATED ALWAYS AS IDENTITY,
    owner integer NOT NULL,
    file bigint NOT NULL,
    number integer NOT NULL,
    written bigint NOT NULL,
    valid_from bigint NOT NULL,
    valid_to bigint,
    replaced bigint,
    made_by uuid,
    info text NOT NULL,
    body bytea NOT NULL,
    words tsvector,
    PRIMARY KEY (owner, no),
    UNIQUE (owner, file, number)
);
CREATE INDEX versions_made_by ON sennit.versions (made_by) WHERE made_by IS NOT NULL;
CREATE INDEX versions_words ON sennit.versions USING gin (words);
CREATE INDEX versions_unindexed ON sennit.versions (owner, no) WHERE words IS NULL;

-- The messages that versions came from, by id: `home` owns the session they stand in, or stood.
CREATE TABLE sennit.evidence (
    owner integer NOT NULL,
    version bigint NOT NULL,
    home integer NOT NULL,
    session uuid NOT NULL,
    message uuid NOT NULL,
    PRIMARY KEY (owner, version, home, session, message)
);
CREATE INDEX evidence_home ON sennit.evidence (home, session, message);

-- Commits of a session, numbered from 1.
CREATE TABLE sennit.commits (
    owner integer NOT NULL,
    session bigint NOT NULL,
    number integer NOT NULL,
    id uuid NOT NULL,
    branch uuid NOT NULL,
    created bigint NOT NULL,
    state text NOT NULL,
    version integer NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (owner, session, number),
    UNIQUE (owner, id)
);
CREATE INDEX commits_open ON sennit.commits (owner, id) WHERE state = 'open';

-- Which commit covers a message; a message is covered once.
CREATE TABLE sennit.archived (
    owner integer NOT NULL,
    session bigint NOT NULL,
    message bigint NOT NULL,
    number integer NOT NULL,
    pos integer NOT NULL,
    PRIMARY KEY (owner, session, message)
);

-- What was used; `number` is that of the commit which counts it.
CREATE TABLE sennit.uses (
    owner integer NOT NULL,
    session bigint NOT NULL,
    id uuid NOT NULL,
    branch uuid NOT NULL,
    created bigint NOT NULL,
    head uuid,
    number integer,
    body bytea NOT NULL,
    PRIMARY KEY (owner, session, id)
);

-- How often tool calls were started, on whichever branch, by the messages that ask for them: a call
-- is one side effect, and its journal goes with its branch.
CREATE TABLE sennit.starts (
    owner integer NOT NULL,
    session bigint NOT NULL,
    message uuid NOT NULL,
    times integer NOT NULL,
    PRIMARY KEY (owner, session, message)
);

-- What people and metrics thought of messages; each judge has one label per message.
CREATE TABLE sennit.labels (
    owner integer NOT NULL,
    session bigint NOT NULL,
    message bigint NOT NULL,
    created bigint NOT NULL,
    score double precision NOT NULL,
    judge text NOT NULL,
    PRIMARY KEY (owner, session, message, judge)
);

-- A commit that is open has a job, and a job has its commit, whoever opens or ends it and however:
-- this is the one place where jobs are written, in the transaction that changes the commit.
--
-- Whoever opens a commit may say in its body until when they are at it themselves ("held", in
-- microseconds): until then no worker gets the job. A held job keeps no other from its turn; the
-- others of an owner are done one after another.
CREATE FUNCTION sennit.queue_commit() RETURNS trigger
LANGUAGE plpgsql SET search_path = sennit, pg_temp
AS $$
DECLARE
    was_open boolean := TG_OP <> 'INSERT' AND OLD.state = 'open';
    is_open boolean := TG_OP <> 'DELETE' AND NEW.state = 'open';
    held timestamptz;
BEGIN
    IF is_open AND NOT was_open THEN
        held := to_timestamp((convert_from(NEW.body, 'UTF8')::json ->> 'held')::bigint / 1e6);
        PERFORM procrastinate_defer_jobs_v1(ARRAY[ROW(
            'sennit', 'sennit.commit', 0,
            CASE WHEN held > now() THEN NULL ELSE NEW.owner::text END, NULL,
            jsonb_build_object('owner', NEW.owner, 'commit', NEW.id),
            held
        )::procrastinate_job_to_defer_v1]);
    ELSIF was_open AND NOT is_open THEN
        -- One that a worker has begun is left to that worker, who finds nothing to do.
        DELETE FROM procrastinate_jobs
        WHERE args ->> 'commit' = OLD.id::text AND (args ->> 'owner')::integer = OLD.owner
          AND queue_name = 'sennit' AND status = 'todo';
    END IF;
    RETURN NULL;
END;
$$;
CREATE INDEX jobs_of_commits ON sennit.procrastinate_jobs ((args ->> 'commit'))
WHERE queue_name = 'sennit';
CREATE TRIGGER queue_commit AFTER INSERT OR UPDATE OF state OR DELETE ON sennit.commits
FOR EACH ROW EXECUTE FUNCTION sennit.queue_commit();

-- Bytes that messages name by hash, stored once per owner. One without a hash is being stored, or
-- erased if `unused` is 0. `unused` is when a blob was stored that no message has named yet, 0 if a
-- message that named it was erased, and NULL if messages name it.
CREATE TABLE sennit.blobs (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    size bigint NOT NULL,
    unused bigint,
    owner integer NOT NULL,
    hash bytea,
    media_type text NOT NULL,
    UNIQUE (owner, hash)
);
CREATE INDEX blobs_size ON sennit.blobs (owner, size);
CREATE INDEX blobs_unused ON sennit.blobs (unused) WHERE unused IS NOT NULL;

-- Most files are compressed already: to try it again would take longer than to write them.
CREATE TABLE sennit.blob_chunks (
    blob bigint NOT NULL,
    checksum bigint NOT NULL,
    owner integer NOT NULL,
    pos integer NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (owner, blob, pos)
);
ALTER TABLE sennit.blob_chunks ALTER COLUMN bytes SET STORAGE EXTERNAL;

-- Which messages name a blob.
CREATE TABLE sennit.blob_refs (
    session bigint NOT NULL,
    message bigint NOT NULL,
    blob bigint NOT NULL,
    owner integer NOT NULL,
    PRIMARY KEY (owner, session, message, blob)
);
CREATE INDEX blob_refs_blob ON sennit.blob_refs (owner, blob);
CREATE FUNCTION sennit.blob_unused() RETURNS trigger
LANGUAGE plpgsql SET search_path = sennit, pg_temp
AS $$
BEGIN
    UPDATE blobs SET unused = 0 WHERE owner = OLD.owner AND no = OLD.blob AND unused IS NULL;
    RETURN NULL;
END;
$$;
CREATE TRIGGER blob_unused AFTER DELETE ON sennit.blob_refs
FOR EACH ROW EXECUTE FUNCTION sennit.blob_unused();
