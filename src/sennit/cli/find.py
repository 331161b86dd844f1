"""`sennit find`: search memories and messages."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from sennit.cli.sessions import print_json
from sennit.cli.targets import TIME_FORMATS, AtOption, JsonOption, StoreOption, open_store, to_utc
from sennit.cli.text import clean


def find(
    query: Annotated[
        str, typer.Argument(metavar="QUESTION", help="Words or a question to search for.")
    ],
    inside: Annotated[
        str | None,
        typer.Option(
            "--in", metavar="URI", help="Search only here, such as viking://user/memories."
        ),
    ] = None,
    category: Annotated[
        list[str] | None,
        typer.Option("--category", help='Only this memory category, or "message". Repeatable.'),
    ] = None,
    since: Annotated[
        datetime | None, typer.Option(formats=TIME_FORMATS, help="Only from this time on.")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(formats=TIME_FORMATS, help="Only before this time.")
    ] = None,
    at: AtOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of results.")] = 10,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show how the score is composed.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search memories and messages, best match first."""
    with open_store(store) as client:
        matches = client.find(
            query,
            inside,
            limit,
            to_utc(at),
            explain=explain,
            category=category or None,
            since=to_utc(since),
            until=to_utc(until),
        )
    if as_json:
        print_json([match.to_dict() for match in matches])
        return
    for match in matches:
        typer.echo(
            f"{match.score:.2f}  {match.created_at.astimezone():%Y-%m-%d}  {clean(match.abstract)}"
        )
        typer.echo(f"      {clean(match.uri)}")
        if match.explained:
            parts = ", ".join(f"{name} {value:.2f}" for name, value in match.explained.items())
            typer.echo(f"      {parts}")
    if not matches:
        typer.echo("No results.", err=True)
