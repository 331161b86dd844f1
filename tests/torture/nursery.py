"""Where children are born to be killed.

A test process has threads (of pytest, of a pool) and must not fork, and starting Python anew for
each of a thousand crashes would take minutes. So one clean process, without threads and without
connections, imports what is needed once and forks a child for each job. It tells what the child
said before it ended, and how it ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parent.parent.parent
Say = Callable[[str], None]


class Nursery:
    """The process that forks, seen from outside."""

    def __enter__(self) -> Self:
        self._folder = TemporaryDirectory(prefix="sennit-nursery-")  # who is killed tidies nothing
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.torture.nursery"],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": self._folder.name},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def run(self, job: dict[str, Any]) -> tuple[int, list[str]]:
        """Have a child do a job; gives its exit code (-9 if killed) and what it said."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        code, said = json.loads(self._process.stdout.readline())
        return code, said

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()
        self._folder.cleanup()


def _born(job: dict[str, Any]) -> tuple[int, list[str]]:
    """Fork a child for a job, and wait for its end."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os._exit(_live(job, writing))
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read().splitlines()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def _live(job: dict[str, Any], writing: int) -> int:
    """What a child does."""
    from tests.torture.crashes import work

    def say(word: str) -> None:
        os.write(writing, f"{word}\n".encode())

    try:
        work(job, say)
    except BaseException:
        say(traceback.format_exc())
        return 1
    return 0


def main() -> None:
    import tests.torture.crashes  # noqa: F401  (imported before the first fork, so only once)

    for line in sys.stdin:
        print(json.dumps(_born(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
