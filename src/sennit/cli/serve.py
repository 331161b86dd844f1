"""`sennit serve`: start the server with the options given."""

from __future__ import annotations

from datetime import timedelta
from os.path import expanduser
from pathlib import Path
from typing import Annotated

import typer

from sennit.api.local_models import check_model
from sennit.cli.chat import BETTER, TINY
from sennit.cli.load_tools import load_tools, mcp_servers
from sennit.cli.targets import StoreOption
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

LimitOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="Set another limit, such as token_streams=500; 'none' removes it. Repeatable.",
    ),
]
RetentionOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=36_500,
        help="Erase removed messages after this many days; 0 erases them at once "
        "(default: SENNIT_RETENTION_DAYS, or 30).",
    ),
]


def serve(
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but loopback requires tokens.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.")
    ] = 8765,
    model: Annotated[
        list[str] | None,
        typer.Option(help="Model, as for sennit chat; the first is the default. Repeatable."),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(help="Base URL of an API-compatible server.")
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE.py[:FUNCTION]",
            help="Functions that models may call, or: time, calculator. Repeatable.",
        ),
    ] = None,
    mcp: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COMMAND|URL", help="MCP server whose tools models may call. Repeatable."
        ),
    ] = None,
    ask: Annotated[
        bool | None,
        typer.Option("--ask/--yes", help="Require approval of all tool calls, or none."),
    ] = None,
    memory: Annotated[
        bool, typer.Option("--memory/--no-memory", help="Add memories to prompts.")
    ] = True,
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
        float | None, typer.Option(min=0, help="Requests per second and token; 0 for no limit.")
    ] = 100,
    limit: LimitOption = None,
    retention_days: RetentionOption = None,
    store: StoreOption = None,
) -> None:
    """Start the HTTP server: REST API, event streams, OpenAI-compatible API, MCP, web page."""
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
        shared_spaces=tuple(shared_space or ()),
        retention=None if retention_days is None else timedelta(days=retention_days),
        limits=parse_limits(limit or (), rate=rate or None),
    )
    for name in names:
        check_model(name)
    listener = listen(settings)
    url_host = f"[{host}]" if ":" in host else host
    typer.echo(f"Sennit is listening on http://{url_host}:{listener.getsockname()[1]}", err=True)
    if names == ["local"]:
        typer.echo(f"{TINY} {BETTER.replace('make chat', 'make serve')}", err=True)
    run(settings, listener)
