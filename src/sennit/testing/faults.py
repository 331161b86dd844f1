"""Fault injection at failpoints.

    with faults.record() as points:               # list the failpoints
        session.add_message("user", "hello")

    with faults.arm("sqlite.before: COMMIT", faults.raising(OSError("the disk is gone"))):
        session.add_message("user", "hello")      # raises, and is rolled back

    with faults.arm("sqlite.*", faults.kill, at=7):
        session.add_message("user", "hello")      # the process ends there, as by kill -9

For failpoints see `sennit.failpoints`: every statement of the SQLite and PostgreSQL stores has one
before and one after it. A store enables them when it connects, so open it inside one of these
blocks.
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
"""A function called at a failpoint with the failpoint's name."""


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
        """Count a matching failpoint, and run the action if it is due."""
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
    """Run `action` when the failpoint is reached for the `at`-th time inside the block.

    `point` is a glob pattern, so "sqlite.*" matches every failpoint of SQLite; `at=None` means each
    time. The action is `kill`, `raising(error)` or your own function.
    """
    if at is not None and at < 1:
        raise ValidationError(f"at counts from 1, got {at}; None means each time.")
    armed = Armed(point, action, at)
    with failpoints.using(armed):
        yield armed


@contextmanager
def record(point: str = "*") -> Generator[list[str]]:
    """Record all failpoints reached inside the block, in order."""
    reached: list[str] = []
    with arm(point, reached.append, at=None):
        yield reached


def raising(error: BaseException) -> Action:
    """Return an action that raises `error`, as if the next step had failed."""

    def action(_: str) -> None:
        raise error

    return action


def kill(_: str) -> None:
    """Kill this process at once, as by `kill -9`, without cleanup; an action."""
    # Windows has no SIGKILL; there, any signal ends the process at once.
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
