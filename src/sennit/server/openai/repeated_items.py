"""Deduplication of conversation items that a response has stored already.

The Agents SDK sends the whole history to /v1/responses without naming its conversation, then adds
the input and the answer as items. The response is on a fork in the session of the conversation
(`locate`). Items that match that fork are its messages, which then replace those of the main
branch; only the others are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sennit.api.session import Session
from sennit.messages.message import Message
from sennit.server.openai.history_match import best_match, turns_of
from sennit.sessions.branch import Branch


def add_new(session: Session, main: Branch, new: Sequence[Message]) -> list[Message]:
    """Append messages to the main branch, and return them as stored; hold the session's lock."""
    own = _ids(main)
    history = [*session.messages.pick(own), *new]
    others = [branch for branch in session.branches if branch is not main]
    match = best_match(turns_of(history), others) if others else None
    if match is None or match.message_count <= len(own):
        session.add_messages(new, branches=main)
        return list(new)
    shared = _ids(match.branch)[: match.at]
    _show(main, own, shared)
    rest = new[match.message_count - len(own) :]
    session.add_messages(rest, branches=main)
    _erase(session, set(own) - set(shared))
    start = match.at - (match.message_count - len(own))
    return [*session.messages.pick(shared[max(start, 0) :]), *rest]


def _ids(branch: Branch) -> list[UUID]:
    """Return the message ids of a branch without its system message."""
    return branch[len(branch) - branch.tail.total :]


def _show(main: Branch, own: Sequence[UUID], shared: Sequence[UUID]) -> None:
    """Replace the messages of the main branch by these, from where they differ."""
    start = next(
        (at for at, (a, b) in enumerate(zip(own, shared, strict=False)) if a != b),
        min(len(own), len(shared)),
    )
    if start < max(len(own), len(shared)):
        main[len(main) - len(own) + start :] = shared[start:]


def _erase(session: Session, ids: set[UUID]) -> None:
    """Erase the messages that are on no branch any more; memories of them stay."""
    orphans = [uid for uid in ids if not any(uid in branch for branch in session.branches)]
    if orphans:
        session.remove_messages(orphans, forget=False)
