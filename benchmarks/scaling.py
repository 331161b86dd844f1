"""`python -m benchmarks.scaling`: chat completions of one server and of two, and what each costs.

Servers, database and load share one machine, so the rates say how far this one gets; what carries
over to others is the processor time of a completion in the server. A completion
is said in a named session, kept with full durability, and answered by a model that takes no time.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.completions import CLIENTS, Load, in_session, load
from benchmarks.harness import machine
from tests.postgres_server import OwnServer, running

ROUNDS = 3


@dataclass(frozen=True)
class Measurement:
    """What some servers did together."""

    rate: float
    """Completions a second, of all of them."""
    wait: float
    """Seconds until an answer came, for the client in the middle."""
    cost: float
    """Seconds of a server's processor time for each."""


def measure(url: str, servers: int, round_: int) -> Measurement:
    """Start servers on a store, ask all of them at once, and end them."""
    idle = _stop_server(_start_server(url)[0])
    begun = [_start_server(url) for _ in range(servers)]
    share = CLIENTS // servers
    loads = asyncio.run(_run_load([port for _, port in begun], share, round_))
    used = sum(_stop_server(process) for process, _ in begun) - servers * idle
    answered = sum(load_result.answered for load_result in loads)
    waits = [wait for load_result in loads for wait in load_result.waits]
    return Measurement(
        sum(load_result.rate for load_result in loads), median(waits), used / answered
    )


async def _run_load(ports: Iterable[int], clients: int, round_: int) -> list[Load]:
    return await asyncio.gather(
        *(
            load(port, in_session, round_, clients=range(at * clients, (at + 1) * clients))
            for at, port in enumerate(ports)
        )
    )


def _start_server(url: str) -> tuple[subprocess.Popen[str], int]:
    command = [sys.executable, "-m", "benchmarks.completions_process", "ours", url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def _stop_server(process: subprocess.Popen[str]) -> float:
    """Stop a server; gives the seconds of processor time it took."""
    process.terminate()
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0  # it was waited for
    assert process.stdout is not None
    process.stdout.close()
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure each arrangement in turn, and print the best rate of each."""
    with tempfile.TemporaryDirectory() as folder, running(fsync=True) as database:
        measurements: dict[str, list[Measurement]] = {}
        for number in range(ROUNDS):
            for name, url, servers in _arrangements(Path(folder), database):
                measurements.setdefault(name, []).append(measure(url, servers, number))
    print("| servers | completions a second | median wait | processor time of a server, each |")
    print("|---|--:|--:|--:|")
    for name, all_ in measurements.items():
        best = max(all_, key=lambda measurement: measurement.rate)
        cost = min(measurement.cost for measurement in all_)
        print(f"| {name} | {best.rate:.0f} | {best.wait * 1e3:.1f} ms | {cost * 1e6:.0f} µs |")
    print("On " + ", ".join(f"{key} {value}" for key, value in machine().items()) + ".")


def _arrangements(folder: Path, database: OwnServer) -> Iterable[tuple[str, str, int]]:
    yield "one, SQLite", str(folder / "bench.db"), 1
    yield "one, PostgreSQL", database.address(database.create()), 1
    yield "two, PostgreSQL", database.address(database.create()), 2


if __name__ == "__main__":
    main()
