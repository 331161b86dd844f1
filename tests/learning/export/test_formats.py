"""Whatever a conversation holds, a training file holds only what its readers accept."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sennit
from sennit import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    Client,
    InstructionContent,
    Message,
    SystemContent,
)
from sennit.learning import FORMATS, ExportOptions, ExportResult, Filter
from sennit.learning.preferences import NO_SCORE, ONLY_ANSWER, SAME_SCORE
from tests.learning import published
from tests.strategies import histories


def asked(text: str, **more: Any) -> InstructionContent:
    return InstructionContent(instruction=text, **more)


def said(text: str) -> AssistantResponseContent:
    return AssistantResponseContent(assistant_response=text)


def call(id: str, /, **arguments: Any) -> ActionRequestContent:
    return ActionRequestContent(function="look", arguments=arguments, call_id=id)


def found(name: str, result: Any) -> ActionResponseContent:
    return ActionResponseContent(request_id=name, result=result)


def chat(client: Client, *contents: Any, key: str = "chat") -> Any:
    session = client.session(key)
    branch = session.create_branch(name="main")
    for content in contents:
        session.add_message(Message(content), branches=branch)
    return session


def exported(client: Client, format: str, **options: Any) -> tuple[ExportResult, list[Any]]:
    """What an export says of itself, and its rows, each of which its readers accept."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.jsonl")
        told = client.export_training(path, ExportOptions(format=format, **options))
        rows = [published.parsed(line) for line in path.read_text("utf-8").splitlines()]
    for row in rows:
        published.CHECKS[format](row)
    assert told.rows == {"all": len(rows)}
    return told, rows


def test_every_format_is_checked() -> None:
    assert published.CHECKS.keys() == FORMATS.keys()


@given(histories(), st.sampled_from([None, 0.5]), st.booleans(), st.data())
def test_any_history_is_written_as_its_readers_want_it_or_left_out_with_a_reason(
    history: list[Message], min_score: float | None, strict: bool, data: Any
) -> None:
    with sennit.open(":memory:") as client:
        session = client.session("chat")
        main = session.create_branch(name="main")
        session.add_messages(history, branches=main)
        for message in main.messages:
            score = data.draw(st.sampled_from([None, 0.0, 1.0]))
            if score is not None:
                session.label(message, score)
        keep = Filter(min_score=min_score, strict_trajectory=strict and min_score is not None)
        for format in ("openai", "sharegpt", "tools"):
            told, rows = exported(client, format, keep=keep)
            assert len(rows) + told.skipped == 1
        exported(client, "dspy", keep=keep)


@given(histories(), histories(), histories(), st.sampled_from(["why?", "  ", "pictures"]))
def test_any_two_answers_are_a_pair_as_its_readers_want_it_or_left_out_with_a_reason(
    before: list[Message], one: list[Message], other: list[Message], question: str
) -> None:
    pictures = ["https://example.org/a.png"] if question == "pictures" else None
    with sennit.open(":memory:") as client:
        session = client.session("chat")
        main = session.create_branch(name="main")
        session.add_messages(before, branches=main)
        instruction = InstructionContent.create(question, images=pictures)
        session.add_message(Message(instruction), branches=main)
        for score, answer in enumerate((one, other)):
            branch = main.fork(name=f"answer {score}", system=True)
            spoken = [m for m in answer if not isinstance(m.content, SystemContent)]
            session.add_messages(spoken, branches=branch)
            for message in spoken:
                session.label(message, float(score))
        pairs = len(session.to_preferences())
        for format in ("dpo", "openai-dpo"):
            told, rows = exported(client, format)
            alone = sum(told.left_out.get(why, 0) for why in (NO_SCORE, ONLY_ANSWER, SAME_SCORE))
            assert len(rows) + told.skipped - alone == pairs


@pytest.fixture
def client() -> Any:
    with sennit.open(":memory:") as client:
        yield client


def test_a_call_that_was_interrupted_has_a_result_that_says_so(client: Client) -> None:
    chat(client, asked("Look"), call("c1", at="sea"), asked("Well?"), said("No."))
    _, [row] = exported(client, "openai")
    assert row["messages"][2]["content"].startswith("Error: interrupted")


def test_a_conversation_that_ends_with_a_call_ends_there(client: Client) -> None:
    chat(client, asked("Look"), call("c1", at="sea"), found("c1", "fish"))
    _, [row] = exported(client, "openai")
    assert [message["role"] for message in row["messages"]] == ["user", "assistant"]


def test_an_answer_without_words_is_none(client: Client) -> None:
    chat(client, asked("Well?"), said(""), asked("Hello?"), said("  "))
    for format in ("openai", "sharegpt", "tools"):
        told, rows = exported(client, format)
        assert (rows, told.left_out) == ([], {"has no answer": 1})


def test_odd_text_and_numbers_come_through(client: Client) -> None:
    odd = "\u2028 \u2029 \x85 é 漢字 🙂 \ud7ff \x01 </s> <|im_end|>"
    huge = {"n": 2**63 - 1, "x": 1e308, "deep": [[{"a": None}]]}
    chat(client, asked(odd), call("c1", **huge), found("c1", huge), said(odd))
    _, [row] = exported(client, "openai")
    assert row["messages"][0]["content"] == odd
    assert published.parsed(row["messages"][1]["tool_calls"][0]["function"]["arguments"]) == huge
    _, [row] = exported(client, "tools")
    assert row["messages"][1]["tool_calls"][0]["function"]["arguments"] == huge


def test_several_calls_at_once_are_one_line_and_so_are_their_results(client: Client) -> None:
    chat(client, asked("Both"), call("a", n=1), call("b", n=2), found("a", "x"), found("b", "y"))
    session = client.session("chat")
    session.add_message(Message(said("Done.")), branches="main")
    _, [row] = exported(client, "sharegpt")
    lines = [(line["from"], line["value"]) for line in row["conversations"]]
    assert lines[2] == ("observation", '["x","y"]')
    assert [one["arguments"] for one in published.parsed(lines[1][1])] == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize(
    ("contents", "format", "reason"),
    [
        ([said("Hi!"), asked("Yes?"), said("Ok.")], "sharegpt", "does not alternate"),
        ([asked("?"), said("I look"), call("a"), found("a", 1), said("1")], "sharegpt", "beside"),
        ([asked("?"), call("a"), found("a", 1), asked("!"), said("1")], "sharegpt", "alternate"),
        ([asked("<image>", images=["https://e.org/a"]), said("1")], "sharegpt", "has pictures"),
        ([asked("?", images=["https://e.org/a"]), said("1")], "tools", "has pictures"),
        ([asked("?"), call("a"), found("a", 1)], "dspy", "without words"),
    ],
)
def test_what_a_form_cannot_say_is_left_out_and_told(
    client: Client, contents: list[Any], format: str, reason: str
) -> None:
    chat(client, *contents)
    told, rows = exported(client, format)
    assert rows == []
    [(why, count)] = told.left_out.items()
    assert reason in why
    assert count == told.skipped == 1


def test_questions_in_a_row_are_one_where_they_have_to_be(client: Client) -> None:
    chat(client, asked("First"), asked("Second"), said("Both."))
    _, [row] = exported(client, "sharegpt")
    assert row["conversations"][0]["value"] == "First\n\nSecond"


def test_more_tools_than_the_form_allows_are_told(client: Client) -> None:
    calls: list[Any] = []
    for number in range(129):
        name = f"c{number}"
        calls += [ActionRequestContent(f"tool{number}", {}, name), found(name, 1)]
    chat(client, asked("?"), *calls, said("Done."))
    told, _ = exported(client, "openai")
    assert told.left_out == {"has more than 128 tools": 1}


def test_what_is_redacted_leaves_a_row_valid(client: Client) -> None:
    secret = {"id": "555-0100", "name": "Ann 555-0100", "type": "555-0100"}
    contents = (asked("Call 555-0100"), call("a", **secret), found("a", secret), said("555-0100!"))
    chat(client, *contents)
    for format in ("openai", "sharegpt", "tools", "dspy"):
        _, [row] = exported(client, format, redact=lambda said: "*" if "555-0100" in said else said)
        assert "555-0100" not in str(row)


def test_a_greeting_that_is_scored_too_low_is_not_taught(client: Client) -> None:
    session = chat(client, said("Go away."), asked("Why?"), said("Good."))
    greeting, _, answer = session.get_branch("main")
    session.label(answer, 1.0)
    _, [row] = exported(client, "openai", keep=Filter(min_score=0.5))
    assert all("weight" not in message for message in row["messages"])
    session.label(greeting, 0.0)
    _, [row] = exported(client, "openai", keep=Filter(min_score=0.5))
    assert [message.get("weight") for message in row["messages"]] == [0, None, None]
    _, rows = exported(client, "tools", keep=Filter(min_score=0.5))
    assert rows == []


def test_a_question_of_blanks_moves_no_score_to_another_answer(client: Client) -> None:
    session = chat(client, asked("  "), said("Bad."), asked("Why?"), said("Good."))
    session.label(session.get_branch("main")[1], 0.0)
    session.label(session.get_branch("main")[3], 1.0)
    _, [row] = exported(client, "openai", keep=Filter(min_score=0.5))
    weights = {m["content"]: m.get("weight", 1) for m in row["messages"]}
    assert weights["Good."] == 1
