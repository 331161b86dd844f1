"""`python -m benchmarks.workers`: how many commits workers finish in a second, on a PostgreSQL here.

The server, the workers and this program share one machine, so this says what a commit costs rather
than how far it scales: with as many workers as processors, and the server beside them, the
processors are the limit. Figures are for jobs of ten short messages each, by rules. The clock runs
from the first job that is done to the last, so that starting Python does not count.
"""

from __future__ import annotations

import subprocess
import sys
import time
from threading import Thread

import sennit
from benchmarks.harness import machine
from sennit.stores.queue import Serving
from tests.server import OwnServer, running

USERS, SESSIONS = 20, 15
SAID = (
    "My name is Name{0} and I live in Town{1}.",
    "I prefer tea number {1} to coffee.",
    "My sister is called Sister{1}.",
    "Yesterday I signed the contract for flat {1}.",
    "Could you look up the weather in Town{1}?",
)


def left(url: str) -> float:
    """Leave commits of many users to workers; gives how many a second."""
    took = 0.0
    for user in range(USERS):
        with sennit.open(url, user=f"user{user}") as client:
            for number in range(SESSIONS):
                session = client.session(f"chat {number}")
                for text in SAID:
                    session.add_message("user", text.format(user, number))
                    session.add_message("assistant", "I see.")
                begun = time.perf_counter()
                assert session.commit(wait=False).status == "pending"
                took += time.perf_counter() - begun
    return USERS * SESSIONS / took


def finished(url: str, workers: int) -> float:
    """Have so many workers finish all that is left; gives how many a second."""
    command = [sys.executable, "-m", "sennit", "worker", "--store", url, "--drain"]
    moments: list[float] = []

    def watch() -> None:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        moments.extend(time.perf_counter() for _ in process.stdout)

    watching = [Thread(target=watch) for _ in range(workers)]
    for one in watching:
        one.start()
    for one in watching:
        one.join()
    assert len(moments) == USERS * SESSIONS, f"{len(moments)} jobs were done"
    return (len(moments) - 1) / (max(moments) - min(moments))


def measure(server: OwnServer, workers: int) -> tuple[float, float]:
    """In a new database: commits left and commits finished in a second."""
    name = server.create()
    url = server.address(name)
    sennit.open(url).close()
    # Whoever commits leaves it to workers as long as one was there lately.
    server.execute(
        f"INSERT INTO sennit.procrastinate_workers (last_heartbeat)"
        f" VALUES (now() + interval '1 hour' - interval '{Serving().silence} s')",
        name,
    )
    return left(url), finished(url, workers)


def main() -> None:
    """Measure with one and with two workers, in turn, and print the best of three."""
    with running(fsync=True) as server:
        found = {workers: [measure(server, workers) for _ in range(3)] for workers in (1, 2)}
    phase_one = max(rate for rates in found.values() for rate, _ in rates)
    print(f"left to workers: {phase_one:.0f} commits a second, by one program")
    for workers, rates in found.items():
        shown = ", ".join(f"{rate:.0f}" for _, rate in rates)
        print(f"finished by {workers}: {max(rate for _, rate in rates):.0f} a second ({shown})")
    print("On " + ", ".join(f"{key} {value}" for key, value in machine().items()) + ".")


if __name__ == "__main__":
    main()
