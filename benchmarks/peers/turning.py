"""What the workers of turns share: the question, the answers of an instant model, the clock.

A turn is a question, a model that at once asks for one tool, the tool, and the model's answer. Each
system is given its own kind of model through the door it has for that, so what is measured is the
loop around it. The time is that of the processor, all threads together: waiting for a disk or for
other programs does not count. This module runs in every peer's environment: standard library only.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

QUESTION = "How much rope does a bowline take?"
TOOL = "look_up"
ARGUMENTS = {"knot": "bowline"}
FOUND = "bowline: 40 cm"
ANSWER = "A bowline takes about forty centimetres of rope."
WARM = 5


class Turner(ABC):
    """One system under test."""

    def __init__(self, folder: Path, variant: str) -> None:
        self.folder, self.variant = folder, variant
        self.looked = 0
        """How often the tool was called."""

    @abstractmethod
    def about(self) -> dict[str, Any]:
        """The versions of what is measured."""

    @abstractmethod
    async def turn(self) -> str:
        """One turn; gives the answer."""

    @abstractmethod
    async def prepare(self) -> None:
        """What is there before the first turn of a round."""

    async def tidy(self) -> None:
        """What is done after the last."""
        self.looked = 0

    def turns(self, count: int) -> dict[str, Any]:
        """So many turns, one after another, after a few that do not count."""
        return asyncio.run(self._turns(count))

    async def _turns(self, count: int) -> dict[str, Any]:
        await self.prepare()
        for _ in range(WARM):
            await self.turn()
        self.looked = 0
        gc.collect()
        start = process_time()
        answers = [await self.turn() for _ in range(count)]
        seconds = process_time() - start
        landed = min(answers.count(ANSWER), self.looked)
        await self.tidy()
        return {"seconds": seconds, "landed": landed}


def serve(kind: Callable[[Path, str], Turner]) -> None:
    """Answer line by line until the input ends."""
    worker = kind(Path(sys.argv[1]), sys.argv[2])
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(getattr(worker, asked.pop("do"))(**asked)), flush=True)
