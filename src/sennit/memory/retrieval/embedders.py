"""Embedders: texts as vectors.

An embedder has a name, which is kept beside its vectors: those of another are not comparable, so
another name means embedding anew. There is none by default. `MiniLM` runs on this machine (extra
`embed`), `RemoteEmbedder` asks any endpoint that speaks OpenAI's protocol, and `WordEmbedder` is
the public twin for tests: it needs nothing, gives the same vector for the same text everywhere, and
brings texts together that share words.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Protocol, cast
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from sennit.errors import ModelError, ValidationError, shown
from sennit.stores.search import tokenizer

_WORDS = 64
_BATCH = 128


class Embedder(Protocol):
    """Turns texts into vectors of one length; must be callable from any thread."""

    @property
    def name(self) -> str:
        """The name under which its vectors are stored."""
        ...

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """A vector for each text, in order."""
        ...


class WordEmbedder:
    """For tests: each word adds a direction of its own."""

    name = "words-64"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """A vector for each text, in order."""
        return [self._embedded(text) for text in texts]

    def _embedded(self, text: str) -> list[float]:
        vector = [0.0] * _WORDS
        for word in tokenizer.plain(text).split():
            digest = blake2b(word.encode(), digest_size=2).digest()
            vector[digest[0] % _WORDS] += 1.0 if digest[1] % 2 else -1.0
        return vector


class _StayHere(HTTPRedirectHandler):
    """Follows nobody elsewhere: the key is meant for this address alone."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """No new request, so that the answer is the error it says."""


_opener = build_opener(_StayHere)


class RemoteEmbedder:
    """Asks an endpoint that speaks OpenAI's protocol, such as one of a server of your own."""

    def __init__(
        self, model: str, *, base_url: str, api_key: str | None = None, timeout: float = 60.0
    ) -> None:
        """`base_url` ends where "/embeddings" begins. The key is kept nowhere but here."""
        if urlsplit(base_url).scheme not in ("http", "https"):
            raise ValidationError(f"base_url must be an http(s) URL, got {shown(base_url)}.")
        self.name = model
        self._url = f"{base_url.rstrip('/')}/embeddings"
        self._api_key = api_key
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"RemoteEmbedder({self.name!r})"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """A vector for each text, in order; raises ModelError if the endpoint gives none."""
        found: list[list[float]] = []
        for at in range(0, len(texts), _BATCH):
            found += self._ask(list(texts[at : at + _BATCH]))
        return found

    def _ask(self, texts: list[str]) -> list[list[float]]:
        headers = {"Content-Type": "application/json"}
        if self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        data = json.dumps({"model": self.name, "input": texts}).encode()
        try:
            request = Request(self._url, data=data, headers=headers)
            with _opener.open(request, timeout=self._timeout) as response:
                answer = json.loads(response.read())
        except HTTPError as error:
            error.close()  # it is a response too, and holds its connection open
            raise self._failed(f"answered {error.code}") from error
        except (URLError, OSError, ValueError) as error:
            raise self._failed("could not be reached, or sent no JSON") from error
        return self._vectors(answer, len(texts))

    def _vectors(self, answer: Any, wanted: int) -> list[list[float]]:
        try:
            rows = cast("list[Mapping[str, Any]]", answer["data"])
            ordered = sorted(rows, key=lambda row: row["index"])
            found = [[float(value) for value in row["embedding"]] for row in ordered]
        except (KeyError, TypeError, ValueError) as error:
            raise self._failed("sent something else than embeddings") from error
        if len(found) != wanted or len({len(vector) for vector in found}) > 1:
            raise self._failed(f"sent {len(found)} vectors for {wanted} texts, or uneven ones")
        return found

    def _failed(self, how: str) -> ModelError:
        host = urlsplit(self._url).hostname
        return ModelError(f"The embedder {self.name!r} at {host} {how}.", kind="failed")
