"""The server: what it adds to a bare Starlette route that gives the same bytes, under load.

Both are served by uvicorn, one after the other in this process and in turns, and asked by another
process. The store is a SQLite file at full durability.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.harness import Result
from benchmarks.load import Took, request, under_load
from sennit.server.app import create_app
from sennit.server.run import Server, listen
from sennit.server.settings import Limits, ServerSettings
from sennit.services.models.reply import Delta, Finished, Reply, ReplyText, TextDelta, Usage
from sennit.services.models.request import ModelRequest

CLIENTS = 50
EACH = 20
ROUNDS = 3
STREAMS = 300
_WORDS = ["A", "bowline", "takes", "about", "forty", "centimetres", "of", "rope.", ""]


class Instant:
    """Answers at once, always the same."""

    name = "instant"
    window = None
    streams = True
    supports_output_schema = False

    async def aask(self, request: ModelRequest) -> Reply:  # noqa: ARG002 - the same to all
        return Reply((ReplyText(" ".join(_WORDS)),), "stop", Usage(50, 10))

    @asynccontextmanager
    async def stream(
        self,
        request: ModelRequest,  # noqa: ARG002 - the same to all
    ) -> AsyncGenerator[AsyncIterator[Delta]]:
        yield _deltas()


async def _deltas() -> AsyncIterator[Delta]:
    for word in _WORDS:
        yield TextDelta(f"{word} ")
    yield Finished("stop", Usage(50, 10))


def bare(answer: bytes, media: str = "application/json") -> Starlette:
    """A route that reads what it is sent and gives these bytes, and does nothing else."""

    async def give(asked: Request) -> Response:
        await asked.body()
        return Response(answer, media_type=media)

    return Starlette(routes=[Route("/", give, methods=["GET", "POST"])])


@contextmanager
def running(app: Any, settings: ServerSettings | None = None) -> Iterator[int]:
    """An app on a port, with uvicorn as we run it."""
    listener = listen(settings or ServerSettings(port=0))
    if settings is None:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", ws="none"))
    else:
        server = Server(app, settings)
    thread = Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def serving(folder: Path, **more: Any) -> Iterator[int]:
    """Our server on a port, with a model that answers at once."""
    settings = ServerSettings(
        url=folder / "s.db", port=0, models=(Instant(),), limits=Limits(rate=None), **more
    )
    with running(create_app(settings), settings) as port:
        yield port


def branches(port: int, count: int) -> list[str]:
    """Paths of branches, each in a session of its own."""
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        responses = (
            client.post("/api/sessions", json={"system": "Be brief."}) for _ in range(count)
        )
        return [f"/api/sessions/{response.json()['id']}/branches/main" for response in responses]


def _best(port: int, asked: list[str], each: int, status: str) -> Took:
    took = under_load(port, asked, each=each)
    if set(took.statuses) != {status}:
        raise AssertionError(f"Expected {status} alone, got {took.statuses}.")
    return took


def run() -> Iterator[Result]:
    """Each beside a route that gives the same bytes."""
    yield from _requests()
    yield from _streams()


def _requests() -> Iterator[Result]:
    """Saying something, and reading it."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as port:
        paths = branches(port, CLIENTS)
        body = {"role": "user", "text": "How much rope does a bowline take?"}
        cases = (
            ("say something over HTTP", "201", "POST", "/messages", body, 6.0),
            ("read messages over HTTP", "200", "GET", "/messages?limit=10", None, None),
        )
        for name, status, method, end, given, bar in cases:
            asked = [request(method, path + end, given) for path in paths]
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
                content = client.request(method, paths[0] + end, json=given).content
            with running(bare(content)) as floor:
                plain = [request(method, "/", given)] * CLIENTS
                pairs = [
                    (_best(port, asked, EACH, status), _best(floor, plain, EACH, "200"))
                    for _ in range(ROUNDS)
                ]
            ours = min(took.each for took, _ in pairs)
            least = min(took.each for _, took in pairs)
            yield Result(f"{name}, {CLIENTS} clients", ours, least, "bare route", bar=bar)


def _streams() -> Iterator[Result]:
    """Many streams of one finished run: what an event costs on its way out."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as port:
        [path] = branches(port, 1)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            started = client.post(f"{path}/runs", json={"text": "Hello", "memory": False}).json()
            content = client.get(started["events"]).content
        with running(bare(content, "text/event-stream")) as floor:
            ours = _best(port, [request("GET", started["events"])] * STREAMS, 2, "200")
            least = _best(floor, [request("GET", "/")] * STREAMS, 2, "200")
        name = f"{STREAMS} streams of one run"
        yield Result(name, ours.each, least.each, "bare route")


if __name__ == "__main__":
    from benchmarks.harness import show

    print(show(list(run())))
