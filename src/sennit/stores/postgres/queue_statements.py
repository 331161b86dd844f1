"""SQL statements about the job queue.

Its tables stand in the schema `sennit` with ours, so that a queue of the user's own, anywhere else
in the database, is another one.
"""

from typing import Final

FIND_HERE: Final = "SET LOCAL search_path = sennit, pg_temp"
FIND_AS_BEFORE: Final = "SET LOCAL search_path TO DEFAULT"

# The queue's functions name nothing by its schema; this way they find theirs whoever calls them.
FIX_PATHS: Final = """
    DO $$
    DECLARE one regprocedure;
    BEGIN
        FOR one IN SELECT p.oid FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
                   WHERE n.nspname = 'sennit' AND p.proname LIKE 'procrastinate\\_%'
        LOOP
            EXECUTE format('ALTER FUNCTION %s SET search_path = sennit, pg_temp', one);
        END LOOP;
    END $$"""

# The last of the queue's own migrations that was made.
SET_MARK: Final = "UPDATE sennit.schema SET queue = %s"
MARK: Final = "SELECT queue FROM sennit.schema"

IS_SERVED: Final = """
    SELECT EXISTS (SELECT FROM sennit.procrastinate_workers
                   WHERE last_heartbeat > now() - %s * interval '1 second')"""

# Whether a job could be done now, or as soon as another of its owner is done.
IS_LEFT: Final = """
    SELECT EXISTS (SELECT FROM sennit.procrastinate_jobs
                   WHERE queue_name = 'sennit' AND status = 'todo'
                     AND (scheduled_at IS NULL OR scheduled_at <= now())) AS left"""

OWNER: Final = "SELECT tenant, kind, name, of_user FROM sennit.owners WHERE no = %s"

# Jobs of workers that are gone. Looked at again behind the row's lock, so that of two who take over
# one does. What comes back keeps no other of its owner from its turn.
TAKE_OVER: Final = """
    WITH left_behind AS (
        SELECT j.id FROM sennit.procrastinate_jobs j
        WHERE j.status = 'doing' AND j.queue_name = 'sennit' AND NOT EXISTS (
            SELECT FROM sennit.procrastinate_workers w
            WHERE w.id = j.worker_id
              AND w.last_heartbeat > now() - %(silence)s * interval '1 second')
        FOR UPDATE OF j SKIP LOCKED
    )
    UPDATE sennit.procrastinate_jobs j
    SET status = 'todo', attempts = attempts + 1, worker_id = NULL, lock = NULL
    FROM left_behind WHERE j.id = left_behind.id RETURNING j.id"""
