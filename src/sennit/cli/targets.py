"""Options shared by commands: the store, the session and the branch to work on."""

from __future__ import annotations

from datetime import UTC, datetime
from os.path import exists
from typing import Annotated

import typer

from sennit import settings
from sennit.api.client import Client
from sennit.api.open import open as open_client
from sennit.api.session import Session
from sennit.api.store_url import file_at
from sennit.cli.text import nearest
from sennit.errors import NotFoundError
from sennit.sessions.branch import Branch

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="PATH|URL",
        help="SQLite file or postgresql:// URL (default: SENNIT_URL, or your data folder).",
    ),
]
DAYS = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"]
"""How a moment is written on the command line."""
AtOption = Annotated[
    datetime | None, typer.Option(formats=DAYS, help="What was valid at this time.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def existing(store: str | None) -> Client:
    """A client for a store that is there; reading must not leave an empty file behind."""
    address = settings.default_url() if store is None else store
    if is_missing(address):
        raise NotFoundError(f"There is no store at {address!r} yet; sennit chat creates one.")
    return open_client(address)


def is_missing(address: str) -> bool:
    """Return whether an address names a file that is not there."""
    file = file_at(address)
    return file is not None and not exists(file)


def utc(given: datetime | None) -> datetime | None:
    """A moment on the command line is one of this machine's time zone."""
    return None if given is None else given.astimezone(UTC)


def session_named(client: Client, name: str) -> Session:
    """A session that is there; raises NotFoundError with the nearest name."""
    try:
        return client.session(name, create=False)
    except NotFoundError:
        known = [one.key for one in client.sessions(limit=200) if one.key]
        told = f"There is no session {name!r}.{nearest(name, known)} sennit ls lists them."
        raise NotFoundError(told) from None


def branch_named(session: Session, name: str) -> Branch:
    """A branch that is there; raises NotFoundError with the nearest name."""
    found = session.get_branch(name, None)
    if found is not None:
        return found
    known = [branch.name for branch in session.branches]
    there = ", ".join(known[:10]) or "none yet"
    raise NotFoundError(f"There is no branch {name!r}.{nearest(name, known)} There are: {there}.")


def chosen_branch(session: Session, name: str | None) -> Branch:
    """The branch of that name, or else the one used last; raises NotFoundError."""
    found = latest_branch(session) if name is None else branch_named(session, name)
    if found is None:
        raise NotFoundError("The session has no messages yet.")
    return found


def latest_branch(session: Session) -> Branch | None:
    """The branch on which something was last said, or made last: where one stopped."""
    branches = list(session.branches)
    if not branches:
        return None

    def used(branch: Branch) -> tuple[float, float]:
        made = branch.created_at.timestamp()
        if len(branch) == 0:
            return 0.0, made
        return session.messages.get(branch[-1]).created_at.timestamp(), made

    return max(branches, key=used)
