"""Learning: turns and forks of DSPy sessions at length, and what exporting costs."""

from __future__ import annotations

import json
import sqlite3
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import dspy

import sennit
from benchmarks.harness import Result, Work, compare
from sennit import AssistantResponseContent, InstructionContent, Message
from sennit.learning.dspy import Session

SHORT, LONG, MANY = 10, 1_000, 2_000
CALLS = 20
_MAX_MEGABYTES = 8.0
QUESTION = "What holds better in wet rope, and why would a sailor choose it?"
ANSWER = "A bowline holds well when wet and can still be untied after a heavy load. " * 4


class Instant(dspy.Module):
    """Answers at once, so that what is left is the session's own cost."""

    def __init__(self) -> None:
        super().__init__()
        self.gen = dspy.Predict("question -> answer")

    def forward(self, question: str) -> Any:  # noqa: ARG002 - the same to all
        return dspy.Prediction(answer=ANSWER)


def run() -> Iterator[Result]:
    """All results of this room, one after another."""
    yield turns()
    yield forks()
    yield memory()
    with tempfile.TemporaryDirectory() as folder:
        yield export(Path(folder))
        yield export_memory(Path(folder))


def turns() -> Result:
    """What a turn costs late in a conversation beside one at its beginning."""
    return compare(
        f"a turn of a DSPy session at {LONG:,} turns",
        Work(_ask, _talked(LONG)),
        Work(_ask, _talked(SHORT)),
        floor_name=f"at {SHORT} turns",
        count=CALLS,
        bar=1.5,
    )


def forks() -> Result:
    """A fork shares the past, so its length does not matter; the program is copied in both."""
    return compare(
        f"fork of a DSPy session at {LONG:,} turns",
        Work(lambda session: session.fork(), _talked(LONG)),
        Work(lambda session: session.fork(), _talked(SHORT)),
        floor_name=f"at {SHORT} turns",
        bar=1.5,
    )


def memory() -> Result:
    """What a long conversation holds, its snapshots included."""
    tracemalloc.start()
    session = Session(Instant())
    for _ in range(MANY):
        session(question=QUESTION)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    name = f"memory of a DSPy session, {MANY:,} turns"
    return Result(name, held / 1e6, _MAX_MEGABYTES, "allowed", unit="MB", bar=1)


def _talked(size: int) -> Callable[[], Session]:
    def prepare() -> Session:
        session = Session(Instant())
        for _ in range(size):
            session.add_turn({"question": QUESTION}, {"answer": ANSWER})
        return session

    return prepare


def _ask(session: Session) -> None:
    for _ in range(CALLS):
        session(question=QUESTION)


def export(folder: Path) -> Result:
    """Conversations as lines to train on beside each row read and written with json.dumps."""
    path, count = _filled(folder, sessions=20)
    return compare(
        f"export of {count:,} messages from SQLite, each",
        Work(lambda target: _exported(path, target), lambda: folder / f"{uuid4()}.jsonl"),
        Work(lambda target: _dumped(path, target), lambda: folder / f"{uuid4()}.jsonl"),
        floor_name="read, json.loads, json.dumps",
        count=count,
        bar=2,
        rounds=5,
    )


def export_memory(folder: Path) -> Result:
    """What an export holds at most, beside one of a quarter of the sessions."""
    (few, _), (many, count) = _filled(folder, sessions=20), _filled(folder, sessions=80)
    return Result(
        f"memory of an export of {count:,} messages",
        _most(many, folder) / 1e6,
        _most(few, folder) / 1e6,
        "of a quarter",
        unit="MB",
        bar=1.2,
    )


def _filled(folder: Path, *, sessions: int) -> tuple[Path, int]:
    path = folder / f"{uuid4()}.db"
    with sennit.open(path) as client:
        for n in range(sessions):
            session = client.session(f"s{n}")
            said = [_said(at) for at in range(LONG)]
            session.add_messages(said, branches=session.default_branch)
    return path, sessions * LONG


def _said(at: int) -> Message:
    if at % 2:
        return Message(AssistantResponseContent(assistant_response=ANSWER))
    return Message(InstructionContent(instruction=f"{QUESTION} {at}"))


def _exported(path: Path, target: Path) -> None:
    with sennit.open(path) as client:
        client.export_training(target)


def _dumped(path: Path, target: Path) -> None:
    connection = sqlite3.connect(path)
    with target.open("w") as file:
        for (body,) in connection.execute("SELECT body FROM messages ORDER BY no"):
            file.write(json.dumps(json.loads(body)) + "\n")
    connection.close()


def _most(path: Path, folder: Path) -> int:
    tracemalloc.start()
    _exported(path, folder / f"{uuid4()}.jsonl")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most
