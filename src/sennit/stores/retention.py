"""Retention: sessions that nobody has changed for long are really deleted.

Age counts from the last change. The store looks at that again as a session goes, so that one which
was used meanwhile stays.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sennit import clock
from sennit.stores.base import Store
from sennit.stores.records import Owner

_PAGE = 500
_LOWEST = UUID(int=0)


def expire(store: Store, owner: Owner, older_than: datetime) -> list[UUID]:
    """Delete the owner's sessions last changed before `older_than`; gives those that are gone."""
    limit = clock.from_datetime(older_than)
    before, gone = (limit, _LOWEST), list[UUID]()
    while page := store.list_sessions(owner, contains=None, before=before, limit=_PAGE):
        before = (page[-1].updated, page[-1].id)
        gone += [one.id for one in page if store.delete_session(owner, one.id, limit)]
    if gone:
        store.scrub()
    return gone
