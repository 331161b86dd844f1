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
    branch_named,
    chosen_branch,
    existing,
    session_named,
)
from sennit.cli.text import clean, counted, said
from sennit.errors import NotFoundError, ValidationError
from sennit.messages.message import Message
from sennit.sessions.branch import Branch

_Branch = Annotated[
    str,
    typer.Argument(metavar="BRANCH", help="Name or id of the branch.", autocompletion=branch_names),
]


def diff(
    name: SessionArgument,
    a: _Branch,
    b: _Branch,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two branches: their common messages, and what each has added since."""
    with existing(store) as client:
        session = session_named(client, name)
        found = session.diff(branch_named(session, a), branch_named(session, b))
        sides = [(found.a.name, found.since_a), (found.b.name, found.since_b)]
        ancestor = None if found.ancestor is None else found.ancestor.to_dict()
        told = [{"branch": one, "since": _dicts(since)} for one, since in sides]
    if as_json:
        shared = {"common": found.common, "ancestor": ancestor, "same_system": found.same_system}
        print_json({"session": name, **shared, "a": told[0], "b": told[1]})
        return
    typer.echo(f"{clean(sides[0][0])} and {clean(sides[1][0])} share {_messages(found.common)}.")
    if found.ancestor is not None:
        _print(found.ancestor)
    if not found.same_system:
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
    with existing(store) as client:
        session = session_named(client, name)
        source = chosen_branch(session, branch)
        forked = source.fork(
            at=None if at is None else _place(source, at), name=new_name, system=True
        )
        kept = len(forked)
    if as_json:
        print_json(
            {
                "session": name,
                "branch": forked.name,
                "id": str(forked.id),
                "forked_from": source.name,
                "messages": kept,
            }
        )
        return
    typer.echo(clean(forked.name))
    way = f"--session {quote(clean(name))} --branch {quote(clean(forked.name))}"
    told = f"{_messages(kept)} of {clean(source.name)}; continue with: sennit chat {way}"
    typer.echo(told, err=True)


def rename(
    name: SessionArgument,
    branch: _Branch,
    new_name: Annotated[str, typer.Argument(metavar="NAME", help="The new name.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rename a branch.

    The branch main cannot be renamed: it is the default wherever no branch is named.
    """
    with existing(store) as client:
        found = branch_named(session_named(client, name), branch)
        old = found.name
        found.rename(new_name)
    if as_json:
        print_json({"session": name, "branch": found.name, "id": str(found.id), "was": old})
        return
    typer.echo(f"{clean(old)} is now {clean(found.name)}.")


def _place(branch: Branch, at: str) -> int | str:
    """The index that a number, or the id, of a message stands for."""
    if not at.isdecimal():
        if at not in branch:
            told = f"Branch {branch.name!r} has no message {at!r}"
            raise NotFoundError(f"{told}; run sennit show --json to list the ids.")
        return at
    number = int(at)
    if not 1 <= number <= len(branch):
        there = _messages(len(branch))
        raise ValidationError(f"--at counts from 1, and {branch.name!r} has {there}; got {at}.")
    return number - 1


def _print(message: Message) -> None:
    """Print a message, all of its lines indented."""
    typer.echo(indent(f"{message.role.value}: {said(message)}", "  "))


def _messages(number: int) -> str:
    return counted(number, "message")


def _dicts(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    return [message.to_dict() for message in messages]
