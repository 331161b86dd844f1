"""Rate limits: never exceeded, first come first served, and nothing is lost on the way."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sennit import ModelError, ValidationError, clock
from sennit.services.models.limits import RateLimit
from sennit.services.models.protocol import Model
from sennit.services.models.reply import Reply, ReplyText, Usage
from sennit.testing import ScriptedModel, run_instantly
from tests.models import Patient, answered, only, request

WAYS = pytest.mark.parametrize("way", ["ask", "stream"])


class Entry(NamedTuple):
    """A request: how many tokens it took, and when it could start."""

    tokens: int
    start: float


async def entries(limit: RateLimit, arrivals: list[float], tokens: list[int]) -> list[Entry]:
    """The requests that came at the given times, in the order of arrival; each ends at once."""
    came: list[asyncio.Future[Entry]] = []

    async def one(arrival: float, amount: int) -> None:
        await asyncio.sleep(arrival)
        mine: asyncio.Future[Entry] = asyncio.Future()
        came.append(mine)  # sleepers with the same time wake in any order
        async with limit.place(amount):
            mine.set_result(Entry(amount, clock.monotonic()))

    await asyncio.gather(*(one(*each) for each in zip(arrivals, tokens, strict=True)))
    return [await entry for entry in came]


def starts(limit: RateLimit, arrivals: list[float], tokens: list[int]) -> list[float]:
    return [entry.start for entry in run_instantly(entries(limit, arrivals, tokens))]


_ARRIVALS = st.lists(st.floats(0, 200), max_size=25).map(sorted)


@given(_ARRIVALS, st.integers(1, 5))
def test_no_minute_has_more_requests_than_allowed(arrivals: list[float], most: int) -> None:
    limit = RateLimit(requests_per_minute=most)
    times = starts(limit, arrivals, [0] * len(arrivals))
    assert times == sorted(times)
    for first, later in zip(times, times[most:], strict=False):
        assert later - first >= 60 - 1e-6


@given(_ARRIVALS, st.integers(10, 100), st.data())
def test_no_minute_has_more_tokens_than_allowed(
    arrivals: list[float], most: int, data: st.DataObject
) -> None:
    size = len(arrivals)
    amounts = data.draw(st.lists(st.integers(0, most), min_size=size, max_size=size))
    made = run_instantly(entries(RateLimit(tokens_per_minute=most), arrivals, amounts))
    assert [entry.start for entry in made] == sorted(entry.start for entry in made)
    for last in made:
        minute = [entry for entry in made if last.start - 60 + 1e-6 < entry.start <= last.start]
        assert sum(entry.tokens for entry in minute) <= most


def test_nobody_waits_longer_than_needed() -> None:
    limit = RateLimit(requests_per_minute=2)
    assert starts(limit, [0, 10, 20, 20, 100], [0] * 5) == [0, 10, 60, 70, 120]


def test_a_request_larger_than_the_limit_goes_alone() -> None:
    limit = RateLimit(tokens_per_minute=100)
    assert starts(limit, [0, 1, 2], [60, 500, 10]) == [0, 60, 120]


@WAYS
def test_no_more_run_at_once_than_allowed_and_they_start_in_order(way: str) -> None:
    inside = Patient()
    model = only(inside, limits=RateLimit(concurrency=3))

    async def work() -> None:
        names = [str(number) for number in range(10)]
        await asyncio.gather(*(answered(model, way, request(name)) for name in names))
        assert inside.began == names
        assert clock.monotonic() == pytest.approx(4 * 3)

    run_instantly(work())
    assert inside.most_open == 3


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.integers(1, 3))
def test_cancelled_waiters_free_their_places(cancelled: list[bool], most: int) -> None:
    inside = Patient(steps=1)
    model = only(inside, limits=RateLimit(concurrency=most, requests_per_minute=1000))

    async def work() -> None:
        tasks = [
            asyncio.create_task(model.aask(request(str(number))))
            for number in range(len(cancelled))
        ]
        await asyncio.sleep(0.5)
        for task, stop in zip(tasks, cancelled, strict=True):
            if stop:
                task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        kept = [isinstance(one, Reply) for one in ended]
        assert kept == [not stop for stop in cancelled]
        began = [int(name) for name in inside.began]
        assert began == sorted(began)
        assert (await model.aask(request())).text == "so"

    run_instantly(work())
    assert inside.open == 0
    assert inside.most_open <= most


def test_the_next_one_moves_up_when_the_head_is_cancelled() -> None:
    limit = RateLimit(tokens_per_minute=100)

    async def one(tokens: int) -> float:
        async with limit.place(tokens):
            return clock.monotonic()

    async def work() -> float:
        await one(50)
        large = asyncio.create_task(one(100))
        small = asyncio.create_task(one(10))
        await asyncio.sleep(5)
        large.cancel()
        return await small

    assert run_instantly(work()) == 5


def test_real_usage_replaces_the_estimate() -> None:
    def reply(tokens: int) -> Reply:
        return Reply((ReplyText("x"),), usage=Usage(tokens, 0))

    def second_start(first: Reply) -> float:
        inside = ScriptedModel([first, reply(1)])
        model = only(inside, limits=RateLimit(tokens_per_minute=100))

        async def work() -> float:
            await model.aask(request("x" * 240))  # about 60 tokens
            await model.aask(request("x" * 240))
            return clock.monotonic()

        return run_instantly(work())

    assert second_start(reply(1)) == 0
    assert second_start(reply(90)) == 60
    assert second_start(reply(0)) == 60  # a provider that does not say


def test_what_an_answer_may_take_counts_beforehand() -> None:
    model = only(ScriptedModel([RuntimeError(), "there"]), limits=RateLimit(tokens_per_minute=100))

    async def work() -> float:
        with pytest.raises(RuntimeError):
            await model.aask(request(max_tokens=80))
        await model.aask(request(max_tokens=80))
        return clock.monotonic()

    assert run_instantly(work()) == 60


@WAYS
def test_a_failure_frees_its_place(way: str) -> None:
    model = only(ScriptedModel([RuntimeError("bug"), "fine"]), limits=RateLimit(concurrency=1))
    with pytest.raises(RuntimeError):
        run_instantly(answered(model, way))
    assert run_instantly(answered(model, way)).text == "fine"


def test_a_stream_holds_its_place_until_it_is_left() -> None:
    inside = Patient()
    model = only(inside, limits=RateLimit(concurrency=1))

    async def work() -> float:
        async with model.stream(request("first")) as deltas:
            second = asyncio.create_task(model.aask(request("second")))
            async for _ in deltas:
                break
            await asyncio.sleep(50)
            assert inside.began == ["first"]
        await second
        return clock.monotonic()

    assert run_instantly(work()) == 1 + 50 + 3


def test_one_limit_holds_for_several_models() -> None:
    limit = RateLimit(requests_per_minute=1)
    models = [only(ScriptedModel(["a"]), limits=limit), only(ScriptedModel(["b"]), limits=limit)]

    async def work() -> float:
        for model in models:
            await model.aask(request())
        return clock.monotonic()

    assert run_instantly(work()) == 60


def test_more_than_may_wait_are_turned_away() -> None:
    model = only(Patient(), limits=RateLimit(concurrency=1, waiting=2))

    async def kind() -> str:
        try:
            return (await model.aask(request())).text
        except ModelError as error:
            return error.kind

    async def work() -> list[str]:
        return list(await asyncio.gather(*(kind() for _ in range(5))))

    assert run_instantly(work()) == ["so", "so", "so", "busy", "busy"]


def test_one_limit_holds_across_threads_and_event_loops() -> None:
    lock = threading.Lock()
    running = most = done = 0

    async def step() -> None:
        nonlocal running, most, done
        with lock:
            running += 1
            most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        with lock:
            running -= 1
            done += 1

    model = only(
        Patient(step, steps=1), limits=RateLimit(concurrency=2, requests_per_minute=10_000)
    )

    async def many() -> None:
        await asyncio.gather(*(model.aask(request()) for _ in range(20)))

    threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == 120
    assert most <= 2


def test_a_waiter_whose_loop_is_gone_holds_nobody_up() -> None:
    inside = Patient(lambda: asyncio.sleep(0))
    model = only(inside, limits=RateLimit(concurrency=1))

    async def work() -> None:
        async with model.stream(request("holder")):
            loop = asyncio.new_event_loop()
            gone: Any = loop.create_task(model.aask(request("gone")))
            await asyncio.to_thread(loop.run_until_complete, asyncio.sleep(0))
            gone._log_destroy_pending = False
            loop.close()
            waiting = asyncio.create_task(model.aask(request("waiting")))
            await asyncio.sleep(0)
        await waiting

    asyncio.run(work())
    assert inside.began == ["holder", "waiting"]


def test_without_limits_nothing_waits() -> None:
    model: Model = only(ScriptedModel(["x"] * 50), limits=RateLimit())

    async def work() -> float:
        await asyncio.gather(*(model.aask(request()) for _ in range(50)))
        return clock.monotonic()

    assert run_instantly(work()) == 0


@pytest.mark.parametrize(
    "option", ["requests_per_minute", "tokens_per_minute", "concurrency", "waiting"]
)
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "3"])
def test_options_that_make_no_sense_are_refused(option: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=option):
        RateLimit(**{option: value})
