"""`python -m benchmarks.workers`: how many commits workers finish a second, on a PostgreSQL here.

Server, workers and this program share one machine, so this says what a commit costs rather than how
far it scales. Jobs are commits of ten short messages each, thought about by rules. The clock runs
from the first job that is done to the last, so that starting Python does not count; what workers
cost in processor time is told too, less that of one that finds nothing to do: other work on the
machine hardly changes that.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from threading import Thread

import sennit
from benchmarks.harness import machine
from tests.postgres_server import OwnServer, running

USERS, SESSIONS, ROUNDS = 10, 15, 3
TEXTS = (
    "My name is Name{0} and I live in Town{1}.",
    "I prefer tea number {1} to coffee.",
    "My sister is called Sister{1}.",
    "Yesterday I signed the contract for flat {1}.",
    "Could you look up the weather in Town{1}?",
)


def enqueue_commits(url: str) -> float:
    """Leave commits of many users to workers; gives how many a second."""
    took = 0.0
    for user in range(USERS):
        with sennit.open(url, user=f"user{user}") as client:
            for number in range(SESSIONS):
                session = client.session(f"chat {number}")
                for text in TEXTS:
                    session.add_message("user", text.format(user, number))
                    session.add_message("assistant", "I see.")
                begun = time.perf_counter()
                assert session.commit(wait=False).status == "pending"
                took += time.perf_counter() - begun
    return USERS * SESSIONS / took


def run_workers(url: str, workers: int) -> tuple[list[float], float]:
    """Have so many workers finish all that is left; gives when jobs were done, and seconds of CPU.

    The seconds are those of all workers together.
    """
    command = [sys.executable, "-m", "sennit", "worker", "--store", url, "--drain"]
    moments: list[float] = []
    seconds: list[float] = []

    def watch() -> None:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        moments.extend(time.perf_counter() for _ in process.stdout)
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0  # it was waited for
        seconds.append(used.ru_utime + used.ru_stime)

    watching = [Thread(target=watch) for _ in range(workers)]
    for thread in watching:
        thread.start()
    for thread in watching:
        thread.join()
    return moments, sum(seconds)


def measure(server: OwnServer, workers: int) -> tuple[float, float, float]:
    """In a new database: commits left and finished a second, and CPU seconds of one of those."""
    name = server.create()
    url = server.address(name)
    sennit.open(url).close()
    _, idle = run_workers(url, workers)
    # Whoever commits leaves it to workers as long as one was there lately.
    server.execute(
        "INSERT INTO sennit.procrastinate_workers (last_heartbeat)"
        " VALUES (now() + interval '1 hour')",
        name,
    )
    rate = enqueue_commits(url)
    moments, seconds = run_workers(url, workers)
    server.drop(name)
    assert len(moments) == USERS * SESSIONS, f"{len(moments)} jobs were done"
    took = max(moments) - min(moments)
    return rate, (len(moments) - 1) / took, (seconds - idle) / len(moments)


def main() -> None:
    """Measure with one and with two workers in turn, and print the best of each."""
    results: dict[int, list[tuple[float, float, float]]] = {1: [], 2: []}
    with running(fsync=True) as server:
        for _ in range(ROUNDS):
            for workers, rates in results.items():
                rates.append(measure(server, workers))
                print(workers, *(f"{rate:.4g}" for rate in rates[-1]), file=sys.stderr)
    queued = max(rate for rates in results.values() for rate, _, _ in rates)
    print(f"left to workers: {queued:.0f} a second")
    for workers, rates in results.items():
        best, cost = max(rate for _, rate, _ in rates), min(cost for _, _, cost in rates)
        print(f"finished by {workers}: {best:.0f} a second, {cost * 1000:.1f} ms of CPU each")
    print("On " + ", ".join(f"{key} {value}" for key, value in machine().items()) + ".")


if __name__ == "__main__":
    main()
