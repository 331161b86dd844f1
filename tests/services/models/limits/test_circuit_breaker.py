"""The breaker: a provider in trouble is left alone, and tried again by one call at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sennit import ModelError, ValidationError
from sennit.errors import ModelErrorKind
from sennit.services.models.limits import CircuitBreaker
from sennit.services.models.protocol import Model
from sennit.testing import ScriptedModel, run_instantly
from tests.models import Patient, answered, failure, only, request, streamed

WAYS = pytest.mark.parametrize("way", ["ask", "stream"])
BREAKER = CircuitBreaker(failures=2, seconds=30)


async def outcome(model: Model, way: str = "ask") -> str:
    try:
        return (await answered(model, way)).text
    except ModelError as error:
        return error.kind


async def outcomes(model: Model, count: int, way: str = "ask") -> list[str]:
    return [await outcome(model, way) for _ in range(count)]


@WAYS
@pytest.mark.parametrize("kind", ["overloaded", "timeout", "network", "malformed"])
def test_trouble_in_a_row_opens_it(way: str, kind: ModelErrorKind) -> None:
    inside = ScriptedModel([failure(kind), failure(kind), "never"], name="gpt")
    model = only(inside, breaker=BREAKER)

    async def work() -> None:
        assert await outcomes(model, 2, way) == [kind, kind]
        await asyncio.sleep(10)
        with pytest.raises(ModelError, match=r"'gpt' failed 2 times .* another 20\.0 s") as caught:
            await answered(model, way)
        assert caught.value.kind == "busy"
        assert caught.value.retry_after == pytest.approx(20)

    run_instantly(work())
    assert len(inside.requests) == 2


@WAYS
@pytest.mark.parametrize(
    "kind", ["auth", "bad_request", "not_found", "context", "rate_limit", "busy", "failed"]
)
def test_what_is_no_trouble_at_the_provider_does_not_open_it(
    way: str, kind: ModelErrorKind
) -> None:
    model = only(ScriptedModel([failure(kind)] * 5 + ["there"]), breaker=BREAKER)
    assert run_instantly(outcomes(model, 6, way)) == [kind] * 5 + ["there"]


@WAYS
def test_an_answer_in_between_starts_the_count_again(way: str) -> None:
    model = only(ScriptedModel([failure(), "a", failure(), "b", failure(), "c"]), breaker=BREAKER)
    assert run_instantly(outcomes(model, 6, way))[1::2] == ["a", "b", "c"]


@WAYS
def test_after_the_rest_one_answer_closes_it(way: str) -> None:
    inside = ScriptedModel([failure(), failure(), "back", failure(), "still"])
    model = only(inside, breaker=BREAKER)

    async def work() -> list[str]:
        await outcomes(model, 2, way)
        await asyncio.sleep(30)
        return await outcomes(model, 3, way)

    assert run_instantly(work()) == ["back", "overloaded", "still"]


@WAYS
def test_after_the_rest_one_failure_opens_it_again(way: str) -> None:
    inside = ScriptedModel([failure(), failure(), failure("network")])
    model = only(inside, breaker=BREAKER)

    async def work() -> list[str]:
        await outcomes(model, 2, way)
        await asyncio.sleep(30)
        return await outcomes(model, 2, way)

    assert run_instantly(work()) == ["network", "busy"]


@WAYS
def test_only_one_call_finds_out_whether_it_is_back(way: str) -> None:
    trouble = [True, True]

    async def step() -> None:
        if trouble:
            trouble.pop()
            raise failure()
        await asyncio.sleep(1)

    inside = Patient(step)
    model = only(inside, breaker=BREAKER)

    async def work() -> list[str]:
        await outcomes(model, 2, way)
        await asyncio.sleep(30)
        return list(await asyncio.gather(*(outcome(model, way) for _ in range(5))))

    said = run_instantly(work())
    assert said.count("busy") == 4
    assert inside.most_open == 1


def test_a_trial_that_is_cancelled_lets_another_call_try() -> None:
    model = only(ScriptedModel([failure(), failure(), "late", "there"], delay=5), breaker=BREAKER)

    async def work() -> str:
        await outcomes(model, 2)
        await asyncio.sleep(30)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await model.aask(request())
        return await outcome(model)

    assert run_instantly(work()) == "there"


def test_a_call_from_before_it_opened_is_old_news() -> None:
    async def slow(_: object) -> str:
        await asyncio.sleep(10)
        return "at last"

    model = only(ScriptedModel([slow, failure(), failure()]), breaker=BREAKER)

    async def work() -> list[str]:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(outcome(model))
            await asyncio.sleep(0)
            await outcomes(model, 2)
        return [first.result(), await outcome(model)]

    assert run_instantly(work()) == ["at last", "busy"]


def test_trouble_in_the_middle_of_a_stream_counts_even_if_the_caller_handles_it() -> None:
    model = only(
        ScriptedModel([["half", failure()], ["half", failure()], "never"]), breaker=BREAKER
    )

    async def handled() -> None:
        async with model.stream(request()) as deltas:
            with pytest.raises(ModelError):
                async for _ in deltas:
                    pass

    async def work() -> str:
        await handled()
        await handled()
        return await outcome(model)

    assert run_instantly(work()) == "busy"


def test_the_errors_of_the_caller_do_not_count() -> None:
    model = only(ScriptedModel(["a", "b", "c"]), breaker=BREAKER)

    async def failing() -> None:
        async with model.stream(request()):
            raise failure()

    async def work() -> str:
        for _ in range(2):
            with pytest.raises(ModelError):
                await failing()
        return (await streamed(model)).text

    assert run_instantly(work()) == "c"


def test_each_model_has_a_breaker_of_its_own() -> None:
    broken, sound = only(ScriptedModel([failure()] * 2), breaker=BREAKER), ScriptedModel(["fine"])
    run_instantly(outcomes(broken, 3))
    assert run_instantly(outcome(only(sound, breaker=BREAKER))) == "fine"


@pytest.mark.parametrize("options", [{"failures": 0}, {"seconds": 0}, {"seconds": "30"}])
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(options))):
        CircuitBreaker(**options)
