"""A kept conversation told straight from its bodies reads as if it had been made into messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sennit import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
    Message,
    SennitError,
    SystemContent,
    to_model_messages,
)
from sennit.learning.export import stored_rows
from sennit.learning.export.stored_rows import chat_from_rows
from sennit.sessions.records import message_record
from sennit.stores.records.sessions import MessageRecord
from tests.strategies import Analysis, histories


def kept(*contents: Any) -> list[MessageRecord]:
    return [message_record(Message(content)) for content in contents]


def asked(text: str, **more: Any) -> InstructionContent:
    return InstructionContent(instruction=text, **more)


def call(name: str) -> ActionRequestContent:
    return ActionRequestContent(function="look up!", arguments={"q": "é", "n": 1.5}, call_id=name)


@given(histories())
def test_it_reads_as_the_messages_would(history: list[Message]) -> None:
    records = [message_record(message) for message in history]
    restored = [Message.from_stored(one.id, one.created, one.body) for one in records]
    assert chat_from_rows(records) == to_model_messages(restored)


ROUNDS = st.lists(
    st.one_of(
        st.just([]),
        st.just([asked("And?", context=["a fact"], images=["https://example.org/a.png"])]),
        st.just([asked("In shape", response_model=Analysis)]),
        st.just([asked("  ")]),
        st.just([InstructionContent()]),
        st.just([SystemContent(system_message="Be brief.")]),
        st.just([AssistantResponseContent("beside")]),
    ),
    max_size=8,
)


@given(ROUNDS)
def test_sound_rounds_are_told_without_a_message_being_made(between: list[list[Any]]) -> None:
    contents: list[Any] = []
    for number, more in enumerate(between):
        a, b = f"a{number}", f"b{number}"
        contents += [*more, asked(f"question {number}"), AssistantResponseContent("I look")]
        contents += [call(a), call(b)]
        contents += [ActionResponseContent(request_id=a, result={"n": number})]
        contents += [ActionResponseContent(request_id=b, error="not there")]
        contents += [AssistantResponseContent("Found"), AssistantResponseContent("it")]
    records = kept(*contents)
    expected = to_model_messages(
        [Message.from_stored(one.id, one.created, one.body) for one in records]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_rows, "model_messages", None)
        assert chat_from_rows(records) == expected


def test_a_call_without_a_result_is_repaired() -> None:
    records = kept(asked("Look"), call("c1"), asked("Well?"), AssistantResponseContent("No."))
    chat = chat_from_rows(records)
    assert [message["role"] for message in chat] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]
    assert chat[2]["content"].startswith("Error: interrupted")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"type":"nothing","content":{}}', b'{"type":"instruction","content":7}']
)
def test_what_is_not_sound_is_refused_as_a_message_would_be(body: bytes) -> None:
    [record] = kept(asked("x"))
    with pytest.raises(SennitError):
        chat_from_rows([MessageRecord(record.id, 1, body)])
