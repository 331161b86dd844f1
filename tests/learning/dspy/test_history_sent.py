"""The prompts that programs send: every turn with an output is in them, and nothing it lacks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import dspy
import pytest
from dspy.utils import DummyLM
from hypothesis import given, settings
from hypothesis import strategies as st

import sennit
from sennit.learning.dspy import Session

ADAPTERS = {"chat": dspy.ChatAdapter, "json": dspy.JSONAdapter, "xml": dspy.XMLAdapter}
OUTPUTS = ("reasoning", "answer", "sources")


def dummy(adapter: Any = None) -> DummyLM:
    answers = [{name: f"{name}({n})" for name in OUTPUTS} for n in range(99)]
    return DummyLM(answers, adapter=adapter)


def prompt(lm: Any, which: int = -1) -> list[dict[str, Any]]:
    """The messages of a prompt, without the system message and the question asked now."""
    return lm.history[which]["messages"][1:-1]


def said(lm: Any, which: int = -1) -> str:
    return "\n".join(m["content"] for m in prompt(lm, which) if m["role"] == "assistant")


class Around(dspy.Module):
    """A program around another one, which returns what that returns."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, question: str) -> Any:
        return self.inner(question=question)


def programs() -> dict[str, Any]:
    signature = "question -> answer, sources"
    return {
        "predict": dspy.Predict("question -> answer"),
        "two outputs": dspy.Predict(signature),
        "thinking": dspy.ChainOfThought("question -> answer"),
        "thinking, two outputs": dspy.ChainOfThought(signature),
        "around predict": Around(dspy.Predict(signature)),
        "around thinking": Around(dspy.ChainOfThought("question -> answer")),
    }


some_outputs = st.sets(st.sampled_from(OUTPUTS))
steps = st.lists(
    st.tuples(st.just("call"), some_outputs)
    | st.tuples(st.just("add"), some_outputs)
    | st.tuples(st.just("explicit"), some_outputs)
    | st.tuples(st.sampled_from(sorted(programs())), some_outputs),
    max_size=6,
)
options = st.fixed_dictionaries(
    {
        "exclude_fields": some_outputs,
        "history_input_fields": st.sampled_from([None, {"question"}, set[str]()]),
        "max_turns": st.sampled_from([None, None, 0, 2]),
        "history_policy": st.sampled_from(["override", "use_if_provided", "replace_session"]),
    }
)


def by_hand(number: int, outputs: set[str]) -> dict[str, str]:
    return {name: f"{name}(by hand {number})" for name in outputs}


@settings(max_examples=30)
@given(st.sampled_from(sorted(programs())), options, some_outputs, steps, st.sampled_from("cjx"))
def test_every_turn_with_an_output_is_sent_whole_and_in_order(
    program: str, chosen: dict[str, Any], initial: set[str], steps: list[Any], which: str
) -> None:
    adapter: Any = next(one for name, one in ADAPTERS.items() if name[0] == which)()
    lm = dummy(adapter)
    with dspy.context(lm=lm, adapter=adapter):
        seed = [{"question": "seed", **by_hand(-1, initial)}]
        session: Any = Session(programs()[program], initial_history=seed, **chosen)
        for number, (step, outputs) in enumerate(steps):
            turn = {"question": f"q{number}"}, by_hand(number, outputs)
            if step == "call":
                session(question=turn[0]["question"])
            elif step == "add":
                session.add_turn(*turn)
            elif step == "explicit":
                session(question="now", history=[{**turn[0], **turn[1]}])
                check(session, lm, [{**turn[0], **turn[1]}])
            else:
                session.update_module(new_module=programs()[step])
        known = session.session_history.messages
        session(question="now")
    check(session, lm, known)


def check(session: Any, lm: Any, known: list[dict[str, Any]]) -> None:
    """Compare a prompt with the turns that were known when it was sent."""
    outputs = session.predictors()[0].signature.output_fields
    heard = [[turn[one] for one in outputs if one in turn] for turn in known]
    answers = [m["content"] for m in prompt(lm) if m["role"] == "assistant"]
    assert len(answers) == len([one for one in heard if one])
    for values, answer in zip([one for one in heard if one], answers, strict=True):
        assert all(value in answer for value in values)
        assert sum(f"{name}(" in answer for name in OUTPUTS) == len(values)
        assert "None" not in answer
        assert "null" not in answer
    questions = "\n".join(m["content"] for m in prompt(lm) if m["role"] == "user")
    for turn, values in zip(known, heard, strict=True):
        assert not values or turn.get("question", "") in questions


def test_a_program_that_returns_other_names_still_hears_what_it_said_itself() -> None:
    class Renaming(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.think = dspy.ChainOfThought("question -> answer")

        def forward(self, question: str) -> Any:
            return dspy.Prediction(reply=self.think(question=question).answer)

    lm = dummy()
    with dspy.context(lm=lm):
        whole, brief = Session(Renaming()), Session(Renaming(), exclude_fields={"reasoning"})
        for session in (whole, brief):
            session(question="q0")
            session(question="q1")
    assert "reasoning(0)" in said(lm, 1)
    assert "answer(0)" in said(lm, 1)
    assert "answer(2)" in said(lm, 3)
    assert "reasoning" not in said(lm, 3)


def test_react_is_sent_turns_that_it_did_not_make_itself() -> None:
    turn = [
        {"next_thought": "done", "next_tool_name": "finish", "next_tool_args": {}},
        {"reasoning": "r", "answer": "a0"},
    ]
    lm = DummyLM([*turn, *turn])
    with dspy.context(lm=lm):
        react: Any = dspy.ReAct
        session = Session(
            react("question -> answer", tools=[]),
            initial_history=[{"question": "first", "answer": "the first answer"}],
        )
        session.add_turn({"question": "second"}, {"answer": "the second answer"})
        session(question="third")
    assert "the first answer" in said(lm)
    assert "the second answer" in said(lm)
    assert "None" not in said(lm)


def test_none_is_sent_where_it_is_a_value_and_left_out_where_it_is_none() -> None:
    class Found(dspy.Signature):
        question: str = dspy.InputField()
        answer: str = dspy.OutputField()
        page: int | None = dspy.OutputField()

    lm = DummyLM([{"answer": "a", "page": None}] * 3)
    with dspy.context(lm=lm):
        session = Session(dspy.Predict(Found))
        session.add_turn({"question": "q0"}, {"answer": None, "page": None})
        session.add_turn({"question": "q1"}, {"answer": "here", "page": 7})
        session(question="q2")
    first, second = (m["content"] for m in prompt(lm) if m["role"] == "assistant")
    assert first.split() == [
        "[[",
        "##",
        "page",
        "##",
        "]]",
        "None",
        "[[",
        "##",
        "completed",
        "##",
        "]]",
    ]
    assert "here" in second
    assert "7" in second


@contextmanager
def endpoint(answer: dict[str, str], form: Literal["chat", "json"]) -> Iterator[tuple[str, Any]]:
    """An OpenAI endpoint on this machine that gives one answer and keeps what it is asked."""
    asked: list[Any] = []
    chat = "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in answer.items())
    text = json.dumps(answer) if form == "json" else f"{chat}\n\n[[ ## completed ## ]]"

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            message = {"role": "assistant", "content": text}
            body = json.dumps(
                {
                    "id": "1",
                    "object": "chat.completion",
                    "created": 0,
                    "model": "m",
                    "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
                }
            ).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


@pytest.mark.parametrize("form", ["chat", "json"])
def test_turns_of_another_program_are_in_the_request_that_reaches_the_provider(
    form: Literal["chat", "json"],
) -> None:
    answer = {"reasoning": "r", "answer": "a"}
    with endpoint(answer, form) as (url, asked):
        lm = dspy.LM("openai/m", api_base=url, api_key="-", cache=False)
        with dspy.context(lm=lm, adapter=ADAPTERS[form]()):
            session = Session(
                dspy.ChainOfThought("question -> answer"),
                initial_history=[{"question": "first", "answer": "one"}],
            )
            session.add_turn({"question": "second"}, {"answer": "two"})
            session(question="third")
            session(question="fourth")
    told = [m["content"] for m in asked[-1]["messages"] if m["role"] == "assistant"]
    assert len(told) == 3
    assert "one" in told[0]
    assert "two" in told[1]
    assert "r" in told[2]
    assert not any("None" in one or "null" in one for one in told)


def test_an_answer_that_only_json_can_read_is_asked_for_again_with_the_same_history() -> None:
    with endpoint({"reasoning": "r", "answer": "a"}, "json") as (url, asked):
        lm = dspy.LM("openai/m", api_base=url, api_key="-", cache=False)
        with dspy.context(lm=lm, adapter=dspy.ChatAdapter()):
            session = Session(dspy.ChainOfThought("question -> answer"))
            session.add_turn({"question": "q0"}, {"answer": "a0"})
            session(question="q1")
    assert len(asked) == 2  # in the adapter's own form, then in JSON
    for request in asked:
        [earlier] = [m["content"] for m in request["messages"] if m["role"] == "assistant"]
        assert "a0" in earlier
        assert "null" not in earlier
        assert "None" not in earlier


@pytest.mark.parametrize("way", ["initial", "explicit", "added", "swapped"])
def test_turns_that_no_model_will_be_sent_are_told_of(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    lost = {"user": "Hello", "bot": "Hi"}
    with dspy.context(lm=dummy()):
        if way == "initial":
            Session(dspy.Predict("question -> answer"), initial_history=[lost])
        elif way == "explicit":
            Session(dspy.Predict("question -> answer"))(question="q", history=[lost])
        elif way == "added":
            Session(dspy.Predict("question -> answer")).add_turn({"user": "Hello"}, {"bot": "Hi"})
        else:
            session = Session(dspy.Predict("question -> answer"))
            session(question="q")
            session.update_module(dspy.Predict("question -> verdict"))
    assert "1 of 1 turns have none of the program's outputs" in caplog.text


def test_turns_that_will_be_sent_are_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with dspy.context(lm=dummy()):
        session = Session(
            dspy.ChainOfThought("question -> answer"),
            initial_history=[{"question": "q", "answer": "a"}],
        )
        session.add_turn({"question": "q"}, {"answer": "a"})
        session.update_module(dspy.Predict("question -> answer"))
        session(question="q", history=[{"question": "q", "answer": "a"}])
    assert caplog.text == ""


class Renamed(dspy.Module):
    """A program whose predictor has other inputs than the program, and perhaps other outputs."""

    def __init__(self, *, output: str) -> None:
        super().__init__()
        self.ask = dspy.Predict("question -> answer")
        self.output = output

    def forward(self, text: str) -> Any:
        return dspy.Prediction(**{self.output: self.ask(question=text).answer})


@pytest.mark.parametrize("output", ["answer", "reply"])
def test_a_predictor_with_other_inputs_than_the_program_is_sent_what_it_was_asked(
    output: str, tmp_path: Path
) -> None:
    lm = dummy()
    with dspy.context(lm=lm), sennit.open(tmp_path / "s.db") as client:
        session = Session(Renamed(output=output), store=client, key="k")
        session(text="q0")
        session(text="q1")
        again = Session(Renamed(output=output), store=client, key="k")
        again(text="q2")
    assert [m["role"] for m in prompt(lm, 1)] == ["user", "assistant"]
    assert "q0" in prompt(lm, 1)[0]["content"]
    assert "answer(0)" in said(lm, 1)
    assert [m["role"] for m in prompt(lm)] == ["user", "assistant"] * 2
    assert "q1" in prompt(lm)[2]["content"]


def test_inputs_of_a_predictor_that_are_not_chosen_for_the_history_are_not_sent() -> None:
    lm = dummy()
    with dspy.context(lm=lm):
        session = Session(Renamed(output="answer"), history_input_fields={"text"})
        session(text="q0")
        session(text="q1")
    assert "q0" not in str(prompt(lm))
    assert "answer(0)" in said(lm)


class Colour(str, Enum):  # noqa: UP042 - its text names the member, unlike that of a StrEnum
    RED = "r"


class Plain(Enum):
    BLUE = "b"


@dataclass
class Point:
    x: int


class Typed(dspy.Signature):
    """Answer with values of many types."""

    when: datetime = dspy.InputField()
    day: date = dspy.InputField()
    lasting: timedelta = dspy.InputField()
    raw: bytes = dspy.InputField()
    point: Point = dspy.InputField()
    plain: Plain = dspy.InputField()
    many: list[Plain] = dspy.InputField()
    colour: Colour = dspy.OutputField()


@pytest.mark.parametrize("adapter", ADAPTERS.values())
def test_values_of_any_type_are_sent_alike_before_and_after_a_restart(
    adapter: Any, tmp_path: Path
) -> None:
    given: dict[str, Any] = {
        "when": datetime(2026, 3, 1, 9, 30),
        "day": date(2026, 3, 1),
        "lasting": timedelta(minutes=5),
        "raw": b"raw",
        "point": Point(1),
        "plain": Plain.BLUE,
        "many": [Plain.BLUE],
    }
    lm = DummyLM([{"colour": "r"}] * 4, adapter=adapter())
    with dspy.context(lm=lm, adapter=adapter()), sennit.open(tmp_path / "s.db") as client:
        session = Session(dspy.Predict(Typed), store=client, key="k")
        session(**given)
        session.save(tmp_path / "s.json")
        session(**given)
        session.undo()
        Session(dspy.Predict(Typed), store=client, key="k")(**given)
        Session.load_from(tmp_path / "s.json", dspy.Predict(Typed))(**given)
    assert prompt(lm, 1)
    assert prompt(lm, 2) == prompt(lm, 1)
    assert prompt(lm, 3) == prompt(lm, 1)
