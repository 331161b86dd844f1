"""What a store answers to a search: places with scores, and what stands at a place.

A search has two steps, so that it costs what it finds and no more. `hits` gives the best places by
their words alone, each with the places before and after it in its session, without reading a
single message. Whoever ranks them shares scores among neighbours, and asks `at_places` for the few
that are shown. A place is a number that means something only to the store that gave it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

import msgspec

from sennit.stores.records import MessageRecord

NEAR = 2
"""How many places before and after a hit are named."""


class Asked(msgspec.Struct, frozen=True, gc=False):
    """What is searched for, and where."""

    words: tuple[str, ...]
    session: UUID | None = None
    since: int | None = None
    """Only what was created at this time or later, in microseconds."""
    until: int | None = None
    """Only what was created before this time."""
    limit: int = 200


class Hit(msgspec.Struct, frozen=True, gc=False):
    """A message that holds some of the words."""

    place: int
    group: tuple[int, int]
    """Its session, and the archive or else the day of it in which the message stands."""
    created: int
    score: float
    """How well its own words fit; higher is better, comparable within one search."""
    before: tuple[int, ...]
    """The places just before it in its session, the nearest first."""
    after: tuple[int, ...]


class Placed(msgspec.Struct, frozen=True, gc=False):
    """A message and where it stands."""

    place: int
    session: UUID
    message: MessageRecord


def near(places: Sequence[int], at: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The places before and after one, the nearest first."""
    return tuple(reversed(places[max(0, at - NEAR) : at])), tuple(places[at + 1 : at + 1 + NEAR])


def present(*places: int | None) -> tuple[int, ...]:
    """Those of the places that are there."""
    return tuple(place for place in places if place is not None)


def in_order_of(places: Iterable[int], found: Iterable[Placed]) -> list[Placed]:
    """What stands at the places, in their order; what was erased meanwhile is left out."""
    by_place = {one.place: one for one in found}
    return [by_place[place] for place in places if place in by_place]
