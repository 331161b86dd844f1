"""Every example runs as it is, with a provider on loopback, and prints what its docstring shows."""

from __future__ import annotations

import ast
import asyncio
import builtins
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from benchmarks.peers.programs import RULES, USERS
from benchmarks.provider import provider

FOLDER = Path(__file__).parent.parent / "examples"
SERVED = "fastapi_app"
DSPY = "dspy_program"
EXAMPLES = sorted(path for path in FOLDER.glob("*.py") if path.stem not in (SERVED, DSPY))
INPUTS = {
    "chatbot": ["Name a knot that does not slip.", "And one that slips?", ""],
    "support_agent": ["Please refund order 1042.", "y"],
}
ENDED: list[dict[str, object]] = []
"""The variables of examples that have run: their connections are closed when the process ends."""


@pytest.fixture(scope="module")
def environment() -> Iterator[Mapping[str, str]]:
    with provider(RULES) as variables:
        yield variables | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}


@pytest.fixture
def workplace(
    tmp_path: Path, environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """An empty folder that is the working directory, with the provider's variables set."""
    monkeypatch.chdir(tmp_path)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def shown(example: Path) -> str:
    """The output in the docstring: its indented lines, without the commands."""
    docstring = ast.get_docstring(ast.parse(example.read_text())) or ""
    lines = [line.removeprefix("    ") for line in docstring.splitlines() if line[:4] == "    "]
    return "".join(f"{line}\n" for line in lines if not line.startswith("$ "))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_runs_and_prints_what_its_docstring_shows(
    example: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = iter(INPUTS.get(example.stem, []))

    def answer(prompt: str) -> str:
        line = next(typed)
        if line:
            print(f"{prompt}{line}")
        return line

    monkeypatch.setattr(builtins, "input", answer)
    printed = StringIO()
    with redirect_stdout(printed):
        ENDED.append(runpy.run_path(str(example), run_name="__main__"))
    assert printed.getvalue() == shown(example)


@pytest.mark.timeout(120)  # the import of DSPy takes seconds
def test_the_dspy_program_prints_what_its_docstring_shows(workplace: Path) -> None:
    example = FOLDER / f"{DSPY}.py"
    # In a process of its own: DSPy's settings are global, and LiteLLM leaves event loops open.
    ended = subprocess.run(
        [sys.executable, example], capture_output=True, text=True, timeout=100, check=True
    )
    assert ended.stdout == shown(example)


def test_the_chatbot_shows_what_was_said_when_it_is_started_again(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chatbot = str(FOLDER / "chatbot.py")
    typed = iter(["Name a knot that does not slip.", "", ""])
    monkeypatch.setattr(builtins, "input", lambda _: next(typed))
    with redirect_stdout(StringIO()):
        ENDED.append(runpy.run_path(chatbot))
    printed = StringIO()
    with redirect_stdout(printed):
        ENDED.append(runpy.run_path(chatbot))
    assert "user: Name a knot that does not slip.\nassistant: The bowline.\n" in printed.getvalue()


def test_the_batch_labels_only_the_rest_when_it_is_started_again(workplace: Path) -> None:
    for kind in ("billing", "done before"):
        printed = StringIO()
        with redirect_stdout(printed):
            ENDED.append(runpy.run_path(str(FOLDER / "batch_labelling.py")))
        assert printed.getvalue().startswith(f"ticket-1 {kind}: I was charged twice.\n")


class Agent:
    """The support agent as a process."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, FOLDER / "support_agent.py"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def read_until(self, end: str) -> str:
        """Read its output up to a text."""
        assert self.process.stdout is not None
        output = b""
        while not output.endswith(end.encode()):
            byte = self.process.stdout.read(1)
            assert byte, f"The agent ended after printing {output.decode()!r}."
            output += byte
        return output.decode()

    def type(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def rest(self) -> str:
        """Wait for its end; return what it still printed."""
        output, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0
        return output.decode()


@pytest.mark.timeout(120)  # three processes that import a provider
@pytest.mark.skipif(os.name == "nt", reason="a named pipe holds the tool up")
def test_the_support_agent_goes_on_where_it_was_killed_and_refunds_once(
    tmp_path: Path, environment: Mapping[str, str]
) -> None:
    ledger = tmp_path / "refunds.txt"
    os.mkfifo(ledger)
    asking = Agent(tmp_path, environment)
    asking.type("Please refund order 1042.")
    asking.read_until("[y/n] ")
    asking.kill()

    refunding = Agent(tmp_path, environment)
    assert "How can I help?" not in refunding.read_until("[y/n] ")
    refunding.type("y")
    with ledger.open() as pipe:  # it is inside the tool now
        assert pipe.readline() == "1042\n"
        refunding.kill()

    ledger.unlink()
    again = Agent(tmp_path, environment)
    assert again.rest() == "Order 1042, a kettle, is refunded.\n"
    assert not ledger.exists()


def test_the_fastapi_app_serves_twenty_users_at_once(workplace: Path) -> None:
    ENDED.append(runpy.run_path(str(FOLDER / f"{SERVED}.py")))
    app = ENDED[-1]["app"]
    assert isinstance(app, FastAPI)

    async def chat(http: httpx.AsyncClient, user: str) -> None:
        hello, question = await asyncio.gather(  # one after the other, in this order
            http.post(f"/chat/{user}", json={"text": f"I am {user}."}),
            http.post(f"/chat/{user}", json={"text": f"I am {user}."}),
        )
        assert hello.json() == question.json() == f"Hello, {user}."
        who = await http.post(f"/chat/{user}", json={"text": "Who am I?"})
        assert who.json() == f"You are {user}."
        history = (await http.get(f"/chat/{user}")).json()
        assert history[-2:] == ["user: Who am I?", f"assistant: You are {user}."]
        assert len(history) == 6

    async def chat_at_once() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            await asyncio.gather(*(chat(http, user) for user in USERS))

    asyncio.run(chat_at_once())
