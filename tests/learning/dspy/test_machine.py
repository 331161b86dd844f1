"""Whatever is done to a session, it is what a plain list of turns would be."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import dspy
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import sennit
from sennit.learning.dspy import Session

# What no store could hold is mended there, so it would not come back as it was said.
WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5)


class Echo(dspy.Module):
    """Answers without a model; some questions it does not survive."""

    def __init__(self) -> None:
        super().__init__()
        self.gen = dspy.Predict("question -> answer")

    def forward(self, question: str) -> Any:
        if question == "fail":
            raise RuntimeError(question)
        return dspy.Prediction(answer=f"re {question}")


class Sessions(RuleBasedStateMachine):
    """A session beside what it should hold: (question, answer, history, score)."""

    @initialize(window=st.sampled_from([None, 0, 1, 3]), kept=st.booleans(), initial=st.booleans())
    def begin(self, window: int | None, kept: bool, initial: bool) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.client = sennit.open(Path(self.folder.name) / "a.db") if kept else None
        self.window = window
        self.initial = [{"question": "i", "answer": "j"}] if initial else []
        self.model: list[tuple[str, str, list[Any], float | None]] = []
        self.session = self.wrapped(initial_history=self.initial or None)

    def wrapped(self, **more: Any) -> Session:
        where = {"store": self.client, "key": "bot"} if self.client else {}
        return Session(Echo(), max_turns=self.window, **where, **more)

    def heard(self) -> list[Any]:
        told = [*self.initial, *({"question": q, "answer": a} for q, a, _, _ in self.model)]
        if self.window is None:
            return told
        return told[max(0, len(told) - self.window) :]

    @rule(question=WORDS)
    def call(self, question: str) -> None:
        past = self.heard()
        self.session(question=question)
        self.model.append((question, f"re {question}", past, None))

    @rule()
    def call_that_fails(self) -> None:
        try:
            self.session(question="fail")
        except RuntimeError:
            return
        raise AssertionError("it should have failed")

    @rule()
    def call_with_a_history_of_its_own(self) -> None:
        self.session(question="aside", history=[{"question": "x", "answer": "y"}])

    @rule(answer=WORDS)
    def add(self, answer: str) -> None:
        past = self.heard()
        self.session.add_turn({"question": "added"}, {"answer": answer})
        self.model.append(("added", answer, past, None))

    @rule(question=WORDS)
    def another_process_calls(self, question: str) -> None:
        if self.client is None:
            return
        past = self.heard()
        with sennit.open(Path(self.folder.name) / "a.db") as other:
            Session(Echo(), max_turns=self.window, store=other, key="bot")(question=question)
        self.model.append((question, f"re {question}", past, None))
        self.session.state.log.catch_up()

    @rule(steps=st.integers(0, 3))
    def undo(self, steps: int) -> None:
        taken = self.session.undo(steps)
        expected = self.model[len(self.model) - min(steps, len(self.model)) :][::-1]
        assert [t.history_snapshot.messages for t in taken] == [past for _, _, past, _ in expected]
        del self.model[len(self.model) - len(expected) :]

    @rule()
    def reset(self) -> None:
        self.session.reset()
        self.model.clear()

    @rule(value=st.sampled_from([0.0, 0.5, 1.0]))
    def score(self, value: float) -> None:
        self.session.score(lambda example, prediction: value)
        self.model = [(q, a, past, value) for q, a, past, _ in self.model]

    @rule()
    def fork_and_drop_it(self) -> None:
        fork = self.session.fork()
        fork(question="on the fork")
        assert len(fork) == len(self.model) + 1

    @rule()
    def copy_and_drop_it(self) -> None:
        copy = self.session.deepcopy()
        copy(question="on the copy")
        copy.undo(2)

    @rule()
    def save_and_load(self) -> None:
        path = Path(self.folder.name) / "s.json"
        self.session.save(path)
        loaded = Session.load_from(path, Echo())
        assert loaded.turns == self.session.turns
        if self.client is None:
            self.session = loaded

    @rule(window=st.sampled_from([None, 0, 2]))
    def open_again_with_another_window(self, window: int | None) -> None:
        if self.client is not None:
            self.window = window
            self.session = self.wrapped()

    @invariant()
    def it_holds_what_the_list_holds(self) -> None:
        if not hasattr(self, "session"):
            return
        found = [
            (t.inputs["question"], t.outputs["answer"], t.history_snapshot.messages, t.score)
            for t in self.session.turns
        ]
        assert found == self.model
        assert self.session.session_history.messages == self.heard()
        json.dumps(self.session.save_state())

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            if self.client is not None:
                self.client.close()
            self.folder.cleanup()


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=20, stateful_step_count=20)
