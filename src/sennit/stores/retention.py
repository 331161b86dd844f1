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
_LOWEST = UUID(int=0)


def expire(store: Store, owner: Owner, older_than: datetime) -> list[UUID]:
    """Delete the owner's sessions last changed before `older_than`; gives those that are gone."""
    limit = clock.from_datetime(older_than)
    before, gone = (limit, _LOWEST), list[UUID]()
    while page := store.list_sessions(owner, contains=None, before=before, limit=_PAGE):
        before = (page[-1].updated, page[-1].id)
        old = (one.id for one in page if not _is_shared(store, owner, one))
        gone += [one for one in old if store.delete_session(owner, one, limit)]
    if gone:
        store.scrub()
    return gone


def _is_shared(store: Store, owner: Owner, one: SessionRecord) -> bool:
    """Return whether a session says where another is, which is still there."""
    key = one.metadata.get(SHARES)
    return isinstance(key, str) and store.find_session(owner, session_id(owner, key)) is not None


def checked_retention(given: Any) -> timedelta:
    """`given`, if it is a time that removed messages can be kept for; raises ValidationError."""
    if not isinstance(given, timedelta):
        raise InvalidTypeError(f"retention must be a timedelta, got {shown(given)}.")
    if given < timedelta():
        raise ValidationError(f"retention must not be negative, got {shown(given)}.")
    return given


def due(retention: timedelta) -> int:
    """The time before which messages have to be removed to be erased now."""
    return clock.now_us() + 1 - int(retention.total_seconds() * 1_000_000)


def purge(store: Store, owner: Owner | None, before: int, erased: Erased) -> int:
    """Erase messages that were removed from their last branch before a time; gives how many.

    Of one owner, or of all; `erased` is told which.
    """
    gone = 0
    while found := store.removed(owner, None, before, _PAGE):
        homes = dict.fromkeys((one.owner, one.session) for one in found)
        count = 0
        for home in homes:
            messages = store.erase_removed(*home, before)
            erased(*home, messages)
            count += len(messages)
        if not count:  # somebody else did it in the same moment
            break
        gone += count
    if gone:
        store.scrub()
    return gone


def purge_if_possible(store: Store, owner: Owner | None, before: int, erased: Erased) -> None:
    """Do so, or log why it was not possible: whoever comes next tries again."""
    try:
        purge(store, owner, before, erased)
    except SennitError as error:
        _log.warning("Removed messages could not be erased: %s", error)
