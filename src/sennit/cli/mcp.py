"""`sennit mcp`: an MCP server over stdio."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from sennit.api.local_models import check_model
from sennit.api.open import open as open_client
from sennit.cli.targets import StoreOption
from sennit.errors import MissingExtraError
from sennit.services.models.imodel import iModel


def mcp(
    model: Annotated[
        str | None,
        typer.Option(help="Model that answers continue_session, as for sennit chat."),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(help="Base URL of an API-compatible server.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Forbid all changes.")] = False,
    store: StoreOption = None,
) -> None:
    """Serve sessions and memories as MCP tools on stdin and stdout.

    Add it to the settings of an assistant that supports MCP servers: {"command": "sennit", "args":
    ["mcp"]}. Over HTTP, sennit serve offers the same at /mcp.
    """
    try:
        from sennit.server.http.tokens import SCOPES, Scope
        from sennit.server.mcp.server import serve_stdio
        from sennit.server.mcp.tools import McpScope
    except ImportError as error:
        raise MissingExtraError.of("sennit mcp", "mcp") from error
    chat_model = None if model is None else iModel(model, base_url=base_url)
    if model is not None:
        check_model(model)
    allowed: tuple[Scope, ...] = ("read",) if read_only else SCOPES
    with open_client(store) as client:
        asyncio.run(serve_stdio(McpScope(client, frozenset(allowed), chat_model)))
