"""Clients of other makers, unchanged but for the base URL: each client, each case.

The programs are tests/clients/clients.py and tests/javascript/clients.mjs. Each client has a store
of its own, which holds each of its conversations once, on the right branches.
"""

from __future__ import annotations

from time import monotonic
from typing import Any

import pytest

from sennit.services.tools.tool import Tool
from tests.client_programs import LONG, PROGRAMS, conversations, run, sage
from tests.http_server import Running, serving

OPENAI = ["NotFoundError 404", "BadRequestError 400", "RateLimitError 429"]
LANGCHAIN_OPENAI = [
    "OpenAIModelNotFoundError 404",
    "OpenAIContextOverflowError 400",
    "OpenAIRateLimitError 429",
]
LANGCHAIN_ANTHROPIC = [name.replace("OpenAI", "Anthropic") for name in LANGCHAIN_OPENAI]
LITELLM = [OPENAI[0], "ContextWindowExceededError 400", OPENAI[2]]
INSTRUCTOR = ["InstructorRetryException " + error.split()[1] for error in OPENAI]
LANGCHAIN_JAVASCRIPT = [OPENAI[0], "ContextOverflowError 400", OPENAI[2]]
AI = ["AI_APICallError 404", "AI_APICallError 400", "AI_APICallError 429"]
AG_UI = ["Error 422", "context", "rate_limit"]
CLIENTS: dict[tuple[str, str], list[str]] = {
    ("python", "openai"): OPENAI,
    ("python", "openai responses"): OPENAI,
    ("python", "anthropic"): OPENAI,
    ("python", "langchain openai"): LANGCHAIN_OPENAI,
    ("python", "langchain responses"): LANGCHAIN_OPENAI,
    ("python", "langchain anthropic"): LANGCHAIN_ANTHROPIC,
    ("python", "litellm openai"): LITELLM,
    ("python", "litellm responses"): LITELLM,
    ("python", "litellm anthropic"): LITELLM,
    ("python", "agents responses"): OPENAI,
    ("python", "agents chat completions"): OPENAI,
    ("python, elsewhere", "instructor"): INSTRUCTOR,
    ("python, elsewhere", "llm"): OPENAI,
    ("javascript", "openai"): OPENAI,
    ("javascript", "openai responses"): OPENAI,
    ("javascript", "anthropic"): OPENAI,
    ("javascript", "ai openai"): AI,
    ("javascript", "ai openai chat"): AI,
    ("javascript", "ai anthropic"): AI,
    ("javascript", "ai openai-compatible"): AI,
    ("javascript", "langchain openai"): LANGCHAIN_JAVASCRIPT,
    ("javascript", "langchain responses"): LANGCHAIN_JAVASCRIPT,
    ("javascript", "langchain anthropic"): LANGCHAIN_JAVASCRIPT,
    ("javascript", "agents responses"): OPENAI,
    ("javascript", "agents chat completions"): OPENAI,
    ("javascript", "ag-ui"): AG_UI,
}
"""The clients, and the errors that they raise for an unknown model, a context that is too long, and
a model that is asked too often."""
KNOT = {"name": "bowline", "slips": False}
CASES: dict[str, Any] = {
    "plain": "You said: one",
    "stream": "You said: two",
    "tools": "Rain and sun.",
    "schema": KNOT,
    "picture": "A picture.",
    "edit": "You said: five",
    "cancel": LONG,
    "errors": [],
}
"""The cases that each client has, and what comes of them."""
MORE_CASES: dict[str, Any] = {
    "toolsStreamed": "Rain and sun.",
    "thinking": ["Ropes differ.", "You said: six"],
    "again": "You said: six",
}
"""The cases that some clients have beside them."""
HOLES = {
    ("instructor", "cancel"): "It parses a stream into objects; its pieces are not text.",
    ("ag-ui", "schema"): "AG-UI has no schema for an answer.",
}
"""The cases that a client does not have, with the reason."""
OTHERWISE: dict[tuple[str, str], Any] = {
    ("instructor", "plain"): KNOT,
    ("instructor", "stream"): KNOT,
    ("instructor", "tools"): [{"city": "Oslo"}, {"city": "Rome"}],
    ("instructor", "picture"): KNOT,
    ("instructor", "edit"): KNOT,
}
"""What comes of a case at a client that answers otherwise."""
BRANCHES = {"three": 2, "knot": 2}
"""The branches of the conversations that were edited; the others have one."""


def weather(city: str) -> str:
    """The forecast."""
    return f"rain in {city}"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("language", PROGRAMS)
def test_each_client_gets_an_answer(language: str) -> None:
    names = [name for place, name in CLIENTS if place == language]
    with serving(models=[sage()]) as server:
        did = run(PROGRAMS[language](), server.url, ",".join(names), "plain")
        plain = {name: OTHERWISE.get((name, "plain"), CASES["plain"]) for name in names}
        assert did == {name: {"plain": plain[name]} for name in names}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("language", "client"), CLIENTS, ids=lambda words: words)
def test_a_client_finds_all_that_it_uses(language: str, client: str) -> None:
    with serving(
        models=[sage(chunk=4, delay=0.0005)], tools=[Tool(weather)], memory=False
    ) as server:
        did = run(PROGRAMS[language](), server.url, client)[client]
        missing = {case for name, case in HOLES if name == client}
        assert did.keys() - MORE_CASES.keys() == CASES.keys() - missing
        cancelled = did.pop("cancel", None)
        assert did.pop("errors") == CLIENTS[language, client]
        expected = {**MORE_CASES, **CASES}
        assert did == {case: OTHERWISE.get((client, case), expected[case]) for case in did}
        stored = conversations(server)
        check_stored_once(stored)
        if cancelled is not None:
            check_cancelled(server, stored, cancelled)


def check_stored_once(stored: dict[str, list[list[str]]]) -> None:
    """Each conversation has its branches, and on each of them its messages once."""
    assert {words: len(branches) for words, branches in stored.items()} == {
        words: BRANCHES.get(words, 1) for words in stored
    }
    edited = sorted(texts[-2:] for texts in stored.get("three", ()))
    assert edited in ([], [["five", "You said: five"], ["four", "You said: four"]])
    lengths = {"one": 2, "two": 2, "picture": 2, "three": 4, "schema": 2}
    for words, length in lengths.items():
        for texts in stored.get(words, ()):
            assert len(texts) == length
    for texts in stored.get("weather", ()):
        assert len(texts) in (3, 6)  # of instructor, which parses the calls; and of the others


def check_cancelled(server: Running, stored: dict[str, list[list[str]]], piece: str) -> None:
    """The text before a cancellation is stored, and the model was stopped."""
    assert LONG.startswith(piece)
    end = monotonic() + 30
    while len(stored["long"][0]) < 2:
        assert monotonic() < end, "the text before the cancellation was not stored"
        stored = conversations(server)
    assert LONG.startswith(stored["long"][0][1])
    assert len(stored["long"][0][1]) < len(LONG)
