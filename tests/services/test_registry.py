"""The registry, and a session that asks what is in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import partial
from threading import Barrier, Thread
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel

import sennit
from sennit import (
    AccessError,
    ExistsError,
    InstructionContent,
    InvalidTypeError,
    Message,
    NotFoundError,
    ServiceRegistry,
    Session,
    SystemContent,
    Tool,
    ToolError,
    ValidationError,
)
from sennit.messages.output_schema import ModelSchema
from sennit.messages.typescript import ToolSchema
from sennit.services import ToolContext
from sennit.services.models.reply import Delta, Reply, ReplyText
from sennit.services.models.request import ModelRequest, model_request

_T = TypeVar("_T")


def run(work: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run(work)


class Echo:
    """A model that says what it was asked last, and keeps what it was sent."""

    window = None
    streams = False
    supports_output_schema = True

    def __init__(self, name: str = "test:echo") -> None:
        self.name = name
        self.asked: list[ModelRequest] = []

    async def aask(self, request: ModelRequest) -> Reply:
        self.asked.append(request)
        return Reply((ReplyText(str(request.messages[-1]["content"])),))

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        raise NotImplementedError


class Answer(BaseModel):
    text: str


def search(query: str) -> str:
    """Search."""
    return f"found {query}"


def greet(name: str) -> str:
    return f"Hello, {name}"


# Names


def test_models_tools_and_functions_stand_side_by_side_under_their_own_names() -> None:
    services = ServiceRegistry()
    model, tool = Echo(), Tool(search)
    assert services.register(model) is model
    assert services.register(tool) is tool
    made = services.register(greet)
    assert isinstance(made, Tool)
    assert services.list_names() == ["test:echo", "search", "greet"]
    assert list(services) == services.list_names()
    assert len(services) == 3
    assert services.get("test:echo") is model
    assert services.tool("greet") is made


def test_a_given_name_goes_before_the_own_one_and_is_the_one_a_model_sees() -> None:
    services = ServiceRegistry()
    model, tool = Echo(), Tool(search, timeout=3)
    services.register(model, name="gpt4")
    kept = services.register(tool, name="find")
    assert services.get("gpt4") is model
    assert (kept.name, kept.schema.name, kept.timeout) == ("find", "find", 3)
    assert tool.name == "search"


def test_registering_the_same_thing_again_changes_nothing() -> None:
    services, shop = ServiceRegistry(), Shop()
    tool, model = Tool(search), Echo()
    for thing, name in [(tool, "find"), (greet, None), (shop.buy, None), (model, None)]:
        first = services.register(thing, name)
        assert services.register(thing, name) is first
        assert services.register(first) is first


class Shop:
    def buy(self, thing: str) -> str:
        return thing


@pytest.mark.parametrize("other", [Echo("search"), Tool(greet, "search"), Tool(search)])
def test_a_name_that_is_taken_by_another_is_refused(other: Any) -> None:
    services = ServiceRegistry()
    first = services.register(search)
    with pytest.raises(ExistsError, match=r"'search' is already the name of Tool\('search'\)"):
        services.register(other)
    assert services.get("search") is first


def test_a_name_that_is_taken_may_be_replaced_on_purpose() -> None:
    services = ServiceRegistry()
    services.register(search)
    second = services.register(Tool(greet, "search"), replace=True)
    assert services.get("search") is second
    assert len(services) == 1


def test_the_same_model_may_have_several_names() -> None:
    services, model = ServiceRegistry(), Echo()
    services.register(model)
    services.register(model, "fast")
    assert services.get("fast") is services.get("test:echo")


def test_several_are_registered_all_or_none() -> None:
    services = ServiceRegistry()
    services.register(greet)
    with pytest.raises(ExistsError):
        services.register_all([search, Tool(search, "greet")])
    with pytest.raises(ExistsError):
        services.register_all([search, Tool(greet, "search")])
    assert services.list_names() == ["greet"]
    assert [one.name for one in services.register_all([search, greet])] == ["search", "greet"]


@pytest.mark.parametrize("name", ["", " ", "*", "a\nb", "x" * 201, 5, "a\0"])
def test_a_name_that_makes_no_sense_is_refused(name: Any) -> None:
    for service in (Echo(), search, Tool(search)):
        with pytest.raises(ValidationError, match="name"):
            ServiceRegistry().register(service, name)


def test_a_tools_name_is_stricter_than_a_models() -> None:
    services = ServiceRegistry()
    services.register(Echo("openai:gpt-5.2/mini"))
    with pytest.raises(ValidationError, match="cannot be the name of a tool"):
        services.register(search, "web:search")


@pytest.mark.parametrize("thing", [None, 5, "search", Echo, Tool, Shop, {}])
def test_what_is_no_service_is_refused(thing: Any) -> None:
    with pytest.raises(InvalidTypeError, match="A service is a model, a Tool or a typed function"):
        ServiceRegistry().register(thing)


def test_a_missing_name_says_what_is_there_and_what_comes_near() -> None:
    services = ServiceRegistry()
    with pytest.raises(NotFoundError, match=r"No service 'x'; there are: none yet\."):
        services.get("x")
    services.register(search)
    services.register(greet)
    with pytest.raises(NotFoundError, match=r"'search', 'greet'\. Did you mean 'search'\?"):
        services.get("serch")
    with pytest.raises(KeyError):
        services.unregister("nothing")


def test_a_model_is_no_tool_and_a_tool_is_no_model() -> None:
    services = ServiceRegistry()
    services.register(Echo())
    services.register(search)
    assert services.model("test:echo").name == "test:echo"
    with pytest.raises(InvalidTypeError, match="'search' is a tool; a model is needed"):
        services.model("search")
    with pytest.raises(InvalidTypeError, match="'test:echo' is a model; a tool is needed"):
        services.tool("test:echo")


def test_what_is_unregistered_is_given_back_and_gone() -> None:
    services = ServiceRegistry()
    tool = services.register(search)
    assert services.has("search")
    assert services.unregister("search") is tool
    assert not services.has("search")
    assert "search" not in services


def test_of_many_threads_that_want_one_name_exactly_one_gets_it() -> None:
    services, start, lost = ServiceRegistry(), Barrier(8), list[int]()

    def register(number: int) -> None:
        start.wait()
        try:
            services.register(Echo("one"))
        except ExistsError:
            lost.append(number)
        services.register(Echo(f"own-{number}"))

    threads = [Thread(target=partial(register, number)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lost) == 7
    assert len(services) == 9


# Sessions


def test_each_session_has_services_of_its_own_unless_it_is_given_some() -> None:
    shared = ServiceRegistry()
    assert Session().services is not Session().services
    assert Session(services=shared).services is shared
    with pytest.raises(InvalidTypeError, match="must be a ServiceRegistry"):
        Session(services={})  # type: ignore[arg-type]


def test_all_sessions_of_a_client_share_its_services() -> None:
    with sennit.open(":memory:") as client:
        client.services.register(search)
        assert client.session("a").services is client.services
        assert client.session("b").services.has("search")


def test_clients_of_several_users_may_share_their_services() -> None:
    shared = ServiceRegistry()
    with (
        sennit.open(":memory:", user="ada", services=shared) as ada,
        sennit.open(":memory:", user="bob", services=shared) as bob,
    ):
        ada.services.register(search)
        assert bob.session("b").services.has("search")
    with pytest.raises(InvalidTypeError, match="must be a ServiceRegistry"):
        sennit.open(":memory:", services=[])  # type: ignore[arg-type]


def asked(session: Session, name: str, /, **given: Any) -> Any:
    return run(session.request(name, **given))


def test_a_request_to_a_tool_gives_its_result() -> None:
    session = Session()
    session.services.register(greet)
    assert asked(session, "greet", name="Ada") == "Hello, Ada"
    with pytest.raises(ToolError, match="name: Field required"):
        asked(session, "greet")
    with pytest.raises(NotFoundError, match="No service 'great'"):
        asked(session, "great", name="Ada")


def test_a_tool_is_told_which_session_and_branch_asked() -> None:
    seen: list[ToolContext] = []

    def look(context: ToolContext) -> None:
        seen.append(context)

    session = Session()
    session.services.register(look)
    session.create_branch("main", resources={"look"})
    asked(session, "look", branch="main")
    asked(session, "look")
    assert [one.session_id for one in seen] == [session.id] * 2
    assert [one.branch for one in seen] == ["main", None]


def test_a_branch_may_only_ask_what_it_was_granted() -> None:
    runs: list[str] = []

    def act(what: str) -> None:
        runs.append(what)

    session = Session()
    session.services.register(act)
    bare = session.create_branch("bare")
    with pytest.raises(AccessError, match=r"Branch 'bare' may not use 'act'"):
        asked(session, "act", branch=bare, what="no")
    with pytest.raises(PermissionError):
        asked(session, "act", branch="bare", what="no")
    asked(session, "act", what="around")
    asked(session, "act", branch=session.create_branch("all", resources="*"), what="all")
    bare.grant(resources={"act"})
    asked(session, "act", branch=bare, what="granted")
    assert runs == ["around", "all", "granted"]


def test_a_branch_of_another_session_is_refused() -> None:
    session = Session()
    session.services.register(search)
    other = Session().create_branch("other", resources="*")
    with pytest.raises(NotFoundError, match="another session"):
        asked(session, "search", branch=other, query="x")


def test_a_request_to_a_model_gives_its_reply() -> None:
    session, model = Session(), Echo()
    session.services.register(model)
    reply = asked(session, "test:echo", messages="Hi", temperature=0.2)
    assert reply.text == "Hi"
    assert model.asked[0] == ModelRequest(
        messages=[{"role": "user", "content": "Hi"}], params={"temperature": 0.2}
    )


def test_a_request_to_a_model_may_name_tools_and_an_output() -> None:
    session, model = Session(), Echo()
    session.services.register_all([model, search])
    asked(session, "test:echo", messages=["Hi"], tools=["search", Tool(greet)], output=Answer)
    request = model.asked[0]
    assert [tool.name for tool in request.tools] == ["search", "greet"]
    assert request.output == ModelSchema("Answer", Answer.model_json_schema())
    asked(session, "test:echo", messages=["Hi"], tools="search")
    assert [tool.name for tool in model.asked[1].tools] == ["search"]


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({}, "'test:echo'"),
        ({"resources": {"test:echo"}}, "'search'"),
        ({"resources": {"test:echo", "search"}}, "'Answer'"),
    ],
)
def test_a_branch_must_be_granted_the_model_the_tools_and_the_output(
    given: Any, missing: str
) -> None:
    session, model = Session(), Echo()
    session.services.register_all([model, search])
    session.create_branch("main", **given)
    ask = {"messages": "Hi", "tools": ["search"], "output": Answer}
    with pytest.raises(AccessError, match=f"may not use {missing}"):
        asked(session, "test:echo", branch="main", **ask)
    assert model.asked == []
    session.get_branch("main").grant(resources={"test:echo", "search"}, capabilities={Answer})
    asked(session, "test:echo", branch="main", **ask)
    assert len(model.asked) == 1


def test_a_model_is_not_asked_without_messages() -> None:
    session = Session()
    session.services.register(Echo())
    with pytest.raises(InvalidTypeError, match=r"needs messages=\[\.\.\.\]"):
        asked(session, "test:echo")


# Requests to a model


SYSTEM = Message(SystemContent(system_message="Be brief."))


@pytest.mark.parametrize(
    ("messages", "chat"),
    [
        ("Hi", [("user", "Hi")]),
        (["Hi"], [("user", "Hi")]),
        (InstructionContent(instruction="Hi"), [("user", "Hi")]),
        ([SYSTEM, "Hi"], [("system", "Be brief."), ("user", "Hi")]),
        ({"instruction": "Hi"}, [("user", "Hi")]),
        ([{"role": "user", "content": "Hi"}], [("user", "Hi")]),
        ({"role": "assistant", "content": "Oh"}, [("assistant", "Oh")]),
        ((one for one in ["Hi"]), [("user", "Hi")]),
    ],
)
def test_messages_may_be_given_in_every_form(messages: Any, chat: Any) -> None:
    request = model_request(messages)
    assert [(one["role"], one["content"]) for one in request.messages] == chat


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([], ValidationError),
        (5, InvalidTypeError),
        ([5], InvalidTypeError),
        (["Hi", {"role": "user", "content": "Hi"}], InvalidTypeError),
        ([{"unknown": 1}], ValidationError),
    ],
)
def test_messages_that_are_none_are_refused(messages: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        model_request(messages)


def test_tools_may_be_given_in_every_form() -> None:
    bare = ToolSchema("bare", "", {"type": "object"})
    named = {"name": "named", "inputSchema": {"type": "object"}}
    request = model_request("Hi", tools=[bare, Tool(search), named, Answer])
    assert [tool.name for tool in request.tools] == ["bare", "search", "named", "Answer"]
    with pytest.raises(InvalidTypeError, match="Expected a Tool or the schema of one, got 'x'"):
        model_request("Hi", tools=["x"])  # type: ignore[list-item]


def test_a_parameter_nobody_knows_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(InvalidTypeError, match=r"'temprature'.*Did you mean 'temperature'"):
        model_request("Hi", temprature=1)  # pyright: ignore[reportCallIssue]
    for typed, meant in (("sytem", "system"), ("tool", "tools"), ("max_token", "max_tokens")):
        with pytest.raises(InvalidTypeError, match=f"'{typed}'. Did you mean '{meant}'"):
            sennit.Session().conversation(model="local", **{typed: "x"})  # pyright: ignore
    with pytest.raises(
        InvalidTypeError, match=r"no parameter 'xyz'\. The model parameters are temperature"
    ):
        model_request("Hi", xyz=1)  # pyright: ignore[reportCallIssue]
