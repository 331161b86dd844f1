"""`sennit token`: create, list and revoke tokens of the server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sennit.api.own_store import DEFAULT
from sennit.cli.help import CommandGroup
from sennit.cli.serve import TokensOption
from sennit.cli.targets import JsonOption
from sennit.cli.text import emit, note

app = CommandGroup(help="Create, list and revoke access tokens of the server.")


@app.command()
def create(
    user: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="User whose data the token can access (default: default)."
        ),
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Tenant of the user (default: default).")
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Agent name of the answers (default: assistant)."),
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SCOPE",
            help="read, write, run, or admin for all (default: all but admin). Repeatable.",
        ),
    ] = None,
    comment: Annotated[
        str, typer.Option("--note", metavar="TEXT", help="A note to recognize the token by.")
    ] = "",
    tokens: TokensOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a token and print it; it cannot be shown again."""
    from sennit.server.http.tokens import DEFAULT_SCOPES, add_token, new_token

    secret, entry = new_token(
        user=user, tenant=tenant, agent=agent, scopes=scope or DEFAULT_SCOPES, note=comment
    )
    path = _token_file(tokens)
    first = not path.exists()
    add_token(path, entry)
    emit(as_json, {"id": entry.id, "token": secret}, [secret])
    if not as_json:
        note(f"Token id: {entry.id}. Store the token now; it is not shown again.")
        if first:
            note("This is the first token: from now on, the server requires one.")


@app.command("ls")
def list_tokens(tokens: TokensOption = None, as_json: JsonOption = False) -> None:
    """List the tokens with their owners and scopes, never their secrets."""
    from sennit.server.http.tokens import SCOPES, read_tokens

    path = _token_file(tokens)
    entries = read_tokens(path).values() if path.exists() else ()
    rows: list[dict[str, Any]] = []
    lines: list[str] = []
    for entry in entries:
        scopes = [scope for scope in SCOPES if scope in entry.scopes]
        fields = ("id", "tenant", "user", "agent", "note", "created_at")
        rows.append({**{name: getattr(entry, name) for name in fields}, "scopes": scopes})
        owner = "/".join(DEFAULT if name is None else name for name in (entry.tenant, entry.user))
        row = f"{entry.id}  {entry.created_at}  {owner}  {','.join(scopes)}  {entry.note}"
        lines.append(row.rstrip())
    emit(as_json, rows, lines, "No tokens.")


@app.command()
def revoke(
    public: Annotated[str, typer.Argument(metavar="ID", help="The id that sennit token ls shows.")],
    tokens: TokensOption = None,
) -> None:
    """Revoke a token; a running server refuses it immediately."""
    from sennit.server.http.tokens import revoke_token

    revoke_token(_token_file(tokens), public)
    note(f"Token {public} is no longer valid.")


def _token_file(path: Path | None) -> Path:
    from sennit.server.http.tokens import default_token_file

    return default_token_file() if path is None else path
