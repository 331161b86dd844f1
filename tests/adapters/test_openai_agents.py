"""Sessions of the OpenAI Agents SDK on branches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from agents import Agent, RunConfig, Runner, SQLiteSession, function_tool
from agents.items import ModelResponse
from agents.memory import Session, SessionSettings
from agents.models.interface import Model
from agents.usage import Usage
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

import sennit
from sennit import (
    ActionResponseContent,
    AssistantResponseContent,
    AudioPart,
    Client,
    FilePart,
    ImagePart,
    InstructionContent,
    Message,
    OutOfRangeError,
    ToolPart,
)
from sennit.adapters.openai_agents import SennitSession
from sennit.messages.media import part_record

ITEMS: list[Any] = [
    {"role": "user", "content": "What is the weather?"},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Look."}]},
    {
        "type": "function_call",
        "call_id": "c1",
        "name": "weather",
        "arguments": '{"city":"Bergen"}',
        "id": "fc_1",
        "status": "completed",
    },
    {"type": "function_call_output", "call_id": "c1", "output": "Rain."},
    {
        "type": "message",
        "role": "assistant",
        "id": "msg_1",
        "status": "completed",
        "content": [{"type": "output_text", "text": "It rains.", "annotations": []}],
    },
    {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "And here?"},
            {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "auto"},
            {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"},
        ],
    },
    {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    {"role": "developer", "content": "Be brief."},
]


def test_it_is_a_session_as_the_sdk_asks_for(client: Client) -> None:
    assert isinstance(SennitSession(client, "chat"), Session)


def test_items_come_back_exactly_also_in_another_process(client: Client, elsewhere: Client) -> None:
    asyncio.run(SennitSession(client, "chat").add_items(ITEMS))
    assert asyncio.run(SennitSession(elsewhere, "chat").get_items()) == ITEMS


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@settings(max_examples=30)
@given(st.lists(st.dictionaries(st.text(), json) | st.sampled_from(ITEMS), max_size=5))
def test_any_item_of_json_comes_back_exactly(items: list[Any]) -> None:
    async def there_and_back() -> list[Any]:
        with sennit.open(":memory:") as client:
            session = SennitSession(client, "any")
            await session.add_items(items)
            return await session.get_items()

    assert asyncio.run(there_and_back()) == items


def test_what_an_agent_said_reads_as_messages(client: Client) -> None:
    asyncio.run(SennitSession(client, "chat").add_items(ITEMS[:5]))
    branch = client.session("chat").default_branch
    assert [message.content.kind for message in branch.messages] == [
        "instruction",
        "assistant_response",
        "action_request",
        "action_response",
        "assistant_response",
    ]
    assert "It rains." in [hit.snippet for hit in client.search_messages("rains")]


def test_what_was_said_elsewhere_comes_as_items(client: Client) -> None:
    session = client.session("chat")
    session.add_message("user", "Name a knot.")
    session.add_message("assistant", "The bowline.")
    assert asyncio.run(SennitSession(client, "chat").get_items()) == [
        {"role": "user", "content": "Name a knot."},
        {"role": "assistant", "content": "The bowline."},
    ]


def test_an_edited_item_says_what_it_was_edited_to(client: Client) -> None:
    asyncio.run(SennitSession(client, "chat").add_items(ITEMS[:1]))
    branch = client.session("chat").default_branch
    branch.edit(0, "What is the time?", name="edited")
    items = asyncio.run(SennitSession(client, "chat", branch="edited").get_items())
    assert items == [{"role": "user", "content": "What is the time?"}]


def test_a_call_that_was_answered_elsewhere_keeps_its_answer(client: Client) -> None:
    asyncio.run(SennitSession(client, "chat").add_items(ITEMS[:3]))
    session = client.session("chat")
    answer = Message(ActionResponseContent(request_id="c1", result="Rain."))
    session.add_message(answer, branches="main")
    items: Any = asyncio.run(SennitSession(client, "chat").get_items())
    assert [one.get("call_id") for one in items][-2:] == ["c1", "c1"]
    assert items[-1]["output"] == "Rain."


@pytest.mark.parametrize("settings", [SessionSettings(limit=3), {"limit": 3}])
def test_a_limit_gives_the_newest_items(client: Client, settings: Any) -> None:
    asyncio.run(SennitSession(client, "chat").add_items(ITEMS))
    limited = SennitSession(client, "chat", session_settings=settings)
    assert asyncio.run(limited.get_items()) == ITEMS[-3:]
    assert asyncio.run(limited.get_items(2)) == ITEMS[-2:]
    assert asyncio.run(limited.get_items(0)) == []


def test_pop_and_clear_change_this_branch_alone(client: Client) -> None:
    async def work() -> tuple[Any, list[Any], list[Any]]:
        session = SennitSession(client, "chat")
        await session.add_items(ITEMS)
        other = await session.fork("other")
        popped = await session.pop_item()
        left = await session.get_items()
        await session.clear_session()
        assert await session.get_items() == []
        assert await session.pop_item() is None
        return popped, left, await other.get_items()

    popped, left, other = asyncio.run(work())
    assert (popped, left, other) == (ITEMS[-1], ITEMS[:-1], ITEMS)


def test_of_many_pops_in_two_processes_each_gives_another_item(
    client: Client, elsewhere: Client
) -> None:
    items: list[Any] = [{"role": "user", "content": str(number)} for number in range(80)]
    asyncio.run(SennitSession(client, "chat").add_items(items))

    def popped(one: Client) -> list[Any]:
        session = SennitSession(one, "chat")
        return [asyncio.run(session.pop_item()) for _ in range(40)]

    with ThreadPoolExecutor() as pool:
        found = [item for some in pool.map(popped, (client, elsewhere)) for item in some]
    assert sorted(found, key=items.index) == items


def test_pop_gives_what_was_said_by_other_means_too(client: Client) -> None:
    session = client.session("chat")
    session.add_message("user", "Weather?")
    session.add_message("assistant", [ToolPart("look", {"at": "sky"}, tool_id="c1")])
    session.add_message(Message(AssistantResponseContent()), branches="main")
    agents = SennitSession(client, "chat")
    popped = asyncio.run(agents.pop_item())
    assert popped is not None
    assert (popped.get("type"), popped.get("call_id")) == ("function_call", "c1")
    assert asyncio.run(agents.pop_item()) == {"role": "user", "content": "Weather?"}


def test_a_fork_past_the_end_is_refused(client: Client) -> None:
    session = SennitSession(client, "chat")
    asyncio.run(session.add_items(ITEMS[:2]))
    with pytest.raises(OutOfRangeError):
        asyncio.run(session.fork(at=2))


class Scripted(Model):
    """A model that says what it was given, and notes what it heard."""

    def __init__(self, *outputs: Any) -> None:
        self.outputs, self.heard = list(outputs), list[Any]()

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        self.heard.append(args[1] if len(args) > 1 else kwargs["input"])
        return ModelResponse(output=[self.outputs.pop(0)], usage=Usage(), response_id=None)

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise NotImplementedError
        yield


def said(text: str) -> ResponseOutputMessage:
    words = ResponseOutputText(text=text, type="output_text", annotations=[])
    return ResponseOutputMessage(
        id="m", role="assistant", status="completed", type="message", content=[words]
    )


def test_a_runner_goes_on_with_tools_and_history(client: Client, elsewhere: Client) -> None:
    @function_tool
    def weather(city: str) -> str:
        """The weather in a city."""
        return f"Rain in {city}."

    call = ResponseFunctionToolCall(
        call_id="c1", name="weather", arguments='{"city": "Bergen"}', type="function_call"
    )
    model = Scripted(call, said("It rains."), said("Still."))
    agent = Agent(name="a", model=model, tools=[weather])
    quiet = RunConfig(tracing_disabled=True)

    async def talk(text: str, client: Client) -> str:
        session = SennitSession(client, "chat")
        result = await Runner.run(agent, text, session=session, run_config=quiet)
        return result.final_output

    assert asyncio.run(talk("Weather in Bergen?", client)) == "It rains."
    assert asyncio.run(talk("And now?", elsewhere)) == "Still."
    assert [one.get("type", one.get("role")) for one in model.heard[-1]] == [
        "user", "function_call", "function_call_output", "message", "user",
    ]  # fmt: skip
    contents = [m.content for m in elsewhere.session("chat").default_branch.messages]
    assert contents[-1] == AssistantResponseContent("Still.")


acts = st.lists(
    st.lists(st.sampled_from(ITEMS), max_size=3)
    | st.just("pop")
    | st.just("clear")
    | st.integers(-1, 4),
    max_size=10,
)


@given(acts)
def test_it_does_what_the_session_of_the_sdk_does(steps: list[Any]) -> None:
    async def play() -> None:
        theirs = SQLiteSession("s")
        with sennit.open(":memory:") as opened:
            ours = SennitSession(opened, "s")
            for step in steps:
                for_both: list[Any] = []
                for session in (ours, theirs):
                    if step == "pop":
                        for_both.append(await session.pop_item())
                    elif step == "clear":
                        await session.clear_session()
                    elif isinstance(step, int):
                        # SQLite takes a negative limit for none; ours gives nothing
                        for_both.append(await session.get_items(limit=max(step, 0) or None))
                    else:
                        await session.add_items(step)
                if for_both:
                    assert for_both[0] == for_both[1]
                assert await ours.get_items() == await theirs.get_items()
        theirs.close()

    asyncio.run(play())


def test_a_picture_that_is_sent_with_its_bytes_is_one_of_the_message(client: Client) -> None:
    url = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    content: Any = [{"type": "input_image", "image_url": url, "detail": "auto"}]
    session = SennitSession(client, "chat")
    asyncio.run(session.add_items([{"role": "user", "content": content}]))
    (message,) = client.session("chat").default_branch.messages
    assert isinstance(message.content, InstructionContent)
    assert message.content.images == [url]


PDF = b"%PDF-1.7 " + bytes(40)
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
WAV = b"RIFF\x2a\0\0\0WAVEfmt " + bytes(40)


def test_files_of_items_are_of_the_message_and_of_the_result(client: Client) -> None:
    items: Any = [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Read."},
                {"type": "input_file", "filename": "a.pdf", "file_data": FilePart(PDF).url},
                {"type": "input_file", "file_url": "https://example.com/b.pdf"},
                {"type": "input_file", "file_id": "file-1"},
            ],
        },
        {"type": "function_call", "name": "draw", "arguments": "{}", "call_id": "c1"},
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [
                {"type": "input_text", "text": "Drawn."},
                {"type": "input_image", "image_url": ImagePart(PNG).url},
            ],
        },
    ]
    session = SennitSession(client, "chat")
    asyncio.run(session.add_items(items))
    assert asyncio.run(session.get_items()) == items
    question, _, result = client.session("chat").default_branch.messages
    assert question.parts[1:] == [FilePart(PDF, "a.pdf"), FilePart("https://example.com/b.pdf")]
    assert isinstance(result.content, ActionResponseContent)
    assert result.content.result == "Drawn."
    assert result.content.files == [part_record(ImagePart(PNG))]


def test_files_from_elsewhere_come_as_items(client: Client) -> None:
    session = client.session("chat")
    session.add_message("user", ["Read.", FilePart(PDF, "a.pdf"), AudioPart(WAV)])
    call = ToolPart("draw", {}, "Drawn.", tool_id="c1", files=(ImagePart(PNG, "low"),))
    session.add_message("assistant", [call])
    question, _, output = cast("list[Any]", asyncio.run(SennitSession(client, "chat").get_items()))
    assert [part["type"] for part in question["content"]] == [
        "input_text",
        "input_file",
        "input_audio",
    ]
    assert question["content"][1]["filename"] == "a.pdf"
    assert output["output"] == [
        {"type": "input_text", "text": "Drawn."},
        {
            "type": "input_image",
            "image_url": ImagePart(PNG).url,
            "detail": "low",
            "file_id": None,
        },
    ]
