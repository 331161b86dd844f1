"""The app: all routes behind one gate. It only assembles."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp

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
from sennit.server.gate import Gate
from sennit.server.mcp_api import McpFace
from sennit.server.settings import ServerSettings
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


def create_app(settings: ServerSettings) -> Starlette:
    """The server as an ASGI app; its `state.server` is what all requests share."""
    server = ServerState(settings)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
        async with server.running(), mcp.running():
            yield

    mcp = McpFace(server)
    mounts: dict[str, ASGIApp] = {"/mcp": mcp, "": studio_files.StudioFiles()}
    table = endpoints()
    public = [*studio_files.PUBLIC, *(one.path for one in table if one.scope is None)]
    gate = Gate(server, Dispatcher(server, table, mounts), public=public)
    app = Starlette(routes=[Mount("/", app=gate)], lifespan=lifespan)
    app.state.server = server
    return app
