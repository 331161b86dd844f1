"""The usual write: one new message at the end of one branch, in one statement and one round trip.

Nearly all writes are this one, so it goes to the server the short way: prepared once on each
connection, its values packed here. Through a cursor the same statement takes a quarter longer.
Whatever does not fit is left to `SessionWriter`, which sees more closely.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from sennit import clock
from sennit.ids import id_from_bytes
from sennit.stores.postgres_line import Line, Refused, Statement
from sennit.stores.records import Head, Write, usual
from sennit.stores.sql import postgres as sql

_APPEND = Statement("sennit_append", sql.APPEND, parameters=7)
_integer, _bigint = Struct("!i"), Struct("!q")


class Appending(NamedTuple):
    """The values of APPEND, in its order."""

    now: int
    owner: int
    session: UUID
    branch: UUID
    id: UUID
    created: int
    body: bytes

    def make(self, line: Line) -> Head | None:
        """Make it; None if it needs a closer look."""
        try:
            found = line.ask(_APPEND, self._packed())
        except Refused:
            return None
        if not found.ntuples:
            return None
        tail, length, version = (found.get_value(0, column) or b"" for column in range(3))
        return Head(self.branch, id_from_bytes(tail), _number(length), _number(version))

    def _packed(self) -> list[bytes]:
        return [
            _bigint.pack(self.now),
            _integer.pack(self.owner),
            self.session.bytes,
            self.branch.bytes,
            self.id.bytes,
            _bigint.pack(self.created),
            self.body,
        ]


def appending(write: Write, owner: int) -> Appending | None:
    """The write as one of this kind, if it is."""
    found = usual(write.changes)
    if found is None:
        return None
    message, branch = found
    return Appending(
        clock.now_us(), owner, write.session, branch, message.id, message.created, message.body
    )


def append_all(line: Line, given: Sequence[Appending]) -> list[Head] | None:
    """Make several inside one transaction; None if one needs a closer look: undo all then."""
    try:
        rows = line.ask_each(_APPEND, given)
    except Refused:
        return None
    heads = [Head(one.branch, *row) for one, row in zip(given, rows, strict=True) if row]
    return heads if len(heads) == len(given) else None


def _number(packed: bytes) -> int:
    return _integer.unpack(packed)[0]
