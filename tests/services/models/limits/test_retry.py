"""Asking again: only what may pass, with patience that grows, and never saying a text twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sennit import ModelError, ValidationError, clock
from sennit.errors import ModelErrorKind
from sennit.services.models.limits import Retry
from sennit.services.models.protocol import Model
from sennit.services.models.reply import TextDelta
from sennit.testing import ScriptedModel, run_instantly
from tests.models import Patient, answered, failure, only, request

WAYS = pytest.mark.parametrize("way", ["ask", "stream"])
STEADY = Retry(attempts=4, base=1, cap=30, jitter=0)


async def timed(model: Model, way: str) -> tuple[str, float]:
    reply = await answered(model, way)
    return reply.text, clock.monotonic()


def test_it_is_a_model_like_the_one_inside() -> None:
    inside = ScriptedModel([], name="inner", window=7, streams=False, supports_output_schema=True)
    model = only(inside, retry=Retry())
    assert isinstance(model, Model)
    told = (model.name, model.window, model.streams, model.supports_output_schema)
    assert told == ("inner", 7, False, True)


@WAYS
@pytest.mark.parametrize("kind", ["rate_limit", "overloaded", "timeout", "network"])
def test_failures_that_may_pass_are_tried_again_after_growing_waits(
    way: str, kind: ModelErrorKind
) -> None:
    inside = ScriptedModel([failure(kind), failure(kind), failure(kind), "there"])
    assert run_instantly(timed(only(inside, retry=STEADY), way)) == ("there", 1 + 2 + 4)


@WAYS
@pytest.mark.parametrize(
    "kind", ["auth", "bad_request", "not_found", "context", "malformed", "busy", "failed"]
)
def test_failures_that_will_not_pass_are_raised_at_once(way: str, kind: ModelErrorKind) -> None:
    inside = ScriptedModel([failure(kind), "never"])
    with pytest.raises(ModelError, match=kind):
        run_instantly(timed(only(inside, retry=STEADY), way))
    assert len(inside.requests) == 1


@WAYS
def test_what_is_no_model_error_is_not_tried_again(way: str) -> None:
    inside = ScriptedModel([RuntimeError("bug"), "never"])
    with pytest.raises(RuntimeError, match="bug"):
        run_instantly(timed(only(inside, retry=STEADY), way))
    assert len(inside.requests) == 1


@WAYS
def test_the_last_failure_is_raised_and_says_how_often_it_was_tried(way: str) -> None:
    last = failure("network")
    inside = ScriptedModel([failure(), failure(), failure(), last])
    with pytest.raises(ModelError) as caught:
        run_instantly(timed(only(inside, retry=STEADY), way))
    assert caught.value is last
    assert caught.value.__notes__ == ["Asked 4 times before giving up."]


@WAYS
def test_the_wait_is_never_shorter_than_the_provider_asks(way: str) -> None:
    inside = ScriptedModel([failure("rate_limit", 20), failure("rate_limit", 0.1), "there"])
    assert run_instantly(timed(only(inside, retry=STEADY), way)) == ("there", 20 + 2)


@WAYS
def test_a_provider_that_asks_for_more_patience_than_we_have_is_given_up(way: str) -> None:
    inside = ScriptedModel([failure("rate_limit", 31), "never"])
    with pytest.raises(ModelError, match="rate_limit"):
        run_instantly(timed(only(inside, retry=STEADY), way))


@WAYS
def test_no_try_begins_after_the_total_time(way: str) -> None:
    inside = ScriptedModel([failure()] * 100)
    retry = Retry(attempts=100, base=1, cap=10, jitter=0, total=40)

    async def work() -> float:
        with pytest.raises(ModelError):
            await answered(only(inside, retry=retry), way)
        return clock.monotonic()

    assert run_instantly(work()) == 1 + 2 + 4 + 8 + 10 + 10
    assert len(inside.requests) == 7


@given(st.integers(1, 3000), st.floats(0, 100), st.floats(0, 1), st.floats(0, 50))
def test_waits_stay_between_their_bounds(
    failed: int, base: float, jitter: float, asked: float
) -> None:
    retry = Retry(attempts=failed + 1, base=base, cap=30, jitter=jitter)
    wait = retry.wait(failure("rate_limit", asked), failed, elapsed=0)
    if asked > 30:
        assert wait is None
    else:
        assert wait is not None
        assert max(asked, min(30, base) * (1 - jitter)) <= wait + 1e-9
        assert wait <= 30


_CHUNKS = st.lists(st.text(min_size=1, max_size=3), max_size=4)


@given(st.lists(_CHUNKS, min_size=1, max_size=4))
def test_a_stream_never_says_a_text_twice(tries: list[list[str]]) -> None:
    """Each try says some texts and fails; only the first that said something is heard."""
    inside = ScriptedModel([[*said, failure("network")] for said in tries])
    model = only(inside, retry=Retry(attempts=len(tries), jitter=0))
    heard: list[str] = []

    async def work() -> None:
        async with model.stream(request()) as deltas:
            async for delta in deltas:
                assert isinstance(delta, TextDelta)
                heard.append(delta.text)

    with pytest.raises(ModelError):
        run_instantly(work())
    assert heard == next((said for said in tries if said), [])


def test_a_stream_that_is_given_up_is_closed_before_the_next_is_opened() -> None:
    outcomes: list[Any] = [failure(), failure(), None, None, None]

    async def step() -> None:
        if error := outcomes.pop(0):
            raise error

    inside = Patient(step)
    assert run_instantly(timed(only(inside, retry=STEADY), "stream")) == ("so so so ", 3)
    assert (inside.open, inside.most_open, len(inside.began)) == (0, 1, 3)


def test_leaving_early_closes_the_stream_at_once() -> None:
    inside = Patient()

    async def work() -> None:
        async with only(inside, retry=Retry()).stream(request()) as deltas:
            async for _ in deltas:
                break
        assert inside.open == 0

    run_instantly(work())


@WAYS
def test_a_cancelled_wait_asks_no_more(way: str) -> None:
    inside = ScriptedModel([failure(), "never"])

    async def work() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await answered(only(inside, retry=STEADY), way)

    run_instantly(work())
    assert len(inside.requests) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0},
        {"attempts": 1.5},
        {"base": -1},
        {"cap": float("nan")},
        {"jitter": 1.1},
        {"total": 0},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(options))):
        Retry(**options)
