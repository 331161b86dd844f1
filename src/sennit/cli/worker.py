"""`sennit worker`: finish background commits, on any number of machines.

It prints one line per commit. SIGTERM and Ctrl-C stop it gracefully: running commits are finished
first. Another worker takes over the commits of a killed one.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sennit.api.worker import run_worker
from sennit.cli.memory import ModelOption
from sennit.cli.targets import JsonOption, StoreOption
from sennit.cli.text import clean, note, pluralize
from sennit.services.models.imodel import iModel
from sennit.stores.job_queue import WorkerOptions

if TYPE_CHECKING:
    from sennit.memory.commit.result import CommitResult


def worker(
    concurrency: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of concurrent commits.")
    ] = 1,
    drain: Annotated[bool, typer.Option("--drain", help="Exit when the queue is empty.")] = False,
    model: ModelOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Finish background commits of all users of a PostgreSQL store."""
    _log_to_stderr()
    done = _CommitPrinter(as_json=as_json)
    run_worker(
        store,
        WorkerOptions(concurrency=concurrency, drain=drain),
        model=None if model is None else partial(iModel, model),
        on_result=done,
        on_start=lambda: note(
            f"Worker started, {concurrency} at a time; stop it with SIGTERM or Ctrl-C."
        ),
    )
    note(f"Done: {pluralize(done.count, 'commit')}.")


class _CommitPrinter:
    """A callback that prints the result of each commit and counts the finished ones."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json, self._lock = as_json, Lock()
        self.count = 0

    def __call__(self, result: CommitResult) -> None:
        """Print a result; called from worker threads."""
        line = f"{datetime.now().astimezone():%H:%M:%S} {_line(result)}"
        with self._lock:
            self.count += result.status != "pending"
            typer.echo(json.dumps(result, ensure_ascii=False) if self._as_json else line)
            sys.stdout.flush()


def _line(result: dict[str, Any]) -> str:
    """Return the outcome of a commit in one line, without any message text."""
    head = f"{result['status']} {result['task_id']}"
    if result["status"] in ("pending", "failed"):
        return f"{head}: {clean('; '.join(result['reasons']))}"
    memories = "1 memory" if (n := result["memories_extracted"]) == 1 else f"{n} memories"
    return f"{head}: {memories}, by {result['method']}"


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    for name in ("sennit", "procrastinate"):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(logging.WARNING)
