"""What another program has deleted or changed is not told, sent to a model or built on here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit.testing import ScriptedModel
from tests.http_server import Running, serving
from tests.sessions.test_session import said

SECRET = "The combination is 4711."


class Pair:
    """A server, and another program on the same store."""

    def __init__(self, server: Running, other: sennit.Client, model: ScriptedModel) -> None:
        self.server, self.other, self.model = server, other, model

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        answer = self.server.post(path, body)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def chat(self, *said: str) -> str:
        """Send a whole history, the user first; gives the answer."""
        roles = ("user", "assistant")
        messages = [{"role": roles[at % 2], "content": one} for at, one in enumerate(said)]
        answer = self.post("/v1/chat/completions", model="m", messages=messages)
        return answer["choices"][0]["message"]["content"]

    def respond(self, said: str, **more: Any) -> str:
        return self.post("/v1/responses", model="m", input=said, **more)["id"]

    @property
    def session(self) -> sennit.Session:
        """The session changed last, as the other program sees it."""
        return self.other.session(self.other.sessions(limit=1)[0].id)

    def delete(self, what: str) -> None:
        """Have the other program remove the first message, or the whole session."""
        session = self.session
        if what == "session":
            self.other.delete_session(session.id)
        else:
            session.remove_message(next(iter(session.branches))[0])

    @property
    def prompt(self) -> list[Any]:
        return [one["content"] for one in self.model.requests[-1].messages]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    store = tmp_path / "s.db"
    model = ScriptedModel([f"Answer {number}." for number in range(20)], name="m")
    with serving(store, models=[model]) as server, sennit.open(store) as other:
        yield Pair(server, other, model)


@pytest.mark.parametrize("what", ["message", "session"])
def test_a_response_deleted_elsewhere_is_told_by_no_route(pair: Pair, what: str) -> None:
    response = pair.respond(SECRET)
    pair.delete(what)
    path = f"/v1/responses/{response}"
    for answer in (pair.server.get(path), pair.server.get(f"{path}/input_items")):
        assert (answer.status_code, SECRET in answer.text) == (404, False)


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("what", ["message", "session"])
def test_a_response_deleted_elsewhere_is_sent_to_no_model(
    pair: Pair, what: str, store: bool
) -> None:
    first = pair.respond(SECRET)
    second = pair.respond("Go on.", previous_response_id=first)
    pair.delete(what)
    asked = len(pair.model.requests)
    for before in (first, second):
        more = {"model": "m", "input": "What was it?", "previous_response_id": before}
        answer = pair.server.post("/v1/responses", {**more, "store": store})
        gone = before == first or what == "session"
        assert answer.status_code == (400 if gone else 200), answer.text
    assert SECRET not in str(pair.model.requests[asked:])


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("what", ["message", "session"])
def test_a_conversation_deleted_elsewhere_is_sent_to_no_model(
    pair: Pair, what: str, store: bool
) -> None:
    item = {"type": "message", "role": "user", "content": SECRET}
    conversation = pair.post("/v1/conversations", items=[item])["id"]
    pair.respond("Go on.", conversation=conversation)
    pair.delete(what)
    asked = len(pair.model.requests)
    more = {"model": "m", "input": "What was it?", "conversation": conversation, "store": store}
    answer = pair.server.post("/v1/responses", more)
    assert answer.status_code == (404 if what == "session" else 200), answer.text
    assert SECRET not in str(pair.model.requests[asked:])


@pytest.mark.parametrize("what", ["message", "session"])
def test_a_history_changed_elsewhere_is_answered_as_it_was_sent(pair: Pair, what: str) -> None:
    history = ["Hello.", "", "And then?", "", "And now?"]
    history[1] = pair.chat(*history[:1])
    history[3] = pair.chat(*history[:3])
    pair.delete(what)
    pair.chat(*history)
    assert pair.prompt == history


def test_as_many_other_messages_are_not_taken_for_the_history_that_was_sent(pair: Pair) -> None:
    history = ["Hello.", "", "And then?", "", "And now?"]
    history[1] = pair.chat(*history[:1])
    history[3] = pair.chat(*history[:3])
    session = pair.session
    branch = next(iter(session.branches))
    session.remove_messages(branch[:2])
    session.add_message("user", SECRET, branches=branch)
    session.add_message("assistant", "I will keep it.", branches=branch)
    pair.chat(*history)
    assert pair.prompt == history


def test_a_fork_of_a_history_changed_elsewhere_has_what_was_sent(pair: Pair) -> None:
    history = ["Hello.", "", "And then?"]
    history[1] = pair.chat(*history[:1])
    pair.chat(*history)
    pair.delete("message")
    history[2] = "Or else?"
    pair.chat(*history)
    assert pair.prompt == history


def test_a_conversation_may_begin_as_one_did_that_was_deleted_elsewhere(pair: Pair) -> None:
    pair.chat("Hello.")
    pair.delete("session")
    pair.chat("Hello.")
    assert pair.prompt == ["Hello."]
    assert len(pair.other.sessions()) == 1


@pytest.mark.parametrize("what", ["message", "session"])
def test_the_first_words_are_asked_again_though_they_were_deleted_elsewhere(
    pair: Pair, what: str
) -> None:
    pair.chat("Hello.")
    pair.chat("Hello.")
    pair.delete(what)
    pair.chat("Hello.")
    assert pair.prompt == ["Hello."]
    assert ["Hello.", "Answer 2."] in [said(branch) for branch in pair.session.branches]


def test_the_key_of_a_session_deleted_elsewhere_is_free_again(pair: Pair) -> None:
    pair.post("/api/sessions", key="knots", system="Be brief.")
    assert pair.server.get("/api/sessions/knots").status_code == 200
    pair.delete("session")
    pair.post("/api/sessions", key="knots", system="Be kind.")
    messages = pair.server.get("/api/sessions/knots/branches/main/messages").json()["messages"]
    assert [one["text"] for one in messages] == ["Be kind."]
    again = pair.server.post("/api/sessions", {"key": "knots", "system": "Be kind."})
    assert again.status_code == 409


def test_events_after_a_number_beyond_all_are_refused(pair: Pair) -> None:
    pair.post("/api/sessions", key="knots", system="Be brief.")
    answer = pair.server.get(f"/api/sessions/knots/branches/main/events?after={10**23}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (422, "after")
