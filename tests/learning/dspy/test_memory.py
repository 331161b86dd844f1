"""Predictors with a past of their own, and looking around from inside a program."""

from __future__ import annotations

import threading
from contextvars import copy_context
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.utils import DummyLM
from dspy.utils.callback import BaseCallback

import sennit
from sennit.errors import SennitError, ValidationError
from sennit.learning.dspy import (
    Session,
    get_child_l1_ledger,
    get_current_history,
    get_execution_trace,
    get_node_memory,
    get_outer_history,
    with_memory,
)
from sennit.learning.export import ExportOptions
from tests.torture.ground import opened

pytest_plugins = ("tests.durable",)


class Pair(dspy.Module):
    """Plans, then acts."""

    def __init__(self) -> None:
        super().__init__()
        self.plan = dspy.Predict("goal -> step")
        self.act = dspy.Predict("step -> result")
        self.seen: list[Any] = []

    def forward(self, goal: str) -> Any:
        step = self.plan(goal=goal).step
        self.seen.append((get_outer_history(), get_child_l1_ledger("plan"), get_execution_trace()))
        return self.act(step=step)


def dummy() -> DummyLM:
    return DummyLM([{"step": f"s{n}", "result": f"r{n}"} for n in range(60)])


def heard(lm: Any, which: int) -> list[str]:
    """The fields and values of the turns before the last, in order."""
    messages = lm.history[which]["messages"][1:-1]
    return [m["content"].split(" ## ]]\n")[1].split("\n")[0] for m in messages]


def run(*goals: str, **options: Any) -> tuple[Session, DummyLM]:
    lm = dummy()
    with dspy.context(lm=lm):
        session = with_memory(Pair(), **options)
        for goal in goals:
            session(goal=goal)
    return session, lm


def test_each_predictor_hears_its_own_past() -> None:
    _, lm = run("one", "two", "three")
    assert heard(lm, -2) == ["one", "s0", "two", "s2"]
    assert heard(lm, -1) == ["s0", "r1", "s2", "r3"]


def test_a_shared_past_holds_what_fits() -> None:
    session, lm = run("one", "two", isolation="shared")
    assert heard(lm, -2) == ["one", "s0"]
    assert len(session.state.nodes.all()["*"].turns) == 4


def test_a_stateless_predictor_hears_nothing_and_an_episode_ends_with_its_call() -> None:
    _, lm = run("one", "two", lifespan="stateless")
    assert heard(lm, -1) == heard(lm, -2) == []
    session, lm = run("one", "two", lifespan="episodic")
    assert heard(lm, -1) == heard(lm, -2) == []
    assert [len(n.turns) for n in session.state.nodes.all().values()] == [0, 0]
    assert len(session) == 2


def test_inside_an_episode_a_predictor_hears_its_earlier_calls() -> None:
    class Twice(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.plan = dspy.Predict("goal -> step")

        def forward(self, goal: str) -> Any:
            self.plan(goal=goal)
            return self.plan(goal=f"{goal} again")

    lm = dummy()
    with dspy.context(lm=lm):
        session = with_memory(Twice(), lifespan="episodic")
        session(goal="one")
        session(goal="two")
    assert heard(lm, -1) == ["two", "s2"]


def test_a_consolidator_folds_an_episode_into_what_is_given_with_the_instructions() -> None:
    told: list[tuple[str, int, str]] = []

    def fold(memory: str, episode: Any, node: str) -> str:
        told.append((memory, len(episode), node))
        return f"{memory}{episode[-1].outputs[next(iter(episode[-1].outputs))]};"

    session, lm = run("one", "two", lifespan="episodic", consolidator=fold)
    assert told == [("", 1, "plan"), ("", 1, "act"), ("s0;", 1, "plan"), ("r1;", 1, "act")]
    prompt = " ".join(lm.history[-2]["messages"][0]["content"].split())
    assert "What you remember: s0;" in prompt
    assert session.state.nodes.of("act").memory == "r1;r3;"


def test_a_program_can_look_around_while_it_runs() -> None:
    session, _ = run("one", "two")
    outer, ledger, trace = session.module.seen[-1]
    assert outer.messages == [{"goal": "one", "result": "r1"}]
    assert ledger == (
        "- turn: 0\n  inputs:\n    goal: one\n  outputs:\n    step: s0\n"
        "- turn: 1\n  inputs:\n    goal: two\n  outputs:\n    step: s2"
    )
    assert trace == (
        "root: 1 turn, memory 0 characters\n"
        "plan: 2 turns, memory 0 characters\n"
        "act: 1 turn, memory 0 characters\n"
        "active: root"
    )


class Watching(BaseCallback):
    """Looks around whenever a model is asked."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        self.seen.append((get_current_history().messages, get_node_memory(), get_execution_trace()))


def test_whatever_runs_inside_a_predictor_sees_its_node() -> None:
    watching = Watching()
    with dspy.context(lm=dummy(), callbacks=[watching]):
        session = with_memory(Pair(), consolidator=lambda memory, episode, node: f"about {node}")
        session(goal="one")
        session(goal="two")
    history, memory, trace = watching.seen[-1]
    assert history == [{"step": "s0", "result": "r1"}]
    assert memory == "about act"
    assert trace.endswith("active: root > act")


def test_nobody_can_look_around_where_nothing_runs() -> None:
    for look in (get_current_history, get_outer_history, get_node_memory):
        with pytest.raises(SennitError, match="No session is running"):
            look()
    assert (get_execution_trace(), get_child_l1_ledger("plan")) == ("", "")


def test_nodes_are_kept_in_a_store_and_forked_with_their_session(tmp_path: Path) -> None:
    lm = dummy()
    with dspy.context(lm=lm), sennit.open(tmp_path / "a.db") as client:
        session = with_memory(
            Pair(), store=client, key="bot", consolidator=lambda memory, episode, node: node
        )
        session(goal="one")
    with dspy.context(lm=lm), sennit.open(tmp_path / "a.db") as client:
        again = with_memory(Pair(), store=client, key="bot")
        again(goal="two")
        assert heard(lm, -1) == ["s0", "r1"]
        assert again.state.nodes.of("plan").memory == "plan"
        fork = again.fork()
        fork(goal="three")
        again(goal="four")
        assert heard(lm, -1) == ["s0", "r1", "s2", "r3"]
        assert heard(lm, -3) == ["s0", "r1", "s2", "r3"]


def test_words_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValidationError, match="isolation"):
        with_memory(Pair(), isolation="mine")  # pyright: ignore
    with pytest.raises(ValidationError, match="lifespan"):
        with_memory(Pair(), lifespan="long")  # pyright: ignore


def said(session: Session, node: str) -> list[str]:
    """What a node answered, turn by turn."""
    return [next(iter(t.outputs.values())) for t in session.state.nodes.of(node).turns]


@pytest.mark.parametrize("isolation", ["isolated", "shared"])
def test_undo_takes_back_what_nodes_said_in_the_turn(isolation: Any, tmp_path: Path) -> None:
    lm = dummy()
    with dspy.context(lm=lm), sennit.open(tmp_path / "a.db") as client:
        session = with_memory(Pair(), isolation=isolation, store=client, key="bot")
        for goal in ("one", "two", "three"):
            session(goal=goal)
        session.undo(2)
        name = "*" if isolation == "shared" else "plan"
        assert said(session, name) == (["s0", "r1"] if isolation == "shared" else ["s0"])
        session(goal="four")
        assert heard(lm, -2) == ["one", "s0"]
    with dspy.context(lm=lm), sennit.open(tmp_path / "a.db") as client:
        again = Session(Pair(), store=client, key="bot")  # it need not have nodes itself
        again.undo()
        assert len(again.state.nodes.of(name).turns) == (2 if isolation == "shared" else 1)


def counting(memory: str, episode: Any, node: str) -> str:
    return f"{memory}{len(episode)}"


def test_undo_gives_nodes_back_what_they_remembered() -> None:
    session, lm = run("one", "two", "three", consolidator=counting)
    assert session.state.nodes.of("plan").memory == "111"
    session.undo(2)
    assert session.state.nodes.of("plan").memory == "1"
    with dspy.context(lm=lm):
        session(goal="four")
    assert "What you remember:" in lm.history[-2]["messages"][0]["content"]


@pytest.mark.parametrize("way", ["fork", "copy", "file"])
def test_nodes_undo_with_a_session_that_was_forked_copied_or_loaded(
    way: str, tmp_path: Path
) -> None:
    session, _ = run("one", "two", consolidator=counting)
    if way == "fork":
        other = session.fork()
    elif way == "copy":
        other = session.deepcopy()
    else:
        session.save(tmp_path / "s.json")
        other = Session.load_from(tmp_path / "s.json", Pair())
    other.undo()
    assert said(other, "plan") == ["s0"]
    assert other.state.nodes.of("plan").memory == "1"
    assert said(session, "plan") == ["s0", "s2"]
    assert session.state.nodes.of("plan").memory == "11"


@pytest.mark.parametrize("stored", [False, True])
def test_a_call_that_fails_leaves_nodes_as_they_were(stored: bool, tmp_path: Path) -> None:
    class Failing(Pair):
        def forward(self, goal: str) -> Any:
            result = super().forward(goal)
            if goal == "fail":
                raise RuntimeError(goal)
            return result

    lm = dummy()
    with dspy.context(lm=lm), sennit.open(tmp_path / "a.db") as client:
        where: dict[str, Any] = {"store": client, "key": "bot"} if stored else {}
        session = with_memory(Failing(), consolidator=counting, **where)
        session(goal="one")
        before = session.save_state()
        with pytest.raises(RuntimeError, match="fail"):
            session(goal="fail")
        assert session.save_state() == before
        assert said(session, "plan") == ["s0"]
        session(goal="two")
        assert heard(lm, -2) == ["one", "s0"]


def test_a_consolidator_that_fails_is_a_warning_and_the_turn_is_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def failing(memory: str, episode: Any, node: str) -> str:
        raise ZeroDivisionError

    session, _ = run("one", consolidator=failing)
    assert len(session) == 1
    assert said(session, "plan") == ["s0"]
    assert session.state.nodes.of("plan").memory == ""
    assert "consolidator" in caplog.text


def test_turns_of_a_call_are_taken_out_from_between_those_of_others(tmp_path: Path) -> None:
    """Calls at the same time: what one said may stand between what another said."""
    with sennit.open(tmp_path / "a.db") as client:
        session = with_memory(Pair(), store=client, key="bot")
        log = session.state.nodes.of("plan")
        for call in "abab":
            log.add({"goal": f"g{len(log.turns)}"}, {"step": call}, call=call)
        snapshots = [turn.history_snapshot.messages for turn in log.turns]
        log.remove_calls({"a"})
        assert said(session, "plan") == ["b", "b"]
        assert [t.history_snapshot.messages for t in log.turns] == [snapshots[1], snapshots[3]]
        assert [turn.index for turn in log.turns] == [0, 1]
    with sennit.open(tmp_path / "a.db") as client:
        again = with_memory(Pair(), store=client, key="bot")
        turns = again.state.nodes.of("plan").turns
        assert [t.history_snapshot.messages for t in turns] == [snapshots[1], snapshots[3]]


def test_a_reset_clears_nodes_that_only_the_store_knows_of(tmp_path: Path) -> None:
    with dspy.context(lm=dummy()), sennit.open(tmp_path / "a.db") as client:
        session = with_memory(Pair(), store=client, key="bot", consolidator=counting)
        session(goal="one")
        chat = client.session("bot")
        mine = chat.create_branch(name="main/mine")
        chat.add_message("user", "not a node", branches=mine)
    with sennit.open(tmp_path / "a.db") as client:
        again = with_memory(Pair(), store=client, key="bot")
        assert set(again.save_state()["nodes"]) == {"plan", "act"}
        again.reset()
        assert (said(again, "plan"), again.state.nodes.of("plan").memory) == ([], "")
        assert len(client.session("bot").get_branch("main/mine")) == 1


@pytest.mark.parametrize("isolation", ["isolated", "shared"])
def test_predictors_of_a_loaded_session_hear_their_own_past(isolation: Any, tmp_path: Path) -> None:
    session, lm = run("one", "two", isolation=isolation)
    session.save(tmp_path / "s.json")
    with dspy.context(lm=lm):
        session(goal="three")
        Session.load_from(tmp_path / "s.json", Pair())(goal="three")
    assert heard(lm, -4)
    assert [len(heard(lm, -2)), len(heard(lm, -1))] == [len(heard(lm, -4)), len(heard(lm, -3))]


def test_a_saved_session_with_an_unknown_kind_of_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text('{"version": 2, "turns": [], "memory": {"isolation": "all", "lifespan": "x"}}')
    with pytest.raises(ValidationError, match="isolation must be one of"):
        Session.load_from(path, Pair())


@pytest.mark.parametrize("format", ["openai", "dspy"])
def test_training_data_has_the_turns_of_a_program_and_not_those_of_its_predictors_too(
    tmp_path: Path, format: str
) -> None:
    lm = dummy()
    with dspy.context(lm=lm), sennit.open(tmp_path / "a.db") as client:
        session = with_memory(Pair(), store=client, key="bot")
        session(goal="one")
        session.fork()(goal="two")
        kept = client.session("bot")
        asked = [(example.asked, example.answered) for example in kept.to_examples()]
        assert asked == [("one", "r1"), ("two", "r3")]
        assert [one.answered for one in kept.to_examples("main/plan")] == ["s0"]
        client.export_training(tmp_path / "train.jsonl", ExportOptions(format=format))
    rows = (tmp_path / "train.jsonl").read_text()
    assert "s0" not in rows
    assert "r3" in rows


class Answer(dspy.Module):
    """Asks one predictor; what it says to "fail" is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.say = dspy.Predict("question -> answer")

    def forward(self, question: str) -> Any:
        said = self.say(question=question)
        if question == "fail":
            raise RuntimeError(question)
        return said


def answering(**options: Any) -> Session:
    return with_memory(Answer(), **options)


def answers() -> DummyLM:
    return DummyLM([{"answer": f"a{n}"} for n in range(200)])


GIVEN = [{"question": "given", "answer": "g"}]


def test_an_initial_history_is_heard_before_the_past_of_each_predictor() -> None:
    with dspy.context(lm=(lm := answers())):
        session = answering(initial_history=GIVEN, max_turns=2)
        for question in ("one", "two", "three"):
            session(question=question)
    assert heard(lm, -3) == ["given", "g"]
    assert heard(lm, -2) == ["given", "g", "one", "a0"]
    assert heard(lm, -1) == ["one", "a0", "two", "a1"]


def test_an_explicit_history_is_heard_by_predictors_with_a_past_of_their_own() -> None:
    with dspy.context(lm=(lm := answers())):
        session = answering(history_policy="use_if_provided")
        session(question="one")
        session(question="two", history=GIVEN)
        session(question="three")
    assert heard(lm, -2) == ["given", "g"]
    assert heard(lm, -1) == ["one", "a0", "two", "a1"]


@pytest.mark.parametrize("isolation", ["isolated", "shared"])
def test_a_history_that_replaces_the_session_replaces_the_past_of_its_predictors(
    isolation: Any,
) -> None:
    with dspy.context(lm=(lm := answers())):
        session = answering(
            isolation=isolation,
            history_policy="replace_session",
            consolidator=lambda known, turns, name: f"{known}+{turns[-1].inputs['question']}",
        )
        session(question="one")
        session(question="two", history=GIVEN)
        assert "+one" not in lm.history[-1]["messages"][0]["content"]
        session(question="three")
    assert heard(lm, -2) == ["given", "g"]
    assert heard(lm, -1) == ["given", "g", "two", "a1"]
    assert "+two" in lm.history[-1]["messages"][0]["content"]
    assert "+one" not in lm.history[-1]["messages"][0]["content"]
    session.undo(2)
    assert [node.memory for node in session.state.nodes.all().values()] == [""]


def test_a_replacement_that_fails_leaves_predictors_what_they_had() -> None:
    with dspy.context(lm=(lm := answers())):
        session = answering(
            history_policy="replace_session", consolidator=lambda known, turns, name: f"{known}+"
        )
        session(question="one")
        with pytest.raises(RuntimeError, match="fail"):
            session(question="fail", history=GIVEN)
        session(question="three")
    assert heard(lm, -1) == ["one", "a0"]
    assert lm.history[-1]["messages"][0]["content"].endswith("+")


@pytest.mark.parametrize("lifespan", ["episodic", "persistent"])
def test_predictors_of_several_processes_on_one_key_are_not_in_each_others_way(
    lifespan: Any, address: str
) -> None:
    failed: list[Exception] = []

    def speak(name: str) -> None:
        with opened(address) as client:
            session = answering(store=client, key="bot", lifespan=lifespan, consolidator=longer)
            for n in range(8):
                try:
                    session(question=f"{name}{n}")
                except Exception as error:
                    failed.append(error)

    def longer(known: str, turns: Any, name: str) -> str:
        return known + "x" * len(turns)

    with dspy.context(lm=answers()):
        threads = [
            threading.Thread(target=copy_context().run, args=(speak, name)) for name in "abc"
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []
    with opened(address) as client:
        session = answering(store=client, key="bot", lifespan=lifespan)
        node = session.state.nodes.of("say")
        assert len(session) == 24
        assert len(node.turns) == (24 if lifespan == "persistent" else 0)
        assert node.memory == "x" * 24


def test_a_fork_and_a_file_hold_what_another_process_said_and_learnt(
    address: str, tmp_path: Path
) -> None:
    def longer(known: str, turns: Any, name: str) -> str:
        return known + "x"

    with dspy.context(lm=(lm := answers())), opened(address) as one, opened(address) as other:
        session = answering(store=one, key="bot", consolidator=longer)
        session(question="one")
        answering(store=other, key="bot", consolidator=longer)(question="two")
        session.save(tmp_path / "s.json")
        session.fork()(question="three")
        Session.load_from(tmp_path / "s.json", Answer())(question="three")
    assert heard(lm, -1) == heard(lm, -2) == ["one", "a0", "two", "a1"]
    assert lm.history[-1]["messages"][0]["content"].endswith("xx")
