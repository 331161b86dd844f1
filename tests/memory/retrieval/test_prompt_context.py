"""What the next prompt gets: within its budget, recorded once, never learnt anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sennit import Client, InvalidTypeError, Session, ValidationError
from sennit.memory import MemoryContext
from sennit.memory.retrieval.query_planner import plan_by_rules
from sennit.stores.in_memory.store import MemoryStore
from sennit.testing import ScriptedModel
from tests.memory.remembering import client, store, talk

__all__ = ["client", "store"]
pytest_plugins = ("tests.postgres",)


def remembering(client: Client) -> Session:
    """A new session of a user of whom something is known."""
    before = client.session("before")
    talk(before, "My name is Nora. My parrot is called Kiki.", "Yesterday I bought a kiln.")
    before.commit()
    return client.session("now")


def test_a_context_holds_profile_memories_and_messages_each_with_its_tokens(
    client: Client,
) -> None:
    session = remembering(client)
    session.add_message("user", "How large is the kiln?")
    found = session.context()
    assert "My name is Nora." in found.of("profile")[0].text
    assert any("kiln" in piece.text for piece in found.of("memory"))
    assert [str(one.content.to_dict()["instruction"]) for one in found.messages] == [
        "How large is the kiln?"
    ]
    assert all(piece.tokens > 0 for piece in found.pieces)
    assert found.tokens == sum(piece.tokens for piece in found.pieces) <= found.budget_tokens


def test_a_prompt_is_not_told_what_no_longer_holds(client: Client) -> None:
    for number, said in enumerate(("I live in Lisbon.", "My name is Nora.", "I moved to Berlin.")):
        talk(client.session(f"before {number}"), said)
        client.session(f"before {number}").commit()
    (profile,) = client.session("now").context(query="Who am I?").of("profile")
    assert profile.text.splitlines() == ["My name is Nora.", "I moved to Berlin."]


def test_a_profile_is_in_the_prompt_without_its_title(client: Client) -> None:
    talk(client.session("before"), "My name is Nora. I am vegan.")
    client.session("before").commit()
    model = ScriptedModel(["Hello."])
    chat = client.session("now").conversation(model=model, contexts=[MemoryContext(client.memory)])
    chat.say("Good evening!")
    prompt = str(model.requests[0].messages[0]["content"])
    assert prompt.splitlines()[2:4] == ["  - My name is Nora.", "    I am vegan."]


@pytest.mark.parametrize(
    "build",
    [
        MemoryContext,
        lambda client: client.session("k").conversation(model="local", contexts=[client.memory]),
        lambda client: client.session("k").conversation(model="local", contexts=[MemoryContext]),
    ],
    ids=["the client", "the memory as a context", "the class as a context"],
)
def test_what_is_no_memory_context_is_refused_with_the_right_call(
    client: Client, build: Callable[[Any], object]
) -> None:
    with pytest.raises(InvalidTypeError, match=r"MemoryContext\(client\.memory\)"):
        build(client)


def test_a_context_holds_the_last_summaries_of_its_session(client: Client) -> None:
    session = client.session("chat")
    for topic in ("kilns", "parrots"):
        talk(session, f"Let us talk about {topic}.")
        session.commit()
    found = session.context(query="tell me more about parrots")
    assert len(found.of("summary")) == 2
    assert found.of("summary")[0].uri is not None
    assert "archive_002" in str(found.of("summary")[0].uri)


def test_what_the_prompt_holds_already_is_not_given_twice(client: Client) -> None:
    session = client.session("chat")
    talk(session, "The kiln is in the yard", "Where is the kiln?")
    assert session.context().of("memory") == []


def test_small_talk_recalls_nothing(client: Client) -> None:
    session = remembering(client)
    session.add_message("user", "Hello, thanks!")
    assert session.context().of("memory") == []


@given(st.integers(1, 400), st.integers(0, 6))
def test_no_budget_is_ever_exceeded(budget: int, messages: int) -> None:
    kept = MemoryStore()
    session = remembering(Client(kept, user="ada"))
    for n in range(messages):
        session.add_message("user", f"kiln {n} " + "and so on " * n)
    found = session.context(budget_tokens=budget)
    assert found.tokens <= budget
    kept.close()


def test_the_newest_messages_are_kept_when_room_is_short(client: Client) -> None:
    session = client.session("chat")
    talk(session, *(f"message {n} {'word ' * 20}" for n in range(10)))
    found = session.context(budget_tokens=120).messages
    assert 0 < len(found) < 20
    assert [one.id for one in found] == [one.id for one in session.messages][-len(found) :]


def test_what_was_given_is_counted_once_and_never_learnt_again(client: Client) -> None:
    session = remembering(client)
    session.add_message("user", "How large is my kiln?")
    session.context()
    session.context()
    result = session.commit()
    assert result["memories_extracted"] == 0
    profile = client.memory.get("viking://user/memories/profile.md")
    assert profile.active_count == 1


def test_a_profile_that_is_too_long_is_cut_at_a_line(client: Client) -> None:
    lines = ["My name is Nora.", *(f"I know the song {n}." for n in range(50))]
    body = "\n".join(["# Profile", "", *(f"- {line}" for line in lines)])
    client.fs.write("viking://user/memories/profile.md", body)
    (piece,) = client.session("now").context(budget_tokens=400).of("profile")
    assert piece.tokens <= 60
    assert piece.text.splitlines() == lines[: len(piece.text.splitlines())]
    assert "My name is Nora." in piece.text


def test_looking_alone_records_nothing(client: Client) -> None:
    session = remembering(client)
    session.add_message("user", "How large is my kiln?")
    session.context(record=False)
    assert session.commit()["active_count_updated"] == 0


@pytest.mark.parametrize("wrong", [0, -1, True, "many"])
def test_a_budget_that_is_none_is_refused(wrong: int) -> None:
    with pytest.raises(ValidationError):
        Client(MemoryStore(), user="ada").session("chat").context(budget_tokens=wrong)


@pytest.mark.parametrize("wrong", [5, b"kiln", ["kiln"], "a\0b"])
def test_a_query_that_is_no_text_is_refused(wrong: Any) -> None:
    with pytest.raises(ValidationError):
        Client(MemoryStore(), user="ada").session("chat").context(query=wrong)


def test_a_question_leans_on_what_was_said_before(client: Client) -> None:
    session = remembering(client)
    talk(session, "I want to fire my bowls in the kiln.")
    found = client.search("When did I buy it?", session="now")
    assert 1 < len(found.queries) <= 5
    assert any("kiln" in query.text for query in found.queries)
    assert any(query.category == "events" for query in found.queries)
    assert "kiln" in found.matches[0].abstract
    held = {one.id for one in session.messages}
    shown = {one.evidence[0].message for one in found.matches if one.category == "message"}
    assert not held & shown, "what the prompt holds is not found again"


@pytest.mark.parametrize("said", ["", "Hi!", "thanks", "ok great, thank you"])
def test_small_talk_is_not_searched_for(said: str) -> None:
    assert plan_by_rules(said) == []


@given(st.text(max_size=200), st.lists(st.text(max_size=80), max_size=5))
def test_a_plan_has_at_most_five_queries_and_none_without_words(
    question: str, said: list[str]
) -> None:
    found = plan_by_rules(question, said)
    assert len(found) <= 5
    assert all(query.text.strip() for query in found)


def test_a_model_plans_the_queries_if_there_is_one(client: Client) -> None:
    remembering(client)
    answer = '{"queries": [{"kind": "entities", "text": "parrot Kiki"}]}'
    client.memory.use(model=ScriptedModel([answer]))
    found = client.search("What was that bird again?")
    assert [(one.text, one.category) for one in found.queries] == [("parrot Kiki", "entities")]
    assert "Kiki" in found.matches[0].abstract


@pytest.mark.parametrize("answer", ["no idea", '{"queries": 7}', '{"queries": [{"kind": "x"}]}'])
def test_a_plan_that_is_none_is_made_by_rules(client: Client, answer: str) -> None:
    remembering(client)
    client.memory.use(model=ScriptedModel([answer]))
    found = client.search("parrot called Kiki")
    assert found.queries
    assert "Kiki" in found.matches[0].abstract
