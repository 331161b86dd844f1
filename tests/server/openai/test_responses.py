"""Responses, as the official client of OpenAI uses them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError, NotFoundError
from pydantic import BaseModel

from sennit import ModelError, clock
from sennit.services.models.reply import Reply, ReplyReasoning, ReplyText, Usage
from sennit.services.models.request import ModelRequest
from sennit.testing import ToolCall
from tests.http_server import Talker, serving
from tests.openai_client import Chat, client, served

WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "The forecast for a city.",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


def respond(chat: Chat, said: Any, **more: Any) -> Any:
    return chat.openai.responses.create(model="sage", input=said, **more)


def test_a_response_is_answered_counted_and_kept() -> None:
    with served("The bowline.") as chat:
        response = respond(chat, "Name a knot.", instructions="Be brief.", metadata={"of": "ada"})
        assert response.output_text == "The bowline."
        assert response.status == "completed"
        assert response.usage.input_tokens > 0
        assert response.usage.output_tokens > 0
        assert response.instructions == "Be brief."
        assert response.metadata == {"of": "ada"}
        kept = chat.openai.responses.retrieve(response.id)
        assert kept.output == response.output
        assert (kept.status, kept.model) == ("completed", "sage")
        assert kept.usage == response.usage
        assert [one["content"] for one in chat.asked()] == ["Be brief.", "Name a knot."]


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_was_completed_once_whenever_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    with served("The bowline.") as chat:
        made = respond(chat, "Name a knot.", stream=stream)
        response = list(made)[-1].response if stream else made
        assert response.completed_at >= response.created_at
        now = clock.now_us()
        for later in (10_000_000, 20_000_000):
            monkeypatch.setattr(clock, "now_us", lambda later=later: now + later)
            kept = chat.openai.responses.retrieve(response.id)
            assert kept.completed_at == response.completed_at


def test_a_response_continues_the_one_before() -> None:
    with served("The bowline.", "The sheet bend.") as chat:
        first = respond(chat, "Name a knot.", instructions="Be brief.")
        second = respond(chat, "Another.", previous_response_id=first.id)
        assert second.output_text == "The sheet bend."
        assert second.previous_response_id == first.id
        told = [one["content"] for one in chat.asked()]
        assert told == [
            "Name a knot.",
            "The bowline.",
            "Another.",
        ]  # instructions do not carry over
        (session,) = chat.sessions()
        (branch,) = chat.branches(session["id"])
        assert branch["message_count"] == 4


def test_continuing_a_response_twice_forks_it() -> None:
    with served("The bowline.", "The sheet bend.", "The clove hitch.") as chat:
        first = respond(chat, "Name a knot.")
        respond(chat, "Another.", previous_response_id=first.id)
        respond(chat, "One more.", previous_response_id=first.id)
        told = [one["content"] for one in chat.asked()]
        assert told == ["Name a knot.", "The bowline.", "One more."]
        (session,) = chat.sessions()
        one, two = chat.branches(session["id"])
        assert two["forked_from"]["branch_id"] == one["id"]
        assert two["forked_from"]["message_count"] == 2


class Mirror(Talker):
    """Answers with all that it was told."""

    def _answer(self, request: ModelRequest) -> list[str]:
        return [" | ".join(str(one["content"]) for one in request.messages)]


def test_continued_many_times_at_once_each_has_its_own_instructions(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "s.db", models=[Mirror("sage")]) as server,
        client(server) as openai,
        ThreadPoolExecutor(4) as threads,
    ):

        def ask(said: str, **more: Any) -> Any:
            return openai.responses.create(model="sage", input=said, **more)

        def go_on(first: str, voice: str) -> str:
            return ask("Go on.", previous_response_id=first, instructions=voice).output_text

        voices = ["Be a pirate.", "Be a nurse.", "Be a clown.", "Be a judge."]
        for number in range(10):
            first = ask(f"Tale {number}")
            told = list(threads.map(go_on, [first.id] * len(voices), voices))
            before = f"Tale {number} | Tale {number} | Go on."
            assert told == [f"{voice} | {before}" for voice in voices]


def test_system_messages_among_the_items_hold_for_what_follows() -> None:
    with served("A", "B") as chat:
        first = respond(
            chat,
            [{"role": "developer", "content": "Speak plainly."}, {"role": "user", "content": "1"}],
            instructions="Only now.",
        )
        respond(chat, "2", previous_response_id=first.id, instructions="And now.")
        assert chat.asked(0)[0]["content"] == "Only now.\n\nSpeak plainly."
        assert chat.asked(1)[0]["content"] == "And now.\n\nSpeak plainly."


def test_a_conversation_takes_in_what_is_new() -> None:
    with served("The bowline.", "The sheet bend.") as chat:
        first = respond(chat, "Name a knot.", conversation="knots")
        second = respond(chat, "Another.", conversation="knots")
        assert first.conversation.id == "knots"
        assert second.previous_response_id is None
        assert chat.said("knots") == ["Name a knot.", "The bowline.", "Another.", "The sheet bend."]


def test_a_response_that_is_not_stored_leaves_nothing() -> None:
    with served("The bowline.", "The sheet bend.", "Gone.") as chat:
        first = respond(chat, "Name a knot.")
        second = respond(chat, "Another.", previous_response_id=first.id, store=False)
        assert second.output_text == "The sheet bend."
        told = [one["content"] for one in chat.asked()]
        assert told == ["Name a knot.", "The bowline.", "Another."]
        (session,) = chat.sessions()
        (branch,) = chat.branches(session["id"])
        assert branch["message_count"] == 2
        with pytest.raises(NotFoundError):
            chat.openai.responses.retrieve(second.id)
        with pytest.raises(BadRequestError, match="was deleted"):
            respond(chat, "More.", previous_response_id=second.id)


def test_the_events_of_a_stream_come_in_the_order_clients_rely_on() -> None:
    reply = Reply((ReplyReasoning("Hm."), ReplyText("The bowline.")), "stop", Usage(3, 4))
    with served(reply) as chat:
        events = list(respond(chat, "Name a knot.", stream=True))
        assert [one.type for one in events] == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.reasoning_text.delta",
            "response.reasoning_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
        assert [one.sequence_number for one in events] == list(range(len(events)))
        final = events[-1].response
        assert final.output_text == "The bowline."
        assert (final.usage.input_tokens, final.usage.output_tokens) == (3, 4)
        assert chat.openai.responses.retrieve(final.id).output == final.output


def test_the_accumulating_stream_of_the_official_client_works() -> None:
    with served("Over, under, through. " * 20, chunk=7) as chat:
        with chat.openai.responses.stream(model="sage", input="Tie it.") as stream:
            said = "".join(one.delta for one in stream if one.type == "response.output_text.delta")
            final = stream.get_final_response()
        assert said == "Over, under, through. " * 20 == final.output_text


def test_functions_are_called_by_the_client() -> None:
    call = ToolCall("weather", {"city": "Oslo"}, "call_1")
    with served(["Let me look.", call], "It rains.") as chat:
        first = respond(chat, "Weather in Oslo?", tools=[WEATHER])
        asked = first.output[-1]
        assert (asked.type, asked.name, asked.arguments) == (
            "function_call",
            "weather",
            '{"city":"Oslo"}',
        )
        assert chat.model.requests[0].tools[0].name == "weather"
        result = {"type": "function_call_output", "call_id": asked.call_id, "output": "rain"}
        second = respond(chat, [result], previous_response_id=first.id, tools=[WEATHER])
        assert second.output_text == "It rains."
        assert chat.asked()[-1] == {"role": "tool", "tool_call_id": "call_1", "content": "rain"}


def test_a_streamed_call_is_told_with_its_arguments() -> None:
    call = ToolCall("weather", {"city": "Oslo"}, "call_1")
    with served([call]) as chat:
        with chat.openai.responses.stream(
            model="sage", input="Weather?", tools=[WEATHER]
        ) as stream:
            kinds = [one.type for one in stream]
            final = stream.get_final_response()
        assert "response.function_call_arguments.delta" in kinds
        assert final.output[0].arguments == '{"city":"Oslo"}'
        assert final.output[0].call_id == "call_1"


def test_calls_without_results_are_refused() -> None:
    with served([ToolCall("weather", {"city": "Oslo"}, "call_1")]) as chat:
        first = respond(chat, "Weather in Oslo?", tools=[WEATHER])
        with pytest.raises(BadRequestError, match="call_1"):
            respond(chat, "Never mind.", previous_response_id=first.id)


def test_whole_histories_are_matched_as_in_chat_completions() -> None:
    with served("The bowline.", "The sheet bend.") as chat:
        items: list[Any] = [{"role": "user", "content": "Name a knot."}]
        items += [one.model_dump() for one in respond(chat, items).output]
        items.append({"role": "user", "content": "Another."})
        respond(chat, items)
        (session,) = chat.sessions()
        (branch,) = chat.branches(session["id"])
        assert branch["message_count"] == 4


class Knot(BaseModel):
    name: str
    crossings: int


def test_an_answer_has_the_form_that_was_asked_for() -> None:
    with served('{"name": "bowline", "crossings": 4}', supports_output_schema=True) as chat:
        parsed = chat.openai.responses.parse(model="sage", input="A knot.", text_format=Knot)
        assert parsed.output_parsed == Knot(name="bowline", crossings=4)
        form = chat.model.requests[0].output
        assert form is not None
        assert form.name == "Knot"


def test_what_was_said_is_listed_page_by_page() -> None:
    with served("Yes.") as chat:
        items = [{"role": "user", "content": text} for text in ("One", "Two", "Three")]
        response = respond(chat, items)
        listed = chat.openai.responses.input_items.list(response.id, order="asc", limit=2)
        assert [one.content[0].text for one in listed] == ["One", "Two", "Three"]


def test_a_deleted_response_is_gone() -> None:
    with served("The bowline.", "The sheet bend.") as chat:
        first = respond(chat, "Name a knot.")
        second = respond(chat, "Another.", previous_response_id=first.id)
        chat.openai.responses.delete(second.id)
        with pytest.raises(NotFoundError):
            chat.openai.responses.retrieve(second.id)
        assert chat.openai.responses.retrieve(first.id).output_text == "The bowline."
        chat.openai.responses.delete(first.id)
        assert chat.sessions() == []


def test_a_model_that_fails_is_told_and_can_be_tried_again() -> None:
    with served(
        ModelError("Too much.", kind="context"), ModelError("Down.", kind="overloaded")
    ) as chat:
        with pytest.raises(BadRequestError) as caught:
            respond(chat, "Name a knot.")
        assert caught.value.code == "context_length_exceeded"
        events = list(respond(chat, "Name one.", stream=True))
        assert events[-1].type == "response.failed"
        assert events[-1].response.error.message == "Down."
        kept = chat.openai.responses.retrieve(events[-1].response.id)
        assert kept.status == "failed"


def test_a_model_can_be_made_to_call_a_function() -> None:
    named = {"type": "function", "name": "weather"}
    with served([ToolCall("weather", {"city": "Oslo"})]) as chat:
        told = respond(chat, "Oslo?", tools=[WEATHER], tool_choice=named)
        assert told.tool_choice.name == told.output[0].name == "weather"
        assert chat.model.requests[0].params["tool_choice"] == ["weather"]


def test_an_answer_that_was_cut_off_is_incomplete() -> None:
    with served(Reply((ReplyText("The bow"),), "length", Usage(3, 2))) as chat:
        response = respond(chat, "Name a knot.", max_output_tokens=2)
        assert response.status == "incomplete"
        assert response.incomplete_details.reason == "max_output_tokens"
        assert chat.model.requests[0].params["max_tokens"] == 2


def test_a_picture_may_come_with_its_bytes() -> None:
    url = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAA"
    with served("A knot.", "A knot.", "Yes.") as chat:
        image = {"type": "input_image", "image_url": url, "detail": "low"}
        ask = {"role": "user", "content": [{"type": "input_text", "text": "What?"}, image]}
        first = respond(chat, [ask])
        assert chat.asked()[0]["content"][1]["image_url"] == {"url": url, "detail": "low"}
        (item,) = chat.openai.responses.input_items.list(first.id).data
        assert item.content[1].image_url == url
        picture = {"type": "image_url", "image_url": {"url": url}}
        said = {"role": "user", "content": [{"type": "text", "text": "What?"}, picture]}
        chat.ask(said)
        assert chat.asked()[0]["content"][1]["image_url"]["url"] == url
        for wrong in (url[:-4].replace("iVBO", "AAAA"), "data:text/html;base64,PGI+", "data:,x"):
            with pytest.raises(BadRequestError, match="PNG, JPEG, GIF or WebP") as caught:
                respond(chat, [{"role": "user", "content": [{**image, "image_url": wrong}]}])
            assert caught.value.param == "input[0]"


def test_what_changes_nothing_is_taken_and_noted() -> None:
    more: dict[str, Any] = {"truncation": "auto", "text": {"verbosity": "high"}}
    unknown = {"top_k": 40, "Gateway Ü": {"a": [1]}}
    with served("The bowline.", "The hitch.") as chat:
        create = chat.openai.responses.with_raw_response.create
        raw = create(model="sage", input="Name a knot.", extra_body=unknown, **more)
        noted = raw.headers["x-ignored-fields"]
        assert noted == "top_k, Gateway %C3%9C, text.verbosity, truncation"
        response = raw.parse()
        assert response._request_id.startswith("req_")
        assert (response.temperature, response.top_p) == (1.0, 1.0)
        assert "x-ignored-fields" not in create(model="sage", input="Name another.").headers


@pytest.mark.parametrize("restarted", [False, True])
def test_a_client_may_refer_to_items_instead_of_sending_them(
    tmp_path: Path, restarted: bool
) -> None:
    call = ToolCall("weather", {"city": "Porto"}, id="call_1")
    thought = Reply((ReplyReasoning("Hm."), ReplyText("The bowline.")))
    ask = {"role": "user", "content": "Name a knot."}
    more = {"role": "user", "content": "And the weather?"}
    with served(thought, [call], "Sunny.", store=tmp_path / "s.db") as chat:
        first = respond(chat, [ask])
        known = [{"type": "item_reference", "id": item.id} for item in first.output]
        assert len(known) == 2
        if not restarted:
            second = respond(chat, [ask, *known, more], tools=[WEATHER])
            result = {"type": "function_call_output", "call_id": "call_1", "output": "Sun."}
            calls = [{"type": "item_reference", "id": item.id} for item in second.output]
            third = respond(chat, [ask, *known, more, *calls, result], tools=[WEATHER])
            assert third.output_text == "Sunny."
            assert [one["role"] for one in chat.asked()] == [
                "user",
                "assistant",
                "user",
                "assistant",
                "tool",
            ]
            assert len(chat.sessions()) == 1
    if restarted:
        with served("A hitch.", store=tmp_path / "s.db") as chat:
            assert respond(chat, [ask, *known, more]).output_text == "A hitch."
            assert [one["content"] for one in chat.asked()][:2] == ["Name a knot.", "The bowline."]


@pytest.mark.parametrize("name", ["msg_1", "rs_" + "0" * 32, "", None, 7])
def test_a_reference_to_an_item_that_is_not_stored_is_refused(name: Any) -> None:
    ask = {"role": "user", "content": "Name a knot."}
    with served("The bowline.") as chat:
        (item,) = respond(chat, [ask], store=False).output
        for said in ([ask, {"type": "item_reference", "id": one}] for one in (name, item.id)):
            with pytest.raises(BadRequestError, match="not found; send the item itself") as caught:
                respond(chat, said)
            assert caught.value.param == "input[1]"
        assert chat.sessions() == []


def test_what_is_not_done_here_is_refused_by_name() -> None:
    cases: list[tuple[dict[str, Any], str | None]] = [
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "sun"}}, "tool_choice"),
        ({"tool_choice": {"type": "mcp", "name": "x"}, "tools": [WEATHER]}, "tool_choice.type"),
        ({"previous_response_id": "resp_none"}, "previous_response_id"),
        ({"previous_response_id": "resp_x", "conversation": "y"}, "conversation"),
        ({"temperature": "warm"}, "temperature"),
        ({"text": {"format": {"type": "yaml"}}}, "text.format.type"),
    ]
    with served() as chat:
        for more, param in cases:
            with pytest.raises(BadRequestError) as caught:
                respond(chat, "Name a knot.", **more)
            assert caught.value.param == param, more
        for item in ({"type": "item_reference", "id": "msg_1"}, {"role": "user", "content": 7}):
            with pytest.raises(BadRequestError) as caught:
                respond(chat, [item])
            assert caught.value.param == "input[0]"
        assert chat.sessions() == []
