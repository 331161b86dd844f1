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
