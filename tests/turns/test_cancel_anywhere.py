"""Cancelling one of two runs on a branch at every point at which anything waits.

Whoever cancels sees CancelledError and nothing else, so timeouts and task groups work; and nothing
is left behind: no lease, no task, no half of what was said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from itertools import product
from typing import Any

import pytest

import sennit
from sennit import Client
from sennit.sessions.run_repository import RunRepository
from sennit.testing import ScriptedModel, ToolCall
from sennit.turns.conversation import ConversationSession
from sennit.turns.result import Return
from tests.conversation_fixtures import add, in_short

pytest_plugins = ("tests.durable",)
Step = Callable[[], object]


class Stepped(Coroutine[Any, Any, Any]):
    """A coroutine that tells of each time it waits."""

    def __init__(self, work: Coroutine[Any, Any, Any], waits: Step) -> None:
        self._work, self._waits = work, waits

    def send(self, value: Any) -> Any:
        given = self._work.send(value)
        self._waits()
        return given

    def throw(self, *error: Any) -> Any:
        given = self._work.throw(*error)
        self._waits()
        return given

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._work.__await__()


class Point:
    """Does something when anything has waited for the nth time."""

    def __init__(self, number: int) -> None:
        self.number, self.seen = number, 0
        self.act: Step | None = None

    def task(self, loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
        return asyncio.Task(Stepped(work, self._waited), loop=loop, **more)

    def _waited(self) -> None:
        if self.act is None:
            return
        self.seen += 1
        if self.seen == self.number:
            asyncio.get_running_loop().call_soon(self.act)


class Stop(Exception):
    """Ends a task group."""


async def by_cancel(work: Coroutine[Any, Any, Return], point: Point) -> Return | None:
    task = asyncio.create_task(work)
    point.act = task.cancel
    try:
        return await task
    except asyncio.CancelledError:
        return None


async def by_three_cancels(work: Coroutine[Any, Any, Return], point: Point) -> Return | None:
    task = asyncio.create_task(work)

    def again(times: int) -> None:
        task.cancel()
        if times > 1:
            asyncio.get_running_loop().call_soon(again, times - 1)

    point.act = lambda: again(3)
    try:
        return await task
    except asyncio.CancelledError:
        return None


async def by_timeout(work: Coroutine[Any, Any, Return], point: Point) -> Return | None:
    try:
        async with asyncio.timeout(None) as limit:
            point.act = lambda: limit.reschedule(0)
            return await work
    except TimeoutError:
        return None
    finally:
        point.act = None


async def by_group(work: Coroutine[Any, Any, Return], point: Point) -> Return | None:
    stop = asyncio.Event()

    async def end() -> None:
        await stop.wait()
        raise Stop

    try:
        async with asyncio.TaskGroup() as group:
            ran = group.create_task(work)
            ending = group.create_task(end())
            point.act = stop.set
            result = await ran
            point.act = None
            ending.cancel()
        return result
    except* Stop:
        pass
    return None


WAYS = {
    "cancel": by_cancel,
    "three cancels": by_three_cancels,
    "timeout": by_timeout,
    "task group": by_group,
}


def conversation(client: Client) -> ConversationSession:
    """One that calls a tool on the way."""

    def reply(request: Any) -> Any:
        said = [one for one in request.messages if one["role"] in ("user", "tool")]
        return "Done." if said[-1]["role"] == "tool" else [ToolCall("add", {"a": 1, "b": 2})]

    session = client.session("chat")
    return session.conversation("main", model=ScriptedModel([reply] * 400), tools=[add])


async def _after_a_while(work: Coroutine[Any, Any, Return]) -> Return:
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return await work


async def attempt(
    chats: list[ConversationSession], way: str, point: Point, number: int
) -> tuple[Return | None, Return]:
    """Two runs on one branch, of which the first is cancelled at a point."""
    asyncio.get_running_loop().set_task_factory(point.task)
    saying = chats[1].asay(f"other {number}")
    other = asyncio.create_task(_after_a_while(saying) if number % 3 == 1 else saying)
    if number % 3 == 2:  # then the branch is not as the other one knows it
        await other
    mine = await WAYS[way](chats[0].asay(f"mine {number}"), point)
    point.act = None
    theirs = await other
    await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert [one for one in left if "Mailbox" not in repr(one)] == [], f"point {number}"
    return mine, theirs


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("way", "programs"),
    [
        ("three cancels", 2),
        ("task group", 1),
        *(
            pytest.param(way, programs, marks=pytest.mark.slow)
            for way, programs in product(WAYS, (1, 2))
            if (way, programs) not in (("three cancels", 2), ("task group", 1))
        ),
    ],
)
def test_a_cancelled_run_ends_as_cancelled_and_leaves_nothing_behind(
    address: str, way: str, programs: int
) -> None:
    with (
        sennit.open(address) as client,
        sennit.open(address) as second,
        sennit.open(address) as third,
    ):
        first = conversation(client)
        assert asyncio.run(first.asay("Begin.")).success
        chats = [first, conversation(client if programs == 1 else second)]
        branch = first.request.branch
        reached = 0
        for number in range(120):
            if number % 3 == 0 and number // 3 > reached + 1:
                break  # nothing waits as often as that
            point = Point(number // 3)
            mine, theirs = asyncio.run(attempt(chats, way, point, number))
            reasons = {theirs.stop_reason} | ({mine.stop_reason} if mine else set())
            assert reasons <= {"stable", "invalid"}, (number, mine, theirs)
            runs = RunRepository(third.session("chat").get_branch("main"))
            runs.release(runs.acquire(f"elsewhere/1/{number}", 60_000_000))
            reached = max(reached, point.seen)
        assert reached > 10
        assert asyncio.run(first.asay("End.")).success
        said = [in_short(one) for one in branch.messages]
        assert len(set(said)) < len(said)
        assert said[-4] == "user End."
