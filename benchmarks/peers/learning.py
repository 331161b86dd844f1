"""Sessions of DSPy programs beside `dspy-session`: the same turns, forks and loads, in turns.

Two workers, each in its own environment, measure the same things one after the other, and the best
of each counts. Bars: a turn costs at most 1.5 times the peer's at 10 turns, at any length; 2,000
turns take at most 8 MB; a fork is 1,000 times faster, and a load 30 times.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import machine

ROOT = Path(__file__).parents[2]
OUTPUT = ROOT / "benchmarks" / "results" / "peers_learning.json"
ROUNDS = 2
_MEGABYTES = 8e6
_PYTHONS = {
    "sennit": Path(sys.executable),
    "peer": ROOT / ".venv-peers" / "dspy_session" / "bin" / "python",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table."""

    name: str
    ours: float
    peer: float
    most: float
    """What ours may be."""

    @property
    def verdict(self) -> str:
        return "ok" if self.ours <= self.most else "MISSED"


def measured() -> tuple[dict[str, dict[str, float]], dict[str, Any]]:
    """The best of all rounds by worker, and the versions."""
    best: dict[str, dict[str, float]] = {name: {} for name in _PYTHONS}
    versions: dict[str, Any] = {}
    with ExitStack() as stack:
        workers = {name: stack.enter_context(_started(name)) for name in _PYTHONS}
        for _ in range(ROUNDS):
            for name, worker in workers.items():
                said = _asked(worker)
                versions[name] = said["versions"]
                for what, value in said["found"].items():
                    best[name][what] = min(value, best[name].get(what, value))
    return best, versions


def _started(name: str) -> subprocess.Popen[str]:
    python = _PYTHONS[name]
    if not python.exists():
        raise FileNotFoundError(f"{python} is missing; `make bench-peers` installs it.")
    return subprocess.Popen(
        [python, "-m", "benchmarks.peers.work_dspy", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def _asked(worker: subprocess.Popen[str]) -> dict[str, Any]:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write("measure\n")
    worker.stdin.flush()
    line = worker.stdout.readline()
    if not line:
        raise RuntimeError(f"The worker {worker.args!r} ended; see above.")
    return json.loads(line)


def lines(best: dict[str, dict[str, float]]) -> Iterator[Line]:
    """What was found, with what ours may be."""
    ours, peer = best["sennit"], best["peer"]
    for what, value in ours.items():
        if what.startswith("turn"):
            most = 1.5 * peer["turn at 10"]
        elif what.startswith("fork"):
            most = peer[what] / 1_000
        elif what.startswith("load"):
            most = peer[what] / 30
        else:
            most = _MEGABYTES
        yield Line(what, value, peer[what], most)


def main() -> int:
    """Measure; the exit code says whether all bars were held."""
    best, versions = measured()
    found = list(lines(best))
    print("| µs of processor time, or bytes | Sennit | dspy-session | at most | |")
    print("|---|--:|--:|--:|---|")
    for one in found:
        print(
            f"| {one.name} | {one.ours:,.0f} | {one.peer:,.0f} | {one.most:,.0f} | {one.verdict} |"
        )
    for said in versions.values():
        print(", ".join(f"{name} {value}" for name, value in said.items()) + ".")
    print("On " + ", ".join(f"{key} {value}" for key, value in machine().items()) + ".")
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps({"machine": machine(), "versions": versions, "best": best}) + "\n")
    return 1 if any(one.verdict == "MISSED" for one in found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
