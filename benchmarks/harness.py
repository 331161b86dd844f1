"""How things are measured: ours and a floor, in turns, in one run.

A time means little by itself: machines differ, and differ from minute to minute. So each case runs
beside a floor, the same work on plain lists and dicts or with the standard library, the two take
turns, and the ratio of their best times is what counts. A bar is the ratio we mean to stay under.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

ROUNDS = 7


@dataclass(frozen=True, slots=True)
class Work:
    """Something to time; `prepare` runs before each round, outside the clock."""

    run: Callable[[Any], object]
    prepare: Callable[[], Any] = lambda: None


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the table; `ours` and `floor` are in `unit`."""

    name: str
    ours: float
    floor: float
    floor_name: str
    unit: str = "µs"
    bar: float | None = None
    """The ratio to stay under, if one was set."""

    @property
    def ratio(self) -> float:
        return self.ours / self.floor

    @property
    def verdict(self) -> str:
        if self.bar is None:
            return ""
        return "ok" if self.ratio <= self.bar else "MISSED"


def compare(
    name: str,
    ours: Work,
    floor: Work,
    *,
    floor_name: str,
    count: int = 1,
    bar: float | None = None,
    rounds: int = ROUNDS,
) -> Result:
    """Time both in turns; the result is in microseconds for each of `count` steps."""
    best = {"ours": float("inf"), "floor": float("inf")}
    for _ in range(rounds):
        for which, work in (("ours", ours), ("floor", floor)):
            best[which] = min(best[which], _seconds(work))
    scale = 1e6 / count
    return Result(name, best["ours"] * scale, best["floor"] * scale, floor_name, bar=bar)


def _seconds(work: Work) -> float:
    given = work.prepare()
    gc.collect()
    start = perf_counter()
    kept = work.run(given)
    took = perf_counter() - start
    del kept
    return took


def machine() -> dict[str, str | int | None]:
    """What the figures were measured on."""
    return {
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "processor": _processor(),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def show(results: Iterable[Result]) -> str:
    """The results as a Markdown table."""
    lines = [
        "| what | ours | floor | ratio | bar | |",
        "|---|--:|--:|--:|--:|---|",
    ]
    for one in results:
        bar = "" if one.bar is None else f"≤ {one.bar:g}"
        lines.append(
            f"| {one.name} | {one.ours:,.2f} {one.unit} "
            f"| {one.floor:,.2f} {one.unit} ({one.floor_name}) "
            f"| {one.ratio:.2f} | {bar} | {one.verdict} |"
        )
    return "\n".join(lines)


def save(results: Iterable[Result], path: Path) -> None:
    """The results and the machine as JSON."""
    rows = [asdict(one) | {"ratio": one.ratio} for one in results]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), "results": rows}, indent=1) + "\n")
