"""Retention: deletion of old sessions and of removed messages.

The age of a session counts from its last change, that of a removed message from when it was removed
from its last branch. The store looks at that again as they go, so that a session which was used
meanwhile stays, and so does a message that was put on a branch again. A session that only says
where another one is (its metadata names that one's key as `SHARES`) goes with it, not before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID

from sennit import clock
from sennit.errors import InvalidTypeError, SennitError, ValidationError, shown
from sennit.stores.base import Store
from sennit.stores.records.sessions import Owner, SessionRecord
from sennit.stores.session_ids import session_id

_log = logging.getLogger(__name__)

Erased: TypeAlias = Callable[[Owner, UUID, list[UUID]], object]
"""Told the messages of a session that are erased."""

SHARES = "shares"
_PAGE = 500
_LOWEST_ID = UUID(int=0)


def expire(store: Store, owner: Owner, older_than: datetime) -> list[UUID]:
    """Delete the owner's sessions last changed before `older_than`; gives those that are gone."""
    limit = clock.from_datetime(older_than)
    before, deleted = (limit, _LOWEST_ID), list[UUID]()
    while page := store.list_sessions(owner, contains=None, before=before, limit=_PAGE):
        before = (page[-1].updated, page[-1].id)
        old = (record.id for record in page if not _is_alias(store, owner, record))
        deleted += [record for record in old if store.delete_session(owner, record, limit)]
    if deleted:
        store.scrub()
    return deleted


def _is_alias(store: Store, owner: Owner, record: SessionRecord) -> bool:
    """Return whether a session says where another is, which is still there."""
    key = record.metadata.get(SHARES)
    return isinstance(key, str) and store.find_session(owner, session_id(owner, key)) is not None


def checked_retention(retention: Any) -> timedelta:
    """Return a valid retention period; raises ValidationError."""
    if not isinstance(retention, timedelta):
        raise InvalidTypeError(f"retention must be a timedelta, got {shown(retention)}.")
    if retention < timedelta():
        raise ValidationError(f"retention must not be negative, got {shown(retention)}.")
    return retention


def due(retention: timedelta) -> int:
    """Return the time before which removed messages are due for erasure."""
    return clock.now_us() + 1 - int(retention.total_seconds() * 1_000_000)


def purge(store: Store, owner: Owner | None, before: int, erased: Erased) -> int:
    """Erase messages that were removed from their last branch before a time; gives how many.

    Of one owner, or of all; `erased` is told which.
    """
    total = 0
    while messages_found := store.removed(owner, None, before, _PAGE):
        sessions = dict.fromkeys((removed.owner, removed.session) for removed in messages_found)
        count = 0
        for session in sessions:
            messages = store.erase_removed(*session, before)
            erased(*session, messages)
            count += len(messages)
        if not count:  # somebody else did it in the same moment
            break
        total += count
    if total:
        store.scrub()
    return total


def purge_if_possible(store: Store, owner: Owner | None, before: int, erased: Erased) -> None:
    """Purge, or log why it failed; the next purge tries again."""
    try:
        purge(store, owner, before, erased)
    except SennitError as error:
        _log.warning("Removed messages could not be erased: %s", error)
