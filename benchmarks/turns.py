"""Turns: what the loop adds to a model that answers at once and a tool that takes no time."""

from __future__ import annotations

import asyncio
import tempfile
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import sennit
from benchmarks.harness import Result, Work, compare
from benchmarks.stores import size_of
from sennit import Session
from sennit.services.models.reply import (
    Delta,
    Finished,
    Reply,
    ReplyCall,
    ReplyText,
    TextDelta,
    Usage,
)
from sennit.services.models.request import ModelRequest
from sennit.turns.options import SessionOptions, StreamingOptions

DELTAS = 5_000
TURNS = 10
CONCURRENT_TURNS = 500
HALF_WAY = 50
_QUESTION = "How much rope does a bowline take, and how much does a sheet bend take? " * 4
_ANSWER = "A bowline takes about forty centimetres of rope, and a sheet bend somewhat more. " * 4
_TOOL_RESULT = "bowline: 40 cm; sheet bend: 55 cm; clove hitch: 30 cm; figure eight: 35 cm. " * 3


class Instant:
    """Asks for a tool, then answers, and so on, whatever it is sent."""

    name = "instant"
    window = None
    streams = True
    supports_output_schema = False

    def __init__(self, deltas: int = DELTAS) -> None:
        self._asked, self._deltas = 0, deltas

    async def aask(self, request: ModelRequest) -> Reply:  # noqa: ARG002 - the same to all
        self._asked += 1
        if self._asked % 2:
            call = ReplyCall(f"call_{self._asked}", "look_up", '{"knot": "bowline"}')
            return Reply((call,), "tool_calls", Usage(100, 20))
        return Reply((ReplyText(_ANSWER),), "stop", Usage(150, 80))

    @asynccontextmanager
    async def stream(
        self,
        request: ModelRequest,  # noqa: ARG002 - the same to all
    ) -> AsyncGenerator[AsyncIterator[Delta]]:
        yield _words(self._deltas)


async def _words(count: int) -> AsyncIterator[Delta]:
    for _ in range(count):
        yield TextDelta("word ")
    yield Finished("stop", Usage(10, count))


async def look_up(knot: str) -> str:
    """Look up a knot."""
    return f"{knot}: {_TOOL_RESULT}"


def run() -> Iterator[Result]:
    """All results of this step, one after another."""
    yield compare(
        "a turn with a tool call at 1,000 messages, in memory",
        Work(_talk, _with_history(1_000)),
        Work(_talk, _with_history(10)),
        floor_name="at 10 messages",
        count=TURNS,
        bar=3,
    )
    yield compare(
        "a delta from model to consumer",
        Work(_stream, _with_history(10)),
        Work(lambda _: asyncio.run(_hops())),
        floor_name="asyncio.Queue from task to task",
        count=DELTAS,
        bar=5,
    )
    yield _crowd()
    with tempfile.TemporaryDirectory() as folder:
        yield from _stored(Path(folder))


def _crowd() -> Result:
    """Memory of turns that stream at once, each in the middle of its answer."""
    sessions = [_ready(Session(), 2 * HALF_WAY) for _ in range(CONCURRENT_TURNS)]
    for session in sessions:
        session.add_message("user", _QUESTION)
    took = asyncio.run(_memory_of(sessions))
    return Result(
        f"memory of a streaming turn, {CONCURRENT_TURNS} at once",
        took / CONCURRENT_TURNS / 1e3,
        200,
        "allowed",
        "KB",
        1,
    )


async def _memory_of(sessions: list[Session]) -> int:
    """The most bytes they take, with all of them half-way at one moment; all must finish."""
    gate, waiting = asyncio.Event(), 0

    async def watch(session: Session) -> None:
        nonlocal waiting
        conversation = session.conversation("main", model="instant")
        seen = 0
        async with conversation.stream(None, StreamingOptions(coalesce_tokens=False)) as pieces:
            async for _ in pieces:
                seen += 1
                if seen == HALF_WAY:
                    waiting += 1
                    await gate.wait()
            assert pieces.result.success

    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        watching = [asyncio.create_task(watch(session)) for session in sessions]
        while waiting < len(sessions):
            await asyncio.sleep(0.01)
        gate.set()
        await asyncio.gather(*watching)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def _with_history(size: int) -> Callable[[], Session]:
    def prepare() -> Session:
        session = _ready(Session())
        for _ in range(size // 2):
            session.add_message("user", _QUESTION)
            session.add_message("assistant", _ANSWER)
        _talk(session, 1)  # reading a history for the first time costs more
        return session

    return prepare


def _ready(session: Session, deltas: int = DELTAS) -> Session:
    session.services.register(Instant(deltas))
    session.services.register(look_up)
    session.default_branch.grant(resources="*")
    return session


def _talk(session: Session, turns: int = TURNS) -> None:
    conversation = session.conversation("main", model="instant", tools=["look_up"])

    async def talk() -> None:
        for _ in range(turns):
            await session.aadd_message("user", _QUESTION)
            (await conversation.run_to_stable_result()).raise_for_error()

    asyncio.run(talk())


def _stream(session: Session) -> None:
    async def watch() -> None:
        await session.aadd_message("user", _QUESTION)
        conversation = session.conversation("main", model="instant")
        options = StreamingOptions(coalesce_tokens=False)
        async with conversation.stream(SessionOptions(), options) as pieces:
            seen = [piece async for piece in pieces]
        assert len(seen) == DELTAS + 2

    asyncio.run(watch())


async def _hops() -> None:
    """The same number of things from one task to another, one at a time."""
    there: asyncio.Queue[Any] = asyncio.Queue(1)

    async def put() -> None:
        for number in range(DELTAS):
            await there.put(number)

    putting = asyncio.create_task(put())
    for _ in range(DELTAS):
        await there.get()
    await putting


def _stored(folder: Path) -> Iterator[Result]:
    def at(turns: int) -> Callable[[], Session]:
        path = folder / f"{turns}.db"
        _talk(_ready(sennit.open(path).session("bench")), turns)
        return lambda: _ready(sennit.open(path).session("bench"))

    yield compare(
        "turn 200 with a tool call, on SQLite",
        Work(_talk, at(200)),
        Work(_talk, at(10)),
        floor_name="turn 10",
        count=TURNS,
        bar=1.5,
        rounds=3,
    )
    path = folder / "weighed.db"
    _talk(_ready(sennit.open(path).session("bench")), 200)
    said = 200 * len(_QUESTION + _ANSWER + _TOOL_RESULT + '{"knot": "bowline"}')
    yield Result("bytes of 200 tool turns", size_of(path), said, "their text", unit="B", bar=4)
