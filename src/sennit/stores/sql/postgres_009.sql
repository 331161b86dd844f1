-- A commit that is open has a job, and a job has its commit, whoever opens or ends it and however:
-- this is the one place where jobs are written, in the transaction that changes the commit. The
-- tables of the queue itself (`sennit.procrastinate_…`) were made just before, see `postgres_queue`.
--
-- Whoever opens a commit may say in its body until when they are at it themselves ("held", in
-- microseconds): until then no worker gets the job. A held job keeps no other from its turn; the
-- others of an owner are done one after another.
CREATE FUNCTION sennit.queue_commit() RETURNS trigger
LANGUAGE plpgsql SET search_path = sennit, pg_temp
AS $$
DECLARE
    was_open boolean := TG_OP <> 'INSERT' AND OLD.state = 'open';
    is_open boolean := TG_OP <> 'DELETE' AND NEW.state = 'open';
    held timestamptz;
BEGIN
    IF is_open AND NOT was_open THEN
        held := to_timestamp((convert_from(NEW.body, 'UTF8')::json ->> 'held')::bigint / 1e6);
        PERFORM procrastinate_defer_jobs_v1(ARRAY[ROW(
            'sennit', 'sennit.commit', 0,
            CASE WHEN held > now() THEN NULL ELSE NEW.owner::text END, NULL,
            jsonb_build_object('owner', NEW.owner, 'commit', NEW.id),
            held
        )::procrastinate_job_to_defer_v1]);
    ELSIF was_open AND NOT is_open THEN
        -- One that a worker has begun is left to that worker, who finds nothing to do.
        DELETE FROM procrastinate_jobs
        WHERE args ->> 'commit' = OLD.id::text AND (args ->> 'owner')::integer = OLD.owner
          AND queue_name = 'sennit' AND status = 'todo';
    END IF;
    RETURN NULL;
END;
$$;
CREATE INDEX jobs_of_commits ON sennit.procrastinate_jobs ((args ->> 'commit'))
WHERE queue_name = 'sennit';
CREATE TRIGGER queue_commit AFTER INSERT OR UPDATE OF state OR DELETE ON sennit.commits
FOR EACH ROW EXECUTE FUNCTION sennit.queue_commit();

-- What was left open before there was a queue.
INSERT INTO sennit.procrastinate_jobs (queue_name, task_name, lock, args)
SELECT 'sennit', 'sennit.commit', owner::text, jsonb_build_object('owner', owner, 'commit', id)
FROM sennit.commits WHERE state = 'open' ORDER BY created, id;
