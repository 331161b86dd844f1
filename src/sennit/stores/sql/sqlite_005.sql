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
