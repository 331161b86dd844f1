"""Programs written for OpenAI's API by others, unchanged but for the address."""

from __future__ import annotations

import asyncio
from typing import Any

import agents
import langchain_core.messages as messages
import pytest
from langchain_openai import ChatOpenAI as _ChatOpenAI
from openai import AsyncOpenAI

from sennit.testing import ToolCall
from tests.openai_client import Chat, served

ChatOpenAI: Any = _ChatOpenAI  # it takes plain texts, whatever its types say


def weather(city: str) -> str:
    """The forecast for a city.

    Args:
        city: Where to look.
    """
    return f"rain in {city}"


@pytest.fixture(autouse=True)
def _no_tracing() -> None:
    agents.set_tracing_disabled(True)


SCRIPT = ([ToolCall("weather", {"city": "Oslo"}, "call_1")], "It rains.", "Take a coat.")


async def talk(chat: Chat, kind: Any, **more: Any) -> list[str]:
    """Two questions to an agent with a tool; gives its answers."""
    async with AsyncOpenAI(base_url=f"{chat.server.url}/v1", api_key="none") as openai:
        agent = agents.Agent(
            name="Forecaster",
            instructions="Be brief.",
            model=kind("sage", openai),
            tools=[agents.function_tool(weather)],
        )
        first = await agents.Runner.run(agent, "Weather in Oslo?")
        if more:
            second = await agents.Runner.run(
                agent, "What to wear?", previous_response_id=first.last_response_id
            )
        else:
            history = [*first.to_input_list(), {"role": "user", "content": "What to wear?"}]
            second = await agents.Runner.run(agent, history)
        return [first.final_output, second.final_output]


@pytest.mark.parametrize("kind", ["OpenAIChatCompletionsModel", "OpenAIResponsesModel"])
def test_the_openai_agents_sdk_runs_its_tools_on_one_branch(kind: str) -> None:
    with served(*SCRIPT) as chat:
        answers = asyncio.run(talk(chat, getattr(agents, kind)))
        assert answers == ["It rains.", "Take a coat."]
        assert "rain in Oslo" in str(chat.asked(1))
        (session,) = chat.sessions()
        (branch,) = chat.branches(session["id"])
        assert branch["message_count"] == 7  # with the instructions


def test_the_openai_agents_sdk_continues_a_response() -> None:
    with served(*SCRIPT) as chat:
        answers = asyncio.run(talk(chat, agents.OpenAIResponsesModel, continued=True))
        assert answers == ["It rains.", "Take a coat."]
        assert [one["role"] for one in chat.asked()] == [
            "system",
            "user",
            "assistant",
            "tool",
            "assistant",
            "user",
        ]


def test_the_openai_agents_sdk_streams() -> None:
    async def run(chat: Chat) -> str:
        async with AsyncOpenAI(base_url=f"{chat.server.url}/v1", api_key="none") as openai:
            model = agents.OpenAIResponsesModel("sage", openai)
            result = agents.Runner.run_streamed(agents.Agent(name="A", model=model), "Tie it.")
            deltas = [
                event.data.delta
                async for event in result.stream_events()
                if event.type == "raw_response_event"
                and event.data.type == "response.output_text.delta"
            ]
            assert "".join(deltas) == result.final_output
            return result.final_output

    with served("Over, under, through. " * 10, chunk=9) as chat:
        assert asyncio.run(run(chat)) == "Over, under, through. " * 10


QUESTIONS = ("Weather in Oslo?", "What to wear?", "What to wear?")
ANSWERS = ("It rains.", "A coat.", "A coat.")


async def talk_in_a_conversation(chat: Chat, streams: bool) -> list[Any]:
    """Three questions, of which two are the same, in a conversation of the SDK; gives its items."""
    async with AsyncOpenAI(base_url=f"{chat.server.url}/v1", api_key="none") as openai:
        agent = agents.Agent(
            name="Forecaster",
            instructions="Be brief.",
            model=agents.OpenAIResponsesModel("sage", openai),
            tools=[agents.function_tool(weather)],
        )
        session: Any = agents.OpenAIConversationsSession(
            openai_client=openai, session_settings={"limit": 50}
        )
        for question, answer in zip(QUESTIONS, ANSWERS, strict=True):
            if streams:
                result: Any = agents.Runner.run_streamed(agent, question, session=session)
                async for _ in result.stream_events():
                    pass
            else:
                result = await agents.Runner.run(agent, question, session=session)
            assert result.final_output == answer
        return await session.get_items()


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_a_conversation_of_the_agents_sdk_is_stored_once(streams: bool) -> None:
    with served(SCRIPT[0], *ANSWERS) as chat:
        items = asyncio.run(talk_in_a_conversation(chat, streams))
        said = [item["content"][0]["text"] for item in items if item["type"] == "message"]
        pairs = zip(QUESTIONS, ANSWERS, strict=True)
        assert said == [text for pair in pairs for text in pair]
        assert [item["type"] for item in items][1:3] == ["function_call", "function_call_output"]
        (session,) = chat.sessions()
        assert sorted(everything_in(chat, session["id"])) == sorted(
            ["Weather in Oslo?", "It rains.", *QUESTIONS[1:], *ANSWERS[1:]]
        )


def everything_in(chat: Chat, session: str) -> list[str]:
    """What people and the model said on all branches of a session, each message once."""
    found: dict[str, str] = {}
    for branch in chat.branches(session):
        path = f"/api/sessions/{session}/branches/{branch['id']}/messages"
        for message in chat.server.get(path).json()["messages"]:
            if message["kind"] in ("instruction", "answer"):
                found[message["id"]] = message["text"]
    return list(found.values())


def test_langchain_talks_streams_and_calls_tools() -> None:
    with served(*SCRIPT) as chat:
        model = ChatOpenAI(
            base_url=f"{chat.server.url}/v1", api_key="none", model="sage", max_retries=0
        )
        asker = model.bind_tools([weather])
        history: list[Any] = [
            messages.SystemMessage("Be brief."),
            messages.HumanMessage("Weather in Oslo?"),
        ]
        asked = asker.invoke(history)
        (call,) = asked.tool_calls
        assert (call["name"], call["args"]) == ("weather", {"city": "Oslo"})
        history += [asked, messages.ToolMessage(weather(**call["args"]), tool_call_id=call["id"])]
        said = asker.invoke(history)
        assert said.content == "It rains."
        assert said.usage_metadata["total_tokens"] > 0
        history += [said, messages.HumanMessage("What to wear?")]
        assert "".join(one.content for one in model.stream(history)) == "Take a coat."
        (session,) = chat.sessions()
        (branch,) = chat.branches(session["id"])
        assert branch["message_count"] == 7


def test_langchain_gets_an_answer_in_a_form() -> None:
    schema = {
        "title": "Knot",
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
        "additionalProperties": False,
    }
    with served('{"name": "bowline"}', supports_output_schema=True) as chat:
        model = ChatOpenAI(base_url=f"{chat.server.url}/v1", api_key="none", model="sage")
        shaped = model.with_structured_output(schema, method="json_schema")
        assert shaped.invoke("Name a knot.") == {"name": "bowline"}
