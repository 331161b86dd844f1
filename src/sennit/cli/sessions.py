"""`sennit ls`, `show`, `tree`, `find` and `purge`: read and search what is stored, erase removed
messages.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from sennit.cli.targets import (
    TIME_FORMATS,
    AtOption,
    BranchOption,
    JsonOption,
    SessionArgument,
    StoreOption,
    find_branch,
    find_session,
    latest_branch,
    open_store,
    to_utc,
)
from sennit.cli.text import emit, message_text, note, one_line, pluralize


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
    rows = [
        {
            "name": session.key,
            "title": session.title,
            "id": session.id,
            "created_at": session.created_at,
            "updated_at": session.updated_at,
        }
        for session in sessions
    ]
    lines = (
        f"{session.updated_at.astimezone():%Y-%m-%d %H:%M}  {session.key or session.id}"
        f"{'' if session.title is None else f'  {one_line(session.title)}'}"
        for session in sessions
    )
    emit(as_json, rows, lines, "No sessions.")


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
    if not as_json:
        note(f"{name} · {branch_name or 'no branch'} · {pluralize(len(messages), 'message')}")
    width = len(str(len(messages)))
    emit(
        as_json,
        {"session": name, "branch": branch_name, "messages": [m.to_dict() for m in messages]},
        (
            f"{number:>{width}} {message.role.value}: {message_text(message)}"
            for number, message in enumerate(messages, 1)
        ),
    )


def tree(name: SessionArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Draw the branches of a session as a tree of forks."""
    with open_store(store) as client:
        nodes = find_session(client, name).tree()
    origins = {child.branch.id: node.branch.name for node in nodes for child in node.children}
    rows = [
        {
            "branch": node.branch.name,
            "messages": len(node.branch),
            "forked_from": origins.get(node.branch.id),
            "forked_after": node.forked_at,
        }
        for node in nodes
    ]
    emit(as_json, rows, [str(nodes) or "No branches."])


def find(
    query: Annotated[
        str, typer.Argument(metavar="QUESTION", help="Words or a question to search for.")
    ],
    inside: Annotated[
        str | None,
        typer.Option(
            "--in", metavar="URI", help="Search only here, such as viking://user/memories."
        ),
    ] = None,
    category: Annotated[
        list[str] | None,
        typer.Option("--category", help='Only this memory category, or "message". Repeatable.'),
    ] = None,
    since: Annotated[
        datetime | None, typer.Option(formats=TIME_FORMATS, help="Only from this time on.")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(formats=TIME_FORMATS, help="Only before this time.")
    ] = None,
    at: AtOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of results.")] = 10,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show how the score is composed.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search memories and messages, best match first."""
    with open_store(store) as client:
        matches = client.find(
            query,
            inside,
            limit,
            to_utc(at),
            explain=explain,
            category=category or None,
            since=to_utc(since),
            until=to_utc(until),
        )
    lines: list[str] = []
    for match in matches:
        day = f"{match.created_at.astimezone():%Y-%m-%d}"
        lines += [f"{match.score:.2f}  {day}  {match.abstract}", f"      {match.uri}"]
        if match.explained:
            parts = ", ".join(f"{name} {value:.2f}" for name, value in match.explained.items())
            lines.append(f"      {parts}")
    emit(as_json, [match.to_dict() for match in matches], lines, "No results.")


def purge(
    days: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=36_500,
            help="Erase messages removed at least this many days ago "
            "(default: SENNIT_RETENTION_DAYS, or 30).",
        ),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Erase messages that were removed from their last branch long enough ago."""
    with open_store(store) as client:
        # One microsecond more, so that 0 days includes messages removed just now.
        moment = datetime.now(UTC) + timedelta(microseconds=1)
        erased = client.purge(None if days is None else moment - timedelta(days=days))
    emit(as_json, {"erased": erased}, [f"Erased {pluralize(erased, 'message')}."])
