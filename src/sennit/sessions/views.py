"""Guarded views of a session's messages, and of its messages and branches together.

They read like any pile; every change goes through the session, which validates and stores it.
"""

# The piles of a session read its names directly.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from sennit.containers.element import Element, Ref
from sennit.containers.flow import Flow
from sennit.containers.pile import Pile
from sennit.errors import ExistsError
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.sessions.branches import BranchPile
from sennit.stores.records.sessions import MessageRecord

if TYPE_CHECKING:
    from sennit.sessions.session import SessionCore


class MessagePile(Pile[Message]):
    """The messages of a session in insertion order; changes go through the session."""

    __slots__ = ("_session",)

    def __init__(self, session: SessionCore) -> None:
        super().__init__(item_type=Message)
        self._session = session

    def add(self, item: Message) -> None:
        """Store a message on no branch; raises ExistsError if its id is taken."""
        if not isinstance(item, Message):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise self._wrong_type(item)
        with self._session.lock:
            if item in self:
                raise ExistsError(f"The session already has message {item.id}.")
            self._session.add_message(item)

    def by_key(self, key: int) -> Message | None:
        """Return the message with an id, given as an int."""
        return self._items.get(key)

    def load(self, records: Iterable[MessageRecord]) -> None:
        """Insert messages loaded from the store, keeping those already present."""
        # Bypasses `add`: this loop dominates the time to open a long session.
        items, from_store = self._items, Message.from_stored
        for record in records:
            uid = record.id
            key = uid.int
            if key not in items:
                items[key] = from_store(uid, record.created, record.body)

    def remove(self, ref: Ref) -> Message:
        """Remove a message from all branches and the session; raises NotFoundError."""
        return self._session.remove_message(ref)

    def clear(self) -> None:
        """Remove all messages from all branches and the session."""
        with self._session.lock:
            self._session.remove_messages(list(self))


class Conversations(Flow[Message, Branch]):
    """A session's messages and branches as a flow; the session keeps their integrity."""

    __slots__ = ()
    _items: MessagePile

    def __init__(self, messages: MessagePile, branches: BranchPile) -> None:
        Element.__init__(self)
        self._name = None
        self._items, self._progressions, self._named = messages, branches, branches.named

    def starts(self) -> dict[UUID, int]:
        """Return how often each tool call was started, without those never started."""
        return self._items._session._repository.starts()
