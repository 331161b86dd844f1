"""Integrity checks by checksum.

A row does not tell what it was before; a backup does. Without one, repair accepts the row as it is
now, so that the session can be used again.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from sennit.stores.checksums import DAMAGED, checked_body, message_checksum
from sennit.stores.doctor.checks import IntegrityCheck, StoreInspector, is_readable

_ADVICE = "Restore a backup; repair takes them as they are now."
CHANGED_ROWS = f"Rows do not match their checksums: something has changed them. {_ADVICE}"


def _changed_messages(inspector: StoreInspector) -> Iterator[tuple[UUID, int, bytes]]:
    """Yield readable messages that do not match their checksum."""
    for uid, created, body, checksum in inspector.bodies():
        matches = checked_body(uid.bytes, created, body, checksum) is not DAMAGED
        if not matches and is_readable(uid, created, body):
            yield uid, created, body


def _accept_messages(inspector: StoreInspector) -> None:
    for uid, created, body in list(_changed_messages(inspector)):
        checksum = message_checksum(uid.bytes, created, body)
        inspector.tell(inspector.sql.SET_CHECKSUM, checksum, inspector.key_of(uid), created, body)


def _changed_histories(inspector: StoreInspector) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield the first mismatch of each segment: owner, segment, position, message."""
    last, previous, matches = None, None, True
    for owner, segment, position, uid, checksum in inspector.entries():
        if (owner, segment) != last:
            last, previous, matches = (owner, segment), None, True
        if matches and inspector.rolled(previous, position, uid) != checksum:
            yield owner, segment, position, uid
            matches = False
        previous = checksum


def _accept_histories(inspector: StoreInspector) -> None:
    for owner, segment, _, _ in list(_changed_histories(inspector)):
        inspector.recompute_checksums(owner, segment)


CHECKS = (
    IntegrityCheck(
        "histories",
        f"Histories do not match their checksums: messages may be missing or misplaced. {_ADVICE}",
        lambda inspector: (
            f"segment {segment} from message {UUID(bytes=uid)}"
            for _, segment, _, uid in _changed_histories(inspector)
        ),
        _accept_histories,
    ),
    IntegrityCheck(
        "changed",
        f"Messages do not match their checksums: they are not what was written. {_ADVICE}",
        lambda inspector: (f"message {uid}" for uid, *_ in _changed_messages(inspector)),
        _accept_messages,
    ),
)
