"""`sennit ls`, `show` and `tree`: list and print stored sessions."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from sennit.cli.completion import branch_names, session_names
from sennit.cli.targets import (
    JsonOption,
    StoreOption,
    branch_named,
    existing,
    latest_branch,
    session_named,
)
from sennit.cli.text import clean, counted, one_line, said
from sennit.clock import from_datetime, to_iso

SessionArgument = Annotated[
    str,
    typer.Argument(
        metavar="SESSION", help="Name or id of the session.", autocompletion=session_names
    ),
]
BranchOption = Annotated[
    str | None,
    typer.Option(
        "--branch", help="Branch (default: the one used last).", autocompletion=branch_names
    ),
]


def print_json(value: Any) -> None:
    """One JSON document, for programs."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))


def ls(
    contains: Annotated[
        str | None,
        typer.Argument(metavar="[TEXT]", help="Only names and titles that contain this."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of sessions.")] = 50,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the sessions, most recently changed first."""
    with existing(store) as client:
        found = client.sessions(contains=contains, limit=limit)
    if as_json:
        print_json(
            [
                {
                    "name": one.key,
                    "title": one.title,
                    "id": str(one.id),
                    "created_at": to_iso(from_datetime(one.created_at)),
                    "updated_at": to_iso(from_datetime(one.updated_at)),
                }
                for one in found
            ]
        )
        return
    for one in found:
        changed = one.updated_at.astimezone()
        title = "" if one.title is None else f"  {one_line(one.title)}"
        typer.echo(f"{changed:%Y-%m-%d %H:%M}  {clean(one.key or str(one.id))}{title}")
    if not found:
        typer.echo("No sessions.", err=True)


def show(
    name: SessionArgument,
    branch: BranchOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the messages of a branch, numbered."""
    with existing(store) as client:
        session = session_named(client, name)
        found = branch_named(session, branch) if branch else latest_branch(session)
        where, messages = (None, []) if found is None else (found.name, found.messages)
    if as_json:
        told = [message.to_dict() for message in messages]
        print_json({"session": name, "branch": where, "messages": told})
        return
    total = counted(len(messages), "message")
    typer.echo(f"{clean(name)} · {clean(where or 'no branch')} · {total}", err=True)
    for number, message in enumerate(messages, 1):
        typer.echo(f"{number:>{len(str(len(messages)))}} {message.role.value}: {said(message)}")


def tree(name: SessionArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Draw the branches of a session as a tree of forks."""
    with existing(store) as client:
        drawn = session_named(client, name).tree()
    if not as_json:
        typer.echo(clean(str(drawn)) or "No branches.")
        return
    origins = {child.branch.id: node.branch.name for node in drawn for child in node.children}
    print_json(
        [
            {
                "branch": node.branch.name,
                "messages": len(node.branch),
                "forked_from": origins.get(node.branch.id),
                "forked_after": node.forked_at,
            }
            for node in drawn
        ]
    )
