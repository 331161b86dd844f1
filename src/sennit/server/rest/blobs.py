"""Upload and download of blobs: the bytes of pictures and files, which messages name.

Both are streamed. An upload that is too large is refused before its body is read, if it tells its
size, and else as soon as it is. A blob is found among those of the caller only, so that its hash is
no key to the bytes of another user. The bytes are the caller's own, and still nothing that a
browser would run: only pictures and sound have their type, and everything is sandboxed.
"""

from __future__ import annotations

from asyncio import CancelledError, get_running_loop, run_coroutine_threadsafe, timeout, to_thread
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

from sennit.errors import NotFoundError, ValidationError
from sennit.messages.blob_reference import BLOB_PREFIX
from sennit.messages.media_types import (
    AUDIO_FORMATS,
    IMAGE_TYPES,
    OCTETS,
    SNIFFED_BYTES,
    fits,
    media_type,
    sniffed_type,
)
from sennit.server.http.endpoint import HTTPRequest, ResponseModel, Routes
from sennit.server.http.errors import PRIVATE, HTTPError, stopping
from sennit.server.http.starlette_imports import HttpScope, Receive, Response, Send
from sennit.server.settings import Limits
from sennit.sessions.blobs import Blob
from sennit.sessions.client import blobs_of
from sennit.stores.records.blobs import BlobLimits

routes = Routes()

_DISPLAYED = frozenset({*IMAGE_TYPES, *AUDIO_FORMATS})
_NO_LIMIT = 2**62
_TIMED_BYTES = 1024 * 1024  # that must arrive within Limits.body_seconds
_POLL_SECONDS = 0.5
_CLOSE = {"connection": "close"}
_SANDBOX = {
    **PRIVATE,
    "content-security-policy": "default-src 'none'; sandbox",
    "cross-origin-resource-policy": "same-origin",
}


class BlobShape(ResponseModel):
    """A stored blob."""

    reference: str
    """The address to send as the `url` of a part."""
    media_type: str
    """What the bytes are, or were said to be if that cannot be seen."""
    size: int


@routes.post("/api/blobs", scope="write", status=201)
async def upload(request: HTTPRequest) -> BlobShape:
    """Store the bytes in the body, for a message that will name them.

    The same bytes are stored once; those that no message names are erased after a day.
    Raises HTTPError 413 for too many bytes.
    """
    limits, length = request.limits, request.header("content-length") or ""
    if length.isdigit() and int(length) > limits.blob_bytes:
        raise _too_large(limits)
    await request.server.quotas.check(request.caller, int(length) if length.isdigit() else 0)
    body = _Body(request.receive, limits)
    head = await body.read_head()
    kind = _kind(request.header("content-type"), head)
    store = partial(
        blobs_of(request.caller.client).put,
        body.from_thread(),
        kind,
        BlobLimits(blob_bytes=limits.blob_bytes, owner_bytes=limits.owner_bytes or _NO_LIMIT),
    )
    try:
        return _shape(await request.server.work.upload(request.caller, store))
    except CancelledError:
        body.abandon()
        raise
    except ValidationError as error:
        raise HTTPError(413, "too_large", str(error), headers=_CLOSE) from None


@routes.get("/api/blobs/{hash}", scope="read", media=OCTETS)
async def download(request: HTTPRequest) -> Response:
    """Read the bytes of a blob, by the hash in its reference.

    Raises HTTPError 404 if the user has none of that hash.
    """
    hash = request.path["hash"]
    try:
        blob = await to_thread(blobs_of(request.caller.client).open, BLOB_PREFIX + hash)
    except (NotFoundError, ValidationError):
        raise HTTPError(404, "not_found", f"There is no blob {hash[:100]!r}.") from None
    await to_thread(blob.read, 0, 1)  # so that the status tells whether it can be read
    return _BlobResponse(blob, request.limits)


def _shape(blob: Blob) -> BlobShape:
    return BlobShape(reference=blob.reference, media_type=blob.media_type, size=blob.size)


def _kind(said: str | None, head: bytes) -> str:
    """Return the media type of an upload; raise HTTPError 422 if its bytes are something else."""
    kind = media_type(said) if said else OCTETS
    if kind == OCTETS:
        return sniffed_type(head) or OCTETS
    if not fits(kind, head):
        message = f"The body is not {kind!r}: it begins with {head[:12]!r}."
        raise HTTPError(422, "invalid", message, headers=_CLOSE)
    return kind


def _too_large(limits: Limits) -> HTTPError:
    message = (
        f"A blob may have {limits.blob_bytes:,} bytes; make it smaller, or start the server with "
        f"a larger limit blob_bytes."
    )
    return HTTPError(413, "too_large", message, headers=_CLOSE)


class _Body:
    """The body of an upload, piece by piece."""

    def __init__(self, receive: Receive, limits: Limits) -> None:
        self._receive, self._limits = receive, limits
        self._size, self._more, self._head = 0, True, b""
        self._timed_from, self._deadline = 0, 0.0
        self._abandoned = False

    def abandon(self) -> None:
        """Have the thread that reads the body end with an error."""
        self._abandoned = True

    async def read_head(self) -> bytes:
        """Return the bytes at the beginning, which tell the media type."""
        while self._more and len(self._head) < SNIFFED_BYTES:
            self._head += await self.read()
        return self._head

    async def read(self) -> bytes:
        """Return the next bytes, none at the end; raise HTTPError 400, 408, 413."""
        piece = b""
        while self._more and not piece:
            piece = await self._read()
        return piece

    async def _read(self) -> bytes:
        now = get_running_loop().time()
        if not self._deadline or self._size - self._timed_from >= _TIMED_BYTES:
            self._timed_from, self._deadline = self._size, now + self._limits.body_seconds
        try:
            async with timeout(self._deadline - now):
                message = await self._receive()
        except TimeoutError:
            slow = f"The body is too slow: less than 1 MiB in {self._limits.body_seconds:g} s."
            raise HTTPError(408, "slow_body", slow, headers=_CLOSE) from None
        if message["type"] == "http.disconnect":
            raise HTTPError(400, "cut_off", "The body is incomplete; nothing was stored.")
        piece: bytes = message.get("body", b"")
        self._size += len(piece)
        if self._size > self._limits.blob_bytes:
            raise _too_large(self._limits)
        self._more = bool(message.get("more_body"))
        return piece

    def from_thread(self) -> Iterator[bytes]:
        """Return the bytes from the beginning, for another thread than that of the event loop."""
        loop = get_running_loop()

        def pieces() -> Iterator[bytes]:
            yield self._head
            while piece := self._await(run_coroutine_threadsafe(self.read(), loop)):
                yield piece

        return pieces()

    def _await(self, piece: Future[bytes]) -> bytes:
        """Wait in a thread for the next bytes; the event loop may have ended before they come."""
        while not self._abandoned:
            with suppress(TimeoutError):
                return piece.result(_POLL_SECONDS)
        piece.cancel()
        raise stopping()


class _BlobResponse(Response):
    """The bytes of a blob, read as they are sent."""

    def __init__(self, blob: Blob, limits: Limits) -> None:
        is_displayed = blob.media_type in _DISPLAYED
        headers = {
            **_SANDBOX,
            "content-type": blob.media_type if is_displayed else OCTETS,
            "content-length": str(blob.size),
            "content-disposition": "inline" if is_displayed else "attachment",
        }
        super().__init__(None, headers=headers)
        self._blob, self._seconds = blob, limits.send_seconds

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await super().__call__(scope, receive, send)
            return
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for chunk in self._blob:
                async with timeout(self._seconds):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except TimeoutError:  # the client does not read
            pass
