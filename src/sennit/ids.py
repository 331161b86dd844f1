"""Ids: UUID version 7, ordered by time.

The first 60 bits that count are the time (48 bits of milliseconds, 12 bits of the fraction below),
never going backwards within a process; the other 62 are random, which is what makes two processes
differ. The random source is our own: `random.seed(42)` in a user's program must not make two
programs produce the same ids, and a forked child reseeds.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from uuid import UUID, SafeUUID

from sennit import clock

_MARKS = (0x7 << 76) | (0x2 << 62)  # version and variant
_UNKNOWN = SafeUUID.unknown
# UUID refuses assignment, and its constructor takes three times as long as filling its slots.
_new = UUID.__new__
_set_int, _set_safe = (vars(UUID)[name].__set__ for name in ("int", "is_safe"))

_random = random.Random()
os.register_at_fork(after_in_child=_random.seed)
_draw = _random.getrandbits
_latest = 0


def new_id() -> UUID:
    """A new UUIDv7; within one thread each is greater than the one before."""
    global _latest
    tick = (clock.now_ns() << 12) // 1_000_000
    if tick <= _latest:
        tick = _latest + 1
    _latest = tick
    uid = _new(UUID)
    _set_int(uid, ((tick >> 12) << 80) | ((tick & 0xFFF) << 64) | _MARKS | _draw(62))
    _set_safe(uid, _UNKNOWN)
    return uid


def id_from_bytes(data: bytes) -> UUID:
    """The UUID in 16 bytes, as stores keep it."""
    uid = _new(UUID)
    _set_int(uid, int.from_bytes(data, "big"))
    _set_safe(uid, _UNKNOWN)
    return uid


def ids_from_bytes(many: Iterable[bytes]) -> list[UUID]:
    """The same for many at once, in half the time: a long history is mostly ids."""
    new, set_int, set_safe, number, unknown = _new, _set_int, _set_safe, int.from_bytes, _UNKNOWN
    found: list[UUID] = []
    for data in many:
        uid = new(UUID)
        set_int(uid, number(data, "big"))
        set_safe(uid, unknown)
        found.append(uid)
    return found
