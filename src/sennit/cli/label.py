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
    find_branch_or_latest,
    find_session,
    open_store,
)
from sennit.cli.text import clean, message_text, one_line
from sennit.clock import from_datetime, to_iso
from sennit.errors import NotFoundError, ValidationError, short_repr
from sennit.learning.labels import Label
from sennit.messages.content import AssistantResponseContent
from sennit.messages.message import Message
from sennit.sessions.branch import Branch

_DEFAULT_JUDGE = "user"


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
        str | None,
        typer.Option(help=f"Name of the judge (default: {_DEFAULT_JUDGE}; all when listing)."),
    ] = None,
    branch: BranchOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Label the last answer of a branch or another message, or list the labels."""
    with open_store(store) as client:
        session = find_session(client, name)
        target_branch = find_branch_or_latest(session, branch)
        chosen = None if message is None else _find_message(session, message)
        if verdict is None:
            _list(session, target_branch, chosen, by, as_json)
            return
        answer = chosen or _last_answer(target_branch)
        judge = _DEFAULT_JUDGE if by is None else by
        new_label = _set_label(session, answer, verdict, judge)
    if as_json:
        print_json(None if new_label is None else _to_dict(new_label, answer))
    else:
        score = "no label" if new_label is None else f"{new_label.score:g}"
        typer.echo(f"{score} by {clean(judge)}: {one_line(message_text(answer))}")


def _list(
    session: Session, branch: Branch, message: Message | None, by: str | None, as_json: bool
) -> None:
    messages = {item.id: item for item in ([message] if message else branch.messages)}
    labels = [label for label in session.labels(by=by) if label.message in messages]
    if as_json:
        print_json([_to_dict(label, messages[label.message]) for label in labels])
        return
    for label in labels:
        text = one_line(message_text(messages[label.message]))
        typer.echo(f"{label.score:g}  {clean(label.by)}  {text}")


def _set_label(session: Session, message: Message, verdict: str, by: str) -> Label | None:
    """Set or remove the label of a message; return the new label."""
    match verdict:
        case "none":
            session.unlabel(message, by=by)
            return None
        case "up" | "down":
            return session.label(message, thumb=verdict, by=by)
        case _:
            return session.label(message, _parse_score(verdict), by=by)


def _parse_score(verdict: str) -> float:
    try:
        return float(verdict)
    except ValueError:
        message = f"A label is up, down, none or a number, got {short_repr(clean(verdict))}."
        raise ValidationError(message) from None


def _find_message(session: Session, id: str) -> Message:
    try:
        message = session.messages.get(UUID(id), None)
    except ValueError:
        message = None
    if message is None:
        text = (
            f"There is no message {short_repr(clean(id))}; run sennit show --json to list the ids."
        )
        raise NotFoundError(text)
    return message


def _last_answer(branch: Branch) -> Message:
    for message in reversed(branch.messages):
        if isinstance(message.content, AssistantResponseContent) and not message.content.empty:
            return message
    raise NotFoundError(f"Branch {branch.name!r} has no answer yet.")


def _to_dict(label: Label, message: Message) -> dict[str, Any]:
    return {
        "message": str(label.message),
        "score": label.score,
        "by": label.by,
        "created_at": to_iso(from_datetime(label.created_at)),
        "said": message_text(message),
    }
