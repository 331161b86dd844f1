"""react: the model thinks in words, acts, looks at the result, and answers in the end."""

from __future__ import annotations

from typing import Any

import pytest

from sennit import AccessError, InstructionContent, Message, RunError, ValidationError
from sennit.testing import ScriptedModel, ToolCall
from tests.conducting import Answer, result_of, session_with
from tests.conversation_fixtures import add, in_short


def step(number: int) -> list[Any]:
    return [f"I need step {number}.", ToolCall("add", {"a": number, "b": 1})]


def test_reasons_acts_and_results_stand_on_the_branch_in_order() -> None:
    session = session_with(model := ScriptedModel([step(1), step(2), "Three."]), add)
    assert result_of(session, "react", instruction="Count", tools=["add"]) == "Three."
    said = [in_short(message) for message in session.get_branch("main").messages]
    assert said == [
        "user Count",
        *["says I need step 1.", "call add", "result 2"],
        *["says I need step 2.", "call add", "result 3"],
        "says Three.",
    ]
    model.assert_complete()


def test_the_model_is_asked_to_think_before_it_acts() -> None:
    session = session_with(model := ScriptedModel(["Done."]), add)
    result_of(session, "react", instruction="Count", tools=["add"], context=["From one."])
    told = model.requests[0].messages[-1]["content"]
    assert told.startswith("Instruction: Count\n\nContext:\n  - From one.\n  - Work in steps.")


def test_a_message_keeps_who_said_it() -> None:
    session = session_with(ScriptedModel(["Done."]), add)
    said = Message(InstructionContent("Count"), sender="ada", metadata={"from": "test"})
    result_of(session, "react", instruction=said, tools=["add"])
    stored = session.get_branch("main").messages[0]
    assert (stored.id, stored.sender, stored.metadata) == (said.id, "ada", {"from": "test"})


def test_the_form_is_that_of_the_answer_and_leaves_words_for_reasons() -> None:
    model = ScriptedModel([step(1), "Two, I think.", '{"value": 2}'], supports_output_schema=True)
    session = session_with(model, add)
    given = {"instruction": "Count", "tools": ["add"], "response_model": Answer}
    assert result_of(session, "react", **given) == Answer(value=2)
    assert [request.output for request in model.requests] == [None, None, None]
    assert "The form below is that of the answer alone." in model.requests[1].messages[0]["content"]


def test_it_takes_more_steps_than_a_conversation_unless_told() -> None:
    replies = [step(number) for number in range(12)]
    session = session_with(ScriptedModel([*replies, "Done."]), add)
    assert result_of(session, "react", instruction="Count", tools=["add"]) == "Done."
    session = session_with(ScriptedModel(replies), add)
    with pytest.raises(RunError, match="max_turns"):
        result_of(session, "react", instruction="Count", tools=["add"], max_turns=3)


def test_it_needs_tools_that_are_granted() -> None:
    session = session_with(ScriptedModel([]), add, resources={"scripted"})
    with pytest.raises(ValidationError, match="use communicate"):
        result_of(session, "react", instruction="Count", tools=[])
    with pytest.raises(ValidationError, match="missing a required argument: 'tools'"):
        result_of(session, "react", instruction="Count")
    with pytest.raises(AccessError):
        result_of(session, "react", instruction="Count", tools=["add"])
