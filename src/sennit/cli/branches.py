"""`sennit diff`, `fork` and `rename`: compare, create and rename branches."""

from __future__ import annotations

from collections.abc import Iterable
from shlex import quote
from textwrap import indent
from typing import Annotated, Any

import typer

from sennit.cli.targets import (
    BranchArgument,
    BranchOption,
    JsonOption,
    SessionArgument,
    StoreOption,
    find_branch,
    find_branch_or_latest,
    find_message,
    find_session,
    open_store,
)
from sennit.cli.text import emit, message_text, note, pluralize
from sennit.messages.message import Message


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
        sides = [(side.name, since, len(side) - len(since)) for side, since in result.sides]
    lines = [f"{result.a.name} and {result.b.name} share {_messages(result.common)}."]
    if result.ancestor is not None:
        lines.append(_indented(sides[0][2], result.ancestor))
    if not result.same_system:
        lines.append("Their system messages differ.")
    for branch_name, since, shared in sides:
        lines.append(f"{branch_name} has {_messages(len(since))} since{':' if since else '.'}")
        lines += (_indented(shared + at, message) for at, message in enumerate(since, 1))
    added = [{"branch": side, "since": _numbered(since, shared)} for side, since, shared in sides]
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
        str | None,
        typer.Option("--name", metavar="NAME", help="Name of the new branch (default: generated)."),
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
            at=None if at is None else find_message(source, at), name=new_name, system=True
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


def _numbered(messages: Iterable[Message], shared: int) -> list[dict[str, Any]]:
    return [{"number": shared + at, **message.to_dict()} for at, message in enumerate(messages, 1)]


def _indented(number: int, message: Message) -> str:
    return indent(f"{number} {message.role.value}: {message_text(message)}", "  ")


def _messages(number: int) -> str:
    return pluralize(number, "message")
