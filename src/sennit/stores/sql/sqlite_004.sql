-- Who said it and on which day are words of a message too. The owner is none: it would be counted in
-- full for every search. Searches write the index anew.
DROP TABLE words;
CREATE VIRTUAL TABLE words USING fts5 (said, content='', tokenize='porter unicode61');
UPDATE indexed SET mark = 0;
