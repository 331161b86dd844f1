"""Finding: what it costs beside the bare full-text query it needs, and what the index takes.

A hundred thousand messages made of the turns of the retrieval conversations, cut and joined anew,
so that words are as common as in real talk. Times are of the processor, in turns, in one run.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from time import process_time

import sennit
from benchmarks.harness import Result
from benchmarks.retrieval.conversations import conversations
from sennit import Client, InstructionContent, Message
from sennit.stores.search import tokenizer

_MESSAGES = 100_000
_MESSAGES_PER_SESSION = 500
_ROUNDS = 5
_QUESTIONS = 40
_RARE_WORD_COUNT = 50
_BARE = """
    SELECT rowid, bm25(words) FROM words WHERE words MATCH ?
    ORDER BY bm25(words) LIMIT 10"""


def run() -> Iterator[Result]:
    """All results of this step, one after another."""
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder, "small.db"), Path(folder, "large.db")
        _fill(small, _MESSAGES // 10)
        _fill(large, _MESSAGES)
        yield index_bytes(large)
        yield find_time(large)
        yield find_tail(large)
        yield find_growth(small, large)


def _fill(path: Path, count: int) -> None:
    chance = Random(count)
    turns = [turn.text for one in conversations("dev") for turn in one.turns]
    rare = set(chance.sample(range(count), _RARE_WORD_COUNT))
    with sennit.open(path, durability="normal") as client:
        for first in range(0, count, _MESSAGES_PER_SESSION):
            session = client.session(f"chat_{first}")
            main = session.default_branch
            with session.lock:
                for number in range(first, min(first + _MESSAGES_PER_SESSION, count)):
                    word = " quagga" if number in rare else ""
                    text = f"{_half(chance, turns)} {_half(chance, turns)}{word} {number}"
                    session.add_message(Message(InstructionContent(instruction=text)), main)


def _half(chance: Random, turns: list[str]) -> str:
    said = chance.choice(turns).split()
    at = chance.randrange(len(said))
    return " ".join(said[at:] + said[: at // 2])


def _bytes(path: Path) -> int:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size


def index_bytes(path: Path) -> Result:
    """What the index adds to the file, for each message."""
    before = _bytes(path)
    with sennit.open(path) as client:
        client.find("quagga")
    each = (_bytes(path) - before) / _MESSAGES
    return Result("index a message", each, 1024.0, "1 KB", unit="bytes", bar=1.0)


def find_time(path: Path) -> Result:
    """Questions as people ask them, over all messages."""
    asked = [one.text for talk in conversations("dev") for one in talk.questions][:_QUESTIONS]
    queries = [" OR ".join(f'"{word}"' for word in tokenizer.query_words(text)) for text in asked]
    with sennit.open(path) as client, sqlite3.connect(path) as bare:
        ours, floor = _in_turns(
            lambda: [client.find(text) for text in asked],
            lambda: [bare.execute(_BARE, (query,)).fetchall() for query in queries],
        )
    scale = 1e6 / len(asked)
    name = f"find in {_MESSAGES:,} messages"
    return Result(name, ours * scale, floor * scale, "the bare FTS5 query", bar=3.0)


def find_tail(path: Path) -> Result:
    """The slowest twentieth of all questions, beside the median."""
    asked = [one.text for talk in conversations("dev") for one in talk.questions]
    times: list[float] = []
    with sennit.open(path) as client:
        client.find("quagga")
        for text in asked:
            start = process_time()
            client.find(text)
            times.append(process_time() - start)
    times.sort()
    p95, median = (1e6 * times[int(share * len(times))] for share in (0.95, 0.5))
    return Result(f"p95 of find in {_MESSAGES:,} messages", p95, median, "its median", bar=3.0)


def find_growth(small: Path, large: Path) -> Result:
    """A word that fifty messages hold, in a store ten times as large."""
    with sennit.open(small) as few, sennit.open(large) as many:
        few.find("quagga")
        many.find("quagga")
        ours, floor = _in_turns(lambda: _repeat(many), lambda: _repeat(few))
    name = f"find {_RARE_WORD_COUNT} messages among {_MESSAGES:,}"
    return Result(name, ours * 1e4, floor * 1e4, f"among {_MESSAGES // 10:,}", bar=1.5)


def _repeat(client: Client) -> None:
    for _ in range(100):
        client.find("quagga")


def _in_turns(ours: Callable[[], object], floor: Callable[[], object]) -> tuple[float, float]:
    best = [float("inf"), float("inf")]
    for _ in range(_ROUNDS):
        for at, work in enumerate((ours, floor)):
            start = process_time()
            work()
            best[at] = min(best[at], process_time() - start)
    return best[0], best[1]
