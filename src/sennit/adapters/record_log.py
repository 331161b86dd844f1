"""An append-only record log on a branch, for framework data that is not conversation.

A record is a message without text whose metadata holds plain data, so it is stored, owned, moved
and erased like any message but never matches a search. Records are only appended. A subclass is the
state that the records of one session amount to. It reads only new records, including those of other
processes, and starts over when records were removed. A record is durable before it is applied.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from threading import RLock
from typing import Any, ClassVar
from uuid import UUID

from sennit.adapters.branch_history import get_or_create_branch
from sennit.api.session import Session
from sennit.messages.content import InstructionContent
from sennit.messages.message import ABOUT, Message
from sennit.sessions.branch import messages_from


class RecordLog(ABC):
    """The state of one session's record log; hold `lock` while reading it."""

    name: ClassVar[str]
    """The name of the branch, and the metadata key of the data."""

    def __init__(self, session: Session) -> None:
        self.lock = RLock()
        self.session = session
        self._read_count = 0
        self._last_id: UUID | None = None
        self._reset()

    @abstractmethod
    def _reset(self) -> None:
        """Set the state without any record."""

    @abstractmethod
    def _apply(self, messages: Sequence[Message]) -> None:
        """Apply new messages of the log to the state."""

    def new_record(
        self, data: Mapping[str, Any], description: str, id: UUID | None = None
    ) -> Message:
        """Return a message that carries `data`; `description` is shown to people."""
        return Message(InstructionContent(), id=id, metadata={self.name: data, ABOUT: description})

    def append(self, messages: Sequence[Message]) -> None:
        """Append messages and apply them, all or none; raises ExistsError for an id in use."""
        with self.lock:
            branch = get_or_create_branch(self.session, self.name)
            self.session.add_messages(messages, branches=branch)
            self.sync(self.session)

    def sync(self, session: Session) -> None:
        """Apply the messages that were appended since the last sync."""
        with self.lock:
            messages, is_reset = self._read_new(session)
            if is_reset:
                self._reset()
            self._apply(messages)

    def _read_new(self, session: Session) -> tuple[list[Message], bool]:
        """Return the messages since the last call, and whether they are all from the start."""
        with session.lock:
            branch = session.get_branch(self.name, None)
            length, read = 0 if branch is None else len(branch), self._read_count
            is_reset = (
                session is not self.session
                or length < read
                or (branch is not None and read > 0 and branch[read - 1] != self._last_id)
            )
            self.session, self._read_count = session, length
            if branch is None or not length:
                return [], is_reset
            self._last_id = branch[length - 1]
            return messages_from(branch, 0 if is_reset else read), is_reset
