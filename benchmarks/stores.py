"""Store benchmarks: append, group commit, load, fork, bytes, open; beside bare sqlite3."""

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
    """Yield all results of this step."""
    with tempfile.TemporaryDirectory() as folder:
        paths = _DatabasePaths(Path(folder))
        yield append(paths)
        yield group_commit(paths)
        yield from load(paths)
        yield fork_time(paths)
        yield from beside_branches(paths)
        yield fork_bytes(paths)
        yield chain_load(paths)
        yield message_bytes(paths)
        yield indexed_bytes(paths)
        yield opening(paths)


class _DatabasePaths:
    """A generator of new database paths."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def new(self) -> Path:
        return self._folder / f"{uuid4()}.db"


def bare(path: Path) -> sqlite3.Connection:
    """Open a minimal table of rows, with the pragmas of our store."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute(_TABLE)
    return connection


def _messages(count: int) -> list[Message]:
    """Build new messages, untimed like the rows of a floor."""
    return [Message(content) for content in contents(count)]


def _bodies(count: int) -> list[bytes]:
    return [json.dumps(message.to_dict()).encode() for message in _messages(count)]


def _session(path: Path, size: int = 0) -> tuple[Session, Branch]:
    session = sennit.open(path).session("bench")
    branch = session.default_branch
    session.add_messages(_messages(size), branches=branch)
    return session, branch


def inserts(connection: sqlite3.Connection, bodies: list[bytes], each: int) -> None:
    """Insert rows, `each` per commit."""
    for start in range(0, len(bodies), each):
        connection.execute("BEGIN IMMEDIATE")
        for body in bodies[start : start + each]:
            connection.execute(_INSERT, (body,))
        connection.execute("COMMIT")


def append(paths: _DatabasePaths) -> Result:
    count = 300

    def ours(given: tuple[Session, Branch, list[Message]]) -> None:
        session, branch, messages = given
        for message in messages:
            session.add_message(message, branches=branch)

    bodies = _bodies(count)
    return compare(
        "durable append",
        Work(ours, lambda: (*_session(paths.new()), _messages(count))),
        Work(lambda given: inserts(given, bodies, 1), lambda: bare(paths.new())),
        floor_name="one insert per commit",
        count=count,
        bar=1 / 0.7,
    )


def group_commit(paths: _DatabasePaths) -> Result:
    tasks, each = 16, 50
    count = tasks * each

    async def write(session: Session, branch: Branch, messages: list[Message]) -> None:
        async def append_all(mine: list[Message]) -> None:
            for message in mine:
                await session.aadd_message(message, branches=branch)

        await asyncio.gather(*(append_all(messages[number::tasks]) for number in range(tasks)))

    bodies = _bodies(count)

    async def floor(connection: sqlite3.Connection) -> None:
        writer = AsyncFloor(connection)

        async def append_all(mine: list[bytes]) -> None:
            for body in mine:
                await writer.write(body)

        working = asyncio.create_task(writer.work())
        await asyncio.gather(*(append_all(bodies[number::tasks]) for number in range(tasks)))
        working.cancel()

    return compare(
        "durable append, 16 async tasks",
        Work(
            lambda given: asyncio.run(write(*given)),
            lambda: (*_session(paths.new()), _messages(count)),
        ),
        Work(lambda given: asyncio.run(floor(given)), lambda: bare(paths.new())),
        floor_name="bare group commit",
        count=count,
        bar=1 / 0.6,
    )


class AsyncFloor:
    """A minimal async group commit: a queue, a writer thread, a future per write.

    Each task awaits its own future. The queued rows are inserted and committed together in another
    thread, which then resolves the futures of that group.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._news = asyncio.Event()

    def write(self, body: bytes) -> asyncio.Future[None]:
        """Queue a row; the future resolves when it is committed."""
        finished = asyncio.get_running_loop().create_future()
        self._waiting.append((body, finished))
        self._news.set()
        return finished

    async def work(self) -> None:
        """Write queued rows until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            group, self._waiting = self._waiting, []
            rows = [body for body, _ in group]
            await asyncio.to_thread(inserts, self._connection, rows, len(rows))
            for _, finished in group:
                finished.set_result(None)


def load(paths: _DatabasePaths) -> Iterator[Result]:
    """Time opening a long session, and also reading its messages, which are decoded lazily."""
    size = 10_000
    path = paths.new()
    _session(path, size)
    bare = sqlite3.connect(path)
    decode = msgspec.json.Decoder().decode

    def ours(client: sennit.Client) -> object:
        return client.session("bench").default_branch.messages

    def read(client: sennit.Client) -> object:
        return [message.content for message in client.session("bench").default_branch.messages]

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


def fork_time(paths: _DatabasePaths) -> Result:
    def forks(size: int) -> Work:
        session, branch = _session(paths.new(), size)
        return Work(lambda _: [session.fork(branch) for _number in range(50)])

    return compare(
        "durable fork, 10,000 messages",
        forks(10_000),
        forks(100),
        floor_name="fork at 100",
        count=50,
        bar=1.5,
    )


def beside_branches(paths: _DatabasePaths) -> Iterator[Result]:
    """Time changes of one branch beside many branches and beside few."""
    few, many, each = 10, 10_000, 20

    def crowd(size: int) -> tuple[Session, Branch]:
        session, branch = _session(paths.new(), 20)
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

    def pop(prepared: tuple[Session, list[Branch]]) -> None:
        for fork in prepared[1]:
            fork.pop()

    def remove(prepared: tuple[Session, list[Branch]]) -> None:
        session, forks = prepared
        for fork in forks:
            session.remove_branch(fork)

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


def fork_bytes(paths: _DatabasePaths) -> Result:
    path = paths.new()
    session, branch = _session(path, 10_000)
    before = size_of(path)
    for _ in range(1000):
        session.fork(branch)
    grown = (size_of(path) - before) / 1000
    return Result("bytes of a fork", grown, 1024, "1 KB", unit="B", bar=1)


def message_bytes(paths: _DatabasePaths) -> Result:
    path = paths.new()
    session, _ = _session(path, 5_000)
    size = size_of(path)
    plain = sum(len(message.to_json()) for message in session.messages)
    return Result("bytes of 5,000 messages", size, plain, "their JSON", unit="B", bar=1.6)


def indexed_bytes(paths: _DatabasePaths) -> Result:
    path = paths.new()
    session, _ = _session(path, 5_000)
    with sennit.open(path) as client:
        client.search_messages("knot")  # brings the index up to date
    size = size_of(path)
    plain = sum(len(message.to_json()) for message in session.messages)
    name = "bytes of 5,000 messages with the index of words"
    return Result(name, size, plain, "their JSON", unit="B", bar=2)


def chain_load(paths: _DatabasePaths) -> Result:
    def chain(length: int) -> Path:
        path = paths.new()
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
    """Return the bytes of a database after a WAL checkpoint."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path.stat().st_size


def opening(paths: _DatabasePaths) -> Result:
    path = paths.new()
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
