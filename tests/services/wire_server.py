"""A provider on loopback: it answers with the bytes it was told to, and notes what it was asked.

Plain asyncio in a thread of its own, so that one server outlives the event loops of a test, and
every byte, pause and broken connection is the test's decision. An answer is a list of steps: bytes
are sent at once, STALL waits until the client hangs up, DROP breaks the connection off.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

STALL = object()
DROP = object()
Step: TypeAlias = "bytes | object"


@dataclass
class Asked:
    """A request as it came in."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class WireServer:
    """Answers each request with the next answer it was told; the last one stays."""

    answers: list[Iterable[Step]] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    hung_up: threading.Event = field(default_factory=threading.Event)
    """Set when a client has left in the middle of an answer."""
    closed: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Released whenever a connection has ended."""
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def says(self, *answers: Iterable[Step]) -> None:
        self.answers[:] = answers

    @property
    def body(self) -> dict[str, Any]:
        """What the last request held."""
        return self.asked[-1].body

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while (asked := await _read(reader)) is not None:
                self.asked.append(asked)
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if not await self._play(answer, reader, writer):
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            self.hung_up.set()
        finally:
            self.closed.release()
            writer.close()

    async def _play(
        self, answer: Iterable[Step], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        for step in answer:
            if step is STALL:
                await reader.read(1)  # nothing more is sent to us: this ends when the client leaves
                self.hung_up.set()
                return False
            if step is DROP:
                writer.transport.abort()
                return False
            assert isinstance(step, bytes)
            writer.write(step)
            await writer.drain()
        return True


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(first.split()[1], headers, json.loads(body) if body else {})


@contextmanager
def running() -> Iterator[WireServer]:
    """A server in a thread, for as long as the block lasts."""
    server, ready, loop = WireServer(), threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def main() -> None:
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        server.port = listening.sockets[0].getsockname()[1]
        ready.set()
        await stop.wait()
        listening.close()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(main())

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


def answer(
    body: bytes | Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> list[Step]:
    """A whole answer."""
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    told = {"content-type": "application/json", "content-length": str(len(sent)), **(headers or {})}
    return [_head(status, told) + sent]


def chunks(*pieces: Step, end: bool = True) -> list[Step]:
    """An event stream, each piece in an HTTP chunk of its own."""
    steps: list[Step] = [
        _head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
    ]
    steps.extend(chunk(piece) if isinstance(piece, bytes) else piece for piece in pieces)
    return [*steps, b"0\r\n\r\n"] if end else steps


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def chunk(piece: bytes) -> bytes:
    """An HTTP chunk."""
    return f"{len(piece):x}\r\n".encode() + piece + b"\r\n"


# OpenAI's form


def completion(
    content: str | None = "Hello", *, finish: str = "stop", usage: Any = None, **message: Any
) -> dict[str, Any]:
    """A chat completion."""
    said = {"role": "assistant", "content": content, **message}
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "wire-1",
        "choices": [{"index": 0, "message": said, "finish_reason": finish}],
        "usage": usage or {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }


def piece(finish: str | None = None, **delta: Any) -> bytes:
    """An event of a streamed chat completion."""
    return event({
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "wire-1",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    })  # fmt: skip


def call_piece(index: int, arguments: str | None = None, **more: Any) -> bytes:
    """An event with a piece of a tool call: its `id`, its `name`, more of its arguments."""
    function = {"name": more["name"]} if "name" in more else {}
    if arguments is not None:
        function["arguments"] = arguments
    call = {"index": index, "type": "function", "function": function}
    if "id" in more:
        call["id"] = more["id"]
    return piece(tool_calls=[call])


def usage_piece(**usage: Any) -> bytes:
    """The event that holds usage and no choice."""
    chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "wire-1"}
    return event({**chunk, "choices": [], "usage": usage})


def event(data: Any, name: str = "") -> bytes:
    """A server-sent event."""
    named = f"event: {name}\n" if name else ""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"{named}data: {text}\n\n".encode()


DONE = event("[DONE]")


def completed(*pieces: bytes, finish: str = "stop") -> list[Step]:
    """A streamed chat completion that ends as it should."""
    return chunks(*pieces, piece(finish), DONE)


# Anthropic's form


def anthropic_message(*blocks: Mapping[str, Any], stop: str = "end_turn") -> dict[str, Any]:
    """A message."""
    return {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "claude-wire",
        "content": list(blocks),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 5,
            "output_tokens": 3,
            "cache_read_input_tokens": 2,
            "cache_creation_input_tokens": 0,
        },
    }


def anthropic_event(kind: str, **fields: Any) -> bytes:
    """An event of a streamed message."""
    return event({"type": kind, **fields}, kind)


def anthropic_start() -> bytes:
    return anthropic_event("message_start", message={**anthropic_message(), "stop_reason": None})


def anthropic_block(index: int, block: Mapping[str, Any], *deltas: Mapping[str, Any]) -> bytes:
    """A content block from its start to its stop."""
    events: Iterable[bytes] = (
        anthropic_event("content_block_start", index=index, content_block=block),
        *(anthropic_event("content_block_delta", index=index, delta=delta) for delta in deltas),
        anthropic_event("content_block_stop", index=index),
    )
    return b"".join(events)


def anthropic_end(stop: str = "end_turn") -> bytes:
    delta = {"stop_reason": stop, "stop_sequence": None}
    return anthropic_event(
        "message_delta", delta=delta, usage={"output_tokens": 9}
    ) + anthropic_event("message_stop")
