-- A branch is as long as the segment it ends with has entries, which SQLite finds at once: to write
-- its length down as well cost every append a page more.
ALTER TABLE branches DROP COLUMN length;
