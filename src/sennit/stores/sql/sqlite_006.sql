-- A branch is as long as the segment it ends with has entries, which SQLite finds at once: to write
-- its length down as well cost every append a page more.
ALTER TABLE branches DROP COLUMN length;
-- How often words were taken out since the index was last merged: until then they stay in its pages.
ALTER TABLE indexed ADD COLUMN erased INTEGER NOT NULL DEFAULT 1;

-- The letters of scripts without spaces are words of their own. Searches write all words anew; below
-- zero, the mark says that those of files are missing too.
INSERT INTO words (words) VALUES ('delete-all');
UPDATE indexed SET mark = CASE WHEN EXISTS (SELECT 1 FROM versions) THEN -1 ELSE 0 END;
