"""Options shared by commands, with shell completion, and the sessions and branches they name.

An error would be printed into the line being typed, so a completion that fails (no store yet, a
server that does not answer) offers nothing; the command itself reports the error.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from os.path import exists
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from sennit import settings
from sennit.api.store_url import file_at
from sennit.cli.text import pluralize
from sennit.errors import (
    NotFoundError,
    OutOfRangeError,
    SennitError,
    did_you_mean,
    listed,
    short_repr,
)
from sennit.paths import local_path, nearest_path

if TYPE_CHECKING:
    from sennit.api.client import Client
    from sennit.api.session import Session
    from sennit.sessions.branch import Branch

_MAX_SUGGESTIONS = 50
_MAX_TITLES = 50
_MAX_NUMBER_DIGITS = 9

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="PATH|URL",
        help="SQLite file or postgresql:// URL (default: SENNIT_URL, or your data folder).",
    ),
]


def parse_time(text: str) -> datetime:
    """Parse a date, or a date and a time, for an option."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        expected = "write 2026-03-01 or 2026-03-01T09:30:00"
        raise typer.BadParameter(f"{text!r} is not a time; {expected}.") from None


AtOption = Annotated[
    datetime | None,
    typer.Option(parser=parse_time, metavar="TIME", help="What was valid at this time."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ModelArgument = Annotated[
    str,
    typer.Option(
        metavar="MODEL", help="local, local:FILE.gguf, or provider:model such as openai:gpt-5."
    ),
]
BaseUrlOption = Annotated[
    str | None, typer.Option(metavar="URL", help="Base URL of an API-compatible server.")
]
ToolOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE.py[:FUNCTION]",
        help="Functions that the model may call, or: time, calculator. Repeatable.",
    ),
]
McpOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COMMAND|URL",
        help="MCP server whose tools the model may call after your approval. Repeatable.",
    ),
]
AskOption = Annotated[
    bool | None,
    typer.Option(
        "--ask/--yes", help="Ask before each tool call, or never (default: as each tool says)."
    ),
]
MemoryOption = Annotated[
    bool, typer.Option("--memory/--no-memory", help="Add memories to the prompt.")
]
SessionsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="SESSION", help="Sessions (default: all).")
]


def open_store(store: str | None) -> Client:
    """Return a client for an existing store; raise NotFoundError rather than create a file."""
    from sennit.api.open import open as open_client

    address = settings.default_url() if store is None else store
    if is_missing(address):
        hint = nearest_path(local_path(address))
        raise NotFoundError(f"There is no store at {address!r} yet; sennit chat creates one.{hint}")
    return open_client(address)


def is_missing(address: str) -> bool:
    """Return whether an address names a file that does not exist."""
    file = file_at(address)
    return file is not None and not exists(file)


def to_utc(time: datetime | None) -> datetime | None:
    """Convert a local time from the command line to UTC."""
    return None if time is None else time.astimezone(UTC)


def find_session(
    client: Client,
    name: str | UUID,
    *,
    by_title: bool = True,
    list_command: str = "sennit ls",
) -> Session:
    """Return an existing session by name, id or title; raise NotFoundError with the closest name.

    A title must be that of only one of the sessions changed last.
    """
    try:
        return client.session(name, create=False)
    except NotFoundError:
        titled = _sessions_titled(client, str(name)) if by_title else []
        if len(titled) == 1:
            return titled[0]
        if titled:
            keys = listed(session.key or str(session.id) for session in titled)
            raise NotFoundError(f"Several sessions have the title {name!r}: {keys}.") from None
        names = [session.key for session in client.sessions(limit=200) if session.key]
        meant = did_you_mean(name, names)
        message = f"There is no session {str(name)!r}.{meant} {list_command} lists them."
        raise NotFoundError(message) from None


def _sessions_titled(client: Client, title: str) -> list[Session]:
    """Return the sessions with that title, set or taken from their first words."""
    infos = [*client.sessions(contains=title), *client.sessions(limit=_MAX_TITLES)]
    sessions: list[Session] = []
    for uid in dict.fromkeys(info.id for info in infos):
        with suppress(NotFoundError):  # deleted in the meantime
            session = client.session(uid, create=False)
            if (session.title or "").casefold() == title.casefold():
                sessions.append(session)
    return sessions


def find_branch(session: Session, name: str) -> Branch:
    """Return an existing branch; raise NotFoundError with the closest name."""
    branch = session.get_branch(name, None)
    if branch is not None:
        return branch
    names = [branch.name for branch in session.branches]
    raise NotFoundError(
        f"There is no branch {name!r}.{did_you_mean(name, names)} There are: {listed(names)}."
    )


def find_message(branch: Branch, number_or_id: str) -> int:
    """Return the index of a message, by its number from 1 or its id; raise NotFoundError."""
    if not number_or_id.isdecimal() or len(number_or_id) > _MAX_NUMBER_DIGITS:  # an id
        if number_or_id not in branch:
            raise NotFoundError(
                f"Branch {branch.name!r} has no message {short_repr(number_or_id)}; sennit show "
                f"prints the numbers, and with --json the ids."
            )
        return branch.index(number_or_id)
    if not 1 <= int(number_or_id) <= len(branch):
        raise OutOfRangeError(
            f"Branch {branch.name!r} has {pluralize(len(branch), 'message')}, numbered from 1; "
            f"got {short_repr(number_or_id)}. sennit show prints them."
        )
    return int(number_or_id) - 1


def find_branch_or_latest(session: Session, name: str | None) -> Branch:
    """Return the branch of that name, or the one used last; raise NotFoundError."""
    branch = latest_branch(session) if name is None else find_branch(session, name)
    if branch is None:
        raise NotFoundError("The session has no messages yet.")
    return branch


def latest_branch(session: Session) -> Branch | None:
    """Return the branch with the newest message, or the newest branch if all are empty."""
    branches = list(session.branches)
    if not branches:
        return None

    def last_used(branch: Branch) -> tuple[float, float]:
        created = branch.created_at.timestamp()
        if len(branch) == 0:
            return 0.0, created
        return session.messages.get(branch[-1]).created_at.timestamp(), created

    return max(branches, key=last_used)


def session_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the sessions whose name has this prefix, most recently changed first."""
    with suppress(SennitError), open_store(ctx.params.get("store")) as client:
        sessions = client.sessions(contains=incomplete or None, limit=4 * _MAX_SUGGESTIONS)
        return _with_prefix((session.key or "" for session in sessions), incomplete)
    return []


def branch_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the branches with this prefix in the session named on the command line."""
    # While an option has no value yet, the preceding arguments are not parsed into params.
    candidates = (ctx.params.get("name"), ctx.params.get("session"), *ctx.args)
    name = next(filter(None, candidates), None)
    if name is not None:
        with suppress(SennitError), open_store(ctx.params.get("store")) as client:
            branches = client.session(name, create=False).branches
            return _with_prefix((branch.name for branch in branches), incomplete)
    return []


def _with_prefix(names: Iterable[str], prefix: str) -> list[str]:
    return [name for name in names if name and name.startswith(prefix)][:_MAX_SUGGESTIONS]


SessionArgument = Annotated[
    str,
    typer.Argument(
        metavar="SESSION", help="Name or id of the session.", autocompletion=session_names
    ),
]
BranchOption = Annotated[
    str | None,
    typer.Option(
        "--branch",
        metavar="BRANCH",
        help="Branch (default: the one used last).",
        autocompletion=branch_names,
    ),
]
BranchArgument = Annotated[
    str,
    typer.Argument(metavar="BRANCH", help="Name or id of the branch.", autocompletion=branch_names),
]
