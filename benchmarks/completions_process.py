"""The two servers of the benchmark, each run as a process: `bare`, or `ours` with a store."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.completions import ANSWER
from sennit.server.openai.chat import completion
from sennit.server.openai.translate import ModelAnswer, answer_message
from sennit.server.run import listen, serve
from sennit.server.settings import ServerSettings
from sennit.services.models.reply import Delta, Finished, Reply, ReplyText, TextDelta, Usage
from sennit.services.models.request import ModelRequest


class Instant:
    """Answers the same to everyone, at once."""

    name = "instant"
    window = None
    streams = True
    supports_output_schema = False

    async def aask(self, request: ModelRequest) -> Reply:  # noqa: ARG002 - the same to all
        return Reply((ReplyText(ANSWER),), "stop", Usage(20, 40))

    @asynccontextmanager
    async def stream(
        self,
        request: ModelRequest,  # noqa: ARG002 - the same to all
    ) -> AsyncGenerator[AsyncIterator[Delta]]:
        yield _words()


async def _words() -> AsyncIterator[Delta]:
    yield TextDelta(ANSWER)
    yield Finished("stop", Usage(20, 40))


def _bare() -> None:
    from sennit.messages.codec import dumps

    body = dumps(completion("chatcmpl-1", "instant", 0, ModelAnswer((answer_message(ANSWER),))))

    async def route(request: Request) -> Response:
        await request.body()
        return Response(body, media_type="application/json")

    app = Starlette(routes=[Route("/v1/chat/completions", route, methods=["POST"])])
    listener = listen(ServerSettings(port=0))  # as ours does, or small answers would wait
    config = uvicorn.Config(app, http="h11", access_log=False, log_level="warning")
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(config).run(sockets=[listener])


def _ours(store: str) -> None:
    settings = ServerSettings(url=store, port=0, models=(Instant(),), memory=False)
    listener = listen(settings)
    print(listener.getsockname()[1], flush=True)
    serve(settings, listener)


if __name__ == "__main__":
    _bare() if sys.argv[1] == "bare" else _ours(sys.argv[2])
