"""What a provider's prompt cache cannot follow is an event with its cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import Client, Session, SpecialTurn
from sennit.events import PromptChanged
from sennit.memory.retrieval.prompt_context import MemoryContext
from sennit.testing import ScriptedModel
from sennit.turns.special.definition import PersistenceStrategy

LONG = "clay and ash " * 100


def model(name: str = "sage", replies: int = 20) -> ScriptedModel:
    return ScriptedModel(["I see."] * replies, name=name)


def look(place: str) -> str:
    """Look somewhere."""
    return place


def changes(chat: Any) -> list[tuple[str, int]]:
    """The changes that were recorded on the branch of a conversation."""
    return [(e.reason, e.tokens) for e in chat.history() if isinstance(e, PromptChanged)]


def told(session: Session, **more: Any) -> Any:
    chat = session.conversation(model=model(), system="Be kind.", **more)
    for number in range(3):
        chat.say(f"Question {number}: {LONG}").raise_for_error()
    assert changes(chat) == []
    return chat


@pytest.fixture(params=["same process", "another process"])
def another(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """How to open the session again: as it is, or as another process would."""
    client = sennit.open(tmp_path / "s.db", user="ada")
    clients = [client]

    def open_again() -> Client:
        if request.param == "another process":
            clients.append(sennit.open(tmp_path / "s.db", user="ada"))
        return clients[-1]

    yield open_again
    for one in clients:
        one.close()


def test_a_changed_system_message_costs_the_whole_prompt(another: Any) -> None:
    told(another().session("now"))
    chat = another().session("now").conversation(model=model(), system="Be brief.")
    chat.say("Again?").raise_for_error()
    [(reason, tokens)] = changes(chat)
    assert reason == "system"
    assert 900 < tokens < 1200


def test_changed_tools_cost_the_whole_prompt(another: Any) -> None:
    told(another().session("now"))
    chat = another().session("now").conversation(model=model(), tools=[look])
    chat.say("Again?").raise_for_error()
    chat.say("And again?").raise_for_error()
    [(reason, tokens)] = changes(chat)
    assert reason == "tools"
    assert 900 < tokens < 1200


def test_a_commit_costs_what_it_archived_and_what_followed(another: Any) -> None:
    told(another().session("now"))
    another().session("now").commit()
    chat = another().session("now").conversation(model=model())
    chat.say("Again?").raise_for_error()
    chat.say("And again?").raise_for_error()
    [(reason, tokens)] = changes(chat)
    assert reason == "commit"
    assert 900 < tokens < 1200


def test_a_summary_costs_what_it_replaces(another: Any) -> None:
    told(another().session("now"))
    chat = another().session("now").conversation(model=model())
    summary = SpecialTurn(
        name="summary", instruction="Sum up.", strategy=PersistenceStrategy.REPLACE_ABOVE
    )
    chat.execute_special_turn_sync(summary).raise_for_error()
    chat.say("Again?").raise_for_error()
    [(reason, _)] = changes(chat)
    assert reason == "summary"


def test_an_edit_costs_what_came_after_it(another: Any) -> None:
    told(another().session("now"))
    chat = another().session("now").conversation(model=model())
    branch = chat.request.branch
    fork = chat.edit(branch.messages[3], "Something else?")  # the second question
    fork.run()
    fork.say("Again?").raise_for_error()
    [(reason, tokens)] = changes(fork)
    assert reason == "edit"
    assert 600 < tokens < 800


def test_a_removed_message_costs_what_came_after_it(another: Any) -> None:
    session = told(another().session("now")).request.session
    session = another().session("now")
    session.remove_message(session.default_branch.messages[5].id)  # the last question
    chat = session.conversation(model=model())
    chat.say("Again?").raise_for_error()
    [(reason, tokens)] = changes(chat)
    assert reason == "edit"
    assert 300 < tokens < 800


def test_what_is_forgotten_costs_the_rest_of_the_prompt(another: Any) -> None:
    client = another()
    before = client.session("before")
    before.add_message("user", "My name is Nora. My parrot is called Kiki.")
    before.commit()
    contexts = [MemoryContext(client.memory)]
    chat = client.session("now").conversation(model=model(), contexts=contexts)
    chat.say("Who am I?").raise_for_error()
    chat.say(f"And now? {LONG}").raise_for_error()
    client.forget(session="before")
    client = another()
    contexts = [MemoryContext(client.memory)]
    chat = client.session("now").conversation(model=model(), contexts=contexts)
    chat.say("Again?").raise_for_error()
    [(reason, tokens)] = changes(chat)
    assert reason == "forgotten"
    assert tokens > 300


def test_whatever_only_grows_is_no_change(another: Any) -> None:
    def tools() -> Any:
        return another().session("now").conversation(model=model(), tools=[look])

    chat = another().session("now").conversation(model=model(), system="Be kind.", tools=[look])
    chat.say("Hello.").raise_for_error()
    tools().say(LONG).raise_for_error()
    fork = tools().request.branch.fork(at=2)
    forked = another().session("now").conversation(fork.id, model=model(), tools=[look])
    forked.say("Elsewhere?").raise_for_error()
    tools().say("Again?").raise_for_error()
    assert changes(tools()) == changes(forked) == []


def test_another_model_has_a_cache_of_its_own(another: Any) -> None:
    told(another().session("now"))
    chat = another().session("now").conversation(model=model("other"), tools=[look])
    chat.say("Again?").raise_for_error()
    assert changes(chat) == []
