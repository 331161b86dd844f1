"""generate: a model is asked, and nothing is stored."""

from __future__ import annotations

from typing import Any

import pytest

from sennit import (
    InstructionContent,
    InvalidTypeError,
    Message,
    ModelError,
    SystemContent,
    Tool,
    ValidationError,
)
from sennit.testing import ScriptedModel, ToolCall
from tests.conducting import Answer, result_of, session_with
from tests.models import failure


def search(query: str) -> str:
    """Search."""
    return query


def test_it_asks_about_the_messages_it_is_given() -> None:
    model = ScriptedModel(["a", "b", "c"])
    session = session_with(model)
    message = Message(InstructionContent(instruction="Hi"))
    for messages in ([message], "Hi", [{"role": "user", "content": "Hi"}]):
        result_of(session, "generate", messages=messages)
    assert [list(asked.messages) for asked in model.requests] == [
        [{"role": "user", "content": "Hi"}]
    ] * 3
    assert len(session.messages) == 0


def test_it_asks_about_the_whole_branch_if_it_is_given_none() -> None:
    model = ScriptedModel(["Hello"])
    session = session_with(model)
    session.set_branch_system("main", Message(SystemContent(system_message="Be brief.")))
    session.add_message("user", "Hi")
    reply = result_of(session, "generate")
    assert (reply.text, reply.finish) == ("Hello", "stop")
    assert list(model.requests[0].messages) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    ]
    assert len(session.messages) == 2


def test_an_empty_branch_is_nothing_to_ask_about() -> None:
    model = ScriptedModel([])
    with pytest.raises(ValidationError, match="Nobody has said"):
        result_of(session_with(model), "generate")
    assert model.requests == []


@pytest.mark.parametrize("tools", ["search", [search], [Tool(search)], ("search",)])
def test_tools_are_offered_and_their_calls_come_back_unrun(tools: Any) -> None:
    model = ScriptedModel([[ToolCall("search", {"query": "rope"})]])
    reply = result_of(session_with(model, search), "generate", messages="Find", tools=tools)
    assert [(call.name, call.arguments) for call in reply.calls] == [("search", '{"query":"rope"}')]
    assert [tool.name for tool in model.requests[0].tools] == ["search"]


@pytest.mark.parametrize("shapes", [True, False])
def test_a_response_model_is_asked_for_where_the_model_can_be_held_to_it(shapes: bool) -> None:
    model = ScriptedModel(["not checked"], supports_output_schema=shapes)
    session = session_with(model)
    reply = result_of(session, "generate", messages="Hi", response_model=Answer)
    assert reply.text == "not checked"
    output = model.requests[0].output
    assert (output.name if output else None) == ("Answer" if shapes else None)


def test_parameters_of_the_model_are_handed_on_and_others_refused() -> None:
    model = ScriptedModel(["Hello"])
    session = session_with(model)
    result_of(session, "generate", messages="Hi", temperature=0.5, max_tokens=9)
    assert model.requests[0].params == {"temperature": 0.5, "max_tokens": 9}
    with pytest.raises(InvalidTypeError, match=r"no parameter 'temprature'.* Did you mean"):
        result_of(session, "generate", messages="Hi", temprature=0.5)


def test_a_model_that_fails_is_a_model_error() -> None:
    with pytest.raises(ModelError, match="overloaded"):
        result_of(session_with(ScriptedModel([failure()])), "generate", messages="Hi")
