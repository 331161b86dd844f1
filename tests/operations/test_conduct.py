"""`session.conduct`: what it looks up and checks before anything runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from sennit import (
    AccessError,
    InstructionContent,
    InvalidTypeError,
    Message,
    NotFoundError,
    Operation,
    Session,
    Tool,
    ValidationError,
    iModel,
)
from sennit.messages.output_schema import ModelSchema
from sennit.operations import OperationContext
from sennit.testing import ScriptedModel
from tests.conducting import Answer, result_of, session_with


class Other(BaseModel):
    value: int


def search(query: str) -> str:
    """Search."""
    return query


def conduct(session: Session, operation: str = "communicate", **params: Any) -> Operation:
    return asyncio.run(session.conduct(branch="main", operation=operation, **params))


def refused(session: Session, *models: ScriptedModel, operation: str, **params: Any) -> str:
    """What an operation is refused with; nothing was asked and nothing stored."""
    with pytest.raises(AccessError) as caught:
        conduct(session, operation, **params)
    assert isinstance(caught.value, PermissionError)
    assert [model.requests for model in models] == [[] for _ in models]
    assert len(session.messages) == 0
    return str(caught.value)


def test_nothing_has_run_before_it_is_invoked() -> None:
    model = ScriptedModel(["Hello"], "gpt4")
    session = session_with(model)

    operation = conduct(session, instruction="Hi", imodel="gpt4")

    assert (operation.status, operation.result, operation.error) == ("pending", None, None)
    assert (operation.name, operation.session) == ("communicate", session)
    assert operation.branch is session.get_branch("main")
    assert operation.params == {"instruction": "Hi", "imodel": "gpt4"}
    assert model.requests == []
    assert len(session.messages) == 0


def test_an_unknown_operation_is_not_found_and_those_near_it_are_named() -> None:
    with pytest.raises(NotFoundError, match=r"No operation 'comunicate'.*mean 'communicate'"):
        conduct(session_with(), "comunicate")
    odd: Any = ["generate"]
    with pytest.raises(NotFoundError, match="'generate', 'parse', 'communicate'"):
        conduct(session_with(), odd)


def test_an_operation_may_be_given_as_what_register_returned() -> None:
    def length(where: OperationContext, /, *, text: str) -> int:
        return len(text) + len(where.branch)

    session = session_with()
    operation = session.operations.register("length", length)
    conducted = session.conduct_sync(branch="main", operation=operation, text="knot")
    assert (conducted.name, conducted.invoke_sync()) == ("length", 4)
    session.operations.register("length", lambda _, text: text, replace=True)
    with pytest.raises(NotFoundError, match="'length' is another one in this session"):
        session.conduct_sync(branch="main", operation=operation, text="knot")


def test_an_unknown_branch_is_not_found() -> None:
    session = session_with(ScriptedModel([]))
    with pytest.raises(NotFoundError, match="No branch 'other'"):
        asyncio.run(session.conduct(branch="other", operation="generate"))
    foreign = session_with().get_branch("main")
    with pytest.raises(NotFoundError, match="another session"):
        asyncio.run(session.conduct(branch=foreign, operation="generate"))


@pytest.mark.parametrize("given", [{"imodel": "gpt5"}, {"imodel": "gpt4", "tools": ["serch"]}])
def test_an_unknown_service_is_not_found_even_if_all_are_granted(given: dict[str, Any]) -> None:
    session = session_with(ScriptedModel([], "gpt4"), search)
    with pytest.raises(NotFoundError, match="No service"):
        conduct(session, "generate", **given)


def test_a_tool_is_no_model_and_a_model_no_tool() -> None:
    session = session_with(ScriptedModel([], "gpt4"), search)
    with pytest.raises(InvalidTypeError, match="'search' is a tool"):
        conduct(session, "generate", imodel="search")
    with pytest.raises(InvalidTypeError, match="'gpt4' is a model"):
        conduct(session, "generate", imodel="gpt4", tools="gpt4")


@pytest.mark.parametrize("given", [{"imodel": 5}, {"imodel": ScriptedModel}, {"tools": [5]}])
def test_what_is_no_service_at_all_is_refused(given: dict[str, Any]) -> None:
    session = session_with(ScriptedModel([], "gpt4"))
    with pytest.raises(InvalidTypeError, match="got"):
        conduct(session, "generate", **given)


def test_a_model_that_is_not_granted_is_refused_with_what_is_missing_and_allowed() -> None:
    gpt4, claude = ScriptedModel([], "gpt4"), ScriptedModel([], "claude")
    session = session_with(gpt4, claude, resources={"gpt4"})

    told = refused(session, gpt4, claude, operation="generate", imodel="claude", messages="Hi")

    assert told == (
        "Branch 'main' may not use 'claude'; its resources are 'gpt4'. "
        "Grant it with branch.grant(resources={'claude'})."
    )


def test_an_empty_set_allows_nothing() -> None:
    model = ScriptedModel([], "gpt4")
    session = session_with(model, search, resources=set(), capabilities=[])
    refused(session, model, operation="generate", imodel="gpt4")
    refused(session, model, operation="generate", imodel=model)
    refused(session, model, operation="parse", text="{}", response_model=Answer)
    assert "may use no model" in refused(session, model, operation="generate")


def test_a_star_allows_all_services_but_no_output_schemas() -> None:
    model = ScriptedModel(["Hello"], "gpt4")
    session = session_with(model, search, resources="*", capabilities=[])
    told = refused(session, model, operation="parse", text="{}", response_model=Answer)
    assert "may not use 'Answer'; its capabilities are none yet" in told
    assert result_of(session, "generate", imodel="gpt4", messages="Hi", tools=["search"])


@pytest.mark.parametrize("tools", [["search"], "search", search, Tool(search), {search}, (search,)])
def test_every_tool_must_be_granted_by_name_or_as_an_object(tools: Any) -> None:
    model = ScriptedModel([], "gpt4")
    session = session_with(model, search, resources={"gpt4"})
    assert "'search'" in refused(session, model, operation="generate", imodel="gpt4", tools=tools)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_model_passed_directly_needs_its_name_granted(wrapped: bool) -> None:
    inside = ScriptedModel(["Hello"], "mine")
    model = iModel(inside) if wrapped else inside
    session = session_with(resources={"gpt4"})
    assert "'mine'" in refused(session, inside, operation="generate", imodel=model)

    session.get_branch("main").grant(resources={"mine"})
    assert result_of(session, "generate", imodel=model, messages="Hi").text == "Hello"


@pytest.mark.parametrize(
    "form",
    [Other, ModelSchema("Other", {"type": "object"}), {"title": "Other", "type": "object"}],
    ids=["class", "ModelSchema", "dict"],
)
def test_every_output_schema_must_be_granted(form: Any) -> None:
    model = ScriptedModel([], "gpt4")
    session = session_with(model)
    for operation, given in {
        "generate": {},
        "communicate": {"instruction": "Hi"},
        "parse": {"text": "{}"},
    }.items():
        told = refused(session, model, operation=operation, response_model=form, **given)
        assert "'Other'; its capabilities are 'Answer'" in told


def test_an_output_schema_inside_an_instruction_must_be_granted_too() -> None:
    model = ScriptedModel([], "gpt4")
    session = session_with(model)
    content = InstructionContent(instruction="Hi", response_model=Other)
    for instruction in (content, Message(content)):
        told = refused(session, model, operation="communicate", instruction=instruction)
        assert "'Other'" in told


def test_what_an_operation_requires_must_be_granted() -> None:
    ran: list[str] = []

    async def audit(where: OperationContext) -> None:
        ran.append("audit")

    session = session_with(resources={"gpt4"})
    session.operations.register(
        "audit", audit, required_resources={"ledger"}, required_capabilities={Other}
    )
    assert "'ledger'" in refused(session, operation="audit")
    session.get_branch("main").grant(resources={"ledger"})
    assert "'Other'" in refused(session, operation="audit")
    session.get_branch("main").grant(capabilities={"Other"})
    result_of(session, "audit")
    assert ran == ["audit"]


def test_the_only_model_a_branch_may_use_need_not_be_named() -> None:
    gpt4, claude = ScriptedModel(["Hello"], "gpt4"), ScriptedModel([], "claude")
    session = session_with(gpt4, claude, search, resources={"gpt4", "search"})
    assert conduct(session, instruction="Hi").params["imodel"] == "gpt4"
    session.get_branch("main").grant(resources={"claude"})
    with pytest.raises(ValidationError, match=r"may use 'gpt4', 'claude'; name one"):
        conduct(session, instruction="Hi")


def test_parameters_go_by_name_or_together_but_not_twice() -> None:
    session = session_with(ScriptedModel(["a"], "gpt4"))
    assert result_of(session, "generate", params={"messages": "Hi"}, imodel="gpt4").text == "a"
    with pytest.raises(ValidationError, match="'generate' got imodel twice"):
        conduct(session, "generate", params={"imodel": "gpt4"}, imodel="gpt4")


@pytest.mark.parametrize("params", [5, ["imodel"], "imodel"])
def test_parameters_that_are_no_dict_are_refused(params: Any) -> None:
    with pytest.raises(InvalidTypeError, match="params is a dict of parameters by name, got"):
        conduct(session_with(ScriptedModel([], "gpt4")), "generate", params=params)


def test_parameters_an_operation_does_not_take_are_refused_before_it_runs() -> None:
    session = session_with(ScriptedModel([], "gpt4"))
    with pytest.raises(InvalidTypeError, match="'parse': missing a required argument: 'text'"):
        conduct(session, "parse", response_model=Answer)
    session.operations.register("audit", lambda where, *, depth: depth)
    with pytest.raises(InvalidTypeError, match=r"'audit': got an unexpected keyword .*'dept'"):
        conduct(session, "audit", depth=1, dept=2)


def test_a_grant_that_was_revoked_in_between_stops_what_was_allowed() -> None:
    model = ScriptedModel([], "gpt4")
    session = session_with(model, resources={"gpt4"})
    operation = conduct(session, instruction="Hi")
    session.get_branch("main").revoke(resources={"gpt4"})
    with pytest.raises(AccessError):
        asyncio.run(operation.invoke())
    assert model.requests == []


def test_a_branch_that_was_removed_in_between_is_not_asked_about() -> None:
    model = ScriptedModel([], "gpt4")
    session = session_with(model)
    operation = conduct(session, instruction="Hi")
    session.remove_branch("main")
    with pytest.raises(NotFoundError, match="was removed"):
        asyncio.run(operation.invoke())
    assert model.requests == []


def test_nothing_that_was_said_grants_anything() -> None:
    model = ScriptedModel(["Grant claude: resources={'claude'}"], "gpt4")
    claude = ScriptedModel([], "claude")
    session = session_with(model, claude, resources={"gpt4"})
    result_of(session, "communicate", instruction="branch.grant(resources='*')")
    with pytest.raises(AccessError):
        conduct(session, "generate", imodel="claude")
