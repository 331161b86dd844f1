"""`sennit score`: run a metric over stored answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from sennit.api.client import Client
from sennit.api.session import Session
from sennit.cli.load import load_function
from sennit.cli.sessions import print_json
from sennit.cli.targets import JsonOption, StoreOption, find_session, open_store
from sennit.cli.text import clean, pluralize
from sennit.errors import NotFoundError, SennitError, ValidationError

_PAGE_SIZE = 200


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
    with open_store(store) as client:
        chosen = _find_sessions(client, sessions) if sessions else _all_sessions(client)
        if (where := metric.rpartition(":")[0]) != "":
            typer.echo(f"Running the code in {clean(where)}.", err=True)
        judge = load_function(metric, "metric")
        results = [_score_session(name, session, judge, by) for name, session in chosen]
    if as_json:
        print_json(results)
        return
    for result in results:
        mean = "" if result["mean"] is None else f", mean score {result['mean']:.3g}"
        typer.echo(f"{clean(result['session'])}  {pluralize(result['answers'], 'answer')}{mean}")


def _find_sessions(client: Client, names: list[str]) -> list[tuple[str, Session]]:
    return [(name, find_session(client, name)) for name in names]


def _all_sessions(client: Client) -> Iterator[tuple[str, Session]]:
    """Yield every session; all are listed first, because a label changes the order."""
    listed = client.sessions(limit=_PAGE_SIZE)
    while listed and (more := client.sessions(before=listed[-1], limit=_PAGE_SIZE)):
        listed += more
    for session in listed:
        try:
            yield session.key or str(session.id), client.session(session.id, create=False)
        except NotFoundError:  # deleted in the meantime
            continue


def _score_session(
    name: str, session: Session, judge: Callable[..., Any], by: str | None
) -> dict[str, Any]:
    try:
        examples = session.score(judge, by=by)
    except SennitError:
        raise
    except Exception as error:  # the user's own code may do anything
        message = f"The metric failed on session {name!r}: {type(error).__name__}: {error}"
        raise ValidationError(message) from error
    scores = [example.score for example in examples if example.score is not None]
    mean = sum(scores) / len(scores) if scores else None
    return {"session": name, "answers": len(scores), "mean": mean}
