"""Every kind in the types of the providers' SDKs is shown, kept and sent back by their rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import anthropic.types.beta as anthropic
import openai.types.responses as responses
import pytest

import sennit
from sennit.errors import RunError
from sennit.messages.provider_state import STATE_KEY
from sennit.turns.conversation import ConversationSession
from sennit.turns.result import Return
from tests.conversation_fixtures import add
from tests.services.models.providers.kinds import (
    TABLES,
    by_tag,
    rows,
    sample,
    sdk_kinds,
)
from tests.services.models.providers.test_provider_state import BOTH, connected, say
from tests.services.provider_replies import ANTHROPIC, CHAT, GOOGLE, RESPONSES, Provider
from tests.services.provider_rules import (
    check_anthropic,
    check_chat,
    check_google,
    check_responses,
)
from tests.services.wire_server import (
    DONE,
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
    piece,
)

pytestmark = pytest.mark.usefixtures("google_sdk")
CHECKS: Mapping[Provider, Callable[[Mapping[str, Any]], None]] = {
    ANTHROPIC: check_anthropic,
    RESPONSES: check_responses,
    GOOGLE: check_google,
    CHAT: check_chat,
}


@pytest.mark.parametrize("table", TABLES)
def test_the_table_lists_every_kind_of_the_installed_sdk(table: str) -> None:
    assert sdk_kinds()[table] - TABLES[table].keys() == set()


def shell(commands: list[str], timeout_ms: int, max_output_length: int) -> str:
    """Run commands."""
    return f"ran {commands} {timeout_ms} {max_output_length}"


def write_sql(input: str) -> str:
    """Run SQL."""
    return f"ran {input}"


def talk(server: WireServer, provider: Provider) -> ConversationSession:
    return sennit.conversation(model=connected(server, provider), tools=[add])


def play(
    server: WireServer, provider: Provider, items: list[Any], *, stream: bool
) -> tuple[ConversationSession, Return]:
    """Have a provider say items, a text and a call; then a text, twice."""
    whole = [*items, provider.text("Let me."), provider.call()]
    written = provider.streamed if stream else provider.whole
    later = [[provider.text(text)] for text in ("It is 3.", "Yes.")]
    for number, (reply,) in enumerate(later):
        reply.update({"id": f"msg_{number + 2}"} if "id" in reply else {})
    server.says(written(whole), *map(written, later))
    chat = talk(server, provider)
    result = say(chat, "1 + 2?", stream=stream)
    assert result.answer == "It is 3."
    say(chat, "Sure?", stream=stream)
    return chat, result


def followed(server: WireServer, provider: Provider, items: list[Any]) -> None:
    """Check that the requests of a tool round and a user round are valid and have the items."""
    assert len(server.asked) == 3
    for asked in server.asked[1:]:
        CHECKS[provider](asked.body)
        sent = asked.body["input"][1:] if provider is RESPONSES else provider.sent(asked.body)
        assert sent[: len(items)] == items


def ask(chat: ConversationSession, text: str, *, stream: bool) -> Return:
    """Say something; the run may fail."""
    if not stream:
        return chat.say(text)
    run = chat.stream(text)
    for _ in run:
        pass
    return run.result


def shown(chat: ConversationSession) -> tuple[str, str]:
    """The texts and the reasoning of the first reply, as people see them."""
    said = [one for one in chat.request.branch.messages if one.role.value == "assistant"]
    reasoning = [getattr(one.content, "reasoning", "") or "" for one in said]
    return "".join(one.text or "" for one in said), "".join(reasoning)


# OpenAI's Responses API


def openai_item(kind: str) -> dict[str, Any]:
    item = sample(by_tag(responses.ResponseOutputItem)[kind])
    item |= {"id": f"id_{kind}"}
    if kind in ("message", "additional_tools"):
        item |= {"role": "assistant"}
    return item | ({"call_id": f"call_{kind}"} if "call_id" in item else {})


def as_sent(item: Any) -> Any:
    """An item of OpenAI's without the fields that it refuses in a request."""
    if isinstance(item, dict):
        return {name: as_sent(value) for name, value in item.items() if name != "created_by"}
    return [as_sent(one) for one in item] if isinstance(item, list) else item


@BOTH
@pytest.mark.parametrize(
    "kind",
    [kind for _, kind, rule in rows("openai items") if rule in ("back", "reasoning", "text")],
)
def test_an_item_of_openai_goes_back(server: WireServer, kind: str, stream: bool) -> None:
    item = openai_item(kind)
    if kind == "custom_tool_call_output":
        del item["status"]
    chat, _ = play(server, RESPONSES, [item], stream=stream)
    followed(server, RESPONSES, [as_sent(item)])
    rule = TABLES["openai items"][kind]
    text, reasoning = shown(chat)
    assert text.startswith("x") == (rule == "text")
    assert (reasoning == "x") == (rule == "reasoning")


def test_a_call_by_a_program_of_openai_s_is_answered_to_the_program(server: WireServer) -> None:
    caller = {"type": "program", "caller_id": "call_p"}
    call = RESPONSES.call() | {"id": "fc_9", "call_id": "call_9", "caller": caller}
    play(server, RESPONSES, [openai_item("program"), call], stream=True)
    check_responses(server.body)
    results = [one for one in server.body["input"] if one.get("call_id") == "call_9"]
    assert [one["caller"] for one in results] == [caller, caller]


CLIENT_CALLS = {
    "custom_tool_call": (write_sql, {"name": "write_sql", "input": "SELECT 1"}, "SELECT 1"),
    "local_shell_call": (add, {}, None),
    "shell_call": (shell, {"environment": {"type": "local"}}, "ran ['x'] 1 1"),
    "apply_patch_call": (add, {}, None),
}


@BOTH
@pytest.mark.parametrize("kind", CLIENT_CALLS)
def test_a_call_of_openai_s_that_is_no_function_is_a_call_of_a_tool(
    server: WireServer, kind: str, stream: bool
) -> None:
    tool, fields, ran = CLIENT_CALLS[kind]
    item = openai_item(kind) | fields
    written = RESPONSES.streamed if stream else RESPONSES.whole
    server.says(written([item]), written([RESPONSES.text("Done.")]))
    chat = sennit.conversation(model=connected(server, RESPONSES), tools=[tool])
    result = say(chat, "Do it.", stream=stream)
    assert result.answer == "Done."
    check_responses(server.body)
    sent, answered = server.body["input"][1:3]
    assert sent == as_sent(item)
    if ran is not None:  # else there is no such tool, and the model is told so
        assert ran in json.dumps(answered["output"])


@BOTH
@pytest.mark.parametrize("kind", ["computer_call", "tool_search_call"])
def test_a_reply_with_a_call_that_nothing_here_answers_goes_back_as_text(
    server: WireServer, kind: str, stream: bool
) -> None:
    item = openai_item(kind) | ({"execution": "client"} if kind != "computer_call" else {})
    play(server, RESPONSES, [item], stream=stream)
    for asked in server.asked[1:]:
        check_responses(asked.body)
        assert kind not in json.dumps(asked.body)


@pytest.mark.parametrize(
    "kind", [kind for _, kind, rule in rows("openai events") if rule == "progress"]
)
def test_an_event_of_openai_s_that_tells_progress_changes_nothing(
    server: WireServer, kind: str
) -> None:
    body = sample(by_tag(responses.ResponseStreamEvent)[kind]) | {"output_index": 9}
    if "response" in body:
        body["response"] = {"model": "gpt-5", "status": "in_progress", "output": []}
    *events, end = RESPONSES.streamed([RESPONSES.text("Hi.")])
    extra = chunks(event(body, kind))[1]
    server.says([*events[:2], extra, *events[2:-1], extra, events[-1], end])
    assert say(talk(server, RESPONSES), "Hello.", stream=True).answer == "Hi."


@BOTH
def test_a_reply_that_is_only_a_picture_goes_back(server: WireServer, stream: bool) -> None:
    item = openai_item("image_generation_call")
    written = RESPONSES.streamed if stream else RESPONSES.whole
    server.says(written([item]), written([RESPONSES.text("A cat.")]))
    chat = talk(server, RESPONSES)
    assert say(chat, "Draw.", stream=stream).answer == ""
    assert say(chat, "What is it?", stream=stream).answer == "A cat."
    check_responses(server.body)
    assert server.body["input"][1] == as_sent(item)
    server.says(answer(completion("Yes.")))
    other = connected(server, CHAT)
    session = chat.request.session
    assert isinstance(session, sennit.Session)
    say(session.conversation(model=other), "Sure?")
    check_chat(server.body)
    assert [one["role"] for one in server.body["messages"]][1:] == ["user", "assistant", "user"]


@pytest.mark.parametrize("kind", ["error", "response.failed"])
def test_an_event_of_openai_s_that_fails_is_told(server: WireServer, kind: str) -> None:
    error = {"code": "server_error", "message": "It broke."}
    failed = {"model": "gpt-5", "status": "failed", "output": [], "error": error}
    body = error if kind == "error" else {"response": failed}
    first = RESPONSES.streamed([RESPONSES.text("Hi.")])[:4]
    server.says([*first, *chunks(event({"type": kind, **body}, kind))[1:]])
    with pytest.raises(RunError, match="It broke"):
        say(talk(server, RESPONSES), "Hello.", stream=True)


@BOTH
@pytest.mark.parametrize("kind", ["annotations", "refusal", *TABLES["openai annotations"]])
def test_a_part_of_openai_s_goes_back(server: WireServer, kind: str, stream: bool) -> None:
    item: dict[str, Any] = RESPONSES.text("Well. ") | {"id": "msg_9"}
    if kind == "refusal":
        item["content"] = [{"type": "refusal", "refusal": "I will not. "}]
    else:
        kinds = by_tag(responses.ResponseOutputText.model_fields["annotations"].annotation)
        item["content"][0]["annotations"] = [sample(kinds[kind])] if kind in kinds else []
    chat, _ = play(server, RESPONSES, [item], stream=stream)
    followed(server, RESPONSES, [item])
    assert shown(chat)[0].startswith("I will" if kind == "refusal" else "Well.")


@BOTH
@pytest.mark.parametrize(("table", "reason", "outcome"), rows("openai reasons"))
def test_a_reason_of_openai_s_has_our_name(
    server: WireServer, table: str, reason: str, outcome: str, stream: bool
) -> None:
    body = {
        "model": "gpt-5",
        "status": "incomplete",
        "incomplete_details": {"reason": reason},
        "output": [RESPONSES.text("So far")],
    }
    end = {"type": "response.incomplete", "response": body}
    server.says(chunks(event(end)) if stream else answer({"object": "response", **body}))
    chat = talk(server, RESPONSES)
    ask(chat, "Hello.", stream=stream)
    (said,) = [one for one in chat.request.branch.messages if one.text == "So far"]
    assert said.metadata["finish_reason"] == outcome, table


# Anthropic


def anthropic_items(kind: str) -> list[dict[str, Any]]:
    """A block, with the call before it if it is a result, or with the result after it."""
    item = sample(by_tag(anthropic.BetaContentBlock)[kind])
    if "tool_use_id" in item:
        use = "mcp_tool_use" if kind == "mcp_tool_result" else "server_tool_use"
        call = sample(by_tag(anthropic.BetaContentBlock)[use]) | {"id": "srvtoolu_1"}
        return [call, item | {"tool_use_id": "srvtoolu_1"}]
    if kind in ("server_tool_use", "mcp_tool_use"):
        result = "mcp_tool_result" if kind == "mcp_tool_use" else "web_search_tool_result"
        return anthropic_items(result)
    return [item | ({"id": "toolu_9", "name": "add"} if kind == "tool_use" else {})]


def blocks_as_sent(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: [
                {key: one for key, one in citation.items() if key != "file_id"}
                for citation in field
            ]
            if name == "citations" and isinstance(field, list)
            else blocks_as_sent(field)
            for name, field in value.items()
        }
    return [blocks_as_sent(one) for one in value] if isinstance(value, list) else value


@BOTH
@pytest.mark.parametrize("kind", TABLES["anthropic blocks"])
def test_a_block_of_anthropic_goes_back(server: WireServer, kind: str, stream: bool) -> None:
    items = anthropic_items(kind)
    chat, _ = play(server, ANTHROPIC, items, stream=stream)
    followed(server, ANTHROPIC, blocks_as_sent(items))
    text, reasoning = shown(chat)
    assert text.startswith("x") == (kind == "text")
    assert (reasoning == "x") == (kind == "thinking")


def results() -> dict[str, dict[str, Any]]:
    """The contents that results of Anthropic's tools may have."""
    blocks = by_tag(anthropic.BetaContentBlock)
    return {
        f"{kind} {tag}": {"type": kind, "tool_use_id": "srvtoolu_1", "content": content}
        for kind, block in blocks.items()
        if "tool_use_id" in block.model_fields
        for tag, model in by_tag(block.model_fields["content"].annotation).items()
        for content in [[sample(model)] if tag in ("web_search_result", "text") else sample(model)]
    }


@pytest.mark.parametrize("kind", results())
def test_a_result_of_anthropic_s_tools_goes_back(server: WireServer, kind: str) -> None:
    result = results()[kind]
    call = anthropic_items(result["type"])[0]
    play(server, ANTHROPIC, [call, result], stream=True)
    followed(server, ANTHROPIC, blocks_as_sent([call, result]))


@pytest.mark.parametrize("kind", TABLES["anthropic citations"])
def test_a_citation_of_anthropic_goes_back(server: WireServer, kind: str) -> None:
    citation = sample(by_tag(anthropic.BetaTextCitation)[kind])
    start = {"type": "text", "text": "", "citations": []}
    deltas = [
        {"type": "text_delta", "text": "Well."},
        {"type": "citations_delta", "citation": citation},
    ]
    blocks = anthropic_block(0, start, *deltas), anthropic_end()
    server.says(chunks(anthropic_start(), *blocks), ANTHROPIC.streamed([ANTHROPIC.text("Yes.")]))
    chat = talk(server, ANTHROPIC)
    assert say(chat, "Hello.", stream=True).answer == "Well."
    say(chat, "Sure?", stream=True)
    check_anthropic(server.body)
    cited = {"type": "text", "text": "Well.", "citations": [citation]}
    assert ANTHROPIC.sent(server.body) == [blocks_as_sent(cited)]


def test_a_compaction_of_anthropic_arrives_in_pieces(server: WireServer) -> None:
    start = {"type": "compaction", "content": None}
    delta = {"type": "compaction_delta", "content": "So far.", "encrypted_content": "RU5D"}
    blocks = anthropic_block(0, start, delta), anthropic_block(1, ANTHROPIC.text("Hi."))
    server.says(
        chunks(anthropic_start(), *blocks, anthropic_end()),
        ANTHROPIC.streamed([ANTHROPIC.text("Yes.")]),
    )
    chat = talk(server, ANTHROPIC)
    say(chat, "Hello.", stream=True)
    say(chat, "Sure?", stream=True)
    compaction = {"type": "compaction", "content": "So far.", "encrypted_content": "RU5D"}
    assert ANTHROPIC.sent(server.body) == [compaction, ANTHROPIC.text("Hi.")]


@BOTH
@pytest.mark.parametrize(
    ("reason", "outcome"), [row[1:] for row in rows("anthropic reasons") if row[2] != "pause"]
)
def test_a_reason_of_anthropic_has_our_name(
    server: WireServer, reason: str, outcome: str, stream: bool
) -> None:
    block = ANTHROPIC.call() if outcome == "tool_calls" else ANTHROPIC.text("Hi.")
    whole = answer(anthropic_message(block, stop=reason))
    pieces = chunks(anthropic_start(), anthropic_block(0, block), anthropic_end(reason))
    written = ANTHROPIC.streamed if stream else ANTHROPIC.whole
    server.says(pieces if stream else whole, written([ANTHROPIC.text("Yes.")]))
    chat = talk(server, ANTHROPIC)
    ask(chat, "Hello.", stream=stream)
    said = [one for one in chat.request.branch.messages if "finish_reason" in one.metadata]
    assert said[0].metadata["finish_reason"] == outcome


def test_why_anthropic_refused_is_shown(server: WireServer) -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "It is not allowed."}
    end = {"stop_reason": "refusal", "stop_sequence": None, "stop_details": details}
    server.says(
        chunks(
            anthropic_start(),
            anthropic_event("message_delta", delta=end, usage={"output_tokens": 1}),
            anthropic_event("message_stop"),
        )
    )
    chat = talk(server, ANTHROPIC)
    result = say(chat, "Hello.", stream=True)
    assert result.answer == "It is not allowed."
    state = chat.request.branch.messages[-1].metadata[STATE_KEY]
    assert json.loads(state["response"])["stop_details"] == details


@BOTH
@pytest.mark.parametrize("reason", ["pause_turn", "compaction"])
def test_a_reply_that_anthropic_pauses_is_continued(
    server: WireServer, reason: str, stream: bool
) -> None:
    first = [*anthropic_items("server_tool_use")[:1], ANTHROPIC.text("Let me look. ")]
    second = [*anthropic_items("web_search_tool_result")[1:], ANTHROPIC.text("Here.")]

    def message(blocks: list[Any], stop: str) -> Any:
        if not stream:
            return answer(anthropic_message(*blocks, stop=stop))
        written = [anthropic_block(index, block) for index, block in enumerate(blocks)]
        return chunks(anthropic_start(), *written, anthropic_end(stop))

    server.says(
        message(first, reason),
        message(second, "end_turn"),
        message([ANTHROPIC.text("Yes.")], "end_turn"),
    )
    chat = talk(server, ANTHROPIC)
    result = say(chat, "Where?", stream=stream)
    assert result.answer == "Let me look. Here."
    assert result.metrics.usage.output_tokens == (18 if stream else 6)
    last = server.body["messages"][-1]["content"]
    assert [{**block, "cache_control": None} for block in last] == [
        {**block, "cache_control": None} for block in first
    ]
    say(chat, "Sure?", stream=stream)
    check_anthropic(server.body)
    assert ANTHROPIC.sent(server.body) == [*first, *second]


def test_a_call_that_anthropic_never_answered_stays_here(server: WireServer) -> None:
    call = anthropic_items("server_tool_use")[0]
    blocks = anthropic_block(0, ANTHROPIC.text("Let me.")), anthropic_block(1, call)
    server.says(
        chunks(anthropic_start(), *blocks, anthropic_end("max_tokens")),
        ANTHROPIC.streamed([ANTHROPIC.text("Yes.")]),
    )
    chat = talk(server, ANTHROPIC)
    ask(chat, "Where?", stream=True)
    say(chat, "Sure?", stream=True)
    check_anthropic(server.body)
    assert ANTHROPIC.sent(server.body) == [ANTHROPIC.text("Let me.")]


def test_blocks_may_come_with_the_start_of_a_message(server: WireServer) -> None:
    result = anthropic_items("web_search_tool_result")
    started = {**anthropic_message(*result, ANTHROPIC.call(), stop="tool_use")}
    server.says(
        chunks(anthropic_event("message_start", message=started), anthropic_event("message_stop")),
        ANTHROPIC.streamed([ANTHROPIC.text("It is 3.")]),
    )
    assert say(talk(server, ANTHROPIC), "1 + 2?", stream=True).answer == "It is 3."
    assert ANTHROPIC.sent(server.body) == [*result, ANTHROPIC.call()]


# Google


def google_part(kind: str) -> dict[str, Any]:
    from google.genai import types

    fields = {field.alias or name: field for name, field in types.Part.model_fields.items()}
    part = {kind: sample(fields[kind].annotation)}
    if kind == "functionCall":
        part[kind] = {"name": "add", "args": {"a": 1, "b": 2}}
    takes_text = ("thought", "thoughtSignature", "partMetadata", "speechMetadata")
    return part | ({"text": "x"} if kind in takes_text else {})


@BOTH
@pytest.mark.parametrize("kind", TABLES["google parts"])
def test_a_part_of_google_goes_back(server: WireServer, kind: str, stream: bool) -> None:
    part = google_part(kind)
    chat, _ = play(server, GOOGLE, [part, {"executableCode": {"code": "1"}}], stream=stream)
    followed(server, GOOGLE, [part])
    text, reasoning = shown(chat)
    assert text.startswith("x") == (part.get("text") == "x" and kind != "thought")
    assert (reasoning == "x") == (kind == "thought")


@BOTH
@pytest.mark.parametrize(
    "kind", [kind for _, kind, rule in rows("google candidate") if rule == "detail"]
)
def test_a_detail_of_google_is_kept(server: WireServer, kind: str, stream: bool) -> None:
    from google.genai import types

    names = {field.alias or name: field for name, field in types.Candidate.model_fields.items()}
    detail = sample(names[kind].annotation)
    candidate = {"content": {"role": "model", "parts": [{"text": "Hi."}]}, "finishReason": "STOP"}
    body = {"candidates": [{**candidate, kind: detail}], "modelVersion": "gemini-3-pro"}
    server.says(chunks(event(body)) if stream else answer(body))
    chat = talk(server, GOOGLE)
    assert say(chat, "Hello.", stream=stream).answer == "Hi."
    state = chat.request.branch.messages[-1].metadata[STATE_KEY]
    assert json.loads(state["response"])[kind] == detail
    say(chat, "Sure?", stream=stream)
    check_google(server.body)


@BOTH
@pytest.mark.parametrize(("table", "reason", "outcome"), rows("google reasons"))
def test_a_reason_of_google_has_our_name(
    server: WireServer, table: str, reason: str, outcome: str, stream: bool
) -> None:
    candidate = {"content": {"role": "model", "parts": [{"text": "So far"}]}}
    body = {"candidates": [{**candidate, "finishReason": reason}]}
    server.says(chunks(event(body)) if stream else answer(body))
    chat = talk(server, GOOGLE)
    ask(chat, "Hello.", stream=stream)
    (said,) = [one for one in chat.request.branch.messages if one.text == "So far"]
    assert said.metadata["finish_reason"] == outcome, table


@BOTH
def test_why_google_refused_is_shown(server: WireServer, stream: bool) -> None:
    body = {"promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": "It is not safe."}}
    server.says(chunks(event(body)) if stream else answer(body))
    assert say(talk(server, GOOGLE), "Hello.", stream=stream).answer == "It is not safe."


@BOTH
def test_calls_of_google_without_ids_go_back_without_ids(server: WireServer, stream: bool) -> None:
    signed = {"functionCall": {"name": "add", "args": {"a": 1, "b": 1}}, "thoughtSignature": "U0lH"}
    written = GOOGLE.streamed if stream else GOOGLE.whole
    server.says(written([signed, google_part("functionCall")]), written([GOOGLE.text("2, 3.")]))
    chat = talk(server, GOOGLE)
    assert say(chat, "1 + 1, 1 + 2?", stream=stream).answer == "2, 3."
    check_google(server.body)
    assert GOOGLE.sent(server.body) == [signed, google_part("functionCall")]


# Chat completions


@BOTH
@pytest.mark.parametrize(("table", "reason", "outcome"), rows("chat reasons"))
def test_a_reason_of_a_chat_completion_has_our_name(
    server: WireServer, table: str, reason: str, outcome: str, stream: bool
) -> None:
    message = CHAT.call() if outcome == "tool_calls" else {"content": "So far"}
    whole = answer(completion(**{"content": None, **message}, finish=reason))
    server.says(
        chunks(piece(**message), piece(reason), DONE) if stream else whole,
        answer(completion("Yes.")) if not stream else CHAT.streamed([{"content": "Yes."}]),
    )
    chat = talk(server, CHAT)
    ask(chat, "Hello.", stream=stream)
    said = [one for one in chat.request.branch.messages if "finish_reason" in one.metadata]
    assert said[0].metadata["finish_reason"] == outcome, table
