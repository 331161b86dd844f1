-- What is remembered for good. `active` counts how often a file was used; `latest` is the number of
-- its last version.
CREATE TABLE files (
    no INTEGER PRIMARY KEY,
    owner INTEGER NOT NULL,
    id BLOB NOT NULL,
    path TEXT NOT NULL,
    category TEXT,
    created INTEGER NOT NULL,
    active INTEGER NOT NULL,
    latest INTEGER NOT NULL,
    UNIQUE (owner, id),
    UNIQUE (owner, path)
) STRICT;

-- What files say and said. A row never changes but for `replaced`, when the next one begins to hold.
CREATE TABLE versions (
    no INTEGER PRIMARY KEY,
    owner INTEGER NOT NULL,
    file INTEGER NOT NULL,
    number INTEGER NOT NULL,
    written INTEGER NOT NULL,
    valid_from INTEGER NOT NULL,
    valid_to INTEGER,
    replaced INTEGER,
    made_by BLOB,
    info TEXT NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (owner, file, number)
) STRICT;
CREATE INDEX versions_made_by ON versions (made_by) WHERE made_by IS NOT NULL;

-- The messages that versions came from, by id: `home` owns the session they stand in, or stood.
CREATE TABLE evidence (
    owner INTEGER NOT NULL,
    version INTEGER NOT NULL,
    home INTEGER NOT NULL,
    session BLOB NOT NULL,
    message BLOB NOT NULL,
    PRIMARY KEY (owner, version, home, session, message)
) STRICT, WITHOUT ROWID;
CREATE INDEX evidence_home ON evidence (home, session, message);

-- Commits of a session, numbered from 1.
CREATE TABLE commits (
    owner INTEGER NOT NULL,
    session INTEGER NOT NULL,
    number INTEGER NOT NULL,
    id BLOB NOT NULL,
    branch BLOB NOT NULL,
    created INTEGER NOT NULL,
    state TEXT NOT NULL,
    version INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (owner, session, number),
    UNIQUE (owner, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX commits_open ON commits (owner, id) WHERE state = 'open';

-- Which commit covers a message; a message is covered once.
CREATE TABLE archived (
    owner INTEGER NOT NULL,
    session INTEGER NOT NULL,
    message INTEGER NOT NULL,
    number INTEGER NOT NULL,
    pos INTEGER NOT NULL,
    PRIMARY KEY (owner, session, message)
) STRICT, WITHOUT ROWID;

-- What was used; `number` is that of the commit which counts it.
CREATE TABLE uses (
    owner INTEGER NOT NULL,
    session INTEGER NOT NULL,
    id BLOB NOT NULL,
    branch BLOB NOT NULL,
    created INTEGER NOT NULL,
    head BLOB,
    number INTEGER,
    body BLOB NOT NULL,
    PRIMARY KEY (owner, session, id)
) STRICT, WITHOUT ROWID;
