"""`sennit ls`, `show`, `tree`, `title` and `find`: list, read and search what is stored."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sennit.api.client import Client
from sennit.api.session import Session
from sennit.cli.targets import (
    AtOption,
    BranchOption,
    JsonOption,
    SessionArgument,
    StoreOption,
    find_branch,
    find_message,
    find_session,
    latest_branch,
    open_store,
    parse_time,
    to_utc,
)
from sennit.cli.text import emit, message_text, note, one_line, output_width, pluralize, working
from sennit.errors import NotFoundError, ValidationError

if TYPE_CHECKING:
    from uuid import UUID

    from sennit.memory.retrieval.find import Match
    from sennit.sessions.branch import Branch
    from sennit.sessions.client import SessionInfo

_MIN_EXCERPT_WIDTH = 24


def ls(
    contains: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="Only names and titles that contain this."),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, metavar="N", help="Maximum number of sessions.")
    ] = 50,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the sessions, most recently changed first."""
    with open_store(store) as client:
        rows = list(session_rows(client, contains, limit))
    emit(as_json, rows, session_lines(rows), "No sessions.")


def session_rows(client: Client, contains: str | None, limit: int) -> Iterator[dict[str, Any]]:
    """Yield an overview of each session: its names, times, size, and its last words."""
    for info in client.sessions(contains=contains, limit=limit):
        try:
            yield _session_row(info, client.session(info.id, create=False))
        except NotFoundError:  # deleted in the meantime
            continue


def _session_row(info: SessionInfo, session: Session) -> dict[str, Any]:
    branch = latest_branch(session)
    last = "" if branch is None or not len(branch) else message_text(branch.messages[-1])
    return {
        "name": info.key,
        "title": session.title,
        "id": info.id,
        "created_at": info.created_at,
        "updated_at": info.updated_at,
        "branches": len(session.branches),
        "messages": 0 if branch is None else len(branch),
        "last": one_line(last),
    }


def session_lines(rows: list[dict[str, Any]], *, numbered: bool = False) -> Iterator[str]:
    """Yield the overviews as a table: time, name, number of messages, title and last words."""
    names = [row["name"] or str(row["id"]) for row in rows]
    counts = [pluralize(row["messages"], "message") for row in rows]
    name_width, count_width = (max(map(len, texts), default=0) for texts in (names, counts))
    for number, (row, name, count) in enumerate(zip(rows, names, counts, strict=True), 1):
        prefix = f"{number:>{len(str(len(rows)))}}  " if numbered else ""
        time = f"{row['updated_at'].astimezone():%Y-%m-%d %H:%M}"
        head = f"{prefix}{time}  {one_line(name):<{name_width}}  {count:>{count_width}}"
        below = f"\n{' ' * (len(prefix) or 2)}"
        room = output_width() - len(head) - 2
        gap, room = ("  ", room) if room >= _MIN_EXCERPT_WIDTH else (below, output_width() - 3)
        excerpt = _excerpt(row["title"] or "", row["last"], room)
        yield f"{head}{gap}{excerpt}".rstrip()


def _excerpt(title: str, last: str, width: int) -> str:
    """Return the title and the last words of a session in one line."""
    title = one_line(title, width)
    room = width - len(title) - 3
    if not last or last == title or room < _MIN_EXCERPT_WIDTH // 2:
        return title
    return f"{title} … {one_line(last, room)}"


def show(
    name: SessionArgument,
    branch: BranchOption = None,
    message: Annotated[
        str | None, typer.Option(metavar="NUMBER|ID", help="Print only this message.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the messages of a branch, numbered from 1."""
    with open_store(store) as client:
        session = find_session(client, name)
        name = session.key or str(session.id)
        target = find_branch(session, branch) if branch else latest_branch(session)
        if message is not None and target is None:
            raise NotFoundError("The session has no messages yet.")
        branch_name, messages = (None, []) if target is None else (target.name, target.messages)
        first = 1
        if target is not None and message is not None:
            index = find_message(target, message)
            first, messages = index + 1, [messages[index]]
        title, total = session.title, 0 if target is None else len(target)
    if not as_json:
        titled = "" if title is None else f" · {one_line(title)}"
        note(f"{name}{titled} · {branch_name or 'no branch'} · {pluralize(total, 'message')}")
    width = len(str(total))
    plain = [
        {"number": number, **message.to_dict()} for number, message in enumerate(messages, first)
    ]
    emit(
        as_json,
        {"session": name, "title": title, "branch": branch_name, "messages": plain},
        (
            f"{number:>{width}} {message.role.value}: {message_text(message)}"
            for number, message in enumerate(messages, first)
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


def title(
    name: SessionArgument,
    text: Annotated[
        str | None,
        typer.Argument(metavar="TITLE", help="The new title. Without it, print the title."),
    ] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the title; the first words replace it.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print or set the title of a session."""
    if remove and text is not None:
        raise ValidationError("Pass either a TITLE or --remove, not both.")
    with open_store(store) as client:
        session = find_session(client, name)
        if remove or text is not None:
            session.set_title(text)
        current = session.title
    empty = f"Session {name} has no title and no messages yet."
    emit(as_json, {"session": name, "title": current}, [current] if current else [], empty)


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
        datetime | None,
        typer.Option(parser=parse_time, metavar="TIME", help="Only from this time on."),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(parser=parse_time, metavar="TIME", help="Only before this time."),
    ] = None,
    at: AtOption = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of results.")] = 10,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show how the score is composed.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search memories and messages, best match first."""
    with open_store(store) as client, working("Searching…"):
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
        places = {id(match): _place(client, match) for match in matches}
    emit(
        as_json,
        [{**match.to_dict(), **(places[id(match)] or {})} for match in matches],
        (line for match in matches for line in _match_lines(match, places[id(match)])),
        "No results.",
    )


def _match_lines(match: Match, place: dict[str, Any] | None) -> Iterator[str]:
    yield f"{match.created_at.astimezone():%Y-%m-%d}  {match.abstract}"
    if place is not None:
        branch = f" --branch {quote(place['branch'])}" if place["branch"] != "main" else ""
        yield f"      sennit show {quote(place['session'])} --message {place['number']}{branch}"
    elif match.category is not None and match.category != "message":
        yield f"      sennit memory show {quote(match.uri)}"
    else:
        yield f"      sennit fs cat {quote(match.uri)}"
    if match.explained:
        parts = " + ".join(f"{name} {value:.2f}" for name, value in match.explained.items())
        yield f"      score {match.score:.2f} = {parts}"


def _place(client: Client, match: Match) -> dict[str, Any] | None:
    """Return the session, branch and number of a message that was found."""
    if match.category != "message" or not match.evidence:
        return None
    source = match.evidence[0]
    try:
        session = client.session(source.session, create=False)
    except NotFoundError:  # deleted in the meantime
        return None
    branch = _branch_with(session, source.message)
    if branch is None:
        return None
    return {
        "session": session.key or str(session.id),
        "branch": branch.name,
        "number": branch.index(source.message) + 1,
    }


def _branch_with(session: Session, message: UUID) -> Branch | None:
    """Return a branch that holds a message: the one used last, if it does."""
    latest = latest_branch(session)
    branches = ([] if latest is None else [latest]) + list(session.branches)
    return next((branch for branch in branches if message in branch), None)
