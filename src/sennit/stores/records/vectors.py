"""Records of vectors.

Vectors are stored per owner and embedder, and erased with their item. A store lists items without a
vector and takes vectors in batches, so that an append never waits for an embedder. Places are those
of `records.search`; a version of a file has a negative one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt
from typing import Protocol
from uuid import UUID

import msgspec

from sennit.stores.records.sessions import Owner


class Unembedded(msgspec.Struct, frozen=True, gc=False):
    """An item without a vector."""

    place: int
    id: UUID
    """The message or the file."""
    text: str


class Embedded(msgspec.Struct, frozen=True, gc=False):
    """The vector of an item; dropped if that was erased."""

    place: int
    id: UUID
    vector: Sequence[float]


class VectorStore(Protocol):
    """The vector search of a store."""

    def unembedded(self, owner: Owner, model: str, limit: int) -> list[Unembedded]:
        """Return items without a vector of this embedder, oldest first."""
        ...

    def put_vectors(self, owner: Owner, model: str, embedded: Sequence[Embedded]) -> None:
        """Store vectors; those of erased items are dropped."""
        ...

    def nearest(
        self, owner: Owner, model: str, vector: Sequence[float], limit: int, also: Iterable[int]
    ) -> dict[int, float]:
        """Return the cosines of the nearest places, and of those in `also` that have a vector."""
        ...


def unit(vector: Sequence[float]) -> list[float]:
    """Return the vector scaled to length 1; a zero vector is returned unchanged."""
    length = sqrt(sum(value * value for value in vector))
    return [value / length for value in vector] if length else list(vector)
