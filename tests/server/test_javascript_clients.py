"""The clients of the page protocols, in JavaScript: `useChat` of the AI SDK, and AG-UI's own."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from sennit.services.tools.tool import Tool
from sennit.testing import ScriptedModel, ToolCall
from tests.client_programs import JAVASCRIPT, LONG, TESTS, node, run, sage
from tests.http_server import serving


def weather(city: str) -> str:
    """The forecast."""
    return f"rain in {city}"


def pay(amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount}"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_chat_of_the_ai_sdk_is_kept_by_the_server() -> None:
    tools = (weather, Tool(pay, needs_approval=True))
    with serving(models=[sage(chunk=40, delay=0.002)], tools=tools, memory=False) as server:
        did = run([node(), str(JAVASCRIPT / "chat.mjs")], server.url)
        talked = [["Name a knot."], ["You said: Name a knot."], ["Why?"], ["You said: Why?"]]
        assert did["talked"] == did["regenerated"] == talked
        assert did["edited"] == did["reloaded"] == [["Another."], ["You said: Another."]]
        rain = [
            ["tool-weather", "output-available", f"rain in {city}"] for city in ("Oslo", "Rome")
        ]
        assert did["tools"] == [*rain, "Rain and sun."]
        assert did["waiting"] == [["tool-pay", "approval-requested", None]]
        paid = [["tool-pay", "output-available", "paid 7"], "Rain and sun."]
        assert did["approved"] == [["pay"], paid]
        assert did["left"] == [["long"]]
        assert did["resumed"] == [["long"], [LONG]]
        assert did["failures"] == []
        branches = server.get("/api/sessions/knots").json()["branches"]
        assert sorted(branch["message_count"] for branch in branches) == [4, 4, 8]


# A browser resolves addresses against the page, and asks people.
BROWSER = """
const ask = globalThis.fetch
globalThis.fetch = (path, options) => ask(new URL(path, process.env.SERVER_URL), options)
globalThis.confirm = (message) => message === 'Run pay with {"amount":7}?'
console.log = (messages) => process.stdout.write(JSON.stringify(messages))
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_page_in_the_documentation_of_ag_ui_runs() -> None:
    page = (TESTS.parent / "docs" / "ag-ui.md").read_text(encoding="utf-8")
    program = page.split("```js\n")[1].split("```")[0]
    model = ScriptedModel([[ToolCall("pay", {"amount": 7}, "call_pay")], "Paid."])
    with serving(models=[model], tools=(Tool(pay, needs_approval=True),), memory=False) as server:
        ran = subprocess.run(
            [node(), "--input-type=module", "-"],
            cwd=JAVASCRIPT,
            env={**os.environ, "SERVER_URL": server.url},
            input=BROWSER + program,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        messages = json.loads(ran.stdout)
        assert [one["role"] for one in messages] == ["user", "assistant", "tool", "assistant"]
        assert messages[-1]["content"] == "Paid."


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_conversation_of_the_agents_sdk_is_stored_once_after_its_first_exchange() -> None:
    with serving(models=[sage()], memory=False) as server:
        did = run([node(), str(JAVASCRIPT / "conversation.mjs")], server.url)
        questions = ["one", "two", "two", "three"]
        assert did["answers"] == [f"You said: {question}" for question in questions]
        pairs = zip(questions, did["answers"], strict=True)
        assert did["items"] == [text for pair in pairs for text in pair]
        sessions = server.get("/api/sessions").json()["sessions"]
        ids: list[set[str]] = []
        for session in sessions:
            path = f"/api/sessions/{session['id']}"
            ids.append(set())
            for branch in server.get(path).json()["branches"]:
                messages = server.get(f"{path}/branches/{branch['id']}/messages").json()["messages"]
                ids[-1] |= {message["id"] for message in messages}
        # It adds the first question after its answer, so the server cannot know where it belongs.
        assert sorted(map(len, ids)) == [2, 8]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_agent_of_ag_ui_is_kept_by_the_server() -> None:
    tools = (weather, Tool(pay, needs_approval=True))
    with serving(models=[sage(chunk=40)], tools=tools, memory=False) as server:
        did = run([node(), str(JAVASCRIPT / "agent.mjs")], server.url)
        start = [["user", "Name a knot."], ["assistant", "You said: Name a knot."]]
        thought = [["user", "think"], ["reasoning", "Ropes differ."]]
        assert (
            did["talked"]
            == did["reloaded"]
            == [
                *start,
                *thought,
                ["assistant", "The sheet bend."],
            ]
        )
        assert did["tools"] == [
            ["user", "weather"],
            ["assistant", ["weather", "weather"]],
            ["tool", "rain in Oslo"],
            ["tool", "rain in Rome"],
            ["assistant", "Rain and sun."],
        ]
        assert did["edited"] == [*start, ["user", "Another."], ["assistant", "You said: Another."]]
        assert did["interrupts"] == [["tool_approval", 'Run pay with {"amount":7}?', "call_pay"]]
        assert did["approved"] == [
            ["user", "pay"],
            ["assistant", ["pay"]],
            ["tool", "paid 7"],
            ["assistant", "Rain and sun."],
        ]
        assert did["context"][-1] == ["assistant", "About ropes."]
        branches = server.get("/api/sessions/knots").json()["branches"]
        assert sorted(branch["message_count"] for branch in branches) == [4, 10]
