"""What a change of one branch costs beside many others, in steps of SQLite's machine."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import Branch, Session


class Steps:
    """Counts what SQLite does on all connections that are opened from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        connect = sqlite3.connect

        def counted(*given: Any, **named: Any) -> sqlite3.Connection:
            connection = connect(*given, **named)
            connection.set_progress_handler(self._tick, 10)
            return connection

        monkeypatch.setattr(sqlite3, "connect", counted)

    def _tick(self) -> None:
        self.count += 1

    def of(self, work: Callable[[], object]) -> int:
        before = self.count
        work()
        return self.count - before


def _crowded(path: Path, branches: int) -> tuple[Session, Branch]:
    session = sennit.open(path).session("chat")
    for number in range(20):
        session.add_message("user", f"message {number}")
    for _ in range(branches):
        session.fork("main")
    branch = session.fork("main", name="mine")
    session.add_message("user", "one more", branches=branch)
    session.add_message("user", "and another", branches=branch)
    return session, branch


@pytest.mark.parametrize("change", ["fork", "pop", "remove"])
def test_a_change_of_one_branch_takes_no_more_steps_beside_many_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    steps = Steps(monkeypatch)

    def taken(branches: int) -> int:
        session, branch = _crowded(tmp_path / f"{branches}.db", branches)
        branch.pop()  # so that something is detached, which a fork could attach again
        works: dict[str, Callable[[], object]] = {
            "fork": lambda: session.fork(branch),
            "pop": branch.pop,
            "remove": lambda: session.remove_branch(branch),
        }
        return steps.of(works[change])

    few, many = taken(3), taken(300)
    assert 0 < many < 1.5 * few
