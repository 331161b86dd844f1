"""An answer as a typed value: `output=` of say, run, stream and resume."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, assert_type

import pytest
from pydantic import BaseModel

import sennit
from sennit import (
    AccessError,
    InvalidTypeError,
    ModelError,
    OutputError,
    Return,
    RunError,
    Session,
    SessionOptions,
    Tool,
    UsageError,
)
from sennit.testing import ScriptedModel, ToolCall
from sennit.turns.conversation import ConversationSession


class City(BaseModel):
    name: str
    size: int


GHENT = '{"name": "Ghent", "size": 3}'


def talk(
    *replies: Any, tools: Any = (), **options: Any
) -> tuple[ConversationSession, ScriptedModel]:
    model = ScriptedModel(replies, name="sage", **options)
    return sennit.conversation(model=model, tools=tools), model


def said(conversation: ConversationSession) -> list[str]:
    return [message.content.words for message in conversation.request.branch.messages]


def test_the_output_of_an_answer_is_an_instance_of_the_class() -> None:
    conversation, model = talk(f"Here it is: {GHENT}")
    result = conversation.say("Where?", output=City)
    assert_type(result, Return[City])
    assert result.output == City(name="Ghent", size=3)
    assert "interface City" in str(model.requests[0].messages[-1])


def test_the_async_twins_and_the_stream_give_the_same_output() -> None:
    conversation, _ = talk(GHENT, GHENT, GHENT, GHENT)
    stream = conversation.stream("Where?", output=City)
    pieces = list(stream)
    assert "".join(map(str, pieces)) == GHENT
    assert pieces[-1].output == stream.result.output == City(name="Ghent", size=3)
    with pytest.raises(UsageError, match="final"):
        _ = pieces[0].output

    async def ask() -> list[City]:
        first = await conversation.asay("Where?", output=City)
        conversation.request.session.add_message("user", "And now?")
        second = await conversation.arun(output=City)
        async with conversation.stream("Where?", output=City) as again:
            async for _ in again:
                pass
        return [first.output, second.output, again.result.output]

    assert asyncio.run(ask()) == [City(name="Ghent", size=3)] * 3


def test_without_a_class_the_output_is_none() -> None:
    conversation, _ = talk("Hi.")
    result = conversation.say("Hi")
    assert_type(result, Return[None])
    assert result.output is None


def test_an_answer_that_does_not_fit_is_sent_back_with_its_problems() -> None:
    conversation, model = talk('{"name": "Ghent"}', GHENT)
    assert conversation.say("Where?", output=City).output.size == 3
    assert "size: Field required" in str(model.requests[1].messages[-1])


def test_an_answer_that_never_fits_ends_in_an_error() -> None:
    conversation, model = talk("Ghent.", "Ghent!", "Ghent?")
    result = conversation.say("Where?", SessionOptions(repairs=1), output=City)
    assert (result.stop_reason, result.notices[-1].code) == ("error", "output")
    assert len(model.requests) == 2
    with pytest.raises(OutputError, match="no complete JSON value"):
        _ = result.output
    with pytest.raises(RunError):
        result.raise_for_error()
    assert conversation.history()[-1].kind == "run.ended"


def test_an_answer_that_repeats_the_example_of_the_prompt_is_refused() -> None:
    echo = 'You said: Example structure: {"name": "...", "size": 0}. Return ONLY valid JSON'
    conversation, model = talk(echo, GHENT)
    assert conversation.say("Where?", output=City).output.name == "Ghent"
    assert "repeats the example" in str(model.requests[1].messages[-1])


def test_a_failed_run_has_no_output_and_says_why() -> None:
    conversation, _ = talk(ModelError("no key", kind="auth"))
    result = conversation.say("Where?", output=City)
    with pytest.raises(RunError, match="no key"):
        _ = result.output


def test_the_output_comes_after_the_tools() -> None:
    def size(city: str) -> int:
        """Return the size of a city."""
        return len(city)

    conversation, _ = talk([ToolCall("size", {"city": "Ghent"})], GHENT, tools=[size])
    assert conversation.say("Where?", output=City).output.name == "Ghent"


def test_a_model_with_structured_output_is_sent_the_schema_until_it_rejects_it() -> None:
    rejected = ModelError("no recursive schemas", kind="bad_request")
    model = ScriptedModel([GHENT, rejected, GHENT], name="sage", supports_output_schema=True)
    conversation = sennit.conversation(model=model)
    assert conversation.say("Where?", output=City).output.size == 3
    assert conversation.say("Where?", output=City).output.size == 3
    outputs = [request.output and request.output.name for request in model.requests]
    assert outputs == ["City", "City", None]
    assert said(conversation).count(GHENT) == 2


def test_a_run_on_a_question_without_a_schema_describes_it_to_the_model() -> None:
    conversation, model = talk(GHENT)
    conversation.request.session.add_message("user", "Where?")
    assert conversation.run(output=City).output.size == 3
    assert "interface City" in model.requests[0].messages[-1]["content"]
    assert said(conversation) == ["Where?", GHENT]


def test_a_fenced_branch_needs_the_class_among_its_capabilities() -> None:
    session = Session()
    session.services.register(ScriptedModel([GHENT, GHENT], name="sage"))
    branch = session.create_branch("main", resources={"sage"})
    conversation = session.conversation(branch, model="sage")
    refused = conversation.say("Where?", output=City)
    assert (refused.stop_reason, refused.notices[0].code) == ("invalid", "access")
    with pytest.raises(RunError, match="may not use 'City'") as raised:
        _ = refused.output
    assert isinstance(refused.error, AccessError)
    assert raised.value.__cause__ is None  # its text is all that a traceback would add
    branch.grant(capabilities={City})
    assert conversation.say("Where?", output=City).output.name == "Ghent"


def test_a_resumed_run_has_the_output(tmp_path: Path) -> None:
    def book(city: str) -> str:
        """Book."""
        return city

    replies = [[ToolCall("book", {"city": "Ghent"}, "c1")], '{"name": "Ghent"}', GHENT]
    with sennit.open(tmp_path / "chat.db") as client:
        conversation = client.session("ada").conversation(
            model=ScriptedModel(replies, name="sage"), tools=[Tool(book, needs_approval=True)]
        )
        waiting = conversation.say("Book.", output=City)
        with pytest.raises(RunError, match="suspended"):
            _ = waiting.output
        conversation.approve("c1", resume=False)
        assert conversation.resume(output=City).output == City(name="Ghent", size=3)


def test_a_run_resumed_without_its_class_is_held_to_its_schema(tmp_path: Path) -> None:
    def book(city: str) -> str:
        """Book."""
        return city

    replies = [[ToolCall("book", {"city": "Ghent"}, "c1")], '{"name": "Ghent"}', GHENT]
    model = ScriptedModel(replies, name="sage")
    with sennit.open(tmp_path / "chat.db") as client:
        chat = client.session("ada").conversation(
            model=model, tools=[Tool(book, needs_approval=True)]
        )
        chat.say("Book.", output=City)
    with sennit.open(tmp_path / "chat.db") as client:  # as another process does
        chat = client.session("ada").conversation(
            model=model, tools=[Tool(book, needs_approval=True)]
        )
        resumed: Any = chat.approve("c1")
        assert resumed.output == {"name": "Ghent", "size": 3}


class Unwritable(BaseModel):
    call: Callable[[int], int]


@pytest.mark.parametrize("kind", [Unwritable, BaseModel])
def test_a_class_without_a_schema_is_refused_before_anything_is_said(
    kind: type[BaseModel],
) -> None:
    chat, model = talk("Hello.")
    with pytest.raises(InvalidTypeError, match=f"needs a JSON schema, which {kind.__name__} lacks"):
        chat.say("Where?", output=kind)
    assert chat.say("And now?").text == "Hello."
    assert [message.content.words for message in chat.request.branch.messages] == [
        "And now?",
        "Hello.",
    ]
    assert len(model.requests) == 1
