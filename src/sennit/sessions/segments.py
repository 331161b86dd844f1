"""History that branches share instead of copying.

A segment is a run of message ids that may begin where another one is cut: its base and the length
of the base that counts. A branch owns one segment, its tail, and sees that and everything below.
Forking makes a new, empty tail on the source's: constant time and space, whatever the length.

What other segments build on (`shared` entries of a segment) never changes again. Beyond that a
segment belongs to its branch alone, which may rewrite it in place.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from sennit.containers.progression import Progression


class Segment(Progression):
    """Ids of one branch's own, on top of the first `offset` ids of a base."""

    __slots__ = ("base", "offset", "shared")

    base: Segment | None
    offset: int
    """How many ids of the base come before the first own one."""
    shared: int
    """How many own ids other segments build on."""

    def __init__(
        self, order: Iterable[UUID] = (), base: Segment | None = None, offset: int = 0
    ) -> None:
        super().__init__(order)
        self.base, self.offset, self.shared = base, offset, 0

    @property
    def total(self) -> int:
        """How many ids there are, the base's included."""
        return self.offset + len(self)

    def on_top(self, length: int, order: Iterable[UUID] = ()) -> Segment:
        """A new segment sharing the first `length` ids, followed by `order`."""
        base: Segment | None = self
        while base is not None and length <= base.offset:
            base = base.base
        if base is not None:
            base.shared = max(base.shared, length - base.offset)
        return Segment(order, base, length)

    def chain(self) -> list[tuple[Segment, int]]:
        """The segments from the root up, each with the number of its own ids that count."""
        found: list[tuple[Segment, int]] = []
        segment, limit = self, self.total
        while segment is not None:
            found.append((segment, limit - segment.offset))
            segment, limit = segment.base, segment.offset
        return found[::-1]

    def between(self, start: int, stop: int) -> list[UUID]:
        """The ids at positions `start` up to `stop`, reading no segment below them."""
        pieces: list[list[UUID]] = []
        segment: Segment | None = self
        while segment is not None and start < stop:
            if stop > segment.offset:
                pieces.append(segment[max(start - segment.offset, 0) : stop - segment.offset])
                stop = segment.offset
            segment = segment.base
        return [uid for piece in reversed(pieces) for uid in piece]

    def position(self, uid: UUID) -> int | None:
        """Where an id stands, counted from the root; None if it does not."""
        segment, limit = self, self.total
        while segment is not None:
            if uid in segment and (place := segment.offset + segment.index(uid)) < limit:
                return place
            segment, limit = segment.base, segment.offset
        return None

    def id_at(self, position: int) -> UUID:
        """The id at a position counted from the root."""
        segment = self
        while segment.base is not None and position < segment.offset:
            segment = segment.base
        return segment[position - segment.offset]

    def without(self, position: int) -> Segment:
        """This history less one id: in place where it is the branch's own, else a new segment."""
        if position >= self.offset + self.shared:
            del self[position - self.offset]
            return self
        return self.rewritten(self.between(position + 1, self.total), position)

    def rewritten(self, order: list[UUID], first: int) -> Segment:
        """This history with all from position `first` replaced by `order`."""
        if first >= self.offset + self.shared:
            self[first - self.offset :] = order
            return self
        if order:
            # Taking twice as much out of the shared history each time keeps many rewrites linear.
            lower = max(0, first - len(order))
            first, order = lower, [*self.between(lower, first), *order]
        return self.on_top(first, order)
