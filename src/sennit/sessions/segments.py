"""Segments: history that branches share.

A segment is a list of message ids that continues the first `offset` ids of a base segment. A branch
owns one segment, its tail, and its history is the tail and everything below. A fork is a new, empty
tail on the source's: constant time and space at any length.

Entries that other segments build on (`shared`) are never rewritten. The rest of a segment belongs
to its branch alone, which may rewrite it in place. Only `erase`, which removes a message from all
branches at once, changes shared history.

A stored segment only grows, as other processes may be reading it; a rewrite writes new segments. To
keep repeated rewrites cheap, the new ids are split into pieces of about the square root of the
history's length, and the pieces after the rewritten range are copied onto another base by reference
(`copy_of`), without writing their ids again.

`jump` points to a segment further down, as in a skew-binary list, so that a position is found in
logarithmic time even in a deep chain of forks.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt
from typing import TYPE_CHECKING
from uuid import UUID

from sennit.containers.progression import Progression

if TYPE_CHECKING:
    from sennit.sessions.branch import Branch

_MIN_PIECE_SIZE = 64


class Segment(Progression):
    """Message ids that follow the first `offset` ids of a base."""

    __slots__ = ("base", "copy_of", "depth", "jump", "offset", "shared", "stored")

    base: Segment | None
    offset: int
    """The number of ids that come from the base."""
    shared: int
    """The number of own ids that other segments build on."""

    stored: bool
    """Whether a store has it too, so that it may only grow."""
    copy_of: UUID | None
    """The id of the segment whose entries it repeats on another base."""

    def __init__(
        self,
        order: Iterable[UUID] = (),
        base: Segment | None = None,
        offset: int = 0,
        *,
        stored: bool = False,
        id: UUID | None = None,
    ) -> None:
        super().__init__(order, id=id)
        self.base, self.offset, self.shared, self.stored = base, offset, 0, stored
        self.copy_of = None
        self.depth: int = 0 if base is None else base.depth + 1
        self.jump: Segment | None = None if base is None else _jump_from(base)

    @property
    def total(self) -> int:
        """The number of ids, including the base's."""
        return self.offset + len(self)

    @property
    def _writable_from(self) -> int:
        """The first position that may be rewritten in place."""
        return self.total + 1 if self.stored else self.offset + self.shared

    def grow(self, ids: tuple[UUID, ...]) -> None:
        """Append ids that the store already has, unchecked."""
        self._store(ids)

    def segment_at(self, position: int) -> Segment:
        """Return the segment that has a position, counted from the root."""
        segment = self
        while segment.base is not None and position < segment.offset:
            jump = segment.jump
            far = jump is not None and position < jump.offset
            segment = jump if jump is not None and far else segment.base
        return segment

    def fork(self, length: int, order: Iterable[UUID] = ()) -> Segment:
        """Return a new segment that shares the first `length` ids, followed by `order`."""
        if length == 0:
            return Segment(order, stored=self.stored)
        base = self.segment_at(length - 1)
        base.mark_shared(length)
        return Segment(order, base, length, stored=self.stored)

    def mark_shared(self, length: int) -> None:
        """Mark the first `length` ids as shared, so that they are not rewritten in place."""
        self.shared = max(self.shared, length - self.offset)

    def chain(self) -> list[tuple[Segment, int]]:
        """Return the segments from the root up, each with how many of its ids are in use."""
        segments: list[tuple[Segment, int]] = []
        segment, limit = self, self.total
        while segment is not None:
            segments.append((segment, limit - segment.offset))
            segment, limit = segment.base, segment.offset
        return segments[::-1]

    def between(self, start: int, stop: int) -> list[UUID]:
        """Return the ids at positions [start, stop), without reading the segments below."""
        pieces: list[list[UUID]] = []
        segment = self.segment_at(stop - 1) if start < stop else None
        while segment is not None and start < stop:
            pieces.append(segment[max(start - segment.offset, 0) : stop - segment.offset])
            segment, stop = segment.base, segment.offset
        if len(pieces) == 1:  # the common case
            return pieces[0]
        return [uid for piece in reversed(pieces) for uid in piece]

    def position(self, uid: UUID) -> int | None:
        """Return the position of an id from the root; None if it is absent."""
        segment, limit = self, self.total
        while segment is not None:
            if uid in segment and (position := segment.offset + segment.index(uid)) < limit:
                return position
            segment, limit = segment.base, segment.offset
        return None

    def id_at(self, position: int) -> UUID:
        """Return the id at a position, counted from the root."""
        segment = self.segment_at(position)
        return segment[position - segment.offset]

    def without(self, position: int) -> Segment:
        """Return this history without one id, changed in place or as a new segment."""
        if position >= self._writable_from:
            del self[position - self.offset]
            return self
        return self.rewrite_from(self.between(position + 1, self.total), position)

    def rewrite_from(self, order: list[UUID], first: int) -> Segment:
        """Return this history with all ids from position `first` replaced by `order`."""
        if first >= self._writable_from:
            self[first - self.offset :] = order
            return self
        if self.stored:
            return self._rewrite_in_pieces(order, first)
        if order:
            # Copying twice as many ids each time keeps repeated rewrites linear.
            lower = max(0, first - len(order))
            first, order = lower, [*self.between(lower, first), *order]
        return self.fork(first, order)

    def _rewrite_in_pieces(self, order: list[UUID], first: int) -> Segment:
        """Return the rewritten history of a stored segment, writing as few ids as possible."""
        suffix = _common_suffix_length(order, self.between(first, self.total))
        resume, written = self.total - suffix, order[: len(order) - suffix]
        shift = first + len(written) - resume
        size = max(_MIN_PIECE_SIZE, isqrt(self.total))
        above = [(segment, count) for segment, count in self.chain() if segment.offset >= resume]
        upto = above[0][0].offset if above else self.total
        # Rewrite small neighbours too, or pieces would get ever smaller and more numerous.
        while above and len(written) + upto - resume < size and above[0][1] <= 2 * size:
            upto += above.pop(0)[1]
        written += self.between(resume, upto)
        below = self.segment_at(first - 1) if written and first else None
        if below is not None and first - below.offset <= 2 * size:
            written = [*self.between(below.offset, first), *written]
            first = below.offset
        return self._build(first, _pieces(written, size), [segment for segment, _ in above], shift)

    def _build(
        self, first: int, pieces: list[list[UUID]], above: list[Segment], shift: int
    ) -> Segment:
        """Return the first `first` ids, then the pieces, then `above`, moved by `shift`."""
        tail = self.fork(first, pieces[0] if pieces else ())
        for piece in pieces[1:]:
            tail = tail.fork(tail.total, piece)
        for segment in above:
            tail = tail.fork(segment.offset + shift, segment)
            tail.copy_of = segment.id
        return tail


def _common_suffix_length(a: list[UUID], b: list[UUID]) -> int:
    """Return the length of the common suffix."""
    count = 0
    for id_a, id_b in zip(reversed(a), reversed(b), strict=False):
        if id_a.int != id_b.int:
            break
        count += 1
    return count


def _pieces(ids: list[UUID], size: int) -> list[list[UUID]]:
    """Split ids into pieces of this size; the last may be up to twice as long."""
    count = max(1, len(ids) // size)
    starts = [number * size for number in range(count)]
    return [ids[at : at + size] for at in starts[:-1]] + [ids[starts[-1] :]]


def erase(uid: UUID, tails: Iterable[Segment]) -> set[int]:
    """Remove an id from these histories in place; return the keys of segments that saw it."""
    positions: dict[int, int | None] = {}
    for segment in _bases_first(tails):
        below = None if segment.base is None else positions[segment.base.id.int]
        if below is not None and below < segment.offset:
            segment.offset -= 1
            positions[segment.id.int] = below
        elif uid in segment:
            own = segment.index(uid)
            positions[segment.id.int] = segment.offset + own
            segment.shared -= own < segment.shared
            segment.remove(uid)
        else:
            positions[segment.id.int] = None
    return {key for key, position in positions.items() if position is not None}


def _bases_first(tails: Iterable[Segment]) -> Iterable[Segment]:
    """Return all segments of these histories once, each after its base."""
    seen: dict[int, Segment] = {}
    for tail in tails:
        segment: Segment | None = tail
        while segment is not None and segment.id.int not in seen:
            seen[segment.id.int] = segment
            segment = segment.base
    return sorted(seen.values(), key=lambda segment: segment.depth)


def _jump_from(base: Segment) -> Segment:
    """Return the jump pointer of a segment on `base`, merging two jumps of equal length."""
    near = base.jump
    far = None if near is None else near.jump
    if near is not None and far is not None and base.depth - near.depth == near.depth - far.depth:
        return far
    return base


def tail_of(branch: Branch) -> Segment:
    """Return the segment that a branch appends to; callers only read it."""
    return branch._tail  # pyright: ignore[reportPrivateUsage]
