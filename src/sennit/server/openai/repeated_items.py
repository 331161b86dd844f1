"""Recognition of conversation items that a response has stored already.

The Agents SDK sends the whole history to /v1/responses, without naming its conversation, and adds
what was said and answered as items. The response stands on a fork in the session of the
conversation (`openai_place`). Items that say the same in the same place are that fork's messages,
which the conversation then shows in place of its own; what is said once more is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sennit.api.session import Session
from sennit.messages.message import Message
from sennit.server.openai.history_match import best_match, trail_of
from sennit.sessions.branch import Branch


def add_once(session: Session, main: Branch, new: Sequence[Message]) -> list[Message]:
    """Add messages to a branch, and give them as they stand there; hold the session's lock."""
    own = _ids(main)
    history = [*session.messages.pick(own), *new]
    others = [branch for branch in session.branches if branch is not main]
    match = best_match(trail_of(history), others) if others else None
    if match is None or match.said <= len(own):
        session.add_messages(new, branches=main)
        return list(new)
    shared = _ids(match.branch)[: match.at]
    _show(main, own, shared)
    rest = new[match.said - len(own) :]
    session.add_messages(rest, branches=main)
    _erase(session, set(own) - set(shared))
    start = match.at - (match.said - len(own))
    return [*session.messages.pick(shared[max(start, 0) :]), *rest]


def _ids(branch: Branch) -> list[UUID]:
    """The messages of a branch without its system message."""
    return branch[len(branch) - branch.tail.total :]


def _show(main: Branch, own: Sequence[UUID], shared: Sequence[UUID]) -> None:
    """Have a branch show these messages in place of its own, from where they differ."""
    start = next(
        (at for at, (a, b) in enumerate(zip(own, shared, strict=False)) if a != b),
        min(len(own), len(shared)),
    )
    if start < max(len(own), len(shared)):
        main[len(main) - len(own) + start :] = shared[start:]


def _erase(session: Session, ids: set[UUID]) -> None:
    """Erase those messages that no branch shows any more; what was remembered of them stays."""
    orphans = [uid for uid in ids if not any(uid in branch for branch in session.branches)]
    if orphans:
        session.remove_messages(orphans, forget=False)
