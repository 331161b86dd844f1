-- Words are written after the messages, when somebody searches, and so have a table of their own:
-- to put them into the rows of messages later would write each body twice.
-- Writers lock sessions first, and so do we: nobody holds what we wait for.
LOCK TABLE sennit.sessions, sennit.messages, sennit.more_words IN ACCESS EXCLUSIVE MODE;

ALTER TABLE sennit.more_words RENAME TO words;
ALTER INDEX sennit.more_words_message RENAME TO words_message;
DROP INDEX sennit.more_words_words;
DROP INDEX sennit.messages_words;
INSERT INTO sennit.words (owner, session, message, words)
SELECT owner, session, no, words FROM sennit.messages;
ALTER TABLE sennit.messages DROP COLUMN words;
CREATE INDEX words_words ON sennit.words USING gin (words);

-- The words of a session's messages up to the number `indexed` are written; `unindexed` says that
-- there may be more. A session's writers follow one another, so its numbers grow in the order of
-- commits, which numbers of the whole table do not. Only the first append after a search changes
-- `unindexed`, and with it an index; the others keep their row on its page as before.
ALTER TABLE sennit.sessions
    ADD COLUMN indexed bigint NOT NULL DEFAULT 0,
    ADD COLUMN unindexed boolean NOT NULL DEFAULT false;
UPDATE sennit.sessions s SET indexed = coalesce(
    (SELECT max(m.no) FROM sennit.messages m WHERE m.owner = s.owner AND m.session = s.no), 0);
CREATE INDEX sessions_unindexed ON sennit.sessions (owner, no) WHERE unindexed;
