"""Many turns at once in one process: all finish, none sees another's text, each takes little."""

from __future__ import annotations

import asyncio
import tracemalloc

from sennit.turns.result import Return
from tests.conversation_fixtures import PLAIN, Talk

CROWD = 100


def test_a_hundred_streams_at_once_all_finish_and_take_little() -> None:
    talks = [Talk(f"Answer {number}: " + "word " * 40, chunk=5) for number in range(CROWD)]
    gate, waiting = asyncio.Event(), 0

    async def watch(talk: Talk) -> tuple[str, Return]:
        nonlocal waiting
        shown = ""
        async with talk.conversation().stream(None, PLAIN) as pieces:
            async for piece in pieces:
                if piece.is_final:
                    return shown, piece
                shown += str(piece)
                if len(shown) == 50:  # half-way, all of them at once
                    waiting += 1
                    await gate.wait()
        raise AssertionError("a stream without an end")

    async def work() -> tuple[list[tuple[str, Return]], int]:
        tracemalloc.start()
        try:
            watching = [asyncio.create_task(watch(talk)) for talk in talks]
            while waiting < CROWD:
                await asyncio.sleep(0)
            gate.set()
            ends = await asyncio.gather(*watching)
            return ends, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    ends, took = asyncio.run(work())
    for number, (shown, result) in enumerate(ends):
        said = f"Answer {number}: " + "word " * 40
        assert result.success
        assert result.text == said
        assert shown == said
    assert took / CROWD < 200_000
