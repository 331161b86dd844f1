"""Models: what passing a delta on costs, through all that iModel puts around a model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from benchmarks.harness import Result, Work, compare
from sennit import iModel
from sennit.services.models.request import ModelRequest
from sennit.testing import ScriptedModel

CHUNKS = 10_000
_REQUEST = ModelRequest(messages=[{"role": "user", "content": "Go on."}])


def run() -> Iterator[Result]:
    """All results of this step, one after another."""
    yield compare(
        "stream through iModel, 10,000 deltas",
        Work(lambda model: asyncio.run(_streamed(model)), _scripted),
        Work(lambda _: asyncio.run(_queued())),
        floor_name="asyncio.Queue put and get",
        count=CHUNKS,
        bar=10,
    )


def _scripted() -> iModel:
    return iModel(ScriptedModel(["word " * CHUNKS], chunk=5))


async def _streamed(model: iModel) -> int:
    seen = 0
    async with model.stream(_REQUEST) as deltas:
        async for _ in deltas:
            seen += 1
    assert seen == CHUNKS + 1
    return seen


async def _queued() -> None:
    queue: asyncio.Queue[int] = asyncio.Queue()
    for number in range(CHUNKS):
        await queue.put(number)
        await queue.get()
