"""Health, readiness, the caller and the available models."""

from __future__ import annotations

import logging
from asyncio import to_thread
from functools import cache
from importlib.metadata import version

from sennit.errors import ModelError, SennitError
from sennit.server.http.endpoint import HTTPRequest, ResponseModel, Routes
from sennit.server.http.errors import HTTPError
from sennit.server.http.tokens import SCOPES
from sennit.services.models.protocol import Model

routes = Routes()


class Health(ResponseModel):
    """That the server is there."""

    status: str
    version: str


class Me(ResponseModel):
    """The caller."""

    tenant: str
    user: str
    agent: str
    scopes: list[str]


class ModelShape(ResponseModel):
    """A model that may be asked."""

    name: str
    default: bool
    window: int | None
    """How many tokens it takes in, if that is known."""
    tiny: bool
    """Whether it is the embedded toy, of which nobody should expect much."""


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


@routes.get("/api/health", scope=None, summary="Whether the server is there", answer=Health)
async def health(_request: HTTPRequest) -> Health:
    """That the server is there."""
    return Health(status="ok", version=_version())


@routes.get(
    "/api/ready",
    scope=None,
    summary="Whether the server can reach its database, and so answer",
    answer=Health,
)
async def ready(request: HTTPRequest) -> Health:
    """That the server can reach its database; raises HTTPError 503 if it cannot."""
    try:
        await request.server.check_store()
    except SennitError as error:
        _log.warning("Not ready: %s", error)  # the answer is public, and names no host or path
        message = "The database cannot be reached; the server's log says why."
        raise HTTPError(503, "not_ready", message, headers={"retry-after": "5"}) from None
    return Health(status="ready", version=_version())


@routes.get("/api/me", scope="read", summary="Who you are, and what you may do", answer=Me)
async def me(request: HTTPRequest) -> Me:
    """Return the caller and its scopes."""
    client = request.caller.client
    scopes = [scope for scope in SCOPES if scope in request.caller.scopes]
    return Me(tenant=client.tenant, user=client.user, agent=client.agent, scopes=scopes)


@routes.get(
    "/api/models",
    scope="read",
    summary="The models that may be asked, and the tools they may call",
    answer=Models,
)
async def models(request: HTTPRequest) -> Models:
    """List the models; one may have to be reached to know its context window."""
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
    except ModelError:  # it cannot be reached now; whoever asks it is told why
        return None
