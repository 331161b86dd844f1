CREATE SCHEMA IF NOT EXISTS sennit;

CREATE TABLE sennit.schema (version integer NOT NULL);
INSERT INTO sennit.schema (version) VALUES (0);

-- English stems without a stop list: which words tell nothing is decided when a question is asked.
CREATE TEXT SEARCH DICTIONARY sennit.stems (TEMPLATE = snowball, LANGUAGE = english);
CREATE TEXT SEARCH CONFIGURATION sennit.words (COPY = pg_catalog.english);
ALTER TEXT SEARCH CONFIGURATION sennit.words ALTER MAPPING REPLACE english_stem WITH sennit.stems;

-- Whose everything is. The number stands first in every key, so that tables can be partitioned.
CREATE TABLE sennit.owners (
    no integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    UNIQUE (tenant, kind, name)
);

-- Changed by every write, so no index holds `updated` and pages keep room: the new row then stays
-- on its page and no index is touched.
CREATE TABLE sennit.sessions (
    no bigint GENERATED ALWAYS AS IDENTITY,
    owner integer NOT NULL,
    id uuid NOT NULL,
    key text,
    sender text NOT NULL,
    created bigint NOT NULL,
    updated bigint NOT NULL,
    metadata text NOT NULL,
    PRIMARY KEY (owner, no),
    UNIQUE (owner, id)
) WITH (fillfactor = 60);

-- Keys by id put the session last. Before a table is analysed the planner takes all that a session
-- has for one row; with the session first, such a key would seem as good for finding a number.
CREATE TABLE sennit.messages (
    no bigint GENERATED ALWAYS AS IDENTITY,
    session bigint NOT NULL,
    created bigint NOT NULL,
    owner integer NOT NULL,
    id uuid NOT NULL,
    body bytea NOT NULL,
    words tsvector NOT NULL,
    PRIMARY KEY (owner, session, no),
    UNIQUE (owner, id, session)
);
CREATE INDEX messages_words ON sennit.messages USING gin (words);

-- The words of a message that are too many for one tsvector.
CREATE TABLE sennit.more_words (
    owner integer NOT NULL,
    session bigint NOT NULL,
    message bigint NOT NULL,
    words tsvector NOT NULL
);
CREATE INDEX more_words_message ON sennit.more_words (owner, session, message);
CREATE INDEX more_words_words ON sennit.more_words USING gin (words);

-- A run of messages on top of the first `start` of the runs below it.
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

CREATE TABLE sennit.entries (
    segment bigint NOT NULL,
    message bigint NOT NULL,
    owner integer NOT NULL,
    pos integer NOT NULL,
    PRIMARY KEY (owner, segment, pos)
);

-- `tail` is the id of the segment: an append that waited for another writer may not see its row.
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
    resources text NOT NULL,
    capabilities text NOT NULL,
    metadata text NOT NULL,
    PRIMARY KEY (owner, session, id),
    UNIQUE (owner, name, session)
) WITH (fillfactor = 60);

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
