"""`sennit label`: label an answer, or list labels."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import typer

from sennit.api.session import Session
from sennit.cli.sessions import BranchOption, SessionArgument, print_json
from sennit.cli.targets import (
    JsonOption,
    StoreOption,
    chosen_branch,
    existing,
    session_named,
)
from sennit.cli.text import clean, one_line, said
from sennit.clock import from_datetime, to_iso
from sennit.errors import NotFoundError, ValidationError, shown
from sennit.learning.labels import Label
from sennit.messages.content import AssistantResponseContent
from sennit.messages.message import Message
from sennit.sessions.branch import Branch

_DEFAULT = "user"


def label(
    name: SessionArgument,
    verdict: Annotated[
        str | None,
        typer.Argument(
            metavar="[up|down|SCORE|none]",
            help="A thumb, a number, or none to remove the label. Without it, list the labels."
            " Put a negative number after `--`.",
        ),
    ] = None,
    message: Annotated[
        str | None, typer.Option(metavar="ID", help="Message to label (default: the last answer).")
    ] = None,
    by: Annotated[
        str | None, typer.Option(help=f"Name of the judge (default: {_DEFAULT}; all when listing).")
    ] = None,
    branch: BranchOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Label the last answer of a branch or another message, or list the labels."""
    with existing(store) as client:
        session = session_named(client, name)
        found = chosen_branch(session, branch)
        named = None if message is None else _message(session, message)
        if verdict is None:
            _list(session, found, named, by, as_json)
            return
        judged = named or _last_answer(found)
        judge = _DEFAULT if by is None else by
        given = _judged(session, judged, verdict, judge)
    if as_json:
        print_json(None if given is None else _told(given, judged))
    else:
        worth = "no label" if given is None else f"{given.score:g}"
        typer.echo(f"{worth} by {clean(judge)}: {one_line(said(judged))}")


def _list(
    session: Session, branch: Branch, message: Message | None, by: str | None, as_json: bool
) -> None:
    shown_ones = {one.id: one for one in ([message] if message else branch.messages)}
    found = [one for one in session.labels(by=by) if one.message in shown_ones]
    if as_json:
        print_json([_told(one, shown_ones[one.message]) for one in found])
        return
    for one in found:
        words = one_line(said(shown_ones[one.message]))
        typer.echo(f"{one.score:g}  {clean(one.by)}  {words}")


def _judged(session: Session, message: Message, verdict: str, by: str) -> Label | None:
    """Return the current label of a message."""
    match verdict:
        case "none":
            session.unlabel(message, by=by)
            return None
        case "up" | "down":
            return session.label(message, thumb=verdict, by=by)
        case _:
            return session.label(message, _number(verdict), by=by)


def _number(verdict: str) -> float:
    try:
        return float(verdict)
    except ValueError:
        told = f"A label is up, down, none or a number, got {shown(clean(verdict))}."
        raise ValidationError(told) from None


def _message(session: Session, id: str) -> Message:
    try:
        found = session.messages.get(UUID(id), None)
    except ValueError:
        found = None
    if found is None:
        told = f"There is no message {shown(clean(id))}; run sennit show --json to list the ids."
        raise NotFoundError(told)
    return found


def _last_answer(branch: Branch) -> Message:
    for message in reversed(branch.messages):
        if isinstance(message.content, AssistantResponseContent) and not message.content.empty:
            return message
    raise NotFoundError(f"Branch {branch.name!r} has no answer yet.")


def _told(label: Label, message: Message) -> dict[str, Any]:
    return {
        "message": str(label.message),
        "score": label.score,
        "by": label.by,
        "created_at": to_iso(from_datetime(label.created_at)),
        "said": said(message),
    }
