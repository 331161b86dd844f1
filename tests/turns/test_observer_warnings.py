"""An observer that raises becomes a warning in the Return, whatever it was told and whenever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sennit import ConversationObserver, Session, Tool
from sennit.testing import ScriptedModel, ToolCall
from sennit.turns.conversation import ConversationSession
from sennit.turns.events import RunEnded, WarningIssued
from sennit.turns.result import Return

CALLBACKS = [
    "on_start",
    "on_delta",
    "on_interaction_completed",
    "on_tool_call",
    "on_tool_result",
    "on_error",
    "on_final",
]


def clumsy(callback: str, *, is_async: bool) -> ConversationObserver:
    """An observer that raises in one of its methods, the first time."""
    raised: list[str] = []

    def fail(given: Any) -> None:
        del given
        if not raised:
            raised.append(callback)
            raise LookupError(f"in {callback}")

    async def fail_later(given: Any) -> None:
        await asyncio.sleep(0)
        fail(given)

    return type(
        "Clumsy",
        (ConversationObserver,),
        {callback: staticmethod(fail_later if is_async else fail)},
    )()


class Slow(ScriptedModel):
    """A model that lets everyone else go first, many times, before each answer."""

    async def aask(self, request: Any) -> Any:
        for _ in range(50):
            await asyncio.sleep(0)
        return await super().aask(request)


async def run(conversation: ConversationSession) -> Return:
    return await conversation.run_to_stable_result()


async def stream(conversation: ConversationSession) -> Return:
    return [piece async for piece in conversation.stream()][-1]


async def events(conversation: ConversationSession) -> Return:
    told = [event async for event in conversation.events()]
    end = told[-1]
    assert isinstance(end, RunEnded)
    shown = [one.notice for one in told if isinstance(one, WarningIssued)]
    assert [one for one in end.result.notices if one in shown] == shown
    return end.result


async def resume(conversation: ConversationSession) -> Return:
    return await conversation.aresume()


async def resume_streaming(conversation: ConversationSession) -> Return:
    return [piece async for piece in conversation.stream(resume=True)][-1]


WAYS: dict[str, Callable[[ConversationSession], Coroutine[Any, Any, Return]]] = {
    "run": run,
    "stream": stream,
    "events": events,
    "resume": resume,
    "resume streaming": resume_streaming,
}


def length(knot: str) -> int:
    """How much rope a knot takes."""
    return len(knot)


@pytest.mark.parametrize("slow", [False, True], ids=["quick", "slow"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("callback", CALLBACKS)
def test_an_observer_that_raises_is_always_a_warning_in_the_return(
    callback: str, way: str, is_async: bool, slow: bool
) -> None:
    resumed = way.startswith("resume")
    call = ToolCall("length", {"knot": "bowline"}, "c1")
    again = ToolCall("length", {"knot": "sheet bend"}, "c2")
    script: list[Any] = [[call], [again], "Done."]
    if callback == "on_error":
        script = [[call], RuntimeError("gone")]
    session = Session()
    session.services.register((Slow if slow else ScriptedModel)(script, name="scripted", chunk=2))
    branch = session.create_branch("main", resources="*")
    session.add_message("user", "How much?", branches=branch)
    tools = [Tool(length, needs_approval=resumed)]

    async def told() -> Return:
        plain: ConversationSession = session.conversation(branch, model="scripted", tools=tools)
        if resumed:
            assert (await plain.run_to_stable_result()).stop_reason == "suspended"
            await plain.aapprove("c1", resume=False)
        observer = clumsy(callback, is_async=is_async)
        tools[0] = Tool(length)
        watched: ConversationSession = session.conversation(
            branch, model="scripted", tools=tools, observers=[observer]
        )
        return await WAYS[way](watched)

    result = asyncio.run(told())
    warnings = [one.text for one in result.notices if one.code == "observer"]
    if callback == "on_delta" and way in ("run", "resume"):
        assert warnings == []  # nothing is shown piece by piece
    else:
        assert warnings == [f"Clumsy raised LookupError: in {callback}"]
    assert result.stop_reason == ("error" if callback == "on_error" else "stable")


@pytest.mark.parametrize("callback", ["on_error", "on_final"])
def test_an_observer_of_a_refused_run_is_a_warning_too(callback: str) -> None:
    session = Session()
    session.services.register(ScriptedModel(["Never."], name="scripted"))
    branch = session.create_branch("main", resources="*")
    observers = [clumsy(callback, is_async=False)]
    result = session.conversation(branch, model="scripted", observers=observers).run()
    assert [one.code for one in result.notices] == ["empty", "observer"]


def test_what_an_observer_raises_at_the_end_of_a_cancelled_run_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = Session()
    branch = session.create_branch("main", resources="*")
    session.add_message("user", "Hi.", branches=branch)

    class Stuck(ScriptedModel):
        async def aask(self, request: Any) -> Any:
            await asyncio.Event().wait()

    conversation: ConversationSession = session.conversation(
        branch, model=Stuck([]), observers=[clumsy("on_final", is_async=False)]
    )

    async def cancelled() -> None:
        running = asyncio.create_task(conversation.run_to_stable_result())
        for _ in range(20):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancelled())
    assert "Clumsy raised LookupError: in on_final" in caplog.text
