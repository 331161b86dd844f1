"""The app: all routes behind one gate. It only assembles."""

from __future__ import annotations

from asyncio import create_task, sleep
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from sennit.errors import SennitError
from sennit.server import (
    approvals,
    branches,
    files,
    finding,
    learning,
    memories,
    messages,
    openai_chat,
    openai_conversations,
    openai_responses,
    openapi,
    places,
    runs,
    seen,
    service,
    sessions,
    studio_files,
    usage,
)
from sennit.server.dispatch import Dispatcher
from sennit.server.endpoint import Endpoint
from sennit.server.framework import ASGIApp, Starlette
from sennit.server.gate import Gate
from sennit.server.mcp_api import McpFace
from sennit.server.settings import Limits, ServerSettings
from sennit.server.state import ServerState

_ROOMS = (
    service,
    sessions,
    branches,
    messages,
    places,
    runs,
    approvals,
    seen,
    learning,
    memories,
    files,
    finding,
    usage,
    openai_chat,
    openai_conversations,
    openai_responses,
)


def endpoints() -> list[Endpoint]:
    """All endpoints there are: the table of routes."""
    table = [one for room in _ROOMS for one in room.endpoints()]
    table.append(openapi.endpoint(table))
    return table


@asynccontextmanager
async def _watching(gate: Gate, limits: Limits) -> AsyncGenerator[None]:
    """Look at the token file at every heartbeat, so that streams end also when nobody asks."""

    async def watch() -> None:
        while True:
            await sleep(limits.heartbeat)
            with suppress(SennitError):  # told to whoever sends the next request
                gate.check_tokens()

    task = create_task(watch(), name="token file")
    try:
        yield
    finally:
        task.cancel()


class _App(Starlette):
    """The app without Starlette's own middleware: the dispatcher and uvicorn answer errors."""

    def build_middleware_stack(self) -> ASGIApp:
        app: ASGIApp = self.router
        for kind, given, named in reversed(self.user_middleware):
            app = kind(app, *given, **named)
        return app


def create_app(settings: ServerSettings) -> Starlette:
    """The server as an ASGI app; its `state.server` is what all requests share."""
    server = ServerState(settings)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
        async with server.running(), mcp.running(), _watching(gate, server.settings.limits):
            yield

    mcp = McpFace(server)
    mounts: dict[str, ASGIApp] = {"/mcp": mcp, "": studio_files.StudioFiles()}
    table = endpoints()
    public = [*studio_files.PUBLIC, *(one.path for one in table if one.scope is None)]
    gate = Gate(server, Dispatcher(server, table, mounts), public=public)
    app = _App(lifespan=lifespan)
    app.router.default = gate  # no route of Starlette's own, which would answer before the gate
    app.router.redirect_slashes = False
    app.state.server = server
    return app
