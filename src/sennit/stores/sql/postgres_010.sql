-- The letters of scripts without spaces are words of their own: searches write all words anew.
LOCK TABLE sennit.sessions, sennit.words IN ACCESS EXCLUSIVE MODE;
DELETE FROM sennit.words;
UPDATE sennit.sessions SET indexed = 0, unindexed = true;
UPDATE sennit.versions SET words = NULL;
