"""`sennit score`: run a metric over stored answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from sennit.api.client import Client
from sennit.api.session import Session
from sennit.cli.load import function_named
from sennit.cli.sessions import print_json
from sennit.cli.targets import JsonOption, StoreOption, existing, session_named
from sennit.cli.text import clean, counted
from sennit.errors import NotFoundError, SennitError, ValidationError

_PAGE = 200


def score(
    metric: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py:FUNCTION",
            help="A function from an example (asked, answered, history, …) to a number.",
        ),
    ],
    sessions: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SESSION]...", help="Sessions to score (default: all)."),
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="Name of the judge (default: the function's name).")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a metric on every answer and store the results as labels; this runs the file's code."""
    with existing(store) as client:
        chosen = _named(client, sessions) if sessions else _all(client)
        if (where := metric.rpartition(":")[0]) != "":
            typer.echo(f"Running the code in {clean(where)}.", err=True)
        judge = function_named(metric, "metric")
        found = [_scored(name, session, judge, by) for name, session in chosen]
    if as_json:
        print_json(found)
        return
    for one in found:
        mean = "" if one["mean"] is None else f", mean score {one['mean']:.3g}"
        typer.echo(f"{clean(one['session'])}  {counted(one['answers'], 'answer')}{mean}")


def _named(client: Client, names: list[str]) -> list[tuple[str, Session]]:
    return [(name, session_named(client, name)) for name in names]


def _all(client: Client) -> Iterator[tuple[str, Session]]:
    """Every session in turn; listed first, because a label changes the order."""
    listed = client.sessions(limit=_PAGE)
    while listed and (more := client.sessions(before=listed[-1], limit=_PAGE)):
        listed += more
    for one in listed:
        try:
            yield one.key or str(one.id), client.session(one.id, create=False)
        except NotFoundError:  # deleted meanwhile
            continue


def _scored(
    name: str, session: Session, judge: Callable[..., Any], by: str | None
) -> dict[str, Any]:
    try:
        found = session.score(judge, by=by)
    except SennitError:
        raise
    except Exception as error:  # the user's own code may do anything
        told = f"The metric failed on session {name!r}: {type(error).__name__}: {error}"
        raise ValidationError(told) from error
    scores = [example.score for example in found if example.score is not None]
    mean = sum(scores) / len(scores) if scores else None
    return {"session": name, "answers": len(scores), "mean": mean}
