"""Health, readiness, the caller and the available models."""

from __future__ import annotations

import logging
from asyncio import to_thread
from functools import cache
from importlib.metadata import version
from typing import Final

from sennit.errors import ModelError, SennitError
from sennit.server.http.endpoint import HTTPRequest, ResponseModel, Routes
from sennit.server.http.errors import HTTPError
from sennit.server.http.tokens import SCOPES
from sennit.services.models.protocol import Model

routes: Final = Routes()


class Health(ResponseModel):
    """The status of the server."""

    status: str
    version: str


class Me(ResponseModel):
    """The caller."""

    tenant: str
    user: str
    agent: str
    scopes: list[str]


class ModelShape(ResponseModel):
    """A model of the server."""

    name: str
    default: bool
    window: int | None
    """The size of its context window in tokens, if known."""
    tiny: bool
    """Whether it is the small embedded model."""


class ToolShape(ResponseModel):
    """A tool that models may call."""

    name: str
    description: str
    needs_approval: bool


class Models(ResponseModel):
    """The models and tools of the server."""

    models: list[ModelShape]
    tools: list[ToolShape]


_log = logging.getLogger(__name__)


@cache
def _version() -> str:
    return version("sennit")


@routes.get("/api/health", scope=None)
async def health(_request: HTTPRequest) -> Health:
    """Check that the server is running."""
    return Health(status="ok", version=_version())


@routes.get("/api/ready", scope=None)
async def ready(request: HTTPRequest) -> Health:
    """Check that the server can reach its database.

    Raises HTTPError 503 if it cannot be reached.
    """
    try:
        await request.server.check_store()
    except SennitError as error:
        _log.warning("Not ready: %s", error)  # the response is public, so it names no host or path
        message = "The database cannot be reached; see the server's log."
        raise HTTPError(503, "not_ready", message, headers={"retry-after": "5"}) from None
    return Health(status="ready", version=_version())


@routes.get("/api/me", scope="read")
async def me(request: HTTPRequest) -> Me:
    """Read the caller and its scopes."""
    client = request.caller.client
    scopes = [scope for scope in SCOPES if scope in request.caller.scopes]
    return Me(tenant=client.tenant, user=client.user, agent=client.agent, scopes=scopes)


@routes.get("/api/models", scope="read")
async def models(request: HTTPRequest) -> Models:
    """List the models, and the tools they may call."""
    default = next(iter(request.server.models))
    shapes = [
        ModelShape(
            name=name,
            default=name == default,
            window=await to_thread(_window, model),
            tiny=name == "local",
        )
        for name, model in request.server.models.items()
    ]
    tools = [
        ToolShape(name=tool.name, description=tool.description, needs_approval=tool.needs_approval)
        for tool in request.server.tools.values()
    ]
    return Models(models=shapes, tools=tools)


def _window(model: Model) -> int | None:
    try:
        return model.window
    except ModelError:  # cannot be reached now; a run reports why
        return None
