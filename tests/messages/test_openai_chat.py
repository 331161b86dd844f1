"""OpenAI-style dicts, and the other ways to call add_message."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessage

import sennit
from sennit import (
    ActionRequestContent,
    ActionResponseContent,
    ImagePart,
    InstructionContent,
    InvalidTypeError,
    Message,
    Session,
    TextPart,
    ToolPart,
)
from sennit.errors import ValidationError
from sennit.messages import MessageGroup

CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "tie", "arguments": '{"knot": "bowline"}'},
}


def roles(session: Session) -> list[str]:
    return [message.role.value for message in session.default_branch.messages]


def test_a_whole_chat_of_dicts_is_stored() -> None:
    session = Session(user="ada")
    said: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Tie it."},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "tied"},
        {"role": "assistant", "content": "Done."},
    ]
    groups = [session.add_message(one) for one in said]
    assert roles(session) == ["system", "user", "assistant", "tool", "assistant"]
    _, question, call, result, _ = session.default_branch.messages
    assert question.sender == "ada"
    assert call.content == ActionRequestContent("tie", {"knot": "bowline"}, "c1")
    assert result.content == ActionResponseContent("c1", "tied")
    assert groups[2].parts == (ToolPart("tie", {"knot": "bowline"}, tool_id="c1"),)


def test_the_answers_of_an_openai_client_go_in_as_they_are_dumped() -> None:
    session = Session()
    given = {"role": "assistant", "annotations": []}
    session.add_message({"role": "user", "content": "Tie it.", "name": "grace"})
    session.add_message(
        ChatCompletionMessage.model_validate({**given, "tool_calls": [CALL]}).model_dump()
    )
    session.add_message(
        ChatCompletionMessage.model_validate({**given, "content": "Done."}).model_dump()
    )
    assert roles(session) == ["user", "assistant", "assistant"]
    assert session.default_branch.messages[0].sender == "grace"
    assert session.default_branch.messages[-1].rendered == "Done."
    session.add_message(
        ChatCompletionMessage.model_validate({**given, "refusal": "I will not."}).model_dump()
    )
    session.add_message(
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "Never."}], "name": "sage"}
    )
    *_, no, never = session.default_branch.messages
    assert (no.rendered, never.rendered, never.sender) == ("I will not.", "Never.", "sage")


def test_the_result_of_a_tool_may_name_it() -> None:
    session = Session()
    session.add_message({"role": "assistant", "content": None, "tool_calls": [CALL]})
    session.add_message({"role": "tool", "tool_call_id": "c1", "name": "tie", "content": "tied"})
    result = session.default_branch.messages[-1]
    assert (result.content, result.sender) == (ActionResponseContent("c1", "tied"), "tie")


def test_parts_of_a_dict_are_texts_and_images() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://a.example/x.png", "detail": "low"}}
    group = Session().add_message(
        {"role": "user", "content": [{"type": "text", "text": "What?"}, image]}
    )
    assert group.parts == (TextPart("What?"), ImagePart("https://a.example/x.png", "low"))


@pytest.mark.parametrize(
    "said",
    [
        {"content": "no role"},
        {"role": "narrator", "content": "x"},
        {"role": "user", "content": 5},
        {"role": "user", "content": [{"type": "audio"}]},
        {"role": "user", "content": "x", "tool_calls": [CALL]},
        {"role": "assistant", "content": None},
        {"role": "assistant", "tool_calls": [{"id": "c1"}]},
        {
            "role": "assistant",
            "tool_calls": [{**CALL, "function": {"name": "t", "arguments": "{"}}],
        },
        {"role": "system", "content": ""} | {"name": "x"},
        {"role": "user", "content": "x", "name": 5},
        {"role": "assistant", "content": "x", "refusal": "No."},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///x"}}]},
    ],
    ids=str,
)
def test_a_dict_that_is_no_chat_message_stores_nothing(said: dict[str, Any]) -> None:
    session = Session()
    with pytest.raises(ValidationError):
        session.add_message(said)
    assert len(session.messages) == len(session.branches) == 0


def test_role_and_parts_may_be_named() -> None:
    session = Session()
    group = session.add_message(role="user", parts=[TextPart("Hello")])
    session.add_message(role="assistant", parts="Hi", branches="main")
    assert isinstance(group, MessageGroup)
    assert roles(session) == ["user", "assistant"]
    with pytest.raises(InvalidTypeError, match="not both"):
        session.add_message("user", "x", role="user")  # pyright: ignore


def test_a_branch_may_follow_its_message() -> None:
    session = Session()
    one, two = session.create_branch("one"), session.create_branch("two")
    session.add_message(Message(InstructionContent("a")), one)
    session.add_message(Message(InstructionContent("b")), "two")
    session.add_message(Message(InstructionContent("c")), [one, "two"])
    assert (len(one), len(two)) == (2, 2)
    for wrong in (TextPart("x"), [TextPart("x")], 5):
        with pytest.raises(InvalidTypeError, match="already has its parts"):
            session.add_message(Message(InstructionContent("d")), wrong)  # pyright: ignore


def test_the_role_system_sets_the_system_message() -> None:
    session = Session()
    session.add_message("user", "Hello")
    group = session.add_message("system", "Be brief.")
    assert session.default_branch.system == group.messages[0]
    assert MessageGroup.of(group.messages) == group
    assert MessageGroup.from_json(group.to_json()).parts == group.parts
    with pytest.raises(ValidationError, match="one text"):
        session.add_message("system", [TextPart("a"), TextPart("b")])


@pytest.mark.anyio
async def test_async_callers_have_the_same_ways(tmp_path: Any) -> None:
    async with sennit.open(tmp_path / "a.db") as client:
        session = await client.asession("a")
        await session.aadd_message("system", "Be brief.")
        await session.aadd_message(role="user", parts="Hello")
        await session.aadd_message({"role": "assistant", "content": "Hi"})
        await session.aadd_message(Message(InstructionContent("More")), "main")
        assert roles(session) == ["system", "user", "assistant", "user"]
