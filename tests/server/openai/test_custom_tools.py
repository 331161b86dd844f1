"""Custom tools, whose input is a text, in both of OpenAI's APIs; and summaries of reasoning."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from sennit.services.models.reply import Reply, ReplyReasoning, ReplyText
from sennit.testing import ToolCall
from tests.openai_client import served

PATCH = '*** Begin Patch\n- old "text"\n+ new\n*** End Patch'
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin Patch"'}
CUSTOM = {"type": "custom", "name": "patch", "description": "Change a file.", "format": GRAMMAR}
FUNCTION = {"type": "function", "name": "look", "parameters": {"type": "object"}}
CALLS = [ToolCall("patch", {"input": PATCH}, "call_1"), ToolCall("look", {}, "call_2")]
ASK: dict[str, Any] = {"model": "sage", "tools": [CUSTOM, FUNCTION]}


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_calls_a_custom_tool(stream: bool) -> None:
    with served(CALLS, "Done.") as chat:
        if stream:
            with chat.openai.responses.stream(**ASK, input="Fix it.") as events:
                kinds = [event.type for event in events]
                response = events.get_final_response()
            assert "response.custom_tool_call_input.delta" in kinds
            assert "response.custom_tool_call_input.done" in kinds
        else:
            response = chat.openai.responses.create(**ASK, input="Fix it.")
        custom, function = response.output
        assert (custom.type, custom.call_id, custom.name) == ("custom_tool_call", "call_1", "patch")
        assert custom.input == PATCH
        assert (function.type, function.call_id) == ("function_call", "call_2")
        stored = chat.openai.responses.retrieve(response.id).output
        assert [(item.id, item.type) for item in stored] == [
            (item.id, item.type) for item in response.output
        ]
        outputs = [
            {"type": "custom_tool_call_output", "call_id": "call_1", "output": "patched"},
            {"type": "function_call_output", "call_id": "call_2", "output": "seen"},
        ]
        last = chat.openai.responses.create(**ASK, input=outputs, previous_response_id=response.id)
        assert last.output_text == "Done."
        assert [message["content"] for message in chat.asked()[-2:]] == ["patched", "seen"]


def test_a_model_is_offered_a_function_that_tells_the_grammar() -> None:
    with served("Nothing to do.") as chat:
        chat.openai.responses.create(**ASK, input="Fix it.")
        patch, look = chat.model.requests[-1].tools
        assert patch.parameters["properties"] == {"input": {"type": "string"}}
        assert "Change a file." in patch.description
        assert 'start: "*** Begin Patch"' in patch.description
        assert look.name == "look"


def test_a_history_with_a_custom_call_goes_on_on_one_branch() -> None:
    with served(CALLS[:1], "Done.") as chat:
        first = chat.openai.responses.create(**ASK, input="Fix it.")
        history = [
            {"role": "user", "content": "Fix it."},
            *(item.to_dict() for item in first.output),
            {"type": "custom_tool_call_output", "call_id": "call_1", "output": "patched"},
        ]
        chat.openai.responses.create(**ASK, input=history)
        (session,) = chat.sessions()
        assert len(chat.branches(session["id"])) == 1


def test_a_custom_call_may_be_named_by_its_id() -> None:
    with served(CALLS[:1], "Done.") as chat:
        first = chat.openai.responses.create(**ASK, input="Fix it.")
        history = [
            {"role": "user", "content": "Fix it."},
            {"type": "item_reference", "id": first.output[0].id},
            {"type": "custom_tool_call_output", "call_id": "call_1", "output": "patched"},
        ]
        assert chat.openai.responses.create(**ASK, input=history).output_text == "Done."
        assert PATCH in str(chat.asked()[1]["tool_calls"][0]["function"]["arguments"]).replace(
            "\\n", "\n"
        ).replace('\\"', '"')


def test_a_chosen_custom_tool_must_be_called() -> None:
    with served(CALLS[:1], CALLS[:1]) as chat:
        choice = {"type": "custom", "name": "patch"}
        chat.openai.responses.create(**ASK, input="Fix it.", tool_choice=choice)
        assert chat.model.requests[-1].params["tool_choice"] == ["patch"]
        with pytest.raises(openai.BadRequestError, match="'dig'"):
            chat.openai.responses.create(
                **ASK, input="Fix it.", tool_choice={"type": "custom", "name": "dig"}
            )


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_completion_calls_a_custom_tool(stream: bool) -> None:
    tool = {"type": "custom", "custom": {"name": "patch", "description": "Change a file."}}
    question = {"role": "user", "content": "Fix it."}
    with served(CALLS[:1], "Done.") as chat:
        answer = chat.ask(question, tools=[tool], stream=stream)
        if stream:
            deltas = [choice.delta for chunk in answer for choice in chunk.choices]
            (call,) = [call for delta in deltas for call in delta.tool_calls or ()]
        else:
            (call,) = answer.choices[0].message.tool_calls
        assert (call.id, call.type) == ("call_1", "custom")
        custom = {"name": "patch", "input": PATCH}
        assert dict(call.custom) == custom
        said = {
            "role": "assistant",
            "tool_calls": [{"id": "call_1", "type": "custom", "custom": custom}],
        }
        outcome = {"role": "tool", "tool_call_id": "call_1", "content": "patched"}
        last = chat.ask(question, said, outcome, tools=[tool])
        assert last.choices[0].message.content == "Done."
        assert len(chat.branches(chat.sessions()[0]["id"])) == 1


def test_a_call_without_a_tool_is_refused() -> None:
    said = {"role": "assistant", "tool_calls": [{"id": "call_1", "type": "custom"}]}
    with served() as chat, pytest.raises(openai.BadRequestError, match="'call_1' needs"):
        chat.ask({"role": "user", "content": "Fix it."}, said)


@pytest.mark.parametrize("summary", [None, "auto"])
def test_reasoning_is_a_summary_for_those_who_ask_for_one(summary: str | None) -> None:
    reply = Reply(items=(ReplyReasoning("Ropes differ."), ReplyText("The bowline.")))
    with served(reply, chunk=5) as chat:
        more = {"model": "sage", "reasoning": {"effort": "low", "summary": summary}}
        with chat.openai.responses.stream(**more, input="A knot?") as events:
            kinds = {event.type for event in events}
            response = events.get_final_response()
        reasoning = response.output[0]
        if summary is None:
            assert reasoning.summary == []
            assert [part.text for part in reasoning.content] == ["Ropes differ."]
            assert "response.reasoning_text.delta" in kinds
        else:
            assert [part.text for part in reasoning.summary] == ["Ropes differ."]
            assert not reasoning.content
            assert "response.reasoning_summary_text.delta" in kinds
            assert "response.reasoning_summary_part.done" in kinds
            assert response.reasoning.summary == "auto"
        stored = chat.openai.responses.retrieve(response.id)
        assert stored.output[0].to_dict() == reasoning.to_dict()
