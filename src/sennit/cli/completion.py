"""Shell completion of session and branch names.

An error would be printed into the line being typed, so a completion that fails (no store yet, a
server that does not answer) offers nothing; the command itself reports the error.
"""

from __future__ import annotations

from collections.abc import Callable

import typer

from sennit.cli.targets import open_store
from sennit.errors import SennitError

_MAX_SUGGESTIONS = 50


def session_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the sessions whose name has this prefix, most recently changed first."""

    def find() -> list[str]:
        with open_store(ctx.params.get("store")) as client:
            sessions = client.sessions(contains=incomplete or None, limit=4 * _MAX_SUGGESTIONS)
        return [session.key for session in sessions if session.key is not None]

    return _complete(find, incomplete)


def branch_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the branches with this prefix in the session named on the command line."""
    # While an option has no value yet, the preceding arguments are not parsed into params.
    candidates = (ctx.params.get("name"), ctx.params.get("session"), *ctx.args)
    session = next((candidate for candidate in candidates if candidate), None)
    if session is None:
        return []

    def find() -> list[str]:
        with open_store(ctx.params.get("store")) as client:
            return [branch.name for branch in client.session(session, create=False).branches]

    return _complete(find, incomplete)


def _complete(find: Callable[[], list[str]], incomplete: str) -> list[str]:
    try:
        names = find()
    except SennitError:
        return []
    return [name for name in names if name.startswith(incomplete)][:_MAX_SUGGESTIONS]
