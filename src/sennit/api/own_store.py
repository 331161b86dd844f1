"""The store of a session without a client: `Session(store=...)`.

Such a session belongs to the default user of the default tenant, as with `sennit.open()`, so a
client of that user reaches it too.
"""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from sennit.api.store_url import store_at
from sennit.errors import InvalidTypeError, shown
from sennit.messages.content import MessageRole
from sennit.messages.json_values import plain_dict
from sennit.messages.message import SenderRecipient
from sennit.sessions.repository import SessionRepository
from sennit.sessions.session import SessionCore
from sennit.stores.group_commit import GroupCommitter
from sennit.stores.records.sessions import Owner, SessionRecord

if TYPE_CHECKING:
    from sennit.stores.base import Store

DEFAULT = "default"
"""The tenant and the user of whoever names none."""
_OWNER = Owner(DEFAULT, "user", DEFAULT)


class OwnStore:
    """A store and the way of one session into it; it closes what it opened itself."""

    def __init__(self, store: Store | str | PathLike[str]) -> None:
        """Raises StoreError if the store cannot be used."""
        self._opened = isinstance(store, str | PathLike)
        self._store = _store(store)
        self._group = GroupCommitter(self._store)

    def kept(self, session: SessionCore) -> SessionRecord:
        """The session that is kept here under this one's id, or else this one."""
        record = SessionRecord(
            session.id,
            session.key,
            _written(session.user),
            session.created_us,
            session.created_us,
            plain_dict(dict(session.metadata), "metadata"),
        )
        return self._store.create_session(_OWNER, record)

    def keeper(self, session: UUID) -> SessionRepository:
        """A session's line to the store."""
        return SessionRepository(self._store, self._group, _OWNER, session)

    def close(self) -> None:
        """Finish what async callers have under way, then close the store if it is our own."""
        self._group.close()
        if self._opened:
            self._store.close()


def _store(given: Any) -> Store:
    if isinstance(given, str | PathLike):
        return store_at(cast("str | PathLike[str]", given))
    if isinstance(given, type) or not hasattr(given, "find_session"):
        raise InvalidTypeError(f"store must be a Store or a store URL, got {shown(given)}.")
    return given


def _written(user: SenderRecipient) -> str:
    return user.value if isinstance(user, MessageRole) else str(user)
