"""Training files: what is written, checked against the forms that are published for them."""

import json
import re
import tracemalloc
from typing import Any
from uuid import UUID

import pytest

import sennit
from sennit import Message, Tool
from sennit.errors import ExistsError, NotFoundError, ValidationError
from sennit.learning.examples import Filter
from sennit.learning.export import ExportOptions
from sennit.learning.export.formats import FORMATS
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
    SystemContent,
)
from sennit.testing import ScriptedModel, ToolCall


def asked(text, **more):
    return Message(InstructionContent(instruction=text, **more))


def said(text):
    return Message(AssistantResponseContent(assistant_response=text))


def add(a: int, b: int = 0) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
def client():
    with sennit.open(":memory:") as client:
        yield client


def chatted(client, key="one", *, tools=False):
    """A session with two answers to one question, of which the second is better."""
    session = client.session(key)
    main = session.create_branch(
        name="main", system=Message(SystemContent(system_message="Be brief."))
    )
    session.add_message(asked("What is 1+1?"), branches=main)
    if tools:
        call = ActionRequestContent(function="add", arguments={"a": 1, "b": 1}, call_id="c1")
        session.add_message(Message(call), branches=main)
        done = ActionResponseContent(request_id="c1", result=2)
        session.add_message(Message(done), branches=main)
    session.add_message(said("Two."), branches=main)
    session.add_message(asked("And 2+2?"), branches=main)
    session.add_message(said("Five."), branches=main)
    again = main.regenerate(main[-1], name="again")
    session.add_message(said("Four."), branches=again)
    return session, main, again


def export(client, path, **options):
    summary = client.export_training(path, ExportOptions(**options))
    return summary, [json.loads(line) for line in path.read_text().splitlines()]


def check_openai(row):
    """The rules for a line of chat fine-tuning data."""
    assert set(row) <= {"messages", "tools", "parallel_tool_calls"}
    open_calls = set()
    for message in row["messages"]:
        assert message["role"] in {"system", "user", "assistant", "tool"}
        if message["role"] == "tool":
            open_calls.remove(message["tool_call_id"])
            assert isinstance(message["content"], str)
            continue
        assert not open_calls
        assert message.get("content") or message.get("tool_calls")
        assert message.get("weight", 1) in (0, 1)
        for call in message.get("tool_calls", ()):
            assert call["type"] == "function"
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
            assert call["function"]["name"] in {t["function"]["name"] for t in row["tools"]}
            open_calls.add(call["id"])
    assert not open_calls
    assert row["messages"][-1]["role"] == "assistant"


def test_openai_lines_hold_each_conversation_from_its_beginning(client, tmp_path):
    chatted(client, tools=True)
    summary, rows = export(client, tmp_path / "train.jsonl")
    for row in rows:
        check_openai(row)
    assert summary.rows == {"all": 2}
    assert [row["messages"][-1]["content"] for row in rows] == ["Five.", "Four."]
    assert rows[0]["messages"][0] == {"role": "system", "content": "Be brief."}


def test_a_registered_tool_is_described_in_full_and_another_by_what_was_seen(client, tmp_path):
    chatted(client, tools=True)
    _, [row, _] = export(client, tmp_path / "seen.jsonl")
    [seen] = row["tools"]
    assert seen["function"]["parameters"]["properties"] == {"a": {}, "b": {}}
    client.services.register(Tool(add))
    _, [row, _] = export(client, tmp_path / "known.jsonl")
    [known] = row["tools"]
    assert known["function"]["description"] == "Add two numbers."
    assert known["function"]["parameters"]["properties"]["a"]["type"] == "integer"


def test_an_answer_scored_too_low_stays_as_context_with_no_weight(client, tmp_path):
    session, main, again = chatted(client)
    session.label(main[2], 1.0)
    session.label(again[-1], 1.0)
    session.label(main[-1], 0.0)
    _, rows = export(client, tmp_path / "a.jsonl", keep=Filter(min_score=0.5))
    for row in rows:
        check_openai(row)
    assert [m.get("weight") for m in rows[0]["messages"] if m["role"] == "assistant"] == [None, 0]
    strict = Filter(min_score=0.5, strict_trajectory=True)
    _, rows = export(client, tmp_path / "b.jsonl", keep=strict)
    assert [row["messages"][-1]["content"] for row in rows] == ["Two.", "Four."]
    assert all("weight" not in m for row in rows for m in row["messages"])


def test_a_conversation_of_which_nothing_is_good_enough_is_skipped_and_counted(client, tmp_path):
    chatted(client)
    summary, rows = export(client, tmp_path / "a.jsonl", keep=Filter(min_score=0.5))
    assert rows == []
    assert summary.skipped == 2


def test_a_question_at_the_end_that_nobody_answered_is_left_out(client, tmp_path):
    session, main, _ = chatted(client)
    session.add_message(asked("Sure?"), branches=main)
    _, rows = export(client, tmp_path / "a.jsonl")
    assert [row["messages"][-1]["content"] for row in rows] == ["Five.", "Four."]


def test_sharegpt_lines_say_who_spoke(client, tmp_path):
    chatted(client, tools=True)
    _, [row, _] = export(client, tmp_path / "a.jsonl", format="sharegpt")
    assert row["system"] == "Be brief."
    assert [line["from"] for line in row["conversations"]] == [
        "human",
        "function_call",
        "observation",
        "gpt",
        "human",
        "gpt",
    ]
    assert json.loads(row["conversations"][1]["value"]) == {
        "name": "add",
        "arguments": {"a": 1, "b": 1},
    }
    assert json.loads(row["tools"])[0]["name"] == "add"


def test_tool_conversations_have_arguments_as_objects(client, tmp_path):
    chatted(client, tools=True)
    _, [row, _] = export(client, tmp_path / "a.jsonl", format="tools")
    [call] = row["messages"][2]["tool_calls"]
    assert call["function"]["arguments"] == {"a": 1, "b": 1}


def test_preferences_have_a_prompt_a_chosen_and_a_rejected_answer(client, tmp_path):
    session, main, again = chatted(client)
    session.label(main[-1], thumb="down")
    session.label(again[-1], thumb="up")
    _, [row] = export(client, tmp_path / "a.jsonl", format="dpo")
    assert [m["role"] for m in row["prompt"]] == ["system", "user", "assistant", "user"]
    assert row["chosen"] == [{"role": "assistant", "content": "Four."}]
    assert row["rejected"] == [{"role": "assistant", "content": "Five."}]
    _, [row] = export(client, tmp_path / "b.jsonl", format="openai-dpo")
    assert set(row) == {"input", "preferred_output", "non_preferred_output"}
    assert row["input"]["messages"][-1] == {"role": "user", "content": "And 2+2?"}
    assert row["preferred_output"] == [{"role": "assistant", "content": "Four."}]


def test_a_preference_with_tool_calls_is_more_than_the_openai_form_can_say(client, tmp_path):
    session, main, _ = chatted(client)
    other = main.regenerate(main[-1])
    call = ActionRequestContent(function="add", arguments={"a": 2, "b": 2}, call_id="c2")
    for content in (call, ActionResponseContent(request_id="c2", result=4)):
        session.add_message(Message(content), branches=other)
    answer = session.add_message(said("Four!"), branches=other)
    session.label(main[-1], 0.0)
    session.label(answer, 1.0)
    summary, rows = export(client, tmp_path / "a.jsonl", format="openai-dpo")
    assert (rows, summary.left_out["is answered with calls of tools"]) == ([], 1)
    _, [row] = export(client, tmp_path / "b.jsonl", format="dpo")
    assert [m["role"] for m in row["chosen"]] == ["assistant", "tool", "assistant"]


def test_dspy_rows_have_inputs_outputs_and_a_score(client, tmp_path):
    session, main, _ = chatted(client)
    session.label(main[2], 0.5)
    _, rows = export(client, tmp_path / "a.jsonl", format="dspy")
    assert rows[0]["inputs"]["question"] == "What is 1+1?"
    assert rows[0]["outputs"] == {"answer": "Two."}
    assert [row["score"] for row in rows] == [0.5, None, None]
    assert [m["role"] for m in rows[1]["inputs"]["history"]] == ["system", "user", "assistant"]


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_parquet_has_the_same_columns_whatever_the_rows_hold(client, tmp_path, name):
    from pyarrow import parquet

    session, main, again = chatted(client, tools=True)
    session.label(main[-1], 0.0)
    session.label(again[-1], 1.0)
    options = ExportOptions(format=name)
    client.export_training(tmp_path / "a.parquet", options)
    _, rows = export(client, tmp_path / "a.jsonl", format=name)
    table = parquet.read_table(tmp_path / "a.parquet").to_pylist()
    assert [tuple(row) for row in table] == [FORMATS[name].columns] * len(rows)
    for cell, row in zip(table, rows, strict=True):
        read = {
            k: v if isinstance(v, float) else json.loads(v)
            for k, v in cell.items()
            if v is not None and k != "system"
        }
        told = {
            k: json.loads(v) if k == "tools" and isinstance(v, str) else v
            for k, v in row.items()
            if v is not None and k != "system"
        }
        assert read == told


def test_a_split_is_by_session_and_the_same_every_time(client, tmp_path):
    for n in range(40):
        chatted(client, f"s{n}")
    split = {"train": 0.75, "test": 0.25}
    one = client.export_training(tmp_path / "a.jsonl", ExportOptions(split=split))
    two = client.export_training(tmp_path / "b.jsonl", ExportOptions(split=split))
    assert set(one.files) == {"train", "test"}
    assert one.files["train"].name == "a.train.jsonl"
    assert one.rows == two.rows
    assert sum(one.rows.values()) == 80
    assert 0 < one.rows["test"] < one.rows["train"]
    assert all(count % 2 == 0 for count in one.rows.values())


def test_redact_sees_every_text_that_is_written(client, tmp_path):
    chatted(client, tools=True)
    _, rows = export(
        client, tmp_path / "a.jsonl", redact=lambda text: text.replace("Two", "[number]")
    )
    assert "Two" not in json.dumps(rows)
    assert rows[0]["messages"][4]["content"] == "[number]."


def test_a_file_that_is_there_is_not_overwritten_and_a_failure_leaves_none(client, tmp_path):
    chatted(client)
    taken = tmp_path / "a.jsonl"
    taken.write_text("mine")
    with pytest.raises(ExistsError):
        client.export_training(taken)
    assert taken.read_text() == "mine"
    with pytest.raises(ZeroDivisionError):
        client.export_training(tmp_path / "b.jsonl", ExportOptions(redact=lambda _: str(1 / 0)))
    assert [one.name for one in tmp_path.iterdir()] == ["a.jsonl"]


def test_only_named_sessions_are_written_and_progress_is_told(client, tmp_path):
    chatted(client, "one")
    chatted(client, "two")
    told = []
    summary = client.export_training(
        tmp_path / "a.jsonl", None, ["two"], lambda done, total: told.append((done, total))
    )
    assert (summary.sessions, summary.rows, told) == (1, {"all": 2}, [(1, 1)])
    with pytest.raises(NotFoundError):
        client.export_training(tmp_path / "b.jsonl", sessions=["three"])


def test_other_users_are_not_exported(tmp_path):
    with sennit.open(tmp_path / "a.db", user="ann") as ann:
        chatted(ann)
    with sennit.open(tmp_path / "a.db", user="bob") as bob:
        summary, rows = export(bob, tmp_path / "a.jsonl")
    assert (summary.sessions, rows) == (0, [])


def test_options_that_make_no_sense_are_refused():
    with pytest.raises(ValidationError, match="'csv'"):
        ExportOptions(format="csv")
    with pytest.raises(ValidationError, match="above 0"):
        ExportOptions(split={"train": 0})
    for share in (float("inf"), float("nan")):
        with pytest.raises(ValidationError, match="above 0"):
            ExportOptions(split={"train": share})
    for name in ("", "a/b", "..\\b", "a\0"):
        with pytest.raises(ValidationError, match="A split name"):
            ExportOptions(split={name: 1})
    with pytest.raises(ValidationError, match="min_score"):
        Filter(strict_trajectory=True)
    with pytest.raises(ValidationError, match="not to pairs"):
        ExportOptions(format="dpo", keep=Filter(min_score=1, strict_trajectory=True))


def test_a_pair_is_kept_if_what_was_chosen_is_good_enough(client, tmp_path):
    session, main, again = chatted(client)
    session.label(main[-1], 0.2)
    session.label(again[-1], 0.6)
    _, rows = export(client, tmp_path / "a.jsonl", format="dpo", keep=Filter(min_score=0.6))
    assert len(rows) == 1
    summary, rows = export(client, tmp_path / "b.jsonl", format="dpo", keep=Filter(min_score=0.7))
    assert rows == []
    assert summary.left_out == {
        "is an answer without a score": 1,
        "has no answer that is scored high enough": 1,
    }


def test_images_and_structured_context_reach_the_file(client, tmp_path):
    session = client.session("pictures")
    main = session.create_branch(name="main")
    session.add_message(asked("What is this?", images=["https://example.org/a.png"]), branches=main)
    session.add_message(said("A cat."), branches=main)
    _, [row] = export(client, tmp_path / "a.jsonl")
    assert row["messages"][0]["content"][1]["type"] == "image_url"
    _, [row] = export(client, tmp_path / "b.jsonl", format="sharegpt")
    assert row["conversations"][0]["value"] == "What is this?\n\n<image>"
    assert row["images"] == ["https://example.org/a.png"]


def test_the_id_of_a_session_decides_its_split():
    from sennit.learning.export import _split_of

    drawn = [_split_of(UUID(int=n), {"a": 1, "b": 1}) for n in range(1000)]
    assert 400 < drawn.count("a") < 600


def most_memory(client, path):
    tracemalloc.start()
    client.export_training(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def test_what_an_export_holds_does_not_grow_with_the_store(tmp_path):
    with sennit.open(tmp_path / "a.db", durability="normal") as client:
        for n in range(30):
            chatted(client, f"s{n}")
        most_memory(client, tmp_path / "first.jsonl")  # what is made once is made now
        few = most_memory(client, tmp_path / "few.jsonl")
        for n in range(30, 150):
            chatted(client, f"s{n}")
        many = most_memory(client, tmp_path / "many.jsonl")
    assert many < 1.5 * few


def test_a_redaction_that_gives_no_text_is_refused_and_writes_nothing(client, tmp_path):
    nothing: Any = lambda _: None  # noqa: E731
    chatted(client)
    with pytest.raises(ValidationError, match="redact must return a string"):
        client.export_training(tmp_path / "a.jsonl", ExportOptions(redact=nothing))
    assert list(tmp_path.glob("*.jsonl")) == []


@pytest.mark.parametrize("score", [float("nan"), float("inf"), "0.5"])
def test_a_lowest_score_that_nothing_can_be_compared_with_is_refused(score):
    with pytest.raises(ValidationError, match="finite number"):
        Filter(min_score=score)


@pytest.mark.parametrize("format", ["openai", "tools", "sharegpt"])
def test_redact_sees_the_keys_of_what_arguments_hold(client, tmp_path, format):
    def pay(shares: dict[str, int]) -> str:
        """Pay."""
        return "paid"

    session = client.session("one")
    session.add_message("user", "Pay them.")
    call = ToolCall("pay", {"shares": {"ann@home": 1, "bob@home": 2}})
    session.conversation(model=ScriptedModel([[call], "Done."]), tools=[pay]).run()

    def hidden(text):
        return re.sub(r"\w+@home", "[who]", text)

    _, rows = export(client, tmp_path / "a.jsonl", format=format, redact=hidden)
    written = json.dumps(rows)
    assert "@home" not in written
    assert "[who]_" in written
    assert "shares" in written
