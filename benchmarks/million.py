"""A million messages as lines to train on, beside the rows read and written with json.dumps.

`make bench-export`. It takes some minutes and is no part of `make bench`. Each side runs in a
process of its own, in turns; what counts is the processor's time, and by how much memory grew.
"""

from __future__ import annotations

import json
import random
import resource
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from time import process_time
from typing import Any

import sennit
from benchmarks.harness import Result, machine, show
from benchmarks.learning import ANSWER, QUESTION
from sennit import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
    Message,
    SystemContent,
)

MESSAGES = 1_000_000
LONG = 100_000
ROUNDS = 3
_MAX_GROWTH_MB = 64.0


def main() -> int:
    """Measure many sessions, then one long one; the exit code says whether all bars were held."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as folder:
        many, long = Path(folder, "many.db"), Path(folder, "long.db")
        sessions = fill(many, MESSAGES, 120)
        print(f"{MESSAGES:,} messages in {sessions:,} sessions", file=sys.stderr)
        results += measure(many, MESSAGES, f"{sessions:,} sessions", growth=_MAX_GROWTH_MB)
        fill(long, LONG, LONG)
        results += measure(long, LONG, "one session", growth=4 * _MAX_GROWTH_MB)
    print(show(results))
    print("\nOn " + ", ".join(f"{key} {value}" for key, value in machine().items()) + ".")
    return 1 if any(result.verdict == "MISSED" for result in results) else 0


def measure(path: Path, count: int, what: str, *, growth: float) -> list[Result]:
    """What exporting a store costs, and by how much memory grows."""
    runs = [(_run("ours", path), _run("floor", path)) for _ in range(ROUNDS)]
    ours, floor = (min(run[side]["cpu"] for run in runs) * 1e6 / count for side in (0, 1))
    peak = max(run[0]["grown"] for run in runs)
    name = f"export of {count:,} messages in {what}"
    return [
        Result(f"{name}, each", ours, floor, "read, json.loads, json.dumps", bar=2),
        Result(f"{name}, memory", peak, growth, "allowed", unit="MB", bar=1),
    ]


def _run(which: str, path: Path) -> dict[str, float]:
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.million", which, str(path)],
        capture_output=True,
        check=True,
        text=True,
    )
    return json.loads(ran.stdout)


def run(which: str, path: Path) -> dict[str, float]:
    """One side, in this process."""
    target = path.with_name(f"{which}.jsonl")
    before, began = _peak_memory_mb(), process_time()
    if which == "ours":
        with sennit.open(path) as client:
            client.export_training(target)
    else:
        connection = sqlite3.connect(path)
        with target.open("w") as file:
            for (body,) in connection.execute("SELECT body FROM messages ORDER BY no"):
                file.write(json.dumps(json.loads(body)) + "\n")
        connection.close()
    took = process_time() - began
    target.unlink()
    return {"cpu": took, "grown": _peak_memory_mb() - before}


def _peak_memory_mb() -> float:
    """The most memory this process has had, in megabytes."""
    status = Path("/proc/self/status")
    if status.exists():  # rusage counts what the parent had before this program was loaded
        [line] = [one for one in status.read_text().splitlines() if one.startswith("VmHWM")]
        return int(line.split()[1]) / 1e3
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / 1e6 if sys.platform == "darwin" else most / 1e3


def fill(path: Path, total: int, size: int) -> int:
    """Sessions of about `size` messages, with tools, contexts and forks; gives how many."""
    chance = random.Random(7)
    count = 0
    with sennit.open(path) as client:
        while total > 0:
            messages = conversation(chance, min(total, chance.randrange(size // 2, 2 * size) or 1))
            total -= len(messages)
            count += 1
            session = client.session(f"s{count}")
            system = Message(SystemContent(system_message="Be brief.")) if count % 3 == 0 else None
            main = session.create_branch(name="main", system=system)
            session.add_messages(messages, branches=main)
            if count % 20 == 0:
                fork = main.fork(at=len(messages) // 2, name="again")
                session.add_message(Message(AssistantResponseContent("No.")), branches=fork)
    return count


def conversation(chance: random.Random, size: int) -> list[Message]:
    """A conversation: one question in five takes a tool, one in fifty has a context."""
    messages: list[Message] = []
    while len(messages) < size:
        more: dict[str, Any] = {"context": ["a note"]} if chance.random() < 0.02 else {}
        messages.append(
            Message(InstructionContent(instruction=f"{QUESTION} {len(messages)}", **more))
        )
        if chance.random() < 0.2:
            call = f"call_{chance.getrandbits(64):016x}"
            wanted = {"knot": "bowline", "page": len(messages)}
            result = {"title": "Bowline", "uses": ["rescue", "sailing"], "strength": 0.65}
            messages.append(Message(ActionRequestContent("look_up", wanted, call)))
            messages.append(Message(ActionResponseContent(call, result)))
        text = ANSWER[: chance.randrange(40, len(ANSWER))]
        messages.append(Message(AssistantResponseContent(text), metadata={"model": "x"}))
    return messages[:size]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(run(sys.argv[1], Path(sys.argv[2]))))
    else:
        raise SystemExit(main())
