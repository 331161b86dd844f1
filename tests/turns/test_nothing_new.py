"""A model is never asked with nothing to answer, whoever asks and however that came about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import (
    InstructionContent,
    Message,
    Session,
    SpecialTurn,
    SystemContent,
    ValidationError,
)
from sennit.events import AnyEvent, RunEnded
from sennit.services.models.request import ModelRequest
from sennit.testing import ScriptedModel, ToolCall
from sennit.turns.conversation import ConversationSession
from sennit.turns.result import Return

pytest_plugins = ("tests.durable",)
ARCHIVED = "was archived by a commit, so there is nothing to answer; say something new first"


def committed(url: str | Path, *, system: bool = False) -> tuple[sennit.Client, Session, Any]:
    """A session in which all that was said is archived, and its model."""
    client = sennit.open(url)
    session = client.session("talk")
    model = ScriptedModel(["Hello."] * 9, name="scripted")
    session.services.register(model)
    message = Message(SystemContent(system_message="Be kind.")) if system else None
    session.create_branch("main", system=message, resources="*")
    session.add_message("user", "My name is Ada.")
    assert talk(session).run().success
    client.session("talk").commit()
    session.refresh()
    model.requests.clear()
    return client, session, model


def talk(session: Session, **more: Any) -> ConversationSession:
    return session.conversation("main", model="scripted", **more)


async def streamed(conversation: ConversationSession) -> Return:
    return [piece async for piece in conversation.stream()][-1]


async def watched(conversation: ConversationSession) -> Return:
    told: list[AnyEvent] = [event async for event in conversation.events()]
    assert isinstance(told[-1], RunEnded)
    return told[-1].result


WAYS: dict[str, Callable[[ConversationSession], Coroutine[Any, Any, Return]]] = {
    "run": ConversationSession.run_to_stable_result,
    "stream": streamed,
    "events": watched,
    "say nothing": lambda conversation: conversation.asay(()),
    "say an empty message": lambda conversation: conversation.asay(Message(InstructionContent())),
}


@pytest.mark.parametrize("system", [False, True], ids=["no system message", "a system message"])
@pytest.mark.parametrize("way", list(WAYS))
def test_after_a_commit_a_run_with_nothing_new_is_refused(
    address: str, way: str, system: bool
) -> None:
    client, session, model = committed(address, system=system)
    with client:
        result = asyncio.run(WAYS[way](talk(session)))
        assert result.stop_reason == "invalid"
        assert [one.code for one in result.notices] == ["empty"]
        assert ARCHIVED in result.notices[0].text
        assert model.requests == []
        assert asyncio.run(talk(session).asay("What is it?")).success
        assert [one["role"] for one in model.requests[0].messages if one["role"] != "system"] == [
            "user"
        ]


def test_a_commit_by_another_program_that_is_not_known_yet_is_no_empty_question(
    tmp_path: Path,
) -> None:
    path = tmp_path / "talk.db"
    with sennit.open(path) as here, sennit.open(path) as there:
        session = here.session("talk", resources="*")
        model = ScriptedModel(["Hello."] * 9, name="scripted")
        session.services.register(model)
        session.add_message("user", "My name is Ada.")
        assert talk(session).run().success
        there.session("talk").commit()
        model.requests.clear()
        result = talk(session).run()
        assert (result.stop_reason, [one.code for one in result.notices]) == ("invalid", ["empty"])
        assert model.requests == []


def test_what_was_taken_back_before_a_resume_is_no_empty_question(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "talk.db") as client:
        session = client.session("talk", resources="*")
        model = ScriptedModel([[ToolCall("stop", {}, "c1")], "Hello."], name="scripted")
        session.services.register(model)

        async def stop() -> None:
            """Stop."""
            conversation.suspend()
            await asyncio.Event().wait()

        session.add_message("user", "My name is Ada.")
        conversation = talk(session, tools=[stop])
        assert conversation.run().stop_reason == "suspended"
        session.default_branch.pop()
        session.default_branch.pop()
        model.requests.clear()
        result = asyncio.run(conversation.aresume())
        assert (result.stop_reason, [one.code for one in result.notices]) == ("invalid", ["empty"])
        assert model.requests == []


def test_a_special_turn_without_a_question_is_refused_after_a_commit(tmp_path: Path) -> None:
    client, session, model = committed(tmp_path / "talk.db")
    with client:
        result = asyncio.run(talk(session).execute_special_turn(SpecialTurn()))
        assert (result.stop_reason, [one.code for one in result.notices]) == ("invalid", ["empty"])
        assert model.requests == []
        asked = SpecialTurn(instruction="Say hello.")
        assert asyncio.run(talk(session).execute_special_turn(asked)).success


def test_generate_and_a_bare_request_refuse_to_ask_nothing(tmp_path: Path) -> None:
    client, session, model = committed(tmp_path / "talk.db", system=True)

    async def generate(**more: Any) -> Any:
        operation = await session.conduct(
            branch="main", operation="generate", imodel="scripted", **more
        )
        return await operation.invoke()

    with client:
        with pytest.raises(ValidationError, match=ARCHIVED):
            asyncio.run(generate())
        with pytest.raises(ValidationError, match="no messages"):
            asyncio.run(generate(messages=[InstructionContent()]))
        with pytest.raises(ValidationError, match=ARCHIVED):
            asyncio.run(talk(session).request.exec())
        assert model.requests == []


@pytest.mark.parametrize("text", ["", " ", "\n\t "])
def test_an_empty_message_is_refused_on_a_branch_with_history_and_not_stored(text: str) -> None:
    model = ScriptedModel(["Hello.", "A red pixel."], name="scripted")
    chat = sennit.conversation(model)
    assert chat.say("Hi.").success
    branch = chat.request.branch

    async def say_async() -> Return:
        return await chat.asay(text)

    results: list[Return[Any]] = [
        chat.say(text),
        asyncio.run(say_async()),
        chat.say([Message(InstructionContent(instruction=text))]),
        list(chat.stream(text))[-1],
    ]
    for result in results:
        assert (result.stop_reason, result.notices[0].code) == ("invalid", "empty")
        assert "is empty; say something" in result.notices[0].text
    assert len(branch) == 2
    picture = InstructionContent.create(instruction=text, images=["https://example.org/a.png"])
    assert chat.say(Message(picture)).text == "A red pixel."


def test_a_policy_that_leaves_no_message_is_an_error_and_asks_nobody() -> None:
    class Forgetful:
        def on_request(self, request: ModelRequest) -> ModelRequest:
            return replace(request, messages=[])

    session = Session()
    model = ScriptedModel(["Hello."], name="scripted")
    session.services.register(model)
    session.add_message("user", "Hi.")
    session.default_branch.grant(resources="*")
    result = talk(session, policies=[Forgetful()]).run()
    assert result.stop_reason == "error"
    assert "no messages" in result.notices[0].text
    assert model.requests == []


def test_a_system_message_alone_may_be_answered() -> None:
    session = Session()
    model = ScriptedModel(["Hello."], name="scripted")
    session.services.register(model)
    session.create_branch(
        "main", system=Message(SystemContent(system_message="Be kind.")), resources="*"
    )
    assert talk(session).run().success
