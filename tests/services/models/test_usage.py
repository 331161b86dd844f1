"""Usage: every answered call counts once, and those who keep books get a record."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime

import pytest

from sennit import ModelError, clock, iModel
from sennit.messages.output_schema import ModelSchema
from sennit.messages.typescript import ToolSchema
from sennit.services.models.reply import Reply, ReplyText, Usage
from sennit.services.models.request import ModelRequest
from sennit.services.models.usage import Meter, TokenEstimator, UsageRecord, estimate_tokens
from sennit.testing import ScriptedModel, run_instantly
from tests.models import Patient, answered, failure, only, request

WAYS = pytest.mark.parametrize("way", ["ask", "stream"])
_REPLY = Reply((ReplyText("x"),), "stop", Usage(3, 4, cost=0.5), "gpt-5-mini")


@WAYS
def test_usage_adds_up_over_calls(way: str) -> None:
    model = iModel(ScriptedModel([_REPLY, _REPLY]))
    for _ in range(2):
        asyncio.run(answered(model, way))
    assert model.usage == Usage(6, 8, cost=1.0)


@WAYS
def test_a_record_says_which_model_how_much_how_long_and_when(way: str) -> None:
    records: list[UsageRecord] = []
    model = iModel(
        ScriptedModel([failure(retry_after=5), _REPLY]),
        name="fast",
        meter=Meter(each=records.append),
    )
    with clock.wall_clock_from(lambda: 1_500_000_000):
        run_instantly(answered(model, way))
    at = datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)
    assert records == [UsageRecord("fast", "gpt-5-mini", Usage(3, 4, cost=0.5), 5, at)]


def test_one_meter_counts_several_models_together() -> None:
    meter = Meter()
    for _ in range(3):
        asyncio.run(iModel(ScriptedModel([_REPLY]), meter=meter).aask(request()))
    assert (meter.calls, meter.total) == (3, Usage(9, 12, cost=1.5))


def test_what_was_not_answered_to_the_end_does_not_count() -> None:
    meter = Meter()

    async def work() -> None:
        async with only(Patient(), meter=meter).stream(request()) as deltas:
            await anext(deltas)
        with pytest.raises(ModelError):
            await only(ScriptedModel([failure()]), meter=meter).aask(request())

    run_instantly(work())
    assert (meter.calls, meter.total) == (0, Usage())


def test_calls_count_even_if_a_hook_fails_afterwards() -> None:
    def after(*_: object) -> None:
        raise KeyError

    model = iModel(ScriptedModel([_REPLY]), after=after)
    with pytest.raises(KeyError):
        asyncio.run(model.aask(request()))
    assert model.usage == _REPLY.usage


def test_no_count_is_lost_between_threads() -> None:
    model = iModel(ScriptedModel([_REPLY] * 200))

    async def many() -> None:
        await asyncio.gather(*(model.aask(request()) for _ in range(25)))

    threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (model.usage.input_tokens, model.usage.output_tokens) == (600, 800)


def test_estimates_count_all_that_is_sent() -> None:
    plain = estimate_tokens(request("x" * 400))
    assert plain == pytest.approx(100, abs=10)
    tool = ToolSchema("find", "y" * 400, {"type": "object"})
    more = ModelRequest(
        messages=[{"role": "user", "content": [{"type": "text", "text": "x" * 400}], "n": None}],
        tools=(tool,),
        output=ModelSchema("Answer", {"description": "z" * 400, "minimum": 1}),
    )
    assert estimate_tokens(more) == pytest.approx(300, abs=40)


def test_an_estimator_says_the_same_whether_a_history_grew_shrank_or_changed() -> None:
    said = [{"role": "user", "content": "x" * size} for size in range(40)]
    estimator = TokenEstimator()
    for messages in (said[:10], said[:20], said[:20], said[:5], said[3:9], said, said[:1]):
        asked = ModelRequest(messages=messages)
        assert estimator.tokens(asked) == estimate_tokens(asked)
