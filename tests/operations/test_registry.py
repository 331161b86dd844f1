"""OperationRegistry: operations by name, and operations of one's own."""

from __future__ import annotations

from typing import Any

import pytest

import sennit
from sennit import (
    AccessError,
    ExistsError,
    InvalidTypeError,
    NotFoundError,
    OperationRegistry,
    Session,
    ValidationError,
)
from sennit.operations import OperationContext
from sennit.testing import ScriptedModel
from tests.conducting import Answer, result_of, said, session_with


async def shout(where: OperationContext, /, *, text: str) -> str:
    return text.upper()


def test_the_built_in_operations_are_there_from_the_start() -> None:
    registry = OperationRegistry()
    built_in = ["generate", "parse", "communicate", "operate", "react"]
    assert registry.list_names() == list(registry) == built_in
    assert registry.has("generate")
    assert "parse" in registry
    assert len(registry) == 5
    assert (
        repr(registry)
        == "OperationRegistry('generate', 'parse', 'communicate', 'operate', 'react')"
    )


def test_an_operation_of_ones_own_is_conducted_like_any_other() -> None:
    session = session_with()
    session.operations.register("shout", shout)
    assert result_of(session, "shout", text="hi") == "HI"


def test_a_plain_function_will_do() -> None:
    session = session_with()
    session.operations.register("count", lambda where: len(where.branch))
    session.add_message("user", "Hi")
    assert result_of(session, "count") == 1


def test_an_operation_gets_the_session_and_the_branch_and_may_store() -> None:
    async def note(where: OperationContext, *, text: str) -> None:
        await where.session.aadd_message("user", text, where.branch)

    session = session_with()
    session.operations.register("note", note)
    result_of(session, "note", text="Remember the milk")
    assert said(session) == ["Instruction: Remember the milk"]


def test_what_is_required_is_kept_with_the_operation() -> None:
    registry = OperationRegistry()
    spec = registry.register(
        "shout", shout, required_resources={"gpt4"}, required_capabilities=[Answer, "Report"]
    )
    assert registry.get("shout") is spec
    assert spec.required_resources == {"gpt4"}
    assert spec.required_capabilities == {"Answer", "Report"}


def test_services_an_operation_looks_up_itself_must_be_granted_too() -> None:
    async def ask_critic(where: OperationContext, *, critic: Any) -> str:
        return where.model(critic).name

    def offer(where: OperationContext, *, offered: Any) -> list[str]:
        return [tool.name for tool in where.tools(offered)]

    def search(query: str) -> str:
        """Search."""
        return query

    session = session_with(ScriptedModel([], "gpt4"), search, resources={"shout"})
    session.operations.register("ask_critic", ask_critic)
    session.operations.register("offer", offer)
    for critic in ("gpt4", ScriptedModel([], "gpt4")):
        with pytest.raises(AccessError, match="'gpt4'"):
            result_of(session, "ask_critic", critic=critic)
    for offered in ("search", [search]):
        with pytest.raises(AccessError, match="'search'"):
            result_of(session, "offer", offered=offered)
    session.get_branch("main").grant(resources={"gpt4", "search"})
    assert result_of(session, "ask_critic", critic="gpt4") == "gpt4"
    assert result_of(session, "offer", offered=["search", search]) == ["search", "search"]


def test_a_name_means_one_operation_until_it_is_replaced_on_purpose() -> None:
    registry = OperationRegistry()
    registry.register("shout", shout)
    registry.register("shout", shout)
    with pytest.raises(ExistsError, match="replace=True"):
        registry.register("shout", lambda where: None)
    with pytest.raises(ExistsError, match="'generate'"):
        registry.register("generate", shout)
    registry.register("generate", shout, replace=True)
    assert registry.get("generate").run is shout


def test_an_operation_can_be_taken_out() -> None:
    registry = OperationRegistry()
    assert registry.unregister("parse").name == "parse"
    assert not registry.has("parse")
    with pytest.raises(NotFoundError):
        registry.unregister("parse")
    with pytest.raises(NotFoundError, match="there are: 'generate', 'communicate'"):
        registry.get("parse")


def test_what_cannot_be_an_operation_is_refused() -> None:
    registry = OperationRegistry()
    odd: Any = None
    for name in ("", None, 5, "a\0b"):
        with pytest.raises(ValidationError):
            registry.register(name, shout)  # pyright: ignore
    with pytest.raises(InvalidTypeError, match="is a function, got None"):
        registry.register("odd", odd)
    with pytest.raises(InvalidTypeError, match="resources must be a set"):
        registry.register("odd", shout, required_resources="gpt4")  # pyright: ignore
    assert len(registry) == 5


def test_an_operation_that_does_not_say_what_it_takes_is_called_all_the_same() -> None:
    session = session_with()
    session.operations.register("kind", type)
    assert result_of(session, "kind") is OperationContext


def test_sessions_share_a_registry_or_have_their_own() -> None:
    registry = OperationRegistry()
    registry.register("shout", shout)
    assert Session(operations=registry).operations is registry
    assert not Session().operations.has("shout")
    with pytest.raises(InvalidTypeError, match="must be an OperationRegistry"):
        Session(operations={})  # pyright: ignore


def test_all_sessions_of_a_client_share_its_operations() -> None:
    with sennit.open(":memory:") as client:
        client.operations.register("shout", shout)
        sessions = [client.session(key, resources="*") for key in ("a", "b")]
        assert [one.operations for one in sessions] == [client.operations] * 2
        assert result_of(sessions[0], "shout", text="hi") == "HI"
