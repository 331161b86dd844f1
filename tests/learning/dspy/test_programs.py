"""Sessions around DSPy's own programs, with every adapter."""

from __future__ import annotations

from typing import Any

import dspy
import pytest
from dspy.utils import DummyLM

from sennit.learning.dspy import Session


def texts(lm: Any, which: int = -1) -> str:
    return str([m["content"] for m in lm.history[which]["messages"]])


@pytest.mark.parametrize("adapter", [dspy.ChatAdapter, dspy.JSONAdapter, dspy.XMLAdapter])
def test_every_adapter_tells_the_history(adapter: Any) -> None:
    made = adapter()
    lm = DummyLM([{"answer": f"knot {n}"} for n in range(5)], adapter=made)
    with dspy.context(lm=lm, adapter=made):
        session = Session(dspy.Predict("question -> answer"))
        session(question="first question")
        session(question="second question")
    assert "first question" in texts(lm)
    assert "knot 0" in texts(lm)
    assert "None" not in texts(lm)


def test_chain_of_thought_hears_its_reasoning() -> None:
    lm = DummyLM([{"reasoning": f"because {n}", "answer": f"a{n}"} for n in range(5)])
    with dspy.context(lm=lm):
        session = Session(dspy.ChainOfThought("question -> answer"))
        session(question="q0")
        session(question="q1")
    assert "because 0" in texts(lm)
    assert session.turns[0].outputs == {"reasoning": "because 0", "answer": "a0"}


def test_react_remembers_across_turns() -> None:
    def length(knot: str) -> int:
        """How much rope a knot takes."""
        return 40

    turn = [
        {"next_thought": "look", "next_tool_name": "length", "next_tool_args": {"knot": "bowline"}},
        {"next_thought": "done", "next_tool_name": "finish", "next_tool_args": {}},
        {"reasoning": "it was said", "answer": "40 cm"},
    ]
    lm = DummyLM([*turn, *turn])
    with dspy.context(lm=lm):
        session = Session(dspy.ReAct("question -> answer", tools=[length]))
        session(question="How much rope?")
        session(question="Are you sure?")
    assert "How much rope?" in texts(lm)
    assert "40 cm" in texts(lm)
    assert not any("None" in texts(lm, n) for n in range(len(lm.history)))
    assert session.turns[1].history_snapshot.messages[0]["answer"] == "40 cm"


def test_a_session_inside_a_program_is_found_by_optimisers_and_keeps_its_own_turns() -> None:
    class Outer(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.chat = Session(dspy.Predict("question -> answer"))

        def forward(self, question: str) -> Any:
            return self.chat(question=question)

    lm = DummyLM([{"answer": f"a{n}"} for n in range(5)])
    with dspy.context(lm=lm):
        program = Outer()
        program(question="q0")
        program(question="q1")
    assert [name for name, _ in program.named_predictors()] == ["chat.module"]
    assert len(program.chat) == 2
