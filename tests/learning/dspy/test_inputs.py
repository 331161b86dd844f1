"""What a session is given: arguments, settings, histories and field names."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.utils import DummyLM

import sennit
from sennit.errors import ValidationError
from sennit.learning.dspy import Session


def qa() -> Any:
    return dspy.Predict("question -> answer")


@pytest.mark.parametrize("name", ["exclude_fields", "history_input_fields", "input_field_override"])
@pytest.mark.parametrize("given", ["question", ["question", 1]])
def test_field_names_that_are_no_collection_of_texts_are_refused(name: str, given: Any) -> None:
    with pytest.raises(ValidationError, match="set of field names"):
        Session(qa(), **{name: given})


def test_changing_a_history_that_was_looked_at_changes_no_turn() -> None:
    session = Session(qa())
    session.add_turn({"question": "q0"}, {"answer": "a0"})
    session.add_turn({"question": "q1"}, {"answer": "a1"})
    session.to_examples()[1].history.messages[0]["answer"] = "changed"
    session.session_history.messages[0]["answer"] = "changed"
    session.turns[1].history_snapshot.messages[0]["answer"] = "changed"
    assert session.session_history.messages[0] == {"question": "q0", "answer": "a0"}
    assert session.turns[1].history_snapshot.messages == [{"question": "q0", "answer": "a0"}]


def test_a_history_that_the_caller_changes_later_is_kept_as_it_was() -> None:
    given: list[Any] = [{"question": "q", "answer": ["a"]}]
    with dspy.context(lm=DummyLM([{"answer": "x"}] * 2)):
        seeded = Session(qa(), initial_history=given)
        told = Session(qa(), history_policy="use_if_provided")
        told(question="now", history=given)
        begun = Session(qa(), history_policy="replace_session")
        begun(question="now", history=given)
    given[0]["answer"].append("changed")
    assert seeded.initial_history == [{"question": "q", "answer": ["a"]}]
    assert told.turns[0].history_snapshot.messages == [{"question": "q", "answer": ["a"]}]
    assert begun.initial_history == [{"question": "q", "answer": ["a"]}]


def test_settings_of_a_call_are_used_and_not_kept_as_inputs(tmp_path: Path) -> None:
    lm = DummyLM([{"answer": "other"}] * 9)
    demo = dspy.Example(question="d", answer="e")
    with sennit.open(tmp_path / "s.db") as client:
        settings: dict[str, Any] = {"lm": lm, "demos": [demo], "config": {"temperature": 0.5}}
        session = Session(qa(), store=client, key="one")
        assert session(question="q", **settings).answer == "other"
        [turn] = session.turns
        words = [m.content.words for m in client.session("one").default_branch.messages]
    assert turn.inputs == {"question": "q"}
    assert words == ["q", "other"]


class Configured(dspy.Module):
    """A program that takes an input which DSPy's predictors know as a setting."""

    def __init__(self) -> None:
        super().__init__()
        self.ask = dspy.Predict("question -> answer")

    def forward(self, question: str, config: str) -> Any:
        return self.ask(question=f"{question} {config}")


def test_an_input_that_is_named_like_a_setting_is_kept() -> None:
    with dspy.context(lm=DummyLM([{"answer": "a"}])):
        session = Session(Configured())
        session(question="q", config="c")
    assert session.turns[0].inputs == {"question": "q", "config": "c"}


class Positional(dspy.Module):
    """A program that is called without names."""

    def __init__(self) -> None:
        super().__init__()
        self.ask = dspy.Predict("question, tone -> answer")

    def forward(self, question: str, tone: str = "dry") -> Any:
        return self.ask(question=question, tone=tone)


def test_arguments_without_names_are_kept_under_their_names() -> None:
    with dspy.context(lm=DummyLM([{"answer": "a"}] * 3)):
        session = Session(Positional())
        session("q0")
        session("q1", tone="warm")
        awaited: Any = dspy.asyncify(session)
        asyncio.run(awaited("q2", "dry"))
        with pytest.raises(TypeError, match="pass them once"):
            session("q", question="q")
        with pytest.raises(TypeError, match="got 3"):
            session("q", "dry", "more")
    inputs = [turn.inputs for turn in session.turns]
    assert inputs == [
        {"question": "q0"},
        {"question": "q1", "tone": "warm"},
        {"question": "q2", "tone": "dry"},
    ]
