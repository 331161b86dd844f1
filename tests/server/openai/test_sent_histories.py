"""Histories as clients send them: twice at once, edited, trimmed or reformatted, through each API.

Each branch is a history that a client has sent with its answer, and no message is stored twice
where one is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sennit.services.models.reply import Reply
from sennit.services.models.request import ModelRequest
from tests.http_server import Gate, Running, Talker, serving


class Waiting(Talker):
    """A Talker whose answers wait at a gate."""

    async def aask(self, request: ModelRequest) -> Reply:
        assert self.gate is not None
        await self.gate.pass_through()
        return await super().aask(request)


def said(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


def by_chat(server: Running, history: list[Any], model: str = "talker") -> str:
    body = {"model": model, "messages": history}
    answer = server.post("/v1/chat/completions", body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]["content"]


def by_responses(server: Running, history: list[Any], model: str = "talker") -> str:
    answer = server.post("/v1/responses", {"model": model, "input": history})
    assert answer.status_code == 200, answer.text
    return answer.json()["output"][0]["content"][0]["text"]


def by_messages(server: Running, history: list[Any], model: str = "talker") -> str:
    body = {"model": model, "max_tokens": 99, "messages": history}
    answer = server.post("/v1/messages", body)
    assert answer.status_code == 200, answer.text
    return answer.json()["content"][0]["text"]


Ask = Callable[..., str]
APIS: dict[str, Ask] = {"chat": by_chat, "responses": by_responses, "messages": by_messages}
ask = pytest.mark.parametrize("ask", APIS.values(), ids=APIS)


def stored(server: Running) -> list[list[str]]:
    """The texts on each branch of all sessions, in order."""
    found: list[list[str]] = []
    for session in server.get("/api/sessions").json()["sessions"]:
        path = f"/api/sessions/{session['id']}"
        for branch in server.get(path).json()["branches"]:
            messages = server.get(f"{path}/branches/{branch['id']}/messages").json()["messages"]
            found.append([one["text"].strip() for one in messages])
    return sorted(found)


KNOT = said("user", "a knot")
ANSWER = said("assistant", "You said: a knot")
WHY = said("user", "why")
SO = said("assistant", "So.")
TALK = ["a knot", "You said: a knot", "why", "You said: why"]


@ask
@pytest.mark.parametrize("history", [[KNOT], [KNOT, ANSWER, WHY]], ids=["first", "later"])
def test_a_history_sent_twice_at_once_is_answered_twice_on_two_branches(
    ask: Ask, history: list[Any]
) -> None:
    gate = Gate()
    models = [Waiting(gate=gate), Talker("first")]
    with serving(models=models) as server, ThreadPoolExecutor(4) as pool:
        if len(history) > 1:
            ask(server, history[:1], "first")
        answers = [pool.submit(ask, server, history) for _ in range(4)]
        gate.reached()
        gate.open()
        text = f"You said: {history[-1]['content']}"
        assert [one.result().strip() for one in answers] == [text] * 4
        assert stored(server) == [TALK[: len(history) + 1]] * 4
        (session,) = server.get("/api/sessions").json()["sessions"]
        assert len(server.get(f"/api/sessions/{session['id']}").json()["branches"]) == 4


@ask
def test_a_history_sent_to_two_servers_at_once_loses_nothing(ask: Ask, tmp_path: Path) -> None:
    gate, path = Gate(), tmp_path / "s.db"
    with (
        serving(path, models=[Waiting(gate=gate)]) as one,
        serving(path, models=[Waiting(gate=gate)]) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        answers = [pool.submit(ask, server, [KNOT]) for server in (one, other)]
        gate.reached()
        gate.open()
        assert [answer.result().strip() for answer in answers] == ["You said: a knot"] * 2
        assert stored(one) == [TALK[:2]] * 2
        for server in (one, other):
            assert ask(server, [KNOT, ANSWER, WHY]).strip() == "You said: why"
        assert stored(one) in ([TALK] * 2, [TALK[:2], TALK, TALK])


@ask
def test_an_edit_in_the_middle_is_a_fork(ask: Ask) -> None:
    with serving(models=[Talker()]) as server:
        ask(server, [KNOT])
        ask(server, [KNOT, ANSWER, WHY])
        ask(server, [KNOT, ANSWER, WHY, said("assistant", "You said: why"), said("user", "so")])
        ask(server, [KNOT, ANSWER, said("user", "how"), SO, said("user", "x")])
        ask(server, [KNOT, said("assistant", "The bowline."), WHY])
        assert stored(server) == sorted(
            [
                [*TALK, "so", "You said: so"],
                [*TALK[:2], "how", "So.", "x", "You said: x"],
                ["a knot", "The bowline.", "why", "You said: why"],
            ]
        )
        (session,) = server.get("/api/sessions").json()["sessions"]
        path = f"/api/sessions/{session['id']}"
        ids: list[list[str]] = []
        for branch in server.get(path).json()["branches"]:
            messages = server.get(f"{path}/branches/{branch['id']}/messages").json()["messages"]
            ids.append([one["id"] for one in messages])
        assert len({one[0] for one in ids}) == 1
        assert len({one for branch in ids for one in branch}) == 6 + 4 + 3


@ask
def test_a_history_without_its_beginning_is_a_conversation_of_its_own(ask: Ask) -> None:
    with serving(models=[Talker()]) as server:
        ask(server, [KNOT])
        ask(server, [KNOT, ANSWER, WHY])
        window = [WHY, said("assistant", "You said: why"), said("user", "so")]
        ask(server, window)
        more = [*window, said("assistant", "You said: so"), said("user", "and")]
        assert ask(server, more).strip() == "You said: and"
        window_texts = ["why", "You said: why", "so", "You said: so", "and", "You said: and"]
        assert stored(server) == sorted([TALK, window_texts])


@ask
def test_other_whitespace_is_the_same_history(ask: Ask) -> None:
    with serving(models=[Talker()]) as server:
        ask(server, [KNOT])
        ask(server, [said("user", " a knot\n"), said("assistant", "You said: a knot\n\n"), WHY])
        assert stored(server) == [TALK]


def test_calls_under_other_ids_are_a_fork_and_nothing_is_lost() -> None:
    def history(call: str) -> list[dict[str, Any]]:
        function = {"name": "weather", "arguments": '{"city": "Oslo"}'}
        calls = [{"id": call, "type": "function", "function": function}]
        return [
            KNOT,
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": call, "content": "rain"},
            WHY,
        ]

    with serving(models=[Talker()]) as server:
        for call in ("call_1", "toolu_1"):
            assert by_chat(server, history(call)).strip() == "You said: why"
        (session,) = server.get("/api/sessions").json()["sessions"]
        branches = server.get(f"/api/sessions/{session['id']}").json()["branches"]
        assert [branch["message_count"] for branch in branches] == [5, 5]
