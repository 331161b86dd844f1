-- Whose everything is. The number stands in every key, so that a key stays short.
CREATE TABLE owners (
    no INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    UNIQUE (tenant, kind, name)
) STRICT;

CREATE TABLE sessions (
    no INTEGER PRIMARY KEY,
    owner INTEGER NOT NULL,
    id BLOB NOT NULL,
    key TEXT,
    sender TEXT NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    metadata TEXT NOT NULL,
    UNIQUE (owner, id)
) STRICT;
CREATE INDEX sessions_by_time ON sessions (owner, updated, id);

CREATE TABLE messages (
    no INTEGER PRIMARY KEY,
    owner INTEGER NOT NULL,
    session INTEGER NOT NULL,
    id BLOB NOT NULL,
    created INTEGER NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (owner, session, id)
) STRICT;

-- A run of messages on top of the first `start` of the runs below it.
CREATE TABLE segments (
    no INTEGER PRIMARY KEY,
    owner INTEGER NOT NULL,
    session INTEGER NOT NULL,
    id BLOB NOT NULL,
    base INTEGER,
    start INTEGER NOT NULL,
    UNIQUE (owner, session, id)
) STRICT;

CREATE TABLE entries (
    owner INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    pos INTEGER NOT NULL,
    message INTEGER NOT NULL,
    PRIMARY KEY (owner, segment, pos)
) STRICT, WITHOUT ROWID;

CREATE TABLE branches (
    owner INTEGER NOT NULL,
    session INTEGER NOT NULL,
    id BLOB NOT NULL,
    name TEXT NOT NULL,
    created INTEGER NOT NULL,
    system INTEGER,
    segment INTEGER NOT NULL,
    length INTEGER NOT NULL,
    resources TEXT NOT NULL,
    capabilities TEXT NOT NULL,
    metadata TEXT NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (owner, session, id),
    UNIQUE (owner, session, name)
) STRICT, WITHOUT ROWID;

-- Who may run turns on a branch now. The token grows with each holder and is never taken back.
CREATE TABLE leases (
    owner INTEGER NOT NULL,
    session INTEGER NOT NULL,
    branch BLOB NOT NULL,
    holder TEXT NOT NULL,
    token INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    PRIMARY KEY (owner, session, branch)
) STRICT, WITHOUT ROWID;

-- Words of messages by their number. The text itself stays in the messages.
CREATE VIRTUAL TABLE words USING fts5 (owner, said, content='', tokenize='porter unicode61');

-- All messages up to this number are in the index.
CREATE TABLE indexed (mark INTEGER NOT NULL) STRICT;
INSERT INTO indexed (mark) VALUES (0);
