"""The public Session: kept in a store without a client, and who speaks in it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import sennit
from sennit import (
    ExistsError,
    InstructionContent,
    InvalidTypeError,
    Message,
    Session,
    StoreError,
    ValidationError,
)
from sennit.containers import Flow, Progression
from sennit.stores.in_memory.store import MemoryStore
from sennit.stores.sqlite.store import SQLiteStore


@pytest.mark.parametrize("as_path", [True, False])
def test_a_session_with_a_store_is_there_again_under_its_id(tmp_path: Path, as_path: bool) -> None:
    store: Any = tmp_path / "a.db" if as_path else str(tmp_path / "a.db")
    with Session("ada", store=store, metadata={"topic": "knots"}) as session:
        main = session.create_branch("main", resources={"gpt4"})
        session.add_message("user", "Hi")
        session.fork(main, name="other")

    with Session(store=store, id=str(session.id)) as again:
        assert again.id == session.id
        assert (again.user, again.metadata) == ("ada", {"topic": "knots"})
        assert again.created_at == session.created_at
        assert [branch.name for branch in again.branches] == ["main", "other"]
        assert again.get_branch("main").resources == {"gpt4"}
        assert [m.to_dict() for m in again.messages] == [m.to_dict() for m in session.messages]


def test_without_an_id_it_is_a_new_one(tmp_path: Path) -> None:
    with Session(store=tmp_path / "a.db") as one, Session(store=tmp_path / "a.db") as other:
        one.add_message("user", "Hi")
        assert one.id != other.id
        assert len(other.messages) == 0


def test_a_store_that_was_given_is_left_open() -> None:
    store = MemoryStore()
    with Session(store=store) as session:
        session.add_message("user", "Hi")
    with Session(store=store, id=session.id) as again:
        assert len(again.messages) == 1


def test_a_store_that_was_named_is_closed_with_the_session(tmp_path: Path) -> None:
    session = Session(store=tmp_path / "a.db")
    session.close()
    with pytest.raises(StoreError):
        session.add_message("user", "Hi")


def test_two_sessions_on_one_id_see_what_the_other_wrote(tmp_path: Path) -> None:
    store, uid = SQLiteStore(tmp_path / "a.db"), uuid4()
    with Session(store=store, id=uid) as one, Session(store=store, id=uid) as other:
        asyncio.run(one.aadd_message("user", "Hi"))
        other.refresh()
        assert len(other.messages) == 1
    store.close()


def test_a_client_of_the_default_user_reaches_it(tmp_path: Path) -> None:
    with Session(store=tmp_path / "a.db") as session:
        session.add_message("user", "Hi")
    with sennit.open(tmp_path / "a.db") as client:
        assert len(client.session(session.id).messages) == 1
    with sennit.open(tmp_path / "a.db", user="eve") as client:
        assert client.sessions() == []


def test_conversations_are_taken_over_into_a_new_session_only(tmp_path: Path) -> None:
    one, two = (Message(InstructionContent(instruction=text)) for text in ("One", "Two"))
    flow = Flow([one, two], [Progression([two.id, one.id], name="main")])
    with Session(conversations=flow, store=tmp_path / "a.db") as session:
        assert list(session.get_branch("main")) == [two.id, one.id]
    with Session(store=tmp_path / "a.db", id=session.id) as again:
        assert list(again.get_branch("main")) == [two.id, one.id]
        assert len(again.messages) == 2
    with pytest.raises(ExistsError, match="already exists in the store, with 2 messages"):
        Session(conversations=flow, store=tmp_path / "a.db", id=session.id)


@pytest.mark.parametrize("store", [5, MemoryStore, object()])
def test_what_is_no_store_is_refused(store: Any) -> None:
    with pytest.raises(InvalidTypeError, match="store must be a Store"):
        Session(store=store)


@pytest.mark.parametrize("store", ["", "mysql://host/db"])
def test_an_address_of_no_known_kind_is_refused(store: str) -> None:
    with pytest.raises(ValidationError, match="not a supported store URL"):
        Session(store=store)


def test_a_session_in_memory_has_nothing_to_close() -> None:
    with Session() as session:
        session.add_message("user", "Hi")
    asyncio.run(session.aclose())
    session.add_message("user", "Still here")
    assert len(session.messages) == 2


def test_what_the_assistant_says_is_sent_under_the_name_of_the_agent() -> None:
    session = Session("ada", agent="helper")
    for role in ("user", "assistant"):
        session.add_message(role, "Hi")
    assert [message.sender for message in session.messages] == ["ada", "helper"]
    assert (session.user, session.agent, Session().agent) == ("ada", "helper", "assistant")
    with pytest.raises(InvalidTypeError, match="agent must be"):
        Session(agent=5)  # pyright: ignore


def test_a_client_names_the_agent_of_its_sessions() -> None:
    with sennit.open(":memory:", agent="helper") as client:
        session = client.session("chat")
        session.add_message("assistant", "Hi")
        assert (client.agent, session.agent) == ("helper", "helper")
        assert session.messages[0].sender == "helper"
    assert sennit.open(":memory:").agent == "assistant"
    with pytest.raises(ValidationError, match="agent"):
        sennit.open(":memory:", agent="a\0b")
