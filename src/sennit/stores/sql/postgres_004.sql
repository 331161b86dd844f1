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

-- What files say and said. A row never changes but for `replaced`, when the next one begins to hold.
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
    PRIMARY KEY (owner, no),
    UNIQUE (owner, file, number)
);
CREATE INDEX versions_made_by ON sennit.versions (made_by) WHERE made_by IS NOT NULL;

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
