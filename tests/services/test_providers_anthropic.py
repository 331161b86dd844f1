"""What Anthropic says over HTTP: the same care as for OpenAI's form, in another wire format."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from sennit.errors import ModelError
from sennit.messages.typescript import ToolSchema
from sennit.services.models.providers.model import ProviderModel
from sennit.services.models.reply import (
    CallDelta,
    ReasoningDelta,
    ReplyCall,
    ReplyReasoning,
    ReplyText,
    TextDelta,
    Usage,
)
from tests.services.asking import asked, failing, folded, request, streamed
from tests.services.wire_server import (
    DROP,
    STALL,
    Step,
    WireServer,
    answer,
    anthropic_block,
    anthropic_end,
    anthropic_event,
    anthropic_message,
    anthropic_start,
    chunks,
    completion,
    event,
)

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
TEXT = {"type": "text", "text": ""}


def tool_use(id: str, name: str, **input: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def text_delta(text: str) -> dict[str, str]:
    return {"type": "text_delta", "text": text}


def json_delta(json: str) -> dict[str, str]:
    return {"type": "input_json_delta", "partial_json": json}


def test_a_message_of_anthropic_becomes_a_reply(
    server: WireServer, anthropic: ProviderModel
) -> None:
    server.says(
        answer(
            anthropic_message(
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "Hi"},
                {"type": "tool_use", "id": "a", "name": "f", "input": {"é": 1}},
                stop="tool_use",
            )
        )
    )
    reply = asked(anthropic)
    assert reply.items == (ReplyReasoning("hm"), ReplyText("Hi"), ReplyCall("a", "f", '{"é": 1}'))
    assert (reply.finish, reply.usage) == ("tool_calls", Usage(7, 3, 2))


def test_a_stream_of_anthropic_is_told_in_order(
    server: WireServer, anthropic: ProviderModel
) -> None:
    text = {"type": "text", "text": ""}
    server.says(
        chunks(
            anthropic_start(),
            anthropic_block(
                0,
                {"type": "thinking", "thinking": "", "signature": ""},
                {"type": "thinking_delta", "thinking": "hm"},
                {"type": "signature_delta", "signature": "s"},
            ),
            event({"type": "ping"}, "ping"),
            anthropic_block(
                1,
                text,
                {"type": "text_delta", "text": "Let me "},
                {"type": "text_delta", "text": "look"},
            ),
            anthropic_block(
                2,
                {"type": "tool_use", "id": "a", "name": "f", "input": {}},
                {"type": "input_json_delta", "partial_json": ""},
                {"type": "input_json_delta", "partial_json": '{"x": 1'},
                {"type": "input_json_delta", "partial_json": "}"},
            ),
            anthropic_block(3, {"type": "tool_use", "id": "b", "name": "now", "input": {}}),
            anthropic_end("tool_use"),
        )
    )
    told = streamed(anthropic)
    assert told[:3] == [ReasoningDelta("hm"), TextDelta("Let me "), TextDelta("look")]
    reply = folded(told)
    assert reply.calls == (ReplyCall("a", "f", '{"x": 1}'), ReplyCall("b", "now", ""))
    assert (reply.finish, reply.usage) == ("tool_calls", Usage(7, 9, 2))


@pytest.mark.parametrize(
    ("stop", "finish"),
    [("max_tokens", "length"), ("refusal", "refusal"), ("stop_sequence", "stop")],
)
def test_the_reasons_of_anthropic_to_stop_have_our_names(
    server: WireServer, anthropic: ProviderModel, stop: str, finish: str
) -> None:
    text = {"type": "text", "text": "so"}
    server.says(answer(anthropic_message(text, stop=stop)))
    assert asked(anthropic).finish == finish
    server.says(chunks(anthropic_start(), anthropic_block(0, text), anthropic_end(stop)))
    assert folded(streamed(anthropic)).finish == finish


def test_arguments_that_anthropic_cut_off_are_kept_as_written(
    server: WireServer, anthropic: ProviderModel
) -> None:
    server.says(
        chunks(
            anthropic_start(),
            anthropic_block(
                0,
                {"type": "tool_use", "id": "a", "name": "f", "input": {}},
                {"type": "input_json_delta", "partial_json": '{"x": "ha'},
            ),
            anthropic_end("max_tokens"),
        )
    )
    assert folded(streamed(anthropic)).cut_off == ReplyCall("a", "f", '{"x": "ha')


def test_a_letter_of_anthropic_s_split_between_packets_arrives_whole(
    server: WireServer, anthropic: ProviderModel
) -> None:
    said = b"".join(
        (
            anthropic_start(),
            anthropic_block(0, TEXT, text_delta("Grüße 🧵"), text_delta(" слово")),
            anthropic_end(),
        )
    )
    server.says(chunks(*(said[at : at + 1] for at in range(len(said)))))
    assert folded(streamed(anthropic)).text == "Grüße 🧵 слово"


def test_interleaved_calls_of_anthropic_keep_the_order_of_arrival(
    server: WireServer, anthropic: ProviderModel
) -> None:
    def more(index: int, json: str) -> bytes:
        return anthropic_event("content_block_delta", index=index, delta=json_delta(json))

    def begin(index: int, id: str, name: str) -> bytes:
        return anthropic_event("content_block_start", index=index, content_block=tool_use(id, name))

    server.says(
        chunks(
            anthropic_start(),
            begin(0, "a", "one"),
            begin(1, "b", "two"),
            more(0, '{"x"'),
            more(1, '{"y"'),
            more(0, ": 1}"),
            more(1, ": 2}"),
            anthropic_event("content_block_stop", index=0),
            anthropic_event("content_block_stop", index=1),
            anthropic_end("tool_use"),
        )
    )
    told = streamed(anthropic)
    assert [delta.index for delta in told if isinstance(delta, CallDelta) and delta.arguments] == [
        0,
        1,
        0,
        1,
    ]
    assert folded(told).calls == (
        ReplyCall("a", "one", '{"x": 1}'),
        ReplyCall("b", "two", '{"y": 2}'),
    )


@pytest.mark.parametrize("id", ["", "same"], ids=["blank", "reused"])
def test_calls_of_anthropic_with_odd_ids_stay_apart(
    server: WireServer, anthropic: ProviderModel, id: str
) -> None:
    blocks = [tool_use(id, "one", x=1), tool_use(id, "two")]
    server.says(answer(anthropic_message(*blocks, stop="tool_use")))
    whole = asked(anthropic)
    server.says(
        chunks(
            anthropic_start(),
            anthropic_block(0, tool_use(id, "one"), json_delta('{"x": 1}')),
            anthropic_block(1, tool_use(id, "two"), json_delta("{}")),
            anthropic_end("tool_use"),
        )
    )
    for reply in (whole, folded(streamed(anthropic))):
        one, two = reply.calls
        assert (one.name, one.arguments) == ("one", '{"x": 1}')
        assert (two.name, two.arguments) == ("two", "{}")
        assert len({one.id, two.id} - {""}) == 2


@BOTH
def test_anthropic_s_seconds_to_wait_are_told(
    server: WireServer, anthropic: ProviderModel, stream: bool
) -> None:
    said = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}
    server.says(answer(said, 429, {"retry-after": "7"}))
    error = failing(anthropic, stream=stream)
    assert (error.kind, error.retry_after, error.retryable) == ("rate_limit", 7, True)


@BOTH
@pytest.mark.parametrize(
    "said", [[STALL], chunks(anthropic_start(), anthropic_block(0, TEXT), STALL)]
)
def test_anthropic_s_silence_ends_with_the_time_limit(
    server: WireServer, anthropic: ProviderModel, said: list[Step], stream: bool
) -> None:
    server.says(said)
    error = failing(anthropic, request(params={"timeout": 0.2}), stream=stream)
    assert error.kind == "timeout"
    assert server.hung_up.wait(30)


@BOTH
@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (answer(b"not json"), "malformed"),
        (answer({"type": "message"}), "malformed"),
        (answer(b"<html>hello</html>", 200, {"content-type": "text/html"}), "malformed"),
        ([DROP], "network"),
        ([b"SMTP ready\r\n\r\n", DROP], "network"),
    ],
)
def test_an_answer_of_anthropic_that_is_none_is_an_error(
    server: WireServer, anthropic: ProviderModel, said: list[Step], kind: str, stream: bool
) -> None:
    server.says(said)
    assert failing(anthropic, stream=stream).kind == kind


def test_a_line_of_anthropic_s_that_is_none_is_malformed(
    server: WireServer, anthropic: ProviderModel
) -> None:
    server.says(
        chunks(anthropic_start(), event("nonsense", "content_block_delta"), anthropic_end())
    )
    with pytest.raises(ModelError) as caught:
        streamed(anthropic)
    assert caught.value.kind == "malformed"


@pytest.mark.slow
@BOTH
def test_a_very_long_answer_of_anthropic_takes_memory_in_proportion(
    server: WireServer, anthropic: ProviderModel, stream: bool
) -> None:
    size = 50 * 2**20 // 4096 * 4096
    if stream:
        pieces = [anthropic_event("content_block_delta", index=0, delta=text_delta("x" * 4096))]
        begun = anthropic_event("content_block_start", index=0, content_block=TEXT)
        ended = anthropic_event("content_block_stop", index=0) + anthropic_end()
        server.says(chunks(anthropic_start(), begun, *pieces * (size // 4096), ended))
    else:
        server.says(answer(anthropic_message({"type": "text", "text": "x" * size})))
    tracemalloc.start()
    try:
        reply = folded(streamed(anthropic)) if stream else asked(anthropic)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(reply.text) == size
    assert peak < 8 * size


SYSTEM = {"role": "system", "content": "Be brief."}
TALK = (
    SYSTEM,
    {"role": "user", "content": "A knot?"},
    {"role": "assistant", "content": "The bowline."},
    {"role": "user", "content": "Why?"},
)


def marks(body: dict[str, Any]) -> list[str]:
    """Where a request is marked for the cache."""
    blocks = {"system": body.get("system"), "tools": body.get("tools")}
    blocks |= {f"message {at}": one["content"] for at, one in enumerate(body["messages"])}
    return [
        name
        for name, parts in blocks.items()
        for part in (parts if isinstance(parts, list) else ())
        if "cache_control" in part
    ]


@pytest.mark.parametrize(
    ("messages", "params", "marked"),
    [
        (TALK, {}, ["system", "message 2"]),
        (TALK, {"prompt_cache": False}, []),
        (TALK[:2], {}, []),
        (TALK[:2], {"prompt_cache": True}, ["system", "message 0"]),
    ],
)
def test_a_conversation_is_marked_for_the_cache(
    server: WireServer, anthropic: ProviderModel, messages: Any, params: Any, marked: list[str]
) -> None:
    server.says(answer(anthropic_message({"type": "text", "text": "Hi"})))
    asked(anthropic, request(messages, params=params))
    assert marks(server.body) == marked


@pytest.mark.parametrize(("lifetime", "ttl"), [(True, "5m"), ("5m", "5m"), ("1h", "1h")])
def test_the_lifetime_of_the_cache_can_be_chosen(
    server: WireServer, anthropic: ProviderModel, lifetime: Any, ttl: str
) -> None:
    server.says(answer(anthropic_message({"type": "text", "text": "Hi"})))
    asked(anthropic, request(TALK, params={"prompt_cache": lifetime}))
    system, message = server.body["system"][-1], server.body["messages"][-1]["content"][-1]
    assert system["cache_control"] == message["cache_control"] == {"type": "ephemeral", "ttl": ttl}


def test_a_request_with_tools_is_marked_for_the_cache(
    server: WireServer, anthropic: ProviderModel
) -> None:
    tool = ToolSchema("f", "Does it.", {"type": "object", "properties": {}})
    server.says(answer(anthropic_message({"type": "text", "text": "Hi"})))
    asked(anthropic, request(TALK[:2], tools=(tool,)))
    assert marks(server.body) == ["system", "message 0"]


def test_other_providers_get_no_mark(server: WireServer, openai: ProviderModel) -> None:
    server.says(answer(completion("Hi")))
    asked(openai, request(TALK, params={"prompt_cache": True}))
    assert "cache" not in str(server.body)
