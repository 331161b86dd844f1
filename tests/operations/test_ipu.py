"""IPU: which sessions' operations run, in what form, in what order."""

from __future__ import annotations

import asyncio
import gc
from functools import partial
from threading import Event
from typing import Any

import pytest
from pydantic import BaseModel

from sennit import IPU, NotFoundError, Operation, OutputError, Session, ValidationError
from sennit.operations import OperationContext
from sennit.testing import ScriptedModel
from tests.conducting import Answer, said, session_with
from tests.threads import in_threads


class Question(BaseModel):
    instruction: str
    temperature: float = 0


async def prepared(session: Session, ipu: IPU | None = None, **params: Any) -> Operation:
    params = {"operation": "communicate", "instruction": "Hi"} | params
    return await session.conduct(branch="main", ipu=ipu, **params)


def test_conduct_registers_its_session() -> None:
    session, ipu = session_with(ScriptedModel(["Hello"])), IPU()

    async def work() -> str:
        operation = await prepared(session, ipu)
        assert ipu.sessions == [session]
        assert ipu.get_session(session.id) is session
        return await ipu.execute(operation)

    assert asyncio.run(work()) == "Hello"


def test_operations_of_a_session_it_does_not_know_do_not_run() -> None:
    model = ScriptedModel(["Hello"])
    session, ipu = session_with(model), IPU()

    async def work() -> None:
        operation = await prepared(session)
        with pytest.raises(NotFoundError, match="register_session"):
            await ipu.execute(operation)
        ipu.register_session(session)
        assert await ipu.execute(operation) == "Hello"

    asyncio.run(work())
    model.assert_complete()


def test_a_session_can_be_taken_out_again() -> None:
    model = ScriptedModel([])
    session, ipu = session_with(model), IPU()

    async def work() -> None:
        operation = await prepared(session, ipu)
        ipu.unregister_session(session.id)
        with pytest.raises(NotFoundError):
            await operation.invoke()

    asyncio.run(work())
    with pytest.raises(NotFoundError):
        ipu.unregister_session(session)
    assert model.requests == []


def test_knowing_a_session_does_not_keep_it_alive() -> None:
    ipu = IPU()
    ipu.register_session(Session())
    gc.collect()
    assert ipu.sessions == []


def test_an_operation_conducted_without_an_ipu_runs_inside_the_one_that_executes_it() -> None:
    seen: list[str] = []
    session = session_with(ScriptedModel(["Hello"]))
    ipu, other = IPU(lambda operation: seen.append(operation.name)), IPU()
    ipu.register_session(session)
    other.register_session(session)

    async def work() -> None:
        operation = await prepared(session)
        await ipu.execute(operation)
        with pytest.raises(ValidationError, match="another IPU"):
            await other.execute(operation)

    asyncio.run(work())
    assert seen == ["communicate"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_validator_sees_each_operation_and_may_stop_it(is_async: bool) -> None:
    def decide(operation: Operation) -> None:
        if "secret" in operation.params["instruction"]:
            raise PermissionError("not that")

    async def decide_later(operation: Operation) -> None:
        await asyncio.sleep(0)
        decide(operation)

    model = ScriptedModel(["Hello"])
    session, ipu = session_with(model), IPU(decide_later if is_async else decide)

    async def work() -> None:
        assert await (await prepared(session, ipu)).invoke() == "Hello"
        with pytest.raises(PermissionError, match="not that"):
            await (await prepared(session, ipu, instruction="a secret")).invoke()

    asyncio.run(work())
    model.assert_complete()
    assert said(session) == ["Instruction: Hi", "Hello"]


@pytest.mark.parametrize(
    "form",
    [Question, {"type": "object", "properties": {"instruction": {"type": "string"}}}],
    ids=["class", "schema"],
)
def test_parameters_must_have_the_form_that_was_specified(form: Any) -> None:
    model = ScriptedModel(["Hello"])
    session, ipu = session_with(model), IPU()
    ipu.specify("communicate", input=form)

    async def work() -> None:
        assert await (await prepared(session, ipu)).invoke() == "Hello"
        with pytest.raises(ValidationError, match=r"parameters of 'communicate'.*instruction"):
            await (await prepared(session, ipu, instruction=5)).invoke()

    asyncio.run(work())
    model.assert_complete()


def test_results_must_have_the_form_that_was_specified() -> None:
    async def counting(where: OperationContext, *, gives: Any, instruction: str) -> Any:
        return gives

    session, ipu = session_with(), IPU()
    session.operations.register("count", counting)
    ipu.specify("count", output={"type": "integer", "title": "Count"})

    async def work() -> None:
        assert await (await prepared(session, ipu, operation="count", gives=3)).invoke() == 3
        with pytest.raises(OutputError, match="does not fit 'Count': the value: must be") as caught:
            await (await prepared(session, ipu, operation="count", gives="many")).invoke()
        assert caught.value.problems == ("the value: must be integer",)

    asyncio.run(work())


@pytest.mark.parametrize("form", [Answer, Answer.model_json_schema()], ids=["class", "schema"])
def test_a_model_instance_fits_its_class_and_its_schema(form: Any) -> None:
    session, ipu = session_with(ScriptedModel(['{"value": 1}'])), IPU()
    ipu.specify("communicate", output=form)

    async def work() -> Answer:
        return await (await prepared(session, ipu, response_model=Answer)).invoke()

    assert asyncio.run(work()) == Answer(value=1)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_what_queues_runs_in_order_and_so_many_at_a_time(concurrency: int) -> None:
    session, ipu = session_with(), IPU(concurrency=concurrency)
    began: list[int] = []
    open_now: list[int] = []
    most: list[int] = []

    async def step(where: OperationContext, *, number: int, instruction: str) -> int:
        began.append(number)
        open_now.append(number)
        most.append(len(open_now))
        for _ in range(5):
            await asyncio.sleep(0)
        open_now.remove(number)
        return number

    session.operations.register("step", step)

    async def work() -> list[int]:
        operations = [
            await prepared(session, ipu, operation="step", number=number) for number in range(9)
        ]
        return await asyncio.gather(*map(ipu.queue, operations))

    assert asyncio.run(work()) == began == list(range(9))
    assert max(most) == concurrency


@pytest.mark.parametrize("concurrency", [0, -1, True, 1.5, "2"])
def test_a_concurrency_that_makes_no_sense_is_refused(concurrency: Any) -> None:
    with pytest.raises(ValidationError, match="concurrency"):
        IPU(concurrency=concurrency)


def test_what_queues_in_several_threads_runs_one_at_a_time() -> None:
    session, ipu, begun, go_on = session_with(), IPU(), Event(), Event()
    steps: list[str] = []

    async def work(where: OperationContext, *, name: str) -> str:
        steps.append(f"{name} begins")
        begun.set()
        await asyncio.to_thread(go_on.wait, 10)
        steps.append(f"{name} ends")
        return name

    session.operations.register("work", work)

    async def operation(name: str) -> Operation:
        return await session.conduct(branch="main", operation="work", ipu=ipu, name=name)

    operations = [asyncio.run(operation(name)) for name in "abc"]
    queued = [partial(ipu.queue, one) for one in operations]
    assert sorted(in_threads(queued, begun, go_on)) == ["a", "b", "c"]
    assert [one.split()[0] for one in steps[::2]] == [one.split()[0] for one in steps[1::2]]


def test_a_failure_does_not_hold_up_the_queue() -> None:
    model = ScriptedModel([ValueError("odd"), "Hello"])
    session, ipu = session_with(model), IPU()

    async def work() -> list[Any]:
        operations = [await prepared(session, ipu) for _ in range(2)]
        return await asyncio.gather(*map(ipu.queue, operations), return_exceptions=True)

    first, second = asyncio.run(work())
    assert isinstance(first, ValueError)
    assert second == "Hello"
