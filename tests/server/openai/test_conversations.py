"""/v1/conversations as OpenAI's official client uses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError, ConflictError, NotFoundError

from sennit.server.http.tokens import add_token, new_token
from sennit.testing import ScriptedModel, ToolCall
from tests.http_server import Gate, Talker, serving
from tests.openai_client import Chat, client, served

KNOT = {"type": "message", "role": "user", "content": "Name a knot."}
KIND = {"role": "system", "content": "Be kind."}
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}}


def respond(chat: Chat, said: Any, conversation: str, **more: Any) -> Any:
    return chat.openai.responses.create(model="sage", input=said, conversation=conversation, **more)


def items(chat: Chat, conversation: str, **more: Any) -> list[tuple[str, str]]:
    found = chat.openai.conversations.items.list(conversation, order="asc", **more)
    return [(one.role, one.content[0].text) for one in found]


def test_a_conversation_is_made_with_items_read_and_noted(tmp_path: Path) -> None:
    with served(store=tmp_path / "s.db") as chat:
        api = chat.openai.conversations
        said = [KIND, KNOT, {"role": "assistant", "content": "The bowline."}]
        made = api.create(items=said, metadata={"topic": "knots"})
        assert made.id.startswith("conv_")
        assert (made.object, made.metadata) == ("conversation", {"topic": "knots"})
        assert api.retrieve(made.id) == made
        assert items(chat, made.id) == [
            ("system", "Be kind."),
            ("user", "Name a knot."),
            ("assistant", "The bowline."),
        ]
        noted = api.update(made.id, metadata={"topic": "ropes", "mood": "calm"})
        assert noted.metadata == {"topic": "ropes", "mood": "calm"}
    with served(store=tmp_path / "s.db") as chat:
        assert chat.openai.conversations.retrieve(made.id) == noted
        assert chat.openai.conversations.update(made.id, metadata=None).metadata == {}


def test_responses_go_on_in_it_and_are_among_its_items() -> None:
    with served("The bowline.", "The sheet bend.", "Knots hold.") as chat:
        made = chat.openai.conversations.create(items=[KIND])
        first = respond(chat, "Name a knot.", made.id, instructions="Be brief.")
        assert first.conversation.id == made.id
        respond(chat, "Another.", made.id)
        assert chat.asked(0)[0]["content"] == "Be brief.\n\nBe kind."
        assert [one["content"] for one in chat.asked(1)] == [
            "Be kind.",  # what was told for one response holds for that one
            "Name a knot.",
            "The bowline.",
            "Another.",
        ]
        chat.openai.conversations.items.create(made.id, items=[{**KIND, "content": "Sing."}])
        respond(chat, "Why?", made.id)
        assert chat.asked(2)[0]["content"] == "Be kind.\n\nSing."
        said = [text for _, text in items(chat, made.id)]
        assert said[1:] == [
            "Name a knot.",
            "The bowline.",
            "Another.",
            "The sheet bend.",
            "Why?",
            "Knots hold.",
        ]
        assert len(chat.sessions()) == 1


def test_items_are_listed_page_by_page_from_either_end() -> None:
    with served() as chat:
        said = [{"role": "user", "content": str(number)} for number in range(7)]
        made = chat.openai.conversations.create(items=said)
        api = chat.openai.conversations.items
        assert [one.content[0].text for one in api.list(made.id, limit=3)] == list("6543210")
        assert items(chat, made.id, limit=2) == [("user", str(number)) for number in range(7)]
        page = api.list(made.id, limit=4, include=["message.input_image.image_url"])
        assert (page.has_more, len(page.data)) == (True, 4)
        rest = api.list(made.id, after=page.last_id)
        assert [one.content[0].text for one in rest] == list("210")
        for wrong in ({"after": "msg_nothing"}, {"limit": 0}, {"limit": 101}):
            with pytest.raises(BadRequestError) as caught:
                api.list(made.id, **wrong)
            assert caught.value.param in wrong


def test_items_are_added_looked_at_and_erased() -> None:
    with served([ToolCall("weather", {}, id="c1")], "Rain.") as chat:
        conversations = chat.openai.conversations
        made = conversations.create()
        respond(chat, "Weather?", made.id, tools=[WEATHER])
        result = {"type": "function_call_output", "call_id": "c1", "output": "wet"}
        added = conversations.items.create(made.id, items=[result, KNOT])
        assert [one.type for one in added.data] == ["function_call_output", "message"]
        assert conversations.items.retrieve(added.first_id, conversation_id=made.id).output == "wet"
        left = conversations.items.delete(added.last_id, conversation_id=made.id)
        assert left.id == made.id
        with pytest.raises(NotFoundError):
            conversations.items.retrieve(added.last_id, conversation_id=made.id)
        kinds = [one.type for one in conversations.items.list(made.id)]
        assert kinds == ["function_call_output", "function_call", "message"]
        with pytest.raises(BadRequestError, match="belongs to no open call"):
            conversations.items.create(made.id, items=[{**result, "call_id": "c2"}])
        with pytest.raises(BadRequestError) as caught:
            conversations.items.create(made.id, items=[KNOT, {"type": "surprise"}])
        assert caught.value.param == "items[1]"
        assert len(conversations.items.list(made.id).data) == 3


def test_a_deleted_conversation_is_gone_and_not_made_again_by_its_id() -> None:
    with served("The bowline.", "The bowline.") as chat:
        made = chat.openai.conversations.create(items=[KNOT])
        gone = chat.openai.conversations.delete(made.id)
        assert (gone.id, gone.deleted, gone.object) == (made.id, True, "conversation.deleted")
        for call in (
            lambda: chat.openai.conversations.retrieve(made.id),
            lambda: chat.openai.conversations.delete(made.id),
            lambda: chat.openai.conversations.items.list(made.id),
            lambda: respond(chat, "Hello", made.id),
        ):
            with pytest.raises(NotFoundError):
                call()
        assert chat.sessions() == []


def test_a_response_that_is_not_stored_knows_the_conversation_and_leaves_it_as_it_is() -> None:
    with served("The bowline.") as chat:
        made = chat.openai.conversations.create(items=[KIND, KNOT])
        respond(chat, "Please.", made.id, store=False)
        assert [one["content"] for one in chat.asked()] == ["Be kind.", "Name a knot.", "Please."]
        assert len(items(chat, made.id)) == 2


def test_a_session_of_any_origin_is_a_conversation_by_its_name() -> None:
    with served("The bowline.") as chat:
        respond(chat, "Name a knot.", "knots")
        assert items(chat, "knots") == [("user", "Name a knot."), ("assistant", "The bowline.")]
        assert chat.openai.conversations.update("knots", metadata={"a": "b"}).metadata == {"a": "b"}


def test_deleting_its_only_response_leaves_the_conversation() -> None:
    with served("The bowline.") as chat:
        made = chat.openai.conversations.create(metadata={"topic": "knots"})
        response = respond(chat, "Name a knot.", made.id)
        chat.openai.responses.delete(response.id)
        assert chat.openai.conversations.retrieve(made.id).metadata == {"topic": "knots"}
        assert items(chat, made.id) == []


def test_what_cannot_be_is_refused_and_leaves_nothing() -> None:
    with served() as chat:
        for more, param in (
            ({"metadata": {"k": "v" * 513}}, "metadata.k"),
            ({"metadata": {str(number): "x" for number in range(17)}}, "metadata"),
            ({"items": [KNOT, {"type": "surprise"}]}, "items[1]"),
            ({"extra_body": {"surprise": True}}, "surprise"),
        ):
            with pytest.raises(BadRequestError) as caught:
                chat.openai.conversations.create(**more)
            assert caught.value.param == param
        assert chat.sessions() == []


def test_a_conversation_of_another_owner_is_not_there(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    secrets: list[str] = []
    for user in ("ada", "bob"):
        secret, line = new_token(user=user)
        add_token(tokens, line)
        secrets.append(secret)
    model = ScriptedModel([], name="sage")
    with serving(tmp_path / "s.db", models=[model], tokens=tokens) as server:
        ada, bob = (client(server, secret) for secret in secrets)
        made = ada.conversations.create(items=[KNOT])
        (item,) = ada.conversations.items.list(made.id)
        for call in (
            lambda: bob.conversations.retrieve(made.id),
            lambda: bob.conversations.update(made.id, metadata={}),
            lambda: bob.conversations.delete(made.id),
            lambda: bob.conversations.items.retrieve(item.id, conversation_id=made.id),
            lambda: bob.conversations.items.create(made.id, items=[KNOT]),
            lambda: bob.responses.create(model="sage", input="Hi", conversation=made.id),
        ):
            with pytest.raises(NotFoundError):
                call()
        assert len(ada.conversations.items.list(made.id).data) == 1


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def stored(chat: Chat) -> int:
    """How many messages that are no system messages stand on the branches of all sessions."""
    found = set[str]()
    for session in chat.sessions():
        for branch in chat.branches(session["id"]):
            path = f"/api/sessions/{session['id']}/branches/{branch['id']}/messages"
            said = chat.server.get(path).json()["messages"]
            found |= {one["id"] for one in said if one["kind"] != "system"}
    return len(found)


def test_what_a_response_has_stored_is_not_stored_again_when_it_is_added(tmp_path: Path) -> None:
    """A client that adds question and answer afterwards, also after the server was restarted."""
    history: list[Any] = [user("Hi"), assistant("Hello.")]
    with served("The bowline.", store=tmp_path / "s.db") as chat:
        made = chat.openai.conversations.create(items=history)
    for question, answer in (("A knot?", "The bowline."), ("A knot?", "The bowline.")):
        with served(answer, store=tmp_path / "s.db") as chat:
            api = chat.openai.conversations.items
            assert len(items(chat, made.id)) == len(history)
            said = [user(question), assistant(answer)]
            response = chat.openai.responses.create(model="sage", input=[*history, said[0]])
            assert response.output_text == answer
            assert len(items(chat, made.id)) == len(history)  # the client alone adds to it
            added = api.create(made.id, items=said)
            assert [one.content[0].text for one in added.data] == [question, answer]
            history += said
            assert items(chat, made.id) == [(one["role"], one["content"]) for one in history]
            assert stored(chat) == len(history)
            assert len(chat.sessions()) == 1
            assert chat.openai.responses.retrieve(response.id).output_text == answer


def test_what_is_remembered_of_an_item_stays_when_its_answer_is_added() -> None:
    tea = [user("I prefer oolong tea.")]
    with served("Noted.") as chat:
        made = chat.openai.conversations.create(items=tea)
        chat.server.post(f"/api/sessions/{made.id.removeprefix('conv_')}/commit")
        (known,) = chat.server.get("/api/memories").json()["memories"]
        chat.openai.responses.create(model="sage", input=tea)
        chat.openai.conversations.items.create(made.id, items=[assistant("Noted.")])
        assert items(chat, made.id) == [("user", "I prefer oolong tea."), ("assistant", "Noted.")]
        (still,) = chat.server.get("/api/memories").json()["memories"]
        assert still["text"] == known["text"]


def test_what_is_said_again_is_stored_again() -> None:
    with served("Yes.") as chat:
        api = chat.openai.conversations
        made = api.create(items=[user("Sure?")])
        chat.openai.responses.create(model="sage", input=[user("Sure?")])
        for said in (
            [assistant("Yes.")],
            [user("Sure?")],
            [assistant("Yes.")],
            [assistant("Yes.")],
        ):
            api.items.create(made.id, items=said)
        texts = [text for _, text in items(chat, made.id)]
        assert texts == ["Sure?", "Yes.", "Sure?", "Yes.", "Yes."]
        assert stored(chat) == 5


def test_who_says_the_same_without_the_conversation_does_not_change_it() -> None:
    with served("One.", "Two.", "Three.") as chat:
        api = chat.openai.conversations
        made = api.create(items=[user("Count."), assistant("Zero."), user("On.")])
        before = items(chat, made.id)
        for _ in range(2):
            chat.ask(user("Count."), assistant("Zero."), user("On."))
        chat.openai.responses.create(
            model="sage", input=[user("Count."), assistant("Zero."), user("On.")]
        )
        assert items(chat, made.id) == before
        api.items.create(made.id, items=[assistant("Another.")])
        assert items(chat, made.id) == [*before, ("assistant", "Another.")]


def test_a_response_stays_what_it_is_when_items_said_for_it_are_deleted() -> None:
    with served("The bowline.", "It holds.") as chat:
        conversations, responses = chat.openai.conversations, chat.openai.responses
        name = conversations.create().id
        said = [{"role": "user", "content": one} for one in ("Name", "a", "knot.")]
        first = responses.create(model="sage", conversation=name, input=said)
        responses.create(model="sage", conversation=name, input="Why?")
        for item in list(conversations.items.list(name, order="asc"))[1:3]:
            conversations.items.delete(item.id, conversation_id=name)
        assert responses.retrieve(first.id).output_text == "The bowline."
        responses.delete(first.id)
        assert chat.said(name.removeprefix("conv_")) == ["Why?", "It holds."]


def test_a_response_ends_where_the_model_did_whatever_the_assistant_says_next() -> None:
    with served("The bowline.", "It holds.") as chat:
        first = chat.openai.responses.create(model="sage", input="Name a knot.")
        said = [
            {"role": "assistant", "content": "Or a hitch."},
            {"role": "user", "content": "Why?"},
        ]
        then = {"previous_response_id": first.id, "input": said}
        chat.openai.responses.create(model="sage", **then)
        assert chat.openai.responses.retrieve(first.id).output_text == "The bowline."


def test_a_response_that_is_deleted_leaves_no_answer_behind() -> None:
    gate = Gate()
    with serving(models=[Talker(gate=gate)]) as server, client(server) as openai:
        name = openai.conversations.create(items=[KNOT]).id
        asked = {"model": "talker", "input": "Say secret.", "conversation": name}
        stream = openai.responses.create(**asked, stream=True)
        response = next(stream).response.id
        gate.reached()
        with pytest.raises(ConflictError):
            openai.responses.delete(response)
        gate.open()
        assert list(stream)[-1].type == "response.completed"
        openai.responses.delete(response)
        assert [one.content[0].text for one in openai.conversations.items.list(name)] == [
            "Name a knot."
        ]
