"""Memory: what a commit costs without a model, and how that grows with what is remembered.

The messages are turns of the retrieval conversations, each made new with a number, so that nothing
a rule has seen before helps it. The floor inserts the same 200 messages, as rows like ours with the
key they are found by, in one transaction. Times are of the processor, in turns, in one run.
"""

from __future__ import annotations

import gc
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from time import process_time

import sennit
from benchmarks.harness import Result
from benchmarks.retrieval.conversations import conversations
from sennit import AssistantResponseContent, Client, InstructionContent, Message, Session
from sennit.sessions.records import message_record

_MESSAGES = 200
_FEW, _MANY = 100, 5_000
_ROUNDS = 7
_TABLE = """
    CREATE TABLE messages (
        no INTEGER PRIMARY KEY, owner INTEGER NOT NULL, session INTEGER NOT NULL, id BLOB NOT NULL,
        created INTEGER NOT NULL, body BLOB NOT NULL, UNIQUE (owner, session, id)) STRICT"""
_INSERT = "INSERT INTO messages (owner, session, id, created, body) VALUES (1, 1, ?, ?, ?)"

_turns = [turn.text for conversation in conversations("dev") for turn in conversation.turns]
_numbers = count()


def run() -> Iterator[Result]:
    """All results of this step, one after another."""
    with tempfile.TemporaryDirectory() as folder:
        yield commit(Path(folder))
        yield growth(Path(folder))


def _messages(number: int = _MESSAGES) -> list[Message]:
    """New messages of two who talk in turns."""
    texts = [_numbered_turn(next(_numbers)) for _ in range(number)]
    return [
        Message(AssistantResponseContent(text) if at % 2 else InstructionContent(instruction=text))
        for at, text in enumerate(texts)
    ]


def _numbered_turn(number: int) -> str:
    """A turn with a number in its last sentence, which nobody has said so before."""
    text = _turns[number % len(_turns)]
    return f"{text[:-1]} {number}{text[-1]}"


def _session(client: Client) -> Session:
    session = client.session(f"chat_{next(_numbers)}")
    session.add_messages(_messages(), branches=session.default_branch)
    return session


def commit(folder: Path) -> Result:
    """A commit of 200 messages, beside inserting them."""
    client = sennit.open(folder / "commit.db")
    names = count()

    def bare() -> tuple[sqlite3.Connection, list[tuple[bytes, int, bytes]]]:
        connection = sqlite3.connect(folder / f"bare_{next(names)}.db", isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(_TABLE)
        records = [message_record(record) for record in _messages()]
        return connection, [(record.id.bytes, record.created, record.body) for record in records]

    def insert(given: tuple[sqlite3.Connection, list[tuple[bytes, int, bytes]]]) -> None:
        connection, rows = given
        connection.execute("BEGIN IMMEDIATE")
        for row in rows:
            connection.execute(_INSERT, row)
        connection.execute("COMMIT")

    best = {"ours": 99.0, "floor": 99.0}
    for _ in range(_ROUNDS):
        session, given = _session(client), bare()
        best["ours"] = min(best["ours"], _seconds(session.commit))
        best["floor"] = min(best["floor"], _seconds(lambda: insert(given)))  # noqa: B023
    client.close()
    return Result(
        f"commit of {_MESSAGES} messages, no model",
        best["ours"] * 1e6,
        best["floor"] * 1e6,
        "inserting them in one transaction",
        bar=20,
    )


def _seconds(work: Callable[[], object]) -> float:
    gc.collect()
    start = process_time()
    work()
    return process_time() - start


def growth(folder: Path) -> Result:
    """The same where much more is remembered already."""
    best: dict[int, float] = {}
    clients = {size: _client_with_memories(folder / f"{size}.db", size) for size in (_FEW, _MANY)}
    for _ in range(_ROUNDS):
        for size, client in clients.items():
            session = client.session(f"chat_{next(_numbers)}")
            for at in range(10):
                session.add_message(
                    "user", f"I like {_synthetic_fact(next(_numbers))} and tea {at}."
                )
            best[size] = min(best.get(size, 99.0), _seconds(session.commit))
    for client in clients.values():
        client.close()
    return Result(
        f"commit with {_MANY:,} memories",
        best[_MANY] * 1e6,
        best[_FEW] * 1e6,
        f"with {_FEW}",
        bar=2,
    )


def _client_with_memories(path: Path, size: int) -> Client:
    client = sennit.open(path, durability="normal")
    session = client.session("before")
    for at in range(size):
        session.add_message("user", f"I like {_synthetic_fact(at)} very much.")
    session.commit()
    return client


def _synthetic_fact(number: int) -> str:
    """A word nobody has used, for each number another."""
    letters = "bdfgklmnprstvz"
    word = ""
    while number or not word:
        number, at = divmod(number, len(letters))
        word += letters[at] + "aeiou"[at % 5]
    return f"{word}x"
