"""A branch on which another run is under way: refuse, wait, or end that run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest

import sennit
from sennit import Session, SessionOptions, ValidationError
from sennit.services.models.request import ModelRequest
from sennit.testing import ScriptedModel, ToolCall
from sennit.turns.conversation import ConversationSession
from sennit.turns.observers import ConversationObserver
from sennit.turns.options import WhenBusy
from sennit.turns.request import Request
from sennit.turns.result import Return
from tests.conversation_fixtures import in_short
from tests.torture.fork_server import ForkServer, Job, Say

pytest_plugins = ("tests.durable",)
WAIT, INTERRUPT = SessionOptions(when_busy="wait"), SessionOptions(when_busy="interrupt")


class Gate:
    """A model whose first answer comes when it is let through."""

    def __init__(self) -> None:
        self.asked, self.open = asyncio.Event(), asyncio.Event()
        self.model = ScriptedModel([self._first, "Second.", "Third."], name="gate")

    async def _first(self, _: ModelRequest) -> str:
        self.asked.set()
        await self.open.wait()
        return "First."


@pytest.fixture(params=["no store", "SQLite", "PostgreSQL"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Session]:
    """A session without a store, and one on each."""
    if request.param == "no store":
        yield Session()
        return
    sqlite = request.param == "SQLite"
    url = str(tmp_path / "busy.db") if sqlite else request.getfixturevalue("emptied")
    with sennit.open(url) as client:
        yield client.session("busy")


def conversations(session: Session, model: Any, same: bool) -> list[ConversationSession]:
    first = session.conversation(model=model)
    return [first, first if same else session.conversation(model=model)]


@pytest.mark.parametrize("same", [True, False], ids=["one conversation", "two conversations"])
def test_a_run_waits_for_the_one_under_way(session: Session, same: bool) -> None:
    async def go() -> list[Return]:
        gate = Gate()
        first, second = conversations(session, gate.model, same)
        running = asyncio.create_task(first.asay("One?"))
        await gate.asked.wait()
        waiting = asyncio.create_task(second.asay("Two?", WAIT))
        refused = await second.asay("Three?")
        assert (refused.stop_reason, refused.notices[0].code) == ("invalid", "busy")
        gate.open.set()
        return [await running, await waiting]

    assert [one.answer for one in asyncio.run(go())] == ["First.", "Second."]
    said = [in_short(one) for one in session.default_branch.messages]
    assert said == ["user One?", "says First.", "user Two?", "says Second."]


@pytest.mark.parametrize("same", [True, False], ids=["one conversation", "two conversations"])
def test_a_run_ends_the_one_under_way(session: Session, same: bool) -> None:
    async def go() -> list[Return]:
        gate = Gate()
        first, second = conversations(session, gate.model, same)
        running = asyncio.create_task(first.asay("One?"))
        await gate.asked.wait()
        return [await second.asay("Two?", INTERRUPT), await running]

    assert [one.stop_reason for one in asyncio.run(go())] == ["stable", "cancelled"]
    said = [in_short(one) for one in session.default_branch.messages]
    assert said == ["user One?", "user Two?", "says Second."]


@pytest.mark.parametrize("same", [True, False], ids=["one conversation", "two conversations"])
def test_leaving_a_stream_that_waits_ends_neither_run_nor_starts_one(
    session: Session, same: bool
) -> None:
    async def go() -> Return:
        gate = Gate()
        first, second = conversations(session, gate.model, same)
        running = asyncio.create_task(first.asay("One?"))
        await gate.asked.wait()
        async with second.stream("Two?", WAIT):
            pass
        gate.open.set()
        return await running

    assert asyncio.run(go()).answer == "First."
    said = [in_short(one) for one in session.default_branch.messages]
    assert said == ["user One?", "says First."]


def answer_late(job: Job, say: Say) -> None:
    """In a child: tell that the model was asked, and have it answer when the other has ended."""

    def reply(_: ModelRequest) -> str:
        Path(job["asked"]).write_text("asked")
        Path(job["over"]).read_text()
        return "First."

    with sennit.open(job["store"]) as client:
        result = client.session("busy").conversation("main", model=ScriptedModel([reply])).run()
        say(str(result.stop_reason))


def answer_at_once(job: Job, say: Say) -> None:
    """In a child: run as soon as the other one has asked its model."""
    Path(job["asked"]).read_text()
    with sennit.open(job["store"]) as client:
        conversation = client.session("busy").conversation("main", model=ScriptedModel(["Second."]))
        result = asyncio.run(conversation.asay("Two?", INTERRUPT))
        say(str(result.stop_reason))
    Path(job["over"]).write_text("over")


def test_a_run_ends_the_one_of_another_process(
    address: str, fork_server: ForkServer, tmp_path: Path
) -> None:
    job = {"store": address, "asked": str(tmp_path / "asked"), "over": str(tmp_path / "over")}
    os.mkfifo(job["asked"])
    os.mkfifo(job["over"])
    with sennit.open(address) as client:
        client.session("busy").add_message("user", "One?")
    works = ["answer_late", "answer_at_once"]
    ends = fork_server.run_all([{**job, "do": f"turns.test_busy.{one}"} for one in works])
    assert ends == [(0, ["error"]), (0, ["stable"])]
    with sennit.open(address) as client:
        said = [in_short(one) for one in client.session("busy").default_branch.messages]
        assert said == ["user One?", "user Two?", "says Second."]
        assert client.doctor() == []


@pytest.mark.parametrize("odd", ["never", "", None, True])
def test_an_unknown_way_to_deal_with_a_busy_branch_is_refused(odd: WhenBusy) -> None:
    with pytest.raises(ValidationError, match="'error', 'wait' or 'interrupt'"):
        SessionOptions(when_busy=odd)


def test_the_notice_of_a_busy_branch_names_it_and_who_is_answering() -> None:
    async def go(same: bool) -> str:
        gate, session = Gate(), Session()
        first, second = conversations(session, gate.model, same)
        running = asyncio.create_task(first.asay("One?"))
        await gate.asked.wait()
        refused = await second.asay("Two?")
        gate.open.set()
        await running
        return refused.notices[0].text

    way_out = "Wait for that with SessionOptions(when_busy='wait'), or end it with"
    for same, who in ((True, "this conversation"), (False, "this program")):
        text = asyncio.run(go(same))
        assert text.startswith(f"Branch 'main' is busy: {who} is answering on it. {way_out}")


def test_runs_that_wait_on_several_event_loops_all_run(monkeypatch: pytest.MonkeyPatch) -> None:
    chat = sennit.conversation(model=ScriptedModel([f"{n}." for n in range(60)]))

    def ask(_: int) -> list[str | None]:
        return [asyncio.run(chat.asay("Next?", WAIT)).stop_reason for _ in range(10)]

    together = Barrier(6)
    check = Request.check

    def check_together(request: Request) -> None:  # all have waited, and none is active
        with suppress(BrokenBarrierError):
            together.wait(0.2)
        check(request)

    monkeypatch.setattr(Request, "check", check_together)
    with ThreadPoolExecutor(6) as threads:
        reasons = [reason for asked in threads.map(ask, range(6)) for reason in asked]
    assert reasons == ["stable"] * 60
    assert len(chat.request.branch) == 120


def test_a_stream_that_is_left_while_it_waits_is_cancelled() -> None:
    async def go() -> list[Return]:
        gate = Gate()
        chat = sennit.conversation(model=gate.model)
        first = asyncio.create_task(chat.asay("One?"))
        await gate.asked.wait()
        async with chat.stream("Two?", WAIT) as waiting:
            await asyncio.sleep(0)
        gate.open.set()
        return [await first, waiting.result]

    assert [result.stop_reason for result in asyncio.run(go())] == ["stable", "cancelled"]


def tool_script(answer: str) -> list[Any]:
    return [[ToolCall("ask")], answer]


@pytest.mark.parametrize("same", [True, False], ids=["one conversation", "two conversations"])
@pytest.mark.parametrize("blocking", [True, False], ids=["sync tool", "async tool"])
def test_a_tool_that_would_wait_for_its_own_run_is_refused_at_once(
    session: Session, same: bool, blocking: bool
) -> None:
    heard: list[Return] = []

    def ask() -> str:
        heard.append(inner().say("And you?", WAIT))
        return "done"

    async def ask_async() -> str:
        heard.append(await inner().asay("And you?", WAIT))
        return "done"

    ask_async.__name__ = "ask"
    model = ScriptedModel(tool_script("First."))
    chat = session.conversation(model=model, tools=[ask if blocking else ask_async])

    def inner() -> ConversationSession:
        return chat if same else session.conversation(model=ScriptedModel(["Never."]))

    assert chat.say("Hello?").answer == "First."
    notice = heard[0].notices[0]
    assert (heard[0].stop_reason, notice.code) == ("invalid", "busy")
    assert notice.text == (
        "Branch 'main' is busy with a run that waits for this code, so this code cannot wait for "
        "it. Use a fork of the branch, or steer() to send that run a message."
    )


def test_of_two_runs_whose_tools_wait_for_each_other_one_is_refused(session: Session) -> None:
    async def go() -> list[Return]:
        both_run = asyncio.Barrier(2)
        heard: list[Return] = []
        chats: list[ConversationSession] = []

        def tool_for(other: int) -> Any:
            async def ask() -> str:
                await both_run.wait()
                answer = await chats[other].asay("And you?", WAIT)
                heard.append(answer)
                return "done"

            return ask

        for n in range(2):
            branch = session.create_branch(f"b{n}")
            model = ScriptedModel([*tool_script("First."), "Second."])
            chats.append(session.conversation(branch, model=model, tools=[tool_for(1 - n)]))
        ends = await asyncio.gather(*(chat.asay("Hello?") for chat in chats))
        assert [end.answer for end in ends] == ["First.", "First."]
        return heard

    refused, answered = asyncio.run(go())
    assert (refused.stop_reason, refused.notices[0].code) == ("invalid", "busy")
    assert answered.answer == "Second."


def test_an_observer_can_start_a_run_that_waits_for_the_one_it_observes() -> None:
    class FollowUp(ConversationObserver):
        async def on_final(self, result: Return) -> None:
            if result.answer == "First.":
                answers.append((await chat.asay("Two?", WAIT)).answer)

    answers: list[str | None] = []
    model = ScriptedModel(["First.", "Second."])
    chat = sennit.conversation(model=model, observers=[FollowUp()])
    chat.say("One?")
    assert answers == ["Second."]
