-- What is noted of the runs of a branch. The number stands in place of session and branch in every
-- row below: events are many and short.
CREATE TABLE journals (
    no INTEGER PRIMARY KEY,
    owner INTEGER NOT NULL,
    session INTEGER NOT NULL,
    branch BLOB NOT NULL,
    UNIQUE (owner, session, branch)
) STRICT;

-- Runs of turns, numbered from 1 in the order in which they began.
CREATE TABLE runs (
    owner INTEGER NOT NULL,
    journal INTEGER NOT NULL,
    no INTEGER NOT NULL,
    id BLOB NOT NULL,
    state TEXT NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (owner, journal, no),
    UNIQUE (owner, journal, id)
) STRICT, WITHOUT ROWID;

-- A message is named by its id, as the text of one that is still being said is here before it. No
-- index leads from it: it would double the table, and a message is seldom erased.
CREATE TABLE events (
    owner INTEGER NOT NULL,
    journal INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    run INTEGER NOT NULL,
    message BLOB,
    body BLOB NOT NULL,
    PRIMARY KEY (owner, journal, seq)
) STRICT, WITHOUT ROWID;
