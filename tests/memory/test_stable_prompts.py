"""Prompts with memory: each begins with the one before, so that a provider's cache is of use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sennit
from sennit import Client, Message, MessageContent, MessageRole, Session
from sennit.memory.retrieval.prompt_context import MemoryContext
from sennit.services.tools.tool import Tool
from sennit.stores.base import Store
from sennit.testing import ScriptedModel, ToolCall
from tests.memory.remembering import PROFILE, client, memories, store, talk

__all__ = ["client", "store"]
pytest_plugins = ("tests.postgres",)
QUESTIONS = (
    "How large is my kiln?",
    "And what is my parrot called?",
    "What did I buy yesterday?",
    "Does Kiki like the kiln?",
    "Who am I?",
)


def known(client: Client) -> Session:
    """A new session of a user of whom something is known."""
    before = client.session("before")
    talk(before, "My name is Nora. My parrot is called Kiki.", "Yesterday I bought a kiln.")
    before.commit()
    return client.session("now")


def model_of(*replies: Any) -> ScriptedModel:
    return ScriptedModel(replies or ["I see."] * 30, name="sage")


def conversation(client: Client, session: Session, model: Any, **more: Any) -> Any:
    return session.conversation(model=model, contexts=[MemoryContext(client.memory)], **more)


def prompts(model: ScriptedModel) -> list[list[Any]]:
    return [list(request.messages) for request in model.requests]


def begins_with(later: Sequence[Any], earlier: Sequence[Any]) -> bool:
    return list(later[: len(earlier)]) == list(earlier)


def texts(prompt: Sequence[Any]) -> str:
    return "\n".join(str(message["content"]) for message in prompt)


def test_each_prompt_begins_with_the_one_before(client: Client) -> None:
    model, session = model_of(), known(client)
    chat = conversation(client, session, model)
    for question in QUESTIONS:
        chat.say(question)
    shown = prompts(model)
    assert "bought a kiln" in texts(shown[0])
    for earlier, later in pairwise(shown):
        assert begins_with(later, earlier)
    for words in ("My name is Nora.", "bought a kiln"):
        assert texts(shown[-1]).count(words) == 1  # nothing is sent twice


def test_another_process_sends_the_same_again(client: Client, store: Store) -> None:
    model, session = model_of(), known(client)
    conversation(client, session, model).say(QUESTIONS[0])
    other = Client(store, user="ada", agent="helper")
    conversation(other, other.session("now"), model).say(QUESTIONS[1])
    first, second = prompts(model)
    assert begins_with(second, first)


def test_a_fork_begins_with_what_was_sent_before_it(client: Client) -> None:
    model, session = model_of(), known(client)
    chat = conversation(client, session, model)
    chat.say(QUESTIONS[0])
    chat.say(QUESTIONS[1])
    fork = session.default_branch.fork(at=1)
    conversation(client, session, model, branch=fork).say(QUESTIONS[2])
    first, _, forked = prompts(model)
    assert begins_with(forked, first)


def test_a_run_that_waited_for_approval_goes_on_with_the_same_prompt(
    client: Client, store: Store
) -> None:
    def pay(amount: int) -> str:
        """Pay somebody."""
        return f"paid {amount}"

    model = model_of([ToolCall("pay", {"amount": 7}, "call_1")], "Done.")
    tools = [Tool(pay, needs_approval=True)]
    conversation(client, known(client), model, tools=tools).say("Pay for my kiln.")
    other = Client(store, user="ada", agent="helper")
    chat = conversation(other, other.session("now"), model, tools=tools)
    chat.approve("call_1")
    first, second = prompts(model)
    assert "bought a kiln" in texts(first)
    assert begins_with(second, first)


def test_what_has_changed_is_sent_with_the_next_message(client: Client) -> None:
    model, session = model_of(), known(client)
    chat = conversation(client, session, model)
    chat.say("Who am I?")
    before = client.session("more")
    talk(before, "I live in Lisbon.")
    before.commit()
    chat.say("And where do I live?")
    first, second = prompts(model)
    assert "Lisbon" not in texts(first)
    assert begins_with(second, first)
    assert "Lisbon" in second[-1]["content"]


@pytest.mark.parametrize("uri", [PROFILE, "event"])
def test_what_is_forgotten_leaves_the_prompts(client: Client, uri: str) -> None:
    model, session = model_of(), known(client)
    chat = conversation(client, session, model)
    chat.say("What kiln did I buy?")
    assert "Nora" in texts(prompts(model)[0])
    assert "bought a kiln" in texts(prompts(model)[0])
    if uri == "event":
        (uri,) = (name for name, text in memories(client).items() if "bought a kiln" in text)
    client.forget(uri=uri)
    chat.say("Again?")
    last = texts(prompts(model)[1])
    gone, kept = ("Nora", "bought a kiln") if uri == PROFILE else ("bought a kiln", "Nora")
    assert gone not in last
    assert kept in last


def test_a_fact_that_is_forgotten_leaves_the_prompts(client: Client) -> None:
    model, session = model_of(), known(client)
    chat = conversation(client, session, model)
    chat.say("What is my parrot called?")
    assert "Kiki" in texts(prompts(model)[0])
    client.forget(session="before")
    chat.say("Again?")
    assert "Kiki" not in texts(prompts(model)[1])
    assert "Nora" not in texts(prompts(model)[1])


def test_a_message_that_is_removed_leaves_the_prompts(client: Client) -> None:
    session = client.session("now")
    talk(session, "The glaze recipe is cobalt and ash.", "The kiln is in the shed.")
    session.commit()
    model = model_of()
    chat = conversation(client, session, model)
    chat.say("What is the glaze recipe?")
    assert "cobalt" in texts(prompts(model)[0])
    for message in [one for one in session.messages if "cobalt" in one.text]:
        session.remove_message(message.id)
    chat.say("Again: the recipe?")
    assert "cobalt" not in texts(prompts(model)[1])


def test_what_is_no_longer_shared_leaves_the_prompts_of_others(store: Store) -> None:
    admin, bob = (
        Client(store, tenant="acme", user=name, agent="helper", shared_space=True)
        for name in ("ada", "bob")
    )
    guide = "viking://resources/shared/deploy/guide.md"
    admin.fs.write(guide, "Deploy only on Tuesdays with the blue key.")
    model, session = model_of(), bob.session("now")
    chat = conversation(bob, session, model)
    chat.say("How do I deploy with the key?")
    assert "blue key" in texts(prompts(model)[0])
    admin.fs.rm(guide)
    chat.say("Again?")
    assert "blue key" not in texts(prompts(model)[1])


@dataclass(frozen=True)
class NoteContent(MessageContent):
    """A content of the user that a program defines."""

    kind: ClassVar[str] = "tests.stable_note"
    role: ClassVar[MessageRole] = MessageRole.USER

    note: str

    @property
    def rendered(self) -> str:
        return self.note


def test_a_content_of_ones_own_is_sent_with_what_is_recalled(client: Client) -> None:
    model, session = model_of(), known(client)
    chat = conversation(client, session, model)
    session.add_message(Message(NoteContent("Who am I?")), branches=session.default_branch)
    chat.run()
    chat.say("Again?")
    first, second = prompts(model)
    assert "My name is Nora." in texts(first)
    assert begins_with(second, first)


def test_no_word_that_was_forgotten_stays_in_the_file(tmp_path: Any) -> None:
    path = tmp_path / "s.db"
    with sennit.open(path) as client:
        before = client.session("before")
        talk(before, "My name is Nora. My parrot is called Xylophanta.")
        before.commit()
        chat = conversation(client, client.session("now"), model_of())
        chat.say("What is my parrot called?")
        assert b"Xylophanta" in b"".join(one.read_bytes() for one in tmp_path.iterdir())
        client.forget(session="before")
    assert b"Xylophanta" not in b"".join(one.read_bytes() for one in tmp_path.iterdir())


def test_without_memory_nothing_recalled_is_sent(client: Client) -> None:
    model, session = model_of(), known(client)
    conversation(client, session, model).say("Who am I?")
    session.conversation(model=model).say("Again?")
    assert "Nora" not in texts(prompts(model)[1])


def test_an_archive_carries_what_was_sent(client: Client, tmp_path: Any) -> None:
    model, session = model_of(), known(client)
    conversation(client, session, model).say(QUESTIONS[0])
    client.export(tmp_path / "s.zip")
    with sennit.open(tmp_path / "other.db", user="ada", agent="helper") as other:
        other.import_sessions(tmp_path / "s.zip")
        conversation(other, other.session("now"), model).say(QUESTIONS[1])
    first, second = prompts(model)
    assert begins_with(second, first)


ACTS = st.lists(
    st.sampled_from(["say", "tool", "reopen", "fork", "learn"]), min_size=3, max_size=12
)


@settings(max_examples=25)
@given(ACTS)
def test_whatever_happens_between_the_prompt_before_is_the_beginning(acts: list[str]) -> None:
    def look(place: str) -> str:
        """Look somewhere."""
        return f"nothing at {place}"

    with sennit.open(":memory:", user="ada") as client:
        session, model = known(client), model_of()
        branch = session.default_branch
        before: list[Any] = []
        for number, act in enumerate(acts):
            if act == "fork":
                branch = branch.fork()
            elif act == "reopen":
                session = client.session("now")
                branch = session.get_branch(branch.id)
            elif act == "learn":
                other = client.session(f"other{number}")
                talk(other, f"I bought kiln number {number}.", f"I live in house {number}.")
                other.commit()
            else:
                call = [ToolCall("look", {"place": "shed"}, f"call_{number}")]
                model = model_of(*([call] if act == "tool" else []), "I see.")
                chat = conversation(client, session, model, branch=branch, tools=[look])
                chat.say(QUESTIONS[number % len(QUESTIONS)])
                for prompt in prompts(model):
                    assert begins_with(prompt, before)
                    before = prompt
