"""DSPy programs that remember: what they hear, keep and become."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dspy
import pydantic
import pytest
from dspy.utils import DummyLM

import sennit
from sennit.errors import InvalidTypeError, ValidationError
from sennit.learning.dspy import Session, SessionState, sessionify


def dummy(count: int = 50, **fields: str) -> DummyLM:
    names = fields or {"answer": "a"}
    return DummyLM([{name: f"{stem}{n}" for name, stem in names.items()} for n in range(count)])


@pytest.fixture
def lm() -> Any:
    made = dummy()
    with dspy.context(lm=made):
        yield made


def sent(lm: Any, which: int = -1) -> list[tuple[str, str]]:
    """Who said what in a prompt, without the system message and the reminders."""
    return [
        (
            m["role"],
            m["content"].split("\n\nRespond with")[0].replace("\n\n[[ ## completed ## ]]\n", ""),
        )
        for m in lm.history[which]["messages"][1:]
    ]


def qa() -> Any:
    return dspy.Predict("question -> answer")


def test_each_turn_hears_those_before(lm: Any) -> None:
    session = Session(qa())
    for n in range(3):
        session(question=f"q{n}")
    assert sent(lm) == [
        ("user", "[[ ## question ## ]]\nq0"),
        ("assistant", "[[ ## answer ## ]]\na0"),
        ("user", "[[ ## question ## ]]\nq1"),
        ("assistant", "[[ ## answer ## ]]\na1"),
        ("user", "[[ ## question ## ]]\nq2"),
    ]
    assert [(t.index, t.inputs, t.outputs) for t in session.turns] == [
        (n, {"question": f"q{n}"}, {"answer": f"a{n}"}) for n in range(3)
    ]
    assert session.turns[1].history_snapshot.messages == [{"question": "q0", "answer": "a0"}]
    assert len(session) == 3


def test_the_module_given_is_not_changed(lm: Any) -> None:
    module = qa()
    Session(module)(question="q")
    assert list(module.signature.input_fields) == ["question"]
    assert type(module) is dspy.Predict


class Agent(dspy.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gen = dspy.Predict("question -> answer")

    def forward(self, question: str) -> Any:
        return self.gen(question=question)


def test_a_program_needs_no_history_argument(lm: Any) -> None:
    session = sessionify(Agent())
    session(question="q0")
    session(question="q1")
    assert sent(lm)[0] == ("user", "[[ ## question ## ]]\nq0")


class Thinking(dspy.Module):
    """Its answer does not tell the reasoning inside, nor the summary."""

    def __init__(self) -> None:
        super().__init__()
        self.think = dspy.ChainOfThought("question -> answer")
        self.steps = [dspy.Predict("answer -> summary")]
        self.by_name = {"last": dspy.Predict("text -> verdict")}

    def forward(self, question: str) -> Any:
        answer = self.think(question=question).answer
        self.steps[0](answer=answer)
        self.by_name["last"](text=answer)
        return dspy.Prediction(answer=answer)


def test_nested_predictors_hear_what_they_could_have_said_and_never_none() -> None:
    lm = DummyLM(
        [
            {"reasoning": f"r{n}", "answer": f"a{n}", "summary": f"s{n}", "verdict": f"v{n}"}
            for n in range(20)
        ]
    )
    with dspy.context(lm=lm):
        session = Session(Thinking())
        session(question="q0")
        session(question="q1")
    prompts = [str(entry["messages"]) for entry in lm.history]
    assert not any("None" in prompt for prompt in prompts)
    think, steps, last = (sent(lm, which) for which in (-3, -2, -1))
    assert think[:2] == [
        ("user", "[[ ## question ## ]]\nq0"),
        ("assistant", "[[ ## reasoning ## ]]\nr0\n\n[[ ## answer ## ]]\na0"),
    ]
    assert steps[:2] == [
        ("user", "[[ ## answer ## ]]\na0"),
        ("assistant", "[[ ## summary ## ]]\ns1"),
    ]
    assert last[-1] == ("user", "[[ ## text ## ]]\na3")


def test_the_window_limits_what_is_heard_and_zero_means_nothing(lm: Any) -> None:
    one, none = Session(qa(), max_turns=1), Session(qa(), max_turns=0)
    for session in (one, none):
        for n in range(3):
            session(question=f"q{n}")
    assert [len(t.history_snapshot.messages) for t in one.turns] == [0, 1, 1]
    assert [len(t.history_snapshot.messages) for t in none.turns] == [0, 0, 0]
    assert one.turns[2].history_snapshot.messages[0]["question"] == "q1"


def test_fields_are_left_out_of_the_history_but_kept_with_the_turn() -> None:
    lm = dummy()
    with dspy.context(lm=lm):
        session = Session(dspy.Predict("question, context -> answer"), exclude_fields={"context"})
        session(question="q", context="long")
        assert session.session_history.messages == [{"question": "q", "answer": "a0"}]
        assert session.turns[0].inputs == {"question": "q", "context": "long"}
        only = Session(
            dspy.Predict("question, context -> answer"), history_input_fields={"question"}
        )
        only(question="q", context="long")
        assert only.session_history.messages == [{"question": "q", "answer": "a1"}]


def test_explicit_history_overrides_and_keeps_nothing_by_default(lm: Any) -> None:
    session = Session(qa())
    session(question="q0")
    session(question="r", history=dspy.History(messages=[{"question": "h", "answer": "g"}]))
    assert sent(lm)[0] == ("user", "[[ ## question ## ]]\nh")
    assert len(session) == 1


def test_explicit_history_can_be_used_and_kept_with_its_turn(lm: Any) -> None:
    session = Session(qa(), history_policy="use_if_provided")
    session(question="q0")
    session(question="r", history=dspy.History(messages=[{"question": "h", "answer": "g"}]))
    session(question="t")
    assert [t.history_snapshot.messages for t in session.turns] == [
        [],
        [{"question": "h", "answer": "g"}],
        [{"question": "q0", "answer": "a0"}, {"question": "r", "answer": "a1"}],
    ]


def test_explicit_history_can_replace_the_session(lm: Any) -> None:
    session = Session(qa(), history_policy="replace_session")
    session(question="q0")
    session(question="r", history=dspy.History(messages=[{"question": "h", "answer": "g"}]))
    assert [t.inputs["question"] for t in session.turns] == ["r"]
    assert session.session_history.messages == [
        {"question": "h", "answer": "g"},
        {"question": "r", "answer": "a1"},
    ]


class Failing(dspy.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gen = dspy.Predict("question -> answer")

    def forward(self, question: str) -> Any:
        if question == "fail":
            raise RuntimeError("no")
        return self.gen(question=question)


def test_a_failing_call_loses_nothing(lm: Any) -> None:
    session = Session(Failing(), history_policy="replace_session")
    session(question="q0")
    before = session.save_state()
    with pytest.raises(RuntimeError):
        session(question="fail", history=[{"question": "h", "answer": "g"}])
    assert session.save_state() == before


def test_turns_can_be_added_popped_undone_and_reset(lm: Any) -> None:
    session = Session(
        qa(), initial_history=dspy.History(messages=[{"question": "i", "answer": "j"}])
    )
    session.add_turn({"question": "a"}, {"answer": "b"})
    session(question="c")
    popped = session.pop_turn()
    assert popped is not None
    assert popped.history_snapshot.messages[-1] == {"question": "a", "answer": "b"}
    assert [t.inputs["question"] for t in session.undo(5)] == ["a"]
    assert session.pop_turn() is None
    session(question="d")
    session.reset()
    assert len(session) == 0
    assert session.session_history.messages == [{"question": "i", "answer": "j"}]


def test_a_turn_that_was_taken_back_still_knows_its_past(lm: Any) -> None:
    session = Session(qa())
    for n in range(3):
        session(question=f"q{n}")
    last, middle = session.undo(2)
    session(question="other")
    assert last.history_snapshot.messages[1]["question"] == "q1"
    assert middle.history_snapshot.messages == [{"question": "q0", "answer": "a0"}]


def test_inputs_are_out_of_reach_of_the_caller(lm: Any) -> None:
    session = Session(dspy.Predict("question, notes: list[str] -> answer"))
    notes = ["one"]
    session(question="q", notes=notes)
    notes.append("two")
    assert session.turns[0].inputs["notes"] == ["one"]


def test_a_fork_goes_on_by_itself_and_shares_the_past(lm: Any) -> None:
    session = Session(qa())
    session(question="q0")
    fork = session.fork()
    fork(question="q1")
    session(question="q2")
    assert [t.inputs["question"] for t in fork.turns] == ["q0", "q1"]
    assert [t.inputs["question"] for t in session.turns] == ["q0", "q2"]
    assert fork.state.log.session is session.state.log.session
    assert len(fork.state.log.session.branches) == 2


def test_saving_and_loading_changes_no_snapshot(lm: Any, tmp_path: Path) -> None:
    session = Session(qa(), max_turns=2, history_policy="use_if_provided")
    for n in range(3):
        session(question=f"q{n}")
    session(question="r", history=[{"question": "h", "answer": "g"}])
    session(question="s")
    session.score(lambda example, prediction: 0.5)
    session.save(tmp_path / "s.json")
    loaded = Session.load_from(tmp_path / "s.json", qa())
    assert loaded.turns == session.turns
    assert loaded.save_state() == session.save_state()
    wider = Session.load_from(tmp_path / "s.json", qa(), max_turns=None)
    assert [t.history_snapshot for t in wider.turns] == [t.history_snapshot for t in session.turns]


class Crash(BaseException):
    pass


@pytest.mark.parametrize("survived", [0, 1, 2, 3])
def test_a_crash_while_saving_leaves_the_old_file_or_the_new_one(
    survived: int, lm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, calls = tmp_path / "s.json", list[str]()
    session = Session(qa())
    session.save(path)
    session(question="q0")

    def crashing(name: str) -> Any:
        real = getattr(os, name)

        def call(*args: Any, **options: Any) -> None:
            if len(calls) == survived:
                raise Crash
            calls.append(name)
            real(*args, **options)

        return call

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, crashing(name))
    with contextlib.suppress(Crash):
        session.save(path)
    # The data is on the disk before its name is, and the name before `save` returns.
    assert calls == ["fsync", "replace", "fsync"][:survived]
    assert len(Session.load_from(path, qa())) == (survived > 1)


def test_only_so_many_turns_are_held_and_their_snapshots_stay(lm: Any, tmp_path: Path) -> None:
    session = Session(qa(), max_stored_turns=2)
    for n in range(5):
        session(question=f"q{n}")
    assert [t.index for t in session.turns] == [3, 4]
    assert [m["question"] for m in session.turns[0].history_snapshot.messages] == ["q1", "q2"]
    session.save(tmp_path / "s.json")
    loaded = Session.load_from(tmp_path / "s.json", qa())
    assert [t.history_snapshot for t in loaded.turns] == [t.history_snapshot for t in session.turns]


@pytest.mark.parametrize(
    "saved",
    [
        {
            "version": 1,
            "turns": [{"index": 0, "inputs": {"question": "q"}, "outputs": {"answer": "a"}}],
        },
        {
            "version": 2,
            "history_field": "history",
            "max_turns": None,
            "max_stored_turns": None,
            "copy_mode": "deep",
            "exclude_fields": ["history"],
            "history_input_fields": None,
            "history_policy": "override",
            "turns": [
                {"index": 0, "inputs": {"question": "q"}, "outputs": {"answer": "a"}, "score": None}
            ],
            "initial_history": None,
        },
    ],
)
def test_states_of_both_versions_are_read(saved: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps(saved))
    session = Session.load_from(tmp_path / "s.json", qa())
    assert session.session_history.messages == [{"question": "q", "answer": "a"}]


def test_a_saved_session_is_not_taken_for_the_state_of_a_program(lm: Any, tmp_path: Path) -> None:
    session = Session(qa())
    session(question="q")
    session.save(tmp_path / "s.json")
    with pytest.raises(ValidationError, match=r"Session\.load_from\(path, module\)"):
        session.load(tmp_path / "s.json")
    session.module.predictors()[0].demos = [dspy.Example(question="shown", answer="yes")]
    session.module.save(tmp_path / "p.json")
    fresh = Session(qa())
    fresh.module.load(tmp_path / "p.json")
    fresh(question="q")
    assert "shown" in str(lm.history[-1]["messages"])
    with pytest.raises(FileNotFoundError):
        session.load(tmp_path / "none.json")


@pytest.mark.parametrize("text", ["{}", '{"version": 3}', "[]", '{"version": 2, "turns": [{}]}'])
def test_a_file_that_is_no_saved_session_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(ValidationError):
        Session.load_from(tmp_path / "s.json", qa())


@pytest.mark.parametrize(
    "wrong",
    [
        {"history_policy": "ignore"},
        {"lock": "maybe"},
        {"copy_mode": "half"},
        {"on_metric_error": "log"},
        {"history_field": 5},
        {"history_field": ""},
        {"max_turns": -1},
        {"max_turns": "many"},
        {"max_stored_turns": 0},
        {"store": object()},
        {"key": "k"},
    ],
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Session(qa(), **wrong)


def test_what_is_no_module_or_no_history_is_refused(lm: Any) -> None:
    with pytest.raises(InvalidTypeError):
        Session(lambda question: question)
    with pytest.raises(InvalidTypeError):
        Session(qa())(question="q", history="earlier")


def test_a_strict_session_refuses_a_history_field_of_another_type() -> None:
    odd = dspy.Predict("history: str, question -> answer")
    with pytest.raises(ValidationError, match=r"dspy\.History"):
        Session(odd, strict_history_annotation=True)


def test_a_predictor_that_is_sent_no_history_is_warned_of(
    lm: Any, caplog: pytest.LogCaptureFixture
) -> None:
    odd = dspy.Predict("history: str, question -> answer")
    Session(odd)
    assert "is sent no history" in caplog.text
    caplog.clear()
    session = Session(odd, history_field="past")
    for n in range(2):
        session(question=f"q{n}", history="a text")
    assert len(sent(lm)) == 3
    assert "is sent no history" not in caplog.text


def test_a_session_in_a_store_goes_on_where_it_stopped(lm: Any, tmp_path: Path) -> None:
    with sennit.open(tmp_path / "a.db") as client:
        session = Session(qa(), store=client, key="bot", max_turns=2)
        for n in range(4):
            session(question=f"q{n}")
        session.undo()
        turns = session.turns
    with sennit.open(tmp_path / "a.db") as client:
        again = Session(qa(), store=client, key="bot", max_turns=2)
        assert again.turns == turns
        assert [t.history_snapshot for t in again.turns] == [t.history_snapshot for t in turns]
        again(question="more")
        words = [m.content.words for m in client.session("bot").default_branch.messages]
        assert words == ["q0", "a0", "q1", "a1", "q2", "a2", "more", "a4"]
        assert len(client.session("bot").to_examples()) == 4


def test_scores_are_labels_of_the_answers(lm: Any, tmp_path: Path) -> None:
    with sennit.open(tmp_path / "a.db") as client:
        session = Session(qa(), store=client, key="bot")
        session(question="q0")
        session(question="q1")
        calls: list[str] = []

        def good(example: Any, prediction: Any, trace: Any = None) -> float:
            calls.append(prediction.answer)
            return 1.0 if example.question == "q1" else 0.0

        assert session.score(good) == [0.0, 1.0]
        assert calls == ["a0", "a1"]
        assert [t.score for t in session.turns] == [0.0, 1.0]
        assert [e.question for e in session.to_examples(min_score=0.5)] == ["q1"]
        assert [e.answered for e in client.session("bot").to_examples(min_score=0.5)] == ["a1"]
    with sennit.open(tmp_path / "a.db") as client:
        again = Session(qa(), store=client, key="bot")
        assert [t.score for t in again.turns] == [0.0, 1.0]


def test_a_metric_that_fails_counts_as_zero_or_raises(lm: Any) -> None:
    def broken(example: Any, prediction: Any) -> float:
        raise KeyError("x")

    lenient, strict = Session(qa()), Session(qa(), on_metric_error="raise")
    for session in (lenient, strict):
        session(question="q")
    assert lenient.score(broken) == [0.0]
    with pytest.raises(KeyError):
        strict.score(broken)


def test_turns_are_compared_with_one_gold_or_each_with_its_own(lm: Any) -> None:
    session = Session(qa())
    for n in range(2):
        session(question=f"q{n}")

    def same(example: Any, prediction: Any) -> bool:
        return example.answer == prediction.answer

    first, second = (dspy.Example(answer=one) for one in ("a0", "other"))
    assert session.score(same, gold=first) == [1.0, 0.0]
    assert session.score(same, gold=[first, second]) == [1.0, 0.0]
    assert session.score(same, gold=[second, dspy.Example(answer="a1")]) == [0.0, 1.0]
    with pytest.raises(ValidationError, match="for each of the 2 turns, got 1"):
        session.score(same, gold=[first])


@pytest.mark.parametrize("wrong", [None, "text", [("question", "q")], 3])
def test_a_turn_that_is_no_dict_of_fields_is_refused(wrong: Any) -> None:
    session = Session(qa())
    with pytest.raises(InvalidTypeError, match="must be a dict such as"):
        session.add_turn(wrong, {"answer": "a"})
    with pytest.raises(InvalidTypeError, match="must be a dict such as"):
        session.add_turn({"question": "q"}, wrong)
    assert len(session) == 0


def test_examples_stand_alone_and_can_be_merged(lm: Any) -> None:
    one, two = Session(qa()), Session(qa())
    one(question="q0")
    one(question="q1")
    two(question="q2")
    first, second = one.to_examples()
    assert dict(first.inputs().items()) == {"question": "q0", "history": first.history}
    assert second.history == dspy.History(messages=[{"question": "q0", "answer": "a0"}])
    assert dspy.History(messages=[{"question": "q0", "answer": "a0"}]) == second.history
    assert second.labels().toDict() == {"answer": "a1"}
    bare = one.to_examples(include_history=False)[1]
    assert bare.inputs().toDict() == {"question": "q1"}
    assert len(Session.merge_examples(one, two)) == 3
    metric = lambda example, prediction: 0.0 if example.question == "q0" else 1.0  # noqa: E731
    assert len(one.to_examples(metric=metric, min_score=0.5)) == 1
    assert one.to_examples(metric=metric, min_score=0.5, strict_trajectory=True) == []


def test_an_output_named_like_an_input_does_not_take_its_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Refine(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step = dspy.Predict("text -> improved")

        def forward(self, text: str) -> Any:
            return dspy.Prediction(text=self.step(text=text).improved)

    lm = dummy(improved="better")
    with dspy.context(lm=lm):
        session = Session(Refine())
        session(text="raw0")
        session(text="raw1")
    assert sent(lm)[0] == ("user", "[[ ## text ## ]]\nraw0")
    assert [one.inputs().text for one in session.to_examples()] == ["raw0", "raw1"]
    assert "['text'] are not in the examples" in caplog.text
    assert session.score(lambda example, prediction: prediction.text == "better0") == [1.0, 0.0]


def test_an_input_is_told_as_chosen_where_an_output_has_its_name() -> None:
    class Refine(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step = dspy.Predict("text -> improved")

        def forward(self, text: str) -> Any:
            improved = self.step(text=text).improved
            return dspy.Prediction(text=improved, improved=improved)

    lm = dummy(improved="better")
    with dspy.context(lm=lm):
        session = Session(Refine(), history_input_fields=set())
        session(text="raw0")
        session(text="raw1")
    assert "raw0" not in str(sent(lm))
    assert sent(lm)[0] == ("assistant", "[[ ## improved ## ]]\nbetter0")


def test_a_program_that_returns_its_history_has_the_earlier_one_in_its_examples(lm: Any) -> None:
    class Telling(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step = dspy.Predict("question -> answer")

        def forward(self, question: str) -> Any:
            answer = self.step(question=question).answer
            told = dspy.History(messages=[{"question": question, "answer": answer}])
            return dspy.Prediction(answer=answer, history=told)

    session = Session(Telling())
    session(question="q0")
    (example,) = session.to_examples()
    assert example.inputs().history.messages == []
    assert example.labels().toDict() == {"answer": "a0"}


@pytest.mark.parametrize("name", ["base", "self", "args", "kwargs"])
def test_a_field_of_any_name_is_in_the_examples(name: str) -> None:
    session = Session(dspy.Predict(f"{name} -> answer"))
    session.add_turn({name: "EUR"}, {"answer": "1"})
    other = Session(dspy.Predict(f"question -> {name}"))
    other.add_turn({"question": "which?"}, {name: "EUR"})
    (asked,) = session.to_examples(include_history=False)
    (said,) = other.to_examples(include_history=False)
    assert (asked.inputs().toDict(), asked.labels().toDict()) == ({name: "EUR"}, {"answer": "1"})
    assert said.labels().toDict() == {name: "EUR"}
    assert other.score(lambda example, prediction: prediction[name] == example[name]) == [1.0]


def test_a_call_can_be_awaited(lm: Any) -> None:
    async def talk() -> Session:
        session = Session(qa(), lock="async")
        await session.acall(question="q0")
        await session.acall(question="q1")
        return session

    session = asyncio.run(talk())
    assert session.turns[1].history_snapshot.messages == [{"question": "q0", "answer": "a0"}]


def test_history_reaches_the_worker_threads_of_dspy_and_of_the_program() -> None:
    class Crowd(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gen = dspy.Predict("question -> answer")

        def forward(self, question: str) -> Any:
            pairs = [(self.gen, dspy.Example(question=question).with_inputs("question"))] * 2
            answers = dspy.Parallel(num_threads=2, disable_progress_bar=True)(pairs)
            lm = dspy.settings.lm
            with ThreadPoolExecutor(1) as pool:
                pool.submit(self._apart, lm, question).result()
            return answers[0]

        def _apart(self, lm: Any, question: str) -> None:
            with dspy.context(lm=lm):
                self.gen(question=question)

    lm = dummy()
    with dspy.context(lm=lm):
        session = Session(Crowd())
        session(question="q0")
        session(question="q1")
    for which in (-1, -2, -3):
        assert sent(lm, which)[0] == ("user", "[[ ## question ## ]]\nq0")


def test_a_thread_left_over_from_one_conversation_does_not_hear_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bob_speaks, left_over_done = threading.Event(), threading.Event()
    theirs = dummy()

    class Hasty(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gen = dspy.Predict("question -> answer")

        def forward(self, question: str) -> Any:
            if question == "slow":
                threading.Thread(target=self._late).start()
                raise TimeoutError
            if question == "next":
                bob_speaks.set()
                assert left_over_done.wait(10)
            return self.gen(question=question)

        def _late(self) -> None:
            assert bob_speaks.wait(10)
            with dspy.context(lm=theirs):
                self.gen(question="slow")
            left_over_done.set()

    session = Session(Hasty())
    ann, bob = SessionState(), SessionState()
    with dspy.context(lm=dummy()):
        with session.use_state(bob):
            session(question="secret of bob")
        with session.use_state(ann), pytest.raises(TimeoutError):
            session(question="slow")
        with session.use_state(bob):
            session(question="next")
    assert sent(theirs) == [("user", "[[ ## question ## ]]\nslow")]
    assert [turn.nodes for turn in bob.turns] == [{}, {}]
    assert "is sent no history" in caplog.text


class Around(dspy.Module):
    """A program with a session inside."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Session(dspy.Predict("question -> answer"))

    def forward(self, question: str) -> Any:
        return self.inner(question=question)


@pytest.mark.parametrize("wrapped", [Around, lambda: Session(qa())])
def test_a_session_inside_a_program_keeps_bound_conversations_apart(
    wrapped: Any, lm: Any, tmp_path: Path
) -> None:
    session = Session(wrapped())
    ann, bob = SessionState(), SessionState()
    with session.use_state(ann):
        session(question="secret of ann")
    with session.use_state(bob):
        session(question="bob")
    assert sent(lm) == [("user", "[[ ## question ## ]]\nbob")]
    ann.save(tmp_path / "ann.json")
    for again in (ann, SessionState.load(tmp_path / "ann.json")):
        with session.use_state(again):
            session(question="more")
        assert sent(lm)[0] == ("user", "[[ ## question ## ]]\nsecret of ann")
        assert len(sent(lm)) == 3
    session(question="mine")
    assert sent(lm) == [("user", "[[ ## question ## ]]\nmine")]


@pytest.mark.parametrize("mode", ["deep", "shallow"])
def test_a_session_inside_a_program_keeps_its_turns_apart_in_copies(mode: Any, lm: Any) -> None:
    program = Around()
    one, other = Session(program, copy_mode=mode), Session(program, copy_mode=mode)
    one(question="secret of ann")
    other(question="bob")
    assert sent(lm) == [("user", "[[ ## question ## ]]\nbob")]
    fork = one.fork()
    fork(question="on the fork")
    assert sent(lm)[0] == ("user", "[[ ## question ## ]]\nsecret of ann")
    one(question="more")
    assert "on the fork" not in str(sent(lm))
    assert len(program.inner) == 0


def test_the_turns_of_a_session_inside_a_program_are_kept_with_a_stored_state(
    lm: Any, tmp_path: Path
) -> None:
    for question in ("q0", "q1"):
        serving = Session(Around())
        with sennit.open(tmp_path / "a.db") as client:
            stored = Session(qa(), store=client, key="ann")
            with serving.use_state(stored.state):
                serving(question=question)
    assert sent(lm)[0] == ("user", "[[ ## question ## ]]\nq0")


def test_calls_from_threads_and_loops_exclude_each_other() -> None:
    inside, most = 0, 0
    guard = threading.Lock()

    class Slow(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gen = dspy.Predict("question -> answer")

        def enter(self) -> None:
            nonlocal inside, most
            with guard:
                inside += 1
                most = max(most, inside)

        def leave(self) -> None:
            nonlocal inside
            with guard:
                inside -= 1

        def forward(self, question: str) -> Any:
            self.enter()
            try:
                return self.gen(question=question)
            finally:
                self.leave()

        async def aforward(self, question: str) -> Any:
            self.enter()
            try:
                await asyncio.sleep(0)
                return await self.gen.acall(question=question)
            finally:
                self.leave()

    lm = dummy(200)
    with dspy.context(lm=lm):
        session = Session(Slow(), lock="thread")

        def sync(n: int) -> None:
            with dspy.context(lm=lm):
                session(question=f"s{n}")

        async def loop() -> None:
            await asyncio.gather(*(session.acall(question=f"l{n}") for n in range(20)))

        def run_loop() -> None:
            with dspy.context(lm=lm):
                asyncio.run(loop())

        with ThreadPoolExecutor(5) as pool:
            jobs = [pool.submit(sync, n) for n in range(20)] + [pool.submit(run_loop)]
            for job in jobs:
                job.result()
    assert most == 1
    assert len(session) == 40
    assert [len(t.history_snapshot.messages) for t in session.turns] == list(range(40))


def test_one_program_serves_many_conversations_at_once(lm: Any) -> None:
    session = Session(qa())
    ann, bob = SessionState(), SessionState()

    async def talk(state: SessionState, name: str) -> None:
        with session.use_state(state):
            for n in range(3):
                await session.acall(question=f"{name}{n}")

    async def both() -> None:
        await asyncio.gather(talk(ann, "ann"), talk(bob, "bob"))

    asyncio.run(both())
    assert [t.inputs["question"] for t in ann.turns] == ["ann0", "ann1", "ann2"]
    assert [m["question"] for m in bob.turns[2].history_snapshot.messages] == ["bob0", "bob1"]
    assert len(session) == 0


def test_on_turn_is_told_each_turn_and_its_failure_loses_none(
    lm: Any, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[int] = []

    def note(session: Session, turn: Any) -> None:
        told.append(turn.index)
        if turn.index == 1:
            raise RuntimeError("no")

    session = Session(qa(), on_turn=note)
    for n in range(3):
        session(question=f"q{n}")
    assert told == [0, 1, 2]
    assert len(session) == 3
    assert "on_turn failed" in caplog.text


def test_a_program_can_be_replaced_without_losing_turns(lm: Any) -> None:
    session = Session(qa())
    session(question="q0")
    session.update_module(dspy.ChainOfThought("question -> answer"))
    assert len(session) == 1
    assert [name for name, _ in session.named_predictors()] == ["module.predict"]


@pytest.mark.parametrize("mode", ["shallow", "none"])
def test_other_ways_to_copy_work_too(lm: Any, mode: Any) -> None:
    module = Agent()
    session = Session(module, copy_mode=mode)
    session(question="q0")
    session(question="q1")
    assert sent(lm)[0] == ("user", "[[ ## question ## ]]\nq0")
    assert (session.module is module) == (mode == "none")
    assert (type(module.gen) is dspy.Predict) == (mode == "shallow")


class Unsayable:
    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


class Unwritable(pydantic.BaseModel):
    @pydantic.model_serializer
    def written(self) -> Any:
        raise RuntimeError


def test_a_value_that_cannot_even_be_shown_loses_no_turn(tmp_path: Path) -> None:
    session = Session(dspy.Predict("question -> answer"))
    session.add_turn({"question": Unsayable()}, {"answer": Unwritable()})
    session.save(tmp_path / "s.json")
    [turn] = Session.load_from(tmp_path / "s.json", dspy.Predict("question -> answer")).turns
    assert turn.inputs == {"question": "<Unsayable>"}


@pytest.mark.parametrize("worth", [float("nan"), float("inf")])
def test_a_metric_that_says_no_number_one_can_keep_has_failed(worth: float) -> None:
    kinder = Session(dspy.Predict("question -> answer"))
    kinder.add_turn({"question": "q"}, {"answer": "a"})
    assert kinder.score(lambda example, prediction: worth) == [0.0]
    stricter = Session(dspy.Predict("question -> answer"), on_metric_error="raise")
    stricter.add_turn({"question": "q"}, {"answer": "a"})
    with pytest.raises(ValidationError, match="finite"):
        stricter.score(lambda example, prediction: worth)


@pytest.mark.parametrize(
    "state",
    [
        {"turns": 7},
        {"turns": [7]},
        {"exclude_fields": 7},
        {"history_field": 7},
        *(
            {"turns": [{"inputs": {}, "outputs": {}, name: one}]}
            for name, one in (
                ("index", "first"),
                ("score", "good"),
                ("nodes", [7]),
                ("call", 7),
                ("memories", 7),
            )
        ),
    ],
)
def test_a_saved_session_with_something_else_in_it_is_refused(state: Any, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps({"version": 2, **state}))
    with pytest.raises(ValidationError):
        Session.load_from(tmp_path / "s.json", dspy.Predict("question -> answer"))


def test_a_session_that_is_pickled_says_how_it_is_saved(lm: Any, tmp_path: Path) -> None:
    session = Session(dspy.Predict("question -> answer"))
    session(question="q")
    with pytest.raises(InvalidTypeError, match=r"session\.save\(path\).*Session\.load_from"):
        pickle.dumps(session)
    with pytest.raises(InvalidTypeError, match=r"state\.save\(path\).*SessionState\.load"):
        pickle.dumps(session.state)
    assert len(copy.copy(session).turns) == len(copy.deepcopy(session).turns) == 1
