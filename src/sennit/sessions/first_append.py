"""Async appends to a default branch that is still being created.

Several tasks may append at once, and another process may create the branch at the same time; all
messages are stored in the order of the calls. The first append creates the branch, and appends
submitted before that commits go to the same branch. If another process has created the branch
first, each append falls back to that one, in the order of the refusals. Until then the session must
not load that branch, or a later append would overtake the earlier ones.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from sennit.errors import ExistsError, NotFoundError, SennitError
from sennit.messages.message import Message
from sennit.sessions.append import AppendPlan
from sennit.sessions.grants import UNFENCED
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
    """An append that creates the default branch, or follows the append that does."""

    def __init__(
        self,
        session: SessionCore,
        repository: SessionRepository,
        messages: Sequence[Message],
        name: str,
    ) -> None:
        """Draft the branch unless another append has; call under the session's lock."""
        self._session, self._repository, self._name = session, repository, name
        self._creates_branch = session._pending_default is None
        if session._pending_default is None:
            tail = Segment([message.id for message in messages], stored=True)
            draft, _ = session._draft_branch(name, tail, None, UNFENCED, None, None, messages)
            session._pending_default = draft
        self.branch = session._pending_default
        self._plan = AppendPlan.of(messages, [self.branch], session._messages)
        self._add_messages = AddMessages(tuple(map(message_record, messages)))

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes that create the branch with its messages, or append to it."""
        branch = self.branch
        if not self._creates_branch:
            return self._add_messages, Append(branch.id, self._plan.ids)
        record = branch_record(branch, branch._tail, None, UNFENCED)
        return self._add_messages, AddBranch(record, segment_record(branch._tail))

    def apply(self, heads: list[BranchHead]) -> None:
        """Apply the stored append in memory."""
        session = self._session
        with session.lock:
            if not heads:
                session._pending_default = None
                if self.branch not in session._branches:  # else a refresh has loaded it
                    session._insert_branch(self.branch, self._plan.new)
                return
            existing = session._branches.by_key(heads[0].branch.int)
            self._plan.branches = [] if existing is None else [existing]
            stale = session._apply(self._plan, heads)
            session._remote_default = None
        if stale or existing is None:
            session.refresh()

    def fallback(self, error: SennitError) -> tuple[Change, ...] | None:
        """Return changes that append to the branch another process created; None if none exists."""
        session = self._session
        with session.lock:
            if self._creates_branch:
                session._pending_default = None
            existing = session._branches_by_name.get(self._name)
        if not isinstance(error, (ExistsError, NotFoundError)):
            return None
        if existing is None and session._remote_default is None:
            session._remote_default = self._find_in_store()
        uid = session._remote_default if existing is None else existing.id
        return None if uid is None else (self._add_messages, Append(uid, self._plan.ids))

    def _find_in_store(self) -> UUID | None:
        """Return the id of the branch of that name in the store."""
        ids = (
            record.id for record in self._repository.load().branches if record.name == self._name
        )
        return next(ids, None)
