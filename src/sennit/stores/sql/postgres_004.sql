-- Sessions are paged by the time of their last change without sorting all of an owner's. An index
-- that holds `updated` itself would be changed by every write; the hour changes once in an hour, so
-- that nearly all writes keep the row on its page as before, and no more than the sessions of one
-- hour are sorted at a time.
ALTER TABLE sennit.sessions
    ADD COLUMN hour bigint GENERATED ALWAYS AS (updated / 3600000000) STORED;
CREATE INDEX sessions_by_hour ON sennit.sessions (owner, hour);
