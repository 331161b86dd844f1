"""Incremental reading of a growing branch, cached with its progression.

A prompt is a fold over a conversation, which mostly grows at its end. So the reader that does the
fold is cached with its branch and resumes where it stopped, until the branch or the messages change
in any other way. A thread takes the reader out of the cache while it uses it, so no two threads
share one, and puts it back afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar, cast
from weakref import ref

from sennit.containers.pile import Pile
from sennit.containers.progression import Progression
from sennit.messages.message import Message


class IncrementalReader(Protocol):
    """A reader that consumes a conversation message by message."""

    def feed(self, messages: Sequence[Message]) -> None:
        """Consume the next messages."""
        ...


_F = TypeVar("_F", bound=IncrementalReader)
_T = TypeVar("_T")
_lock = Lock()


def read(
    make: Callable[[], _F],
    pile: Pile[Message],
    progression: Progression,
    render: Callable[[_F], _T],
) -> _T:
    """Return `render` of a reader that has consumed a progression; `make` creates one."""
    cached = _take(make, progression)
    if cached is None or not cached.fits(pile, progression):
        cached = _CachedReader(make(), pile, progression)
    cached.catch_up(pile, progression)
    if not cached.fits(pile, progression):  # rewritten by another thread in between
        cached = _CachedReader(make(), pile, progression)
        cached.catch_up(pile, progression)
    result = render(cached.reader)
    _give_back(make, progression, cached)
    return result


def unread(
    make: Callable[[], IncrementalReader], pile: Pile[Message], progression: Progression
) -> int:
    """Return how many messages the cached reader has not consumed."""
    with _lock:
        readers = cast("dict[Any, _CachedReader[Any]]", progression.memo or {})
        cached = readers.get(make)
        fits = cached is not None and cached.fits(pile, progression)
        return len(progression) - (cached.consumed if cached is not None and fits else 0)


class _CachedReader(Generic[_F]):
    """A reader with its position, valid until the progression is rewritten."""

    __slots__ = ("consumed", "pile", "reader", "revisions")

    def __init__(self, reader: _F, pile: Pile[Message], progression: Progression) -> None:
        self.reader = reader
        self.pile = ref(pile)
        self.revisions = (pile.revision, progression.revision)
        self.consumed = 0

    def fits(self, pile: Pile[Message], progression: Progression) -> bool:
        """Return whether the consumed messages are still the start of the progression."""
        same = self.revisions == (pile.revision, progression.revision)
        return same and self.pile() is pile

    def catch_up(self, pile: Pile[Message], progression: Progression) -> None:
        """Consume the messages added since."""
        added = progression.items_of(pile, self.consumed)
        self.reader.feed(added)
        self.consumed += len(added)


def _take(make: Callable[[], _F], progression: Progression) -> _CachedReader[_F] | None:
    with _lock:
        readers = progression.memo
        return (
            cast("dict[Any, Any]", readers).pop(make, None) if isinstance(readers, dict) else None
        )


def _give_back(make: Callable[[], _F], progression: Progression, cached: _CachedReader[_F]) -> None:
    with _lock:
        readers = cast("dict[Any, Any]", progression.memo or {})
        readers[make] = cached
        progression.memo = readers
