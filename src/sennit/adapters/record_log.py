"""An append-only record log on a branch, for framework data that is not conversation.

A record is a message without text whose metadata holds plain data, so it is stored, owned, moved
and erased like any message but never matches a search. Records are only appended. A reader keeps
its position and reads only new records, including those of other processes; it starts over when
records were removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sennit.adapters.branch_handle import get_or_create_branch
from sennit.api.session import Session
from sennit.messages.content import InstructionContent
from sennit.messages.message import ABOUT, Message


class RecordLog:
    """A reader's position in a record log."""

    def __init__(self, name: str) -> None:
        self.name = name
        """The name of the branch, and the metadata key of the data."""
        self._session: Session | None = None
        self._read_count = 0
        self._last_id: UUID | None = None

    def new_record(
        self, data: Mapping[str, Any], description: str, id: UUID | None = None
    ) -> Message:
        """Return a message that carries `data`; `description` is shown to people."""
        return Message(InstructionContent(), id=id, metadata={self.name: data, ABOUT: description})

    def add(self, session: Session, messages: Sequence[Message]) -> None:
        """Append messages, all or none; raises ExistsError for an id that is taken."""
        session.add_messages(messages, branches=get_or_create_branch(session, self.name))

    def read_new(self, session: Session) -> tuple[bool, list[Message]]:
        """Return whether the reader must start over, and the messages since the last call."""
        with session.lock:
            branch = session.get_branch(self.name, None)
            length = 0 if branch is None else len(branch)
            is_reset = session is not self._session or length < self._read_count
            if branch is None:
                self._session, self._read_count, self._last_id = session, 0, None
                return is_reset, []
            is_reset = is_reset or (
                self._read_count > 0 and branch[self._read_count - 1] != self._last_id
            )
            messages = branch.messages_from(session.messages, 0 if is_reset else self._read_count)
            last = branch[length - 1] if length else None
            self._session, self._read_count, self._last_id = session, length, last
            return is_reset, messages
