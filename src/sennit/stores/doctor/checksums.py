"""Checksum checks.

Nobody can tell from the row what it was. A backup can; where there is none, repair takes the row as
it is now, so that the session can be used again.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from sennit.stores.checksums import DAMAGED, checked_body, message_checksum
from sennit.stores.doctor.checks import IntegrityCheck, StoreInspector, is_readable

_WAY_OUT = "Restore a backup; repair takes them as they are now."
CHANGED_ROWS = f"Rows do not match their checksums: something has changed them. {_WAY_OUT}"


def _changed_messages(patient: StoreInspector) -> Iterator[tuple[UUID, int, bytes]]:
    """Messages that can be read and do not match their checksum."""
    for uid, created, body, checksum in patient.bodies():
        sound = checked_body(uid.bytes, created, body, checksum) is not DAMAGED
        if not sound and is_readable(uid, created, body):
            yield uid, created, body


def _take_messages_as_they_are(patient: StoreInspector) -> None:
    for uid, created, body in list(_changed_messages(patient)):
        checksum = message_checksum(uid.bytes, created, body)
        patient.tell(patient.sql.SET_CHECKSUM, checksum, patient.key_of(uid), created, body)


def _changed_histories(patient: StoreInspector) -> Iterator[tuple[int, int, int, bytes]]:
    """The first entry of each segment that does not match: owner, segment, position, message."""
    last, before, sound = None, None, True
    for owner, segment, place, uid, checksum in patient.entries():
        if (owner, segment) != last:
            last, before, sound = (owner, segment), None, True
        if sound and patient.rolled(before, place, uid) != checksum:
            yield owner, segment, place, uid
            sound = False
        before = checksum


def _take_histories_as_they_are(patient: StoreInspector) -> None:
    for owner, segment, _, _ in list(_changed_histories(patient)):
        patient.roll_again(owner, segment)


CHECKS = (
    IntegrityCheck(
        "histories",
        f"Histories do not match their checksums: messages may be missing or misplaced. {_WAY_OUT}",
        lambda patient: (
            f"segment {segment} from message {UUID(bytes=uid)}"
            for _, segment, _, uid in _changed_histories(patient)
        ),
        _take_histories_as_they_are,
    ),
    IntegrityCheck(
        "changed",
        f"Messages do not match their checksums: they are not what was written. {_WAY_OUT}",
        lambda patient: (f"message {uid}" for uid, *_ in _changed_messages(patient)),
        _take_messages_as_they_are,
    ),
)
