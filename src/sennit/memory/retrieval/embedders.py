"""Embedders, which turn texts into vectors, and the index over everything one client can reach.

The name of an embedder is stored with its vectors: vectors of different embedders are not
comparable, so another name means embedding again. There is none by default. `MiniLM` runs locally
(extra `embed`), `RemoteEmbedder` calls any endpoint with OpenAI's protocol, and `WordEmbedder` is
for tests: it has no dependencies, gives the same vector for the same text everywhere, and a similar
one for texts that share words.

New texts are embedded in batches, apart from appends, which never wait for it. A search embeds a
few missing texts itself and leaves the others to a thread, because full-text search finds them
meanwhile; `embed` embeds all.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from threading import Lock
from typing import Any, Protocol, cast
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from sennit.errors import (
    MissingExtraError,
    ModelError,
    NotFoundError,
    StoreError,
    ValidationError,
    short_repr,
)
from sennit.memory.scope import MemoryScope
from sennit.stores.records.sessions import Owner
from sennit.stores.records.vectors import Embedded
from sennit.stores.search import tokenizer

_log = logging.getLogger(__name__)
_DIMENSIONS = 64
_TEXTS_PER_REQUEST = 128


class Embedder(Protocol):
    """Turns texts into vectors of one length; must be callable from any thread."""

    @property
    def name(self) -> str:
        """The name under which its vectors are stored."""
        ...

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return a vector for each text, in order."""
        ...


class WordEmbedder:
    """An embedder for tests, in which each word adds a direction of its own."""

    name = "words-64"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector for each text, in order."""
        return [self._embed_text(text) for text in texts]

    def _embed_text(self, text: str) -> list[float]:
        vector = [0.0] * _DIMENSIONS
        for word in tokenizer.normalize(text).split():
            digest = blake2b(word.encode(), digest_size=2).digest()
            vector[digest[0] % _DIMENSIONS] += 1.0 if digest[1] % 2 else -1.0
        return vector


class _NoRedirects(HTTPRedirectHandler):
    """Refuses redirects: the key is meant for this host alone."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Return no request, so that the redirect is raised as an HTTPError."""


_opener = build_opener(_NoRedirects)


class RemoteEmbedder:
    """Calls an endpoint with OpenAI's protocol, such as one of a server of your own."""

    def __init__(
        self, model: str, *, base_url: str, api_key: str | None = None, timeout: float = 60.0
    ) -> None:
        """`base_url` ends where "/embeddings" begins. The key is stored nowhere else."""
        if urlsplit(base_url).scheme not in ("http", "https"):
            raise ValidationError(f"base_url must be an http(s) URL, got {short_repr(base_url)}.")
        self.name = model
        self._url = f"{base_url.rstrip('/')}/embeddings"
        self._api_key = api_key
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"RemoteEmbedder({self.name!r})"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector for each text, in order; raises ModelError if the request fails."""
        vectors: list[list[float]] = []
        for start in range(0, len(texts), _TEXTS_PER_REQUEST):
            vectors += self._request(list(texts[start : start + _TEXTS_PER_REQUEST]))
        return vectors

    def _request(self, texts: list[str]) -> list[list[float]]:
        headers = {"Content-Type": "application/json"}
        if self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        data = json.dumps({"model": self.name, "input": texts}).encode()
        try:
            request = Request(self._url, data=data, headers=headers)
            with _opener.open(request, timeout=self._timeout) as response:
                answer = json.loads(response.read())
        except HTTPError as error:
            error.close()  # an HTTPError is a response too and holds its connection
            raise self._error(f"answered {error.code}") from error
        except (URLError, OSError, ValueError) as error:
            raise self._error("could not be reached, or sent no JSON") from error
        return self._vectors(answer, len(texts))

    def _vectors(self, answer: Any, expected: int) -> list[list[float]]:
        try:
            rows = cast("list[Mapping[str, Any]]", answer["data"])
            ordered = sorted(rows, key=lambda row: row["index"])
            vectors = [[float(value) for value in row["embedding"]] for row in ordered]
        except (KeyError, TypeError, ValueError) as error:
            raise self._error("did not send embeddings") from error
        if len(vectors) != expected or len({len(vector) for vector in vectors}) > 1:
            raise self._error(f"sent {len(vectors)} vectors for {expected} texts, or uneven ones")
        return vectors

    def _error(self, reason: str) -> ModelError:
        host = urlsplit(self._url).hostname
        return ModelError(f"The embedder {self.name!r} at {host} {reason}.", kind="failed")


_BATCH_SIZE = 64
_MAX_PER_SEARCH = 32  # texts that a search embeds itself: the last turns
_BACKGROUND_BATCH_SIZE = 16
_NO_LIMIT = 1 << 62
_MAX_CHARS = 8_000  # characters per text; embedders read fewer


class VectorIndex:
    """The vectors of one client."""

    def __init__(
        self,
        scope: MemoryScope,
        embedder: Embedder,
        run_later: Callable[[Callable[[], object]], object],
    ) -> None:
        """`run_later` runs a job in the background; a job that is dropped is no loss."""
        self._scope, self._embedder, self._run_later = scope, embedder, run_later
        self._has_failed = False
        self._lock = Lock()

    def embed(
        self, limit: int | None = None, progress: Callable[[int], object] | None = None
    ) -> int:
        """Embed texts without a vector, at most `limit`, and return their number.

        `progress` is called with the number so far after each batch.
        """
        with self._lock:
            return self._embed(_NO_LIMIT if limit is None else limit, progress)

    def _embed(self, max_count: int, progress: Callable[[int], object] | None = None) -> int:
        done = 0
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

    def query(self, text: str) -> Sequence[float] | None:
        """Return the vector of a query, and embed a few missing texts.

        If the embedder or its store fails, the result is None, and the first time it is logged: the
        search goes on with words. An embedder that is not installed raises its error.
        """
        try:
            vector = self._embedder.embed([text[:_MAX_CHARS]])[0]
            self._catch_up()
        except (MissingExtraError, NotFoundError, ValidationError):
            raise
        except Exception as error:
            if not self._has_failed:
                _log.warning(
                    "Searching by words only: the embedder %r failed (%s: %s)",
                    self._embedder.name,
                    type(error).__name__,
                    error,
                )
            self._has_failed = True
            return None
        self._has_failed = False
        return vector

    @property
    def min_cosine(self) -> float:
        """The cosine below which the embedder sees no relation."""
        return getattr(self._embedder, "min_cosine", -1.0)

    def _catch_up(self) -> None:
        """Embed a few missing texts, and the others in the background; skip it if that runs."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            done = self._embed(_MAX_PER_SEARCH)
        finally:
            self._lock.release()
        if done == _MAX_PER_SEARCH:
            self._run_later(self._continue)

    def _continue(self) -> None:
        """Embed a batch of missing texts, and schedule the next one."""
        try:
            done = self.embed(_BACKGROUND_BATCH_SIZE)
        except (StoreError, ModelError):
            return  # the store was closed, or the embedder fails: the next search tries again
        if done:
            self._run_later(self._continue)

    def nearest(
        self, owner: Owner, vector: Sequence[float], limit: int, also: Iterable[int] = ()
    ) -> dict[int, float]:
        """Return the cosines of the nearest places and of those in `also`."""
        return self._scope.store.nearest(owner, self._embedder.name, vector, limit, also)
