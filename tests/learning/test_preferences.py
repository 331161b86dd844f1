"""Preferences between forks: which answers are compared, and what is said of the others."""

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sennit
from sennit import Message, Session
from sennit.learning.export import ExportOptions
from sennit.messages.content import (
    AssistantResponseContent,
    InstructionContent,
    SystemContent,
)
from sennit.testing import ScriptedModel
from tests.conducting import Answer, session_with

ONLY = "is the only scored answer to its prompt"
UNSCORED = "is an answer without a score"
EQUAL = "is scored like the best answer to its prompt"


def asked(text):
    return Message(InstructionContent(instruction=text))


def said(text):
    return Message(AssistantResponseContent(assistant_response=text))


def system(text):
    return Message(SystemContent(system_message=text))


def answered(session, branch, question, answer, score=None):
    if question is not None:
        session.add_message(asked(question), branches=branch)
    session.add_message(said(answer), branches=branch)
    if score is not None:
        session.label(branch[-1], score)


def pairs(session, **options):
    found = session.to_preferences(**options)
    return [(one.chosen.answered, one.rejected.answered) for one in found]


def test_the_same_question_said_on_each_fork_is_one_prompt():
    session = Session()
    main = session.create_branch(name="main")
    answered(session, main, "Hi", "Hello!")
    one, two = session.fork(main), session.fork(main)
    answered(session, one, "A knot?", "A bowline.", 1.0)
    answered(session, two, "A knot?", "No.", 0.0)
    assert pairs(session) == [("A bowline.", "No.")]
    # What follows rests on different answers, so it is no longer the same prompt.
    answered(session, one, "Why?", "It holds.", 1.0)
    answered(session, two, "Why?", "Because.", 0.0)
    assert pairs(session) == [("A bowline.", "No.")]


def test_forks_that_differ_in_their_system_message_are_compared_and_the_chosen_one_s_is_told():
    session = Session()
    main = session.create_branch(name="main", system=system("Be brief."))
    session.add_message(asked("A knot?"), branches=main)
    kind = session.fork(main, system=system("Be kind."))
    answered(session, main, None, "No.", 0.0)
    answered(session, kind, None, "A bowline, with pleasure.", 1.0)
    [pair] = session.to_preferences()
    prompt, chosen, rejected = pair.to_chat()
    assert [m["content"] for m in prompt] == ["Be kind.", "A knot?"]
    assert chosen[0]["content"] == "A bowline, with pleasure."
    assert rejected[0]["content"] == "No."
    assert [m.content.words for m in pair.prompt] == ["Be kind.", "A knot?"]


async def communicated(session, branch):
    asking = {"instruction": "A number?", "imodel": "m", "response_model": Answer}
    await (await session.conduct(branch=branch, operation="communicate", **asking)).invoke()


def test_forks_that_are_each_asked_with_communicate_are_compared():
    session = session_with(ScriptedModel(['{"value": 1}', '{"value": 2}'], "m"))
    main = session.get_branch("main")
    answered(session, main, "Hi", "Hello!")
    for score in (1.0, 0.0):
        fork = session.fork(main, resources=True, capabilities=True)
        asyncio.run(communicated(session, fork))
        session.label(fork[-1], score)
    assert pairs(session) == [('{"value": 1}', '{"value": 2}')]


def test_another_question_or_another_past_is_another_prompt():
    session = Session()
    main = session.create_branch(name="main")
    for past, question, score in (("Hi", "A?", 0.0), ("Ho", "A?", 0.5), ("Hi", "B?", 1.0)):
        fork = session.fork(main)
        answered(session, fork, past, "Hello!")
        answered(session, fork, question, f"{past} {question}", score)
    assert pairs(session) == []


lines = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from("qafs"), st.sampled_from("xy"), st.integers(0, 2)),
    max_size=25,
)


@given(lines)
def test_answers_are_compared_if_the_same_was_said_before_them(steps):
    session = Session()
    branches = [session.create_branch()]
    for which, kind, word, score in steps:
        branch = branches[which % len(branches)]
        if kind == "f":
            branches.append(session.fork(branch))
        elif kind == "s":
            branches.append(session.fork(branch, system=system(word)))
        elif kind == "q":
            session.add_message(asked(word), branches=branch)
        else:
            answered(session, branch, None, word, score)
    found = session.to_examples(branches)
    groups = {}
    for one in found:
        before = [m for m in one.history if not isinstance(m.content, SystemContent)]
        key = tuple((m.role, m.content.words) for m in [*before, one.instruction])
        groups.setdefault(key, []).append(one.score)
    expected = sum(score < max(group) for group in groups.values() for score in group)
    assert len(session.to_preferences()) == expected


@pytest.fixture
def client():
    with sennit.open(":memory:") as client:
        yield client


def export(client, path):
    written = client.export_training(path, ExportOptions(format="dpo"))
    return written, path.read_text().splitlines()


def test_what_is_in_no_pair_is_counted_with_the_reason(client, tmp_path, caplog):
    session = client.session("s")
    main = session.create_branch(name="main")
    answered(session, main, "one", "a", 1.0)
    answered(session, main, "two", "b")
    for score in (1.0, 1.0, 0.0):
        answered(session, session.fork(main), "three", f"c{score}", score)
    for score in (0.5, 0.5):
        answered(session, session.fork(main), "four", "d", score)
    written, rows = export(client, tmp_path / "a.jsonl")
    assert len(rows) == 1
    assert written.left_out == {UNSCORED: 1, ONLY: 1, EQUAL: 3}
    assert caplog.text == ""


@pytest.mark.parametrize("format", ["dpo", "openai-dpo"])
def test_a_file_without_rows_is_told_of_with_the_reasons(client, tmp_path, caplog, format):
    session = client.session("s")
    answered(session, session.create_branch(name="main"), "one", "a", 1.0)
    with caplog.at_level(logging.WARNING, "sennit"):
        client.export_training(tmp_path / "a.jsonl", ExportOptions(format=format))
    assert f"No row was written to {tmp_path / 'a.jsonl'}; left out: 1 ({ONLY})." in caplog.text


def test_lines_count_what_they_leave_out(client):
    session = client.session("s")
    answered(session, session.create_branch(name="main"), "one", "a")
    found = client.training_lines("s", ExportOptions(format="dpo"))
    assert list(found) == []
    assert found.left_out == {UNSCORED: 1}
