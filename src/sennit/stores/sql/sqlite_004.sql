-- Who said it and on which day are words of a message too, and files have words as well, by the
-- negative of their version's number. The owner is no word: it would be counted in full for every
-- search. Searches write those of messages anew.
DROP TABLE words;
CREATE VIRTUAL TABLE words USING fts5 (said, content='', tokenize='porter unicode61');
UPDATE indexed SET mark = 0;
INSERT INTO words (rowid, said) SELECT -no, CAST(body AS TEXT) FROM versions;

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
CREATE TRIGGER versions_vectors AFTER DELETE ON versions
WHEN EXISTS (SELECT 1 FROM series WHERE owner = OLD.owner)
BEGIN
    DELETE FROM vectors WHERE place = -OLD.no;
    UPDATE series SET erased = erased + 1, files = min(files, OLD.no - 1)
    WHERE owner = OLD.owner;
END;
