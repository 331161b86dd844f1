"""What a provider signed goes back to it although nothing is stored: the client keeps it."""

from __future__ import annotations

from typing import Any

import pytest

from sennit.messages.provider_state import STATE_KEY, ProviderState, StatePart
from sennit.services.models.reply import Reply, ReplyCall, ReplyReasoning, ReplyText
from tests.openai_client import Chat, served
from tests.server.openai.test_responses import WEATHER

INCLUDE = {"store": False, "include": ["reasoning.encrypted_content"]}
SIGNED = (
    StatePart("reasoning", "Rain?", '{"signature": "abc"}'),
    StatePart("call", "call_1", '{"id": "call_1"}'),
)
CALLING = Reply(
    (ReplyReasoning("Rain?"), ReplyCall("call_1", "weather", '{"city": "Oslo"}')),
    state=ProviderState("anthropic", "{}", SIGNED),
)
TEXT = Reply(
    (ReplyReasoning("Ropes."), ReplyText("The bowline.")),
    state=ProviderState("anthropic", "{}", (StatePart("text", "The bowline.", "{}"),)),
)
USER = {"role": "user", "content": "Weather?"}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "rain"}


def ask(chat: Chat, items: list[Any], stream: bool) -> list[dict[str, Any]]:
    """The output items of a response, as the client sends them back."""
    more = {**INCLUDE, "tools": [WEATHER]}
    response = chat.openai.responses.create(model="sage", input=items, stream=stream, **more)
    if stream:
        *events, last = response
        done = [one.item.id for one in events if one.type == "response.output_item.done"]
        response = last.response
        assert done == [item.id for item in response.output]
    return [item.to_dict() for item in response.output]


def state(chat: Chat) -> list[Any]:
    return [one[STATE_KEY] for one in chat.asked() if STATE_KEY in one]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_signed_reasoning_and_calls_go_back_to_the_provider(stream: bool) -> None:
    with served(CALLING, TEXT, "Yes.") as chat:
        first = ask(chat, [USER], stream)
        assert [item["type"] for item in first] == ["reasoning", "function_call", "reasoning"]
        second = ask(chat, [USER, *first, RESULT], stream)
        (sent,) = state(chat)
        assert (sent["provider"], sent["parts"]) == (
            "anthropic",
            ['{"signature": "abc"}', '{"id": "call_1"}'],
        )
        ask(chat, [USER, *first, RESULT, *second, {"role": "user", "content": "Sure?"}], stream)
        assert len(state(chat)) == 2
        assert chat.sessions() == []


def test_a_reply_that_the_client_changed_or_sealed_itself_brings_no_state() -> None:
    with served(TEXT, *["Yes."] * 4) as chat:
        reasoning, text, sealed = ask(chat, [USER], False)
        more = {"role": "user", "content": "Sure?"}
        changed = {**text, "content": [{"type": "output_text", "text": "The granny knot."}]}
        content = sealed["encrypted_content"]
        forged = {**sealed, "encrypted_content": ("A" if content[0] != "A" else "B") + content[1:]}
        for items in (
            [changed, sealed],
            [text, forged],
            [text, {**sealed, "encrypted_content": "gAAAA"}],
            [sealed, text],
        ):
            ask(chat, [USER, reasoning, *items, more], False)
            assert state(chat) == []


def test_nothing_is_sealed_for_who_does_not_ask_or_without_state() -> None:
    with served(TEXT, TEXT, "Plain.") as chat:
        create = chat.openai.responses.create
        assert len(create(model="sage", input="x", store=False).output) == 2
        assert len(create(model="sage", input="x", include=INCLUDE["include"]).output) == 2
        assert len(create(model="sage", input="x", **INCLUDE).output) == 1


def test_reasoning_without_text_before_a_call_goes_back_from_the_store_too() -> None:
    with served(CALLING, TEXT) as chat:
        create = chat.openai.responses.create
        first = create(model="sage", input=[USER], tools=[WEATHER])
        create(model="sage", input=[RESULT], previous_response_id=first.id)
        (sent,) = state(chat)
        assert sent["parts"] == ['{"signature": "abc"}', '{"id": "call_1"}']
