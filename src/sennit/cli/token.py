"""`sennit token`: create, list and revoke tokens of the server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sennit.api.own_store import DEFAULT
from sennit.cli.serve import TokensOption
from sennit.cli.sessions import print_json
from sennit.cli.targets import JsonOption
from sennit.cli.text import clean

app = typer.Typer(no_args_is_help=True, help="Create, list and revoke access tokens of the server.")


@app.command()
def create(
    user: Annotated[
        str | None, typer.Option(help="User whose data the token can access (default: default).")
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(help="Tenant of the user (default: default).")
    ] = None,
    agent: Annotated[
        str | None, typer.Option(help="Agent name of the answers (default: assistant).")
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="read, write, run, or admin for all (default: all but admin). Repeatable."
        ),
    ] = None,
    note: Annotated[str, typer.Option(help="A note to recognize the token by.")] = "",
    tokens: TokensOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a token and print it; it cannot be shown again."""
    from sennit.server.http.tokens import DEFAULT_SCOPES, add_token, new_token

    secret, entry = new_token(
        user=user, tenant=tenant, agent=agent, scopes=scope or DEFAULT_SCOPES, note=note
    )
    path = _token_file(tokens)
    first = not path.exists()
    add_token(path, entry)
    if as_json:
        print_json({"id": entry.id, "token": secret})
        return
    typer.echo(secret)
    typer.echo(f"Token id: {entry.id}. Store the token now; it is not shown again.", err=True)
    if first:
        typer.echo("This is the first token: from now on, the server requires one.", err=True)


@app.command("ls")
def list_tokens(tokens: TokensOption = None, as_json: JsonOption = False) -> None:
    """List the tokens with their owners and scopes, never their secrets."""
    from sennit.server.http.tokens import SCOPES, read_tokens

    path = _token_file(tokens)
    entries = read_tokens(path).values() if path.exists() else ()
    if as_json:
        fields = ("id", "tenant", "user", "agent", "note", "created_at")
        rows = [{name: getattr(entry, name) for name in fields} for entry in entries]
        for row, entry in zip(rows, entries, strict=True):
            row["scopes"] = [scope for scope in SCOPES if scope in entry.scopes]
        print_json(rows)
        return
    for entry in entries:
        owner = "/".join(DEFAULT if name is None else name for name in (entry.tenant, entry.user))
        scopes = ",".join(scope for scope in SCOPES if scope in entry.scopes)
        typer.echo(
            clean(f"{entry.id}  {entry.created_at}  {owner}  {scopes}  {entry.note}").rstrip()
        )
    if not entries:
        typer.echo("No tokens.", err=True)


@app.command()
def revoke(
    public: Annotated[str, typer.Argument(metavar="ID", help="The id that sennit token ls shows.")],
    tokens: TokensOption = None,
) -> None:
    """Revoke a token; a running server refuses it immediately."""
    from sennit.server.http.tokens import revoke_token

    revoke_token(_token_file(tokens), public)
    typer.echo(f"Token {public} is no longer valid.", err=True)


def _token_file(path: Path | None) -> Path:
    from sennit.server.http.tokens import default_token_file

    return default_token_file() if path is None else path
