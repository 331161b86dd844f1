"""Passages of a context: whole messages that fill the budget, dated, in labelled blocks."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sennit import AssistantResponseContent, Client, InstructionContent, Message
from sennit.memory.retrieval.prompt_context import HEADINGS
from tests.memory.remembering import client, said_on, store, talk

__all__ = ["client", "store"]
pytest_plugins = ("tests.postgres",)

TUESDAY = datetime(2025, 1, 14, 12, tzinfo=UTC)
ABOUT_USER, _, _, MESSAGES = HEADINGS


def tell(client: Client, key: str, text: str, *, is_answer: bool = False) -> Message:
    """Put a message of that Tuesday into a session."""
    session = client.session(key)
    content = AssistantResponseContent(text) if is_answer else InstructionContent(instruction=text)
    message = Message(content, created_at=TUESDAY)
    return session.add_message(message, session.default_branch)


def test_relevant_messages_fill_the_budget(client: Client) -> None:
    for number in range(60):
        tell(client, f"kiln_{number}", f"The kiln, part {number}: " + "it burns and it glows. " * 9)
    context = client.session("now").context(
        budget_tokens=1_000, query="How is the kiln?", other_sessions=True
    )
    assert 950 <= context.tokens <= 1_000


def test_a_message_is_shown_whole_with_its_date_and_speaker(client: Client) -> None:
    text = "The kiln is in the yard. " + "It is large, and the bricks are old. " * 20 + "The end."
    tell(client, "kiln", text)
    (piece,) = client.session("now").context(query="Where is the kiln?", other_sessions=True).pieces
    assert piece.text == f"[2025-01-14] user: {text}"
    assert piece.heading == MESSAGES
    assert piece.uri == f"viking://session/{client.session('kiln').id}/messages.jsonl"


def test_of_a_very_long_message_the_sentences_around_the_hit_are_shown(client: Client) -> None:
    filler = "Nothing happened on that day at all. " * 100
    tell(client, "kiln", f"{filler}The kiln from Faenza has a red door. {filler}", is_answer=True)
    (piece,) = client.session("now").context(query="kiln Faenza", other_sessions=True).pieces
    assert piece.text.startswith("[2025-01-14] assistant: …Nothing happened")
    assert "The kiln from Faenza has a red door." in piece.text
    assert piece.text.endswith("at all.…")
    assert len(piece.text) < 2_100


def test_relative_dates_are_told_by_the_calendar(client: Client) -> None:
    tell(client, "kiln", "Yesterday I bought a kiln, and last Friday a wheel.")
    (piece,) = client.session("now").context(query="Which kiln?", other_sessions=True).pieces
    assert piece.text.endswith("(yesterday: Monday 2025-01-13; last friday: Friday 2025-01-10)")


def test_a_memory_and_the_message_that_it_rests_on_are_one_item(client: Client) -> None:
    said_on(client, TUESDAY, "before", "My parrot is called Kiki.")
    context = client.session("now").context(query="my parrot called Kiki", other_sessions=True)
    assert sum("Kiki" in piece.text for piece in context.pieces) == 1, context.text


def test_a_memory_tells_since_when_and_until_when_it_holds(client: Client) -> None:
    said_on(client, TUESDAY, "before", "My parrot is called Kiki.", "I bought a kiln yesterday.")
    context = client.session("now").context(query="What about the parrot and the kiln?")
    texts = "\n".join(piece.text for piece in context.of("memory"))
    assert "[since 2025-01-14] " in texts
    assert "[2025-01-13] " in texts, "An event shows its day"


def test_a_context_is_told_in_labelled_blocks(client: Client) -> None:
    said_on(client, TUESDAY, "before", "My name is Nora. My parrot is called Kiki.")
    tell(client, "other", "A parrot flew over the yard.")
    context = client.session("now").context(query="Which parrot?", other_sessions=True)
    lines = context.text.splitlines()
    blocks = [line for line in lines if line.rstrip(":") in HEADINGS]
    assert blocks == [f"{ABOUT_USER}:", f"{MESSAGES}:"]


@pytest.mark.parametrize("asked", ["What is the capital of Mongolia?", "Thanks a lot!"])
def test_a_question_about_nothing_recalls_no_messages(client: Client, asked: str) -> None:
    for number in range(5):
        talk(client.session(f"kiln_{number}"), f"The kiln, part {number}, is hot.")
    context = client.session("now").context(query=asked, other_sessions=True)
    assert context.of("memory") == []
