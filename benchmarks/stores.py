"""Stores: append, group commit, load, fork, bytes, open; beside bare sqlite3, same pragmas."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

import sennit
from benchmarks.foundation import contents
from benchmarks.harness import Result, Work, compare
from sennit import Branch, Message, Session

_TABLE = "CREATE TABLE rows (id INTEGER PRIMARY KEY, body BLOB)"
_INSERT = "INSERT INTO rows (body) VALUES (?)"


def run() -> Iterator[Result]:
    """All results of this step, one after another."""
    with tempfile.TemporaryDirectory() as folder:
        place = _Places(Path(folder))
        yield append(place)
        yield group_commit(place)
        yield from load(place)
        yield fork_time(place)
        yield from beside_branches(place)
        yield fork_bytes(place)
        yield chain_load(place)
        yield message_bytes(place)
        yield indexed_bytes(place)
        yield opening(place)


class _Places:
    """A new file name each time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def new(self) -> Path:
        return self._folder / f"{uuid4()}.db"


def bare(path: Path) -> sqlite3.Connection:
    """A table of rows as bare as can be, with the settings that our store has."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute(_TABLE)
    return connection


def _messages(count: int) -> list[Message]:
    """New messages, made before the clock starts, as the rows of a floor are."""
    return [Message(one) for one in contents(count)]


def _bodies(count: int) -> list[bytes]:
    return [json.dumps(one.to_dict()).encode() for one in _messages(count)]


def _session(path: Path, size: int = 0) -> tuple[Session, Branch]:
    session = sennit.open(path).session("bench")
    branch = session.default_branch
    session.append_messages(_messages(size), [branch])
    return session, branch


def inserts(connection: sqlite3.Connection, bodies: list[bytes], each: int) -> None:
    """Insert rows, so many with each commit."""
    for start in range(0, len(bodies), each):
        connection.execute("BEGIN IMMEDIATE")
        for body in bodies[start : start + each]:
            connection.execute(_INSERT, (body,))
        connection.execute("COMMIT")


def append(place: _Places) -> Result:
    count = 300

    def ours(given: tuple[Session, Branch, list[Message]]) -> None:
        session, branch, messages = given
        for message in messages:
            session.add_message(message, branches=branch)

    bodies = _bodies(count)
    return compare(
        "durable append",
        Work(ours, lambda: (*_session(place.new()), _messages(count))),
        Work(lambda given: inserts(given, bodies, 1), lambda: bare(place.new())),
        floor_name="one insert per commit",
        count=count,
        bar=1 / 0.7,
    )


def group_commit(place: _Places) -> Result:
    tasks, each = 16, 50
    count = tasks * each

    async def write(session: Session, branch: Branch, messages: list[Message]) -> None:
        async def one(mine: list[Message]) -> None:
            for message in mine:
                await session.aadd_message(message, branches=branch)

        await asyncio.gather(*(one(messages[number::tasks]) for number in range(tasks)))

    bodies = _bodies(count)

    async def floor(connection: sqlite3.Connection) -> None:
        writer = AsyncFloor(connection)

        async def one(mine: list[bytes]) -> None:
            for body in mine:
                await writer.write(body)

        working = asyncio.create_task(writer.work())
        await asyncio.gather(*(one(bodies[number::tasks]) for number in range(tasks)))
        working.cancel()

    return compare(
        "durable append, 16 async tasks",
        Work(
            lambda given: asyncio.run(write(*given)),
            lambda: (*_session(place.new()), _messages(count)),
        ),
        Work(lambda given: asyncio.run(floor(given)), lambda: bare(place.new())),
        floor_name="bare group commit",
        count=count,
        bar=1 / 0.6,
    )


class AsyncFloor:
    """The least an async group commit needs: a queue, a thread that writes, a future per write.

    Each task awaits its own future; what has come in meanwhile is inserted and committed together,
    in another thread, and the tasks of that group are woken.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._news = asyncio.Event()

    def write(self, body: bytes) -> asyncio.Future[None]:
        """Have a row written; to be awaited."""
        finished = asyncio.get_running_loop().create_future()
        self._waiting.append((body, finished))
        self._news.set()
        return finished

    async def work(self) -> None:
        """Write what comes in, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            group, self._waiting = self._waiting, []
            rows = [body for body, _ in group]
            await asyncio.to_thread(inserts, self._connection, rows, len(rows))
            for _, finished in group:
                finished.set_result(None)


def load(place: _Places) -> Iterator[Result]:
    """Opening a long session; its messages are read when someone looks at them, so that too."""
    size = 10_000
    path = place.new()
    _session(path, size)
    bare = sqlite3.connect(path)
    decode = msgspec.json.Decoder().decode

    def ours(client: sennit.Client) -> object:
        return client.session("bench").default_branch.messages

    def read(client: sennit.Client) -> object:
        return [one.content for one in client.session("bench").default_branch.messages]

    def floor(_: object) -> object:
        rows = bare.execute("SELECT id, body FROM messages ORDER BY no")
        return [(uid, decode(body)) for uid, body in rows]

    for name, work, bar in (("load", ours, 2.5), ("load and look at", read, None)):
        yield compare(
            f"{name} {size:,} messages",
            Work(work, lambda: sennit.open(path)),
            Work(floor),
            floor_name="read and decode the rows",
            count=size,
            bar=bar,
        )


def fork_time(place: _Places) -> Result:
    def forks(size: int) -> Work:
        session, branch = _session(place.new(), size)
        return Work(lambda _: [session.fork(branch) for _number in range(50)])

    return compare(
        "durable fork, 10,000 messages",
        forks(10_000),
        forks(100),
        floor_name="fork at 100",
        count=50,
        bar=1.5,
    )


def beside_branches(place: _Places) -> Iterator[Result]:
    """What a change of one branch costs with many others in its session, and with few."""
    few, many, each = 10, 10_000, 20

    def crowd(size: int) -> tuple[Session, Branch]:
        session, branch = _session(place.new(), 20)
        for _ in range(size):
            session.fork(branch)
        return session, branch

    def grown(crowd: tuple[Session, Branch]) -> tuple[Session, list[Branch]]:
        session, branch = crowd
        forks = [session.fork(branch) for _ in range(each)]
        for fork in forks:
            session.add_message("user", "One more thing.", branches=fork)
        return session, forks

    def fork(given: tuple[Session, Branch]) -> None:
        session, branch = given
        for _ in range(each):
            session.fork(branch)

    def pop(given: tuple[Session, list[Branch]]) -> None:
        for one in given[1]:
            one.pop()

    def remove(given: tuple[Session, list[Branch]]) -> None:
        session, forks = given
        for one in forks:
            session.remove_branch(one)

    crowds = {size: crowd(size) for size in (many, few)}

    def forking(size: int) -> Work:
        return Work(fork, lambda: crowds[size])

    def popping(size: int) -> Work:
        return Work(pop, lambda: grown(crowds[size]))

    def removing(size: int) -> Work:
        return Work(remove, lambda: grown(crowds[size]))

    for name, work in (("fork", forking), ("pop", popping), ("remove a branch", removing)):
        yield compare(
            f"{name}, {many:,} branches beside it",
            work(many),
            work(few),
            floor_name=f"{few} beside it",
            count=each,
            bar=1.5,
        )


def fork_bytes(place: _Places) -> Result:
    path = place.new()
    session, branch = _session(path, 10_000)
    before = size_of(path)
    for _ in range(1000):
        session.fork(branch)
    grown = (size_of(path) - before) / 1000
    return Result("bytes of a fork", grown, 1024, "1 KB", unit="B", bar=1)


def message_bytes(place: _Places) -> Result:
    path = place.new()
    session, _ = _session(path, 5_000)
    size = size_of(path)
    plain = sum(len(message.to_json()) for message in session.messages)
    return Result("bytes of 5,000 messages", size, plain, "their JSON", unit="B", bar=1.6)


def indexed_bytes(place: _Places) -> Result:
    path = place.new()
    session, _ = _session(path, 5_000)
    with sennit.open(path) as client:
        client.search_messages("knot")  # brings the index up to date
    size = size_of(path)
    plain = sum(len(message.to_json()) for message in session.messages)
    name = "bytes of 5,000 messages with the index of words"
    return Result(name, size, plain, "their JSON", unit="B", bar=2)


def chain_load(place: _Places) -> Result:
    def chain(length: int) -> Path:
        path = place.new()
        session, branch = _session(path, 1)
        for _ in range(length):
            branch = session.fork(branch)
        return path

    def load(path: Path) -> Work:
        def run(client: sennit.Client) -> list[int]:
            session = client.session("bench")
            return [len(branch) for branch in session.branches]

        return Work(run, lambda: sennit.open(path))

    # Ten times the forks: ten times the time, so the same for each fork.
    long, short = chain(10_000), chain(1_000)
    result = compare("load a chain of forks", load(long), load(short), floor_name="of 1,000")
    return Result(
        "load a chain of 10,000 forks, each",
        result.ours / 10_000,
        result.floor / 1_000,
        "in a chain of 1,000",
        bar=2,
    )


def size_of(path: Path) -> int:
    """The bytes of a database, with nothing left in its journal."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path.stat().st_size


def opening(place: _Places) -> Result:
    path = place.new()
    _session(path, 100)

    def ours(_: object) -> None:
        sennit.open(path).close()

    def floor(_: object) -> Any:
        connection = sqlite3.connect(path)
        connection.execute("SELECT no FROM sessions LIMIT 1").fetchone()
        connection.close()

    def many(once: Callable[[object], object]) -> Work:
        return Work(lambda _: [once(None) for _number in range(50)])

    return compare(
        "open a client", many(ours), many(floor), floor_name="open and read a row", count=50, bar=3
    )
