"""Memory in real turns: the prompt holds it, the events name it, and it is never learnt anew."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sennit import Client, Session, StoreError
from sennit.events import ContextAdded
from sennit.memory.memory import engine_of
from sennit.memory.retrieval.prompt_context import MemoryContext
from sennit.turns import summarize
from sennit.turns.events import WarningIssued
from tests.conversation_fixtures import Talk
from tests.memory.remembering import client, memories, store, talk

__all__ = ["client", "store"]
pytest_plugins = ("tests.postgres",)
PROFILE = "viking://user/memories/profile.md"


def known(client: Client) -> Session:
    """A new session of a user of whom something is known."""
    before = client.session("before")
    talk(before, "My name is Nora. My parrot is called Kiki.", "Yesterday I bought a kiln.")
    before.commit()
    return client.session("now")


def turn(session: Session, say: str, *replies: Any, **more: Any) -> Talk:
    """A talk before its first turn."""
    return Talk(*replies, tools=(), say=say, session=session, **more)


def ask(client: Client, talk: Talk, **how: Any) -> list[Any]:
    """The events of a turn with memory."""
    return list(talk.events(contexts=[MemoryContext(client.memory, **how)]))


def prompt(talk: Talk) -> str:
    """All that the model was asked last."""
    return str([one["content"] for one in talk.model.requests[-1].messages])


def test_the_prompt_holds_what_is_remembered_and_the_event_names_it(client: Client) -> None:
    talk = turn(known(client), "How large is my kiln?", "Large.")
    (added,) = [one for one in ask(client, talk) if isinstance(one, ContextAdded)]
    assert "My name is Nora." in prompt(talk)
    assert "bought a kiln" in prompt(talk)
    uris = [item.uri for item in added.items]
    assert uris[0] == PROFILE
    assert any(str(uri).startswith("viking://user/memories/events/") for uri in uris)
    assert {item.source for item in added.items} == {"MemoryContext"}


def test_what_was_injected_is_counted_and_nothing_of_it_is_learnt(client: Client) -> None:
    session = known(client)
    before = memories(client)
    echo = "My name is Nora. My parrot is called Kiki. Yesterday I bought a kiln."
    talk = turn(session, "What do you know about my kiln?", echo)
    ask(client, talk)
    result = session.commit(branch=talk.branch)
    assert result["status"] == "committed"
    assert result["active_count_updated"] >= 2
    assert sum(result["counts"].values()) == 0
    assert memories(client) == before
    assert client.memory.get(PROFILE).active_count == 1


def test_what_is_recalled_for_a_message_does_not_hide_what_the_message_says(client: Client) -> None:
    tea, coffee = "My favourite drink is tea.", "My favourite drink is coffee."
    now, later = (
        turn(client.session(key), tea, *["I see."] * number)
        for key, number in (("now", 3), ("later", 1))
    )
    for one, text in ((now, ""), (now, coffee), (now, tea), (later, "")):
        if text:
            one.say(text)
        ask(client, one)
        one.session.commit(branch=one.branch)
        assert [*memories(client).values()] == [f"{text or tea}\n"]
    client.forget(session="now")
    assert [*memories(client).values()] == [f"{tea}\n"]


def test_a_message_recalled_from_elsewhere_is_not_learnt_from_the_answer(client: Client) -> None:
    client.session("before").add_message("user", "My sister Grace owns a kiln.")
    session = client.session("now")
    talk = turn(session, "Who owns a kiln?", "My sister Grace owns a kiln.")
    ask(client, talk, other_sessions=True)
    assert "Grace" in prompt(talk)
    session.commit(branch=talk.branch)
    assert memories(client) == {}


def test_what_is_injected_fits_the_window(client: Client) -> None:
    session = known(client)
    for n in range(30):
        client.fs.write(f"viking://user/memories/events/kiln_{n}.md", f"The kiln is {n} feet. " * 9)
    talk = turn(session, "How large is my kiln?", "Large.", window=1_000)
    (added,) = [one for one in ask(client, talk) if isinstance(one, ContextAdded)]
    assert sum(item.tokens for item in added.items) <= 250
    assert added.items[0].uri == PROFILE


def test_an_answer_asked_for_again_does_not_recall_the_one_before(client: Client) -> None:
    session = client.session("now")
    talk = turn(session, "Who fires the kiln in Faenza?", "Gianna does.", "Piero does.")
    ask(client, talk)
    talk.branch = talk.branch.fork(at=0, capabilities=True, resources=True)
    ask(client, talk)
    assert "Gianna" not in prompt(talk)


def test_what_a_summary_stands_for_is_recalled(client: Client) -> None:
    session = client.session("now")
    talk = turn(session, "The kiln in Faenza is 40 feet long.", "I see.", "We spoke.", "40.")
    ask(client, talk)
    asyncio.run(talk.conversation().execute_special_turn(summarize()))
    assert len(talk.branch) == 1
    talk.say("How long is the kiln in Faenza?")
    ask(client, talk)
    assert "40 feet" in prompt(talk)


def test_a_memory_that_fails_is_a_warning_and_the_turn_goes_on(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = known(client)

    def broken(*_: Any) -> None:
        raise StoreError("The disk is gone.")

    monkeypatch.setattr(engine_of(client.memory).scope.store, "find_file", broken)
    talk = turn(session, "Who am I?", "No idea.")
    events = ask(client, talk)
    assert any(
        isinstance(one, WarningIssued) and "disk is gone" in one.notice.text for one in events
    )
    assert events[-1].result.text == "No idea."


def test_evidence_is_what_was_said(client: Client) -> None:
    known(client)
    profile = client.memory.get(PROFILE)
    (said,) = client.memory.evidence([profile]).values()
    assert said.text == "My name is Nora. My parrot is called Kiki."
    assert (said.session, said.role) == ("before", "user")
    client.delete_session("before")
    assert client.memory.evidence([profile]) == {}


QUESTIONS = ("Who am I, and what is my parrot called?", "What did I buy, how large is my kiln?")


def test_what_is_recalled_over_and_over_makes_no_new_memories(client: Client) -> None:
    """The model repeats all it is told about the user, session after session."""

    def echo(request: Any) -> str:
        return request.messages[-1]["content"].replace("  - ", "")

    known(client)
    before = memories(client)
    for number in range(5):
        session = client.session(f"again_{number}")
        talk = turn(session, QUESTIONS[0], echo, echo)
        ask(client, talk)
        talk.say(QUESTIONS[1])
        ask(client, talk)
        assert "Nora" in prompt(talk)
        assert session.commit(branch=talk.branch)["status"] == "committed"
        assert memories(client) == before
    assert all(one.version == 1 for one in client.memory.all())


def test_what_a_program_pastes_into_what_the_user_says_makes_no_new_memories(
    client: Client,
) -> None:
    known(client)
    client.session("before").add_message("user", "A kiln is loud. My cousin Grace owns one kiln.")
    before = memories(client)
    for number in range(5):
        session = client.session(f"again_{number}")
        for question in (*QUESTIONS, "Which cousin owns one loud kiln?"):
            pasted = session.context(query=question, other_sessions=True).text
            assert "Nora" in pasted
            session.add_message("user", f"Context:\n{pasted}\n\n{question}")
            session.add_message("assistant", "I see.")
        assert "Grace" in str([message.rendered for message in session.current()])
        session.commit()
        assert memories(client) == before


def test_a_line_that_was_cut_off_when_it_was_recalled_is_not_learnt(client: Client) -> None:
    said = f"Yesterday I bought {'clay and ' * 400}a loud kiln. My cousin is Grace."
    client.session("before").add_message("user", said)
    before, session = memories(client), client.session("now")
    pasted = session.context(query="How loud is the kiln?", other_sessions=True).text
    assert "Yesterday I bought clay and clay" in pasted
    assert "… (yesterday: " in pasted
    assert "a loud kiln" not in pasted
    session.add_message("user", f"Context:\n{pasted}\n\nHow loud is the kiln?")
    session.commit()
    assert memories(client) == before


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("I like celery soup.", "I hate celery soup."),
        ("I live in Lisbon.", "I moved to Oslo."),
    ],
)
def test_what_was_recalled_does_not_take_the_place_of_what_has_changed_since(
    client: Client, before: str, after: str
) -> None:
    """A program pastes what a prompt held into what the user says, later than the change."""
    talk(client.session("one"), before)
    client.session("one").commit()
    session = client.session("two")
    session.add_message("user", "Which soup do I like, and where do I live?")
    pasted = session.context().text
    assert before in pasted
    talk(client.session("one"), after)
    assert client.session("one").commit()["counts"]["updated"] == 1
    remembered = memories(client)
    session.add_message("user", f"Context:\n{pasted}\n\nAnd now?")
    assert session.commit()["memories_extracted"] == 0
    assert memories(client) == remembered


def test_what_was_recalled_is_known_by_its_new_name_when_it_has_moved(client: Client) -> None:
    talk(client.session("one"), "I like celery soup.")
    client.session("one").commit()
    session = client.session("two")
    session.add_message("user", "Which soup do I like?")
    pasted = session.context().text
    [memory] = client.memory.all()
    moved = "viking://user/memories/preferences/meals.md"
    client.fs.mv(memory.uri, moved)
    session.add_message("user", f"Context:\n{pasted}\n\nAnd now?")
    assert session.commit()["counts"]["confirmed"] == 0
    assert client.fs.stat(moved).active_count == 1
    assert client.fs.grep(memory.uri, "viking://session") == []
    assert len(client.fs.grep(moved, "viking://session")) == 2  # who wrote it, and who used it


def test_abstracts_that_are_pasted_are_not_learnt(client: Client) -> None:
    session = client.session("chat")
    talk(session, "I like green tea. My build fails with error 137.")
    session.commit()
    before = memories(client)
    (piece,) = session.context(query="tea").of("summary")
    session.add_message("user", f"{piece}\n\nWhat next?")
    session.commit()
    assert memories(client) == before
