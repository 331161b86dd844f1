"""Crash every act at every point of it, in several processes at once.

Each process has a ground of its own; an act is rehearsed in one of them, for all. A crash waits for
others more than it computes, so more processes than cores do no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from tests.postgres import Server
from tests.torture.acts import ACTS
from tests.torture.crashes import Crashes, Point, Rehearsal, Tally, rehearse, share
from tests.torture.fork_server import ForkServer
from tests.torture.ground import Databases, Files
from tests.torture.progress import Progress

_AT_A_TIME = 10


def crash_all(label: str, place: str, *, every: int, jobs: int) -> Tally:
    """Crash all acts in a folder, or on a server, at every so many-th point."""
    spawning = get_context("spawn")  # a process with threads must not fork
    with ProcessPoolExecutor(jobs, spawning, initializer=_begin, initargs=(place,)) as pool:
        opening = pool.submit(_opening_points)
        pieces = [
            (rehearsal, piece)
            for rehearsal in pool.map(_rehearsed, ACTS)
            for piece in _pieces(share(rehearsal.points, every, rehearsal.act))
        ]
        pieces += [(None, piece) for piece in _pieces(share(opening.result(), every))]
        progress = Progress(label, sum(len(piece) for _, piece in pieces))
        tally = Tally()
        for done in as_completed([pool.submit(_crash, *piece) for piece in pieces]):
            count, found = done.result()
            tally.add(found)
            progress.advance(count)
    return tally


def _pieces(points: list[Point]) -> Iterator[list[Point]]:
    for first in range(0, len(points), _AT_A_TIME):
        yield points[first : first + _AT_A_TIME]


_here: list[Crashes] = []
"""In a process of the pool: where it crashes."""


def _begin(place: str) -> None:
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # it tells of each lost connection
    ground = Files(Path(place)) if place.startswith("/") else Databases(Server(place))
    _here.append(Crashes(ground, ForkServer().__enter__()))  # which ends when this process does


def _rehearsed(name: str) -> Rehearsal:
    return rehearse(_here[0].ground, ACTS[name])


def _opening_points() -> list[Point]:
    return _here[0].opening_points()


def _crash(rehearsal: Rehearsal | None, points: list[Point]) -> tuple[int, Tally]:
    """Crash an act, or without one the opening of a new store, at these points."""
    crashes = Crashes(_here[0].ground, _here[0].fork_server)
    for point in points:
        if rehearsal is None:
            crashes.kill_opening(point)
            continue
        crashes.kill(rehearsal, point)
        if isinstance(crashes.ground, Databases):
            crashes.cut(rehearsal, point)
    return len(points), crashes.tally
