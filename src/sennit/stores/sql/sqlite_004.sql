-- Who said it and on which day are words of a message too, and files have words as well, by the
-- negative of their version's number. The owner is no word: it would be counted in full for every
-- search. Searches write those of messages anew.
DROP TABLE words;
CREATE VIRTUAL TABLE words USING fts5 (said, content='', tokenize='porter unicode61');
UPDATE indexed SET mark = 0;
INSERT INTO words (rowid, said) SELECT -no, CAST(body AS TEXT) FROM versions;
