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
