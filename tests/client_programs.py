"""Programs that use clients of other makers, and the model that answers them.

The clients in JavaScript are in tests/javascript, those in Python in tests/clients. Clients that
`.venv` cannot hold are installed here from the package registries (by npm some 20 seconds and 250
MB); without Node 20 or newer, npm or a registry their tests are skipped.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sennit import ModelError
from sennit.services.models.reply import Reply, ReplyReasoning, ReplyText
from sennit.services.models.request import ModelRequest
from sennit.testing import ScriptedModel, ToolCall
from tests.http_server import Running

TESTS = Path(__file__).parent
JAVASCRIPT, PYTHON = TESTS / "javascript", TESTS / "clients"
LONG = "over and under and " * 500


def answer(request: ModelRequest) -> Any:
    """The reply of the model, by the last message and the tools."""
    last, tools = request.messages[-1], [tool.name for tool in request.tools]
    text = str(last["content"])
    if last["role"] == "tool":
        return "Rain and sun."
    if tools == ["Knot"]:
        return [ToolCall("Knot", {"name": "bowline", "slips": False}, "call_knot")]
    if "weather" in text.lower() and tools:
        return [ToolCall(tools[0], {"city": city}, f"call_{city}") for city in ("Oslo", "Rome")]
    if "picture" in text and "data:image/png;base64," not in text:
        return "No picture."
    if "schema" in text:
        return '{"name": "bowline", "slips": false}'
    if "too much" in text:
        return ModelError("The prompt has 9,000 tokens.", kind="context")
    if "too often" in text:
        return ModelError("Slow down.", kind="rate_limit", retry_after=7)
    if text.endswith("context"):
        return "About ropes." if "The page: is about ropes" in text else "About nothing."
    fixed = {
        "pay": [ToolCall("pay", {"amount": 7}, "call_pay")],
        "think": Reply(items=(ReplyReasoning("Ropes differ."), ReplyText("The sheet bend."))),
        "long": LONG,
    }
    return fixed.get(text, "A picture." if "picture" in text else f"You said: {text}")


def sage(**more: Any) -> ScriptedModel:
    """The model of the server that the clients use."""
    return ScriptedModel([answer] * 200, name="sage", **more)


def node() -> str:
    """Node.js, with the clients in JavaScript installed."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("There is no Node.js with npm on this machine.")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.lstrip("v").partition(".")[0]) < 20:
        pytest.skip(f"Node.js {version.strip()} is older than 20.")
    _install(
        JAVASCRIPT / "package-lock.json",
        JAVASCRIPT / "node_modules" / ".installed",
        [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
    )
    return node


def python() -> str:
    """A Python with the clients whose requirements contradict ours, or that `.venv` excludes."""
    environment = TESTS.parent / ".venv-clients"
    _install(
        PYTHON / "requirements.txt",
        environment / ".installed",
        ["make", "--no-print-directory", "-C", str(TESTS.parent), ".venv-clients/.synced"],
    )
    return str(environment / "bin" / "python")


def _install(wanted: Path, installed: Path, command: Sequence[str]) -> None:
    """Install packages once for what is wanted, though tests run in several processes."""
    with wanted.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if installed.exists() and installed.read_bytes() == wanted.read_bytes():
            return
        done = subprocess.run(
            command, cwd=wanted.parent, capture_output=True, text=True, timeout=280, check=False
        )
        if done.returncode:
            pytest.skip(f"The clients could not be installed: {done.stderr[-300:]}")
        shutil.copy(wanted, installed)


PROGRAMS: dict[str, Callable[[], list[str]]] = {
    "javascript": lambda: [node(), str(JAVASCRIPT / "clients.mjs")],
    "python": lambda: [sys.executable, str(PYTHON / "clients.py")],
    "python, elsewhere": lambda: [python(), str(PYTHON / "clients.py")],
}
"""The commands by the language of a client and where it is installed."""


def run(command: Sequence[str], *arguments: str) -> Any:
    """What a program printed, as JSON."""
    ran = subprocess.run(
        [*command, *arguments],
        cwd=Path(command[-1]).parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


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
