-- Who said it and on which day are words of a message too: searches write the index anew. Files have
-- words as well, which the first search after they were written adds.
LOCK TABLE sennit.sessions, sennit.words IN ACCESS EXCLUSIVE MODE;
DELETE FROM sennit.words;
UPDATE sennit.sessions SET indexed = 0, unindexed = true;
CREATE INDEX words_by_message ON sennit.words (owner, message);

ALTER TABLE sennit.versions ADD COLUMN words tsvector;
CREATE INDEX versions_words ON sennit.versions USING gin (words);
CREATE INDEX versions_unindexed ON sennit.versions (owner, no) WHERE words IS NULL;
