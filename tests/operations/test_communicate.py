"""communicate: an instruction and its reply land together, or not at all."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from sennit import (
    AccessError,
    AssistantResponseContent,
    ExistsError,
    FilePart,
    InstructionContent,
    InvalidTypeError,
    Message,
    ModelError,
    OutputError,
    Session,
    StoreError,
    SystemContent,
    Unset,
    ValidationError,
)
from sennit.errors import ModelErrorKind
from sennit.messages.output_schema import ModelSchema
from sennit.services.models.reply import Reply, ReplyReasoning, ReplyText, Usage
from sennit.services.models.request import ModelRequest
from sennit.testing import ScriptedModel, ToolCall
from tests.conducting import Answer, invoked, result_of, said, session_with
from tests.models import failure

SCHEMA = {
    "title": "Answer",
    "type": "object",
    "properties": {"value": {"type": "integer"}},
    "required": ["value"],
}


def test_instruction_and_reply_are_stored_and_the_text_is_given() -> None:
    session = session_with(ScriptedModel(["Hello"], "gpt4"))

    assert result_of(session, "communicate", instruction="Hi", imodel="gpt4") == "Hello"

    asked, told = session.get_branch("main").messages
    assert asked.content == InstructionContent(instruction="Hi")
    assert told.content == AssistantResponseContent(assistant_response="Hello")
    assert (asked.sender, asked.recipient) == ("user", None)
    assert (told.sender, told.recipient) == ("assistant", "user")
    assert told.metadata == {
        "model": "gpt4",
        "answered_by": "gpt4",
        "finish_reason": "stop",
        "usage": {"input_tokens": 5, "output_tokens": 2},
    }


def test_the_reply_says_under_which_name_the_model_was_asked_and_which_one_answered() -> None:
    usage = Usage(10, 5, cost=0.25)
    reply = Reply((ReplyReasoning("Hm."), ReplyText("Hello")), "length", usage, "gpt-5-mini")
    session = session_with()
    session.services.register(ScriptedModel([reply], "openai:gpt-5"), name="smart")

    result_of(session, "communicate", instruction="Hi", imodel="smart", sender="ada")

    asked, told = session.get_branch("main").messages
    assert told.content == AssistantResponseContent("Hello", reasoning="Hm.")
    assert (asked.sender, told.recipient) == ("ada", "ada")
    assert told.metadata == {
        "model": "smart",
        "answered_by": "gpt-5-mini",
        "finish_reason": "length",
        "usage": {"input_tokens": 10, "output_tokens": 5, "cost": 0.25},
    }


def test_it_speaks_for_the_user_and_the_agent_of_the_session() -> None:
    session = session_with(ScriptedModel(["Hello"]), user="ada", agent="helper")
    result_of(session, "communicate", instruction="Hi")
    senders = [message.sender for message in session.get_branch("main").messages]
    assert senders == ["ada", "helper"]


def test_the_history_of_the_branch_is_sent() -> None:
    model = ScriptedModel(["One", "Two"])
    session = session_with(model)
    session.set_branch_system("main", Message(SystemContent(system_message="Be brief.")))
    for instruction in ("First?", "Second?"):
        result_of(session, "communicate", instruction=instruction, temperature=0)
    assert list(model.requests[1].messages) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "First?"},
        {"role": "assistant", "content": "One"},
        {"role": "user", "content": "Second?"},
    ]
    assert model.requests[1].params == {"temperature": 0}


def test_context_images_and_files_go_with_the_instruction() -> None:
    model = ScriptedModel(["A knot"])
    session = session_with(model)
    image = "https://example.com/knot.jpg"
    given: dict[str, Any] = {"context": ["A photo"], "images": [image], "image_detail": "low"}
    given["files"] = [FilePart(b"A knot.", "a.txt")]
    result_of(session, "communicate", instruction="What is it?", **given)
    assert session.messages[0].content == InstructionContent(instruction="What is it?", **given)
    blocks = model.requests[0].messages[0]["content"]
    assert [block["type"] for block in blocks] == ["text", "image_url", "file"]


def test_an_instruction_may_be_a_content_or_a_message() -> None:
    session = session_with(ScriptedModel(["a", "b"]))
    content = InstructionContent(instruction="Hi", context=["x"])
    message = Message(content, sender="ada", metadata={"seen": True})
    result_of(session, "communicate", instruction=content, sender="bob")
    result_of(session, "communicate", instruction=message)
    first, _, second, reply = session.get_branch("main").messages
    assert (first.content, first.sender) == (content, "bob")
    assert second is message
    assert reply.recipient == "ada"


@pytest.mark.parametrize(
    "given",
    [
        {"instruction": InstructionContent(instruction="Hi"), "context": ["x"]},
        {"instruction": InstructionContent(instruction="Hi"), "response_model": Answer},
        {"instruction": Message(InstructionContent(instruction="Hi")), "sender": "ada"},
        {"instruction": Message(SystemContent(system_message="Hi"))},
        {"instruction": 5},
        {"instruction": "Hi", "tempo": 1},
    ],
    ids=" and ".join,
)
def test_what_makes_no_sense_together_is_refused_before_the_model_is_asked(
    given: dict[str, Any],
) -> None:
    model = ScriptedModel([])
    with pytest.raises(InvalidTypeError):
        result_of(session_with(model), "communicate", **given)
    assert model.requests == []


def test_repairs_that_make_no_sense_are_refused_before_the_model_is_asked() -> None:
    model = ScriptedModel([])
    with pytest.raises(ValidationError, match="repairs"):
        result_of(session_with(model), "communicate", instruction="Hi", repairs=-1)
    assert model.requests == []


def test_a_message_that_is_stored_already_is_refused_before_the_model_is_asked() -> None:
    model = ScriptedModel([])
    session = session_with(model)
    message = session.add_message(Message(InstructionContent(instruction="Hi")), branches="main")
    with pytest.raises(ExistsError, match="'generate'"):
        result_of(session, "communicate", instruction=message)
    assert model.requests == []
    assert len(session.messages) == 1


# What fails leaves no trace


@pytest.mark.parametrize(
    "reply",
    [
        failure(),
        ["Half a", failure("network")],
        "",
        [ToolCall("search", {})],
        Reply((ReplyText("Half a"),), "error"),
        "a\0b",
        "\ud800",
    ],
    ids=["fails", "breaks off", "nothing", "a call", "error", "NUL", "surrogate"],
)
def test_a_model_that_fails_leaves_the_branch_as_it_was_and_the_session_usable(reply: Any) -> None:
    session = session_with(ScriptedModel([reply, "Hello"]))
    session.add_message("user", "Before")
    with pytest.raises(ModelError):
        result_of(session, "communicate", instruction="Hi")
    assert said(session) == ["Instruction: Before"]
    assert result_of(session, "communicate", instruction="Hi") == "Hello"
    assert said(session) == ["Instruction: Before", "Instruction: Hi", "Hello"]


def test_garbage_again_and_again_is_an_output_error_with_the_problems() -> None:
    model = ScriptedModel(["What?", '{"valeu": 1}', '{"value": "one"}', "Hello"], "gpt4")
    session = session_with(model)

    with pytest.raises(OutputError, match=r"'gpt4' gave no .*'Answer' \(asked 3 times\)") as caught:
        result_of(session, "communicate", instruction="Count", response_model=Answer)

    (problem,) = caught.value.problems
    assert problem.startswith("value: Input should be a valid integer")
    assert caught.value.said == '{"value": "one"}'
    assert len(session.messages) == 0
    assert result_of(session, "communicate", instruction="Hi") == "Hello"


# Answers in a form


@pytest.mark.parametrize("shapes", [True, False])
@pytest.mark.parametrize(
    "form", [Answer, ModelSchema("Answer", SCHEMA), SCHEMA], ids=["class", "ModelSchema", "dict"]
)
def test_a_value_of_the_form_is_given_and_the_reply_stored_as_it_was_said(
    form: Any, shapes: bool
) -> None:
    reply = 'Sure: {"value": 3,}'
    model = ScriptedModel([reply], supports_output_schema=shapes)
    session = session_with(model)

    value = result_of(session, "communicate", instruction="Count", response_model=form)

    assert value == (Answer(value=3) if form is Answer else {"value": 3})
    asked, told = session.get_branch("main").messages
    assert told.content == AssistantResponseContent(reply)
    assert asked.content.response_model is not Unset  # pyright: ignore
    assert "interface Answer" in str(model.requests[0].messages[0]["content"])


def test_a_model_that_can_be_held_to_a_schema_is_and_others_are_not() -> None:
    for shapes in (True, False):
        model = ScriptedModel(['{"value": 3}'], supports_output_schema=shapes)
        result_of(session_with(model), "communicate", instruction="Count", response_model=Answer)
        output = model.requests[0].output
        if shapes:
            assert output == ModelSchema("Answer", Answer.model_json_schema())
        else:
            assert output is None


def test_a_schema_that_the_provider_refuses_is_asked_for_in_words_alone() -> None:
    def picky(request: ModelRequest) -> str:
        if request.output is not None:
            raise ModelError("This schema is too much for me.", kind="bad_request")
        return "Three!" if len(request.messages) == 1 else '{"value": 3}'

    model = ScriptedModel([picky] * 3, supports_output_schema=True)
    session = session_with(model)
    value = result_of(session, "communicate", instruction="Count", response_model=Answer)
    assert value == Answer(value=3)
    assert [request.output is not None for request in model.requests] == [True, False, False]
    assert "interface Answer" in str(model.requests[1].messages[0]["content"])


def test_a_request_that_is_refused_with_and_without_a_schema_is_the_models_error() -> None:
    model = ScriptedModel(
        [failure("bad_request"), failure("bad_request")], supports_output_schema=True
    )
    with pytest.raises(ModelError):
        result_of(session_with(model), "communicate", instruction="Count", response_model=Answer)
    model.assert_complete()


@pytest.mark.parametrize("kind", ["auth", "rate_limit", "context", "network"])
def test_other_trouble_is_no_reason_to_ask_without_the_schema(kind: ModelErrorKind) -> None:
    model = ScriptedModel([failure(kind)], supports_output_schema=True)
    with pytest.raises(ModelError) as caught:
        result_of(session_with(model), "communicate", instruction="Count", response_model=Answer)
    assert caught.value.kind == kind


def test_a_form_inside_the_instruction_counts_as_well() -> None:
    session = session_with(ScriptedModel(['{"value": 3}']))
    content = InstructionContent(instruction="Count", response_model=Answer)
    assert result_of(session, "communicate", instruction=content) == Answer(value=3)


def test_repair_rounds_tell_the_model_what_was_wrong_and_are_not_stored() -> None:
    model = ScriptedModel(["Three!", '{"value": "three"}', '{"value": 3}'])
    session = session_with(model)

    value = result_of(session, "communicate", instruction="Count", response_model=Answer)

    assert value == Answer(value=3)
    first, second, third = (list(asked.messages) for asked in model.requests)
    assert second[: len(first)] == first
    assert second[-2] == {"role": "assistant", "content": "Three!"}
    assert "- there is no complete JSON value in it" in second[-1]["content"]
    assert "interface Answer" in second[-1]["content"]
    assert third[: len(second)] == second
    assert "- value: Input should be a valid integer" in third[-1]["content"]
    assert len(session.messages) == 2
    assert said(session)[-1] == '{"value": 3}'


def test_the_usage_of_all_attempts_is_kept_with_the_reply() -> None:
    replies = [Reply((ReplyText(text),), usage=Usage(10, 5)) for text in ("no", '{"value": 3}')]
    session = session_with(ScriptedModel(replies))
    result_of(session, "communicate", instruction="Count", response_model=Answer)
    assert session.messages[-1].metadata["usage"] == {"input_tokens": 20, "output_tokens": 10}


def test_an_answer_cut_off_at_the_limit_is_called_so() -> None:
    cut = Reply((ReplyText('{"value": '),), "length")
    model = ScriptedModel([cut, '{"value": 3}'])
    result_of(session_with(model), "communicate", instruction="Count", response_model=Answer)
    assert "cut off at the limit of tokens" in model.requests[1].messages[-1]["content"]


def test_repairs_zero_asks_once() -> None:
    model = ScriptedModel(["no", "no"])
    with pytest.raises(OutputError, match="asked 1 times"):
        result_of(
            session_with(model), "communicate", instruction="x", response_model=Answer, repairs=0
        )
    assert len(model.requests) == 1


def test_a_form_that_is_not_granted_is_refused() -> None:
    model = ScriptedModel([])
    session = session_with(model, capabilities=[])
    with pytest.raises(AccessError, match="'Answer'"):
        result_of(session, "communicate", instruction="Count", response_model=Answer)
    assert model.requests == []


def test_a_form_that_recursion_makes_endless_is_no_trouble() -> None:
    ring = {
        "title": "Ring",
        "anyOf": [{"$ref": "#"}, {"$ref": "#/$defs/a"}],
        "$defs": {"a": {"$ref": "#"}},
    }
    session = session_with(ScriptedModel(['{"value": 3}']), capabilities=["Ring"])
    value = result_of(session, "communicate", instruction="Count", response_model=ring)
    assert value == {"value": 3}


# Kept for good, and by many at once


def test_what_was_said_is_durable(tmp_path: Path) -> None:
    uid = uuid4()
    with Session(store=tmp_path / "a.db", id=uid) as session:
        session.services.register(ScriptedModel(['{"value": 3}'], "gpt4"))
        session.create_branch("main", resources={"gpt4"}, capabilities={Answer})
        result_of(session, "communicate", instruction="Count", response_model=Answer)
        before = [message.to_dict() for message in session.messages]
    with Session(store=tmp_path / "a.db", id=uid) as session:
        assert [message.to_dict() for message in session.get_branch("main").messages] == before


@pytest.mark.parametrize("durable", [False, True])
def test_many_at_once_on_one_branch_all_land_whole(durable: bool, tmp_path: Path) -> None:
    def echo(request: Any) -> str:
        return f"re {request.messages[-1]['content']}"

    count = 30
    with Session(store=tmp_path / "a.db" if durable else None) as session:
        session.services.register(ScriptedModel([echo] * count, delay=0.0001))
        session.create_branch("main", resources="*")

        async def work() -> list[str]:
            calls = (invoked(session, "communicate", instruction=f"{n}") for n in range(count))
            return await asyncio.gather(*calls)

        assert asyncio.run(work()) == [f"re {n}" for n in range(count)]
        texts = said(session)
    pairs = list(zip(texts[::2], texts[1::2], strict=True))
    assert sorted(pairs) == sorted((f"Instruction: {n}", f"re {n}") for n in range(count))


def test_a_store_that_fails_leaves_the_branch_as_it_was(tmp_path: Path) -> None:
    session = Session(store=tmp_path / "a.db")
    session.services.register(ScriptedModel(["Hello"]))
    session.create_branch("main", resources="*")
    session.close()
    with pytest.raises(StoreError):
        result_of(session, "communicate", instruction="Hi")
    assert said(session) == []
