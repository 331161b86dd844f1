"""Replacement of the beginning of a branch; the replaced messages stay on a branch of their own.

What is replaced is named by a message, not by a position: whatever others put on the branch
meanwhile comes after it and stays. The replaced history becomes a branch of its own, which shares
it instead of copying it; only this branch gets a new segment. All of it is one write.
"""

# Like a session, this may reach past the guards of what a session has.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sennit.errors import ConflictError, ExistsError
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.grants import NEVER_GIVEN, NO_GRANTS
from sennit.sessions.repository import branch_record, message_record, segment_record
from sennit.sessions.segments import Segment
from sennit.stores.records.sessions import (
    AddBranch,
    AddEvents,
    AddMessages,
    Change,
    ChangeBranch,
    PutRun,
)

_TRIES = 5


@dataclass(frozen=True, slots=True)
class Rewrite:
    """All of a branch up to a message becomes what is not dropped, and what is put there."""

    through: UUID | None
    """The last message that is replaced; None to put something before all others."""
    drop: frozenset[UUID]
    """Those up to there that do not stay."""
    put: tuple[Message, ...]
    """New messages, which come after those that stay."""
    aside: UUID | None = None
    """The id of a new branch that holds what was there; None for no such branch."""


def rewrite(branch: Branch, plan: Rewrite, also: Sequence[PutRun | AddEvents]) -> Branch | None:
    """Rewrite a branch, together with what a run has to note; gives where the old history is.

    Raises ConflictError if the message it goes up to is no longer on the branch.
    """
    session = branch.session
    for left in reversed(range(_TRIES)):
        with session.lock:
            try:
                return _rewrite_once(branch, plan, also)
            except ConflictError:
                # Someone has appended in the same moment, or the lease is lost.
                session.refresh()
                if not left:
                    raise
    raise AssertionError("the last try gives or raises")


def _rewrite_once(
    branch: Branch, plan: Rewrite, also: Sequence[PutRun | AddEvents]
) -> Branch | None:
    above = _above(branch, plan)
    tail = branch._tail
    kept = [uid for uid in tail.between(0, above) if uid not in plan.drop]
    rest = tail.between(above, tail.total)
    order = [*kept, *(message.id for message in plan.put), *rest]
    if plan.aside is None:
        _become(branch, plan, order, None, also)
        return None

    def make(chosen: str) -> Branch:
        old = _old(branch, above, chosen, plan.aside)
        try:
            _become(branch, plan, order, old, also)
        except ExistsError:
            branch.session.refresh()  # someone else took the name
            raise
        return old

    return branch.session._under_a_name(None, f"{branch.name}_above", make)


def _above(branch: Branch, plan: Rewrite) -> int:
    if plan.through is None:
        return 0
    position = branch._tail.position(plan.through)
    if position is None:
        raise ConflictError(
            f"Message {plan.through} is no longer on branch {branch.name!r}, which another writer "
            f"has rewritten; nothing was changed."
        )
    return position + 1


def _old(branch: Branch, above: int, name: str, id: UUID | None) -> Branch:
    """A branch that shares what is replaced, not yet known to anyone."""
    return Branch(
        branch.session,
        name,
        tail=branch._tail.on_top(above),
        system=branch._system,
        grants=NO_GRANTS if branch.fenced else NEVER_GIVEN,
        id=id,
        metadata={"forked_from": branch.session.origin_of(branch, above)},
    )


def _become(
    branch: Branch,
    plan: Rewrite,
    order: list[UUID],
    old: Branch | None,
    also: Sequence[PutRun | AddEvents],
) -> None:
    session = branch.session
    tail = Segment(order, kept=session._keeper is not None)
    if session._keeper is None:
        session._log.check(also)
        for change in also:
            session._log.apply(change)
    else:
        session._keeper.write([*_changes(branch, plan, tail, old), *also])
        branch.version += 1
    for message in plan.put:
        session._messages._insert(message)
    if old is not None:
        session._branches._insert(old)
        session._named[old.name] = old
    branch._tail = tail
    branch._changed()


def _changes(branch: Branch, plan: Rewrite, tail: Segment, old: Branch | None) -> list[Change]:
    changes: list[Change] = [AddMessages(tuple(map(message_record, plan.put)))]
    if old is not None:
        record = branch_record(old, old._tail, old._system, old._grants)
        changes.append(AddBranch(record, segment_record(old._tail)))
    record = branch_record(branch, tail, branch._system, branch._grants)
    return [*changes, ChangeBranch(record, segment_record(tail))]
