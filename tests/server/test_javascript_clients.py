"""Clients in JavaScript, unchanged but for the base URL; see tests/javascript/clients.mjs.

They are installed from the package registry, which takes some ten seconds and 250 MB; without Node
20 or newer and npm the tests are skipped.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import subprocess
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from sennit.services.models.reply import Reply, ReplyReasoning, ReplyText
from sennit.services.models.request import ModelRequest
from sennit.services.tools.tool import Tool
from sennit.testing import ScriptedModel, ToolCall
from tests.http_server import Running, serving

FOLDER = Path(__file__).parents[1] / "javascript"
CLIENTS = re.findall(
    r"^  '?([a-z_ -]+)'?: (?:\(\) =>|of)",
    (FOLDER / "clients.mjs").read_text().split("const clients")[1],
    re.M,
)
LONG = "over and under and " * 500
EXPECTED: dict[str, Any] = {
    "plain": "You said: one",
    "stream": "You said: two",
    "tools": "Rain and sun.",
    "toolsStreamed": "Rain and sun.",
    "schema": {"name": "bowline", "slips": False},
    "picture": "A picture.",
    "thinking": ["Ropes differ.", "You said: six"],
    "again": "You said: six",
    "edit": "You said: five",
    "error": 404,
}


def weather(city: str) -> str:
    """The forecast."""
    return f"rain in {city}"


def pay(amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount}"


def answer(request: ModelRequest) -> Any:
    """The reply of the model, by the last message."""
    last = request.messages[-1]
    text = str(last["content"])
    if last["role"] == "tool":
        return "Rain and sun."
    if "weather" in text.lower() and request.tools:
        return [ToolCall("weather", {"city": city}, f"call_{city}") for city in ("Oslo", "Rome")]
    if "schema" in text:
        return '{"name": "bowline", "slips": false}'
    if "picture" in text:
        return "A picture." if "data:image/png;base64," in text else "No picture."
    if text == "pay":
        return [ToolCall("pay", {"amount": 7}, "call_pay")]
    if text == "think":
        return Reply(items=(ReplyReasoning("Ropes differ."), ReplyText("The sheet bend.")))
    if text.endswith("context"):
        return "About ropes." if "The page: is about ropes" in text else "About nothing."
    return LONG if text == "long" else f"You said: {text}"


@pytest.fixture(scope="module")
def node() -> str:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("There is no Node.js with npm on this machine.")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.lstrip("v").partition(".")[0]) < 20:
        pytest.skip(f"Node.js {version.strip()} is older than 20.")
    wanted, installed = FOLDER / "package-lock.json", FOLDER / "node_modules" / ".installed"
    with (FOLDER / "package.json").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # tests run in several processes
        if not installed.exists() or installed.read_bytes() != wanted.read_bytes():
            install = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
            subprocess.run(install, cwd=FOLDER, check=True, capture_output=True, timeout=280)
            shutil.copy(wanted, installed)
    return node


def conversations(server: Running) -> dict[str, list[list[str]]]:
    """What is stored: the texts of each branch, by the first words of its session."""
    stored: dict[str, list[list[str]]] = {}
    for session in server.get("/api/sessions?limit=100").json()["sessions"]:
        path = f"/api/sessions/{session['id']}"
        for branch in server.get(path).json()["branches"]:
            messages = server.get(f"{path}/branches/{branch['id']}/messages").json()["messages"]
            texts = [one["text"] for one in messages if one["role"] != "system"]
            stored.setdefault(texts[0].split("\n")[0], []).append(texts)
    return stored


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_in_javascript_finds_all_that_it_uses(node: str, client: str) -> None:
    model = ScriptedModel([answer] * 40, name="sage", chunk=4, delay=0.0005)
    with serving(models=[model]) as server:
        command = [node, "clients.mjs", server.url, client]
        ran = subprocess.run(
            command, cwd=FOLDER, capture_output=True, text=True, timeout=120, check=False
        )
        assert ran.returncode == 0, ran.stderr
        did = json.loads(ran.stdout.splitlines()[-1])
        cancelled = did.pop("cancel", None)
        assert did == {feature: EXPECTED[feature] for feature in did}
        assert {"plain", "stream", "tools", "error"} <= did.keys()
        stored = conversations(server)
        assert {words: len(branches) for words, branches in stored.items()} == {
            words: 2 if words == "three" else 1 for words in stored
        }
        if cancelled is not None:
            assert LONG.startswith(cancelled)
            end = monotonic() + 30
            while len(stored["long"][0]) < 2:
                assert monotonic() < end, "the text before the cancellation was not stored"
                stored = conversations(server)
            assert LONG.startswith(stored["long"][0][1])
            assert len(stored["long"][0][1]) < len(LONG)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_chat_of_the_ai_sdk_is_kept_by_the_server(node: str) -> None:
    model = ScriptedModel([answer] * 40, name="sage", chunk=40, delay=0.002)
    tools = (weather, Tool(pay, needs_approval=True))
    with serving(models=[model], tools=tools, memory=False) as server:
        command = [node, "chat.mjs", server.url]
        ran = subprocess.run(
            command, cwd=FOLDER, capture_output=True, text=True, timeout=120, check=False
        )
        assert ran.returncode == 0, ran.stderr
        did = json.loads(ran.stdout.splitlines()[-1])
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


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_agent_of_ag_ui_is_kept_by_the_server(node: str) -> None:
    model = ScriptedModel([answer] * 40, name="sage", chunk=40)
    tools = (weather, Tool(pay, needs_approval=True))
    with serving(models=[model], tools=tools, memory=False) as server:
        command = [node, "agent.mjs", server.url]
        ran = subprocess.run(
            command, cwd=FOLDER, capture_output=True, text=True, timeout=120, check=False
        )
        assert ran.returncode == 0, ran.stderr
        did = json.loads(ran.stdout.splitlines()[-1])
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
