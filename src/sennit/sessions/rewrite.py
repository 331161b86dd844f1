"""Replacement of the beginning of a branch; the replaced messages stay on a branch of their own.

The end of the replaced part is given as a message, not as a position, so concurrent appends come
after it and stay. The replaced history becomes a branch of its own that shares the old segments;
only the rewritten branch gets a new segment. All of it is one write.
"""

# Like a session, this bypasses the guards of branches and piles.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sennit.errors import ConflictError, ExistsError
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.grants import NO_GRANTS, UNFENCED
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

_MAX_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A replacement of the messages up to `through`."""

    through: UUID | None
    """The last message of the replaced part; None to insert before all messages."""
    drop: frozenset[UUID]
    """The messages of that part to remove."""
    put: tuple[Message, ...]
    """New messages, inserted after those of that part that stay."""
    aside: UUID | None = None
    """The id of a new branch for the replaced history; None for no such branch."""


def rewrite(
    branch: Branch, plan: Rewrite, run_changes: Sequence[PutRun | AddEvents]
) -> Branch | None:
    """Rewrite a branch in one write with the changes of a run; return the `aside` branch.

    Raises ConflictError if `through` is no longer on the branch.
    """
    session = branch.session
    for remaining in reversed(range(_MAX_ATTEMPTS)):
        with session.lock:
            try:
                return _rewrite_once(branch, plan, run_changes)
            except ConflictError:
                # A concurrent append, or a lost lease.
                session.refresh()
                if not remaining:
                    raise
    raise AssertionError("the last attempt returns or raises")


def _rewrite_once(
    branch: Branch, plan: Rewrite, run_changes: Sequence[PutRun | AddEvents]
) -> Branch | None:
    length = _replaced_length(branch, plan)
    tail = branch._tail
    retained = [uid for uid in tail.between(0, length) if uid not in plan.drop]
    rest = tail.between(length, tail.total)
    order = [*retained, *(message.id for message in plan.put), *rest]
    if plan.aside is None:
        _apply(branch, plan, order, None, run_changes)
        return None

    def make(name: str) -> Branch:
        replaced = _draft_replaced_branch(branch, length, name, plan.aside)
        try:
            _apply(branch, plan, order, replaced, run_changes)
        except ExistsError:
            branch.session.refresh()  # another process took the name
            raise
        return replaced

    return branch.session._with_free_name(None, f"{branch.name}_above", make)


def _replaced_length(branch: Branch, plan: Rewrite) -> int:
    if plan.through is None:
        return 0
    position = branch._tail.position(plan.through)
    if position is None:
        raise ConflictError(
            f"Message {plan.through} is no longer on branch {branch.name!r}, which another writer "
            f"has rewritten; nothing was changed."
        )
    return position + 1


def _draft_replaced_branch(branch: Branch, length: int, name: str, id: UUID | None) -> Branch:
    """Return an unregistered branch that shares the replaced history."""
    return Branch(
        branch.session,
        name,
        tail=branch._tail.fork(length),
        system=branch._system,
        grants=NO_GRANTS if branch.fenced else UNFENCED,
        id=id,
        metadata={"forked_from": branch.session.origin_of(branch, length)},
    )


def _apply(
    branch: Branch,
    plan: Rewrite,
    order: list[UUID],
    replaced: Branch | None,
    run_changes: Sequence[PutRun | AddEvents],
) -> None:
    session = branch.session
    tail = Segment(order, stored=session._repository is not None)
    if session._repository is None:
        session._run_log.check(run_changes)
        for change in run_changes:
            session._run_log.apply(change)
    else:
        session._repository.write([*_changes(branch, plan, tail, replaced), *run_changes])
        branch.version += 1
    for message in plan.put:
        session._messages._insert(message)
    if replaced is not None:
        session._branches._insert(replaced)
        session._branches_by_name[replaced.name] = replaced
    branch._tail = tail
    branch._changed()


def _changes(branch: Branch, plan: Rewrite, tail: Segment, replaced: Branch | None) -> list[Change]:
    changes: list[Change] = [AddMessages(tuple(map(message_record, plan.put)))]
    if replaced is not None:
        record = branch_record(replaced, replaced._tail, replaced._system, replaced._grants)
        changes.append(AddBranch(record, segment_record(replaced._tail)))
    record = branch_record(branch, tail, branch._system, branch._grants)
    return [*changes, ChangeBranch(record, segment_record(tail))]
