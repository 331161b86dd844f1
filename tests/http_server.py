"""The real server on a loopback port, in a thread of the test's own process.

with serving(tmp_path / "s.db", models=[ScriptedModel(["Hello!"])]) as server:
    assert server.get("/api/health").status_code == 200
"""

from __future__ import annotations

import json
from asyncio import AbstractEventLoop, Future, get_running_loop
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import httpx

from sennit.server.app import create_app
from sennit.server.run import Server, listen
from sennit.server.settings import Limits, ServerSettings
from sennit.server.state import ServerState
from sennit.services.models.reply import Delta, Finished, Reply, ReplyText, TextDelta, Usage
from sennit.services.models.request import ModelRequest
from sennit.services.tools.tool import Tool
from sennit.testing import ScriptedModel


class Running:
    """A server that runs, and how to ask it."""

    def __init__(self, url: str, state: ServerState | None) -> None:
        self.url, self._state = url, state
        self._clients: list[httpx.Client] = []
        self.http = self._client()

    @property
    def state(self) -> ServerState:
        """What the server has; for one in this process."""
        assert self._state is not None, "the server is in another process"
        return self._state

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def as_holder(self, token: str) -> httpx.Client:
        """Ask as whoever holds a token."""
        return self._client({"authorization": f"Bearer {token}"})

    def _client(self, headers: dict[str, str] | None = None) -> httpx.Client:
        made = httpx.Client(
            base_url=self.url, timeout=30, trust_env=False, verify=False, headers=headers
        )
        self._clients.append(made)
        return made

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.http.get(path, **more)

    def post(self, path: str, json: Any = None, **more: Any) -> httpx.Response:
        return self.http.post(path, json={} if json is None else json, **more)

    def delete(self, path: str, **more: Any) -> httpx.Response:
        return self.http.delete(path, **more)

    def put(self, path: str, json: Any = None, **more: Any) -> httpx.Response:
        return self.http.put(path, json={} if json is None else json, **more)


@contextmanager
def serving(
    store: str | PathLike[str] = ":memory:",
    *,
    models: Iterable[Any] = (),
    tools: Iterable[Any] = (),
    tokens: Path | None = None,
    limits: Limits | None = None,
    port: int = 0,
    **more: Any,
) -> Generator[Running]:
    """A server, stopped as a signal would stop it at the end of the block."""
    settings = ServerSettings(
        url=store,
        port=port,
        models=tuple(models) or (ScriptedModel([], name="scripted"),),
        tools=tuple(one if isinstance(one, Tool) else Tool(one) for one in tools),
        tokens=tokens,
        limits=limits or Limits(),
        **more,
    )
    listener = listen(settings)
    app = create_app(settings)
    server = Server(app, settings)
    thread = Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    running = Running(f"http://127.0.0.1:{listener.getsockname()[1]}", app.state.server)
    try:
        running.get("/api/health").raise_for_status()
        yield running
    finally:
        running.close()
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive(), "the server did not end"


class Gate:
    """What a model in the server waits at until the test opens it; and the other way round."""

    def __init__(self) -> None:
        self._reached, self._opened = Event(), Event()
        self._waiting: list[tuple[AbstractEventLoop, Future[None]]] = []
        self._lock = Lock()

    async def pass_through(self) -> None:
        loop = get_running_loop()
        waiter: Future[None] = loop.create_future()
        with self._lock:
            if not self._opened.is_set():
                self._waiting.append((loop, waiter))
            else:
                waiter.set_result(None)
            self._reached.set()
        await waiter

    def reached(self) -> None:
        """Wait until somebody stands there."""
        assert self._reached.wait(30), "nobody came to the gate"

    def open(self) -> None:
        with self._lock:
            self._opened.set()
            for loop, waiter in self._waiting:
                loop.call_soon_threadsafe(_let, waiter)


def _let(waiter: Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Talker:
    """A model that repeats the last thing said, word by word; it may wait after the first word."""

    window = None
    streams = True
    supports_output_schema = False

    def __init__(self, name: str = "talker", gate: Gate | None = None, words: int = 0) -> None:
        self.name, self.gate, self.words = name, gate, words
        self.asked = 0

    def _answer(self, request: ModelRequest) -> list[str]:
        self.asked += 1
        if self.words:
            return [f"{number} " for number in range(self.words)]
        said = [one["content"] for one in request.messages if one["role"] == "user"][-1]
        return [f"{word} " for word in f"You said: {said}".split()]

    async def aask(self, request: ModelRequest) -> Reply:
        text = "".join(self._answer(request)).strip()
        return Reply((ReplyText(text),), "stop", Usage(3, 5, cost=0.001), self.name)

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        yield self._deltas(self._answer(request))

    async def _deltas(self, words: list[str]) -> AsyncGenerator[Delta]:
        for number, word in enumerate(words):
            if number == 1 and self.gate is not None:
                await self.gate.pass_through()
            yield TextDelta(word)
        yield Finished("stop", Usage(3, 5, cost=0.001), self.name)


@dataclass(frozen=True, slots=True)
class Told:
    """One event as it came over a stream."""

    seq: int
    kind: str
    data: dict[str, Any]


def events_in(lines: Iterable[str]) -> Iterator[Told]:
    """The events in the lines of a stream; comments are left out."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            told = json.loads(fields["data"])
            assert (str(told["seq"]), told["kind"]) == (fields["id"], fields["event"])
            yield Told(int(fields["id"]), fields["event"], told)
            fields = {}
        else:
            fields = {}


@contextmanager
def following(server: Running, path: str, last: int | None = None) -> Generator[Iterator[Told]]:
    """The events at a path as they come; `last` is the number of the last one seen."""
    headers = {} if last is None else {"last-event-id": str(last)}
    with server.http.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield events_in(answer.iter_lines())


def all_events(server: Running, path: str, last: int | None = None) -> list[Told]:
    """The events at a path until the stream ends."""
    with following(server, path, last) as events:
        return list(events)


PLAIN = {"coalesce_tokens": False}


def new_branch(server: Running) -> str:
    """The path of a new session's branch."""
    session = server.post("/api/sessions", {"system": "Be brief."}).json()["id"]
    return f"/api/sessions/{session}/branches/main"


def run(server: Running, branch: str, text: str | None = "Hello", **more: Any) -> dict[str, Any]:
    answer = server.post(f"{branch}/runs", {"text": text, "streaming": PLAIN, **more})
    assert answer.status_code == 202, answer.text
    return answer.json()


def texts(server: Running, branch: str) -> list[str]:
    return [one["text"] for one in server.get(f"{branch}/messages").json()["messages"]]
