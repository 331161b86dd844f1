"""The store of a session without a client: `Session(store=...)`.

Such a session belongs to the default user of the default tenant, as with `sennit.open()`, so a
client of that user can open it too.
"""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from sennit.api.store_url import open_store
from sennit.errors import InvalidTypeError, short_repr
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
"""The default tenant and user."""
_OWNER = Owner(DEFAULT, "user", DEFAULT)


class OwnStore:
    """The store of one session, closed with it only if it was opened here."""

    def __init__(self, store: Store | str | PathLike[str]) -> None:
        """Raises StoreError if the store cannot be used."""
        self._owns_store = isinstance(store, str | PathLike)
        self._store = _open_store(store)
        self._group = GroupCommitter(self._store)

    def load_or_create(self, session: SessionCore) -> SessionRecord:
        """Return the stored session with this one's id, or store this one."""
        record = SessionRecord(
            session.id,
            session.key,
            _user_text(session.user),
            session.created_us,
            session.created_us,
            plain_dict(dict(session.metadata), "metadata"),
        )
        return self._store.create_session(_OWNER, record)

    def repository(self, session: UUID) -> SessionRepository:
        """Return the repository of a session."""
        return SessionRepository(self._store, self._group, _OWNER, session)

    def close(self) -> None:
        """Finish pending writes, then close the store if it was opened here."""
        self._group.close()
        if self._owns_store:
            self._store.close()


def _open_store(store: Any) -> Store:
    if isinstance(store, str | PathLike):
        return open_store(cast("str | PathLike[str]", store))
    if isinstance(store, type) or not hasattr(store, "find_session"):
        raise InvalidTypeError(f"store must be a Store or a store URL, got {short_repr(store)}.")
    return store


def _user_text(user: SenderRecipient) -> str:
    return user.value if isinstance(user, MessageRole) else str(user)
