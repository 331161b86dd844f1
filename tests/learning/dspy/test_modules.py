"""Sessions around DSPy's own programs, with every adapter."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.streaming import StreamListener, streamify
from dspy.utils import DummyLM

import sennit
from sennit.learning.dspy import Session


def texts(lm: Any, which: int = -1) -> str:
    return str([m["content"] for m in lm.history[which]["messages"]])


@pytest.mark.parametrize("adapter", [dspy.ChatAdapter, dspy.JSONAdapter, dspy.XMLAdapter])
def test_every_adapter_tells_the_history(adapter: Any) -> None:
    made = adapter()
    lm = DummyLM([{"answer": f"knot {n}"} for n in range(5)], adapter=made)
    with dspy.context(lm=lm, adapter=made):
        session = Session(dspy.Predict("question -> answer"))
        session(question="first question")
        session(question="second question")
    assert "first question" in texts(lm)
    assert "knot 0" in texts(lm)
    assert "None" not in texts(lm)


def test_chain_of_thought_hears_its_reasoning() -> None:
    lm = DummyLM([{"reasoning": f"because {n}", "answer": f"a{n}"} for n in range(5)])
    with dspy.context(lm=lm):
        session = Session(dspy.ChainOfThought("question -> answer"))
        session(question="q0")
        session(question="q1")
    assert "because 0" in texts(lm)
    assert session.turns[0].outputs == {"reasoning": "because 0", "answer": "a0"}


def test_react_remembers_across_turns() -> None:
    def length(knot: str) -> int:
        """How much rope a knot takes."""
        return 40

    turn = [
        {"next_thought": "look", "next_tool_name": "length", "next_tool_args": {"knot": "bowline"}},
        {"next_thought": "done", "next_tool_name": "finish", "next_tool_args": {}},
        {"reasoning": "it was said", "answer": "40 cm"},
    ]
    lm = DummyLM([*turn, *turn])
    with dspy.context(lm=lm):
        react: Any = dspy.ReAct
        session = Session(react("question -> answer", tools=[length]))
        session(question="How much rope?")
        session(question="Are you sure?")
    assert "How much rope?" in texts(lm)
    assert "40 cm" in texts(lm)
    assert not any("None" in texts(lm, n) for n in range(len(lm.history)))
    assert session.turns[1].history_snapshot.messages[0]["answer"] == "40 cm"


def test_a_session_inside_a_program_is_found_by_optimisers_and_keeps_its_own_turns() -> None:
    class Outer(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.chat = Session(dspy.Predict("question -> answer"))

        def forward(self, question: str) -> Any:
            return self.chat(question=question)

    lm = DummyLM([{"answer": f"a{n}"} for n in range(5)])
    with dspy.context(lm=lm):
        program = Outer()
        program(question="q0")
        program(question="q1")
    assert [name for name, _ in program.named_predictors()] == ["chat.module"]
    assert len(program.chat) == 2


class Calculator:
    """Knows the answers and runs no code: a real interpreter needs Deno, and downloads."""

    def __init__(self) -> None:
        self.tools: dict[str, Any] = {}
        self.ran: list[str] = []

    def start(self) -> None:
        pass

    def execute(self, code: str, variables: dict[str, Any] | None = None) -> str:
        self.ran.append(code)
        return "42"

    def shutdown(self) -> None:
        pass


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
def test_program_of_thought_remembers_across_turns() -> None:
    ran: list[Calculator] = []

    def interpreter() -> Calculator:
        ran.append(Calculator())
        return ran[-1]

    answers = [
        {"reasoning": "compute", "generated_code": "print(6 * 7)", "answer": f"it is {n}"}
        for n in range(9)
    ]
    lm = DummyLM(answers)
    with dspy.context(lm=lm):
        program = dspy.ProgramOfThought("question -> answer", interpreter_factory=interpreter)
        session = Session(program)
        session(question="What is six times seven?")
        session(question="And doubled?")
    assert [one.ran for one in ran] == [["print(6 * 7)"]] * 2
    assert "What is six times seven?" in texts(lm)
    assert "it is 1" in texts(lm)
    assert not any("None" in texts(lm, n) for n in range(len(lm.history)))
    assert len(session) == 2


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
def test_code_act_remembers_across_turns() -> None:
    def rope(knot: str) -> int:
        """How much rope a knot takes."""
        return 40

    answers = [
        {
            "reasoning": "look",
            "generated_code": "print(rope('bowline'))",
            "finished": True,
            "answer": f"{n} cm",
        }
        for n in range(9)
    ]
    lm = DummyLM(answers)
    with dspy.context(lm=lm):
        program = dspy.CodeAct("question -> answer", tools=[rope], interpreter_factory=Calculator)
        session = Session(program)
        session(question="How much rope?")
        session(question="Are you sure?")
    assert "How much rope?" in texts(lm)
    assert "1 cm" in texts(lm)
    assert not any("None" in texts(lm, n) for n in range(len(lm.history)))


def test_several_sessions_run_in_parallel_and_keep_apart() -> None:
    lm = DummyLM({"ann": {"answer": "to ann"}, "bob": {"answer": "to bob"}})
    with dspy.context(lm=lm):
        ann, bob = (Session(dspy.Predict("question -> answer")) for _ in range(2))
        for turn in range(3):
            asked = [
                (one, dspy.Example(question=f"{name}{turn}").with_inputs("question"))
                for one, name in ((ann, "ann"), (bob, "bob"))
            ]
            dspy.Parallel(num_threads=2, disable_progress_bar=True)(asked)
    for one, name in ((ann, "ann"), (bob, "bob")):
        assert [turn.outputs["answer"] for turn in one.turns] == [f"to {name}"] * 3
        heard = one.turns[2].history_snapshot.messages
        assert [told["question"] for told in heard] == [f"{name}0", f"{name}1"]


def test_a_session_behind_streamify_answers_and_keeps_its_turns() -> None:
    """DSPy's dummy sends no pieces, so this shows the way through, not the pieces."""
    lm = DummyLM([{"answer": f"a{n}"} for n in range(5)])
    session = Session(dspy.Predict("question -> answer"))

    async def asked(question: str) -> list[Any]:
        streaming: Any = streamify(
            session, stream_listeners=[StreamListener(signature_field_name="answer")]
        )
        return [piece async for piece in streaming(question=question)]

    with dspy.context(lm=lm):
        asyncio.run(asked("q0"))
        pieces = asyncio.run(asked("q1"))
    assert isinstance(pieces[-1], dspy.Prediction)
    assert [turn.outputs["answer"] for turn in session.turns] == ["a0", "a1"]
    assert "q0" in texts(lm)


def test_a_cancelled_call_keeps_nothing_and_lets_the_next_one_in() -> None:
    class Slow(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gen = dspy.Predict("question -> answer")
            self.begun = asyncio.Event()

        async def aforward(self, question: str) -> Any:
            if question == "stuck":
                self.begun.set()
                await asyncio.Event().wait()
            return dspy.Prediction(answer="a")

    async def talk() -> Session:
        session = Session(Slow(), lock="async", copy_mode="none")
        stuck = asyncio.create_task(session.acall(question="stuck"))
        await session.module.begun.wait()
        waiting = asyncio.create_task(session.acall(question="waiting"))
        after = asyncio.create_task(session.acall(question="after"))
        await asyncio.sleep(0)
        waiting.cancel()
        stuck.cancel()
        await asyncio.gather(stuck, waiting, return_exceptions=True)
        await after
        return session

    session = asyncio.run(talk())
    assert [turn.inputs["question"] for turn in session.turns] == ["after"]


def test_a_program_runs_on_the_embedded_model_and_goes_on_in_another_process(
    tmp_path: Path,
) -> None:
    """The words are the real model's; so small a one does not keep to DSPy's form by itself."""
    pytest.importorskip("xllamacpp")
    from dspy.lm15 import Message, Response, Usage

    sent: list[Any] = []

    class Engine:
        """A model of ours for DSPy."""

        def __init__(self) -> None:
            self.model = sennit.iModel("local")

        def complete(self, request: Any) -> Any:
            told = [{"role": m.role, "content": m.text} for m in request.messages]
            sent.append(told)
            reply = asyncio.run(self.model.invoke(told, max_tokens=24, temperature=0.0))
            text = f"[[ ## answer ## ]]\n{reply.text}\n\n[[ ## completed ## ]]"
            counted = Usage(input_tokens=reply.usage.input_tokens)
            return Response(
                id=None,
                model="local",
                message=Message.assistant(text),
                finish_reason="stop",
                usage=counted,
            )

    lm = dspy.LM("sennit/local", engine=Engine(), cache=False)
    for question in ("Name a knot.", "Name another one."):
        with dspy.context(lm=lm), sennit.open(tmp_path / "a.db") as client:
            session = Session(dspy.Predict("question -> answer"), store=client, key="rope")
            session(question=question)
            answers = [turn.outputs["answer"] for turn in session.turns]
    assert len(answers) == 2
    assert all(answers)
    assert "Name a knot." in str(sent[-1])
    assert answers[0] in str(sent[-1])
