"""Children that commit, and workers that finish what others have committed; some die of it."""

from __future__ import annotations

import json
import os
import signal
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import sennit
from sennit.api.worker import run_worker as serve
from sennit.memory import memory as _memory
from sennit.memory.commit import job_handler as _served
from sennit.memory.commit.result import CommitResult
from sennit.stores.job_queue import WorkerOptions
from sennit.stores.postgres import job_queue as _queue
from sennit.testing import ScriptedModel, faults
from tests.torture.fork_server import Job, Say

__all__ = ["commit", "work"]

_ = _memory, _served, _queue  # imported here, that is before the fork


def _told_to_stop(_: str) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _fate(job: Job) -> AbstractContextManager[Any]:
    """What happens to the child at a point, if anything."""
    if "point" not in job:
        return nullcontext()
    fates = {"killed": faults.kill, "told to stop": _told_to_stop}
    return faults.arm(job["point"], fates[job.get("fate", "killed")], at=job.get("at", 1))


def work(job: Job, say: Say) -> None:
    """Be a worker until nothing is left to do; if told to wait, until told to stop."""

    def told(result: CommitResult) -> None:
        say(json.dumps([result.task_id, result.status]))

    def model() -> ScriptedModel:
        return ScriptedModel(job["answers"])

    serving = WorkerOptions(
        drain=not job.get("waits", False), concurrency=job.get("concurrency", 1)
    )
    with _fate(job):
        serve(job["url"], serving, model=model if "answers" in job else None, on_result=told)


def commit(job: Job, say: Say) -> None:
    """Commit a session; `wait` is whether to wait for the memories."""
    with _fate(job), sennit.open(job["url"]) as client:
        say(json.dumps(client.session(job["session"]).commit(wait=job["wait"])))
