"""A worker for sessions of DSPy programs: `python -m benchmarks.peers.work_dspy sennit|peer`.

It measures once for each line it is sent and answers with a line of JSON. The program inside calls
no model, so what is left above the bare program is the session's own cost. Times are those of the
processor, not of the clock, so that other work on the machine does not count.
"""

from __future__ import annotations

import json
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from time import process_time
from typing import Any

import dspy

SIZES = (10, 100, 1_000)
LONG = 2_000
_PACKAGES = {"sennit": ("sennit.learning.dspy", "sennit"), "peer": ("dspy_session", "dspy-session")}
_ANSWER = "A bowline holds well when wet and can still be untied later."


class Bare(dspy.Module):
    """Answers at once."""

    def __init__(self) -> None:
        super().__init__()
        self.gen = dspy.Predict("question -> answer")

    def forward(self, question: str) -> Any:  # noqa: ARG002 - the same to all
        return dspy.Prediction(answer=_ANSWER)


def measure(make: Any) -> dict[str, float]:
    """Microseconds for a turn, a fork and a load; bytes for what is held."""
    program = Bare()
    bare = _best(lambda: _ask(program, 30)) / 30
    found: dict[str, float] = {}
    session: Any = None
    for size in SIZES:
        session = _session(make, size)
        found[f"turn at {size:,}"] = (_best(partial(_five, session), 9) / 5 - bare) * 1e6
    found["fork of 1,000 turns"] = _best(session.fork, 3) * 1e6
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session.json"
        session.save(path)
        found["load of 1,000 turns"] = _best(lambda: make.load_from(path, Bare()), 3) * 1e6
    found["memory of 2,000 turns"] = _held(make)
    return found


def _session(make: Any, size: int) -> Any:
    session = make(Bare())
    for n in range(size):
        session.add_turn({"question": _question(n)}, {"answer": _ANSWER})
    return session


def _question(n: int) -> str:
    return f"question number {n} of the conversation"


def _ask(program: Any, times: int) -> None:
    for n in range(times):
        program(question=_question(n))


def _five(session: Any) -> float:
    """Five turns; taking them back is not timed."""
    start = process_time()
    _ask(session, 5)
    took = process_time() - start
    session.undo(5)
    return took


def _best(work: Callable[[], Any], rounds: int = 5) -> float:
    """The best time; what says its own is believed."""
    best = float("inf")
    for _ in range(rounds):
        start = process_time()
        said = work()
        took = process_time() - start
        best = min(best, said if isinstance(said, float) else took)
    return best


def _held(make: Any) -> float:
    tracemalloc.start()
    session = make(Bare())
    _ask(session, LONG)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return float(held)


def main() -> None:
    """Answer each line."""
    module, package = _PACKAGES[sys.argv[1]]
    make = import_module(module).Session
    versions = {name: version(name) for name in (package, "dspy")}
    for _ in sys.stdin:
        print(json.dumps({"versions": versions, "found": measure(make)}), flush=True)


if __name__ == "__main__":
    main()
