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
    str, typer.Argument(metavar="BRANCH", help="Its name or id.", autocompletion=branch_names)
]


def diff(
    name: SessionArgument,
    a: _Branch,
    b: _Branch,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two branches: what they share, and what each has since."""
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
        typer.Option(metavar="NUMBER|ID", help="The last message it keeps; by default all."),
    ] = None,
    new_name: Annotated[
        str | None, typer.Option("--name", help="What to call it; otherwise a name is made.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fork a branch, to try another way.

    The fork shares what was said and copies nothing. Messages have the numbers that show prints.
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
    told = f"{_messages(kept)} of {clean(source.name)}; go on with: sennit chat {way}"
    typer.echo(told, err=True)


def rename(
    name: SessionArgument,
    branch: _Branch,
    new_name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a branch another name.

    The branch main keeps its name: all that names no branch goes there.
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
            raise NotFoundError(f"{told}; sennit show --json tells their ids.")
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
