"""`sennit worker`: finish background commits, on any number of machines.

One line per commit, as it is done. It ends in good order when told to (SIGTERM, Ctrl-C): what is
under way is finished first, and what is killed nevertheless is taken over by another worker.
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

from sennit.api.worker import work
from sennit.cli.memory import ModelOption
from sennit.cli.targets import JsonOption, StoreOption
from sennit.cli.text import clean, counted
from sennit.services.models.imodel import iModel
from sennit.stores.job_queue import WorkerOptions

if TYPE_CHECKING:
    from sennit.memory.commit.result import CommitResult


def worker(
    concurrency: Annotated[int, typer.Option(min=1, help="Number of concurrent commits.")] = 1,
    drain: Annotated[bool, typer.Option("--drain", help="Exit when the queue is empty.")] = False,
    model: ModelOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Finish background commits of all users of a PostgreSQL store."""
    _log_to_stderr()
    done = _Done(as_json=as_json)
    work(
        store,
        WorkerOptions(concurrency=concurrency, drain=drain),
        model=None if model is None else partial(iModel, model),
        told=done,
        begun=lambda: typer.echo(
            f"Worker started, {concurrency} at a time; stop it with SIGTERM or Ctrl-C.", err=True
        ),
    )
    typer.echo(f"Done: {counted(done.count, 'commit')}.", err=True)


class _Done:
    """Prints what becomes of commits, and counts those that are done with."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json, self._one = as_json, Lock()
        self.count = 0

    def __call__(self, result: CommitResult) -> None:
        """Called by the threads that do the work."""
        with self._one:
            self._tell(result)

    def _tell(self, result: CommitResult) -> None:
        self.count += result.status != "pending"
        if self._as_json:
            typer.echo(json.dumps(result, ensure_ascii=False))
        else:
            typer.echo(f"{datetime.now().astimezone():%H:%M:%S} {_line(result)}")
        sys.stdout.flush()


def _line(result: dict[str, Any]) -> str:
    """Return the outcome of a commit in one line, without any message text."""
    told = f"{result['status']} {result['task_id']}"
    if result["status"] in ("pending", "failed"):
        return f"{told}: {clean('; '.join(result['reasons']))}"
    memories = "1 memory" if (n := result["memories_extracted"]) == 1 else f"{n} memories"
    return f"{told}: {memories}, by {result['method']}"


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    for name in ("sennit", "procrastinate"):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(logging.WARNING)
