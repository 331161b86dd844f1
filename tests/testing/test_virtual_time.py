"""Time that jumps: nothing is waited for, and all happens in the order in which it would."""

from __future__ import annotations

import asyncio
import time

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sennit import clock
from sennit.testing import run_instantly


@given(st.lists(st.integers(0, 10_000), max_size=20))
def test_sleepers_wake_in_the_order_of_their_times(seconds: list[int]) -> None:
    woken: list[int] = []

    async def sleeper(wait: int) -> None:
        await asyncio.sleep(wait)
        woken.append(wait)
        assert clock.monotonic() >= wait

    async def work() -> None:
        await asyncio.gather(*(sleeper(wait) for wait in seconds))

    run_instantly(work())
    assert woken == sorted(seconds)


def test_timeouts_fire_without_waiting() -> None:
    async def work() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await asyncio.Event().wait()
        with anyio.move_on_after(3600):
            await anyio.sleep_forever()
        return clock.monotonic()

    assert run_instantly(work()) == pytest.approx(7200)


def test_the_clock_comes_back_afterwards() -> None:
    run_instantly(asyncio.sleep(1))
    assert abs(clock.monotonic() - time.monotonic()) < 60
