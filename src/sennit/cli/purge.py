"""`sennit purge`: erase messages that were removed from their last branch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from sennit.cli.sessions import print_json
from sennit.cli.targets import JsonOption, StoreOption, open_store
from sennit.cli.text import pluralize


def purge(
    days: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=36_500,
            help="Erase messages removed at least this many days ago "
            "(default: SENNIT_RETENTION_DAYS, or 30).",
        ),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Erase messages that were removed from their last branch long enough ago."""
    with open_store(store) as client:
        # One microsecond more, so that 0 days includes messages removed just now.
        moment = datetime.now(UTC) + timedelta(microseconds=1)
        before = None if days is None else moment - timedelta(days=days)
        erased = client.purge(before)
    if as_json:
        print_json({"erased": erased})
    else:
        typer.echo(f"Erased {pluralize(erased, 'message')}.")
