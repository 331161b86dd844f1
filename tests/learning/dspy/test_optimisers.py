"""Optimisers compile a session like any program: what they find really reaches the prompt."""

from __future__ import annotations

from typing import Any

import dspy
import numpy as np
import pytest
from dspy.teleprompt import (
    GEPA,
    BootstrapFewShot,
    BootstrapFewShotWithRandomSearch,
    KNNFewShot,
    LabeledFewShot,
    MIPROv2,
)
from dspy.utils import DummyLM

from sennit.learning.dspy import Session


class QA(dspy.Signature):
    """Answer the question."""

    question: str = dspy.InputField()
    answer: str = dspy.OutputField()


class Agent(dspy.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gen = dspy.Predict(QA)

    def forward(self, question: str) -> Any:
        return self.gen(question=question)


TRAINSET = [
    dspy.Example(question=f"train{n}", answer=f"gold{n}").with_inputs("question") for n in range(4)
]


def taught(example: Any, prediction: Any, trace: Any = None) -> float:
    """Likes an answer that was given after something was demonstrated."""
    return 1.0 if trace is not None else min(demonstrated(dspy.settings.lm), 2) / 2


def dummy(count: int = 400) -> DummyLM:
    return DummyLM([{"answer": f"a{n}"} for n in range(count)])


def optimisers() -> dict[str, Any]:
    return {
        "labeled": lambda program: LabeledFewShot(k=2).compile(program, trainset=TRAINSET),
        "bootstrap": lambda program: BootstrapFewShot(
            metric=taught, max_bootstrapped_demos=2, max_labeled_demos=2
        ).compile(program, trainset=TRAINSET),
        "random search": lambda program: BootstrapFewShotWithRandomSearch(
            metric=taught,
            max_bootstrapped_demos=1,
            max_labeled_demos=1,
            num_candidate_programs=2,
            num_threads=1,
        ).compile(program, trainset=TRAINSET),
    }


def demonstrated(lm: Any) -> int:
    """How many questions of the training set stand before the one that is asked."""
    messages = lm.history[-1]["messages"][:-1]
    return sum("train" in str(m["content"]) for m in messages if m["role"] == "user")


@pytest.mark.parametrize("name", sorted(optimisers()))
@pytest.mark.parametrize("make", [lambda: dspy.Predict(QA), Agent], ids=["predictor", "program"])
def test_compiled_demonstrations_are_in_the_prompt_as_for_a_plain_module(
    name: str, make: Any
) -> None:
    plain_lm, lm = dummy(), dummy()
    with dspy.context(lm=plain_lm):
        plain = optimisers()[name](make())
        plain(question="now")
    with dspy.context(lm=lm):
        session = Session(make())
        session(question="before")
        compiled = optimisers()[name](session)
        assert isinstance(compiled, Session)
        compiled(question="now")
    assert demonstrated(lm) == demonstrated(plain_lm) > 0
    assert [turn.inputs["question"] for turn in compiled.turns] == ["now"]
    assert len(session) == 1


PIRATE = "Answer like a pirate."


def proposing(adapter: Any = None) -> Any:
    """Answers whatever an optimiser asks on the way to new instructions."""
    asked = ("observations", "summary", "program_description", "module_description")
    proposal = {"proposed_instruction": PIRATE, "new_instruction": PIRATE}
    answers = [{"answer": f"a{n}", **dict.fromkeys(asked, "x"), **proposal} for n in range(400)]
    return DummyLM(answers, adapter=adapter)


def instructed(lm: Any) -> bool:
    return PIRATE in lm.history[-1]["messages"][0]["content"]


def like_a_pirate(example: Any, prediction: Any, trace: Any = None) -> float:
    return 1.0 if instructed(dspy.settings.lm) else 0.2


def by_mipro(program: Any) -> Any:
    lm = dspy.settings.lm
    return MIPROv2(
        metric=like_a_pirate,
        prompt_model=lm,
        task_model=lm,
        auto=None,
        num_candidates=3,
        max_bootstrapped_demos=1,
        max_labeled_demos=1,
        num_threads=1,
    ).compile(program, trainset=TRAINSET[:2], valset=TRAINSET[2:], num_trials=4, minibatch=False)


def by_gepa(program: Any) -> Any:
    def judged(
        gold: Any, pred: Any, trace: Any = None, pred_name: Any = None, pred_trace: Any = None
    ) -> Any:
        return dspy.Prediction(score=like_a_pirate(gold, pred), feedback=PIRATE)

    return GEPA(
        metric=judged,
        reflection_lm=proposing(dspy.JSONAdapter()),
        max_metric_calls=30,
        num_threads=1,
    ).compile(program, trainset=TRAINSET[:2], valset=TRAINSET[2:])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("optimise", [by_mipro, by_gepa])
def test_compiled_instructions_are_in_the_prompt_as_for_a_plain_module(optimise: Any) -> None:
    plain_lm, lm = proposing(), proposing()
    with dspy.context(lm=plain_lm):
        plain = optimise(Agent())
        plain(question="now")
    with dspy.context(lm=lm):
        session = Session(Agent())
        session(question="before")
        compiled = optimise(session)
        assert isinstance(compiled, Session)
        before = len(compiled)
        compiled(question="now")
        assert instructed(lm)
        assert instructed(plain_lm)
        assert demonstrated(lm) == demonstrated(plain_lm)
        compiled.fork()(question="on a fork")
        compiled.deepcopy()(question="on a copy")
        assert instructed(lm)
    assert len(compiled) == before + 1
    assert [turn.inputs["question"] for turn in session.turns] == ["before"]


def test_instructions_that_an_optimiser_finds_are_in_the_prompt() -> None:
    lm = dummy()
    with dspy.context(lm=lm):
        session = Session(Agent())
        for predictor in session.predictors():
            predictor.signature = predictor.signature.with_instructions("Answer like a pirate.")
        session(question="q")
    assert "Answer like a pirate." in lm.history[-1]["messages"][0]["content"]


def test_a_fork_of_a_compiled_session_keeps_its_demonstrations() -> None:
    lm = dummy()
    with dspy.context(lm=lm):
        compiled = LabeledFewShot(k=2).compile(Session(Agent()), trainset=TRAINSET)
        compiled(question="one")
        compiled.fork()(question="two")
    assert demonstrated(lm) == 2
    assert any("one" in str(m["content"]) for m in lm.history[-1]["messages"])


def test_turns_become_a_trainset_with_their_histories() -> None:
    lm = dummy()
    with dspy.context(lm=lm):
        session = Session(dspy.Predict(QA))
        for n in range(3):
            session(question=f"train{n}")
        trainset = session.to_trainset()
        compiled = BootstrapFewShot(metric=taught, max_bootstrapped_demos=2).compile(
            session, trainset=trainset
        )
        assert len(compiled) == 0
        compiled(question="now")
    assert demonstrated(lm) > 0
    assert len(session) == 3


def test_a_compiled_program_can_be_put_into_a_session_that_goes_on() -> None:
    lm = dummy()
    with dspy.context(lm=lm):
        session = Session(Agent())
        session(question="before")
        session.update_module(LabeledFewShot(k=2).compile(session, trainset=TRAINSET))
        session(question="now")
    assert demonstrated(lm) == 2
    assert len(session) == 2


def test_the_state_of_a_compiled_session_is_that_of_its_predictors(tmp_path: Any) -> None:
    lm = dummy()
    with dspy.context(lm=lm):
        compiled = LabeledFewShot(k=2).compile(Session(Agent()), trainset=TRAINSET)
        fresh = Session(Agent())
        fresh.load_state(compiled.dump_state())
        fresh(question="now")
    assert demonstrated(lm) == 2


def test_a_program_that_asks_predictors_out_of_reach_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    vectorizer = dspy.Embedder(lambda texts: np.ones((len(texts), 2), dtype=np.float32))
    program = KNNFewShot(k=1, trainset=TRAINSET, vectorizer=vectorizer).compile(Agent())
    Session(program)
    assert "Agent has `forward` set on the instance, as KNNFewShot does" in caplog.text


def test_examples_that_an_optimiser_tries_do_not_hear_each_other() -> None:
    lm = dummy()
    with dspy.context(lm=lm):
        session = Session(Agent())
        optimisers()["random search"](session)
    tried = [entry["messages"] for entry in lm.history]
    assert any("train3" in str(messages[-1]) for messages in tried)
    bare = [messages for messages in tried if len(messages) == 2]
    assert len(bare) >= 4


def test_a_copy_that_no_optimiser_made_keeps_its_turns() -> None:
    with dspy.context(lm=dummy()):
        session = Session(Agent())
        session(question="one")
        copy = session.deepcopy()
        copy(question="two")
    assert (len(session), len(copy)) == (1, 2)
