"""Guarded views of a session's messages and branches.

They read like any pile; every change goes through the session, which validates and stores it.
"""

# The piles of a session read its names directly.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from sennit.containers.element import Element, Ref
from sennit.containers.flow import Flow
from sennit.containers.pile import Pile
from sennit.errors import ExistsError, ValidationError, short_repr
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.stores.records.sessions import MessageRecord

if TYPE_CHECKING:
    from sennit.sessions.session import BranchRef, SessionCore

RAISE: Any = object()
"""The sentinel for no default: a missing item raises."""


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


class BranchPile(Pile[Branch]):
    """The branches of a session; changes go through the session."""

    __slots__ = ("_session",)

    def __init__(self, session: SessionCore) -> None:
        super().__init__(item_type=Branch)
        self._session = session

    def add(self, item: Branch) -> None:
        """Raise ValidationError: only the session creates branches."""
        raise ValidationError(
            f"Cannot add {short_repr(item)}: use session.create_branch() or fork()."
        )

    def __contains__(self, ref: object) -> bool:
        """Return whether the branch, its id or its name is here."""
        return (
            isinstance(ref, str) and ref in self._session._branches_by_name
        ) or super().__contains__(ref)

    def get(self, ref: Any, default: Any = RAISE) -> Any:
        """Return the branch with an id or name, or the default; raises NotFoundError."""
        return self._session.get_branch(ref, default)

    def by_key(self, key: int) -> Branch | None:
        """Return the branch with an id, given as an int."""
        return self._items.get(key)

    def remove(self, ref: Ref) -> Branch:
        """Remove a branch; its messages stay. Raises NotFoundError."""
        return self._session.remove_branch(cast("BranchRef", ref))

    def clear(self) -> None:
        """Remove all branches; the messages stay."""
        with self._session.lock:
            for branch in self:
                self._session.remove_branch(branch)


class Conversations(Flow[Message, Branch]):
    """A session's messages and branches as a flow; the session keeps their integrity."""

    __slots__ = ()
    _items: MessagePile

    def __init__(
        self, messages: MessagePile, branches: BranchPile, named: dict[str, Branch]
    ) -> None:
        Element.__init__(self)
        self._name = None
        self._items, self._progressions, self._named = messages, branches, named

    def starts(self) -> dict[UUID, int]:
        """Return how often each tool call was started, without those never started."""
        return self._items._session._starts()
