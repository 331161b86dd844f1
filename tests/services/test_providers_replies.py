"""What providers say over HTTP becomes deltas and replies: nothing lost, nothing reordered."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai.usage import RequestUsage

from sennit.errors import ModelError
from sennit.services.models.providers.model import ProviderModel, connect
from sennit.services.models.providers.translate import price
from sennit.services.models.reply import (
    CallDelta,
    Finished,
    ReasoningDelta,
    Reply,
    ReplyCall,
    ReplyReasoning,
    ReplyText,
    TextDelta,
    Usage,
)
from tests.services.asking import asked, failing, folded, streamed
from tests.services.conftest import KEY
from tests.services.wire_server import (
    DONE,
    WireServer,
    answer,
    call_piece,
    chunks,
    completed,
    completion,
    event,
    piece,
    usage_piece,
)


def test_a_whole_answer_becomes_a_reply(server: WireServer, openai: ProviderModel) -> None:
    server.says(answer(completion("Grüße 🧵")))
    assert asked(openai) == Reply((ReplyText("Grüße 🧵"),), "stop", Usage(7, 3), "wire-1")


def test_text_is_told_in_the_pieces_it_came_in(server: WireServer, openai: ProviderModel) -> None:
    server.says(
        completed(piece(role="assistant", content=""), piece(content="He"), piece(content="llo"))
    )
    *told, end = streamed(openai)
    assert told == [TextDelta("He"), TextDelta("llo")]
    assert end == Finished("stop", Usage(), "wire-1")


def test_a_letter_split_between_packets_arrives_whole(
    server: WireServer, openai: ProviderModel
) -> None:
    said = piece(content="Grüße 🧵 слово") + piece("stop") + DONE
    server.says(chunks(*(said[at : at + 1] for at in range(len(said)))))
    assert folded(streamed(openai)).text == "Grüße 🧵 слово"


def test_lines_may_end_in_both_ways_and_comments_are_no_answer(
    server: WireServer, openai: ProviderModel
) -> None:
    said = b": ping\r\n\r\n" + piece(content="x").replace(b"\n", b"\r\n")
    server.says(completed(said, b": ping\n\n"))
    assert folded(streamed(openai)).text == "x"


def test_interleaved_calls_keep_the_order_of_arrival(
    server: WireServer, openai: ProviderModel
) -> None:
    server.says(
        completed(
            piece(content="Let me look."),
            call_piece(0, "", id="a", name="one"),
            call_piece(1, "", id="b", name="two"),
            call_piece(0, '{"x"'),
            piece(content="Meanwhile"),
            call_piece(1, "[1"),
            call_piece(0, ":1}"),
            call_piece(1, "]"),
            finish="tool_calls",
        )
    )
    told = streamed(openai)
    assert told[:-1] == [
        TextDelta("Let me look."),
        CallDelta(0, "a", "one"),
        CallDelta(1, "b", "two"),
        CallDelta(0, arguments='{"x"'),
        TextDelta("Meanwhile"),
        CallDelta(1, arguments="[1"),
        CallDelta(0, arguments=":1}"),
        CallDelta(1, arguments="]"),
    ]
    assert folded(told).items == (
        ReplyText("Let me look."),
        ReplyCall("a", "one", '{"x":1}'),
        ReplyCall("b", "two", "[1]"),
        ReplyText("Meanwhile"),
    )


def test_calls_with_blank_ids_stay_apart(server: WireServer, openai: ProviderModel) -> None:
    server.says(
        completed(
            call_piece(0, "{}", id="", name="one"),
            call_piece(1, "{}", name="two"),
            finish="tool_calls",
        )
    )
    calls = folded(streamed(openai)).calls
    assert [call.name for call in calls] == ["one", "two"]
    assert len({call.id for call in calls} - {""}) == 2


def test_calls_that_share_an_id_stay_apart(server: WireServer, openai: ProviderModel) -> None:
    server.says(
        completed(
            call_piece(0, "{}", id="same", name="one"),
            call_piece(1, "[]", id="same", name="two"),
            finish="tool_calls",
        )
    )
    one, two = folded(streamed(openai)).calls
    assert (one.name, one.arguments, two.name, two.arguments) == ("one", "{}", "two", "[]")
    assert one.id != two.id


@pytest.mark.parametrize("ids", [("", ""), ("same", "same")], ids=["blank", "reused"])
def test_the_calls_of_a_whole_answer_stay_apart(
    server: WireServer, openai: ProviderModel, ids: tuple[str, str]
) -> None:
    calls = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}}
        for id, name in zip(ids, ("one", "two"), strict=True)
    ]
    server.says(answer(completion(None, tool_calls=calls, finish="tool_calls")))
    one, two = asked(openai).calls
    assert (one.name, two.name) == ("one", "two")
    assert len({one.id, two.id} - {""}) == 2


def test_calls_that_share_an_index_stay_apart(server: WireServer, openai: ProviderModel) -> None:
    server.says(
        completed(
            call_piece(0, '{"x": 1}', id="a", name="one"),
            call_piece(0, '{"y":', id="b", name="two"),
            call_piece(0, " 2}"),
            finish="tool_calls",
        )
    )
    assert folded(streamed(openai)).calls == (
        ReplyCall("a", "one", '{"x": 1}'),
        ReplyCall("b", "two", '{"y": 2}'),
    )


def test_a_name_said_in_every_piece_is_one_name(server: WireServer, openai: ProviderModel) -> None:
    server.says(
        completed(
            call_piece(0, "{", id="a", name="one"),
            call_piece(0, "}", id="a", name="one"),
            finish="tool_calls",
        )
    )
    assert folded(streamed(openai)).calls == (ReplyCall("a", "one", "{}"),)


def test_a_name_may_come_after_the_arguments_began(
    server: WireServer, openai: ProviderModel
) -> None:
    server.says(
        completed(
            call_piece(0, '{"x"', id="a"), call_piece(0, ": 1}", name="one"), finish="tool_calls"
        )
    )
    assert folded(streamed(openai)).calls == (ReplyCall("a", "one", '{"x": 1}'),)


def test_a_call_that_never_gets_a_name_is_an_error(
    server: WireServer, openai: ProviderModel
) -> None:
    server.says(completed(call_piece(0, "{}", id="a"), finish="tool_calls"))
    with pytest.raises(ModelError) as caught:
        streamed(openai)
    assert caught.value.kind == "malformed"


@pytest.mark.parametrize("arguments", ["", None])
def test_a_call_without_arguments_has_none(
    server: WireServer, openai: ProviderModel, arguments: str | None
) -> None:
    server.says(completed(call_piece(0, arguments, id="a", name="now"), finish="tool_calls"))
    assert folded(streamed(openai)).calls == (ReplyCall("a", "now", ""),)


@pytest.mark.parametrize("arguments", ["", "{'x': 1}", '{"x": 1', "null", '{"x": 1e999}'])
def test_arguments_are_kept_as_written_sound_or_not(
    server: WireServer, openai: ProviderModel, arguments: str
) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    server.says(answer(completion(None, tool_calls=[call], finish="tool_calls")))
    whole = asked(openai)
    server.says(completed(call_piece(0, arguments, id="a", name="f"), finish="tool_calls"))
    assert whole.calls == folded(streamed(openai)).calls == (ReplyCall("a", "f", arguments),)


def test_a_call_cut_off_by_the_length_limit_is_known_as_such(
    server: WireServer, openai: ProviderModel
) -> None:
    cut = ReplyCall("a", "delete", '{"path": "/')
    function = {"name": cut.name, "arguments": cut.arguments}
    call = {"id": cut.id, "type": "function", "function": function}
    server.says(answer(completion(None, tool_calls=[call], finish="length")))
    whole = asked(openai)
    server.says(completed(call_piece(0, cut.arguments, id="a", name="delete"), finish="length"))
    for reply in (whole, folded(streamed(openai))):
        assert (reply.finish, reply.cut_off) == ("length", cut)


def test_calls_count_as_the_reason_to_stop_even_if_the_provider_says_stop(
    server: WireServer, openai: ProviderModel
) -> None:
    server.says(completed(call_piece(0, "{}", id="a", name="f"), finish="stop"))
    assert folded(streamed(openai)).finish == "tool_calls"


def test_a_refusal_is_told_with_its_words(server: WireServer, openai: ProviderModel) -> None:
    server.says(answer(completion(None, refusal="I will not.")))
    whole = asked(openai)
    server.says(completed(piece(refusal="I will "), piece(refusal="not.")))
    for reply in (whole, folded(streamed(openai))):
        assert (reply.text, reply.finish) == ("I will not.", "refusal")


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_told_apart_from_the_answer(
    server: WireServer, openai: ProviderModel, field: str
) -> None:
    server.says(answer(completion("4", **{field: "2+2"})))
    whole = asked(openai)
    server.says(completed(piece(**{field: "2"}), piece(**{field: "+2"}), piece(content="4")))
    told = streamed(openai)
    assert told[:-1] == [ReasoningDelta("2"), ReasoningDelta("+2"), TextDelta("4")]
    assert whole.items == folded(told).items == (ReplyReasoning("2+2"), ReplyText("4"))


def test_usage_in_a_chunk_of_its_own_is_counted(server: WireServer, openai: ProviderModel) -> None:
    server.says(
        chunks(
            piece(content="x"),
            piece("stop"),
            usage_piece(
                prompt_tokens=10,
                completion_tokens=5,
                total_tokens=15,
                prompt_tokens_details={"cached_tokens": 4},
                completion_tokens_details={"reasoning_tokens": 2},
            ),
            DONE,
        )
    )
    assert folded(streamed(openai)).usage == Usage(10, 5, 4, 2)


def test_a_price_is_told_only_for_an_address_on_the_price_list() -> None:
    usage = RequestUsage(input_tokens=1000, output_tokens=100)
    assert price(usage, "gpt-4o", "https://api.openai.com/v1/") == pytest.approx(0.0035)
    assert price(usage, "gpt-4o", "http://127.0.0.1:8080/v1") is None
    assert price(usage, "nobody-knows-it", "https://api.openai.com/v1/") is None
    assert price(RequestUsage(), "gpt-4o", "https://api.openai.com/v1/") is None


def _streamed_in(size: int) -> list[bytes | object]:
    return completed(*[piece(content="x" * 4096)] * (size // 4096))


def _whole(size: int) -> list[bytes | object]:
    return answer(completion("x" * size))


@pytest.mark.slow
@pytest.mark.parametrize("form", [_streamed_in, _whole])
def test_a_very_long_answer_takes_memory_in_proportion(
    server: WireServer, openai: ProviderModel, form: Callable[[int], list[bytes | object]]
) -> None:
    size = 50 * 2**20 // 4096 * 4096
    server.says(form(size))
    tracemalloc.start()
    try:
        reply = folded(streamed(openai)) if form is _streamed_in else asked(openai)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(reply.text) == size
    assert peak < 8 * size


# OpenAI's newer form

_TEXT = {"type": "output_text", "text": "Hi", "annotations": []}
_MESSAGE = {"id": "i", "type": "message", "role": "assistant", "status": "completed"}
_CALL = {"id": "j", "type": "function_call", "call_id": "a", "name": "f", "status": "completed"}
_OUTPUT = [{**_MESSAGE, "content": [_TEXT]}, {**_CALL, "arguments": '{"x": 1}'}]


def _response(status: str) -> dict[str, Any]:
    return {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "model": "wire-1",
        "status": status,
        "output": _OUTPUT if status == "completed" else [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 5,
            "input_tokens_details": {"cached_tokens": 1},
            "output_tokens": 3,
            "output_tokens_details": {"reasoning_tokens": 2},
            "total_tokens": 8,
        },
    }


def _response_events() -> list[bytes]:
    begun = {**_CALL, "arguments": ""}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": _response("in_progress")},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**_MESSAGE, "content": []},
        },
        *(
            {"type": "response.output_text.delta", "item_id": "i", "delta": text, "logprobs": []}
            for text in "Hi"
        ),
        {"type": "response.output_item.done", "output_index": 0, "item": _OUTPUT[0]},
        {
            "type": "response.output_item.added",
            "output_index": 1,
            "item": begun,
        },
        *(
            {"type": "response.function_call_arguments.delta", "item_id": "j", "delta": more}
            for more in ('{"x"', ": 1}")
        ),
        {"type": "response.output_item.done", "output_index": 1, "item": _OUTPUT[1]},
        {"type": "response.completed", "response": _response("completed")},
    ]
    places = {"output_index": 0, "content_index": 0}
    return [
        event({**places, "sequence_number": number, **one}, one["type"])
        for number, one in enumerate(events)
    ]


def test_the_responses_of_openai_are_told_alike(server: WireServer) -> None:
    model = connect("openai-responses:gpt-4o", base_url=f"{server.url}/v1", api_key=KEY)
    server.says(answer(_response("completed")))
    whole = asked(model)
    assert server.asked[-1].path == "/v1/responses"
    server.says(chunks(*_response_events()))
    told = streamed(model)
    assert told[:2] == [TextDelta("H"), TextDelta("i")]
    for reply in (whole, folded(told)):
        assert reply.items == (ReplyText("Hi"), ReplyCall("a", "f", '{"x": 1}'))
        assert (reply.finish, reply.usage) == ("tool_calls", Usage(5, 3, 1, 2))


def test_a_response_of_openai_that_just_stops_is_an_error(server: WireServer) -> None:
    model = connect("openai-responses:gpt-4o", base_url=f"{server.url}/v1", api_key=KEY)
    server.says(chunks(*_response_events()[:3]))
    assert failing(model, stream=True).kind == "network"


# Google and Ollama

_GEMINI = {
    "candidates": [
        {
            "content": {
                "role": "model",
                "parts": [
                    {"text": "hm", "thought": True},
                    {"text": "Hi"},
                    {"functionCall": {"name": "f", "args": {"x": 1}}},
                ],
            },
            "finishReason": "STOP",
        }
    ],
    "usageMetadata": {
        "promptTokenCount": 5,
        "candidatesTokenCount": 3,
        "thoughtsTokenCount": 2,
        "totalTokenCount": 10,
    },
    "modelVersion": "gemini-wire",
}


def test_google_answers_whole_and_in_pieces(server: WireServer, google: ProviderModel) -> None:
    server.says(answer(_GEMINI))
    whole = asked(google)
    assert server.asked[-1].path.endswith("/models/gemini-2.5-flash:generateContent")
    server.says(chunks(event(_GEMINI)))
    for reply in (whole, folded(streamed(google))):
        assert (reply.reasoning, reply.text, reply.finish) == ("hm", "Hi", "tool_calls")
        assert [(call.name, call.arguments) for call in reply.calls] == [("f", '{"x": 1}')]
        assert reply.usage == Usage(5, 5, 0, 2)


def test_ollama_answers_at_its_own_address(
    server: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_BASE_URL", f"{server.url}/v1")
    model = connect("ollama:qwen3")
    server.says(answer(completion("Hi")))
    assert asked(model).text == "Hi"
    server.says(completed(piece(reasoning="hm"), piece(content="Hi")))
    assert folded(streamed(model)).items == (ReplyReasoning("hm"), ReplyText("Hi"))
    assert server.body["model"] == "qwen3"
