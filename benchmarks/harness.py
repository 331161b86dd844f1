"""The benchmark harness: our code and a floor, timed alternately in one run.

Absolute times vary between machines and from minute to minute. So each case runs beside a floor,
the same work on plain lists and dicts or with the standard library; the two alternate, and the
ratio of their best times counts. A bar is the maximum ratio.
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
    """Work to time; `prepare` runs untimed before each round."""

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
    """The maximum ratio, if there is one."""

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
    """Time both alternately; the result is in microseconds per each of `count` steps."""
    best = {"ours": float("inf"), "floor": float("inf")}
    for _ in range(rounds):
        for which, work in (("ours", ours), ("floor", floor)):
            best[which] = min(best[which], _time_once(work))
    scale = 1e6 / count
    return Result(name, best["ours"] * scale, best["floor"] * scale, floor_name, bar=bar)


def _time_once(work: Work) -> float:
    prepared = work.prepare()
    gc.collect()
    start = perf_counter()
    result = work.run(prepared)
    took = perf_counter() - start
    del result
    return took


def machine() -> dict[str, str | int | None]:
    """Return the Python version and the hardware of this run."""
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
    """Format the results as a Markdown table."""
    lines = [
        "| what | ours | floor | ratio | bar | |",
        "|---|--:|--:|--:|--:|---|",
    ]
    for result in results:
        bar = "" if result.bar is None else f"≤ {result.bar:g}"
        lines.append(
            f"| {result.name} | {result.ours:,.2f} {result.unit} "
            f"| {result.floor:,.2f} {result.unit} ({result.floor_name}) "
            f"| {result.ratio:.2f} | {bar} | {result.verdict} |"
        )
    return "\n".join(lines)


def save(results: Iterable[Result], path: Path) -> None:
    """Write the results and the machine as JSON."""
    rows = [asdict(result) | {"ratio": result.ratio} for result in results]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), "results": rows}, indent=1) + "\n")
