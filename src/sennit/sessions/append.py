"""Append plans: which messages go to which branches, computed before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from sennit.containers.pile import Pile
from sennit.messages.content import SystemContent
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.repository import message_record
from sennit.stores.records.sessions import AddMessages, Append, Change, ChangeBranch


class AppendPlan(msgspec.Struct):
    """The validated input of one append."""

    branches: Sequence[Branch]
    new: Sequence[Message]
    """The messages that the session does not have yet."""
    ids: tuple[UUID, ...]
    """The message ids to append to each branch."""
    system: UUID | None
    """The id of the new system message of each branch."""

    @classmethod
    def of(
        cls, messages: Sequence[Message], branches: Sequence[Branch], stored: Pile[Message]
    ) -> AppendPlan:
        """Return the plan to append messages to branches that lack them."""
        system = None
        new: list[Message] = []
        ids: list[UUID] = []
        for message in messages:
            uid = message.id
            if uid not in stored:
                new.append(message)
            if isinstance(message.content, SystemContent):
                system = uid
            else:
                ids.append(uid)
        return cls(branches, new, tuple(ids), system)

    @property
    def changes(self) -> tuple[Change, ...]:
        """The plan as changes of a store."""
        changes: list[Change] = []
        if self.new:
            changes.append(AddMessages(tuple([message_record(message) for message in self.new])))
        if self.ids:
            changes += [Append(branch.id, self.ids) for branch in self.branches]
        if self.system is not None:
            changes += [ChangeBranch(branch.record(system=self.system)) for branch in self.branches]
        return tuple(changes)
