"""Chat completions against a bare route that returns the same bytes, over loopback.

Each server is a process of its own and the load comes from this one: asyncio connections that stay
open, each asking the next question when the last is answered. The bare route runs in Starlette on
the same uvicorn, with the same protocol. Ours stores each conversation in SQLite with full
durability and has a model that answers at once. The first byte is that of a stream, which is sent
when a request is accepted; it is looked at where neither server is at its limit, as there it would
be the throughput once more.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.harness import Result

CLIENTS = 50
SECONDS = 3.0
ROUNDS = 3
ANSWER = "A bowline takes about forty centimetres of rope, and a sheet bend somewhat more. " * 2
_HEAD = (
    "POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
    "content-length: {size}\r\n{more}\r\n"
)

Question = Callable[[int, int], tuple[bytes, str]]
"""From a client and a number to a body and more headers."""


def run() -> Iterator[Result]:
    """All results of this step, one after another."""
    with tempfile.TemporaryDirectory() as folder, _bare() as bare, _ours(folder) as ours:
        for name, question in _QUESTIONS.items():
            yield _compare(name, question, ours, bare)
        yield _first_bytes(ours, bare)


def _compare(name: str, question: Question, ours: int, bare: int) -> Result:
    rates: dict[str, list[float]] = {"ours": [], "bare": []}
    for number in range(ROUNDS):
        rates["bare"].append(asyncio.run(load(bare, _plain, number)).rate)
        rates["ours"].append(asyncio.run(load(ours, question, number)).rate)
    return Result(
        f"a chat completion, {name}",
        1e6 / max(rates["ours"]),
        1e6 / max(rates["bare"]),
        "a bare Starlette route that returns the same bytes",
        bar=6,
    )


def _first_bytes(ours: int, bare: int) -> Result:
    waits: dict[str, list[float]] = {"ours": [], "bare": []}
    for number in range(ROUNDS):
        waits["bare"].append(asyncio.run(load(bare, _plain, number, pause=0.25)).first)
        waits["ours"].append(asyncio.run(load(ours, _streaming, number, pause=0.25)).first)
    return Result(
        f"first byte of a streamed completion, {CLIENTS} clients at 200 a second",
        1e6 * min(waits["ours"]),
        1e6 * min(waits["bare"]),
        "of the bare route",
        bar=3,
    )


def _same(_client: int, _number: int) -> tuple[bytes, str]:
    return _body("How much rope does a bowline take?"), ""


def _plain(client: int, number: int) -> tuple[bytes, str]:
    return _body(f"How much rope does a bowline take? ({client}, {number})"), ""


def in_session(client: int, number: int) -> tuple[bytes, str]:
    """A question in a session of the client's own."""
    return _plain(client, number)[0], f"x-sennit-session: client {client}\r\n"


def _new_session(client: int, number: int) -> tuple[bytes, str]:
    return _body(f"How much rope? {client}.{number}.{perf_counter()}"), ""


def _streaming(client: int, number: int) -> tuple[bytes, str]:
    asked = {**json.loads(_plain(client, number)[0]), "stream": True}
    return json.dumps(asked).encode(), f"x-sennit-session: client {client}\r\n"


_QUESTIONS: dict[str, Question] = {
    "said in a session that is named": in_session,
    "that begins a conversation": _new_session,
    "that everyone begins with the same words": _same,
}


def _body(text: str) -> bytes:
    asked = {"model": "instant", "messages": [{"role": "user", "content": text}]}
    return json.dumps(asked).encode()


@dataclass(slots=True)
class Load:
    """What came of asking for a while."""

    answered: int = 0
    seconds: float = 0.0
    waits: list[float] = field(default_factory=list[float])

    @property
    def rate(self) -> float:
        return self.answered / self.seconds

    @property
    def first(self) -> float:
        return median(self.waits)


async def load(
    port: int,
    question: Question,
    round_: int,
    pause: float = 0.0,
    clients: range = range(CLIENTS),
) -> Load:
    """Ask for a while, all clients at once."""
    result, start = Load(), perf_counter()
    await asyncio.gather(
        *(
            _ask_on(port, question, client, round_, start + SECONDS, pause, result)
            for client in clients
        )
    )
    result.seconds = perf_counter() - start
    return result


async def _ask_on(
    port: int, question: Question, client: int, round_: int, end: float, pause: float, result: Load
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    number = 0
    await asyncio.sleep(pause * client / CLIENTS)
    while (began := perf_counter()) < end:
        number += 1
        body, more = question(client, round_ * 1_000_000 + number)
        head = _HEAD.format(path="/v1/chat/completions", port=port, size=len(body), more=more)
        writer.write(head.encode() + body)
        first = await reader.readuntil(b"\r\n\r\n")
        result.waits.append(perf_counter() - began)
        await _rest(reader, first)
        result.answered += 1
        if pause:
            await asyncio.sleep(max(0.0, pause - (perf_counter() - began)))
    writer.close()


async def _rest(reader: asyncio.StreamReader, head: bytes) -> None:
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"The server said {head!r}")
    lower = head.lower()
    if b"transfer-encoding: chunked" in lower:
        await reader.readuntil(b"\r\n0\r\n\r\n")
        return
    size = int(lower.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    await reader.readexactly(size)


@contextmanager
def _process(*arguments: str) -> Generator[int]:
    """A server in a process of its own; gives its port."""
    command = [sys.executable, "-m", "benchmarks.completions_process", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()


def _bare() -> AbstractContextManager[int]:
    return _process("bare")


def _ours(folder: str) -> AbstractContextManager[int]:
    return _process("ours", str(Path(folder) / "bench.db"))


if __name__ == "__main__":
    for one in run():
        print(f"{one.name}: {one.ours:.0f} / {one.floor:.0f} µs = {one.ratio:.2f} (≤ {one.bar})")
