"""`sennit serve` and `mcp`: the HTTP server, and an MCP server over stdio."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from os.path import expanduser
from pathlib import Path
from typing import Annotated

import typer

from sennit.api.local_models import check_model
from sennit.api.open import open as open_client
from sennit.cli.chat import BETTER, TINY
from sennit.cli.load import load_tools, mcp_servers
from sennit.cli.targets import (
    AskOption,
    BaseUrlOption,
    McpOption,
    MemoryOption,
    StoreOption,
    ToolOption,
)
from sennit.cli.text import note
from sennit.errors import MissingExtraError, ModelError, SennitError
from sennit.services.models.imodel import iModel


def _expand_home(path: Path | None) -> Path | None:
    """Expand "~", which shells do not expand after `--tokens=`."""
    return None if path is None else Path(expanduser(path))


TokensOption = Annotated[
    Path | None,
    typer.Option(
        "--tokens",
        metavar="FILE",
        help="Token file (default: tokens.json in your data folder).",
        callback=_expand_home,
    ),
]


def serve(
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="Address to listen on; any but loopback requires tokens."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, metavar="N", help="Port to listen on; 0 chooses a free one."
        ),
    ] = 8765,
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL",
            help="Model, as for sennit chat; the first is the default. Repeatable.",
        ),
    ] = None,
    base_url: BaseUrlOption = None,
    tool: ToolOption = None,
    mcp: McpOption = None,
    ask: AskOption = None,
    memory: MemoryOption = True,
    tokens: TokensOption = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Additional host name to accept. Repeatable."),
    ] = None,
    shared_space: Annotated[
        list[str] | None,
        typer.Option(metavar="TENANT", help="Open the shared space of a tenant. Repeatable."),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(min=0, metavar="N", help="Requests per second and token; 0 for no limit."),
    ] = 100,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Set another limit, such as token_streams=500; 'none' removes it. Repeatable.",
        ),
    ] = None,
    retention_days: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=36_500,
            metavar="DAYS",
            help="Erase removed messages after this many days; 0 erases them at once "
            "(default: SENNIT_RETENTION_DAYS, or 30).",
        ),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Start the HTTP server: REST, event streams, APIs of OpenAI and Anthropic, MCP, web page."""
    from sennit.memory.retrieval.minilm import installed_embedder
    from sennit.server.http.tokens import default_token_file
    from sennit.server.run import listen
    from sennit.server.run import serve as run
    from sennit.server.settings import ServerSettings, parse_limits

    names = model or ["local"]
    settings = ServerSettings(
        url=store,
        host=host,
        port=port,
        models=tuple(iModel(name, base_url=base_url) for name in names),
        tools=load_tools(tool or (), ask),
        servers=mcp_servers(mcp or (), ask),
        tokens=default_token_file() if tokens is None else tokens,
        allow_hosts=tuple(allow_host or ()),
        memory=memory,
        embedder=installed_embedder(),
        shared_spaces=tuple(shared_space or ()),
        retention=None if retention_days is None else timedelta(days=retention_days),
        limits=parse_limits(limit or (), rate=rate or None),
    )
    for name in model or ():
        check_model(name)
    missing = None if model else _missing_model()
    listener = listen(settings)
    url_host = f"[{host}]" if ":" in host else host
    note(f"Sennit is listening on http://{url_host}:{listener.getsockname()[1]}")
    if missing is not None:
        note(f"There is no model to answer; choose one with --model. {missing}")
    elif names == ["local"]:
        note(f"{TINY} {BETTER.replace('make chat', 'make serve')}")
    run(settings, listener)


def _missing_model() -> SennitError | None:
    """Return the reason if the embedded model cannot answer; sessions can be read without it."""
    try:
        check_model()
    except (MissingExtraError, ModelError) as error:
        return error
    return None


def mcp(
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Model that answers continue_session, as for sennit chat."
        ),
    ] = None,
    base_url: BaseUrlOption = None,
    tool: ToolOption = None,
    ask: AskOption = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Forbid all changes.")] = False,
    store: StoreOption = None,
) -> None:
    """Serve sessions and memories as MCP tools on stdin and stdout.

    Add it to the settings of an assistant that supports MCP servers: {"command": "sennit", "args":
    ["mcp"]}. Over HTTP, sennit serve offers the same at /mcp.
    """
    try:
        from sennit.server.http.tokens import SCOPES, Scope
        from sennit.server.mcp.scope import McpScope
        from sennit.server.mcp.server import serve_stdio
    except ImportError as error:
        raise MissingExtraError.of("sennit mcp", "mcp") from error
    chat_model = None if model is None else iModel(model, base_url=base_url)
    tools = load_tools(tool or (), ask)
    if model is not None:
        check_model(model)
    allowed: tuple[Scope, ...] = ("read",) if read_only else SCOPES
    with open_client(store) as client:
        asyncio.run(serve_stdio(McpScope(client, frozenset(allowed), chat_model, tools=tools)))
