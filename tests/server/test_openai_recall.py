"""What OpenAI's clients are told of other conversations: nothing that they did not ask for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.openai_client import Chat, served

SALARY = "My salary is 123456 euros, keep it secret. I prefer green tea to coffee."
ASKED = "What is a usual salary, and is green tea or coffee better?"
ON = {"X-Sennit-Memory": "true"}


def complete(chat: Chat, text: str, **more: Any) -> None:
    chat.ask({"role": "user", "content": text}, **more)


def respond(chat: Chat, text: str, **more: Any) -> None:
    chat.openai.responses.create(model="sage", input=text, **more)


def converse(chat: Chat, text: str, **more: Any) -> None:
    conversation = chat.openai.conversations.create()
    respond(chat, text, conversation=conversation.id, **more)


@pytest.mark.parametrize("say", [complete, respond, converse])
def test_a_prompt_holds_what_the_client_sent_and_no_more(say: Any) -> None:
    with served("Noted.", "Less.") as chat:
        say(chat, SALARY)
        say(chat, ASKED)
        assert chat.asked() == [{"role": "user", "content": ASKED}]


@pytest.mark.parametrize("say", [complete, respond, converse])
def test_memories_are_recalled_when_they_are_asked_for_and_other_conversations_never(
    say: Any,
) -> None:
    with served("Noted.", "Green tea.", "Less.") as chat:
        say(chat, SALARY)
        (session,) = chat.sessions()
        done = chat.server.post(f"/api/sessions/{session['id']}/commit").json()
        assert done["memories_extracted"] > 0
        say(chat, ASKED)
        assert chat.asked() == [{"role": "user", "content": ASKED}]
        say(chat, ASKED, extra_headers=ON)
        sent = str(chat.asked())
        assert "I prefer green tea" in sent or "green tea to coffee" in sent
        assert SALARY not in sent


def test_memory_may_also_be_asked_for_in_the_metadata() -> None:
    with served("Noted.", "Less.") as chat:
        complete(chat, "My name is Ada.", metadata={"session": "one"})
        chat.server.post("/api/sessions/one/commit")
        complete(chat, "Who am I?", metadata={"session": "two", "memory": "true"})
        assert "My name is Ada." in str(chat.asked())
