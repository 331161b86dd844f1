"""Guarded views of a session's messages and branches.

They read like any pile; every change goes through the session, which checks and keeps it.
"""

# A pile of a session may look at the session's names.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from sennit.containers.element import Element, Ref
from sennit.containers.flow import Flow
from sennit.containers.pile import Pile
from sennit.errors import ExistsError, ValidationError, shown
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.stores.records.sessions import MessageRecord

if TYPE_CHECKING:
    from sennit.sessions.session import BranchRef, SessionCore

RAISE: Any = object()
"""Stands for no default: what is missing is an error."""


class MessagePile(Pile[Message]):
    """The messages of a session, in the order they came; changes go through the session."""

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
        """The message with that id, as an int."""
        return self._items.get(key)

    def take(self, records: Iterable[MessageRecord]) -> None:
        """Have these messages of the store; those that are here already stay as they are."""
        # Not by way of the session, which has them from there, nor one by one: a long session has
        # many, and this is most of what opening it costs.
        items, kept = self._items, Message.kept
        for record in records:
            uid = record.id
            key = uid.int
            if key not in items:
                items[key] = kept(uid, record.created, record.body)

    def remove(self, ref: Ref) -> Message:
        """Take a message off all branches and out of the session; raises NotFoundError."""
        return self._session.remove_message(ref)

    def clear(self) -> None:
        """Take all messages off all branches and out of the session."""
        with self._session.lock:
            self._session.remove_messages(list(self))


class BranchPile(Pile[Branch]):
    """The branches of a session; changes go through the session."""

    __slots__ = ("_session",)

    def __init__(self, session: SessionCore) -> None:
        super().__init__(item_type=Branch)
        self._session = session

    def add(self, item: Branch) -> None:
        """Always refused: a branch is made by its session."""
        raise ValidationError(f"Cannot add {shown(item)}: use session.create_branch() or fork().")

    def __contains__(self, ref: object) -> bool:
        """Return whether the branch, its id or its name is here."""
        return (isinstance(ref, str) and ref in self._session._named) or super().__contains__(ref)

    def get(self, ref: Any, default: Any = RAISE) -> Any:
        """The branch with an id or a name, or the default; raises NotFoundError without."""
        return self._session.get_branch(ref, default)

    def by_key(self, key: int) -> Branch | None:
        """The branch with that id, as an int."""
        return self._items.get(key)

    def remove(self, ref: Ref) -> Branch:
        """Take a branch out of the session; its messages stay. Raises NotFoundError."""
        return self._session.remove_branch(cast("BranchRef", ref))

    def clear(self) -> None:
        """Take all branches out of the session; the messages stay."""
        with self._session.lock:
            for branch in self:
                self._session.remove_branch(branch)


class Conversations(Flow[Message, Branch]):
    """A session's messages and branches as a flow; they keep their own integrity."""

    __slots__ = ()
    _items: MessagePile

    def __init__(
        self, messages: MessagePile, branches: BranchPile, named: dict[str, Branch]
    ) -> None:
        Element.__init__(self)
        self._name = None
        self._items, self._progressions, self._named = messages, branches, named

    def starts(self) -> dict[UUID, int]:
        """Count the starts of each of its tool calls that was ever started."""
        return self._items._session._starts()
