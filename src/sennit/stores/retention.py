"""Retention: sessions that nobody has changed for long are really deleted.

Age counts from the last change. A session is looked at again just before it goes, so that one which
was used meanwhile stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from uuid import UUID

from sennit import clock
from sennit.stores.base import Store
from sennit.stores.records import Owner

_PAGE = 500
_LOWEST = UUID(int=0)


def expired(store: Store, owner: Owner, older_than: datetime) -> Iterator[UUID]:
    """The owner's sessions last changed before `older_than`, each to be deleted at once."""
    limit = clock.from_datetime(older_than)
    before = (limit, _LOWEST)
    while page := store.list_sessions(owner, contains=None, before=before, limit=_PAGE):
        before = (page[-1].updated, page[-1].id)
        for listed in page:
            found = store.find_session(owner, listed.id)
            if found is not None and found.updated < limit:
                yield found.id


def expire(store: Store, owner: Owner, older_than: datetime) -> int:
    """Delete the owner's sessions last changed before `older_than`; gives how many."""
    return sum(store.delete_session(owner, uid) for uid in expired(store, owner, older_than))
