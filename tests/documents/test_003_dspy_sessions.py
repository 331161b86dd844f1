"""Document 003 (sessions of DSPy programs), statement by statement, in its order.

Each docstring opens with the heading under which the document makes the statement. SPEC §6 names
what must work where the existing implementation does not; these have their sections too. DSPy is
real, and its own dummy stands in for the language model.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Optional

import dspy
import pytest
from dspy.teleprompt import BootstrapFewShot, LabeledFewShot
from dspy.utils import DummyLM

from sennit.errors import ValidationError
from sennit.learning.dspy import Session, Turn, sessionify

SECTIONS = (
    "003 · Overview",
    "003 · Core Design Principles · 1) History is a Signature-level concern",
    "003 · Core Design Principles · 2) Program support via predictor-level injection",
    "003 · Core Design Principles · 3) Optimizer-safe behavior",
    "003 · Core Design Principles · 4) Linearization-first data model",
    "003 · API Surface · Construction",
    "003 · API Surface · Runtime calls",
    "003 · API Surface · Session editing",
    "003 · API Surface · Data extraction",
    "003 · API Surface · Persistence / lifecycle",
    "003 · History Policies",
    "003 · Scoring + Filtering",
    "003 · Serialization Format",
    "003 · Review-driven Decisions",
    "003 · Known Tradeoffs / Future Work",
    "003 · Upstreaming Considerations",
    "SPEC §6 · What fails elsewhere",
)

GIVEN = dspy.History(messages=[{"question": "h", "answer": "g"}])


@pytest.fixture
def lm() -> Any:
    made = DummyLM([{"answer": f"a{n}"} for n in range(200)])
    with dspy.context(lm=made):
        yield made


def qa() -> Any:
    return dspy.Predict("question -> answer")


class Program(dspy.Module):
    """Its forward takes a question, and no history."""

    def __init__(self) -> None:
        super().__init__()
        self.gen = dspy.Predict("question -> answer")

    def forward(self, question: str) -> Any:
        if question == "fail":
            raise RuntimeError(question)
        return self.gen(question=question)


def prompt(lm: Any, which: int = -1) -> str:
    """All that was sent in a call, without the system message."""
    return "\n".join(str(m["content"]) for m in lm.history[which]["messages"][1:])


def said(session: Any) -> list[tuple[str, str]]:
    return [(turn.inputs["question"], turn.outputs["answer"]) for turn in session.turns]


def pasts(session: Any) -> list[Any]:
    return [turn.history_snapshot.messages for turn in session.turns]


def talk(session: Any, *questions: str) -> Any:
    for question in questions:
        session(question=question)
    return session


def test_a_session_accumulates_injects_and_linearizes(lm: Any) -> None:
    """003 · Overview"""
    session = talk(Session(qa()), "q0", "q1")

    assert said(session) == [("q0", "a0"), ("q1", "a1")]
    assert "q0" in prompt(lm)
    assert "a0" in prompt(lm)
    assert [example.question for example in session.to_examples()] == ["q0", "q1"]


@pytest.mark.parametrize("adapter", [dspy.ChatAdapter, dspy.JSONAdapter, dspy.XMLAdapter])
def test_it_works_across_adapters(adapter: Any) -> None:
    """003 · Overview"""
    made = adapter()
    lm = DummyLM([{"answer": "knot"}] * 3, adapter=made)
    with dspy.context(lm=lm, adapter=made):
        talk(Session(qa()), "first", "second")
    assert "first" in prompt(lm)


def test_it_works_with_an_adapter_in_two_steps() -> None:
    """003 · Overview"""
    lm = DummyLM([{"answer": "A free answer."}] * 3)
    with dspy.context(lm=lm, adapter=dspy.TwoStepAdapter(DummyLM([{"answer": "knot"}] * 3))):
        session = talk(Session(qa()), "first", "second")
    assert said(session) == [("first", "knot"), ("second", "knot")]
    assert "first" in prompt(lm)


def test_it_works_with_an_adapter_of_ones_own() -> None:
    """003 · Overview"""

    class Template(dspy.ChatAdapter):
        def format(self, *args: Any, **kwargs: Any) -> Any:
            made: Any = super().format(*args, **kwargs)
            return [*made[:1], {"role": "user", "content": "From the template."}, *made[1:]]

    lm = DummyLM([{"answer": "knot"}] * 3)
    with dspy.context(lm=lm, adapter=Template()):
        talk(Session(qa()), "first", "second")
    assert "From the template." in prompt(lm)
    assert "first" in prompt(lm)


def test_the_history_is_a_field_of_the_patched_signatures() -> None:
    """003 · Core Design Principles · 1) History is a Signature-level concern"""
    module: Any = Program()
    session = Session(module)

    assert [list(p.signature.input_fields) for p in session.predictors()] == [
        ["history", "question"]
    ]
    assert session.predictors()[0].signature.input_fields["history"].annotation is dspy.History
    assert list(module.gen.signature.input_fields) == ["question"]


def test_a_signature_that_has_a_history_keeps_its_own(lm: Any) -> None:
    """003 · Core Design Principles · 1) History is a Signature-level concern"""
    with pytest.warns(UserWarning, match="'past', not 'history'"):
        session: Any = Session(dspy.Predict("past: dspy.History, question -> answer"))
    talk(session, "q0", "q1")

    assert session.history_field == "past"
    assert list(session.predictors()[0].signature.input_fields) == ["past", "question"]
    assert "q0" in prompt(lm)


class OwnHistory(dspy.History):
    """A kind of history of one's own."""


@pytest.mark.parametrize("kind", [dspy.History | None, Optional[dspy.History], OwnHistory])  # noqa: UP045
def test_a_history_that_is_annotated_in_other_words_is_heard_too(lm: Any, kind: Any) -> None:
    """003 · Review-driven Decisions"""
    plain: Any = qa().signature
    signature = plain.prepend("past", dspy.InputField(), kind)
    session: Any = Session(
        dspy.Predict(signature), history_field="past", strict_history_annotation=True
    )
    talk(session, "q0", "q1")

    assert list(session.predictors()[0].signature.input_fields) == ["past", "question"]
    assert "q0" in prompt(lm)


def test_a_program_without_a_history_argument_is_supported(lm: Any) -> None:
    """003 · Core Design Principles · 2) Program support via predictor-level injection"""
    talk(Session(Program()), "q0", "q1")
    assert "q0" in prompt(lm)


def test_a_call_with_an_explicit_history_bypasses_the_session(lm: Any) -> None:
    """003 · Core Design Principles · 3) Optimizer-safe behavior"""
    session = talk(Session(Program()), "q0")
    before = session.save_state()

    session(question="replayed", history=GIVEN)

    assert session.save_state() == before
    assert "q0" not in prompt(lm)
    assert "[[ ## question ## ]]\nh" in prompt(lm)


def test_optimisers_replay_examples_without_polluting_the_session(lm: Any) -> None:
    """003 · Core Design Principles · 3) Optimizer-safe behavior"""
    session = talk(Session(Program()), "q0", "q1")
    before = session.save_state()

    compiled = BootstrapFewShot(metric=lambda *_: True, max_bootstrapped_demos=2).compile(
        session, trainset=session.to_examples()
    )

    assert session.save_state() == before
    assert len(compiled) == 0


def test_each_turn_stores_its_history_at_call_time_and_becomes_an_independent_example(
    lm: Any,
) -> None:
    """003 · Core Design Principles · 4) Linearization-first data model"""
    session = talk(Session(qa()), "q0", "q1")

    first, second = session.to_examples()

    assert pasts(session) == [[], [{"question": "q0", "answer": "a0"}]]
    assert set(second.inputs().keys()) == {"question", "history"}
    assert second.history.messages == [{"question": "q0", "answer": "a0"}]
    assert second.labels().toDict() == {"answer": "a1"}
    assert first.history.messages == []
    bare = session.to_examples(include_history=False)[1]
    assert set(bare.inputs().keys()) == {"question"}


def test_the_constructor_has_the_documented_options_and_defaults() -> None:
    """003 · API Surface · Construction"""
    documented = {
        "history_field": "history",
        "max_turns": None,
        "exclude_fields": None,
        "history_input_fields": None,
        "initial_history": None,
        "history_policy": "override",
        "on_metric_error": "zero",
        "strict_history_annotation": False,
        "lock": "none",
    }
    found = inspect.signature(Session.__init__).parameters
    assert {name: found[name].default for name in documented} == documented
    assert [*found][1:11] == ["module", *documented]
    for name in ("input_field_override", "max_stored_turns", "copy_mode", "on_turn"):
        assert name in found


def test_history_field_names_the_field(lm: Any) -> None:
    """003 · API Surface · Construction"""
    session = talk(Session(qa(), history_field="before"), "q0")

    assert "before" in session.predictors()[0].signature.input_fields
    assert set(session.to_examples()[0].inputs().keys()) == {"question", "before"}
    session(question="aside", before=GIVEN)
    assert "[[ ## question ## ]]\nh" in prompt(lm)
    assert len(session) == 1


def test_max_turns_limits_what_a_call_hears(lm: Any) -> None:
    """003 · API Surface · Construction"""
    session = talk(Session(qa(), max_turns=2), "q0", "q1", "q2", "q3")

    assert [[m["question"] for m in past] for past in pasts(session)] == [
        [],
        ["q0"],
        ["q0", "q1"],
        ["q1", "q2"],
    ]
    assert "q0" not in prompt(lm)


def test_exclude_fields_keeps_fields_out_of_the_history(lm: Any) -> None:
    """003 · API Surface · Construction"""
    module = dspy.Predict("question, context -> answer")
    session = Session(module, exclude_fields={"context"})
    session(question="q0", context="long")
    session(question="q1", context="other")

    assert "long" not in prompt(lm)
    assert session.turns[0].inputs == {"question": "q0", "context": "long"}


@pytest.mark.parametrize("name", ["history_input_fields", "input_field_override"])
def test_history_input_fields_and_its_alias_choose_the_inputs_that_are_told(
    lm: Any, name: str
) -> None:
    """003 · API Surface · Construction"""
    chosen: dict[str, Any] = {name: {"question"}}
    session = Session(dspy.Predict("question, context -> answer"), **chosen)
    session(question="q0", context="long")

    assert session.session_history.messages == [{"question": "q0", "answer": "a0"}]


def test_initial_history_is_heard_by_the_first_call(lm: Any) -> None:
    """003 · API Surface · Construction"""
    session = talk(Session(qa(), initial_history=GIVEN), "q0")

    assert pasts(session) == [GIVEN.messages]
    assert "[[ ## question ## ]]\nh" in prompt(lm)


def test_on_metric_error_counts_zero_or_raises(lm: Any) -> None:
    """003 · API Surface · Construction"""

    def broken(example: Any, prediction: Any, trace: Any = None) -> float:
        raise KeyError("no")

    assert talk(Session(qa()), "q0").score(broken) == [0.0]
    with pytest.raises(KeyError):
        talk(Session(qa(), on_metric_error="raise"), "q0").score(broken)


def test_a_strict_session_wants_the_history_field_to_be_a_history() -> None:
    """003 · API Surface · Construction"""
    odd = dspy.Predict("history: str, question -> answer")

    Session(odd)
    with pytest.raises(ValidationError, match="History"):
        Session(odd, strict_history_annotation=True)


@pytest.mark.parametrize("lock", ["none", "thread", "async"])
def test_each_lock_mode_lets_both_kinds_of_calls_through(lm: Any, lock: Any) -> None:
    """003 · API Surface · Construction"""
    session = talk(Session(qa(), lock=lock), "q0")
    asyncio.run(session.acall(question="q1"))

    assert [question for question, _ in said(session)] == ["q0", "q1"]


def test_calls_run_as_call_forward_acall_and_aforward(lm: Any) -> None:
    """003 · API Surface · Runtime calls"""
    session = Session(qa())

    async def awaited() -> None:
        await session.acall(question="q2")
        await session.aforward(question="q3")

    assert session(question="q0").answer == "a0"
    assert session.forward(question="q1").answer == "a1"
    asyncio.run(awaited())
    assert said(session) == [(f"q{n}", f"a{n}") for n in range(4)]
    assert len(pasts(session)[3]) == 3


def test_add_turn_puts_a_turn_at_the_end(lm: Any) -> None:
    """003 · API Surface · Session editing"""
    session = talk(Session(qa()), "q0")

    turn = session.add_turn({"question": "x"}, {"answer": "y"})
    talk(session, "q1")

    assert isinstance(turn, Turn)
    assert (turn.index, turn.inputs, turn.outputs, turn.score) == (
        1,
        {"question": "x"},
        {"answer": "y"},
        None,
    )
    assert turn.history_snapshot.messages == [{"question": "q0", "answer": "a0"}]
    assert "[[ ## answer ## ]]\ny" in prompt(lm)


def test_pop_turn_and_undo_take_turns_back(lm: Any) -> None:
    """003 · API Surface · Session editing"""
    session = talk(Session(qa()), "q0", "q1", "q2", "q3")

    popped = session.pop_turn()
    assert popped is not None
    assert popped.inputs == {"question": "q3"}
    assert [turn.inputs["question"] for turn in session.undo()] == ["q2"]
    assert [turn.inputs["question"] for turn in session.undo(steps=5)] == ["q1", "q0"]
    assert session.pop_turn() is None
    talk(session, "again")
    assert pasts(session) == [[]]


def test_reset_begins_anew_with_the_initial_history(lm: Any) -> None:
    """003 · API Surface · Session editing"""
    session = talk(Session(qa(), initial_history=GIVEN), "q0")
    session.reset()

    assert len(session) == 0
    assert session.session_history.messages == GIVEN.messages


def test_fork_goes_on_by_itself(lm: Any) -> None:
    """003 · API Surface · Session editing"""
    session = talk(Session(qa()), "q0")
    fork = session.fork()
    talk(fork, "fork")
    talk(session, "trunk")

    assert [question for question, _ in said(fork)] == ["q0", "fork"]
    assert [question for question, _ in said(session)] == ["q0", "trunk"]
    assert isinstance(fork, Session)


def test_score_gives_one_number_per_turn_and_keeps_it(lm: Any) -> None:
    """003 · API Surface · Data extraction"""
    session = talk(Session(qa()), "q0", "q1")
    seen: list[Any] = []

    def metric(example: Any, prediction: Any, trace: Any = None) -> float:
        seen.append(example.question)
        return float(prediction.answer == "a1")

    assert session.score(metric) == [0.0, 1.0]
    assert [turn.score for turn in session.turns] == [0.0, 1.0]
    assert seen == ["q0", "q1"]


def test_score_compares_with_gold_when_it_is_given(lm: Any) -> None:
    """003 · API Surface · Data extraction"""
    session = talk(Session(qa()), "q0", "q1")
    gold = dspy.Example(answer="a1").with_inputs()

    assert session.score(lambda e, p: float(e.answer == p.answer), gold=gold) == [0.0, 1.0]


def test_to_trainset_is_to_examples(lm: Any) -> None:
    """003 · API Surface · Data extraction"""
    session = talk(Session(qa()), "q0", "q1")

    plain = [example.toDict() for example in session.to_examples()]
    assert [example.toDict() for example in session.to_trainset()] == plain
    assert all(isinstance(example, dspy.Example) for example in session.to_trainset())


def test_examples_of_several_sessions_are_merged(lm: Any) -> None:
    """003 · API Surface · Data extraction"""
    one, two = talk(Session(qa()), "q0", "q1"), talk(Session(qa()), "q2")

    merged = Session.merge_examples(one, two, include_history=False)
    assert [example.question for example in merged] == ["q0", "q1", "q2"]
    assert "history" not in merged[1]


def test_turns_without_outputs_are_left_out_unless_asked_for(lm: Any) -> None:
    """003 · API Surface · Data extraction"""
    session = Session(qa())
    session.add_turn({"question": "q0"}, {})

    assert session.to_examples() == []
    assert len(session.to_examples(require_outputs=False)) == 1


def test_a_session_is_saved_and_loaded_around_a_module(lm: Any, tmp_path: Path) -> None:
    """003 · API Surface · Persistence / lifecycle"""
    session = talk(Session(qa(), max_turns=3, initial_history=GIVEN), "q0", "q1")
    session.save(tmp_path / "session.json")

    loaded = Session.load_from(tmp_path / "session.json", qa())

    assert loaded.turns == session.turns
    assert loaded.save_state() == session.save_state()
    assert json.loads((tmp_path / "session.json").read_text()) == session.save_state()
    talk(loaded, "q2")
    assert len(pasts(loaded)[2]) == 3


def test_the_module_is_replaced_and_the_turns_stay(lm: Any) -> None:
    """003 · API Surface · Persistence / lifecycle"""
    session = talk(Session(qa()), "q0")
    session.update_module(Program())
    talk(session, "q1")

    assert isinstance(session.module, Program)
    assert pasts(session)[1] == [{"question": "q0", "answer": "a0"}]
    assert "q0" in prompt(lm)


def test_override_passes_through_and_records_nothing(lm: Any) -> None:
    """003 · History Policies"""
    session = talk(Session(qa(), history_policy="override"), "q0")
    session(question="q1", history=GIVEN)

    assert "[[ ## question ## ]]\nh" in prompt(lm)
    assert said(session) == [("q0", "a0")]


def test_use_if_provided_uses_the_history_and_records_the_turn(lm: Any) -> None:
    """003 · History Policies"""
    session = talk(Session(qa(), history_policy="use_if_provided"), "q0")
    session(question="q1", history=GIVEN)

    assert "[[ ## question ## ]]\nh" in prompt(lm)
    assert said(session) == [("q0", "a0"), ("q1", "a1")]
    assert pasts(session)[1] == GIVEN.messages


def test_replace_session_replaces_the_seed_clears_the_turns_and_goes_on(lm: Any) -> None:
    """003 · History Policies"""
    session = talk(Session(qa(), history_policy="replace_session"), "q0")
    session(question="q1", history=GIVEN)
    talk(session, "q2")

    assert said(session) == [("q1", "a1"), ("q2", "a2")]
    assert session.initial_history == GIVEN.messages
    assert pasts(session)[1] == [*GIVEN.messages, {"question": "q1", "answer": "a1"}]


def test_min_score_filters_by_a_metric_or_by_the_scores_kept(lm: Any) -> None:
    """003 · Scoring + Filtering"""
    session = talk(Session(qa()), "q0", "q1", "q2")

    def metric(example: Any, prediction: Any, trace: Any = None) -> float:
        return 0.0 if example.question == "q1" else 1.0

    found = session.to_examples(metric=metric, min_score=0.5)
    assert [example.question for example in found] == ["q0", "q2"]
    session.score(metric)
    assert [e.question for e in session.to_examples(min_score=0.5)] == ["q0", "q2"]


def test_strict_trajectory_drops_a_bad_turn_and_all_that_follow(lm: Any) -> None:
    """003 · Scoring + Filtering"""
    session = talk(Session(qa()), "q0", "q1", "q2")
    found = session.to_examples(
        metric=lambda e, p: 0.0 if e.question == "q1" else 1.0,
        min_score=0.5,
        strict_trajectory=True,
    )
    assert [example.question for example in found] == ["q0"]


def test_the_saved_form_is_version_2_with_the_documented_fields(lm: Any) -> None:
    """003 · Serialization Format"""
    session = talk(Session(qa(), exclude_fields={"x"}, initial_history=GIVEN), "q0")
    session.score(lambda *_: 0.5)
    state = session.save_state()

    assert state["version"] == 2
    assert state["history_field"] == "history"
    assert state["max_turns"] is None
    assert state["exclude_fields"] == ["x"]
    assert state["history_input_fields"] is None
    assert state["history_policy"] == "override"
    assert state["initial_history"] == {"messages": GIVEN.messages}
    (turn,) = state["turns"]
    assert {name: turn[name] for name in ("index", "inputs", "outputs", "score")} == {
        "index": 0,
        "inputs": {"question": "q0"},
        "outputs": {"answer": "a0"},
        "score": 0.5,
    }


def test_snapshots_of_a_file_without_positions_are_rebuilt_by_the_rules(
    lm: Any, tmp_path: Path
) -> None:
    """003 · Serialization Format"""
    turns = [
        {"index": n, "inputs": {"question": f"q{n}", "x": 1}, "outputs": {"answer": f"a{n}"}}
        for n in range(4)
    ]
    state = {"version": 2, "max_turns": 2, "exclude_fields": ["x", "history"], "turns": turns}
    (tmp_path / "s.json").write_text(json.dumps(state))

    loaded = Session.load_from(tmp_path / "s.json", qa())

    assert pasts(loaded)[3] == [{"question": f"q{n}", "answer": f"a{n}"} for n in (1, 2)]


def test_version_1_is_read_too(lm: Any, tmp_path: Path) -> None:
    """003 · Serialization Format"""
    turn = {"index": 0, "inputs": {"question": "q0"}, "outputs": {"answer": "a0"}}
    (tmp_path / "s.json").write_text(json.dumps({"version": 1, "turns": [turn]}))

    loaded = talk(Session.load_from(tmp_path / "s.json", qa()), "q1")

    assert pasts(loaded)[1] == [{"question": "q0", "answer": "a0"}]


def test_what_is_recorded_is_out_of_reach_of_the_caller(lm: Any) -> None:
    """003 · Review-driven Decisions"""
    session = Session(dspy.Predict("question, notes: list[str] -> answer"))
    notes = ["one"]
    session(question="q0", notes=notes)
    notes.append("two")

    assert session.turns[0].inputs["notes"] == ["one"]
    assert session.session_history.messages[0]["notes"] == ["one"]


def test_sessionify_is_the_constructor(lm: Any) -> None:
    """003 · Review-driven Decisions"""
    session = sessionify(Program(), max_turns=1)
    assert isinstance(session, Session)
    assert len(pasts(talk(session, "q0", "q1", "q2"))[2]) == 1


def test_long_sessions_hold_positions_and_only_as_many_turns_as_asked_for(lm: Any) -> None:
    """003 · Known Tradeoffs / Future Work"""
    session = talk(Session(qa(), max_stored_turns=2), *(f"q{n}" for n in range(5)))

    assert [question for question, _ in said(session)] == ["q3", "q4"]
    examples = session.to_examples()
    assert "messages" not in vars(examples[0].history)
    assert [m["question"] for m in examples[0].history.messages] == ["q1", "q2"]


def test_a_hook_is_told_each_turn(lm: Any) -> None:
    """003 · Known Tradeoffs / Future Work"""
    told: list[Any] = []
    session = Session(qa(), on_turn=lambda session, turn: told.append((len(session), turn.index)))
    talk(session, "q0", "q1")

    assert told == [(1, 0), (2, 1)]


def test_examples_are_dspy_examples_with_inputs_and_labels(lm: Any) -> None:
    """003 · Upstreaming Considerations"""
    (example,) = talk(Session(qa()), "q0").to_examples()

    assert isinstance(example, dspy.Example)
    assert isinstance(example.history, dspy.History)
    assert qa()(**example.inputs().without("history")).answer == "a1"


def test_compiled_demonstrations_reach_the_prompt(lm: Any) -> None:
    """SPEC §6 · What fails elsewhere"""
    trainset = [dspy.Example(question="demo", answer="shown").with_inputs("question")]
    compiled = LabeledFewShot(k=1).compile(Session(Program()), trainset=trainset)
    talk(compiled, "q0")

    assert "demo" in prompt(lm)
    talk(compiled.fork(), "q1")
    assert "demo" in prompt(lm)


def test_nested_predictors_with_other_fields_never_see_none() -> None:
    """SPEC §6 · What fails elsewhere"""

    class Nested(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.think = dspy.Predict("question -> idea")
            self.answer = dspy.Predict("idea -> answer")

        def forward(self, question: str) -> Any:
            return self.answer(idea=self.think(question=question).idea)

    lm = DummyLM([{"idea": f"i{n}", "answer": f"a{n}"} for n in range(9)])
    with dspy.context(lm=lm):
        talk(Session(Nested()), "q0", "q1")
    assert all("None" not in prompt(lm, n) for n in range(4))
    assert "i0" in prompt(lm, 2)


def test_a_program_that_hands_its_history_on_shows_no_holes_either() -> None:
    """SPEC §6 · What fails elsewhere"""

    class Telling(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.judge = dspy.Predict("history: dspy.History, text -> verdict")

        def forward(self, question: str, history: Any) -> Any:
            self.judge(text=question, history=history)
            return dspy.Prediction(answer="a")

    lm = DummyLM([{"verdict": f"v{n}"} for n in range(9)])
    with dspy.context(lm=lm):
        talk(Session(Telling()), "q0", "q1")
    assert "None" not in prompt(lm)


def test_history_reaches_worker_threads(lm: Any) -> None:
    """SPEC §6 · What fails elsewhere"""

    class Crowd(Program):
        def forward(self, question: str) -> Any:
            asked = [(self.gen, dspy.Example(question=question).with_inputs("question"))] * 2
            return dspy.Parallel(num_threads=2, disable_progress_bar=True)(asked)[0]

    talk(Session(Crowd()), "q0", "q1")
    assert "q0" in prompt(lm, -1)
    assert "q0" in prompt(lm, -2)


def test_a_lock_keeps_threads_and_tasks_apart(lm: Any) -> None:
    """SPEC §6 · What fails elsewhere"""
    inside = threading.Semaphore(1)
    crowded: list[str] = []

    class Alone(Program):
        def forward(self, question: str) -> Any:
            if not inside.acquire(blocking=False):
                crowded.append(question)
            try:
                return dspy.Prediction(answer=question)
            finally:
                inside.release()

        async def aforward(self, question: str) -> Any:
            if not inside.acquire(blocking=False):
                crowded.append(question)
            await asyncio.sleep(0)
            inside.release()
            return dspy.Prediction(answer=question)

    session = Session(Alone(), lock="async")

    async def tasks() -> None:
        await asyncio.gather(*(session.acall(question=f"t{n}") for n in range(20)))

    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(asyncio.run, tasks())]
        jobs += [pool.submit(session, question=f"s{n}") for n in range(20)]
        for job in jobs:
            job.result()
    assert crowded == []
    assert [len(past) for past in pasts(session)] == list(range(40))


@pytest.mark.parametrize("wrong", [{"history_policy": "ignore"}, {"lock": "maybe"}])
def test_unknown_words_are_refused(wrong: dict[str, Any]) -> None:
    """SPEC §6 · What fails elsewhere"""
    with pytest.raises(ValidationError, match="must be one of"):
        Session(qa(), **wrong)


def test_max_turns_zero_means_no_history(lm: Any) -> None:
    """SPEC §6 · What fails elsewhere"""
    assert pasts(talk(Session(qa(), max_turns=0), "q0", "q1")) == [[], []]
    assert "q0" not in prompt(lm)


def test_a_replacing_call_that_fails_loses_nothing(lm: Any) -> None:
    """SPEC §6 · What fails elsewhere"""
    session = talk(Session(Program(), history_policy="replace_session"), "q0")
    before = session.save_state()

    with pytest.raises(RuntimeError):
        session(question="fail", history=GIVEN)
    assert session.save_state() == before


def test_saving_and_loading_never_changes_a_snapshot(lm: Any, tmp_path: Path) -> None:
    """SPEC §6 · What fails elsewhere"""
    session = talk(Session(qa(), history_policy="use_if_provided", max_turns=2), "q0", "q1")
    session(question="q2", history=GIVEN)
    talk(session, "q3")
    session.save(tmp_path / "s.json")

    for window in (None, 0, 1, 2, 9):
        loaded = Session.load_from(tmp_path / "s.json", qa(), max_turns=window)
        assert pasts(loaded) == pasts(session)


def test_a_metric_is_called_once_per_turn(lm: Any) -> None:
    """SPEC §6 · What fails elsewhere"""
    session = talk(Session(qa()), "q0", "q1")
    calls: list[str] = []
    session.score(lambda e, p: calls.append(e.question) or 1.0)

    assert calls == ["q0", "q1"]


def test_snapshots_are_positions_and_are_not_copied(lm: Any) -> None:
    """SPEC §6 · What fails elsewhere"""
    session = talk(Session(qa()), "q0", "q1", "q2")

    spans = [turn.past for turn in session.turns]
    assert [(span.start, span.stop) for span in spans] == [(0, 0), (0, 1), (0, 2)]
    assert spans[0].entries is spans[1].entries is spans[2].entries


def test_every_section_listed_has_a_test_and_every_test_names_a_section() -> None:
    """The list at the top is kept honest."""
    tests = [value for name, value in globals().items() if name.startswith("test_")]
    docstrings = {test.__name__: inspect.getdoc(test) or "" for test in tests}
    del docstrings["test_every_section_listed_has_a_test_and_every_test_names_a_section"]

    assert {docstring.split("\n")[0] for docstring in docstrings.values()} == set(SECTIONS)
