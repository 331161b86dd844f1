"""What the workers share: the conversation, the clock, and the JSON lines they speak.

A line like {"do": "append", "count": 200} is answered with {"seconds": …, "landed": …}: the time of
the work alone, and how many messages were there when read back afterwards (in `concurrent` with
those of the warm-up), so that speed cannot come from losing some. This module runs in every peer's
environment: standard library only.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter
from typing import Any
from uuid import uuid4

SIZE = 10_000
MIDDLE = SIZE // 2
WARM = 12
"""Appends to each session before the clock starts: connections and threads are made by then."""

Say = Callable[[int, str], Awaitable[object]]
"""Adds a text to the session of that number."""


def text(number: int) -> str:
    """What is said at that place: questions at even numbers, answers at odd ones."""
    if number % 2 == 0:
        return f"Question {number}: which knot holds under load and still comes loose?"
    answer = "Make a small loop, pass the end up through it, around the line and back down again. "
    return f"Answer {number}: {answer * 3}"


def role(number: int) -> str:
    return "user" if number % 2 == 0 else "assistant"


class Clock:
    """Seconds inside the `with`."""

    seconds = 0.0

    def __enter__(self) -> Clock:
        gc.collect()
        self._start = perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = perf_counter() - self._start

    def answer(self, landed: int) -> dict[str, Any]:
        return {"seconds": self.seconds, "landed": landed}


class Worker(ABC):
    """One system under test; its methods are what the driver may ask for."""

    def __init__(self, folder: Path, variant: str) -> None:
        self.folder, self.variant = folder, variant
        self.runner = asyncio.Runner()

    def new(self) -> Path:
        return self.folder / f"{uuid4()}.db"

    @abstractmethod
    def about(self) -> dict[str, Any]:
        """Version and the pragmas of its connections."""

    @abstractmethod
    def append(self, count: int) -> dict[str, Any]:
        """Messages one by one to a new session, each acknowledged before the next."""

    @abstractmethod
    def concurrent(self, sessions: int, tasks: int, count: int) -> dict[str, Any]:
        """`tasks` tasks that add `count` messages each, spread over `sessions` new sessions."""

    @abstractmethod
    def load(self) -> dict[str, Any]:
        """Open a stored session of SIZE messages and read the text of each."""

    @abstractmethod
    def fork(self, count: int) -> dict[str, Any]:
        """Fork a session of SIZE messages after the first MIDDLE, `count` times."""


async def gather(say: Say, sessions: int, tasks: int, count: int) -> Clock:
    """Time tasks that each add messages one by one, after a warm-up."""

    async def one(task: int, first: int, amount: int) -> None:
        for number in range(first, first + amount):
            await say(task % sessions, text(number))

    await asyncio.gather(*(one(number, 0, WARM) for number in range(tasks)))
    with Clock() as clock:
        await asyncio.gather(*(one(number, WARM, count) for number in range(tasks)))
    return clock


def serve(kind: Callable[[Path, str], Worker]) -> None:
    """Answer line by line until the input ends."""
    worker = kind(Path(sys.argv[1]), sys.argv[2])
    for line in sys.stdin:
        asked = json.loads(line)
        answer = getattr(worker, asked.pop("do"))(**asked)
        print(json.dumps(answer), flush=True)
