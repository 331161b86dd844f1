"""`sennit diff`, `fork` and `rename`: compare, create and rename branches."""

from __future__ import annotations

from shlex import quote
from textwrap import indent
from typing import Annotated

import typer

from sennit.cli.targets import (
    BranchArgument,
    BranchOption,
    JsonOption,
    SessionArgument,
    StoreOption,
    find_branch,
    find_branch_or_latest,
    find_session,
    open_store,
)
from sennit.cli.text import emit, message_text, note, pluralize
from sennit.errors import NotFoundError, ValidationError
from sennit.messages.message import Message
from sennit.sessions.branch import Branch


def diff(
    name: SessionArgument,
    a: BranchArgument,
    b: BranchArgument,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two branches: their common messages, and what each has added since."""
    with open_store(store) as client:
        session = find_session(client, name)
        result = session.diff(find_branch(session, a), find_branch(session, b))
    sides = [(result.a.name, result.since_a), (result.b.name, result.since_b)]
    lines = [f"{result.a.name} and {result.b.name} share {_messages(result.common)}."]
    if result.ancestor is not None:
        lines.append(_indented(result.ancestor))
    if not result.same_system:
        lines.append("Their system messages differ.")
    for branch_name, since in sides:
        lines.append(f"{branch_name} has {_messages(len(since))} since{':' if since else '.'}")
        lines += map(_indented, since)
    added = [{"branch": side, "since": [m.to_dict() for m in since]} for side, since in sides]
    value = {
        "session": name,
        "common": result.common,
        "ancestor": None if result.ancestor is None else result.ancestor.to_dict(),
        "same_system": result.same_system,
        "a": added[0],
        "b": added[1],
    }
    emit(as_json, value, lines)


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
    value = {
        "session": name,
        "branch": forked.name,
        "id": forked.id,
        "forked_from": source.name,
        "messages": count,
    }
    emit(as_json, value, [forked.name])
    if not as_json:
        options = f"--session {quote(name)} --branch {quote(forked.name)}"
        note(f"{_messages(count)} of {source.name}; continue with: sennit chat {options}")


def rename(
    name: SessionArgument,
    branch: BranchArgument,
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
    value = {"session": name, "branch": target.name, "id": target.id, "was": old}
    emit(as_json, value, [f"{old} is now {target.name}."])


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


def _indented(message: Message) -> str:
    return indent(f"{message.role.value}: {message_text(message)}", "  ")


def _messages(number: int) -> str:
    return pluralize(number, "message")
