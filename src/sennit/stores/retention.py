"""Retention: deletion of old sessions and of removed messages.

The age of a session counts from its last change, that of a removed message from its removal. The
store checks it again in the deleting transaction, so a session that was used meanwhile stays, and
so does a message that is on a branch again. A session that only refers to another one (its metadata
has that one's key as `SHARES`) is deleted after it, not before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID

from sennit import clock
from sennit.errors import InvalidTypeError, SennitError, ValidationError, short_repr
from sennit.stores.base import Store
from sennit.stores.records.blobs import BLOB_GRACE_US
from sennit.stores.records.sessions import Owner, SessionRecord
from sennit.stores.session_ids import session_id

_log = logging.getLogger(__name__)

Erased: TypeAlias = Callable[[Owner, UUID, list[UUID]], object]
"""Called with the erased messages of a session."""

SHARED_ROOT_KEY = "shares"
_PAGE = 500
_LOWEST_ID = UUID(int=0)


def expire(store: Store, owner: Owner, older_than: datetime) -> list[UUID]:
    """Delete the owner's sessions last changed before `older_than`; return their ids."""
    limit = clock.from_datetime(older_than)
    before, deleted = (limit, _LOWEST_ID), list[UUID]()
    while page := store.list_sessions(owner, contains=None, before=before, limit=_PAGE):
        before = (page[-1].updated, page[-1].id)
        old = (record.id for record in page if not _is_alias(store, owner, record))
        deleted += [uid for uid in old if store.delete_session(owner, uid, limit)]
    if deleted:
        store.scrub()
    return deleted


def _is_alias(store: Store, owner: Owner, record: SessionRecord) -> bool:
    """Return whether a session refers to another one that still exists."""
    key = record.metadata.get(SHARED_ROOT_KEY)
    return isinstance(key, str) and store.find_session(owner, session_id(owner, key)) is not None


def check_retention(retention: Any) -> timedelta:
    """Return a valid retention period; raises ValidationError."""
    if not isinstance(retention, timedelta):
        raise InvalidTypeError(f"retention must be a timedelta, got {short_repr(retention)}.")
    if retention < timedelta():
        raise ValidationError(f"retention must not be negative, got {short_repr(retention)}.")
    return retention


def cutoff_us(retention: timedelta) -> int:
    """Return the time before which removed messages are due for erasure."""
    return clock.now_us() + 1 - int(retention.total_seconds() * 1_000_000)


def purge(store: Store, owner: Owner | None, before: int, erased: Erased) -> int:
    """Erase messages that were removed before a time, of one owner or of all; return how many.

    Blobs that no message names go too, of all owners.
    `erased` is called with them, session by session.
    """
    total = 0
    while page := store.removed(owner, None, before, _PAGE):
        sessions = dict.fromkeys((removed.owner, removed.session) for removed in page)
        count = 0
        for session in sessions:
            messages = store.erase_removed(*session, before)
            erased(*session, messages)
            count += len(messages)
        if not count:  # another process erased them meanwhile
            break
        total += count
    if total:
        store.scrub()
    else:
        store.collect_blobs(clock.now_us() - BLOB_GRACE_US)
    return total


def purge_if_possible(store: Store, owner: Owner | None, before: int, erased: Erased) -> None:
    """Purge, or log why it failed; the next purge tries again."""
    try:
        purge(store, owner, before, erased)
    except SennitError as error:
        _log.warning("Removed messages could not be erased: %s", error)
