"""Chat completions, as the official client of OpenAI uses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from openai import APIStatusError, BadRequestError, NotFoundError

import sennit
from sennit import ModelError
from sennit.services.reply import Reasoning, Reply, Text, Usage
from sennit.testing import ScriptedModel, ToolCall
from tests.openai_client import Chat, client, served
from tests.serving import serving

USER = {"role": "user", "content": "Name a knot."}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The forecast for a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def test_a_completion_is_answered_counted_and_kept() -> None:
    with served("The bowline.") as chat:
        answer = chat.ask(USER)
        assert answer.choices[0].message.content == "The bowline."
        assert answer.choices[0].finish_reason == "stop"
        assert answer.object == "chat.completion"
        assert answer.model == "sage"
        assert answer.usage.prompt_tokens > 0
        assert (
            answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
        )
        (session,) = chat.sessions()
        assert chat.said(session["id"]) == ["Name a knot.", "The bowline."]


def test_a_stream_tells_the_answer_piece_by_piece() -> None:
    with served("Over, under, through. " * 20, chunk=10) as chat:
        chunks = list(chat.ask(USER, stream=True))
        said = "".join(one.choices[0].delta.content or "" for one in chunks)
        assert said == "Over, under, through. " * 20
        assert chunks[0].choices[0].delta.role == "assistant"
        assert [one.choices[0].finish_reason for one in chunks][-1] == "stop"
        assert len(chunks) > 4
        assert len({one.id for one in chunks}) == 1
        assert all(one.usage is None for one in chunks)


def test_a_stream_counts_tokens_when_asked_to() -> None:
    with served("The bowline.") as chat:
        *_, last = chat.ask(USER, stream=True, stream_options={"include_usage": True})
        assert last.choices == []
        assert last.usage.prompt_tokens > 0
        assert last.usage.completion_tokens > 0


def test_a_history_that_goes_on_is_one_branch() -> None:
    with served("The bowline.", "The sheet bend.", "The clove hitch.") as chat:
        history = [USER]
        for more in ("Another.", "One more."):
            history += [assistant(chat.ask(*history).choices[0].message.content), user(more)]
        chat.ask(*history)
        (session,) = chat.sessions()
        (branch,) = chat.branches(session["id"])
        assert branch["message_count"] == 6
        assert chat.said(session["id"])[-2:] == ["One more.", "The clove hitch."]
        assert [one["content"] for one in chat.asked()] == chat.said(session["id"])[:-1]
