"""`sennit ls`, `show` and `tree`: list and print stored sessions."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from sennit.cli.completion import branch_names, session_names
from sennit.cli.targets import (
    JsonOption,
    StoreOption,
    find_branch,
    find_session,
    latest_branch,
    open_store,
)
from sennit.cli.text import clean, message_text, one_line, pluralize
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
    """Print a value as an indented JSON document."""
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
    with open_store(store) as client:
        sessions = client.sessions(contains=contains, limit=limit)
    if as_json:
        print_json(
            [
                {
                    "name": session.key,
                    "title": session.title,
                    "id": str(session.id),
                    "created_at": to_iso(from_datetime(session.created_at)),
                    "updated_at": to_iso(from_datetime(session.updated_at)),
                }
                for session in sessions
            ]
        )
        return
    for session in sessions:
        changed = session.updated_at.astimezone()
        title = "" if session.title is None else f"  {one_line(session.title)}"
        typer.echo(f"{changed:%Y-%m-%d %H:%M}  {clean(session.key or str(session.id))}{title}")
    if not sessions:
        typer.echo("No sessions.", err=True)


def show(
    name: SessionArgument,
    branch: BranchOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the messages of a branch, numbered."""
    with open_store(store) as client:
        session = find_session(client, name)
        target = find_branch(session, branch) if branch else latest_branch(session)
        branch_name, messages = (None, []) if target is None else (target.name, target.messages)
    if as_json:
        bodies = [message.to_dict() for message in messages]
        print_json({"session": name, "branch": branch_name, "messages": bodies})
        return
    total = pluralize(len(messages), "message")
    typer.echo(f"{clean(name)} · {clean(branch_name or 'no branch')} · {total}", err=True)
    for number, message in enumerate(messages, 1):
        typer.echo(
            f"{number:>{len(str(len(messages)))}} {message.role.value}: {message_text(message)}"
        )


def tree(name: SessionArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Draw the branches of a session as a tree of forks."""
    with open_store(store) as client:
        nodes = find_session(client, name).tree()
    if not as_json:
        typer.echo(clean(str(nodes)) or "No branches.")
        return
    origins = {child.branch.id: node.branch.name for node in nodes for child in node.children}
    print_json(
        [
            {
                "branch": node.branch.name,
                "messages": len(node.branch),
                "forked_from": origins.get(node.branch.id),
                "forked_after": node.forked_at,
            }
            for node in nodes
        ]
    )
