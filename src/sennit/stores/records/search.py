"""Queries and hits of full-text search.

A search has two steps, so that it costs what it finds and no more. `hits` gives the best places by
their words alone, each with the places before and after it in its session, without reading a
single message. Whoever ranks them shares scores among neighbours, and asks `at_places` for the few
that are shown. A place is a number that means something only to the store that gave it.

Files are few beside messages, so `file_hits` gives them whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol
from uuid import UUID

import msgspec

from sennit.stores.records.files import FileRecord, VersionRecord
from sennit.stores.records.sessions import MessageRecord, Owner

NEAR = 2
"""How many places before and after a hit are named."""
_DAY = 86_400_000_000


class TextQuery(msgspec.Struct, frozen=True, gc=False):
    """A text query and its filters."""

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
    """Its session, and the part of it: an archive, or else a day."""
    created: int
    score: float
    """How well its own words fit; higher is better, comparable within one search."""
    before: tuple[int, ...]
    """The places just before it in its session, the nearest first."""
    after: tuple[int, ...]


class StoredMessage(msgspec.Struct, frozen=True, gc=False):
    """A message and where it stands."""

    place: int
    session: UUID
    key: str | None
    """What people know the session by."""
    archive: int | None
    """The number of the commit that has archived it."""
    message: MessageRecord
    branched: bool = False
    """Whether its session has several branches."""


class FileQuery(msgspec.Struct, frozen=True, gc=False):
    """The files to search."""

    words: tuple[str, ...]
    owners: tuple[Owner, ...]
    under: str = ""
    """Only those whose path begins so."""
    categories: tuple[str, ...] = ()
    """Only these; all if there are none."""
    since: int | None = None
    """Only what holds true since this time or later."""
    until: int | None = None
    at: int | None = None
    """What held true at that time; None for what files say now."""
    limit: int = 50
    places: tuple[int, ...] = ()
    """Versions that are given as well, whatever their words, if they are within the limits."""


class FileHit(msgspec.Struct, frozen=True, gc=False):
    """A file that holds some of the words."""

    file: FileRecord
    """Its `latest` is the version that was asked for."""
    place: int
    """Of that version; always negative."""
    score: float
    """0 for one that was found by its place alone."""


class TextSearchStore(Protocol):
    """The part of a store that finds by words; whatever was written before is found."""

    def hits(self, owner: Owner, asked: TextQuery) -> list[Hit]:
        """Return the best places for the words among the owner's messages, best first."""
        ...

    def at_places(self, owner: Owner, places: Sequence[int]) -> list[StoredMessage]:
        """Return the messages at places from `hits`, in that order, without erased ones."""
        ...

    def file_hits(self, asked: FileQuery) -> list[FileHit]:
        """Return the best files for the words, and those at `asked.places`."""
        ...


def part_of(archive: int | None, created: int) -> int:
    """Return the part of a session that a message belongs to: its archive, or else its day."""
    return -archive if archive is not None else created // _DAY


def near(places: Sequence[int], index: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the places before and after an index, nearest first."""
    return tuple(reversed(places[max(0, index - NEAR) : index])), tuple(
        places[index + 1 : index + 1 + NEAR]
    )


def in_order_of(places: Iterable[int], messages: Iterable[StoredMessage]) -> list[StoredMessage]:
    """Return the messages at these places, in their order; erased ones are left out."""
    by_place = {message.place: message for message in messages}
    return [by_place[place] for place in places if place in by_place]


def file_place(file: FileRecord) -> int:
    """Return the place of a file's version in a store without row numbers."""
    return -(file.id.int << 32 | file.latest.number)


def matches_filters(query: FileQuery, file: FileRecord, version: VersionRecord) -> bool:
    """Return whether a version is one of those that are searched, whatever its words."""
    if query.at is None:
        holds = version.number == file.latest.number
    else:
        ends = [end for end in (version.replaced, version.valid_to) if end is not None]
        holds = version.valid_from <= query.at < min(ends, default=query.at + 1)
    return (
        holds
        and file.path.startswith(query.under)
        and (not query.categories or file.category in query.categories)
        and (query.since is None or version.valid_from >= query.since)
        and (query.until is None or version.valid_from < query.until)
    )
