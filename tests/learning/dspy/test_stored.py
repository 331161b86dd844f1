"""Sessions in a store: others write on the same branch, and writes fail."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

import dspy
import pydantic
import pytest
from dspy.utils import DummyLM

import sennit
from sennit import AssistantResponseContent, InstructionContent, Message
from sennit.errors import SennitError, ValidationError
from sennit.learning import ExportOptions
from sennit.learning.dspy import Session, SessionState, with_memory
from sennit.testing import faults
from tests.torture.ground import opened

pytest_plugins = ("tests.durable", "tests.on_loop")


class Echo(dspy.Module):
    """Answers without a model; may do something first."""

    def __init__(self) -> None:
        super().__init__()
        self.gen = dspy.Predict("question -> answer")
        self.first: Any = None

    def forward(self, question: str) -> Any:
        if self.first is not None:
            self.first(question)
        return dspy.Prediction(answer=f"re {question}")


def asked(session: Any) -> list[str]:
    return [turn.inputs["question"] for turn in session.turns]


def heard(session: Any) -> list[list[str]]:
    return [[m["question"] for m in t.history_snapshot.messages] for t in session.turns]


@pytest.fixture
def two(address: str) -> Any:
    """One conversation, opened twice as two processes would."""
    with opened(address) as one, opened(address) as other:
        yield (
            Session(Echo(), store=one, key="bot", copy_mode="none"),
            Session(Echo(), store=other, key="bot", copy_mode="none"),
        )


def test_what_another_process_said_is_heard_by_the_next_call(two: Any) -> None:
    one, other = two
    one(question="a")
    other(question="b")
    one(question="c")
    assert asked(one) == ["a", "b", "c"]
    assert heard(one) == [[], ["a"], ["a", "b"]]
    assert [turn.index for turn in one.turns] == [0, 1, 2]


def test_a_turn_added_by_hand_has_what_another_process_said_in_its_past(two: Any) -> None:
    one, other = two
    one(question="first")
    turn = other.add_turn({"question": "second"}, {"answer": "by hand"})
    assert [told["question"] for told in turn.history_snapshot.messages] == ["first"]


def test_a_turn_that_another_process_added_during_a_call_is_not_in_its_past(
    two: Any, address: str, tmp_path: Path
) -> None:
    one, other = two
    one(question="a")
    one.module.first = lambda question: other(question="between")
    one(question="b")
    assert asked(one) == ["a", "between", "b"]
    assert heard(one) == [[], ["a"], ["a"]]
    with opened(address) as client:
        again = Session(Echo(), store=client, key="bot")
        assert heard(again) == heard(one)
        again.save(tmp_path / "s.json")
    assert heard(Session.load_from(tmp_path / "s.json", Echo())) == heard(one)


def test_undo_takes_back_the_last_turn_whoever_said_it(two: Any) -> None:
    one, other = two
    one(question="a")
    other(question="b")
    assert [turn.inputs["question"] for turn in one.undo()] == ["b"]
    other(question="c")
    assert asked(other) == ["a", "c"]
    assert heard(other) == [[], ["a"]]


def test_what_is_no_turn_stays_when_turns_are_taken_back(address: str) -> None:
    with opened(address) as client:
        session = Session(Echo(), store=client, key="bot")
        session(question="a")
        chat = client.session("bot")
        said = [
            Message(InstructionContent(instruction="and you?")),
            Message(AssistantResponseContent(assistant_response="fine")),
        ]
        chat.add_messages(said, branches="main")
        session(question="b")
        session.undo(2)
        assert [m.content.words for m in chat.get_branch("main").messages] == ["and you?", "fine"]
        session(question="c")
        assert heard(session) == [[]]


@pytest.mark.parametrize("window", [None, 2])
def test_turns_erased_from_the_store_move_no_history_of_those_that_are_left(
    window: int | None, address: str
) -> None:
    with opened(address) as client:
        session = Session(Echo(), store=client, key="bot", max_turns=window)
        for question in "abcde":
            session(question=question)
        chat = client.session("bot")
        chat.remove_messages(chat.default_branch.messages[:2])
        for one in (session, Session(Echo(), store=client, key="bot", max_turns=window)):
            one.state.log.catch_up()
            assert asked(one) == ["b", "c", "d", "e"]
            far = heard(one)[-1]
            assert far == (["b", "c", "d"] if window is None else ["c", "d"])
            assert all(
                example.question not in [told["question"] for told in example.history.messages]
                for example in one.to_examples()
            )


@pytest.mark.parametrize("theirs", [1, None])
def test_turns_of_others_keep_their_history_where_only_some_turns_are_held(
    theirs: int | None, address: str
) -> None:
    with opened(address) as one, opened(address) as other:
        session = Session(Echo(), store=one, key="bot", max_stored_turns=1)
        for n in range(80):  # by then it has let most of them go
            session.add_turn({"question": f"q{n}"}, {"answer": "a"})
        Session(Echo(), store=other, key="bot", max_stored_turns=theirs)(question="theirs")
        session.state.log.catch_up()
        [turn] = session.turns
        told = [one["question"] for one in turn.history_snapshot.messages]
        assert told == [f"q{n}" for n in range(80)][-theirs if theirs else 0 :]


def test_undo_takes_off_the_messages_of_the_turn_and_nothing_that_stands_between(
    address: str,
) -> None:
    with opened(address) as client:
        session = Session(Echo(), store=client, key="bot")
        session(question="a")
        session(question="b")
        chat = client.session("bot")
        note = chat.add_message(Message(InstructionContent(instruction="a note")))
        chat.default_branch.insert(3, note)
        session.undo()
        assert [one.content.words for one in chat.default_branch.messages] == [
            "a",
            "re a",
            "a note",
        ]


def test_turns_are_taken_back_in_one_write_whatever_stands_between_them(tmp_path: Path) -> None:
    with faults.record("sqlite.*") as points, sennit.open(tmp_path / "a.db") as client:
        session = Session(Echo(), store=client, key="bot")
        session(question="a")
        client.session("bot").add_message("user", "a note")
        session(question="b")
        before = points.count("sqlite.after: BEGIN IMMEDIATE")
        session.undo(2)
        assert points.count("sqlite.after: BEGIN IMMEDIATE") == before + 1
        left = client.session("bot").default_branch.messages
        assert [one.content.words for one in left] == ["a note"]


def test_a_reset_in_another_process_is_noticed(two: Any) -> None:
    one, other = two
    one(question="a")
    one(question="b")
    other(question="c")
    one.reset()
    other(question="d")
    assert asked(other) == ["d"]
    assert heard(other) == [[]]


def test_two_processes_that_begin_a_conversation_begin_it_once(address: str) -> None:
    began = [{"question": "i", "answer": "j"}]
    with opened(address) as one, opened(address) as other:
        first = Session(Echo(), store=one, key="bot", initial_history=began)
        first(question="a")
        second = Session(Echo(), store=other, key="bot", initial_history=began)
        assert asked(second) == ["a"]
        assert second.initial_history == began
        state = second.state
        first.reset()
        first(question="b")
        state.log.turns.clear()
        state.begin([{"question": "other", "answer": ""}])
        assert asked(second) == ["b"]
        assert second.initial_history == began


HISTORY = [{"question": "h", "answer": "g"}]


def changes() -> dict[str, Any]:
    return {
        "call": lambda session: session(question="new"),
        "reset": lambda session: session.reset(),
        "undo": lambda session: session.undo(),
        "replace": lambda session: session(question="new", history=HISTORY),
    }


@pytest.mark.parametrize("name", sorted(changes()))
def test_a_write_that_fails_leaves_the_conversation_as_it_was(name: str, tmp_path: Path) -> None:
    """Whichever of its commits fails, here and in the file nothing has changed."""
    gone = OSError("the disk is gone")
    failed = count = 0
    for count in range(1, 9):
        path = tmp_path / f"{count}.db"
        with faults.record(), sennit.open(path) as client:
            session = Session(Echo(), store=client, key="bot", history_policy="replace_session")
            for question in ("a", "b"):
                session(question=question)
            before = session.save_state()
            with faults.arm("sqlite.before: COMMIT", faults.raising(gone), at=count) as armed:
                if armed_fails(changes()[name], session):
                    assert session.save_state() == before
                    failed += 1
            after = session.save_state()
        with sennit.open(path) as client:
            again = Session(Echo(), store=client, key="bot", history_policy="replace_session")
            assert again.save_state() == after
        if not armed.fired:
            break
    assert failed == count - 1 > 0


def armed_fails(change: Any, session: Any) -> bool:
    try:
        change(session)
    except (OSError, SennitError):
        return True
    return False


def test_only_so_many_turns_are_held_of_a_long_stored_conversation(
    address: str, tmp_path: Path
) -> None:
    began = [{"question": "i", "answer": "j"}]
    with opened(address) as client:
        whole = Session(Echo(), store=client, key="bot", initial_history=began)
        for n in range(200):
            whole(question=f"q{n}")
    with opened(address) as client:
        few = Session(Echo(), store=client, key="bot", max_stored_turns=2)
        assert [turn.index for turn in few.turns] == [198, 199]
        assert heard(few) == [["i", *(f"q{n}" for n in range(stop))] for stop in (198, 199)]
        few(question="more")
        assert heard(few)[-1] == ["i", "q198", "q199"]
        few.save(tmp_path / "s.json")
        assert heard(Session.load_from(tmp_path / "s.json", Echo())) == heard(few)
        assert heard(few.deepcopy()) == heard(few)
    with opened(address) as client:
        again = Session(Echo(), store=client, key="bot")
        assert len(again) == 201
        assert heard(again)[-2:] == [["i", *(f"q{n}" for n in range(199))], ["i", "q198", "q199"]]


def test_the_history_it_began_with_outlasts_turns_that_are_let_go() -> None:
    began = [{"question": "i", "answer": "j"}]
    session = Session(Echo(), max_stored_turns=2, initial_history=began)
    for n in range(300):
        session(question=f"q{n}")
    assert heard(session)[-1] == ["i", "q297", "q298"]
    session.reset()
    assert session.session_history.messages == began


def test_a_file_can_be_loaded_into_a_store(address: str, tmp_path: Path) -> None:
    session = Session(Echo(), max_stored_turns=2)
    for n in range(5):
        session(question=f"q{n}")
    session.save(tmp_path / "s.json")
    with opened(address) as client:
        loaded = Session.load_from(tmp_path / "s.json", Echo(), store=client, key="bot")
        assert loaded.turns == session.turns
    with opened(address) as client:
        again = Session(Echo(), store=client, key="bot", max_stored_turns=2)
        assert heard(again) == heard(session)


def test_a_fork_in_a_store_can_be_opened_by_its_name(address: str) -> None:
    with opened(address) as client:
        session = Session(Echo(), store=client, key="bot")
        session(question="a")
        fork = session.fork()
        fork(question="b")
        name = fork.state.log.branch.name
    with opened(address) as client:
        assert asked(Session(Echo(), store=client, key="bot", branch=name)) == ["a", "b"]
        assert asked(Session(Echo(), store=client, key="bot")) == ["a"]
        with pytest.raises(ValidationError):
            Session(Echo(), branch=name)


def test_fields_follow_the_options_of_the_session_that_reads_them(address: str) -> None:
    with opened(address) as client:
        Session(Echo(), store=client, key="bot").add_turn(
            {"question": "q", "long": "x"}, {"answer": "a"}
        )
    with opened(address) as client:
        again = Session(Echo(), store=client, key="bot", exclude_fields={"long"})
        assert again.session_history.messages == [{"question": "q", "answer": "a"}]
        assert again.turns[0].inputs == {"question": "q", "long": "x"}


def test_values_that_are_no_json_can_be_part_of_an_explicit_history(address: str) -> None:
    with opened(address) as client:
        session = Session(Echo(), store=client, key="bot", history_policy="use_if_provided")
        session(question="q", history=[{"question": {1, 2}.__class__, "answer": object()}])
        assert len(session) == 1
    with opened(address) as client:
        again = Session(Echo(), store=client, key="bot")
        assert again.turns[0].history_snapshot.messages[0]["question"] == "<class 'set'>"


def test_concurrent_calls_without_a_lock_lose_no_turn_and_each_keeps_its_own_past() -> None:
    session = Session(Echo(), copy_mode="none")
    barrier = threading.Barrier(4)
    session.module.first = lambda question: barrier.wait()
    threads = [threading.Thread(target=lambda n=n: session(question=f"q{n}")) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(asked(session)) == ["q0", "q1", "q2", "q3"]
    assert [turn.index for turn in session.turns] == [0, 1, 2, 3]
    assert heard(session) == [[], [], [], []]
    assert heard(session.fork()) == heard(session.deepcopy()) == [[], [], [], []]


def test_a_state_is_told_as_the_session_that_uses_it_tells_its_turns() -> None:
    plain = Session(Echo())
    short = Session(Echo(), exclude_fields={"answer"}, lock="thread")
    state = SessionState()
    with plain.use_state(state):
        plain(question="a")
        plain(question="b")
    with short.use_state(state):
        short(question="c")
    assert state.turns[1].history_snapshot.messages == [{"question": "a", "answer": "re a"}]
    assert state.turns[2].history_snapshot.messages == [{"question": "a"}, {"question": "b"}]


def test_a_bound_state_goes_along_into_the_worker_threads_of_dspy() -> None:
    session, state = Session(Echo(), lock="thread"), SessionState()
    example = dspy.Example(question="q").with_inputs("question")
    with session.use_state(state):
        dspy.Parallel(num_threads=2, disable_progress_bar=True)([(session, example)] * 3)
    assert (len(state.turns), len(session)) == (3, 0)


def test_a_state_is_saved_and_loaded_with_its_nodes(tmp_path: Path) -> None:
    with dspy.context(lm=DummyLM([{"answer": f"a{n}"} for n in range(9)])):
        session = with_memory(
            _Wrapped(),
            consolidator=lambda memory, episode, node: f"{memory}{len(episode)}",
        )
        session(question="q0")
        session(question="q1")
        session.state.save(tmp_path / "s.json")
        state = SessionState.load(tmp_path / "s.json")
        assert state.turns == session.turns
        assert state.nodes.of("gen").memory == "11"
        assert state.nodes.of("gen").turns == session.state.nodes.of("gen").turns
        with session.use_state(state):
            session(question="q2")
        assert (len(state.turns), len(session)) == (3, 2)
        session.reset()
        assert session.state.nodes.of("gen").turns == []
        assert session.state.nodes.of("gen").memory == ""


class _Wrapped(dspy.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gen = dspy.Predict("question -> answer")

    def forward(self, question: str) -> Any:
        return self.gen(question=question)


def test_a_call_with_an_explicit_history_leaves_the_nodes_alone() -> None:
    lm = DummyLM([{"answer": f"a{n}"} for n in range(9)])
    with dspy.context(lm=lm):
        session = with_memory(_Wrapped())
        session(question="q0")
        session(question="aside", history=HISTORY)
        assert [t.inputs["question"] for t in session.state.nodes.of("gen").turns] == ["q0"]
    assert "h" in str(lm.history[-1]["messages"][1]["content"])


class Thinker(dspy.Module):
    """Asks a model, awaited."""

    def __init__(self) -> None:
        super().__init__()
        self.gen = dspy.Predict("question -> answer")

    async def aforward(self, question: str) -> Any:
        return await self.gen.acall(question=question)


@pytest.mark.parametrize("policy", ["use_if_provided", "replace_session"])
@pytest.mark.parametrize("lifespan", [None, "persistent", "episodic"])
def test_an_awaited_call_does_not_keep_the_loop_waiting_for_the_store(
    tmp_path: Path, on_loop: list[str], lifespan: Any, policy: Any
) -> None:
    places: list[int] = []
    options: dict[str, Any] = {"key": "bot", "lock": "async", "history_policy": policy}
    options["on_turn"] = lambda session, turn: places.append(threading.get_ident())

    async def work(session: Session) -> None:
        await session.acall(question="a")
        await asyncio.gather(session.acall(question="b"), session.acall(question="c"))
        await session.acall(question="d", history=dspy.History(messages=[]))

    with (
        opened(str(tmp_path / "sennit.db")) as client,
        dspy.context(lm=DummyLM([{"answer": f"{n}"} for n in range(9)])),
    ):
        if lifespan is None:
            session = Session(Thinker(), store=client, **options)
        else:
            folding = lambda known, turns, node: f"{known}|{len(turns)}"  # noqa: E731
            plan = {"lifespan": lifespan, "consolidator": folding}
            session = with_memory(Thinker(), **plan, store=client, **options)
        asyncio.run(work(session))
        assert asked(session) == (["d"] if policy == "replace_session" else ["a", "b", "c", "d"])
        again = Session(Echo(), store=client, key="bot")
        assert (asked(again), heard(again)) == (asked(session), heard(session))
    assert on_loop == []
    assert places == [threading.get_ident()] * 4  # where the loop ran, as for any callback


def test_a_call_that_is_cancelled_while_its_turn_is_kept_is_kept_in_all_places(
    tmp_path: Path,
) -> None:
    entered, release, told = threading.Event(), threading.Event(), list[str]()

    def fold(known: str, turns: Any, node: str) -> str:
        entered.set()
        assert release.wait(10)
        return "folded"

    async def work(session: Session) -> None:
        call = asyncio.create_task(session.acall(question="a"))
        assert await asyncio.to_thread(entered.wait, 10)
        call.cancel()
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await call

    with (
        opened(str(tmp_path / "sennit.db")) as client,
        dspy.context(lm=DummyLM([{"answer": "1"}])),
    ):
        noting = lambda session, turn: told.append(turn.inputs["question"])  # noqa: E731
        session = with_memory(Thinker(), consolidator=fold, store=client, key="bot", on_turn=noting)
        asyncio.run(work(session))
        nodes = session.state.nodes.all()
        assert (asked(session), told) == (["a"], ["a"])
        assert [(len(one.turns), one.memory) for one in nodes.values()] == [(1, "folded")]


@pytest.mark.parametrize("make", [Session, with_memory])
def test_an_awaited_call_waits_for_whoever_has_the_turns_in_hand_beside_the_loop(
    tmp_path: Path, make: Any
) -> None:
    held, release, in_time = threading.Event(), threading.Event(), list[bool]()

    def hold(log: Any) -> None:
        with log._lock:
            held.set()
            in_time.append(release.wait(10))

    async def work(session: Session) -> None:
        holding = asyncio.create_task(asyncio.to_thread(hold, session.state.log))
        assert await asyncio.to_thread(held.wait, 10)
        call = asyncio.create_task(session.acall(question="b"))
        for _ in range(9):
            await asyncio.sleep(0)
        release.set()
        await asyncio.gather(call, holding)

    with (
        opened(str(tmp_path / "sennit.db")) as client,
        dspy.context(lm=DummyLM([{"answer": "1"}, {"answer": "2"}])),
    ):
        session = make(Thinker(), store=client, key="bot")
        asyncio.run(session.acall(question="a"))
        asyncio.run(work(session))
        assert asked(session) == ["a", "b"]
    assert in_time == [True]


PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"


def test_images_of_a_turn_are_images_of_its_instruction_and_no_text_for_search_or_training(
    address: str, tmp_path: Path
) -> None:
    class Look(dspy.Signature):
        pictures: list[dspy.Image] = dspy.InputField()
        question: str = dspy.InputField()
        answer: str = dspy.OutputField()

    pictures = [dspy.Image("https://example.com/knot.png"), dspy.Image(PIXEL)]
    prompts: list[Any] = []
    path = tmp_path / "rows.jsonl"
    for _ in range(2):
        lm = DummyLM([{"answer": "A bowline."}])
        with opened(address) as client, dspy.context(lm=lm):
            session = Session(dspy.Predict(Look), store=client, key="looking")
            session(pictures=pictures, question="Which?")
            prompts.append(lm.history[0]["messages"])
    with opened(address) as client:
        first: Any = client.session("looking").default_branch.messages[0].content
        client.export_training(path, ExportOptions(format="openai"))
    assert first.images == ["https://example.com/knot.png"]
    assert first.instruction == "pictures: ['[image]', '[image]']\n\nquestion: Which?"
    row = json.loads(path.read_text())
    assert row["messages"][0]["content"][1]["image_url"]["url"] == "https://example.com/knot.png"
    assert "base64" not in path.read_text()
    first_time, again = (
        [one for one in prompt[1]["content"] if one["type"] == "image_url"] for prompt in prompts
    )
    assert again == first_time
    assert len(again) == 2


@pytest.mark.parametrize("inside", ["no JSON", "{}", "[1]", "[]"])
def test_marks_of_blocks_that_someone_wrote_lose_no_turn(inside: str) -> None:
    written = f"<<CUSTOM-TYPE-START-IDENTIFIER>>{inside}<<CUSTOM-TYPE-END-IDENTIFIER>>"
    session = Session(dspy.Predict("question -> answer"))
    session.add_turn({"question": written}, {"answer": written})
    assert session.turns[0].inputs == {"question": written}
    assert len(session.state.log.branch) == 2


def test_the_last_score_of_a_turn_is_its_score_also_after_a_restart(address: str) -> None:
    def good(example: Any, prediction: Any) -> float:
        return 1.0

    def bad(example: Any, prediction: Any) -> float:
        return 0.0

    with opened(address) as client:
        session = Session(Echo(), store=client, key="bot")
        session(question="a")
        for metric in (good, bad, good):
            session.score(metric)
        session(question="b")
        session.score(good)
        session.score(bad)
        scores = [turn.score for turn in session.turns]
    with opened(address) as client:
        again = Session(Echo(), store=client, key="bot")
        assert [turn.score for turn in again.turns] == scores == [0.0, 0.0]
        again.score(good)
    with opened(address) as client:
        again = Session(Echo(), store=client, key="bot")
        assert [turn.score for turn in again.turns] == [1.0, 1.0]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Rope(pydantic.BaseModel):
    name: str
    colour: Colour = Colour.RED
    made: date | None = None

    @pydantic.field_validator("name")
    @classmethod
    def _named(cls, name: str) -> str:
        return {"odd": ""}.get(name, name) or {}["raises KeyError"]


class Choose(dspy.Signature):
    ropes: list[Rope] = dspy.InputField()
    sketch: dspy.Image = dspy.InputField()
    best: Rope = dspy.OutputField()
    colour: Colour = dspy.OutputField()


class Choosing(dspy.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gen = dspy.Predict(Choose)

    def forward(self, ropes: list[Rope], sketch: Any) -> Any:
        return dspy.Prediction(best=ropes[0], colour=Colour.BLUE)


def test_examples_and_metrics_get_the_types_of_the_program_after_a_restart(
    address: str, tmp_path: Path
) -> None:
    rope = Rope(name="hemp", colour=Colour.BLUE, made=date(2024, 1, 2))
    read_by_mistake = tmp_path / "private.png"
    read_by_mistake.write_bytes(b"private")

    def metric(example: Any, prediction: Any) -> float:
        return float(prediction.best.made.year == 2024 and example.colour is Colour.BLUE)

    with opened(address) as client:
        session = Session(Choosing(), store=client, key="ropes", on_metric_error="raise")
        session(ropes=[rope], sketch=str(read_by_mistake))
        session.save(tmp_path / "saved.json")
        (before,) = session.to_examples()
        assert session.score(metric) == [1.0]
    with opened(address) as client:
        stored = Session(Choosing(), store=client, key="ropes", on_metric_error="raise")
        loaded = Session.load_from(tmp_path / "saved.json", Choosing(), on_metric_error="raise")
        for again in (stored, loaded):
            (example,) = again.to_examples()
            assert example.toDict() == before.toDict()
            assert example.ropes == [rope]
            assert example.sketch == str(read_by_mistake)
            assert again.score(metric) == [1.0]


def test_a_value_that_is_not_of_its_type_any_more_stays_as_it_was_kept() -> None:
    session = Session(Choosing())
    for best in ({"name": 3}, {"name": "odd"}, "no rope", None):
        session.add_turn({"ropes": []}, {"best": best})
    assert [one.best for one in session.to_examples()] == [
        {"name": 3},
        {"name": "odd"},
        "no rope",
        None,
    ]
