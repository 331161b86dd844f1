"""`sennit label` and `score`: label an answer, list labels, run a metric over stored answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Annotated, Any
from uuid import UUID

import typer

from sennit.api.client import Client
from sennit.api.session import Session
from sennit.cli.load import load_function
from sennit.cli.targets import (
    BranchOption,
    JsonOption,
    SessionArgument,
    SessionsArgument,
    StoreOption,
    find_branch_or_latest,
    find_message,
    find_session,
    open_store,
)
from sennit.cli.text import clean, emit, message_text, note, one_line, pluralize, progress_bar
from sennit.errors import NotFoundError, SennitError, ValidationError, short_repr
from sennit.learning.labels import Label
from sennit.messages.content import AssistantResponseContent
from sennit.messages.message import Message
from sennit.sessions.branch import Branch

_DEFAULT_JUDGE = "user"
_PAGE_SIZE = 200


def label(
    name: SessionArgument,
    verdict: Annotated[
        str | None,
        typer.Argument(
            metavar="up|down|SCORE|none",
            help="A thumb, a number, or none to remove the label. Without it, list the labels."
            " Put a negative number after `--`.",
        ),
    ] = None,
    message: Annotated[
        str | None,
        typer.Option(metavar="NUMBER|ID", help="Message to label (default: the last answer)."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"Name of the judge (default: {_DEFAULT_JUDGE}; all when listing).",
        ),
    ] = None,
    branch: BranchOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Label the last answer of a branch or another message, or list the labels."""
    with open_store(store) as client:
        session = find_session(client, name)
        target_branch = find_branch_or_latest(session, branch)
        chosen = None if message is None else _find_message(session, target_branch, message)
        if verdict is None:
            messages = {item.id: item for item in ([chosen] if chosen else target_branch.messages)}
            labels = [label for label in session.labels(by=by) if label.message in messages]
            rows = [_to_dict(label, messages[label.message]) for label in labels]
            lines = (f"{row['score']:g}  {row['by']}  {one_line(row['said'])}" for row in rows)
            emit(as_json, rows, lines)
            return
        answer = chosen or _last_answer(target_branch)
        judge = _DEFAULT_JUDGE if by is None else by
        new_label = _set_label(session, answer, verdict, judge)
    value = None if new_label is None else _to_dict(new_label, answer)
    score = "no label" if new_label is None else f"{new_label.score:g}"
    emit(as_json, value, [f"{score} by {judge}: {one_line(message_text(answer))}"])


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


def _find_message(session: Session, branch: Branch, number_or_id: str) -> Message:
    """Return a message of the branch by its number, or of any branch by its id."""
    with suppress(ValueError, NotFoundError):
        return session.messages.get(UUID(number_or_id))
    return branch.messages[find_message(branch, number_or_id)]


def _last_answer(branch: Branch) -> Message:
    for message in reversed(branch.messages):
        if isinstance(message.content, AssistantResponseContent) and not message.content.empty:
            return message
    raise NotFoundError(f"Branch {branch.name!r} has no answer yet.")


def _to_dict(label: Label, message: Message) -> dict[str, Any]:
    return {
        "message": label.message,
        "score": label.score,
        "by": label.by,
        "created_at": label.created_at,
        "said": message_text(message),
    }


def score(
    metric: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py:FUNCTION",
            help="A function from an example (asked, answered, history, …) to a number.",
        ),
    ],
    sessions: SessionsArgument = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the judge (default: the function's name)."),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a metric on every answer and store the results as labels; this runs the file's code."""
    with open_store(store) as client:
        named = ((name, find_session(client, name)) for name in sessions or ())
        chosen = list(named) if sessions else _all_sessions(client)
        if (where := metric.rpartition(":")[0]) != "":
            note(f"Running the code in {where}.")
        judge = load_function(metric, "metric")
        results: list[dict[str, Any]] = []
        with progress_bar("sessions") as progress:
            for name, session in chosen:
                results.append(_score_session(name, session, judge, by))
                progress(len(results), len(sessions) if sessions else None)
    emit(as_json, results, map(_score_line, results))


def _score_line(result: dict[str, Any]) -> str:
    mean = "" if result["mean"] is None else f", mean score {result['mean']:.3g}"
    return f"{result['session']}  {pluralize(result['answers'], 'answer')}{mean}"


def _all_sessions(client: Client) -> Iterator[tuple[str, Session]]:
    """Yield every session; all are listed first, because a label changes the order."""
    listed = client.sessions(limit=_PAGE_SIZE)
    while listed and (more := client.sessions(before=listed[-1], limit=_PAGE_SIZE)):
        listed += more
    for session in listed:
        try:
            yield session.key or str(session.id), client.session(session.id, create=False)
        except NotFoundError:  # deleted in the meantime
            continue


def _score_session(
    name: str, session: Session, judge: Callable[..., Any], by: str | None
) -> dict[str, Any]:
    try:
        examples = session.score(judge, by=by)
    except SennitError:
        raise
    except Exception as error:  # the user's own code may do anything
        message = f"The metric failed on session {name!r}: {type(error).__name__}: {error}"
        raise ValidationError(message) from error
    scores = [example.score for example in examples if example.score is not None]
    mean = sum(scores) / len(scores) if scores else None
    return {"session": name, "answers": len(scores), "mean": mean}
