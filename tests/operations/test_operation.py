"""An Operation runs once, whoever invokes it and however often."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from sennit import ModelError, Operation, Session
from sennit.containers import Element
from sennit.operations import OperationContext
from sennit.testing import ScriptedModel
from tests.conducting import said, session_with
from tests.models import failure
from tests.threads import in_threads


async def prepared(session: Session, operation: str = "communicate", **params: Any) -> Operation:
    return await session.conduct(branch="main", operation=operation, **params)


def test_invoking_twice_asks_the_model_once() -> None:
    model = ScriptedModel(["Hello"])
    session = session_with(model)

    async def work() -> None:
        operation = await prepared(session, instruction="Hi")
        assert await operation.invoke() == await operation.invoke() == "Hello"
        assert (operation.status, operation.result) == ("done", "Hello")

    asyncio.run(work())
    model.assert_complete()
    assert len(session.messages) == 2


def test_tasks_that_invoke_at_once_share_one_run() -> None:
    model = ScriptedModel(["Hello"], delay=0.001)
    session = session_with(model)

    async def work() -> list[str]:
        operation = await prepared(session, instruction="Hi")
        return await asyncio.gather(*(operation.invoke() for _ in range(5)))

    assert asyncio.run(work()) == ["Hello"] * 5
    model.assert_complete()
    assert len(session.messages) == 2


def test_threads_that_invoke_at_once_share_one_run() -> None:
    session, begun, go_on = session_with(), Event(), Event()
    runs: list[int] = []

    async def work(where: OperationContext) -> str:
        runs.append(1)
        begun.set()
        await asyncio.to_thread(go_on.wait, 10)
        return "Hello"

    session.operations.register("work", work)
    operation = asyncio.run(prepared(session, "work"))
    assert in_threads([operation.invoke] * 3, begun, go_on) == ["Hello"] * 3
    assert runs == [1]


def test_a_failure_is_remembered() -> None:
    model = ScriptedModel([failure()])
    session = session_with(model)

    async def work() -> None:
        operation = await prepared(session, instruction="Hi")
        for _ in range(2):
            with pytest.raises(ModelError, match="overloaded"):
                await operation.invoke()
        assert operation.status == "failed"
        assert isinstance(operation.error, ModelError)

    asyncio.run(work())
    model.assert_complete()


def test_it_can_be_invoked_from_another_event_loop() -> None:
    session = session_with(ScriptedModel(["Hello"]))
    operation = asyncio.run(prepared(session, instruction="Hi"))
    assert [asyncio.run(operation.invoke()) for _ in range(2)] == ["Hello", "Hello"]


def test_a_cancelled_caller_leaves_it_pending_and_the_branch_untouched() -> None:
    asked = asyncio.Event()

    async def endless(request: Any) -> str:
        asked.set()
        await asyncio.Event().wait()
        return "never"

    model = ScriptedModel([endless, "Hello"])
    session = session_with(model)

    async def work() -> None:
        operation = await prepared(session, instruction="Hi")
        caller = asyncio.create_task(operation.invoke())
        await asked.wait()
        assert operation.status == "running"
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert operation.status == "pending"
        assert len(session.messages) == 0
        assert await operation.invoke() == "Hello"

    asyncio.run(work())
    assert said(session) == ["Instruction: Hi", "Hello"]


def test_when_the_one_who_runs_it_is_cancelled_the_next_one_does() -> None:
    asked = asyncio.Event()

    async def endless(request: Any) -> str:
        asked.set()
        await asyncio.Event().wait()
        return "never"

    session = session_with(ScriptedModel([endless, "Hello"]))

    async def work() -> str:
        operation = await prepared(session, instruction="Hi")
        first = asyncio.create_task(operation.invoke())
        await asked.wait()
        second = asyncio.create_task(operation.invoke())
        first.cancel()
        return await second

    assert asyncio.run(work()) == "Hello"


def test_a_cancel_that_comes_while_the_reply_is_being_stored_comes_too_late(
    tmp_path: Path,
) -> None:
    with Session(store=tmp_path / "a.db") as session:
        session.services.register(ScriptedModel(["Hello"]))
        session.create_branch("main", resources="*")
        storing = session.aadd_messages

        async def work() -> None:
            operation = await prepared(session, instruction="Hi")
            caller = asyncio.create_task(operation.invoke())

            async def cancelling(*args: Any, **given: Any) -> Any:
                caller.cancel()
                return await storing(*args, **given)

            session.aadd_messages = cancelling  # pyright: ignore
            assert await caller == "Hello"
            assert operation.status == "done"
            assert await operation.invoke() == "Hello"

        asyncio.run(work())
        session.refresh()
        assert said(session) == ["Instruction: Hi", "Hello"]


def test_it_is_an_element_and_says_what_it_is() -> None:
    operation = asyncio.run(prepared(session_with(ScriptedModel([])), instruction="Hi"))
    assert isinstance(operation, Element)
    assert repr(operation) == "Operation('communicate' on 'main', pending)"
    with pytest.raises(TypeError):
        operation.params["instruction"] = "Bye"  # pyright: ignore


def test_what_is_no_error_of_ours_is_remembered_as_well() -> None:
    calls: list[int] = []

    def broken(where: OperationContext) -> None:
        calls.append(1)
        raise ZeroDivisionError

    session = session_with()
    session.operations.register("broken", broken)

    async def work() -> None:
        operation = await prepared(session, "broken")
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await operation.invoke()

    asyncio.run(work())
    assert calls == [1]
