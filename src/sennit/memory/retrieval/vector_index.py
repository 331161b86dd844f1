"""The vector index over everything one client can reach.

New texts are embedded in batches, apart from appends, which never wait for it. A search embeds a
limited number of missing texts and continues with the vectors there are, because full-text search
finds the rest; `embed` embeds all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import Lock

from sennit.memory.retrieval.embedders import Embedder
from sennit.memory.scope import MemoryScope
from sennit.stores.records.sessions import Owner
from sennit.stores.records.vectors import Embedded

_BATCH_SIZE = 64
_MAX_PER_SEARCH = 256
_NO_LIMIT = 1 << 62
_MAX_CHARS = 8_000  # characters per text; embedders read fewer


class VectorIndex:
    """The vectors of one client."""

    def __init__(self, scope: MemoryScope, embedder: Embedder) -> None:
        self._scope, self._embedder = scope, embedder
        self._lock = Lock()

    def embed(
        self, limit: int | None = None, progress: Callable[[int], object] | None = None
    ) -> int:
        """Embed texts without a vector, at most `limit`, and return their number.

        `progress` is called with the number so far after each batch.
        """
        max_count, done = _NO_LIMIT if limit is None else limit, 0
        with self._lock:
            for owner in self._scope.owners:
                while done < max_count:
                    count = self._embed_batch(owner, min(_BATCH_SIZE, max_count - done))
                    if not count:
                        break
                    done += count
                    if progress is not None:
                        progress(done)
        return done

    def _embed_batch(self, owner: Owner, size: int) -> int:
        rows = self._scope.store.unembedded(owner, self._embedder.name, size)
        if not rows:
            return 0
        vectors = self._embedder.embed([row.text[:_MAX_CHARS] for row in rows])
        pairs = zip(rows, vectors, strict=True)
        embedded = [Embedded(row.place, row.id, vector) for row, vector in pairs]
        self._scope.store.put_vectors(owner, self._embedder.name, embedded)
        return len(rows)

    def catch_up(self) -> None:
        """Embed a limited number of missing texts."""
        self.embed(_MAX_PER_SEARCH)

    def query(self, text: str) -> Sequence[float]:
        """Return the vector of a query."""
        return self._embedder.embed([text[:_MAX_CHARS]])[0]

    def nearest(
        self, owner: Owner, vector: Sequence[float], limit: int, also: Iterable[int] = ()
    ) -> dict[int, float]:
        """Return the cosines of the nearest places and of those in `also`."""
        return self._scope.store.nearest(owner, self._embedder.name, vector, limit, also)
