"""Segments: history that branches share.

A segment is a run of message ids that may begin where another one is cut: its base and the length
of the base that counts. A branch owns one segment, its tail, and sees that and everything below.
Forking makes a new, empty tail on the source's: constant time and space, whatever the length.

What other segments build on (`shared` entries of a segment) is never rewritten. Beyond that a
segment belongs to its branch alone, which may rewrite it in place. Only `erase`, which takes a
message from all branches at once, reaches into shared history.

In a store, a segment only grows: others may be reading it. A rewrite there writes new ones. So that
many rewrites of one history stay cheap, what is written is cut into pieces of about the square root
of the whole, and the pieces after the rewritten place are taken over as they are (`taken`), onto
another base, without writing their ids again.

`jump` leads to a segment further down, such that any depth is reached in few jumps (a skew-binary
list): a position is found in logarithmic time even in a fork of a fork of a fork.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt
from uuid import UUID

from sennit.containers.progression import Progression

_SMALLEST_PIECE = 64


class Segment(Progression):
    """Ids of one branch's own, on top of the first `offset` ids of a base."""

    __slots__ = ("base", "depth", "jump", "kept", "offset", "shared", "taken")

    base: Segment | None
    offset: int
    """How many ids of the base come before the first own one."""
    shared: int
    """How many own ids other segments build on."""

    kept: bool
    """Whether a store has it too: then it only grows, as others may be reading it."""
    taken: UUID | None
    """The segment of which it has the entries, on another base."""

    def __init__(
        self,
        order: Iterable[UUID] = (),
        base: Segment | None = None,
        offset: int = 0,
        *,
        kept: bool = False,
        id: UUID | None = None,
    ) -> None:
        super().__init__(order, id=id)
        self.base, self.offset, self.shared, self.kept = base, offset, 0, kept
        self.taken = None
        self.depth = 0 if base is None else base.depth + 1
        self.jump = None if base is None else _jump_from(base)

    @property
    def total(self) -> int:
        """The number of ids, including the base's."""
        return self.offset + len(self)

    @property
    def _own_from(self) -> int:
        """The position from which on this history may be rewritten in place."""
        return self.total + 1 if self.kept else self.offset + self.shared

    def grow(self, ids: tuple[UUID, ...]) -> None:
        """Put ids at the end that a store has there too, and so need no check."""
        self._store(ids)

    def holder(self, position: int) -> Segment:
        """The segment in which a position counted from the root stands."""
        segment = self
        while segment.base is not None and position < segment.offset:
            jump = segment.jump
            far = jump is not None and position < jump.offset
            segment = jump if jump is not None and far else segment.base
        return segment

    def on_top(self, length: int, order: Iterable[UUID] = ()) -> Segment:
        """A new segment sharing the first `length` ids, followed by `order`."""
        if length == 0:
            return Segment(order, kept=self.kept)
        base = self.holder(length - 1)
        base.hold(length)
        return Segment(order, base, length, kept=self.kept)

    def hold(self, length: int) -> None:
        """Have the first `length` ids read elsewhere too: they are no longer rewritten in place."""
        self.shared = max(self.shared, length - self.offset)

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
        segment = self.holder(stop - 1) if start < stop else None
        while segment is not None and start < stop:
            pieces.append(segment[max(start - segment.offset, 0) : stop - segment.offset])
            segment, stop = segment.base, segment.offset
        if len(pieces) == 1:  # as nearly always
            return pieces[0]
        return [uid for piece in reversed(pieces) for uid in piece]

    def position(self, uid: UUID) -> int | None:
        """Return the position of an id from the root; None if it is absent."""
        segment, limit = self, self.total
        while segment is not None:
            if uid in segment and (place := segment.offset + segment.index(uid)) < limit:
                return place
            segment, limit = segment.base, segment.offset
        return None

    def id_at(self, position: int) -> UUID:
        """The id at a position counted from the root."""
        segment = self.holder(position)
        return segment[position - segment.offset]

    def without(self, position: int) -> Segment:
        """This history less one id: in place where it is the branch's own, else a new segment."""
        if position >= self._own_from:
            del self[position - self.offset]
            return self
        return self.rewritten(self.between(position + 1, self.total), position)

    def rewritten(self, order: list[UUID], first: int) -> Segment:
        """This history with all from position `first` replaced by `order`."""
        if first >= self._own_from:
            self[first - self.offset :] = order
            return self
        if self.kept:
            return self._rewritten_in_pieces(order, first)
        if order:
            # Taking twice as much out of the shared history each time keeps many rewrites linear.
            lower = max(0, first - len(order))
            first, order = lower, [*self.between(lower, first), *order]
        return self.on_top(first, order)

    def _rewritten_in_pieces(self, order: list[UUID], first: int) -> Segment:
        """The same for a store: few ids are written, and all else that can be is taken over."""
        same = _equal_at_the_end(order, self.between(first, self.total))
        resume, written = self.total - same, order[: len(order) - same]
        shift = first + len(written) - resume
        size = max(_SMALLEST_PIECE, isqrt(self.total))
        above = [(one, count) for one, count in self.chain() if one.offset >= resume]
        upto = above[0][0].offset if above else self.total
        # Small neighbours are written with it, or the pieces would become ever smaller and more.
        while above and len(written) + upto - resume < size and above[0][1] <= 2 * size:
            upto += above.pop(0)[1]
        written += self.between(resume, upto)
        below = self.holder(first - 1) if written and first else None
        if below is not None and first - below.offset <= 2 * size:
            written = [*self.between(below.offset, first), *written]
            first = below.offset
        return self._built(first, _pieces(written, size), [one for one, _ in above], shift)

    def _built(
        self, first: int, pieces: list[list[UUID]], above: list[Segment], shift: int
    ) -> Segment:
        """The first `first` ids, then these pieces, then what is above, `shift` ids further up."""
        tail = self.on_top(first, pieces[0] if pieces else ())
        for piece in pieces[1:]:
            tail = tail.on_top(tail.total, piece)
        for one in above:
            tail = tail.on_top(one.offset + shift, one)
            tail.taken = one.id
        return tail


def _equal_at_the_end(one: list[UUID], other: list[UUID]) -> int:
    """Return the length of the common suffix."""
    count = 0
    for mine, theirs in zip(reversed(one), reversed(other), strict=False):
        if mine.int != theirs.int:
            break
        count += 1
    return count


def _pieces(ids: list[UUID], size: int) -> list[list[UUID]]:
    """The ids in pieces of this size, the last of which may be up to twice as long."""
    count = max(1, len(ids) // size)
    ends = [number * size for number in range(count)]
    return [ids[at : at + size] for at in ends[:-1]] + [ids[ends[-1] :]]


def erase(uid: UUID, tails: Iterable[Segment]) -> set[int]:
    """Take an id out of all these histories, in place; gives the keys of those it was in."""
    places: dict[int, int | None] = {}
    for segment in _from_the_root_up(tails):
        below = None if segment.base is None else places[segment.base.id.int]
        if below is not None and below < segment.offset:
            segment.offset -= 1
            places[segment.id.int] = below
        elif uid in segment:
            own = segment.index(uid)
            places[segment.id.int] = segment.offset + own
            segment.shared -= own < segment.shared
            segment.remove(uid)
        else:
            places[segment.id.int] = None
    return {key for key, place in places.items() if place is not None}


def _from_the_root_up(tails: Iterable[Segment]) -> Iterable[Segment]:
    """Every segment below these, once, each after its base."""
    seen: dict[int, Segment] = {}
    for tail in tails:
        segment: Segment | None = tail
        while segment is not None and segment.id.int not in seen:
            seen[segment.id.int] = segment
            segment = segment.base
    return sorted(seen.values(), key=lambda segment: segment.depth)


def _jump_from(base: Segment) -> Segment:
    """Return the jump pointer of a segment on `base`: twice as far where two equal jumps meet."""
    near = base.jump
    far = None if near is None else near.jump
    if near is not None and far is not None and base.depth - near.depth == near.depth - far.depth:
        return far
    return base
