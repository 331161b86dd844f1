"""`make torture`: everything that can go wrong with a store, again and again, with counts.

Each part prints one line of numbers; a number that must be zero and is not makes the exit code 1.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from time import monotonic

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.counts import told
from tests.postgres import running
from tests.torture import effects as calls
from tests.torture import full_disk, processes, restarts, turns
from tests.torture.acts import tiny_pieces
from tests.torture.crashes import Tally
from tests.torture.fork_server import ForkServer
from tests.torture.kills import kill_many
from tests.torture.lockstep import PHASES, Kit, Lockstep
from tests.torture.points import crash_all

MUST_BE_ZERO = {"lost", "doubled", "torn", "sick", "disordered", "lost or torn"}
Outcome = tuple[str, dict[str, int]]


def kills(options: argparse.Namespace) -> Iterator[Outcome]:
    """A writing program, killed at random moments."""
    yield "kills", kill_many(options.kills, options.seed)


def points(options: argparse.Namespace) -> Iterator[Outcome]:
    """Every act, killed at every statement; on PostgreSQL also cut off there."""
    with tempfile.TemporaryDirectory(dir=quick_disk()) as folder:
        yield crashed("crash points on SQLite", folder, options)
    with running() as server:
        yield crashed("crash points on PostgreSQL", server.url, options)


def quick_disk() -> str | None:
    """Memory that looks like a disk: what a killed process leaves does not depend on which."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def crashed(label: str, place: str, options: argparse.Namespace) -> Outcome:
    tally = crash_all(label, place, every=options.every, jobs=options.jobs)
    show(tally)
    return label, tally.counts


def show(tally: Tally) -> None:
    for trouble in tally.trouble:
        print(trouble, flush=True)


def servers(options: argparse.Namespace) -> Iterator[Outcome]:
    """A PostgreSQL server that waits for its disk, crashed in mid-write."""
    with running(fsync=True) as server:
        address = server.address(server.create())
        counts = restarts.crash(server, address, rounds=options.rounds, writers=4)
        yield "server crashes", counts


def crowds(options: argparse.Namespace) -> Iterator[Outcome]:
    """Many processes at once, on either store."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running(fsync=True) as server,
        ForkServer() as fork_server,
    ):
        for name, address in [
            ("SQLite", str(Path(folder) / "sennit.db")),
            ("PostgreSQL", server.address(server.create())),
        ]:
            counts = processes.on_one_branch(fork_server, address, 8, options.appends)
            yield f"processes on one branch, {name}", counts
            counts = processes.on_their_own(fork_server, address, 16, options.appends)
            yield f"processes on their own sessions, {name}", counts


def disks(_: argparse.Namespace) -> Iterator[Outcome]:
    """A disk that becomes full."""
    for kind, how in full_disk.ways():
        found = full_disk.run(kind, how)
        full, freed = found["full"], found["freed"]
        whole = full["kept"] and freed["same"] and not freed["findings"]
        counts = {"acknowledged": full["acknowledged"], "lost": freed["lost"]}
        counts["torn"] = int(not whole)
        yield f"full disk of {kind}, by {how}", counts


def conversations(options: argparse.Namespace) -> Iterator[Outcome]:
    """Conversations, killed at each point of their journal and gone on with, on either store."""
    with tempfile.TemporaryDirectory() as folder, running() as server:
        for name, address in [
            ("SQLite", str(Path(folder) / "sennit.db")),
            ("PostgreSQL", server.address(server.create())),
        ]:
            tally = turns.kill_all(address, Path(folder), options.every)
            show(tally)
            yield f"conversations killed on {name}", tally.counts


def effects(options: argparse.Namespace) -> Iterator[Outcome]:
    """Tool calls, interrupted at each stage, decided and resumed in every way, on either store."""
    with tempfile.TemporaryDirectory(dir=quick_disk()) as folder, running() as server:
        for name, address in [
            ("SQLite", str(Path(folder) / "sennit.db")),
            ("PostgreSQL", server.address(server.create())),
        ]:
            tally = calls.check_all(address, Path(folder), options.every)
            show(tally)
            yield f"calls interrupted on {name}", tally.counts


def steps(options: argparse.Namespace) -> Iterator[Outcome]:
    """The three stores in lock step; raises where they part."""
    chosen = settings(
        max_examples=options.runs,
        stateful_step_count=80,
        phases=PHASES,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    with tempfile.TemporaryDirectory() as folder, running() as server:
        Lockstep.kit = Kit(str(Path(folder) / "sennit.db"), server.address(server.create()))
        with tiny_pieces():
            run_state_machine_as_test(Lockstep, settings=chosen)
        Lockstep.kit.close()
    yield "lock step of three stores", {"runs": options.runs}


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Outcome]]] = {
    "kills": kills,
    "points": points,
    "turns": conversations,
    "effects": effects,
    "servers": servers,
    "processes": crowds,
    "disks": disks,
    "lockstep": steps,
}


def parsed() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument(
        "--only",
        nargs="+",
        choices=PARTS,
        default=PARTS,
        metavar="PART",
        help=f"which parts of {', '.join(PARTS)}",
    )
    parser.add_argument("--kills", type=int, default=500, help="kills at random moments")
    parser.add_argument("--seed", type=int, default=1, help="where the random moments begin")
    parser.add_argument("--every", type=int, default=1, help="take every so many-th crash point")
    parser.add_argument("--jobs", type=int, default=4, help="crash points taken at the same time")
    parser.add_argument("--rounds", type=int, default=25, help="crashes of the server")
    parser.add_argument("--appends", type=int, default=250, help="appends of each process")
    parser.add_argument("--runs", type=int, default=200, help="runs of the stores in lock step")
    return parser.parse_args()


def main() -> int:
    """Do what was asked for; the exit code says whether all went well."""
    options = parsed()
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # it tells of each lost connection
    wrong = 0
    start = monotonic()
    chosen = [PARTS[name](options) for name in options.only]
    for label, counts in chain.from_iterable(chosen):
        print(f"{label}: {told(counts)} ({monotonic() - start:.0f} s)", flush=True)
        wrong += sum(count for name, count in counts.items() if name in MUST_BE_ZERO)
        start = monotonic()
    print("all went well" if not wrong else f"{wrong} went wrong", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
