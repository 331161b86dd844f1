"""`make bench-peers`: let the workers take turns, print a table, write JSON beside it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from benchmarks.harness import machine
from benchmarks.peers.worker import WARM

ROOT = Path(__file__).parents[2]
OUTPUT = ROOT / "benchmarks" / "results" / "peers.json"
ROUNDS = 5
CASE_SECONDS = 33
"""No new round of a case starts after this long; all cases together stay below four minutes."""
OURS = "Sennit"
DURABLE = "Sennit, SQLite"
NEW = "Sennit, new conversation"
"""A ConversationSession for each turn, on the same session and branch, as a server makes them."""
NEW_DURABLE = "Sennit, SQLite, new conversation"
FLOOR = "bare SQLite"
"""The same appends as rows of one table, without ids, branches and times; not a peer."""


@dataclass(frozen=True, slots=True)
class System:
    """A column of a table: a worker module, its environment, and the variant it is told."""

    name: str
    module: str
    python: Path
    variant: str = "plain"


@dataclass(slots=True)
class Case:
    """A row of the table: what is asked, and for how many steps the time is divided."""

    name: str
    ask: dict[str, Any]
    steps: int
    expected: int
    bar: float | None = None
    """How many times faster than the fastest peer we mean to be."""
    skip: frozenset[str] = frozenset()
    ours: str = OURS
    """Which of ours is compared."""
    best: dict[str, float] = field(default_factory=dict)
    """Microseconds for each step."""
    landed: dict[str, int] = field(default_factory=dict)

    def note(self, name: str, answer: dict[str, Any]) -> None:
        took = answer["seconds"] * 1e6 / self.steps
        self.best[name] = min(took, self.best.get(name, took))
        self.landed[name] = min(answer["landed"], self.landed.get(name, answer["landed"]))

    @property
    def fastest(self) -> str:
        """The fastest peer of those that show every message."""
        whole = {name for name, landed in self.landed.items() if landed == self.expected}
        return min(whole - {OURS, DURABLE, NEW, NEW_DURABLE, FLOOR}, key=self.best.__getitem__)

    @property
    def ratio(self) -> float:
        return self.best[self.fastest] / self.best[self.ours]

    @property
    def verdict(self) -> str:
        if self.landed[self.ours] != self.expected:
            return "LOST"
        if self.bar is None:
            return ""
        return "ok" if self.ratio >= self.bar else "MISSED"


@dataclass(slots=True)
class Table:
    """What is measured of several systems."""

    title: str
    systems: list[System]
    cases: list[Case]
    about: dict[str, Any] = field(default_factory=dict)
    """What the workers say about themselves."""


def tables() -> list[Table]:
    def peer(name: str) -> Path:
        return ROOT / ".venv-peers" / name / "bin" / "python"

    ours = Path(sys.executable)
    stores = [
        System(FLOOR, "work_bare", ours),
        System(OURS, "work_sennit", ours),
        System("Agents SDK", "work_openai_agents", peer("openai_agents")),
        System("Agents SDK, aiosqlite", "work_openai_agents", peer("openai_agents"), "async"),
        System("LangGraph", "work_langgraph", peer("langgraph")),
        System("LangGraph, DeltaChannel", "work_langgraph", peer("langgraph"), "delta"),
    ]
    loops = [
        System(OURS, "turn_sennit", ours),
        System(DURABLE, "turn_sennit", ours, "sqlite"),
        System(NEW, "turn_sennit", ours, "new"),
        System(NEW_DURABLE, "turn_sennit", ours, "sqlite new"),
        System("Agents SDK", "turn_openai_agents", peer("openai_agents")),
        System("Pydantic AI", "turn_pydantic_ai", peer("pydantic_ai")),
        System("LangGraph", "turn_langgraph", peer("langgraph")),
    ]
    return [
        Table("Session stores, time on the clock", stores, cases()),
        Table("A turn with a tool call, time of the processor", loops, turns()),
    ]


def turns() -> list[Case]:
    ask, all_ours = {"do": "turns", "count": 40}, {OURS, DURABLE, NEW, NEW_DURABLE}

    def row(name: str, ours: str, bar: float) -> Case:
        return Case(name, ask, 40, 40, bar, frozenset(all_ours - {ours}), ours)

    return [
        row("in memory", OURS, 4),
        row("ours durable, theirs in memory", DURABLE, 1),
        row("in memory, a new conversation each", NEW, 4),
        row("ours durable, a new conversation each", NEW_DURABLE, 1.25),
    ]


def cases() -> list[Case]:
    tasks, each, forks = 16, 25, 3
    many = {"do": "concurrent", "tasks": tasks, "count": each}
    return [
        Case("durable append", {"do": "append", "count": 200}, 200, 200, bar=1.5),
        Case(
            "append, 16 tasks, 16 sessions",
            many | {"sessions": tasks},
            tasks * each,
            tasks * (WARM + each),
            bar=4.5,
        ),
        Case(
            "append, 16 tasks, one session",
            many | {"sessions": 1},
            tasks * each,
            tasks * (WARM + each),
            bar=4.5,
        ),
        Case(
            "fork in the middle of 10,000",
            {"do": "fork", "count": forks},
            forks,
            5_000,
            bar=50,
            skip=frozenset({FLOOR, "Agents SDK, aiosqlite"}),
        ),
        Case(
            "load 10,000 and read each content",
            {"do": "load"},
            1,
            10_000,
            bar=0.667,
            skip=frozenset({FLOOR}),
        ),
    ]


class Running:
    """A started worker."""

    def __init__(self, system: System, process: asyncio.subprocess.Process) -> None:
        self.system, self._process = system, process

    @classmethod
    async def start(cls, system: System, folder: Path) -> Running:
        if not system.python.exists():
            raise FileNotFoundError(f"{system.python} is missing; `make bench-peers` installs it.")
        place = folder / system.name
        place.mkdir()
        quiet = {"OPENAI_AGENTS_DISABLE_TRACING": "1", "LANGSMITH_TRACING": "false"}
        process = await asyncio.create_subprocess_exec(
            system.python,
            "-m",
            f"benchmarks.peers.{system.module}",
            str(place),
            system.variant,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env=os.environ | quiet,
        )
        return cls(system, process)

    async def ask(self, what: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")
        line = await asyncio.wait_for(self._process.stdout.readline(), 60)
        if not line:
            raise RuntimeError(f"The worker of {self.system.name} ended at {what!r}; see above.")
        return json.loads(line)

    async def stop(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


async def measure(table: Table) -> None:
    """Fill in the cases, and what the workers say about themselves."""
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            workers: list[Running] = []
            for system in table.systems:
                workers.append(await Running.start(system, Path(folder)))
                stack.push_async_callback(workers[-1].stop)
            table.about = {one.system.name: await one.ask({"do": "about"}) for one in workers}
            for case in table.cases:
                await take_turns(case, workers)


async def take_turns(case: Case, workers: list[Running]) -> None:
    until = monotonic() + CASE_SECONDS
    for _ in range(ROUNDS):
        for worker in workers:
            if worker.system.name not in case.skip:
                case.note(worker.system.name, await worker.ask(case.ask))
        if monotonic() > until:
            break
    print(f"  {case.name}: {case.ratio:.1f} × faster than {case.fastest}", file=sys.stderr)


def show(table: Table) -> Iterator[str]:
    names = [system.name for system in table.systems]
    yield f"{table.title}:\n"
    yield f"| µs each | {' | '.join(names)} | faster | bar | |"
    yield "|---|" + "--:|" * (len(names) + 2) + "---|"
    for case in table.cases:
        cells = " | ".join(_cell(case, name) for name in names)
        bar = "" if case.bar is None else f"≥ {case.bar:g} ×"
        yield f"| {case.name} | {cells} | {case.ratio:.1f} × | {bar} | {case.verdict} |"
    yield "\n`faster` is against the fastest peer with no message missing."
    for name, said in table.about.items():
        versions = ", ".join(f"{key} {value}" for key, value in said["versions"].items())
        more = f"; {said['pragmas']}" if "pragmas" in said else ""
        yield f"{name}: {versions}{more}."
    yield ""


def _cell(case: Case, name: str) -> str:
    if name not in case.best:
        return ""
    lost = case.expected - case.landed[name]
    return f"{case.best[name]:,.0f}" + (f" ({lost} of {case.expected} missing)" if lost else "")


def save(measured: list[Table]) -> None:
    rows = [
        {
            "table": table.title,
            "name": case.name,
            "µs": case.best,
            "landed": case.landed,
            "expected": case.expected,
            "fastest": case.fastest,
            "ratio": case.ratio,
            "bar": case.bar,
        }
        for table in measured
        for case in table.cases
    ]
    about = {table.title: table.about for table in measured}
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    whole = {"machine": machine(), "systems": about, "results": rows}
    OUTPUT.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")


def main() -> int:
    """Measure; the exit code says whether all bars were held."""
    measured = tables()
    for table in measured:
        asyncio.run(asyncio.wait_for(measure(table), 240))
        print("\n".join(show(table)))
    print("On " + ", ".join(f"{key} {value}" for key, value in machine().items()) + ".")
    save(measured)
    print(f"Written to {OUTPUT.relative_to(ROOT)}.")
    verdicts = {case.verdict for table in measured for case in table.cases}
    return 1 if verdicts & {"MISSED", "LOST"} else 0


if __name__ == "__main__":
    raise SystemExit(main())
