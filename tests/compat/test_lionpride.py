"""Programs written for lionpride, with the import line changed."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from pydantic import BaseModel

from sennit.compat.lionpride import (
    IPU,
    AccessError,
    Branch,
    CommunicateParams,
    Element,
    Flow,
    GenerateParams,
    InstructionContent,
    Message,
    MessageRole,
    OperateParams,
    ParseParams,
    Pile,
    Progression,
    ReactParams,
    ServiceRegistry,
    Session,
    SystemContent,
    Tool,
    communicate,
    generate,
    iModel,
    operate,
    parse,
    react,
    serialize_sender_recipient,
    validate_sender_recipient,
)
from sennit.errors import InvalidTypeError, NotFoundError, ValidationError
from sennit.testing import ScriptedModel, ToolCall
from sennit.testing.scripted_model import Scripted

pytestmark = pytest.mark.anyio


class Person(BaseModel):
    name: str
    age: int


def instruction(text: str) -> Message:
    return Message(content=InstructionContent(instruction=text))


def session_of(*replies: Scripted) -> tuple[Session, Branch, ScriptedModel]:
    model = ScriptedModel(list(replies), name="scripted")
    session = Session(default_generate_model=model)
    return session, session.create_branch(name="main", resources={"scripted"}), model


async def test_operations_are_functions_of_session_branch_and_a_dict_of_parameters() -> None:
    model = ScriptedModel(["A bowline.", "A slip knot."], name="scripted")
    session = Session()
    session.services.register(model)
    branch = session.create_branch(name="main", resources={model.name})

    first = await communicate(
        session=session,
        branch=branch,
        parameters={"instruction": "A knot that holds?", "imodel": model.name},
    )
    second = await session.invoke(
        operation="communicate",
        branch=branch,
        parameters={
            "instruction": "And one that slips?",
            "context": {"use": "a snare"},
            "imodel": model.name,
        },
    )

    assert (first, second) == ("A bowline.", "A slip knot.")
    assert [session.messages[uid].role for uid in branch.order] == [
        MessageRole.USER,
        MessageRole.ASSISTANT,
    ] * 2
    asked = session.messages[branch.order[2]].content
    assert isinstance(asked, InstructionContent)
    assert asked.context == [{"use": "a snare"}]


async def test_typed_parameters_use_the_default_model() -> None:
    session, branch, _ = session_of("4", "4", '{"name": "Bob", "age": 28}')

    text = await generate(session, branch, GenerateParams(instruction="2 + 2?", return_as="text"))
    message = await generate(
        session, branch, params=GenerateParams(instruction="2 + 2?", return_as="message")
    )
    assert (text, message.role, message.content.words) == ("4", MessageRole.ASSISTANT, "4")
    assert len(branch) == 0  # generate stores nothing

    branch.grant(capabilities={"Person"})
    params = CommunicateParams(
        generate=GenerateParams(instruction="Who?", request_model=Person), capabilities={"Person"}
    )
    assert await communicate(session, branch, params) == Person(name="Bob", age=28)
    assert len(branch) == 2


async def test_generate_sends_the_history_and_the_instruction_with_its_context() -> None:
    session, branch, model = session_of("ok")
    session.add_message(instruction("Earlier"), branch)
    await generate(session, branch, GenerateParams(instruction="Now", context=["a fact"]))
    sent = str(model.requests[0].messages)
    assert "Earlier" in sent
    assert "Now" in sent
    assert "a fact" in sent


async def test_undeclared_capabilities_and_ungranted_models_are_refused() -> None:
    session, branch, _ = session_of("never asked")
    params = CommunicateParams(
        generate=GenerateParams(instruction="Who?", request_model=Person), capabilities={"Person"}
    )
    with pytest.raises(AccessError, match="Person"):
        await communicate(session, branch, params)
    with pytest.raises(PermissionError, match="scripted"):
        await communicate(session, session.create_branch(), {"instruction": "Hi"})


async def test_operate_offers_tools_only_with_actions() -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    session, branch, model = session_of("no tools", [ToolCall("add", {"a": 1, "b": 2})], "3")
    session.services.register(Tool.from_function(add))
    branch.grant(resources={"add"})
    asked = GenerateParams(instruction="1 + 2?")
    without = OperateParams(generate=asked, tools=["add"])
    assert await operate(session, branch, without) == "no tools"
    every = OperateParams(generate=asked, tools=True, actions=True)
    assert await operate(session, branch, every) == "3"
    assert [len(request.tools) for request in model.requests] == [0, 1, 1]


async def test_react_returns_its_steps_and_says_why_it_stopped() -> None:
    def multiply(a: int, b: int) -> int:
        """Multiply two numbers."""
        return a * b

    call = [ToolCall("multiply", {"a": 42, "b": 3})]
    session, branch, _ = session_of(["I multiply.", *call], "126", call, call)
    session.services.register(Tool.from_function(multiply))
    branch.grant(resources={"multiply"})
    parameters = {"instruction": "42 x 3?", "tools": ["multiply"], "max_steps": 5}

    result = await react(session=session, branch=branch, parameters=parameters)

    assert (result.final_response, result.total_steps, result.completed) == ("126", 2, True)
    first, last = result.steps
    assert (first.step, first.reasoning, first.is_final) == (1, "I multiply.", False)
    assert first.actions_requested[0].function == "multiply"
    assert first.actions_executed[0].arguments == {"a": 42, "b": 3}
    assert first.actions_executed[0].output == 126
    assert last.is_final
    assert last.reasoning == "126"

    stopped = await react(
        session,
        branch,
        ReactParams(generate=GenerateParams(instruction="Again?"), tools=["multiply"], max_steps=1),
    )
    assert not stopped.completed
    assert stopped.final_response is None
    assert "turn" in stopped.reason_stopped or "tool" in stopped.reason_stopped


async def test_parse_finds_the_keys_in_prose_and_asks_a_model_only_if_they_are_not_there() -> None:
    session, branch, model = session_of('{"name": "Ada", "age": 36}')
    text = 'Here you are: {"name": "Bob", "age": 28}.'
    params = ParseParams(text=text, target_keys=["name", "age"])
    assert await parse(session, branch, params) == {"name": "Bob", "age": 28}
    assert not model.requests
    prose = {"text": "Ada is 36.", "target_keys": ["name", "age"], "imodel": "scripted"}
    assert await parse(session, branch, prose) == {"name": "Ada", "age": 36}
    with pytest.raises(ValidationError, match="target_keys"):
        await parse(session, branch, {"text": "x"})


async def test_conduct_takes_both_orders_of_its_values() -> None:
    session, branch, model = session_of("one", "two", "three")
    ipu = IPU()
    older = await session.conduct(branch, "generate", ipu, imodel="scripted", messages=["Hi"])
    assert not model.requests
    assert (await older.invoke()).text == "one"
    assert older.response.text == "one"

    params = CommunicateParams(generate=GenerateParams(instruction="Hi"))
    newer = await session.conduct("communicate", branch, params)
    assert (newer.status, newer.response) == ("done", "two")

    named = await session.conduct(branch="main", operation="communicate", instruction="Hi")
    assert await named.invoke() == "three"
    with pytest.raises(InvalidTypeError, match="conduct takes"):
        await session.conduct(branch, "generate", ipu, {})


async def test_a_custom_operation_is_registered_and_run() -> None:
    session, branch, _ = session_of()

    async def count(where: object, /, *, of: str) -> int:
        return len(of)

    session.register_operation("count", count)
    assert (await session.conduct("count", branch, {"of": "abc"})).response == 3
    assert await session.invoke("count", branch, {"of": "ab"}) == 2


async def test_a_conversation_on_a_compat_session_sends_its_system_message() -> None:
    session, branch, model = session_of("Yes.", "Since 1970.")
    branch.set_system_message(Message(content=SystemContent(system_message="Be brief.")))
    conversation = session.conversation(branch, model="scripted")
    session.add_message(instruction("Hello?"), branch)
    assert (await conversation.run_to_stable_result()).success
    assert "Be brief." in str(model.requests[0])
    assert isinstance(branch.system, UUID)
    assert branch.order[0] == branch.system_message
    assert session.messages[branch.system].content.words == "Be brief."
    assert session.to_examples()[0].messages[0].content.words == "Be brief."


def test_messages_are_added_by_position_and_branches_made_of_messages() -> None:
    session = Session()
    first, second = instruction("a"), instruction("b")
    main = session.create_branch(name="main")
    for message in (first, second):
        session.add_message(message, main)
    other = session.create_branch(name="other", messages=main.order[:1])
    assert (main.order, other.order) == ([first.id, second.id], [first.id])
    assert main.session_id == session.id
    with pytest.raises(NotFoundError):
        session.create_branch(name="broken", messages=[instruction("not added")])
    assert [branch.name for branch in session.branches] == ["main", "other"]


def test_a_default_branch_is_created_with_its_grants() -> None:
    session = Session(
        default_branch="chat",
        default_generate_model=ScriptedModel([], name="scripted"),
        default_capabilities={"Person"},
        default_system=Message(content=SystemContent(system_message="Be brief.")),
    )
    chat = session.default_branch
    assert (chat.name, chat.resources, chat.capabilities) == ("chat", {"scripted"}, {"Person"})
    system = session.get_branch_system("chat")
    assert system is not None
    assert system.content.words == "Be brief."
    session.set_default_model(ScriptedModel([], name="parser"), "parse")
    assert chat.resources == {"scripted", "parser"}
    models = (session.default_generate_model, session.default_parse_model)
    assert [model and model.name for model in models] == ["scripted", "parser"]
    session.set_default_branch(session.create_branch("other"))
    assert session.default_branch.name == "other"
    assert Session().default_branch.name == "main"


def test_a_session_goes_through_json_and_brings_no_grants() -> None:
    session = Session(user="ada")
    system = Message(content=SystemContent(system_message="Be brief."))
    main = session.create_branch(name="main", system=system, resources={"model"})
    session.add_message(instruction("a"), main)
    fork = session.fork(main, name="fork", system=True, resources=True)
    session.add_message(instruction("b"), fork)

    copy = Session.from_dict(json.loads(json.dumps(session.to_dict())))

    assert (copy.id, copy.user, copy.created_at) == (session.id, "ada", session.created_at)
    assert {branch.name: branch[:] for branch in copy.branches} == {
        "main": main.order,
        "fork": fork[:],
    }
    assert copy.get_branch("main").system == system.id
    assert [m.to_dict() for m in copy.messages] == [m.to_dict() for m in session.messages]
    assert session.get_branch("fork").resources == {"model"}
    assert copy.get_branch("fork").resources == set()
    assert copy.get_branch("fork").fenced
    assert isinstance(Element.from_dict(session.to_dict()), Session)


def test_a_branch_dict_is_loaded_into_a_session_that_has_its_messages() -> None:
    session = Session()
    main = session.create_branch(name="main", resources={"model"})
    session.add_message(instruction("a"), main)
    stored = main.to_dict()
    assert (stored["resources"], stored["system"]) == (["model"], None)
    session.remove_branch(main)
    loaded = Branch.from_dict(stored, session)
    assert (loaded.order, loaded.resources) == ([UUID(uid) for uid in stored["order"]], set())
    with pytest.raises(InvalidTypeError, match=r"Session\.from_dict"):
        Branch.from_dict(stored)


def test_containers_have_dicts_and_further_names() -> None:
    a, b = instruction("a"), instruction("b")
    pile = Pile([a, b])
    assert not pile.is_empty()
    assert Pile[Message]().is_empty()
    assert list(pile.items()) == [(a.id, a), (b.id, b)]
    assert len(pile.filter_by_type(Message)) == 2
    assert pile.filter_by_type([Progression]).is_empty()
    other = Message(content=InstructionContent(instruction="new"), id=a.id)
    pile.update(other)
    assert [item.content.words for item in pile] == ["new", "b"]
    with pytest.raises(NotFoundError):
        pile.update(instruction("not there"))

    order = Progression([b, a], name="main")
    flow = Flow([a, b], [order], name="talk")
    for element in (pile, order, flow):
        copy = Element.from_dict(json.loads(json.dumps(element.to_dict())))
        assert type(copy) is type(element)
        assert copy.to_dict() == element.to_dict()
    assert order.order == [b.id, a.id]


def test_the_messages_of_a_session_have_the_names_of_a_pile() -> None:
    session = Session()
    assert session.messages.is_empty()
    session.add_message(message := instruction("a"))
    assert dict(session.messages.items()) == {message.id: message}
    assert session.messages.to_dict()["items"] == [message.to_dict()]
    assert len(session.messages.filter_by_type(Message)) == 1


def test_times_are_given_as_text_as_well() -> None:
    message = Message(InstructionContent(instruction="a"), created_at="2025-01-15T10:30:00Z")
    assert message.created_at.isoformat() == "2025-01-15T10:30:00+00:00"
    assert message.clone().metadata["original_created_at"].startswith("2025-01-15T10:30:00")
    with pytest.raises(ValueError, match="yesterday"):
        Message(InstructionContent(instruction="a"), created_at="yesterday")


def test_models_are_made_of_provider_and_model() -> None:
    model = iModel(
        provider="gemini",
        model="gemini-3",
        temperature=0.2,
        limit_requests=10,
        limit_tokens=1000,
        tags={"fast"},
    )
    assert model.name == "gemini-3"
    registry = ServiceRegistry()
    registry.register(model)
    registry.register(iModel(provider="anthropic", endpoint="messages", model="claude", name="c"))
    assert [one.name for one in registry.list_by_tag("fast")] == ["gemini-3"]
    assert (registry.count(), registry.get("c").name, registry.get("x", None)) == (2, "c", None)
    registry.register(iModel("openai:gpt-5", name="c"), update=True)
    assert repr(registry.get("c")) == "iModel('c')"
    registry.clear()
    assert registry.count() == 0
    with pytest.raises(ValidationError, match="embeddings"):
        iModel(provider="openai", model="m", endpoint="embeddings")
    with pytest.raises(InvalidTypeError, match="provider= and model="):
        iModel(provider="openai")


SENDERS = [
    (None, MessageRole.UNSET, "unset"),
    ("user", MessageRole.USER, "user"),
    (MessageRole.ASSISTANT, MessageRole.ASSISTANT, "assistant"),
    (str(UUID(int=7)), UUID(int=7), str(UUID(int=7))),
    ("ada", "ada", "ada"),
]


@pytest.mark.parametrize(("given", "value", "text"), SENDERS)
def test_senders_and_recipients_have_public_helpers(
    given: object, value: object, text: str | None
) -> None:
    assert validate_sender_recipient(given) == value
    assert serialize_sender_recipient(validate_sender_recipient(given)) == text


def test_roles_list_their_values() -> None:
    assert set(MessageRole.allowed()) >= {"system", "user", "assistant", "tool"}


@pytest.mark.parametrize("kind", [Session, Flow, Pile, Progression, Element])
@pytest.mark.parametrize(
    "data",
    [
        None,
        {"id": "x"},
        {"items": 5},
        {"items": [5]},
        {"order": 5},
        {"id": "x", "conversations": []},
        {"items": {}, "progressions": {}},
        {"items": {"items": []}, "progressions": {"items": 5}},
    ],
)
def test_a_dict_that_nothing_wrote_is_refused(kind: type[Element], data: object) -> None:
    with pytest.raises(ValidationError):
        kind.from_dict(data)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
