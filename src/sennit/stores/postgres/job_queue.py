"""The job queue in PostgreSQL, on procrastinate.

The only module that imports procrastinate. A trigger adds jobs in the transaction that opens a
commit (`schema.sql`); this module creates the queue's tables and runs the worker. Workers send
heartbeats, and the jobs of a silent one are taken over by the others. A worker that loses its
connection reconnects with backoff.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from sennit.errors import MissingExtraError, StoreError
from sennit.stores.job_queue import WorkerOptions
from sennit.stores.postgres import queue_statements as sql
from sennit.stores.postgres import statements as store_sql
from sennit.stores.postgres.driver import psycopg

try:
    import procrastinate
    from procrastinate.exceptions import ConnectorException
    from procrastinate.jobs import Job as QueuedJob
    from procrastinate.schema import SchemaManager
except ImportError as error:
    raise MissingExtraError.of("The PostgreSQL store", "postgres") from error

_log = logging.getLogger(__name__)

_QUEUE = "sennit"
_TASK = "sennit.commit"
_MAX_RECONNECT_DELAY_S = 60.0
_CONNECT_TIMEOUT_S = (
    5.0  # seconds for a connection; a worker that is told to stop waits for several
)

Take = Callable[[int, UUID, int], object]
"""Handles a job: the number of its owner, its commit and its failed attempts."""


def create(connection: psycopg.Connection[Any]) -> str:
    """Create the queue's tables, inside a transaction; return the last migration's name."""
    connection.execute(sql.FIND_HERE)
    connection.execute(SchemaManager.get_schema().encode())
    connection.execute(sql.FIND_AS_BEFORE)
    connection.execute(sql.FIX_PATHS)
    return _migrations()[-1].name


def bring_up_to_date(connection: psycopg.Connection[Any]) -> None:
    """Apply pending migrations of procrastinate's tables, under the schema lock."""
    with connection.transaction():
        connection.execute(store_sql.LOCK_SCHEMA)
        row = connection.execute(sql.MARK).fetchone()
        assert row is not None
        pending = [migration for migration in _migrations() if migration.name > row[0]]
        if not pending:
            return
        connection.execute(sql.FIND_HERE)
        for script in pending:
            connection.execute(script.read_bytes())
        connection.execute(sql.FIND_AS_BEFORE)
        connection.execute(sql.FIX_PATHS)
        connection.execute(sql.SET_MARK, (pending[-1].name,))


def _migrations() -> list[Path]:
    """Return procrastinate's migration scripts, sorted by the version in their names."""
    folder = Path(SchemaManager.get_migrations_path())
    return sorted(folder.glob("*.sql"), key=lambda script: script.name)


class QueueWorker:
    """Processes jobs until it is stopped or, when draining, until none is left."""

    def __init__(self, url: str, take: Take, serving: WorkerOptions) -> None:
        self._url, self._take, self._serving = url, take, serving
        self._stopping = asyncio.Event()
        self._has_blocked_jobs = (
            False  # whether jobs were left that waited for others of their owner
        )

    async def run(self) -> None:
        """Process jobs until SIGTERM or SIGINT, then finish those in progress.

        Raises StoreError if the connection is lost while draining.
        """
        loop = asyncio.get_running_loop()
        # Jobs run in threads, one per concurrent job.
        loop.set_default_executor(ThreadPoolExecutor(self._serving.concurrency + 2))
        delay = 1.0
        with _on_signals(self._stopping.set):
            while True:
                try:
                    await self._serve()
                    delay, reason = 1.0, "a connection ended"
                except (ConnectorException, psycopg.Error) as error:
                    if self._serving.drain:
                        raise StoreError(
                            f"Lost the connection to the job queue ({_first_line(error)})."
                        ) from error
                    reason = _first_line(error)
                if self._stopping.is_set() or (self._serving.drain and not self._has_blocked_jobs):
                    return
                _log.warning(
                    "Lost the connection to the job queue (%s); reconnecting in %.0f s.",
                    reason,
                    delay,
                )
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), delay)
                delay = min(2 * delay, _MAX_RECONNECT_DELAY_S)

    async def _serve(self) -> None:
        """Process jobs until stopped, disconnected or, when draining, out of jobs."""
        app = self._app()
        async with app.open_async():
            await self._take_over(app)
            worker = asyncio.create_task(self._work(app))
            background = [
                asyncio.create_task(self._keep_taking_over(app)),
                asyncio.create_task(self._stopping.wait()),
            ]
            try:
                await asyncio.wait([worker, *background], return_when=asyncio.FIRST_COMPLETED)
            finally:
                worker.cancel()  # which lets it finish what is under way
                for task in background:
                    task.cancel()
                ends = await asyncio.gather(worker, *background, return_exceptions=True)
            if self._serving.drain:
                # It ends when it finds nothing to take, though what it is at keeps others waiting.
                [row] = await app.connector.execute_query_all_async(sql.IS_LEFT)
                self._has_blocked_jobs = row["left"]
        for end in ends:
            if isinstance(end, Exception):
                raise end

    def _app(self) -> procrastinate.App:
        connector = procrastinate.PsycopgConnector(
            conninfo=self._url,
            min_size=1,
            max_size=4,
            timeout=_CONNECT_TIMEOUT_S,
            configure=_set_search_path,
        )
        app = procrastinate.App(connector=connector)

        @app.task(name=_TASK, queue=_QUEUE, pass_context=True, retry=_Backoff())
        async def finish(context: procrastinate.JobContext, owner: int, commit: str) -> None:
            await asyncio.to_thread(self._take, owner, UUID(commit), context.job.attempts)

        del finish  # the app holds it
        return app

    async def _work(self, app: procrastinate.App) -> None:
        await app.run_worker_async(
            queues=[_QUEUE],
            concurrency=self._serving.concurrency,
            wait=not self._serving.drain,
            install_signal_handlers=False,
            delete_jobs="always",  # what became of a commit is told by the commit
            update_heartbeat_interval=self._serving.heartbeat,
            stalled_worker_timeout=self._serving.silence,
        )

    async def _keep_taking_over(self, app: procrastinate.App) -> None:
        while True:
            await asyncio.sleep(self._serving.heartbeat)
            await self._take_over(app)

    async def _take_over(self, app: procrastinate.App) -> None:
        jobs = await app.connector.execute_query_all_async(
            sql.TAKE_OVER, silence=self._serving.silence
        )
        if jobs:
            _log.warning("Took over %d jobs of dead workers.", len(jobs))


class _Backoff(procrastinate.BaseRetryStrategy):
    """Exponential backoff without limit; the handler decides when to give up."""

    def get_retry_decision(
        self, *, exception: BaseException, job: QueuedJob
    ) -> procrastinate.RetryDecision:
        """Return when to retry; other jobs of the owner do not wait for it."""
        del exception  # it is in the log
        seconds = min(2 ** (job.attempts + 1), 3600)
        return procrastinate.RetryDecision(retry_in={"seconds": seconds}, lock=f"again {job.id}")


async def _set_search_path(connection: psycopg.AsyncConnection[Any]) -> None:
    await connection.execute("SET search_path = sennit, pg_temp")
    await connection.commit()


def _first_line(error: BaseException) -> str:
    return str(error.__cause__ or error).strip().partition("\n")[0]


@contextmanager
def _on_signals(callback: Callable[[], None]) -> Generator[None]:
    loop = asyncio.get_running_loop()
    # Not every platform has signal handlers, and only the main thread can set them.
    unsupported = (NotImplementedError, RuntimeError, ValueError)
    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        with suppress(*unsupported):
            loop.add_signal_handler(number, callback)
    try:
        yield
    finally:
        for number in numbers:
            with suppress(*unsupported):
                loop.remove_signal_handler(number)
