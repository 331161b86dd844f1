"""Conversations as values: bound to one program, saved as dicts, with options per predictor."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import dspy
import pytest
from dspy.utils import DummyLM

import sennit
from sennit.errors import ValidationError
from sennit.learning.dspy import (
    Session,
    SessionState,
    Turn,
    get_child_l1_ledger,
    get_execution_trace,
    sessionify,
    with_memory,
)
from sennit.learning.dspy.options import ChildConfig, MemoryPlan


class Pair(dspy.Module):
    """Plans, then acts."""

    def __init__(self) -> None:
        super().__init__()
        self.plan = dspy.ChainOfThought("goal -> step")
        self.act = dspy.Predict("step -> result")

    def forward(self, goal: str) -> Any:
        return self.act(step=self.plan(goal=goal).step)


def dummy() -> DummyLM:
    fields = ("step", "result", "answer")
    return DummyLM(
        [{"reasoning": "so", **{name: f"{name[0]}{n}" for name in fields}} for n in range(60)]
    )


def heard(lm: Any, which: int) -> int:
    """The number of turns that the model was sent."""
    return (len(lm.history[which]["messages"]) - 2) // 2


def asked(state: SessionState | Session) -> list[Any]:
    return [next(iter(turn.inputs.values())) for turn in state.turns]


def test_one_program_serves_states_that_it_made() -> None:
    lm = dummy()
    with dspy.context(lm=lm):
        app = with_memory(Pair(), lifespan="persistent")
        ann, bob = app.new_state(), app.new_state()
        with app.use_state(ann) as bound:
            assert bound is ann
            app(goal="A1")
            app(goal="A2")
        with app.use_state(bob):
            app(goal="B1")
    assert (asked(ann), asked(bob), asked(app)) == (["A1", "A2"], ["B1"], [])
    assert {name: len(state.turns) for name, state in ann.node_states.items()} == {
        "plan.predict": 2,
        "act": 2,
    }
    assert heard(lm, -1) == 0


def test_a_new_state_begins_with_the_initial_history_and_keeps_the_limits() -> None:
    lm = dummy()
    seed = [{"question": "q", "answer": "a"}]
    with dspy.context(lm=lm):
        chat = sessionify(dspy.Predict("question -> answer"), initial_history=seed, max_turns=1)
        state = chat.new_state()
        with chat.use_state(state):
            chat(question="one")
            chat(question="two")
    assert [len(turn.history_snapshot.messages) for turn in state.turns] == [1, 1]
    assert state.turns[0].history_snapshot.messages == seed


@pytest.mark.anyio
async def test_a_state_is_bound_in_an_async_with_and_by_one_task_only() -> None:
    app = with_memory(dspy.Predict("question -> answer"))

    async def talk(state: SessionState, name: str) -> None:
        async with app.use_state(state) as bound:
            assert bound is state
            await app.acall(question=f"{name}1")
            await asyncio.sleep(0)
            await app.acall(question=f"{name}2")

    ann, bob = app.new_state(), app.new_state()
    with dspy.context(lm=dummy()):
        await asyncio.gather(talk(ann, "A"), talk(bob, "B"))
    assert (asked(ann), asked(bob), asked(app)) == (["A1", "A2"], ["B1", "B2"], [])
    with pytest.raises(RuntimeError, match="leave"):
        async with app.use_state(ann):
            raise RuntimeError("leave")
    assert app.state is not ann


def test_a_state_of_turns_goes_through_json() -> None:
    first = Turn(0, {"question": "Q1"}, {"answer": "A1"}, dspy.History(messages=[]), 0.5)
    worker = Turn(0, {"question": "W1"}, {"answer": "WA1"}, dspy.History(messages=[]))
    state = SessionState(
        turns=[first],
        initial_history=dspy.History(messages=[{"question": "seed", "answer": "ctx"}]),
        l2_memory="known fact",
        node_states={"self": SessionState(turns=[worker], l2_memory="worker fact")},
    )
    again = SessionState.from_dict(json.loads(json.dumps(state.to_dict())))
    assert again.to_dict() == state.to_dict()
    assert (asked(again), again.turns[0].score) == (["Q1"], 0.5)
    assert again.initial_history == [{"question": "seed", "answer": "ctx"}]
    assert again.l2_memory == "known fact"
    assert asked(again.node_states["self"]) == ["W1"]
    assert again.node_states["self"].l2_memory == "worker fact"

    lm = dummy()
    app = with_memory(dspy.Predict("question -> answer"))
    with dspy.context(lm=lm), app.use_state(again):
        app(question="Q2")
    assert "worker fact" in lm.history[-1]["messages"][0]["content"]
    assert heard(lm, -1) == 2  # the seed, and the worker's own turn
    with pytest.raises(ValidationError, match="version"):
        SessionState.from_dict({"version": 9, "turns": []})


def test_the_system_message_of_a_stored_conversation_is_no_memory(tmp_path: Any) -> None:
    with sennit.open(tmp_path / "a.db") as client:
        client.session("bot", system="Be brief.")
        stored = Session(dspy.Predict("question -> answer"), store=client, key="bot")
        assert stored.state.l2_memory == ""
        assert "l2_memory" not in stored.save_state()


def run_pair(**options: Any) -> tuple[Session, DummyLM]:
    lm = dummy()
    with dspy.context(lm=lm):
        session = with_memory(Pair(), **options)
        session(goal="one")
        session(goal="two")
    return session, lm


def test_single_predictors_have_options_of_their_own() -> None:
    session, lm = run_pair(child_configs={"plan": {"lifespan": "stateless"}})
    assert (heard(lm, -2), heard(lm, -1)) == (0, 1)
    assert {name: asked(state) for name, state in session.state.node_states.items()} == {
        "act": ["s0", "s2"]
    }

    told: list[str] = []

    def fold(memory: str, _episode: Any, node: str) -> str:
        told.append(node)
        return f"{memory}!"

    act: ChildConfig = {"lifespan": "episodic", "consolidator": fold}
    session, lm = run_pair(lifespan="stateless", child_configs={"act": act})
    assert (heard(lm, -2), heard(lm, -1), told) == (0, 0, ["act", "act"])
    assert session.state.node_states["act"].l2_memory == "!!"
    assert session.state.node_states["act"].turns == []


def test_an_excluded_predictor_is_sent_nothing_and_records_nothing() -> None:
    session, lm = run_pair(exclude={"plan"}, child_configs={"plan": {"lifespan": "persistent"}})
    assert (heard(lm, -2), heard(lm, -1)) == (0, 1)
    assert list(session.state.node_states) == ["act"]


def test_without_recursion_only_the_program_has_a_history() -> None:
    session, lm = run_pair(recursive=False)
    assert session.state.node_states == {}
    assert heard(lm, -1) == 1
    assert len(session) == 2


def test_options_of_predictors_are_saved_with_the_session(tmp_path: Any) -> None:
    session, _ = run_pair(child_configs={"plan": {"isolation": "shared"}}, exclude={"act"})
    session.save(tmp_path / "s.json")
    lm = dummy()
    with dspy.context(lm=lm):
        again = Session.load_from(tmp_path / "s.json", Pair())
        again(goal="three")
    assert (heard(lm, -2), heard(lm, -1)) == (2, 0)


def test_a_consolidator_may_be_a_program() -> None:
    class Fold(dspy.Module):
        def forward(self, past_memory: str, episode_transcript: str) -> Any:
            turns = episode_transcript.count("- turn:")
            return dspy.Prediction(updated_memory=f"{past_memory}{turns};")

    session, _ = run_pair(child_configs={"act": {"consolidator": Fold()}})
    assert session.state.node_states["act"].l2_memory == "1;1;"
    assert session.state.node_states["plan.predict"].l2_memory == ""


def test_options_for_what_is_not_there_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"'pla'.*plan\.predict"):
        with_memory(Pair(), child_configs={"pla": {}})
    with pytest.raises(ValidationError, match="nowhere"):
        with_memory(Pair(), exclude={"nowhere"})
    with pytest.raises(ValidationError, match="scope"):
        with_memory(Pair(), child_configs={"plan": {"scope": "shared"}})  # pyright: ignore
    with pytest.raises(ValidationError, match="lifespan"):
        with_memory(Pair(), child_configs={"plan": {"lifespan": "long"}})  # pyright: ignore
    with pytest.raises(ValidationError, match="exclude"):
        with_memory(Pair(), exclude="plan")
    with pytest.raises(ValidationError, match="isolation"):
        MemoryPlan.from_dict({"lifespan": "stateless"})


def test_a_program_sees_the_turns_of_the_sessions_inside_it() -> None:
    class Parent(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.worker = sessionify(dspy.Predict("question -> answer"))

        def forward(self, question: str) -> Any:
            before = get_child_l1_ledger("worker")
            answer = self.worker(question=question).answer
            after = get_child_l1_ledger("worker")
            return dspy.Prediction(
                answer=answer, before=before, after=after, trace=get_execution_trace()
            )

    with dspy.context(lm=dummy()):
        result = sessionify(Parent())(question="Q1")
    assert result.before == ""
    assert "question: Q1" in result.after
    assert "worker: 1 turn" in result.trace
    assert "root: 0 turns" in result.trace
