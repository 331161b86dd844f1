"""Runs on a store: what happened is there for another client, also after a crash at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import Client, Session, Tool, process
from sennit.services.models.request import ModelRequest
from sennit.sessions.run_repository import RunRepository
from sennit.testing import ScriptedModel, ToolCall, faults
from sennit.turns.conversation import ConversationSession
from sennit.turns.events import AnyEvent
from sennit.turns.result import Return
from tests.conversation_fixtures import PLAIN, in_short, kinds, rest_of
from tests.torture.fork_server import ForkServer, Job, Say, Work

pytest_plugins = ("tests.durable",)

WHOLE = [
    "user Go.",
    "says I look.",
    "call look",
    "result seen",
    "says I book now.",
    "call book",
    "result booked",
    "says All is booked.",
]
INTERRUPTED = (
    "error Interrupted: the program ended while this ran; whether it took effect is unknown."
)


def reply(request: ModelRequest) -> Any:
    """What the model says depends on how many results it was shown, not on who asks."""
    done = sum(message["role"] == "tool" for message in request.messages)
    return (
        ["I look.", ToolCall("look", {}, "c1")],
        ["I book now.", ToolCall("book", {}, "c2")],
        "All is booked.",
    )[done]


class Talk:
    """A conversation in a file, with a tool that may be called again and one that may not."""

    def __init__(self, client: Client, folder: Path, delay: float) -> None:
        self.done = folder / "done.txt"

        def look() -> str:
            """Look around."""
            return "seen"

        def book() -> str:
            """Book a table."""
            with self.done.open("a") as file:
                file.write("booked\n")
            return "booked"

        self.session = client.session("chat", resources="*")
        model = ScriptedModel([reply] * 9, chunk=3, delay=delay)
        tools = [Tool(look, replay="safe"), Tool(book, replay="never")]
        self.session.services.register(model)
        for tool in tools:
            self.session.services.register(tool)
        self.conversation = self.session.conversation(
            self.session.default_branch, model=model, tools=tools
        )

    @property
    def said(self) -> list[str]:
        return [in_short(message) for message in self.session.default_branch.messages]

    @property
    def bookings(self) -> int:
        return len(self.done.read_text().splitlines()) if self.done.exists() else 0


@contextmanager
def talk(folder: Path, delay: float = 0) -> Generator[Talk]:
    """The conversation as a client sees it that has just come."""
    with sennit.open(folder / "sennit.db", user="ada", durability="normal") as client:
        yield Talk(client, folder, delay)


async def watched(conversation: ConversationSession) -> list[AnyEvent]:
    async with conversation.events(None, PLAIN) as events:
        return [event async for event in events]


def begin(folder: Path) -> list[AnyEvent]:
    """Start the conversation and run it to its end."""
    with talk(folder) as first:
        first.session.add_message("user", "Go.")
        return asyncio.run(watched(first.conversation))


def test_a_second_client_reads_the_same_events(tmp_path: Path) -> None:
    shown = begin(tmp_path)
    with talk(tmp_path) as second:
        assert second.said == WHOLE
        assert second.conversation.history() == shown
        assert second.conversation.history(after=5) == shown[5:]


def test_a_client_that_was_there_before_reads_them_too(tmp_path: Path) -> None:
    with talk(tmp_path) as early:
        shown = begin(tmp_path)
        assert early.conversation.history() == shown


def test_a_long_history_is_read_whole(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "sennit.db") as client:
        session = client.session("chat", resources="*")
        session.add_message("user", "Go.")
        model = ScriptedModel(["rope " * 300], chunk=1)
        session.services.register(model)
        conversation = session.conversation(session.default_branch, model=model)
        shown = asyncio.run(watched(conversation))
        assert len(shown) > 1500
        assert conversation.history() == shown


def test_erasing_a_message_erases_the_pieces_that_were_shown_of_it(tmp_path: Path) -> None:
    begin(tmp_path)
    with talk(tmp_path) as second:
        said = second.session.default_branch.messages[1]
        second.session.remove_message(said)
        history = second.conversation.history()
        assert said.id not in {event.about for event in history}
        assert kinds(history)[0] == "run.started"
    assert b"I look." not in (tmp_path / "sennit.db").read_bytes()


@pytest.mark.parametrize(
    ("point", "said"),
    [("text.delta", 2), ("tool.called", 3), ("tool.started", 3), ("tool.completed", 4)],
)
def test_a_run_that_dies_at_an_event_is_resumed_from_there(
    fork_server: ForkServer, tmp_path: Path, point: str, said: int
) -> None:
    dead(fork_server, die_after, tmp_path, kind=point)
    with talk(tmp_path) as second:
        assert (
            point in kinds_with_text(second.conversation)[-2:]
        )  # what follows at once is noted too
        assert len(second.said) == said - (point == "text.delta")
        assert asyncio.run(second.conversation.aresume()).success
        assert second.said == WHOLE
        assert second.bookings == 1


def kinds_with_text(conversation: ConversationSession) -> list[str]:
    return [event.kind for event in conversation.history()]


def dead(fork_server: ForkServer, die: Work, folder: Path, **more: str) -> None:
    """Have a child die of its work."""
    job = {"do": f"turns.test_durable.{die.__name__}", "folder": str(folder), **more}
    assert fork_server.run(job) == (-9, [])


def die_after(job: Job, _: Say) -> None:
    """Run until the first event of a kind was shown, and die there."""

    async def watch(conversation: ConversationSession) -> None:
        async with conversation.events(None, PLAIN) as events:
            async for event in events:
                if event.kind == job["kind"]:
                    faults.kill("")

    with talk(Path(job["folder"]), delay=0.05) as first:
        first.session.add_message("user", "Go.")
        asyncio.run(watch(first.conversation))


def die_in_book(job: Job, _: Say) -> None:
    """Run until the tool that may be called once has done its work, and die before it says so."""
    with talk(Path(job["folder"])) as first:
        first.session.add_message("user", "Go.")

        def book() -> str:
            """Book a table."""
            first.done.write_text("booked\n")
            faults.kill("")
            return "never said"

        tools = [first.conversation.request.tools["look"], Tool(book)]
        model = first.conversation.request.model
        asyncio.run(
            first.session.conversation(
                first.session.default_branch, model=model, tools=tools
            ).run_to_stable_result()
        )


def test_a_tool_that_took_effect_is_not_called_again(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    dead(fork_server, die_in_book, tmp_path)
    with talk(tmp_path) as second:
        assert second.said == WHOLE[:6]
        assert asyncio.run(second.conversation.aresume()).success
        assert second.said == [*WHOLE[:6], INTERRUPTED, WHOLE[7]]
        assert second.bookings == 1


def asking(client: Client, done: list[str]) -> tuple[Session, ConversationSession]:
    def delete(name: str) -> str:
        """Delete a file."""
        done.append(name)
        return "deleted"

    session = client.session("chat", resources="*")
    replies = [lambda request: (
        [ToolCall("delete", {"name": "a"}, "c1")], "Done."
    )[any(one["role"] == "tool" for one in request.messages)]] * 3  # fmt: skip
    model = ScriptedModel(replies)
    tool = Tool(delete, needs_approval=True)
    session.services.register(model)
    session.services.register(tool)
    return session, session.conversation(session.default_branch, model=model, tools=[tool])


@pytest.mark.parametrize("early", [False, True], ids=["comes later", "was there before"])
def test_a_second_client_approves_what_the_first_one_waits_for(tmp_path: Path, early: bool) -> None:
    path, done = tmp_path / "sennit.db", list[str]()
    with sennit.open(path) as first, sennit.open(path) as second:
        decider = asking(second, done) if early else None
        session, conversation = asking(first, [])
        session.add_message("user", "Go.")
        waiting = asyncio.run(conversation.run_to_stable_result())
        assert waiting.stop_reason == "suspended"
        there, deciding = decider or asking(second, done)
        result = asyncio.run(deciding.aapprove("c1"))
        assert result is not None
        assert (result.stop_reason, result.run_id) == ("stable", waiting.run_id)
        assert done == ["a"]
        said = ["user Go.", "call delete", "result deleted", "says Done."]
        assert [in_short(one) for one in there.default_branch.messages] == said
        session.refresh()
        assert [in_short(one) for one in session.default_branch.messages] == said
        assert asyncio.run(conversation.aresume()).notices[0].code == "nothing_to_resume"


def test_two_clients_do_not_run_on_one_branch(tmp_path: Path) -> None:
    with talk(tmp_path) as one, talk(tmp_path) as other:
        one.session.add_message("user", "Go.")
        other.session.refresh()

        async def both() -> tuple[Return, Return]:
            return await asyncio.gather(
                one.conversation.run_to_stable_result(), other.conversation.run_to_stable_result()
            )

        reasons = sorted(str(result.stop_reason) for result in asyncio.run(both()))
        assert reasons in (["invalid", "stable"], ["stable", "stable"])
        one.session.refresh()
        assert one.said[: len(WHOLE)] == WHOLE


def test_a_run_under_way_is_not_resumed_beside_itself(tmp_path: Path) -> None:
    with talk(tmp_path, delay=0.02) as one:
        one.session.add_message("user", "Go.")
        other = ConversationSession(one.conversation.request)

        async def both() -> tuple[Return, Return]:
            async with one.conversation.events(None, PLAIN) as events:
                await anext(events)
                return await other.aresume(), await rest_of(events)

        resumed, first = asyncio.run(both())
        assert (resumed.stop_reason, resumed.notices[0].code) == ("invalid", "busy")
        assert first.stop_reason == "stable"
        assert one.said == WHOLE


def test_what_a_killed_run_was_saying_stands_before_what_was_said_afterwards(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    dead(fork_server, die_after, tmp_path, kind="text.delta")
    with talk(tmp_path) as second:
        second.session.add_message("user", "Never mind.")
        events = asyncio.run(watched(second.conversation))
        assert second.said[:3] == ["user Go.", "says I l", "user Never mind."]
        assert second.said[3:] == WHOLE[1:]
        assert kinds(events)[:3] == ["run.started", "message.completed", "turn.started"]
        history = second.conversation.history()
        assert [event.seq for event in history] == list(range(1, len(history) + 1))
    with talk(tmp_path) as third:
        assert third.said == second.said


def die_holding(job: Job, _: Say) -> None:
    with faults.arm("journal.before: run.started", faults.kill):
        begin(Path(job["folder"]))


def test_a_branch_whose_holder_died_before_its_first_word_is_free_at_once(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    dead(fork_server, die_holding, tmp_path)
    with talk(tmp_path) as second:
        assert second.conversation.history() == []
        assert asyncio.run(second.conversation.run_to_stable_result()).success
        assert second.said == WHOLE


@pytest.mark.parametrize("part", [0, 1], ids=["another boot", "another PID namespace"])
def test_a_holder_elsewhere_is_not_called_dead_because_its_process_id_is_free_here(
    tmp_path: Path, part: int
) -> None:
    names = process.identity().split(".")
    names[part] = "1"
    names[2] = "999999999"
    with talk(tmp_path) as second:
        second.session.add_message("user", "Go.")
        runs = RunRepository(second.session.default_branch)
        runs.acquire(f"{'.'.join(names)}/a run", 30_000_000)
        result = asyncio.run(second.conversation.run_to_stable_result())
        assert not result.success
        assert "busy" in str(result.notices)


def test_joining_a_run_whose_program_has_died_comes_to_an_end(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    dead(fork_server, die_after, tmp_path, kind="text.delta")

    async def joined() -> list[AnyEvent]:
        async with second.conversation.events(after=0) as events:
            return [event async for event in events]

    with talk(tmp_path) as second:
        assert asyncio.run(joined()) == second.conversation.history()
