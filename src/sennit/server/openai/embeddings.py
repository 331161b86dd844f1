"""/v1/embeddings, by the embedder of the server."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from struct import pack
from typing import Any, ClassVar, Final, Literal

from sennit.memory.retrieval.embedders import Embedder
from sennit.server.http.endpoint import HTTPRequest, RequestModel, Routes, ok
from sennit.server.http.errors import PRIVATE, HTTPError, bad_param
from sennit.server.http.starlette_imports import Response
from sennit.server.openai.requests import ignored_fields
from sennit.services.models.usage import tokens_of_chars

routes: Final = Routes()


class EmbeddingsRequest(RequestModel, kw_only=True):
    """The body of POST /v1/embeddings."""

    takes_unknown: ClassVar[bool] = True
    model: str
    input: str | list[Any]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    # Accepted without effect:
    user: Any = None


@routes.post("/v1/embeddings", scope="run")
async def embed(request: HTTPRequest, body: EmbeddingsRequest) -> Response:
    """Return the embeddings of texts, as in OpenAI's API."""
    embedder = request.server.embedder
    if body.model != embedder.name:
        message = f"There is no embedder {body.model[:200]!r}; available: {embedder.name!r}."
        raise HTTPError(404, "model_not_found", message, param="model")
    texts = _texts(body)
    request.check_count(len(texts), request.limits.items, "input")
    data = await request.server.work.run(request.caller, _embed, embedder, texts, body)
    tokens = sum(tokens_of_chars(len(text)) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    answer = {"object": "list", "data": data, "model": embedder.name, "usage": usage}
    return ok(answer, headers={**PRIVATE, **ignored_fields(request)})


def _texts(body: EmbeddingsRequest) -> list[str]:
    texts: list[Any] = [body.input] if isinstance(body.input, str) else body.input
    if not texts:
        raise bad_param("input", "'input' must contain at least one text.")
    for at, text in enumerate(texts):
        if not isinstance(text, str):
            raise bad_param(f"input[{at}]", "Tokens are not supported; send texts.", "unsupported")
        if not text:
            raise bad_param(f"input[{at}]", "A text must not be empty.")
    return texts


def _embed(
    embedder: Embedder, texts: Sequence[str], body: EmbeddingsRequest
) -> list[dict[str, Any]]:
    vectors = embedder.embed(texts)
    size = len(vectors[0])
    if body.dimensions not in (None, size):
        message = f"Vectors of {embedder.name!r} have {size} dimensions; leave 'dimensions' out."
        raise bad_param("dimensions", message)
    return [
        {"object": "embedding", "index": at, "embedding": _encoded(vector, body.encoding_format)}
        for at, vector in enumerate(vectors)
    ]


def _encoded(vector: Sequence[float], encoding: str) -> Any:
    if encoding == "float":
        return vector
    return b64encode(pack(f"<{len(vector)}f", *vector)).decode()
