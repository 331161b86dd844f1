"""`sennit find`: search memories and messages."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from sennit.cli.sessions import print_json
from sennit.cli.targets import DAYS, AtOption, JsonOption, StoreOption, existing, utc
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
        datetime | None, typer.Option(formats=DAYS, help="Only from this time on.")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(formats=DAYS, help="Only before this time.")
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
    with existing(store) as client:
        found = client.find(
            query,
            inside,
            limit,
            utc(at),
            explain=explain,
            category=category or None,
            since=utc(since),
            until=utc(until),
        )
    if as_json:
        print_json([one.to_dict() for one in found])
        return
    for one in found:
        typer.echo(
            f"{one.score:.2f}  {one.created_at.astimezone():%Y-%m-%d}  {clean(one.abstract)}"
        )
        typer.echo(f"      {clean(one.uri)}")
        if one.explained:
            parts = ", ".join(f"{name} {value:.2f}" for name, value in one.explained.items())
            typer.echo(f"      {parts}")
    if not found:
        typer.echo("Nothing found.", err=True)
