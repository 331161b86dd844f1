"""Where children are born to be killed.

A test process has threads (of pytest, of a pool) and must not fork, and starting Python anew for
each of a thousand crashes would take minutes. So one clean process, without threads and without
connections, imports what is needed once and forks a child for each job. It tells what each child
said before it ended, and how it ended. A job names a function of a module of `tests`, as in
`torture.crashes.work`, and what that needs; it gets the job, and something to say words with.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self, TypeAlias

ROOT = Path(__file__).parent.parent.parent
Job: TypeAlias = "dict[str, Any]"
Ending: TypeAlias = "tuple[int, list[str]]"
Say: TypeAlias = Callable[[str], None]
Work: TypeAlias = "Callable[[Job, Say], None]"


class ForkServer:
    """The process that forks, seen from outside."""

    def __enter__(self) -> Self:
        self._folder = TemporaryDirectory(prefix="sennit-fork-")  # who is killed tidies nothing
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.torture.fork_server"],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": self._folder.name},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def run(self, job: Job) -> Ending:
        """Have a child do a job; gives its exit code (-9 if killed) and what it said."""
        return self.run_all([job])[0]

    def run_all(self, jobs: list[Job]) -> list[Ending]:
        """Have as many children as jobs do them at the same time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(jobs) + "\n")
        self._process.stdin.flush()
        return [(code, said) for code, said in json.loads(self._process.stdout.readline())]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()
        self._folder.cleanup()


def _raise_all(jobs: list[Job]) -> list[Ending]:
    """Fork a child for each job, let them all go at once, and wait for their ends."""
    works = [_function(job["do"]) for job in jobs]  # imported before the fork, so only once
    held, go = os.pipe()
    children = [_born(work, job, held, go) for work, job in zip(works, jobs, strict=True)]
    os.close(go)
    os.close(held)
    return [_ended(*child) for child in children]


def _function(name: str) -> Work:
    module, _, function = name.rpartition(".")
    return getattr(import_module(f"tests.{module}"), function)


def _born(work: Work, job: Job, held: int, go: int) -> tuple[int, int]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.close(go)
        os.read(held, 1)  # until the last who could write there is gone: all are born
        os._exit(_live(work, job, writing))
    os.close(writing)
    return child, reading


def _ended(child: int, reading: int) -> Ending:
    with os.fdopen(reading) as pipe:
        said = pipe.read().splitlines()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def _live(work: Work, job: Job, writing: int) -> int:
    """What a child does."""

    def say(word: str) -> None:
        os.write(writing, f"{word}\n".encode())

    try:
        work(job, say)
    except BaseException:
        say(traceback.format_exc())
        return 1
    return 0


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(_raise_all(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
