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

from sennit.errors import ConflictError
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.forks import fork_metadata
from sennit.sessions.grants import NO_GRANTS, UNFENCED
from sennit.sessions.plan import Plan, add_branch
from sennit.sessions.records import branch_record, message_record, segment_record
from sennit.sessions.segments import Segment
from sennit.stores.records.sessions import (
    AddEvents,
    AddMessages,
    BranchHead,
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
                return session._repository.write(_RewritePlan(branch, plan, run_changes))
            except ConflictError:
                # A concurrent append, or a lost lease.
                session.refresh()
                if not remaining:
                    raise
    raise AssertionError("the last attempt returns or raises")


class _RewritePlan(Plan["Branch | None"]):
    result: Branch | None
    _tail: Segment

    def __init__(
        self, branch: Branch, rewrite: Rewrite, run_changes: Sequence[PutRun | AddEvents]
    ) -> None:
        super().__init__(branch.session, None, *run_changes)
        self._branch, self._rewrite = branch, rewrite

    def prepare(self) -> None:
        branch, rewrite, tail = self._branch, self._rewrite, self._branch._tail
        length = _replaced_length(branch, rewrite)
        retained = [uid for uid in tail.between(0, length) if uid not in rewrite.drop]
        put = (message.id for message in rewrite.put)
        self._tail = Segment([*retained, *put, *tail.between(length, tail.total)])
        if rewrite.aside is not None:
            self.result = self.session.branch_type(
                self.session,
                self.session.branches.free_name(None, f"{branch.name}_above"),
                tail=tail.fork(length),
                system=branch.system_id,
                grants=NO_GRANTS if branch.fenced else UNFENCED,
                id=rewrite.aside,
                metadata=fork_metadata(branch, length),
            )

    def changes(self) -> Sequence[Change]:
        branch = self._branch
        changes: list[Change] = [AddMessages(tuple(map(message_record, self._rewrite.put)))]
        if self.result is not None:
            changes.append(add_branch(self.result))
        record = branch_record(branch, self._tail, branch.system_id, branch._grants)
        return [*changes, ChangeBranch(record, segment_record(self._tail)), *self.extras]

    def apply(self, heads: Sequence[BranchHead]) -> bool:  # noqa: ARG002
        for message in self._rewrite.put:
            self.session.messages._insert(message)
        if self.result is not None:
            self.result = self.session.branches.include_draft(self.result)
        self._branch._apply(self._tail, self._branch.system_id, self._branch._grants)
        return False

    def can_retry(self) -> bool:
        return self.result is not None and self.result.name in self.session.branches.named


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
