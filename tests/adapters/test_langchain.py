"""Chat histories of LangChain on branches."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from datetime import date
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables.history import RunnableWithMessageHistory

import sennit
from sennit import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    AudioPart,
    Client,
    ExistsError,
    FilePart,
    ImagePart,
    InstructionContent,
    TextPart,
)
from sennit.adapters.langchain import SennitChatMessageHistory
from sennit.messages.media import part_record

MESSAGES: list[BaseMessage] = [
    SystemMessage("Be brief."),
    HumanMessage("Weather in Bergen and Oslo?", id="h1"),
    AIMessage(
        "Let me look.",
        id="a1",
        tool_calls=[
            {"name": "weather", "args": {"city": "Bergen"}, "id": "c1", "type": "tool_call"},
            {"name": "weather", "args": {"city": "Oslo"}, "id": "c2", "type": "tool_call"},
        ],
        usage_metadata={"input_tokens": 5, "output_tokens": 3, "total_tokens": 8},
        response_metadata={"model": "m"},
    ),
    ToolMessage("Rain.", tool_call_id="c1"),
    ToolMessage("No such city.", tool_call_id="c2", status="error"),
    AIMessage("It rains in Bergen."),
    HumanMessage(
        [
            {"type": "text", "text": "And here?"},
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        ]
    ),
]


def test_messages_come_back_exactly_also_in_another_process(
    client: Client, elsewhere: Client
) -> None:
    SennitChatMessageHistory(client, "chat").add_messages(MESSAGES)
    assert SennitChatMessageHistory(elsewhere, "chat").messages == MESSAGES


def test_a_message_with_calls_is_a_text_and_its_calls(client: Client) -> None:
    SennitChatMessageHistory(client, "chat").add_messages(MESSAGES[1:5])
    kinds = [m.content.kind for m in client.session("chat").default_branch.messages]
    assert kinds == [
        "instruction",
        "assistant_response",
        "action_request",
        "action_request",
        "action_response",
        "action_response",
    ]


@pytest.mark.parametrize("given", [2**64, float("inf"), "\0", {"\0": 1}])
def test_a_call_whose_arguments_no_message_can_hold_comes_back_exactly(
    client: Client, given: Any
) -> None:
    said = AIMessage("", tool_calls=[{"name": "f", "args": {"given": given}, "id": "c\0"}])
    history = SennitChatMessageHistory(client, "sails")
    history.add_messages([said, ToolMessage("done", tool_call_id="c\0")])
    assert history.messages[0] == said
    call, result = (one.content for one in client.session("sails").default_branch.messages)
    assert isinstance(call, ActionRequestContent)
    assert isinstance(result, ActionResponseContent)
    assert list(call.arguments or ()) == ["value"]
    assert result.request_id == call.call_id


def test_an_artifact_that_is_no_json_comes_back_as_text(client: Client) -> None:
    history = SennitChatMessageHistory(client, "sails")
    history.add_messages([ToolMessage("Noon.", tool_call_id="c1", artifact=date(2026, 11, 18))])
    assert history.messages == [ToolMessage("Noon.", tool_call_id="c1", artifact="2026-11-18")]


def test_what_was_said_elsewhere_comes_as_messages(client: Client) -> None:
    session = client.session("chat")
    session.add_message("user", "Name a knot.")
    session.add_message("assistant", "The bowline.")
    found = SennitChatMessageHistory(client, "chat").messages
    assert [(one.type, one.content) for one in found] == [
        ("human", "Name a knot."),
        ("ai", "The bowline."),
    ]


def test_a_message_that_a_fork_cuts_apart_is_told_from_what_is_left(client: Client) -> None:
    SennitChatMessageHistory(client, "chat").add_messages(MESSAGES[1:3])
    session = client.session("chat")
    session.fork("main", at=1, name="cut")  # after the text, before the calls
    found = SennitChatMessageHistory(client, "chat", branch="cut").messages
    assert [(one.type, one.content) for one in found] == [
        ("human", "Weather in Bergen and Oslo?"),
        ("ai", "Let me look."),
    ]
    assert not any(isinstance(one, AIMessage) and one.tool_calls for one in found)


def test_a_fork_shares_and_a_clear_stays_on_its_branch(client: Client) -> None:
    history = SennitChatMessageHistory(client, "chat")
    history.add_messages(MESSAGES)
    other = history.fork("other")
    history.clear()
    assert history.messages == []
    assert other.messages == MESSAGES
    with pytest.raises(ExistsError):
        history.fork("other")


def test_async_callers_get_the_same(client: Client) -> None:
    async def work() -> tuple[list[BaseMessage], list[BaseMessage]]:
        history = SennitChatMessageHistory(client, "chat")
        await history.aadd_messages(MESSAGES)
        before = await history.aget_messages()
        await history.aclear()
        return before, await history.aget_messages()

    assert asyncio.run(work()) == (MESSAGES, [])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_chain_with_history_remembers(client: Client) -> None:
    prompt = ChatPromptTemplate.from_messages([MessagesPlaceholder("history"), ("human", "{q}")])
    chain = RunnableWithMessageHistory(
        prompt | FakeListChatModel(responses=["The bowline.", "The sheet bend."]),
        lambda session_id: SennitChatMessageHistory(client, session_id),
        input_messages_key="q",
        history_messages_key="history",
    )
    config = {"configurable": {"session_id": "knots"}}
    chain.invoke({"q": "Name a knot."}, config)  # type: ignore[arg-type]
    chain.invoke({"q": "Another."}, config)  # type: ignore[arg-type]
    said = [m.content for m in SennitChatMessageHistory(client, "knots").messages]
    assert said == ["Name a knot.", "The bowline.", "Another.", "The sheet bend."]


PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"


def test_pictures_and_reasoning_are_messages_too(client: Client) -> None:
    blocks: Any = [
        {"type": "text", "text": "What is it?"},
        {"type": "image", "base64": PICTURE, "mime_type": "image/png"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},  # no picture
    ]
    thought: Any = [
        {"type": "reasoning", "reasoning": "A dot?"},
        {"type": "text", "text": "A dot."},
    ]
    asked, answered = HumanMessage(blocks), AIMessage(thought)
    history = SennitChatMessageHistory(client, "chat")
    history.add_messages([asked, answered])
    assert history.messages == [asked, answered]
    question, reply = (one.content for one in client.session("chat").default_branch.messages)
    assert isinstance(question, InstructionContent)
    assert question.images == [f"data:image/png;base64,{PICTURE}"] * 2
    assert isinstance(reply, AssistantResponseContent)
    assert (reply.reasoning, reply.assistant_response) == ("A dot?", "A dot.")


PDF = b"%PDF-1.7 " + bytes(40)
WAV = b"RIFF\x2a\0\0\0WAVEfmt " + bytes(40)


def test_files_and_recordings_are_of_the_message_and_of_the_result(client: Client) -> None:
    data, sound = b64encode(PDF).decode(), b64encode(WAV).decode()
    url = f"data:application/pdf;base64,{data}"
    blocks: Any = [
        {"type": "text", "text": "Read."},
        {"type": "file", "base64": data, "mime_type": "application/pdf"},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": url}},
        {"type": "audio", "base64": sound, "mime_type": "audio/wav"},
        {"type": "file", "url": "https://example.com/b.pdf", "mime_type": "application/pdf"},
    ]
    drawn: Any = [
        {"type": "text", "text": "Drawn."},
        {"type": "image", "base64": PICTURE, "mime_type": "image/png"},
    ]
    messages = [
        HumanMessage(blocks),
        AIMessage("", tool_calls=[{"name": "draw", "args": {}, "id": "c1"}]),
        ToolMessage(drawn, tool_call_id="c1"),
    ]
    history = SennitChatMessageHistory(client, "chat")
    history.add_messages(messages)
    assert history.messages == messages
    stored = client.session("chat").default_branch.messages
    question, result = stored[0].content, stored[-1].content
    assert isinstance(question, InstructionContent)
    parts = stored[0].parts[1:]
    assert parts == [
        FilePart(PDF),
        FilePart(PDF, "a.pdf"),
        AudioPart(WAV),
        FilePart("https://example.com/b.pdf"),
    ]
    assert isinstance(result, ActionResponseContent)
    assert (result.result, result.files) == (
        "Drawn.",
        [part_record(ImagePart(f"data:image/png;base64,{PICTURE}"))],
    )


def test_files_from_elsewhere_come_with_their_messages(client: Client) -> None:
    session = client.session("chat")
    session.add_message("user", ["Read.", FilePart(PDF, "a.pdf"), AudioPart(WAV)])
    session.add_message("user", [FilePart("https://example.com/b.pdf")])
    first, second = SennitChatMessageHistory(client, "chat").messages
    file, audio = cast("list[Any]", first.content_blocks[1:])
    assert (file["type"], file["base64"]) == ("file", b64encode(PDF).decode())
    assert (audio["type"], audio["base64"]) == ("audio", b64encode(WAV).decode())
    (address,) = cast("list[Any]", second.content_blocks)
    assert (address["type"], address["url"]) == ("file", "https://example.com/b.pdf")


def test_a_picture_from_elsewhere_comes_with_its_message(client: Client) -> None:
    session = client.session("chat")
    url = f"data:image/png;base64,{PICTURE}"
    session.add_message("user", [TextPart("What is it?"), ImagePart(url)])
    (question,) = SennitChatMessageHistory(client, "chat").messages
    picture: Any = question.content_blocks[1]
    assert (picture["base64"], picture["mime_type"]) == (PICTURE, "image/png")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@given(
    st.lists(
        st.sampled_from("abc").map(HumanMessage)
        | st.sampled_from("abc").map(AIMessage)
        | st.just(None),
        max_size=12,
    )
)
def test_it_does_what_the_history_in_memory_does(acts: list[BaseMessage | None]) -> None:
    with sennit.open(":memory:") as opened:
        ours, theirs = SennitChatMessageHistory(opened, "chat"), InMemoryChatMessageHistory()
        for act in acts:
            for history in (ours, theirs):
                history.clear() if act is None else history.add_message(act)
            assert ours.messages == theirs.messages
