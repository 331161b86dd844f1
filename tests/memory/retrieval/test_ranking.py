"""Ranking: people before the assistant, no session alone on the page, nothing for nothing."""

from __future__ import annotations

from sennit import Client, InstructionContent, Message
from tests.memory.remembering import client, store

__all__ = ["client", "store"]
pytest_plugins = ("tests.postgres",)

ANSWER = (
    "A vizsla is a wonderful dog. Your vizsla needs long walks, and a vizsla loves company. "
    "1. Take the dog out twice a day. 2. Train the dog with treats, never with shouting. "
    "3. Let the vizsla rest. 4. Ask a breeder about food for the vizsla. Enjoy your dog! "
    "Let me know how it goes with the training, and we can adjust the plan for next week."
)


def chat(client: Client, key: str, *texts: str) -> None:
    """Say the texts in a session, as user and assistant in turn."""
    session = client.session(key)
    for number, text in enumerate(texts):
        session.add_message("assistant" if number % 2 else "user", text)


def small_talk(client: Client) -> None:
    """Say what has nothing to do with dogs, so that a word about them is rare."""
    for number in range(8):
        chat(client, f"boat_{number}", f"How do I tie boat {number}?", "With a cleat hitch.")


def test_what_a_user_mentions_comes_before_the_long_answer_to_it(client: Client) -> None:
    chat(client, "dog", "My dog is a vizsla. How do I train it?", ANSWER)
    small_talk(client)
    found = [match.abstract for match in client.find("Is my dog a vizsla?")]
    assert found[0] == "My dog is a vizsla. How do I train it?"
    assert found[1].startswith("helper: A vizsla")


def test_what_the_assistant_said_comes_first_if_the_question_asks_for_it(client: Client) -> None:
    chat(client, "dog", "How do I feed a vizsla breeder?", ANSWER)
    small_talk(client)
    found = client.find("What did you say that a vizsla needs and loves?")
    assert found[0].abstract.startswith("helper: A vizsla"), found[0]


def test_one_session_fills_a_third_of_the_page_while_others_have_matches(client: Client) -> None:
    chat(client, "long", *(f"The garden shed, part {number}" for number in range(20)))
    for number in range(9):
        chat(client, f"other_{number}", f"A garden in town {number}, with tools and a fence")
    session = client.session("long").id
    found = client.find("garden shed", limit=9)
    assert len(found) == 9
    assert sum(match.evidence[0].session == session for match in found) == 3
    inside = client.find("garden shed", target_uri="viking://session/long", limit=9)
    assert len(inside) == 9, "A search in one session gives all places to it"


def test_a_session_fills_the_page_if_no_other_has_matches(client: Client) -> None:
    chat(client, "long", *(f"The garden shed, part {number}" for number in range(20)))
    chat(client, "boat", "How do I tie a boat?", "With a cleat hitch.")
    found = client.find("garden shed", limit=9)
    assert len(found) == 9
    assert [match.score for match in found] == sorted(
        (match.score for match in found), reverse=True
    )


def test_the_speaker_whom_a_question_names_is_preferred(client: Client) -> None:
    small_talk(client)
    session = client.session("two")
    for speaker in ("Nora", "Max"):
        kiln = InstructionContent(instruction="The kiln in the yard was a good buy")
        session.add_message(Message(kiln, sender=speaker), session.default_branch)
    for name in ("Nora", "Max"):
        found = client.find(f"What does {name} think of the kiln?")
        assert found[0].speaker == name, found[0]


def test_a_question_about_nothing_that_was_said_finds_nothing(client: Client) -> None:
    chat(client, "dog", "My dog is a vizsla. How do I train it at work?", ANSWER)
    assert client.find("Summarize the plot of Hamlet, a tragedy by Shakespeare, for work") == []
    assert client.find("vizsla at work") != []
