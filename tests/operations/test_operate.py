"""operate: an instruction is answered with tools on the way, as one run of turns."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import (
    AccessError,
    ConflictError,
    InstructionContent,
    Message,
    ModelError,
    NotFoundError,
    OutputError,
    RunError,
    Session,
    Tool,
    ValidationError,
)
from sennit.services.models.reply import Reply, ReplyCall, ReplyText
from sennit.services.models.request import ModelRequest
from sennit.testing import ScriptedModel, ToolCall
from sennit.turns import Budget
from tests.conducting import Answer, invoked, result_of, session_with
from tests.conversation_fixtures import add, in_short
from tests.models import failure

SUM = ToolCall("add", {"a": 1, "b": 2}, "c1")


def on_main(session: Session) -> list[str]:
    return [in_short(message) for message in session.get_branch("main").messages]


def operated(*replies: Any, tools: Any = ("add",), **params: Any) -> tuple[Any, Session]:
    """What operate gives, and the session it ran in."""
    session = session_with(ScriptedModel(replies), add)
    given = {"instruction": "1 + 2?", "tools": tools, **params}
    return result_of(session, "operate", **given), session


def test_tools_are_called_and_the_answer_behind_them_is_given() -> None:
    answer, session = operated(["Let me see.", SUM], "It is 3.")
    assert answer == "It is 3."
    assert on_main(session) == [
        "user 1 + 2?",
        "says Let me see.",
        "call add",
        "result 3",
        "says It is 3.",
    ]


def test_without_tools_it_is_a_question_and_an_answer() -> None:
    answer, session = operated("Three.", tools=())
    assert (answer, on_main(session)) == ("Three.", ["user 1 + 2?", "says Three."])


@pytest.mark.parametrize("tools", ["add", add, [Tool(add)], {"add"}])
def test_tools_are_names_functions_or_tools(tools: Any) -> None:
    assert operated([SUM], "3", tools=tools)[0] == "3"


def test_parameters_of_the_model_reach_it_and_limits_do_not() -> None:
    session = session_with(model := ScriptedModel(["3"]))
    result_of(session, "operate", instruction="?", temperature=0.5, max_turns=2)
    assert dict(model.requests[0].params) == {"temperature": 0.5}


def test_the_instruction_may_be_a_message_with_context() -> None:
    session = session_with(model := ScriptedModel(["3"]))
    said = Message(InstructionContent("Sum up", context=["1", "2"]), sender="ada")
    result_of(session, "operate", instruction=said)
    assert session.get_branch("main").messages[0] is said
    assert "- 1" in model.requests[0].messages[-1]["content"]
    with pytest.raises(sennit.ExistsError, match="already in the session"):
        result_of(session, "operate", instruction=said)


@pytest.mark.parametrize("supports_output_schema", [True, False])
def test_an_answer_in_a_form_is_checked_and_asked_for_in_every_turn(
    supports_output_schema: bool,
) -> None:
    model = ScriptedModel(
        [["Hm.", SUM], 'So: {"value": 3,}'], supports_output_schema=supports_output_schema
    )
    session = session_with(model, add)
    given = {"instruction": "1 + 2?", "tools": ["add"], "response_model": Answer}
    assert result_of(session, "operate", **given) == Answer(value=3)
    for request in model.requests:
        assert "interface Answer" in request.messages[0]["content"]
        assert (request.output is not None) is supports_output_schema


def test_an_answer_that_does_not_fit_is_mended_in_the_same_run() -> None:
    answer, session = operated(
        [SUM], "Three!", [SUM], '{"value": "x"}', '{"value": 3}', response_model=Answer
    )
    assert answer == Answer(value=3)
    assert [line for line in on_main(session) if not line.startswith("user")] == [
        *["call add", "result 3", "says Three!"],
        *["call add", "result 3", 'says {"value": "x"}', 'says {"value": 3}'],
    ]
    repairs = [message for message in session.messages if message.metadata.get("repair")]
    assert [str(one.rendered).count("cannot be used") for one in repairs] == [1, 1]
    conversation = session.conversation("main", model="scripted")
    assert [event.kind for event in conversation.history()].count("run.started") == 1


def test_a_schema_that_the_provider_refuses_is_asked_for_in_words_alone() -> None:
    def picky(request: ModelRequest) -> Any:
        if request.output is not None:
            raise ModelError("This schema is too much for me.", kind="bad_request")
        return [SUM] if len(request.messages) == 1 else '{"value": 3}'

    model = ScriptedModel([picky] * 3, supports_output_schema=True)
    session = session_with(model, add)
    value = result_of(
        session, "operate", instruction="1 + 2?", tools=["add"], response_model=Answer
    )
    assert value == Answer(value=3)
    assert [request.output is not None for request in model.requests] == [True, False, False]
    said = ["user 1 + 2?", "call add", "result 3", 'says {"value": 3}']
    assert on_main(session) == said


def test_a_request_that_is_refused_with_and_without_a_schema_is_the_models_error() -> None:
    model = ScriptedModel(
        [failure("bad_request"), failure("bad_request")], supports_output_schema=True
    )
    with pytest.raises(ModelError):
        result_of(session_with(model), "operate", instruction="Count", response_model=Answer)
    model.assert_complete()


def test_after_the_last_repair_it_is_an_output_error() -> None:
    with pytest.raises(OutputError, match=r"asked 2 times.*no complete JSON") as raised:
        operated("a", "b", response_model=Answer, repairs=1)
    assert raised.value.said == "b"
    with pytest.raises(OutputError, match="asked 1 times"):
        operated("a", response_model=Answer, repairs=0)


def test_repairs_stay_within_the_limits_of_the_run() -> None:
    session = session_with(ScriptedModel(["a", "b"]))
    with pytest.raises(OutputError, match="asked 2 times"):
        result_of(session, "operate", instruction="?", response_model=Answer, max_turns=2)
    assert on_main(session)[-1] == "says b"  # nobody was told what could not be mended any more


def test_an_answer_that_is_cut_off_is_asked_for_again_if_it_has_a_form() -> None:
    cut = Reply((ReplyText('{"val'),), "length")
    assert operated(cut, '{"value": 3}', response_model=Answer)[0] == Answer(value=3)
    with pytest.raises(OutputError, match="cut off at the limit"):
        operated(cut, response_model=Answer, repairs=0)
    with pytest.raises(RunError, match="max_tokens") as raised:
        operated(Reply((ReplyText("On and on"),), "length"))
    assert getattr(raised.value.result, "text", "") == "On and on"


def test_a_model_that_fails_is_a_model_error_and_what_was_done_stays() -> None:
    session = session_with(ScriptedModel([[SUM], failure("auth")]), add)
    with pytest.raises(ModelError) as raised:
        result_of(session, "operate", instruction="?", tools=["add"])
    assert raised.value.kind == "auth"
    assert on_main(session) == ["user ?", "call add", "result 3"]


def test_an_empty_answer_is_a_model_error() -> None:
    with pytest.raises(ModelError, match="empty answer"):
        operated("")


def test_a_tool_that_fails_is_told_to_the_model() -> None:
    wrong = ToolCall("add", {"a": "x"}, "c1")
    answer, session = operated([wrong], "Sorry.")
    assert answer == "Sorry."
    assert on_main(session)[2].startswith("error Tool 'add' was not called.")


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_turns": 1}, "max_turns"),
        ({"max_tool_passes": 0}, "max_turns"),
        ({"budget": Budget(tool_calls=0)}, "budget"),
        ({"repeat_limit": 1}, "loop"),
    ],
)
def test_a_limit_is_a_run_error_that_says_which(limits: dict[str, Any], reason: str) -> None:
    with pytest.raises(RunError) as raised:
        operated([SUM], "3", **limits)
    assert getattr(raised.value.result, "stop_reason", None) == reason


def test_limits_that_make_no_sense_are_refused_before_anything_is_said() -> None:
    session = session_with(ScriptedModel([]))
    for limits in ({"max_turns": 0}, {"repairs": -1}, {"budget": 5}, {"warmth": 3}):
        with pytest.raises(ValidationError):
            result_of(session, "operate", instruction="?", **limits)
    assert on_main(session) == []


def test_a_call_that_needs_a_person_is_a_run_error_and_goes_on_when_decided() -> None:
    session = session_with(ScriptedModel([[SUM], "3"]), Tool(add, needs_approval=True))
    with pytest.raises(RunError, match=r"wait for approval: \['c1'\]"):
        result_of(session, "operate", instruction="?", tools=["add"])
    conversation = session.conversation("main", model="scripted", tools=["add"])
    result = asyncio.run(conversation.aapprove("c1"))
    assert result is not None
    assert result.answer == "3"


def test_what_is_not_granted_is_refused_before_anything_runs() -> None:
    model, other = ScriptedModel([], "sage"), ScriptedModel([], "oracle")
    session = session_with(model, other, add, resources={"sage"}, capabilities=())
    for given in (
        {"imodel": "oracle"},
        {"imodel": other},
        {"imodel": "sage", "tools": ["add"]},
        {"imodel": "sage", "tools": [add]},
        {"imodel": "sage", "response_model": Answer},
    ):
        with pytest.raises(AccessError, match="may not use"):
            result_of(session, "operate", instruction="?", **given)
    with pytest.raises(NotFoundError):
        result_of(session, "operate", instruction="?", imodel="sage", tools=["nothing"])
    assert on_main(session) == []
    assert model.requests == other.requests == []


def test_a_tool_that_was_not_offered_is_not_called() -> None:
    answer, session = operated([SUM], "No tool.", tools=())
    assert answer == "No tool."
    assert on_main(session)[2].startswith("error Not run: there is no tool 'add'")


def test_a_busy_branch_is_a_conflict_and_nothing_is_said() -> None:
    async def both() -> None:
        begun, over = asyncio.Event(), asyncio.Event()

        async def slow(_request: Any) -> str:
            begun.set()
            await over.wait()
            return "Done."

        session = session_with(ScriptedModel([slow]))
        first = asyncio.create_task(invoked(session, "operate", instruction="first"))
        await begun.wait()
        with pytest.raises(ConflictError):
            await invoked(session, "operate", instruction="second")
        over.set()
        assert await first == "Done."
        assert on_main(session) == ["user first", "says Done."]

    asyncio.run(both())


def test_it_runs_once_however_often_it_is_invoked() -> None:
    async def twice() -> None:
        session = session_with(model := ScriptedModel([[SUM], "3"]), add)
        operation = await session.conduct(
            branch="main", operation="operate", instruction="?", tools=["add"]
        )
        assert await asyncio.gather(operation.invoke(), operation.invoke()) == ["3", "3"]
        model.assert_complete()

    asyncio.run(twice())


def test_with_a_store_every_step_is_durable(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "chat.db") as client:
        session = client.session("chat", resources="*", capabilities=[Answer])
        session.services.register_all([ScriptedModel([[SUM], "?", '{"value": 3}']), add])
        given = {"instruction": "1 + 2?", "tools": ["add"], "response_model": Answer}
        session.add_message("user", "Hello")
        assert result_of(session, "operate", **given) == Answer(value=3)
    with sennit.open(tmp_path / "chat.db") as client:
        messages = client.session("chat").default_branch.messages
    kept = [in_short(message) for message in messages]
    assert kept[:4] == ["user Hello", "user 1 + 2?", "call add", "result 3"]
    assert kept[-1] == 'says {"value": 3}'


def test_calls_left_over_from_before_are_passed_over() -> None:
    session = session_with(ScriptedModel(["Never mind."]), add)
    session.add_message("user", "1 + 2?", branches="main")
    pending = ScriptedModel(
        [Reply((ReplyCall("c0", "add", '{"a": 1, "b": 2}'),), "tool_calls")], "old"
    )
    session.services.register(pending)
    old = session.conversation("main", model="old", tools=["add"])
    old.run(sennit.SessionOptions(process_tools=False))
    given = {"instruction": "Forget it.", "tools": ["add"], "imodel": "scripted"}
    assert result_of(session, "operate", **given) == "Never mind."
    assert on_main(session)[1:] == ["call add", "user Forget it.", "says Never mind."]


def test_a_summary_made_on_the_way_is_not_held_to_the_form_of_the_answer() -> None:
    model = ScriptedModel(
        ["Earlier they spoke of rope.", '{"value": 3}'], supports_output_schema=True, window=200
    )
    session = session_with(model)
    for text in ("rope " * 120, "more rope " * 80):
        session.add_message("user", text, branches="main")
        session.add_message("assistant", "Yes.", branches="main")
    given = {"instruction": "1 + 2?", "response_model": Answer}
    assert result_of(session, "operate", **given) == Answer(value=3)
    assert [request.output is None for request in model.requests] == [True, False]
