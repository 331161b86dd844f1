"""Reducers shorten what predictors are sent, and nothing else."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import dspy
import pytest
from dspy.utils import DummyLM
from hypothesis import given
from hypothesis import strategies as st

import sennit
from sennit import InvalidTypeError, ValidationError
from sennit.learning.dspy import (
    RecentMedia,
    Session,
    SessionState,
    Summarize,
    TokenBudget,
    with_memory,
)

PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUg=="


def answers(count: int = 99) -> DummyLM:
    return DummyLM([{"answer": f"a{n}"} for n in range(count)])


def summaries(count: int = 99) -> DummyLM:
    return DummyLM([{"summary": f"summary {n}"} for n in range(count)])


def sent(lm: Any, which: int = -1) -> str:
    """The history in a prompt, without the system message and the question."""
    return "\n".join(str(message["content"]) for message in lm.history[which]["messages"][1:-1])


def words(text: str) -> int:
    return len(text.split())


def test_a_token_budget_keeps_the_latest_turns_that_fit() -> None:
    lm = answers()
    session = Session(
        dspy.Predict("question -> answer"), history_reducer=TokenBudget(8, count=words)
    )
    with dspy.context(lm=lm):
        for number in range(4):
            session(question=f"q{number}")
    # A turn is four words: its two fields and their names.
    assert "q0" not in sent(lm)
    assert "q1" in sent(lm)
    assert "a2" in sent(lm)
    assert len(session.turns[3].history_snapshot.messages) == 3, "the turns stay whole"


@given(
    st.lists(st.text(min_size=1, max_size=40), max_size=12), st.integers(min_value=0, max_value=90)
)
def test_a_token_budget_is_the_longest_end_of_the_history_that_fits(
    texts: list[str], tokens: int
) -> None:
    kept: list[dict[str, Any]] = []

    def keep(entries: list[dict[str, Any]], _fields: Any) -> list[dict[str, Any]]:
        kept[:] = TokenBudget(tokens, count=len)(
            [{"answer": e["answer"]} for e in entries], _fields
        )
        return []

    session = Session(dspy.Predict("question -> answer"), history_reducer=keep)
    for text in texts:
        session.add_turn({"question": ""}, {"answer": text})
    with dspy.context(lm=answers()):
        session(question="now")
    assert [entry["answer"] for entry in kept] == texts[len(texts) - len(kept) :]
    sizes = [len(entry["answer"]) for entry in kept]
    assert sum(sizes) <= tokens
    if len(kept) < len(texts):
        assert sum(sizes) + len(texts[-len(kept) - 1]) > tokens


def test_old_turns_become_a_summary_that_is_written_once() -> None:
    lm, writer = answers(), summaries()
    reducer = Summarize(32, lm=writer, count=words)  # 24 for turns of four words
    session = Session(dspy.Predict("question -> answer"), history_reducer=reducer)
    with dspy.context(lm=lm):
        for number in range(8):
            session(question=f"q{number}")
            assert writer.history == [] or number == 7
        assert "summary 0" in sent(lm)
        assert "q3" not in sent(lm), "it is in the summary"
        assert "q4" in sent(lm)
        first = lm.history[-1]["messages"][:-1]
        session(question="q8")
        assert lm.history[-1]["messages"][: len(first)] == first, "the prompts begin alike"
        for number in range(9, 12):
            session(question=f"q{number}")
    assert len(writer.history) == 2
    assert "summary 0" in str(writer.history[1]["messages"][-1]), "the first one is in the second"
    assert "summary 1" in sent(lm)


def test_turns_that_were_undone_are_in_no_summary() -> None:
    lm, writer = answers(), summaries()
    session = Session(
        dspy.Predict("question -> answer"), history_reducer=Summarize(16, lm=writer, count=words)
    )
    with dspy.context(lm=lm):
        for number in range(5):
            session(question=f"q{number}")
        session.undo(5)
        for number in range(5):
            session(question=f"other{number}")
    assert "other0" in str(writer.history[-1]["messages"][-1])
    assert "q0" not in str(writer.history[-1]["messages"][-1])


def test_a_summary_of_an_awaited_call_does_not_block_the_event_loop() -> None:
    loop_ran = threading.Event()

    class Writer(dspy.Module):
        def forward(self, past_summary: str, conversation: str) -> Any:
            assert loop_ran.wait(20), "the event loop did not run meanwhile"
            return dspy.Prediction(summary="brief")

    session = Session(
        dspy.Predict("question -> answer"),
        history_reducer=Summarize(16, program=Writer(), count=words),
    )
    for number in range(5):
        session.add_turn({"question": f"q{number}"}, {"answer": f"a{number}"})

    async def ask() -> None:
        asyncio.get_running_loop().call_later(0.05, loop_ran.set)
        await session.acall(question="now")

    lm = answers()
    with dspy.context(lm=lm):
        asyncio.run(ask())
    assert "brief" in sent(lm)


def test_a_model_that_cannot_summarize_costs_no_turn(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(dspy.Module):
        def forward(self, past_summary: str, conversation: str) -> Any:
            raise RuntimeError("no quota")

    lm = answers()
    session = Session(
        dspy.Predict("question -> answer"),
        history_reducer=Summarize(16, program=Broken(), count=words),
    )
    with dspy.context(lm=lm), caplog.at_level(logging.WARNING):
        for number in range(6):
            session(question=f"q{number}")
    assert len(session.turns) == 6
    assert "q4" in sent(lm)
    assert "q0" not in sent(lm)
    assert "could not be summarized" in caplog.text


def test_images_are_sent_with_the_latest_turns_only() -> None:
    lm = answers()
    session = Session(
        dspy.Predict("picture: dspy.Image -> answer"), history_reducer=RecentMedia(turns=1)
    )
    with dspy.context(lm=lm):
        for _ in range(3):
            session(picture=dspy.Image(PIXEL))
    assert sent(lm).count(PIXEL) == 1
    assert "[image]" in sent(lm)
    assert session.turns[2].history_snapshot.messages[0]["picture"].url == PIXEL


def test_reducers_follow_one_another_and_apply_to_predictors_of_their_own() -> None:
    lm = answers()
    reducers = [TokenBudget(100, count=words), lambda entries, fields: entries[-1:]]
    session = with_memory(dspy.Predict("question -> answer"), history_reducer=reducers)
    with dspy.context(lm=lm):
        for number in range(4):
            session(question=f"q{number}")
    assert "q1" not in sent(lm)
    assert "q2" in sent(lm)


def test_an_example_that_is_replayed_is_reduced_again() -> None:
    lm = answers()
    session = Session(
        dspy.Predict("question -> answer"), history_reducer=lambda entries, fields: entries[-1:]
    )
    with dspy.context(lm=lm):
        for number in range(3):
            session(question=f"q{number}")
        example = session.to_examples()[-1]
        session(**example.inputs())
    assert sent(lm) == sent(lm, 2)


def test_before_turn_sees_every_call_and_may_change_its_inputs() -> None:
    seen: list[tuple[int, str]] = []

    def tidy(session: Any, inputs: dict[str, Any]) -> dict[str, Any] | None:
        seen.append((len(session), inputs["question"]))
        if not inputs["question"]:
            raise ValidationError("Ask something.")
        return {**inputs, "question": inputs["question"].strip()}

    session = Session(dspy.Predict("question -> answer"), before_turn=tidy)
    with dspy.context(lm=answers()):
        session(question="  q0 ")
        with pytest.raises(ValidationError, match="Ask something"):
            session(question="")
    assert seen == [(0, "  q0 "), (1, "")]
    assert [turn.inputs for turn in session.turns] == [{"question": "q0"}]


def test_a_stored_session_is_reduced_as_the_one_that_opens_it_says(tmp_path: Any) -> None:
    lm = answers()
    with sennit.open(tmp_path / "s.db") as client, dspy.context(lm=lm):
        Session(dspy.Predict("question -> answer"), store=client, key="k")(question="q0")
        state = SessionState.of(
            Session(dspy.Predict("question -> answer"), store=client, key="k").state.log
        )
        brief = Session(dspy.Predict("question -> answer"), history_reducer=TokenBudget(0))
        with brief.use_state(state):
            brief(question="q1")
    assert "q0" not in sent(lm)


@pytest.mark.parametrize(
    ("reducer", "error", "text"),
    [
        (7, InvalidTypeError, "history_reducer must be a function"),
        ([TokenBudget(5), "x"], InvalidTypeError, "history_reducer must be a function"),
        (lambda entries, fields: "none", InvalidTypeError, "A history must be"),
    ],
)
def test_a_wrong_reducer_is_refused(reducer: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text), dspy.context(lm=answers()):
        Session(dspy.Predict("question -> answer"), history_reducer=reducer)(question="q")


def test_wrong_limits_are_refused() -> None:
    with pytest.raises(ValidationError, match="at least 0, got -1"):
        TokenBudget(-1)
    with pytest.raises(InvalidTypeError, match="tokens must be an int, got '5'"):
        Summarize("5")  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="turns must be at least 0"):
        RecentMedia(-1)
