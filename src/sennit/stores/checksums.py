"""Checksums of stored rows.

A disk, a cable or another program may change a stored byte, and the result often still reads as a
valid conversation. So a message has a checksum of its id, time and body, and each entry of a
segment has a running checksum over the message ids up to it: appending needs only the last one, and
erasing a body changes none.

CRC-32 detects every burst error of up to 32 bits, and all but one in four billion others. Measured,
BLAKE2 and SHA-256 make an append several times as expensive. In SQLite the running checksum is the
CRC-32 of the concatenated ids, so that one call checks a long segment; consecutive positions are
checked separately. PostgreSQL has no CRC before version 18, and computes the running checksum in
the statement that appends: the first eight bytes of SHA-256 over positions and ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from struct import Struct
from typing import Final
from zlib import crc32

START: Final = 0
"""The running checksum of an empty segment in SQLite."""
DATABASE_START: Final = bytes(8)
"""The running checksum of an empty segment in PostgreSQL."""
DAMAGED: Final = b"\x00damaged"
"""The body returned for a message whose checksum does not match; invalid JSON on purpose."""

_pack_position = Struct("!i").pack
_PRIME = 4_294_967_291  # the largest below 2**32: flipping one bit of a time changes the remainder
_MAX_REPR_LENGTH = 4096  # bytes or characters of a value


def message_checksum(uid: bytes, created: int, body: bytes) -> int:
    """Return the checksum of a message."""
    return crc32(body, crc32(uid) + created % _PRIME)


def checked_body(uid: bytes, created: int, body: bytes, checksum: int) -> bytes:
    """Return the body of a message, or DAMAGED if its checksum does not match."""
    try:
        matches = message_checksum(uid, created, body) == checksum
    except TypeError:  # a column of another type
        return DAMAGED
    return body if matches else DAMAGED


def checked_bodies(
    uids: Sequence[bytes], times: Sequence[int], bodies: Sequence[bytes], checksums: Sequence[int]
) -> list[bytes]:
    """Return the checked bodies of many rows, given by column."""
    columns = zip(uids, times, bodies, checksums, strict=True)
    try:
        return [
            body if crc32(body, crc32(uid) + created % _PRIME) == checksum else DAMAGED
            for uid, created, body, checksum in columns
        ]
    except TypeError:
        return list(map(checked_body, uids, times, bodies, checksums))


def entry_checksum(before: int, uid: bytes) -> int:
    """Return the running checksum of a segment up to an entry, from the one before it."""
    return crc32(uid, before)


def entry_checksums(before: int, uids: Iterable[bytes]) -> Iterator[int]:
    """Yield the running checksums of entries that follow one another."""
    for uid in uids:
        before = crc32(uid, before)
        yield before


def segment_checksum(uids: Iterable[bytes]) -> int:
    """Return the running checksum at the end of a segment."""
    return crc32(b"".join(uids), START)


def database_checksum(before: bytes, position: int, uid: bytes) -> bytes:
    """Return the running checksum of a segment up to an entry, as PostgreSQL computes it."""
    return sha256(before + _pack_position(position) + uid).digest()[:8]


def database_checksums(before: bytes, first: int, uids: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the running checksums of entries in a database, from position `first`."""
    for position, uid in enumerate(uids, first):
        before = database_checksum(before, position, uid)
        yield before


def row_checksum(*values: object) -> int:
    """Return the checksum of the columns of a row, as SQLite gives them."""
    if not [
        value
        for value in values
        if isinstance(value, (bytes, str)) and len(value) > _MAX_REPR_LENGTH
    ]:
        return crc32(repr(values).encode())
    checksum = 0
    short_values: list[object] = []
    for value in values:
        # repr would hold the GIL for milliseconds over a long value; crc32 releases it.
        if isinstance(value, (bytes, str)) and len(value) > _MAX_REPR_LENGTH:
            data = value if isinstance(value, bytes) else value.encode()
            checksum = crc32(data, checksum)
            short_values.append((type(value).__name__, len(data)))
        else:
            short_values.append(value)
    return crc32(repr(tuple(short_values)).encode(), checksum)
