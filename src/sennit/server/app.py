"""The ASGI application: routes, middleware and lifespan."""

from __future__ import annotations

from asyncio import create_task, sleep
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from sennit.errors import SennitError
from sennit.server import studio
from sennit.server.anthropic import messages as anthropic_messages
from sennit.server.frontends import ag_ui, ai_sdk
from sennit.server.http import openapi
from sennit.server.http.auth import AuthMiddleware
from sennit.server.http.endpoint import Endpoint
from sennit.server.http.router import Router
from sennit.server.http.starlette_imports import ASGIApp, Starlette
from sennit.server.mcp.server import McpApp
from sennit.server.openai import (
    chat,
    completions,
    conversations,
    embeddings,
    responses,
    websocket,
)
from sennit.server.rest import (
    approvals,
    blobs,
    branches,
    files,
    health,
    learning,
    memories,
    messages,
    prompt_inspection,
    runs,
    search,
    sessions,
    usage,
)
from sennit.server.settings import Limits, ServerSettings
from sennit.server.state import ServerState

_MODULES = (
    health,
    sessions,
    branches,
    messages,
    blobs,
    runs,
    approvals,
    prompt_inspection,
    learning,
    memories,
    files,
    search,
    usage,
    chat,
    completions,
    conversations,
    embeddings,
    responses,
    anthropic_messages,
    ai_sdk,
    ag_ui,
)


def endpoints() -> list[Endpoint]:
    """Return the table of routes."""
    table = [endpoint for module in _MODULES for endpoint in module.routes]
    table.append(openapi.endpoint(table))
    return table


@asynccontextmanager
async def _watch_tokens(auth: AuthMiddleware, limits: Limits) -> AsyncGenerator[None]:
    """Check the token file at every heartbeat, so that streams of revoked tokens end."""

    async def watch() -> None:
        while True:
            await sleep(limits.heartbeat)
            with suppress(SennitError):  # reported to the next request
                auth.check_tokens()

    task = create_task(watch(), name="token file")
    try:
        yield
    finally:
        task.cancel()


class _App(Starlette):
    """A Starlette app without its error middleware: the router and uvicorn handle errors."""

    def build_middleware_stack(self) -> ASGIApp:
        app: ASGIApp = self.router
        for kind, args, kwargs in reversed(self.user_middleware):
            app = kind(app, *args, **kwargs)
        return app


def create_app(settings: ServerSettings) -> Starlette:
    """Return the ASGI app of a server; its `state.server` is the ServerState."""
    server = ServerState(settings)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
        async with server.running(), mcp.running(), _watch_tokens(auth, server.settings.limits):
            yield

    mcp = McpApp(server)
    mounts: dict[str, ASGIApp] = {"/mcp": mcp, "": studio.StudioFiles()}
    table = endpoints()
    public = [*studio.PUBLIC, *(endpoint.path for endpoint in table if endpoint.scope is None)]
    sockets = {websocket.PATH: websocket.serve_websocket}
    auth = AuthMiddleware(server, Router(server, table, mounts), public=public, sockets=sockets)
    app = _App(lifespan=lifespan)
    app.router.default = auth  # Starlette's own routes would bypass authentication
    app.router.redirect_slashes = False
    app.state.server = server
    return app
