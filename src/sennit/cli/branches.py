"""`sennit diff`, `fork` and `rename`: compare, create and rename branches."""

from __future__ import annotations

from shlex import quote
from textwrap import indent
from typing import Annotated, Any

import typer

from sennit.cli.completion import branch_names
from sennit.cli.sessions import BranchOption, SessionArgument, print_json
from sennit.cli.targets import (
    JsonOption,
    StoreOption,
    find_branch,
    find_branch_or_latest,
    find_session,
    open_store,
)
from sennit.cli.text import clean, message_text, pluralize
from sennit.errors import NotFoundError, ValidationError
from sennit.messages.message import Message
from sennit.sessions.branch import Branch

_BranchArgument = Annotated[
    str,
    typer.Argument(metavar="BRANCH", help="Name or id of the branch.", autocompletion=branch_names),
]


def diff(
    name: SessionArgument,
    a: _BranchArgument,
    b: _BranchArgument,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two branches: their common messages, and what each has added since."""
    with open_store(store) as client:
        session = find_session(client, name)
        result = session.diff(find_branch(session, a), find_branch(session, b))
        sides = [(result.a.name, result.since_a), (result.b.name, result.since_b)]
        ancestor = None if result.ancestor is None else result.ancestor.to_dict()
        added = [{"branch": branch, "since": _dicts(since)} for branch, since in sides]
    if as_json:
        shared = {"common": result.common, "ancestor": ancestor, "same_system": result.same_system}
        print_json({"session": name, **shared, "a": added[0], "b": added[1]})
        return
    typer.echo(f"{clean(sides[0][0])} and {clean(sides[1][0])} share {_messages(result.common)}.")
    if result.ancestor is not None:
        _print(result.ancestor)
    if not result.same_system:
        typer.echo("Their system messages differ.")
    for branch, since in sides:
        typer.echo(f"{clean(branch)} has {_messages(len(since))} since{':' if since else '.'}")
        for message in since:
            _print(message)


def fork(
    name: SessionArgument,
    branch: BranchOption = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="NUMBER|ID", help="Last message to include (default: all)."),
    ] = None,
    new_name: Annotated[
        str | None, typer.Option("--name", help="Name of the new branch (default: generated).")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fork a branch.

    The fork shares the history and copies nothing. Message numbers are those that show prints.
    """
    with open_store(store) as client:
        session = find_session(client, name)
        source = find_branch_or_latest(session, branch)
        forked = source.fork(
            at=None if at is None else _fork_point(source, at), name=new_name, system=True
        )
        count = len(forked)
    if as_json:
        print_json(
            {
                "session": name,
                "branch": forked.name,
                "id": str(forked.id),
                "forked_from": source.name,
                "messages": count,
            }
        )
        return
    typer.echo(clean(forked.name))
    options = f"--session {quote(clean(name))} --branch {quote(clean(forked.name))}"
    hint = f"{_messages(count)} of {clean(source.name)}; continue with: sennit chat {options}"
    typer.echo(hint, err=True)


def rename(
    name: SessionArgument,
    branch: _BranchArgument,
    new_name: Annotated[str, typer.Argument(metavar="NAME", help="The new name.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rename a branch.

    The branch main cannot be renamed: it is the default wherever no branch is named.
    """
    with open_store(store) as client:
        target = find_branch(find_session(client, name), branch)
        old = target.name
        target.rename(new_name)
    if as_json:
        print_json({"session": name, "branch": target.name, "id": str(target.id), "was": old})
        return
    typer.echo(f"{clean(old)} is now {clean(target.name)}.")


def _fork_point(branch: Branch, at: str) -> int | str:
    """Return the index or id of the message that `--at` names, by its number or its id."""
    if not at.isdecimal():
        if at not in branch:
            problem = f"Branch {branch.name!r} has no message {at!r}"
            raise NotFoundError(f"{problem}; run sennit show --json to list the ids.")
        return at
    number = int(at)
    if not 1 <= number <= len(branch):
        count = _messages(len(branch))
        raise ValidationError(f"--at counts from 1, and {branch.name!r} has {count}; got {at}.")
    return number - 1


def _print(message: Message) -> None:
    """Print a message, all of its lines indented."""
    typer.echo(indent(f"{message.role.value}: {message_text(message)}", "  "))


def _messages(number: int) -> str:
    return pluralize(number, "message")


def _dicts(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    return [message.to_dict() for message in messages]
