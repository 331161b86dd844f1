"""Observers: every event in order, one end for every outcome, and no way to hurt the run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import ConflictError, ModelError, StoreError
from sennit.testing import ToolCall, faults
from sennit.turns import observers as room
from sennit.turns.observers import ConversationObserver
from sennit.turns.options import SessionOptions
from sennit.turns.result import Return
from tests.conversation_fixtures import Talk


class Recorder(ConversationObserver):
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.final: list[Return] = []

    def on_start(self, request: Any) -> None:
        self.calls.append("start")

    def on_delta(self, interaction: Any) -> None:
        self.calls.append("delta")

    def on_interaction_completed(self, interaction: Any) -> None:
        self.calls.append("said")

    async def on_tool_call(self, tool_call: Any) -> None:
        await asyncio.sleep(0)
        self.calls.append("call")

    def on_tool_result(self, tool_result: Any) -> None:
        self.calls.append("result")

    def on_error(self, error: Exception) -> None:
        self.calls.append(f"error {type(error).__name__}")

    def on_final(self, result: Return) -> None:
        self.calls.append("final")
        self.final.append(result)


def test_an_observer_sees_everything_in_order() -> None:
    watcher = Recorder()
    talk = Talk(["Hm.", ToolCall("add", {"a": 1, "b": 2})], "Three.")
    result = talk.stream(observers=[watcher])[-1]
    calls = ["start", "delta", "said", "call", "result", "delta", "said", "final"]
    assert watcher.calls == calls
    assert watcher.final == [result]


@pytest.mark.parametrize(
    ("replies", "options"),
    [
        (["Hello."], None),
        ([ModelError("down")], None),
        ([[ToolCall("add", {"a": 1, "b": 2})]], SessionOptions(max_turns=1)),
        ([[ToolCall("add", {"a": 1, "b": 2})]], SessionOptions(process_tools=False)),
    ],
)
def test_there_is_one_end_for_every_outcome(replies: Any, options: Any) -> None:
    watcher = Recorder()
    result = Talk(*replies).run(options, observers=[watcher])
    assert watcher.calls.count("final") == 1
    assert watcher.calls[-1] == "final"
    if result.stop_reason in ("error", "max_turns"):
        assert watcher.calls[-2].startswith("error")


def test_a_run_that_is_refused_still_has_its_end() -> None:
    watcher = Recorder()
    result = Talk(say=None).run(observers=[watcher])
    assert result.stop_reason == "invalid"
    assert watcher.calls[-1] == "final"


def test_an_observer_that_raises_becomes_a_warning() -> None:
    class Clumsy(ConversationObserver):
        def on_start(self, request: Any) -> None:
            raise RuntimeError("oops")

    watcher = Recorder()
    talk = Talk([ToolCall("add", {"a": 1, "b": 2})], "Three.")
    result = talk.run(observers=[Clumsy(), watcher])
    assert result.success
    assert [notice.code for notice in result.notices] == ["observer"]
    assert "Clumsy raised RuntimeError: oops" in result.notices[0].text
    assert watcher.calls[-1] == "final"


def test_an_observer_that_never_comes_back_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_FINISH_TIMEOUT_SECONDS", 0.01)

    class Stuck(ConversationObserver):
        async def on_start(self, request: Any) -> None:
            await asyncio.Event().wait()

    watcher = Recorder()
    assert Talk("Hello.").run(observers=[Stuck(), watcher]).success
    assert watcher.calls[-1] == "final"


def test_an_observer_may_cancel_the_run() -> None:
    talk = Talk("A long answer.", chunk=3, delay=0)
    conversation: Any = None

    class Enough(ConversationObserver):
        def on_delta(self, interaction: Any) -> None:
            conversation.cancel()

    conversation = talk.conversation(observers=[Enough()])

    async def work() -> Return:
        async with conversation.stream() as pieces:
            return [piece async for piece in pieces][-1]

    assert asyncio.run(work()).stop_reason in ("cancelled", "stable")


def test_an_observer_need_not_have_every_method() -> None:
    class Small:
        def __init__(self) -> None:
            self.seen = 0

        def on_final(self, result: Return) -> None:
            self.seen += 1

    small = Small()
    assert Talk("Hello.").run(observers=[small]).success
    assert small.seen == 1


class Failing(ConversationObserver):
    """Raises at everything."""

    def __init__(self, error: BaseException) -> None:
        self.error, self.seen = error, list[str]()

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("on_"):
            return super().__getattribute__(name)

        def fail(_: Any) -> None:
            self.seen.append(name)
            raise self.error

        return fail


@pytest.mark.parametrize("error", [RuntimeError("oops"), asyncio.CancelledError()])
def test_an_observer_that_raises_at_everything_sees_everything(error: BaseException) -> None:
    failing, watcher = Failing(error), Recorder()
    talk = Talk(["Hm.", ToolCall("add", {"a": 1, "b": 2})], "Three.")
    result = talk.stream(observers=[failing, watcher])[-1]
    assert result.success
    assert {notice.code for notice in result.notices} == {"observer"}
    calls = ["start", "delta", "said", "call", "result", "delta", "said", "final"]
    assert watcher.calls == calls
    assert len(failing.seen) == len(calls)
    assert failing.seen[-1] == "on_final"


def test_an_observer_that_waits_holds_up_neither_the_run_nor_the_others() -> None:
    release = asyncio.Event()

    class Slow(Recorder):
        async def on_start(self, request: Any) -> None:  # type: ignore[override]
            await release.wait()
            self.calls.append("start")

    class Last(Recorder):
        def on_final(self, result: Return) -> None:
            super().on_final(result)
            release.set()

    slow, last = Slow(), Last()
    assert Talk("Hello.").run(observers=[slow, last]).success
    assert slow.calls == last.calls == ["start", "said", "final"]


@pytest.mark.parametrize("at", ["start", "delta", "said", "call", "result"])
@pytest.mark.parametrize("mode", ["now", "after_turn"])
def test_an_observer_may_cancel_at_anything_it_sees(at: str, mode: Any) -> None:
    talk = Talk(["Hm. ", ToolCall("add", {"a": 1, "b": 2})], "A long answer.", "On.", chunk=2)
    conversation: Any = None

    class Enough(Recorder):
        def __getattribute__(self, name: str) -> Any:
            method = super().__getattribute__(name)
            if name != METHODS[at]:
                return method

            def cancel(given: Any) -> Any:
                conversation.cancel(mode)
                return method(given)

            return cancel

    watcher = Enough()
    conversation = talk.conversation(observers=[watcher])

    async def work() -> Return:
        async with conversation.stream() as pieces:
            return [piece async for piece in pieces][-1]

    assert asyncio.run(work()).stop_reason == "cancelled"
    assert watcher.calls[-1] == "final"
    assert watcher.calls.count("final") == 1
    talk.say("And now?")
    assert talk.run().success


METHODS = {
    "start": "on_start",
    "delta": "on_delta",
    "said": "on_interaction_completed",
    "call": "on_tool_call",
    "result": "on_tool_result",
}


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "not streaming"])
@pytest.mark.parametrize("error", [StoreError("Full."), ConflictError("Lost."), OSError("Broken.")])
@pytest.mark.parametrize(
    "written",
    [
        "run.started",
        "turn.started",
        "message.completed",
        "tool.called",
        "tool.completed",
        "run.ended",
    ],
)
def test_a_run_that_can_write_nothing_more_has_its_end_too(
    tmp_path: Path, written: str, error: Exception, streaming: bool
) -> None:
    watcher = Recorder()
    with sennit.open(tmp_path / "talk.db") as client:
        session = client.session("talk")
        talk = Talk(["Hm.", ToolCall("add", {"a": 1, "b": 2})], "Three.", session=session)
        with faults.arm(f"journal.before: {written}", faults.raising(error)):
            if streaming:
                shown = talk.stream(observers=[watcher])
                assert [one.is_final for one in shown] == [*[False] * (len(shown) - 1), True]
                result = shown[-1]
            else:
                result = talk.run(observers=[watcher])
    assert (result.stop_reason, result.error) == ("error", error)
    assert watcher.final == [result]
    assert watcher.calls[-2:] == [f"error {type(error).__name__}", "final"]
