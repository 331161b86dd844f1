"""Incremental reading of a growing branch, cached with its progression.

A prompt is a fold over a conversation, and a conversation mostly grows at its end. So a fold is
kept with the branch it has read, and goes on where it stopped, until the branch or the messages
change in any other way. Whoever reads takes the fold along, so that no two threads change one, and
brings it back afterwards.
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
    """Something that takes in a conversation, message by message."""

    def feed(self, messages: Sequence[Message]) -> None:
        """Take in what comes next."""
        ...


_F = TypeVar("_F", bound=IncrementalReader)
_T = TypeVar("_T")
_taking = Lock()


def read(
    make: Callable[[], _F],
    pile: Pile[Message],
    progression: Progression,
    tell: Callable[[_F], _T],
) -> _T:
    """Return `tell` of the reader after all of a progression; `make` creates an empty reader."""
    kept = _taken(make, progression)
    if kept is None or not kept.fits(pile, progression):
        kept = _Kept(make(), pile, progression)
    kept.catch_up(pile, progression)
    if not kept.fits(pile, progression):  # rewritten by another thread in between
        kept = _Kept(make(), pile, progression)
        kept.catch_up(pile, progression)
    told = tell(kept.fold)
    _give_back(make, progression, kept)
    return told


def unread(
    make: Callable[[], IncrementalReader], pile: Pile[Message], progression: Progression
) -> int:
    """Return how many messages the next reading has to take in."""
    with _taking:
        folds = cast("dict[Any, _Kept[Any]]", progression.memo or {})
        kept = folds.get(make)
        fits = kept is not None and kept.fits(pile, progression)
        return len(progression) - (kept.consumed if kept is not None and fits else 0)


class _Kept(Generic[_F]):
    """A fold and how far it got; it stays with the progression until that is rewritten."""

    __slots__ = ("consumed", "fold", "pile", "revisions")

    def __init__(self, fold: _F, pile: Pile[Message], progression: Progression) -> None:
        self.fold = fold
        self.pile = ref(pile)
        self.revisions = (pile.revision, progression.revision)
        self.consumed = 0

    def fits(self, pile: Pile[Message], progression: Progression) -> bool:
        """Return whether what was folded is still how the progression begins."""
        same = self.revisions == (pile.revision, progression.revision)
        return same and self.pile() is pile

    def catch_up(self, pile: Pile[Message], progression: Progression) -> None:
        """Take in what was added since."""
        added = progression.items_of(pile, self.consumed)
        self.fold.feed(added)
        self.consumed += len(added)


def _taken(make: Callable[[], _F], progression: Progression) -> _Kept[_F] | None:
    with _taking:
        folds = progression.memo
        return cast("dict[Any, Any]", folds).pop(make, None) if isinstance(folds, dict) else None


def _give_back(make: Callable[[], _F], progression: Progression, kept: _Kept[_F]) -> None:
    with _taking:
        folds = cast("dict[Any, Any]", progression.memo or {})
        folds[make] = kept
        progression.memo = folds
