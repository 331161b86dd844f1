"""Exact vector search over one owner's vectors, in process.

The only module that needs numpy, from the extra `embed`. On disk a vector takes one byte per
dimension and four for its scale; in memory all vectors of an owner are one matrix, which is loaded
once, extended with new rows, and reloaded after an erasure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from sennit.errors import MissingExtraError
from sennit.stores.records.vectors import unit

if TYPE_CHECKING:
    import numpy as np


def numpy() -> Any:
    """Return the numpy module; raises MissingExtraError if it is not installed."""
    try:
        import numpy as package
    except ImportError as error:
        raise MissingExtraError.of("Finding by meaning", "embed") from error
    return package


def packed(vector: Sequence[float]) -> bytes:
    """Return a vector quantized to one byte per dimension; only its direction is kept."""
    normalized = unit(vector)
    scale = max(map(abs, normalized), default=0.0) / 127 or 1.0
    numbers = (round(value / scale) for value in normalized)
    return struct.pack(f"<f{len(normalized)}b", scale, *numbers)


class VectorMatrix:
    """The cached vectors of one owner and embedder."""

    def __init__(self) -> None:
        self.erased = -1
        """The erasure counter when it was loaded."""
        self.last = 0
        """The number of the last row read."""
        self._places: list[int] = []
        self._rows: dict[int, int] = {}
        self._values: np.ndarray[Any, Any] | None = None

    def add(self, rows: Sequence[tuple[int, bytes]]) -> None:
        """Append places and their packed vectors."""
        if not rows:
            return
        np = numpy()
        packed = np.frombuffer(b"".join(blob for _, blob in rows), np.int8)
        packed = packed.reshape(len(rows), -1)
        scales = packed[:, :4].copy().view("<f4")
        values = packed[:, 4:].astype(np.float32) * scales
        for number, _ in rows:
            self._rows[number] = len(self._places)
            self._places.append(number)
        existing = self._values
        self._values = values if existing is None else np.concatenate((existing, values))

    def nearest(self, vector: Sequence[float], limit: int, also: Iterable[int]) -> dict[int, float]:
        """Return the cosines of the nearest places, and of the known ones in `also`."""
        if self._values is None:
            return {}
        np = numpy()
        cosines = self._values @ np.asarray(unit(vector), np.float32)
        count = min(limit, len(self._places))
        best: list[int] = np.argpartition(-cosines, count - 1)[:count].tolist() if count else []
        rows: set[int] = {*best, *(self._rows[place] for place in also if place in self._rows)}
        return {self._places[row]: float(cosines[row]) for row in rows}
