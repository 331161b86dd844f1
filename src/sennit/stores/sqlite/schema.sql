-- All tables of a SQLite file. Raise SCHEMA_VERSION (stores/schema_version.py) with every change here.
--
-- `checksum` is defined in stores/checksums.py: of a message, of a segment up to an entry, and else of
-- the columns of the row that no key repeats and that no append changes.

-- Whose everything is. The number stands in every key, so that a key stays short.
-- `of_user` is the user whose own agent or resources they are, or empty.
CREATE TABLE owners (
    no INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    of_user TEXT NOT NULL,
    UNIQUE (tenant, kind, name, of_user)
) STRICT;

-- A deleted session has the negative of its owner's number until all that was in it is erased.
CREATE TABLE sessions (
    no INTEGER PRIMARY KEY,
    owner INTEGER NOT NULL,
    id BLOB NOT NULL,
    key TEXT,
    sender TEXT NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    metadata TEXT NOT NULL,
    checksum INTEGER NOT NULL,
    UNIQUE (owner, id)
) STRICT;
CREATE INDEX sessions_by_time ON sessions (owner, updated, id);

CREATE TABLE messages (
    no INTEGER PRIMARY KEY,
    owner INTEGER NOT NULL,
    session INTEGER NOT NULL,
    id BLOB NOT NULL,
    created INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (owner, session, id)
) STRICT;

-- A run of messages on top of the first `start` of the runs below it, of which the last are in its base.
CREATE TABLE segments (
    no INTEGER PRIMARY KEY,
    owner INTEGER NOT NULL,
    session INTEGER NOT NULL,
    id BLOB NOT NULL,
    base INTEGER,
    start INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    UNIQUE (owner, session, id)
) STRICT;
CREATE INDEX segments_base ON segments (owner, base, start) WHERE base IS NOT NULL;

CREATE TABLE entries (
    owner INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    pos INTEGER NOT NULL,
    message INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (owner, segment, pos)
) STRICT, WITHOUT ROWID;
CREATE INDEX entries_message ON entries (owner, message);

-- A branch is as long as the segment it ends with has entries; SQLite finds the last at once.
CREATE TABLE branches (
    owner INTEGER NOT NULL,
    session INTEGER NOT NULL,
    id BLOB NOT NULL,
    name TEXT NOT NULL,
    created INTEGER NOT NULL,
    system INTEGER,
    segment INTEGER NOT NULL,
    -- NULL in both: the branch was never given grants.
    resources TEXT,
    capabilities TEXT,
    metadata TEXT NOT NULL,
    version INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (owner, session, id),
    UNIQUE (owner, session, name),
    CHECK ((resources IS NULL) = (capabilities IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX branches_segment ON branches (owner, segment);
CREATE INDEX branches_system ON branches (owner, system) WHERE system IS NOT NULL;

-- The run that may change a branch now. The token grows with each holder and is never used again.
-- `expires` is in microseconds of the monotonic clock named by `clock`; `wall` is the same moment in
-- microseconds since 1970, for programs that do not share that clock.
CREATE TABLE leases (
    owner INTEGER NOT NULL,
    session INTEGER NOT NULL,
    branch BLOB NOT NULL,
    holder TEXT NOT NULL,
    token INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    clock TEXT NOT NULL DEFAULT '',
    wall INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (owner, session, branch)
) STRICT, WITHOUT ROWID;

-- Messages that stand on no branch, are no branch's system message and in no archive. `since` is when
-- they were removed from their last branch; NULL if they never stood on one. `words` is 1 while their
-- words are in the index; the next search drops those first.
CREATE TABLE detached (
    owner INTEGER NOT NULL,
    session INTEGER NOT NULL,
    message INTEGER NOT NULL,
    since INTEGER,
    words INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (owner, session, message)
) STRICT, WITHOUT ROWID;
CREATE INDEX detached_words ON detached (words) WHERE words = 1;
CREATE INDEX detached_since ON detached (since) WHERE since IS NOT NULL;

-- Words of messages by their number, and of files by the negative of their version's number. Who said
-- a message and on which day are words of it too. The owner is none: it would be counted in full for
-- every search.
CREATE VIRTUAL TABLE words USING fts5 (said, content='', tokenize='porter unicode61');

-- All messages up to `mark` are in the index, but for detached ones. `erased` counts how often words were taken out since
-- the index was last merged: until then they stay in its pages.
CREATE TABLE indexed (mark INTEGER NOT NULL, erased INTEGER NOT NULL DEFAULT 1) STRICT;
INSERT INTO indexed (mark) VALUES (0);

-- What is noted of the runs of a branch. The number stands in place of session and branch in every
-- row below: events are many and short.
CREATE TABLE journals (
    no INTEGER PRIMARY KEY,
    owner INTEGER NOT NULL,
    session INTEGER NOT NULL,
    branch BLOB NOT NULL,
    UNIQUE (owner, session, branch)
) STRICT;

-- Runs of turns, numbered from 1 in the order in which they began. The index holds the random end of
-- an id, which tells the runs of a branch apart as well as the whole id does.
CREATE TABLE runs (
    owner INTEGER NOT NULL,
    journal INTEGER NOT NULL,
    no INTEGER NOT NULL,
    id BLOB NOT NULL,
    state TEXT NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (owner, journal, no)
) STRICT, WITHOUT ROWID;
CREATE INDEX runs_id ON runs (owner, journal, substr(id, 13));

-- `message` is the number of one that came in the same write, and else its id (a blob): the text of
-- one that is still being said is here before it. No index leads from it: it would double the table,
-- and a message is seldom erased.
CREATE TABLE events (
    owner INTEGER NOT NULL,
    journal INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    run INTEGER NOT NULL,
    message ANY,
    body BLOB NOT NULL,
    PRIMARY KEY (owner, journal, seq)
) STRICT, WITHOUT ROWID;

-- How often tool calls were started, on whichever branch, by the messages that ask for them: a call
-- is one side effect, and its journal goes with its branch.
CREATE TABLE starts (
    owner INTEGER NOT NULL,
    session INTEGER NOT NULL,
    message INTEGER NOT NULL,
    times INTEGER NOT NULL,
    PRIMARY KEY (owner, session, message)
) STRICT, WITHOUT ROWID;

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
    checksum INTEGER NOT NULL,
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

-- Vectors by the place they belong to, a version of a file by the negative of its number. `messages`
-- and `files` are marks: up to there all have vectors. `erased` counts what was taken away.
CREATE TABLE series (
    no INTEGER PRIMARY KEY,
    owner INTEGER NOT NULL,
    model TEXT NOT NULL,
    messages INTEGER NOT NULL,
    files INTEGER NOT NULL,
    erased INTEGER NOT NULL,
    UNIQUE (owner, model)
) STRICT;
CREATE TABLE vectors (
    no INTEGER PRIMARY KEY,
    series INTEGER NOT NULL,
    place INTEGER NOT NULL,
    vector BLOB NOT NULL,
    UNIQUE (place, series)
) STRICT;
CREATE INDEX vectors_series ON vectors (series, no);
CREATE TRIGGER messages_vectors AFTER DELETE ON messages
WHEN EXISTS (SELECT 1 FROM series WHERE owner = OLD.owner)
BEGIN
    DELETE FROM vectors WHERE place = OLD.no;
    UPDATE series SET erased = erased + 1, messages = min(messages, OLD.no - 1)
    WHERE owner = OLD.owner;
END;
CREATE TRIGGER detached_vectors AFTER DELETE ON detached
WHEN EXISTS (SELECT 1 FROM series WHERE owner = OLD.owner)
BEGIN
    UPDATE series SET messages = min(messages, OLD.message - 1) WHERE owner = OLD.owner;
END;
CREATE TRIGGER versions_vectors AFTER DELETE ON versions
WHEN EXISTS (SELECT 1 FROM series WHERE owner = OLD.owner)
BEGIN
    DELETE FROM vectors WHERE place = -OLD.no;
    UPDATE series SET erased = erased + 1, files = min(files, OLD.no - 1)
    WHERE owner = OLD.owner;
END;

-- What people and metrics thought of messages; each judge has one label per message.
CREATE TABLE labels (
    owner INTEGER NOT NULL,
    session INTEGER NOT NULL,
    message INTEGER NOT NULL,
    judge TEXT NOT NULL,
    score REAL NOT NULL,
    created INTEGER NOT NULL,
    PRIMARY KEY (owner, session, message, judge)
) STRICT, WITHOUT ROWID;

-- Bytes that messages name by hash, stored once per owner. One without a hash is being stored, or
-- erased if `unused` is 0. `unused` is when a blob was stored that no message has named yet, 0 if a
-- message that named it was erased, and NULL if messages name it.
CREATE TABLE blobs (
    no INTEGER PRIMARY KEY,
    owner INTEGER NOT NULL,
    hash BLOB,
    media_type TEXT NOT NULL,
    size INTEGER NOT NULL,
    unused INTEGER,
    UNIQUE (owner, hash)
) STRICT;
CREATE INDEX blobs_size ON blobs (owner, size);
CREATE INDEX blobs_unused ON blobs (unused) WHERE unused IS NOT NULL;

CREATE TABLE blob_chunks (
    owner INTEGER NOT NULL,
    blob INTEGER NOT NULL,
    pos INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    bytes BLOB NOT NULL,
    PRIMARY KEY (owner, blob, pos)
) STRICT;

-- Which messages name a blob.
CREATE TABLE blob_refs (
    owner INTEGER NOT NULL,
    session INTEGER NOT NULL,
    message INTEGER NOT NULL,
    blob INTEGER NOT NULL,
    PRIMARY KEY (owner, session, message, blob)
) STRICT, WITHOUT ROWID;
CREATE INDEX blob_refs_blob ON blob_refs (owner, blob);
CREATE TRIGGER blob_refs_unused AFTER DELETE ON blob_refs
BEGIN
    UPDATE blobs SET unused = 0 WHERE owner = OLD.owner AND no = OLD.blob AND unused IS NULL;
END;
