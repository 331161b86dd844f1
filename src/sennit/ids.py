"""Ids: UUID version 7, ordered by time.

60 bits are the time (48 bits of milliseconds and a 12-bit fraction), which never goes backwards
within a process; 62 bits are random, so that ids of different processes differ. The random
generator is separate from the `random` module's, so `random.seed(42)` in a user's program does not
affect ids, and a forked child reseeds it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from uuid import UUID, SafeUUID

from sennit import clock

_VERSION_AND_VARIANT = (0x7 << 76) | (0x2 << 62)  # version and variant
_UNKNOWN = SafeUUID.unknown
# UUID is immutable, and its constructor takes three times as long as setting its slots.
_new = UUID.__new__
_set_int, _set_safe = (vars(UUID)[name].__set__ for name in ("int", "is_safe"))

_random = random.Random()
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_random.seed)
_random_bits = _random.getrandbits
_latest = 0


def new_id() -> UUID:
    """Return a new UUIDv7; within one thread each is greater than the one before."""
    global _latest
    tick = (clock.now_ns() << 12) // 1_000_000
    if tick <= _latest:
        tick = _latest + 1
    _latest = tick
    uid = _new(UUID)
    _set_int(
        uid, ((tick >> 12) << 80) | ((tick & 0xFFF) << 64) | _VERSION_AND_VARIANT | _random_bits(62)
    )
    _set_safe(uid, _UNKNOWN)
    return uid


def id_from_bytes(data: bytes) -> UUID:
    """Return the UUID of 16 bytes, the form in which stores keep it."""
    uid = _new(UUID)
    _set_int(uid, int.from_bytes(data, "big"))
    _set_safe(uid, _UNKNOWN)
    return uid


def ids_from_bytes(values: Iterable[bytes]) -> list[UUID]:
    """Return many UUIDs at once, in half the time: a long history consists mostly of ids."""
    new, set_int, set_safe, number, unknown = _new, _set_int, _set_safe, int.from_bytes, _UNKNOWN
    ids: list[UUID] = []
    for data in values:
        uid = new(UUID)
        set_int(uid, number(data, "big"))
        set_safe(uid, unknown)
        ids.append(uid)
    return ids
