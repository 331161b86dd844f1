"""The examples beside the same programs for the best rival of each.

Ours are the files of `examples/`. Those in `rivals/` are written from the rivals' documentation, as
short as it allows without leaving out a part of the task, and run in virtual environments of their
own. All ask the scripted provider of `benchmarks.provider`, and must print or answer the same.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from socket import socket
from time import sleep
from urllib.error import URLError
from urllib.request import Request, urlopen

from benchmarks.provider import Rule

_LOOK_UP = {"name": "look_up", "arguments": {"order": "1042"}}
_REFUND = {"name": "refund", "arguments": {"order": "1042"}}
_STEPS = "1. Make a small loop. 2. Pass the end up through it, around the line and back down."
_VERSE = "The rabbit leaves its hole, rounds the tree, and dives."
_DSPY = "[[ ## answer ## ]]"
USERS = [f"user-{number:02}" for number in range(20)]
RULES: Sequence[Rule] = [
    # Mem0's extraction, which is also shown earlier messages; Sennit extracts without a model.
    (["Memory Extractor", "Lisbon"], ['{"memory": [{"text": "Lives in Lisbon"}]}']),
    (["Memory Extractor", "peanuts"], ['{"memory": [{"text": "Is allergic to peanuts"}]}']),
    (["Memory Extractor", "My name is Ada."], ['{"memory": [{"text": "Is called Ada"}]}']),
    ([_DSPY, "Name a knot that does not slip."], [f"{_DSPY}\nThe bowline."]),
    ([_DSPY, "How wide is its loop?"], [f"{_DSPY}\nAs wide as you tie it."]),
    ([_DSPY, "How do I untie it?"], [f"{_DSPY}\nBend the loop back."]),
    (["Name a knot that does not slip."], ["The bowline."]),
    (["And one that slips?"], ["The slip knot."]),
    (["refund order 1042"], [_LOOK_UP, _REFUND, "Order 1042, a kettle, is refunded."]),
    (["Which knot for a fixed loop?"], ["The bowline."]),
    (["Answer in five words.", "How do I tie it?"], ["Loop, through, around, back, tighten."]),
    (["step by step.", "How do I tie it?"], [_STEPS]),
    (["Answer in verse.", "How do I tie it?"], [_VERSE]),
    (["could a beginner tie it?", "Loop, through"], ['{"score": 0.4, "reason": "Terse."}']),
    (["could a beginner tie it?", "small loop"], ['{"score": 0.9, "reason": "Clear."}']),
    (["could a beginner tie it?", "rabbit"], ['{"score": 0.2, "reason": "A riddle."}']),
    # The last first: a request holds what was remembered before.
    (["Ada", "peanuts", "What shall I cook for my guests?"], ["A curry without peanuts, Ada."]),
    (["I moved to Lisbon."], ["Lisbon is lovely."]),
    (["peanuts", "What shall I cook tonight?"], ["A soup without peanuts."]),
    (["I am allergic to peanuts."], ["Noted: no peanuts."]),
    (["My name is Ada."], ["Nice to meet you, Ada."]),
    (["I was charged twice."], ['{"kind": "billing"}']),
    (["The app crashes when I log in."], ['{"kind": "bug"}']),
    (["Thank you, all is well!"], ['{"kind": "other"}']),
    *(([f"I am {user}.", "Who am I?"], [f"You are {user}."]) for user in USERS),
    *(([f"I am {user}."], [f"Hello, {user}."]) for user in USERS),
]
"""What the scripted provider answers."""


def run(
    python: Path, program: Path, folder: Path, environment: Mapping[str, str], text: str = ""
) -> str:
    """Run a program to its end in a folder; return what it printed."""
    done = subprocess.run(
        [python, program],
        cwd=folder,
        env=environment,
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{program.name} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


@contextmanager
def serve(
    python: Path, program: Path, folder: Path, environment: Mapping[str, str]
) -> Generator[str]:
    """Serve the `app` of a program with uvicorn; yield its URL."""
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    options = ["--app-dir", program.parent, "--port", port, "--log-level", "warning"]
    command = [python, "-m", "uvicorn", f"{program.stem}:app", *options]
    with subprocess.Popen(command, cwd=folder, env=environment) as server:
        try:
            url = f"http://127.0.0.1:{port}"
            while server.poll() is None and not _answers(url):
                sleep(0.05)
            yield url
        finally:
            server.terminate()


def _answers(url: str) -> bool:
    try:
        urlopen(f"{url}/openapi.json").close()
    except URLError:
        return False
    return True


def chat_at_once(url: str) -> list[str]:
    """Let all users introduce themselves at once, then ask who they are; return their history."""

    def chat(user: str) -> str:
        for text in (f"I am {user}.", "Who am I?"):
            body = json.dumps({"text": text}).encode()
            headers = {"content-type": "application/json"}
            urlopen(Request(f"{url}/chat/{user}", body, headers)).close()
        with urlopen(f"{url}/chat/{user}") as response:
            return "\n".join(json.load(response))

    with ThreadPoolExecutor(len(USERS)) as pool:
        return list(pool.map(chat, USERS))
