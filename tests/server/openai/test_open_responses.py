"""Responses have the form that the Open Responses specification (openresponses.org) requires."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import pytest
from openai import BadRequestError

from sennit import FilePart, ModelError
from sennit.messages.media import part_of_block, text_of
from sennit.messages.provider_state import ProviderState, StatePart
from sennit.services.models.reply import Reply, ReplyReasoning, ReplyText
from sennit.testing import ToolCall
from tests.openai_client import Chat, served
from tests.server.openai.test_responses import WEATHER

TEXT, WHOLE, NUMBER = str, int, (int, float)
RESPONSE: dict[str, Any] = {
    "id": TEXT,
    "object": "response",
    "created_at": WHOLE,
    "completed_at": (int, None),
    "status": ("completed", "in_progress", "incomplete", "failed", "cancelled", "queued"),
    "incomplete_details": (dict, None),
    "model": TEXT,
    "previous_response_id": (str, None),
    "instructions": (str, None),
    "output": list,
    "error": (dict, None),
    "tools": list,
    "tool_choice": (str, dict),
    "truncation": ("auto", "disabled"),
    "parallel_tool_calls": bool,
    "text": dict,
    "top_p": NUMBER,
    "presence_penalty": NUMBER,
    "frequency_penalty": NUMBER,
    "top_logprobs": WHOLE,
    "temperature": NUMBER,
    "reasoning": (dict, None),
    "usage": (dict, None),
    "max_output_tokens": (int, None),
    "max_tool_calls": (int, None),
    "store": bool,
    "background": bool,
    "service_tier": TEXT,
    "metadata": dict,
    "safety_identifier": (str, None),
    "prompt_cache_key": (str, None),
    "user": (str, None),
}
USAGE = {
    "input_tokens": WHOLE,
    "input_tokens_details": dict,
    "output_tokens": WHOLE,
    "output_tokens_details": dict,
    "total_tokens": WHOLE,
}
ITEM = {"id": TEXT, "type": TEXT, "status": ("completed", "in_progress", "incomplete")}
ITEMS: dict[str, dict[str, Any]] = {
    "message": {**ITEM, "role": ("user", "assistant", "system", "developer"), "content": list},
    "function_call": {**ITEM, "call_id": TEXT, "name": TEXT, "arguments": TEXT},
    "function_call_output": {**ITEM, "call_id": TEXT, "output": (str, list)},
    "reasoning": {**ITEM, "summary": list},
}
PARTS = {
    "output_text": {"text": TEXT, "annotations": list},
    "reasoning_text": {"text": TEXT},
    "summary_text": {"text": TEXT},
    "input_text": {"text": TEXT},
    "refusal": {"refusal": TEXT},
}
TOOL = {
    "type": "function",
    "name": TEXT,
    "description": (str, None),
    "parameters": (dict, None),
    "strict": (bool, None),
}
IN_ITEM = {"item_id": TEXT, "output_index": WHOLE}
IN_PART = {**IN_ITEM, "content_index": WHOLE}
IN_SUMMARY = {**IN_ITEM, "summary_index": WHOLE}
EVENTS: dict[str, dict[str, Any]] = {
    **{
        f"response.{kind}": {"response": dict}
        for kind in ("created", "in_progress", "completed", "failed", "incomplete")
    },
    "response.output_item.added": {"output_index": WHOLE, "item": dict},
    "response.output_item.done": {"output_index": WHOLE, "item": dict},
    "response.content_part.added": {**IN_PART, "part": dict},
    "response.content_part.done": {**IN_PART, "part": dict},
    "response.output_text.delta": {**IN_PART, "delta": TEXT, "logprobs": list},
    "response.output_text.done": {**IN_PART, "text": TEXT, "logprobs": list},
    "response.reasoning_text.delta": {**IN_PART, "delta": TEXT},
    "response.reasoning_text.done": {**IN_PART, "text": TEXT},
    "response.reasoning_summary_part.added": {**IN_SUMMARY, "part": dict},
    "response.reasoning_summary_part.done": {**IN_SUMMARY, "part": dict},
    "response.reasoning_summary_text.delta": {**IN_SUMMARY, "delta": TEXT},
    "response.reasoning_summary_text.done": {**IN_SUMMARY, "text": TEXT},
    "response.function_call_arguments.delta": {**IN_ITEM, "delta": TEXT},
    "response.function_call_arguments.done": {**IN_ITEM, "arguments": TEXT, "name": TEXT},
}


def fits(value: Any, form: Any) -> bool:
    if isinstance(form, tuple):
        return any(fits(value, one) for one in form)
    if isinstance(form, type):
        return isinstance(value, form) and (form is bool or not isinstance(value, bool))
    return value == form


def check(value: dict[str, Any], form: dict[str, Any]) -> None:
    for name, one in form.items():
        assert name in value, f"{name} is missing in {value}"
        assert fits(value[name], one), f"{name} is {value[name]!r}, expected {one}"


def check_item(item: dict[str, Any]) -> None:
    check(item, ITEMS[item["type"]])
    for part in [*item.get("content", ()), *item.get("summary", ())]:
        check(part, PARTS[part["type"]])


def check_response(response: dict[str, Any]) -> dict[str, Any]:
    check(response, RESPONSE)
    if response["usage"] is not None:
        check(response["usage"], USAGE)
    for tool in response["tools"]:
        check(tool, TOOL)
    for item in response["output"]:
        check_item(item)
    if response["status"] == "completed":
        assert response["completed_at"] is not None
    if response["error"] is not None:
        check(response["error"], {"code": TEXT, "message": TEXT})
    return response


def events_of(answer: httpx.Response) -> list[dict[str, Any]]:
    """The events of a stream, each checked; the last line is `[DONE]`."""
    *blocks, last = answer.text.removesuffix("\n\n").split("\n\n")
    assert last == "data: [DONE]"
    events: list[dict[str, Any]] = []
    for number, block in enumerate(blocks):
        name, _, data = block.partition("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        check(event, {"sequence_number": number, **EVENTS[event["type"]]})
        if "response" in event:
            check_response(event["response"])
        if "item" in event:
            check_item(event["item"])
        if "part" in event:
            check(event["part"], PARTS[event["part"]["type"]])
        events.append(event)
    return events


THOUGHT = Reply((ReplyReasoning("Ropes differ."), ReplyText("The bowline.")))
CUT = Reply((ReplyText("The bow"),), finish="length")
KINDS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "plain": ("The bowline.", {"instructions": "Be brief."}, "completed"),
    "thinking": (THOUGHT, {}, "completed"),
    "summary": (THOUGHT, {"reasoning": {"effort": "low", "summary": "auto"}}, "completed"),
    "tool": ([ToolCall("weather", {"city": "Oslo"})], {"tools": [WEATHER]}, "completed"),
    "cut off": (CUT, {"max_output_tokens": 16}, "incomplete"),
    "error": (ModelError("Boom.", kind="overloaded"), {}, "failed"),
    "penalties": ("Yes.", {"presence_penalty": 0.5, "frequency_penalty": -0.5}, "completed"),
}


def post(chat: Chat, **fields: Any) -> httpx.Response:
    return chat.server.post("/v1/responses", {"model": "sage", "input": "Name a knot.", **fields})


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_response_has_all_required_fields(kind: str) -> None:
    reply, fields, status = KINDS[kind]
    with served(reply) as chat:
        answer = post(chat, **fields)
        if status == "failed":
            assert answer.status_code == 503
            error = {"message": TEXT, "type": TEXT, "code": "overloaded", "param": None}
            check(answer.json()["error"], error)
            return
        response = check_response(answer.json())
        assert response["status"] == status
        stored = check_response(chat.server.get(f"/v1/responses/{response['id']}").json())
        assert stored == response
        if kind == "penalties":
            assert (response["presence_penalty"], response["frequency_penalty"]) == (0.5, -0.5)
            assert chat.model.requests[0].params["presence_penalty"] == 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_each_event_of_a_stream_has_all_required_fields(kind: str) -> None:
    reply, fields, status = KINDS[kind]
    with served(reply, chunk=5) as chat:
        events = events_of(post(chat, stream=True, **fields))
        last = events[-1]
        assert last["type"] == f"response.{status}"
        assert last["response"]["status"] == status
        done = [one["item"] for one in events if one["type"] == "response.output_item.done"]
        assert last["response"]["output"] == done
        if kind == "cut off":
            assert done[-1]["status"] == "incomplete"


@pytest.mark.parametrize("phase", ["commentary", "final_answer"])
def test_the_phase_of_a_message_is_kept(phase: str) -> None:
    said = {"role": "assistant", "content": "I look.", "phase": phase}
    ask = [{"role": "user", "content": "Name a knot."}, said, {"role": "user", "content": "Well?"}]
    with served("The bowline.") as chat:
        response = chat.openai.responses.create(model="sage", input=ask)
        items = chat.openai.responses.input_items.list(response.id, order="asc").data
        assert items[1].phase == phase


def test_the_phase_that_a_provider_gave_is_returned() -> None:
    item = {"type": "message", "phase": "final_answer", "content": [{"text": "The bowline."}]}
    part = StatePart("text", "The bowline.", json.dumps(item))
    reply = Reply((ReplyText("The bowline."),), state=ProviderState("openai", "{}", (part,)))
    with served(reply, reply) as chat:
        assert (
            chat.openai.responses.create(model="sage", input="x").output[0].phase == "final_answer"
        )
        *_, last = chat.openai.responses.create(model="sage", input="y", stream=True)
        assert last.response.output[0].phase == "final_answer"


@pytest.mark.parametrize("mode", ["auto", "required"])
@pytest.mark.parametrize("api", ["responses", "chat"])
def test_a_model_is_offered_only_the_allowed_tools(api: str, mode: str) -> None:
    other = {**WEATHER, "name": "tides"}
    with served([ToolCall("weather", {"city": "Oslo"})]) as chat:
        if api == "responses":
            allowed = {"mode": mode, "tools": [{"type": "function", "name": "weather"}]}
            choice: dict[str, Any] = {"type": "allowed_tools", **allowed}
            response = check_response(post(chat, tools=[WEATHER, other], tool_choice=choice).json())
            assert response["tool_choice"] == choice
            assert len(response["tools"]) == 2
        else:
            wrapped = [{"type": "function", "function": tool} for tool in (WEATHER, other)]
            named = [{"type": "function", "function": {"name": "weather"}}]
            choice = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": named}}
            chat.ask({"role": "user", "content": "x"}, tools=wrapped, tool_choice=choice)
        (request,) = chat.model.requests
        assert [tool.name for tool in request.tools] == ["weather"]
        assert request.params.get("tool_choice") == (None if mode == "auto" else "required")


def test_an_unknown_allowed_tool_is_refused() -> None:
    choice = {"type": "allowed_tools", "tools": [{"type": "function", "name": "sun"}]}
    with served() as chat:
        answer = post(chat, tools=[WEATHER], tool_choice=choice)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "tool_choice"


def encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()


FILES: dict[str, dict[str, Any]] = {
    "base64": {"filename": "knots.md", "file_data": encoded("The bowline ä.".encode())},
    "url": {"file_data": "data:text/plain;base64," + encoded(b"The bowline.")},
}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("api", ["responses", "chat"])
def test_the_text_of_a_file_reaches_the_model(api: str, kind: str) -> None:
    file = FILES[kind]
    with served("Yes.") as chat:
        if api == "responses":
            content = [{"type": "input_text", "text": "Read."}, {"type": "input_file", **file}]
            chat.openai.responses.create(model="sage", input=[{"role": "user", "content": content}])
        else:
            chat.ask(
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "Read."}, {"type": "file", "file": file}],
                }
            )
        block = chat.asked()[0]["content"][1]
        part = part_of_block(block)
        assert isinstance(part, FilePart)
        assert text_of(part) in ("knots.md\nThe bowline ä.", "The bowline.")


@pytest.mark.parametrize(
    "file",
    [
        {"file_id": "file-1"},
        {"file_data": "data:text/plain,The bowline"},
        {"file_data": "!", "filename": "x.txt"},
        {"file_data": encoded(b"\x00\xff"), "filename": "x.txt"},
        {},
    ],
)
def test_a_file_that_cannot_be_read_is_refused(file: dict[str, Any]) -> None:
    content = [{"type": "input_file", **file}]
    with served() as chat:
        with pytest.raises(BadRequestError) as caught:
            chat.openai.responses.create(model="sage", input=[{"role": "user", "content": content}])
        assert caught.value.param == "input[0]"
        assert chat.sessions() == []


def test_an_image_in_a_tool_result_belongs_to_it() -> None:
    url = "https://knots.example/a.png"
    outputs = [
        {"type": "function_call_output", "call_id": "call_1", "output": [
            {"type": "input_text", "text": "Here."}, {"type": "input_image", "image_url": url}]},
        {"type": "function_call_output", "call_id": "call_2", "output": "Rain."},
    ]  # fmt: skip
    calls = [ToolCall("weather", {"city": city}, f"call_{at}") for at, city in ((1, "a"), (2, "b"))]
    with served(calls, "Yes.") as chat:
        first = chat.openai.responses.create(model="sage", input="Look.", tools=[WEATHER])
        chat.openai.responses.create(
            model="sage", input=outputs, tools=[WEATHER], previous_response_id=first.id
        )
        assert [one["role"] for one in chat.asked()][-2:] == ["tool", "tool"]
        assert chat.asked()[-2]["content"] == [
            {"type": "text", "text": "Here."},
            {"type": "image_url", "image_url": {"url": url, "detail": "auto"}},
        ]
