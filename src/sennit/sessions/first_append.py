"""Async appends to a default branch that is still being created.

Several may be said at once, and another program may begin the branch in the same moment: all land,
in the order in which they were said. The first makes the branch; those that come before it is there
go to the end of the same. If someone else was faster, each goes to their branch instead, in the
order in which it was refused. The session does not know their branch until then: what is said next
would pass by.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from sennit.errors import ExistsError, NotFoundError, SennitError
from sennit.messages.message import Message
from sennit.sessions.append import AppendPlan
from sennit.sessions.grants import NEVER_GIVEN
from sennit.sessions.repository import (
    SessionRepository,
    branch_record,
    message_record,
    segment_record,
)
from sennit.sessions.segments import Segment
from sennit.stores.records.sessions import AddBranch, AddMessages, Append, BranchHead, Change

if TYPE_CHECKING:
    from sennit.sessions.session import SessionCore


class FirstAppend:
    """Messages on their way to a default branch that is made with them, or at the same time."""

    def __init__(
        self,
        session: SessionCore,
        keeper: SessionRepository,
        messages: Sequence[Message],
        name: str,
    ) -> None:
        """To be made under the session's lock."""
        self._session, self._keeper, self._name = session, keeper, name
        self._makes_it = session._coming is None
        if session._coming is None:
            tail = Segment([one.id for one in messages], kept=True)
            draft, _ = session._drafted(name, tail, None, NEVER_GIVEN, None, None, messages)
            session._coming = draft
        self.branch = session._coming
        self._placement = AppendPlan.of(messages, [self.branch], session._messages)
        self._added = AddMessages(tuple(map(message_record, messages)))

    @property
    def changes(self) -> tuple[Change, ...]:
        """Return the changes that create the branch with its messages, or append to it."""
        branch = self.branch
        if not self._makes_it:
            return self._added, Append(branch.id, self._placement.ids)
        record = branch_record(branch, branch._tail, None, NEVER_GIVEN)
        return self._added, AddBranch(record, segment_record(branch._tail))

    def apply(self, heads: list[BranchHead]) -> None:
        """Have in memory what the store has now."""
        session = self._session
        with session.lock:
            if not heads:
                session._coming = None
                if self.branch not in session._branches:  # unless someone has read it meanwhile
                    session._take_in(self.branch, self._placement.new)
                return
            known = session._branches.by_key(heads[0].branch.int)
            self._placement.branches = [] if known is None else [known]
            stale = session._apply(self._placement, heads)
            session._elsewhere = None
        if stale or known is None:
            session.refresh()

    def otherwise(self, error: SennitError) -> tuple[Change, ...] | None:
        """Return the changes to make if the branch could not be created: append to the existing
        one.
        """
        session = self._session
        with session.lock:
            if self._makes_it:
                session._coming = None
            known = session._named.get(self._name)
        if not isinstance(error, (ExistsError, NotFoundError)):
            return None
        if known is None and session._elsewhere is None:
            session._elsewhere = self._found()
        uid = session._elsewhere if known is None else known.id
        return None if uid is None else (self._added, Append(uid, self._placement.ids))

    def _found(self) -> UUID | None:
        """The branch of that name in the store, not yet known here."""
        found = (one.id for one in self._keeper.load().branches if one.name == self._name)
        return next(found, None)
