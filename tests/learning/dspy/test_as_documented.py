"""The names, metrics and files of sessions as their documents and DSPy have them."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import dspy
import pytest
from dspy.utils import DummyLM

from sennit.errors import ValidationError
from sennit.learning.dspy import Session
from sennit.learning.dspy.options import MemoryPlan

if TYPE_CHECKING:
    from decimal import Decimal  # so nothing knows it at run time


@pytest.fixture
def lm() -> Any:
    made = DummyLM([{"reasoning": f"r{n}", "answer": f"a{n}"} for n in range(50)])
    with dspy.context(lm=made):
        yield made


def qa() -> Any:
    return dspy.Predict("question -> answer")


def test_all_options_can_be_read() -> None:
    def hook(session: Any, turn: Any) -> None:
        pass

    given: dict[str, Any] = {
        "history_field": "past",
        "max_turns": 3,
        "exclude_fields": {"context"},
        "history_input_fields": {"question"},
        "history_policy": "use_if_provided",
        "on_metric_error": "raise",
        "strict_history_annotation": True,
        "lock": "thread",
        "max_stored_turns": 7,
        "copy_mode": "shallow",
        "on_turn": hook,
    }
    session = Session(qa(), **given)
    assert {name: getattr(session, name) for name in given} == given
    assert {name: getattr(session.fork(), name) for name in given} == given
    plain = Session(qa(), input_field_override={"question"})
    assert plain.history_input_fields == {"question"}
    assert (plain.max_turns, plain.exclude_fields, plain.on_turn) == (None, set(), None)


def test_an_option_given_under_both_its_names_is_refused() -> None:
    with pytest.raises(ValidationError, match="two names for one option"):
        Session(qa(), history_input_fields={"a"}, input_field_override={"b"})


def test_a_session_and_a_turn_are_shown_in_one_line(lm: Any) -> None:
    session = Session(qa())
    assert repr(session) == "Session(Predict, turns=0, history_field='history')"
    session(question="q0")
    session(question="q1")
    assert repr(session) == "Session(Predict, turns=2, history_field='history')"
    assert repr(session.turns[1]) == (
        "Turn(index=1, inputs={'question': 'q1'}, outputs={'answer': 'a1'}, "
        "history_snapshot=History(messages=[{'question': 'q0', 'answer': 'a0'}]), score=None)"
    )


class Told(dspy.Module):
    """Takes its history by a name of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.gen = dspy.ChainOfThought("question -> answer")
        self.heard: list[Any] = []

    def forward(self, question: str, chat_hist: dspy.History | None = None) -> Any:
        self.heard.append(chat_hist)
        return self.gen(question=question, chat_hist=chat_hist)


class ToldOnlyAsync(dspy.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gen = qa()

    async def aforward(
        self, question: str, past: Annotated[dspy.History, "so far"], more: Decimal | None = None
    ) -> Any:
        return await self.gen.acall(question=question, past=past)


class Passing(dspy.Module):
    """Passes on whatever it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.gen = dspy.Predict("before: dspy.History, question -> answer")

    def forward(self, **inputs: Any) -> Any:
        return self.gen(**inputs)


@pytest.mark.parametrize(
    ("program", "field"),
    [
        (Told, "chat_hist"),
        (ToldOnlyAsync, "past"),
        (Passing, "before"),
        (lambda: dspy.ChainOfThought("log: dspy.History, question -> answer"), "log"),
        (lambda: dspy.Predict("log: dspy.History, question -> answer"), "log"),
    ],
)
def test_the_history_field_of_a_program_is_found_and_told_of(program: Any, field: str) -> None:
    with pytest.warns(UserWarning, match=f"'{field}', not 'history'") as caught:
        session = Session(program())
    assert [one.filename for one in caught] == [__file__]
    assert session.history_field == field
    named = Session(program(), history_field=field)  # no warning
    assert named.history_field == field
    assert set(named.module.predictors()[0].signature.input_fields) == {field, "question"}


def test_a_program_is_given_the_history_under_its_own_name(lm: Any) -> None:
    session: Any = Session(Told(), history_field="chat_hist")
    session(question="q0")
    session(question="q1")
    assert session.module.heard[1].messages == [
        {"question": "q0", "reasoning": "r0", "answer": "a0"}
    ]
    assert "q0" in str(lm.history[-1]["messages"])
    session(question="q2", chat_hist=dspy.History(messages=[{"question": "h", "answer": "g"}]))
    assert len(session) == 2  # "override" keeps nothing
    assert "[[ ## answer ## ]]\\ng" in str(lm.history[-1]["messages"])
    [_, second] = session.to_examples()
    assert set(second.inputs().keys()) == {"question", "chat_hist"}


def test_another_program_may_take_its_history_by_another_name(lm: Any) -> None:
    session = Session(qa())
    session(question="q0")
    with pytest.warns(UserWarning, match="chat_hist") as caught:
        session.update_module(new_module=Told())
    assert [one.filename for one in caught] == [__file__]
    session(question="q1")
    assert session.history_field == "chat_hist"
    assert "a0" in str(lm.history[-1]["messages"])
    session.update_module(qa())
    assert session.history_field == "history"


def with_trace(example: Any, pred: Any, trace: Any) -> bool:
    assert trace is None
    return example.answer == pred.answer


def with_default(example: Any, pred: Any, trace: Any = None) -> bool:
    return with_trace(example, pred, trace)


def without_trace(example: Any, pred: Any) -> bool:
    return example.answer == pred.answer


def of_five(gold: Any, pred: Any, trace: Any, pred_name: Any, pred_trace: Any) -> Any:
    assert (trace, pred_name, pred_trace) == (None, None, None)
    return dspy.Prediction(score=1.0, feedback="fine")


class Callable:
    def __call__(self, example: Any, pred: Any, trace: Any) -> float:
        return float(with_trace(example, pred, trace))


@pytest.mark.parametrize(
    "metric",
    [with_trace, with_default, without_trace, of_five, Callable(), lambda *all: len(all) == 3],
)
def test_metrics_are_called_as_dspy_calls_them(lm: Any, metric: Any) -> None:
    session = Session(qa(), on_metric_error="raise")
    session(question="q0")
    session(question="q1")
    assert session.score(metric) == [1.0, 1.0]
    other = session.fork()
    assert len(other.to_examples(metric=metric, min_score=0.5)) == 2
    assert [turn.score for turn in other.turns] == [1.0, 1.0]


def test_a_metric_that_fails_is_logged_with_its_traceback(
    lm: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(example: Any, pred: Any, trace: Any = None) -> float:
        raise KeyError("the label is missing")

    session = Session(qa())
    session(question="q0")
    assert session.score(broken) == [0.0]
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "'broken' failed on turn 0" in record.getMessage()
    assert "the label is missing" in caplog.text
    assert "Traceback" in caplog.text


TURN = {"index": 0, "inputs": {"question": "q", "context": "c"}, "outputs": {"answer": "a"}}


@pytest.mark.parametrize("version", [{"version": 1}, {}])
def test_files_of_version_1_keep_their_filters(version: dict[str, int], tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    filters = {"input_field_override": ["question"], "exclude_fields": ["history"]}
    path.write_text(json.dumps({**version, **filters, "turns": [TURN, TURN]}))
    session = Session.load_from(path, qa())
    assert session.session_history.messages == [{"question": "q", "answer": "a"}] * 2
    assert session.turns[1].history_snapshot.messages == [{"question": "q", "answer": "a"}]
    assert session.history_input_fields == {"question"}
    session.save(path)
    assert Session.load_from(path, qa()).history_input_fields == {"question"}
    instead = Session.load_from(path, qa(), input_field_override={"context"})
    assert instead.session_history.messages[0] == {"context": "c", "answer": "a"}


class Pair(dspy.Module):
    def __init__(self) -> None:
        super().__init__()
        self.plan = dspy.Predict("question -> answer")
        self.act = dspy.Predict("answer -> result")

    def forward(self, question: str) -> Any:
        return self.plan(question=question)


def test_the_nodes_of_a_public_file_of_version_2_are_read(
    lm: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    turn = {"index": 0, "inputs": {"question": "q"}, "outputs": {"answer": "kept"}, "score": None}
    node = {"version": 1, "turns": [turn], "initial_history": None, "l2_memory": "likes ropes"}
    inner = {**node, "l2_memory": "inside"}
    saved = {
        "version": 2,
        "turns": [turn],
        "l2_memory": "of the whole",
        "node_states": {"plan": {**node, "node_states": {"gone": inner}}},
    }
    path = tmp_path / "s.json"
    path.write_text(json.dumps(saved))
    session = Session.load_from(path, Pair(), memory=MemoryPlan())
    assert session.state.l2_memory == "of the whole"
    assert "['plan.gone']" in caplog.text
    session(question="next")
    sent = str(lm.history[-1]["messages"])
    assert "kept" in sent
    assert "likes ropes" in sent
    session.save(path)
    nodes = json.loads(path.read_text())["nodes"]
    assert nodes["plan.gone"]["memory"] == "inside"
