"""Timeouts: only waiting for the model counts, and what is given up is closed."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sennit import ModelError, ValidationError, clock
from sennit.services.models.limits import Timeout
from sennit.services.models.reply import Delta
from sennit.testing import ScriptedModel, run_instantly
from tests.models import Patient, answered, heard, only, request, streamed

WAYS = pytest.mark.parametrize("way", ["ask", "stream"])


@WAYS
def test_an_answer_that_takes_too_long_is_given_up(way: str) -> None:
    inside = Patient()

    async def work() -> float:
        with pytest.raises(ModelError, match=r"'patient' took longer than 2\.5 s") as caught:
            await answered(only(inside, timeout=Timeout(seconds=2.5)), way)
        assert caught.value.kind == "timeout"
        return clock.monotonic()

    assert run_instantly(work()) == 2.5
    assert inside.open == 0


@WAYS
def test_an_answer_in_time_is_passed_on(way: str) -> None:
    reply = run_instantly(answered(only(Patient(), timeout=Timeout(seconds=3.5, stall=1.5)), way))
    assert reply.finish == "stop"


@WAYS
def test_a_request_may_ask_for_another_time(way: str) -> None:
    with pytest.raises(ModelError, match=r"1\.5 s"):
        run_instantly(answered(only(Patient(), timeout=Timeout()), way, request(timeout=1.5)))
    long = answered(only(Patient(), timeout=Timeout(seconds=1)), way, request(timeout=60))
    assert run_instantly(long).finish == "stop"
    with pytest.raises(ValidationError, match="timeout must be more than 0 seconds"):
        run_instantly(answered(only(Patient(), timeout=Timeout()), way, request(timeout=-1)))


def test_a_stream_that_stalls_is_given_up() -> None:
    waits = [9, 1, 1, 9]
    inside = Patient(lambda: asyncio.sleep(waits.pop(0)), steps=4)
    seen: list[Delta] = []

    async def work() -> float:
        with pytest.raises(ModelError, match="sent nothing for 2 s"):
            await heard(only(inside, timeout=Timeout(stall=2)), seen)
        return clock.monotonic()

    assert run_instantly(work()) == 9 + 1 + 1 + 2  # the first may take its time
    assert len(seen) == 3
    assert inside.open == 0


def test_the_time_of_the_caller_does_not_count() -> None:
    model = only(Patient(), timeout=Timeout(seconds=4, stall=2))

    async def work() -> int:
        seen = 0
        async with model.stream(request()) as deltas:
            async for _ in deltas:
                seen += 1
                await asyncio.sleep(100)
        return seen

    assert run_instantly(work()) == 4


def test_entering_a_stream_counts() -> None:
    async def slow(_: object) -> str:
        await asyncio.sleep(10)
        return "late"

    with pytest.raises(ModelError, match="longer than 5 s"):
        run_instantly(streamed(only(ScriptedModel([slow]), timeout=Timeout(seconds=5))))


@given(st.lists(st.integers(0, 5), max_size=8), st.integers(1, 20), st.integers(1, 6))
def test_a_stream_fails_exactly_when_its_waits_are_too_long(
    waits: list[int], seconds: int, stall: int
) -> None:
    left = iter(waits)
    inside = Patient(lambda: asyncio.sleep(next(left)), steps=len(waits))
    model = only(inside, timeout=Timeout(seconds=seconds + 0.5, stall=stall + 0.5))

    async def work() -> bool:
        try:
            await streamed(model)
        except ModelError:
            return False
        return True

    fits = sum(waits) <= seconds and all(wait <= stall for wait in waits[1:])
    assert run_instantly(work()) is fits
    assert inside.open == 0


def test_deltas_may_be_awaited_in_other_tasks_and_cancelled() -> None:
    """As a reader does that coalesces: a task per delta, kept while it waits."""
    cleaned: list[str] = []

    async def step() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            await asyncio.sleep(1)  # cleaning up may wait, too
            cleaned.append("step")

    async def work() -> int:
        seen = 0
        async with only(Patient(step), timeout=Timeout(seconds=100)).stream(request()) as deltas:
            for _ in range(2):
                task = asyncio.ensure_future(anext(deltas))
                while not task.done():
                    await asyncio.wait({task}, timeout=0.3)
                seen += 1
            task = asyncio.ensure_future(anext(deltas))
            await asyncio.wait({task}, timeout=0.3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        return seen

    assert run_instantly(work()) == 2
    assert cleaned == ["step"] * 3


def test_a_timeout_while_the_model_cleans_up_slowly_still_gives_a_model_error() -> None:
    async def step() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            await asyncio.sleep(1)

    with pytest.raises(ModelError, match="longer than 2 s"):
        run_instantly(streamed(only(Patient(step), timeout=Timeout(seconds=2))))


@pytest.mark.parametrize(("theirs", "ends"), [(50, "longer than 5 s"), (2, "theirs")])
def test_timeouts_of_the_model_itself_keep_working(theirs: float, ends: str) -> None:
    async def step() -> None:
        with anyio.move_on_after(theirs):
            await anyio.sleep(10)
        raise ModelError("theirs")

    with pytest.raises(ModelError, match=ends):
        run_instantly(streamed(only(Patient(step), timeout=Timeout(seconds=5))))


@WAYS
def test_somebody_elses_timeout_is_left_alone(way: str) -> None:
    model = only(ScriptedModel([TimeoutError("theirs")]), timeout=Timeout(seconds=100))
    with pytest.raises(TimeoutError, match="theirs"):
        run_instantly(answered(model, way))

    async def outer() -> None:
        async with asyncio.timeout(1):
            await answered(only(Patient(), timeout=Timeout(seconds=100)), way)

    with pytest.raises(TimeoutError):
        run_instantly(outer())


@WAYS
def test_without_limits_it_waits_as_long_as_it_takes(way: str) -> None:
    model = only(Patient(lambda: asyncio.sleep(1e6)), timeout=Timeout(seconds=None))
    assert run_instantly(answered(model, way)).finish == "stop"


@pytest.mark.parametrize("options", [{"seconds": 0}, {"stall": -1}, {"stall": True}])
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(options))):
        Timeout(**options)
