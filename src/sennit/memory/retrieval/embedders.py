"""Embedders, which turn texts into vectors.

The name of an embedder is stored with its vectors: vectors of different embedders are not
comparable, so another name means embedding again. There is none by default. `MiniLM` runs locally
(extra `embed`), `RemoteEmbedder` calls any endpoint with OpenAI's protocol, and `WordEmbedder` is
for tests: it has no dependencies, gives the same vector for the same text everywhere, and a similar
one for texts that share words.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Protocol, cast
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from sennit.errors import ModelError, ValidationError, short_repr
from sennit.stores.search import tokenizer

_DIMENSIONS = 64
_BATCH_SIZE = 128


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
        for start in range(0, len(texts), _BATCH_SIZE):
            vectors += self._request(list(texts[start : start + _BATCH_SIZE]))
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
