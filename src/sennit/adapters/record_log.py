"""An append-only log of records on a branch, for framework data that is not conversation.

A record is a message that says nothing and carries plain data, so it is durable, owned, moved and
erased like all else, and no search finds it. Records are only added at the end. A reader folds the
log once and from then on only what is new, also what other processes wrote; when records were taken
away it is told to begin anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sennit.adapters.branch_handle import named_branch
from sennit.api.session import Session
from sennit.messages.content import InstructionContent
from sennit.messages.message import ABOUT, Message


class RecordLog:
    """A reader's position in a record log."""

    def __init__(self, name: str) -> None:
        self.name = name
        """Of the branch, and of the data in its messages."""
        self._session: Session | None = None
        self._seen = 0
        self._last: UUID | None = None

    def record(self, data: Mapping[str, Any], about: str, id: UUID | None = None) -> Message:
        """A message that carries data; `about` tells people who look at it what it is."""
        return Message(InstructionContent(), id=id, metadata={self.name: data, ABOUT: about})

    def add(self, session: Session, messages: Sequence[Message]) -> None:
        """Put messages at the end, all or none; raises ExistsError for an id that is taken."""
        session.add_messages(messages, branches=named_branch(session, self.name))

    def new(self, session: Session) -> tuple[bool, list[Message]]:
        """Return whether to begin anew, and what has come since the last time."""
        with session.lock:
            branch = session.get_branch(self.name, None)
            held = 0 if branch is None else len(branch)
            anew = session is not self._session or held < self._seen
            if branch is None:
                self._session, self._seen, self._last = session, 0, None
                return anew, []
            anew = anew or (self._seen > 0 and branch[self._seen - 1] != self._last)
            found = branch.items_of(session.messages, 0 if anew else self._seen)
            last = branch[held - 1] if held else None
            self._session, self._seen, self._last = session, held, last
            return anew, found
