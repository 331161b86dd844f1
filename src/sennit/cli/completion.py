"""Shell completion of session and branch names.

A completion that fails would print into the line being typed, so one that cannot be made (no store
yet, a server that does not answer) offers nothing; the command itself says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable

import typer

from sennit.cli.targets import existing
from sennit.errors import SennitError

_MOST = 50


def session_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Sessions whose name begins like this, the one changed last first."""

    def find() -> list[str]:
        with existing(ctx.params.get("store")) as client:
            found = client.sessions(contains=incomplete or None, limit=4 * _MOST)
        return [one.key for one in found if one.key is not None]

    return _offered(find, incomplete)


def branch_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Branches of the session on the line whose name begins like this."""
    # While an option has no value yet, what stands before it is still among the arguments.
    named = (ctx.params.get("name"), ctx.params.get("session"), *ctx.args)
    session = next((one for one in named if one), None)
    if session is None:
        return []

    def find() -> list[str]:
        with existing(ctx.params.get("store")) as client:
            return [one.name for one in client.session(session, create=False).branches]

    return _offered(find, incomplete)


def _offered(find: Callable[[], list[str]], incomplete: str) -> list[str]:
    try:
        found = find()
    except SennitError:
        return []
    return [name for name in found if name.startswith(incomplete)][:_MOST]
