"""Vector search over what one client can reach.

What is new is embedded in batches, behind what the store already has vectors for; an append never
waits for it. A search embeds a little of what is missing and goes on with what there is, as words
find the rest; `embed` does all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import Lock

from sennit.memory.retrieval.embedders import Embedder
from sennit.memory.scope import MemoryScope
from sennit.stores.records.sessions import Owner
from sennit.stores.records.vectors import Embedded

_BATCH = 64
_PER_SEARCH = 256
_ALL = 1 << 62
_LONGEST = 8_000  # letters of a text; embedders read less


class VectorIndex:
    """The vectors of one client."""

    def __init__(self, realm: MemoryScope, embedder: Embedder) -> None:
        self._realm, self._embedder = realm, embedder
        self._lock = Lock()

    def embed(
        self, limit: int | None = None, progress: Callable[[int], object] | None = None
    ) -> int:
        """Embed what has no vector yet, at most `limit`; gives how many there were.

        `progress` is told the number so far after each batch.
        """
        most, done = _ALL if limit is None else limit, 0
        with self._lock:
            for owner in self._realm.owners:
                while done < most:
                    count = self._batch(owner, min(_BATCH, most - done))
                    if not count:
                        break
                    done += count
                    if progress is not None:
                        progress(done)
        return done

    def _batch(self, owner: Owner, size: int) -> int:
        rows = self._realm.store.unembedded(owner, self._embedder.name, size)
        if not rows:
            return 0
        found = self._embedder.embed([row.text[:_LONGEST] for row in rows])
        pairs = zip(rows, found, strict=True)
        embedded = [Embedded(row.place, row.id, vector) for row, vector in pairs]
        self._realm.store.put_vectors(owner, self._embedder.name, embedded)
        return len(rows)

    def catch_up(self) -> None:
        """Embed a little of what is missing."""
        self.embed(_PER_SEARCH)

    def query(self, text: str) -> Sequence[float]:
        """The vector of a question."""
        return self._embedder.embed([text[:_LONGEST]])[0]

    def nearest(
        self, owner: Owner, vector: Sequence[float], limit: int, also: Iterable[int] = ()
    ) -> dict[int, float]:
        """The cosines of the nearest places, and of those in `also`."""
        return self._realm.store.nearest(owner, self._embedder.name, vector, limit, also)
