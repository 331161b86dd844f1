"""Fault injection at failpoints.

    with faults.record() as points:               # which steps are there?
        session.add_message("user", "hello")

    with faults.arm("sqlite.before: COMMIT", faults.raising(OSError("the disk is gone"))):
        session.add_message("user", "hello")      # refused, and nothing half done

    with faults.arm("sqlite.*", faults.kill, at=7):
        session.add_message("user", "hello")      # the process ends there, as by kill -9

A step is a named point (see `sennit.failpoints`): every statement of the SQLite and the PostgreSQL
store has one before and one after it. A store looks when it connects whether it is to be watched,
so open it inside the block (any of these blocks will do).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from threading import Lock
from typing import TypeAlias

from sennit import failpoints
from sennit.errors import ValidationError

__all__ = ["Action", "Armed", "arm", "kill", "raising", "record"]

Action: TypeAlias = Callable[[str], object]
"""What is done at a point; it is given the point's name."""


class Armed:
    """The number of times a failpoint was reached, and whether it has fired."""

    def __init__(self, point: str, action: Action, at: int | None) -> None:
        self.point = point
        self.reached = 0
        self.fired = 0
        self._action = action
        self._at = at
        self._lock = Lock()

    def __call__(self, name: str) -> None:
        """Count a point that is meant, and act if it is time."""
        if not fnmatchcase(name, self.point):
            return
        with self._lock:
            self.reached += 1
            due = self._at is None or self.reached == self._at
            self.fired += due
        if due:
            self._action(name)


@contextmanager
def arm(point: str, action: Action, *, at: int | None = 1) -> Generator[Armed]:
    """Inside the block, do something when the point is reached for the `at`-th time.

    `*` in the name stands for anything, so "sqlite.*" means every point of SQLite; `at=None` means
    each time. The action is `kill`, `raising(error)` or a function of yours.
    """
    if at is not None and at < 1:
        raise ValidationError(f"at counts from 1, got {at}; None means each time.")
    armed = Armed(point, action, at)
    with failpoints.using(armed):
        yield armed


@contextmanager
def record(point: str = "*") -> Generator[list[str]]:
    """The points reached inside the block, in order, as often as they were reached."""
    reached: list[str] = []
    with arm(point, reached.append, at=None):
        yield reached


def raising(error: BaseException) -> Action:
    """An action that raises this error, as if what comes next had failed."""

    def action(_: str) -> None:
        raise error

    return action


def kill(_: str) -> None:
    """An action that ends this process at once, as `kill -9` does: nothing is tidied up."""
    os.kill(os.getpid(), signal.SIGKILL)
