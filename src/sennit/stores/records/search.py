"""Queries and hits of full-text search.

A search has two steps. `hits` returns the best places by their words alone, each with the places
before and after it in its session, without reading any message. The ranking shares scores among
neighbours, and `at_places` reads the few messages that are shown. A place is a number that only the
store that returned it can interpret.

Files are far fewer than messages, so `file_hits` returns them in one step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol
from uuid import UUID

import msgspec

from sennit.stores.records.files import FileRecord, VersionRecord
from sennit.stores.records.sessions import MessageRecord, Owner

NEAR = 2
"""The number of places before and after a hit that are returned."""
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
    """A message that contains some of the words."""

    place: int
    group: tuple[int, int]
    """Its session, and the part of it: an archive, or else a day."""
    created: int
    score: float
    """The rank of its own words; higher is better, comparable within one search."""
    before: tuple[int, ...]
    """The places just before it in its session, nearest first."""
    after: tuple[int, ...]


class StoredMessage(msgspec.Struct, frozen=True, gc=False):
    """A message with its place and session."""

    place: int
    session: UUID
    key: str | None
    """The key of the session."""
    archive: int | None
    """The number of the commit that archived it."""
    message: MessageRecord
    branched: bool = False
    """Whether its session has several branches."""


class FileQuery(msgspec.Struct, frozen=True, gc=False):
    """A text query among files and its filters."""

    words: tuple[str, ...]
    owners: tuple[Owner, ...]
    under: str = ""
    """Only files whose path starts with it."""
    categories: tuple[str, ...] = ()
    """Only files of these categories; all if empty."""
    since: int | None = None
    """Only versions valid from this time or later."""
    until: int | None = None
    at: int | None = None
    """The versions valid at that time; None for the latest ones."""
    limit: int = 50
    places: tuple[int, ...] = ()
    """Versions to return regardless of their words, if they pass the filters."""


class FileHit(msgspec.Struct, frozen=True, gc=False):
    """A file that contains some of the words."""

    file: FileRecord
    """Its `latest` is the version that matched."""
    place: int
    """The place of that version; always negative."""
    score: float
    """0 for a match by place alone."""


class TextSearchStore(Protocol):
    """The full-text search of a store, which includes every acknowledged write."""

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
    """Return the messages at these places, in that order, without erased ones."""
    by_place = {message.place: message for message in messages}
    return [by_place[place] for place in places if place in by_place]


def file_place(file: FileRecord) -> int:
    """Return the place of a file's version in a store without row numbers."""
    return -(file.id.int << 32 | file.latest.number)


def matches_filters(query: FileQuery, file: FileRecord, version: VersionRecord) -> bool:
    """Return whether a version passes the filters of a query, regardless of its words."""
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
