"""The blobs of an owner: bytes of pictures and files, apart from the messages that name them.

A message is stored with references in the place of larger `data:` URLs; their bytes are stored
before it, so no crash leaves a message without its blobs. A prompt gets the bytes back at the last
moment and is the same as without a store. References count only where a content has an address:
whoever writes one into a text has written text, and a reference to a blob that the owner does not
have is refused.
"""

# These functions read what only the sessions package touches.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sennit.errors import InvalidTypeError, ValidationError, short_repr
from sennit.messages.blob_reference import (
    BLOB_PREFIX,
    OUTPUT_KEY,
    BlobReference,
    blob_in,
    named_blobs,
)
from sennit.messages.media_types import media_type as checked_type
from sennit.messages.message import Message
from sennit.stores.records.blobs import BlobLimits, BlobRecord, blob_chunks, no_blob

if TYPE_CHECKING:
    from uuid import UUID

    from sennit.services.models.request import ModelRequest
    from sennit.sessions.session import SessionCore
    from sennit.stores.base import Store
    from sennit.stores.records.sessions import Owner

_R = TypeVar("_R")
_LIMITS = BlobLimits()


@dataclass(frozen=True, slots=True)
class Blob:
    """A stored blob; iterate over it, with `for` or `async for`, to read its bytes in pieces."""

    _record: BlobRecord
    _store: Store
    _owner: Owner

    @property
    def reference(self) -> str:
        """The address that names it in a message."""
        return str(BlobReference(self._record.hash, self.media_type, self.size))

    @property
    def media_type(self) -> str:
        """The media type that it was first stored with."""
        return self._record.media_type

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self._record.size

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """Return bytes of the blob, by default all; fewer at its end.

        Raises NotFoundError if it was erased meanwhile, StoreError if its bytes are damaged.
        """
        end = self.size if length is None else min(self.size, offset + length)
        if offset < 0 or end < offset:
            return b""
        return self._store.read_blob(self._owner, self._record.hash, offset, end - offset)

    def __iter__(self) -> Iterator[bytes]:
        return blob_chunks(self._store, self._owner, self._record)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = iter(self)

        def read_next() -> bytes:
            return next(chunks, b"")

        while chunk := await _in_thread(read_next):
            yield chunk


class Blobs:
    """The blobs of one owner in a store."""

    def __init__(self, store: Store, owner: Owner) -> None:
        self._store, self._owner = store, owner

    def put(
        self, data: bytes | Iterable[bytes], media_type: str, limits: BlobLimits | None = None
    ) -> Blob:
        """Store bytes, unless they are there already; raises ValidationError beyond the limits."""
        chunks = (data,) if isinstance(data, bytes) else data
        kind = checked_type(media_type)
        record = self._store.put_blob(self._owner, chunks, kind, limits or _LIMITS)
        return self._blob(record)

    def open(self, reference: str) -> Blob:
        """Return the blob that a reference names; raises NotFoundError, ValidationError."""
        if not isinstance(reference, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(
                f"The reference of a blob is a string, got {short_repr(reference)}."
            )
        named = BlobReference.of(reference)
        if named is None:
            raise ValidationError(
                f"The reference of a blob is {BLOB_PREFIX!r} and 64 hexadecimal digits, got "
                f"{short_repr(reference)}."
            )
        return self._blob(self._find(named))

    def check(self, messages: Iterable[Message]) -> None:
        """Raise NotFoundError if a message names a blob that the owner does not have."""
        for hash in named_blobs(messages):
            if self._store.find_blob(self._owner, hash) is None:
                raise no_blob(hash)

    def _find(self, reference: BlobReference) -> BlobRecord:
        record = self._store.find_blob(self._owner, reference.hash)
        if record is None:
            raise no_blob(reference.hash)
        return record

    def _blob(self, record: BlobRecord) -> Blob:
        return Blob(record, self._store, self._owner)

    def store(self, messages: Iterable[Message]) -> dict[UUID, Message]:
        """Store the bytes of attachments; return the messages as they are stored, by id.

        Messages that name no blob are left out. Raises NotFoundError for a reference to a blob
        that the owner does not have, and ValidationError for one of the wrong type.
        """
        stored: dict[UUID, Message] = {}
        for message in messages:
            if message.content.attachment_urls:
                content = message.content.with_attachment_urls(self._store_url)
                stored[message.id] = message.with_content(content)
            elif OUTPUT_KEY in message.metadata:
                self.check([message])
                stored[message.id] = message
        return stored

    def _store_url(self, url: str) -> str:
        if (blob := blob_in(url)) is not None:
            reference, data = blob
            self._store.put_blob(
                self._owner, (data,), reference.media_type, _LIMITS, reference.hash
            )
            return str(reference)
        named = BlobReference.of(url)
        return url if named is None else self._blob(self._find(named)).reference

    def inline(self, message: Message) -> Message:
        """Return a message with the bytes of its blobs, as `data:` URLs."""
        content = message.content
        if not any(url.startswith(BLOB_PREFIX) for url in content.attachment_urls):
            return message
        return message.with_content(content.with_attachment_urls(self.data_url))

    async def load(self, request: ModelRequest) -> ModelRequest:
        """Return a request for a model with the bytes of the blobs that it names."""
        if not any(map(_names_blob, request.messages)):
            return request
        return replace(request, messages=await _in_thread(self.inline_chat, request.messages))

    def inline_chat(self, messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return chat messages with the bytes of the blobs that their blocks name."""
        return [
            self._with_bytes(message) if _names_blob(message) else cast("dict[str, Any]", message)
            for message in messages
        ]

    def _with_bytes(self, message: Mapping[str, Any]) -> dict[str, Any]:
        blocks = message["content"]
        return {**message, "content": [_with_url(block, self.data_url) for block in blocks]}

    def data_url(self, url: str) -> str:
        """Return the `data:` URL of a reference; other addresses unchanged."""
        named = BlobReference.of(url)
        if named is None:
            return url
        record = self._find(named)
        typed = named if named.media_type else replace(named, media_type=record.media_type)
        return typed.data_url(self._store.read_blob(self._owner, named.hash, 0, record.size))


async def with_blobs(session: SessionCore, request: ModelRequest) -> ModelRequest:
    """Return a request for a model with the bytes of the blobs that it names."""
    blobs = session._repository.blobs
    return request if blobs is None else await blobs.load(request)


async def store_attachments(session: SessionCore, message: Message) -> Message:
    """Return a new message as the session will store it, with its attachments in the store."""
    blobs = session._repository.blobs
    if session._repository.place is None or blobs is None or not message.content.attachment_urls:
        return message
    return (await _in_thread(blobs.store, [message]))[message.id]


def inline_blobs(session: SessionCore, messages: Iterable[Message]) -> Iterator[Message]:
    """Yield messages with the bytes of their blobs, as `data:` URLs, for other systems.

    Raises StoreError for damaged bytes.
    """
    blobs = session._repository.blobs
    return iter(messages) if blobs is None else map(blobs.inline, messages)


def _names_blob(message: Mapping[str, Any]) -> bool:
    """Return whether a chat message has a block that may name a blob."""
    content = message.get("content")
    return type(content) is list and any(
        _url(block).startswith(BLOB_PREFIX) for block in cast("list[Any]", content)
    )


def _url(block: Any) -> str:
    """Return the address in a content block; empty if it has none."""
    match block:
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return url
        case {"type": "file", "file": {"file_url": str(url)}}:
            return url
        case {"type": "input_audio", "input_audio": {"url": str(url)}}:
            return url
        case _:
            return ""


def _with_url(block: Any, data_url: Callable[[str], str]) -> Any:
    """Return a content block with its bytes if it names a blob, as if it had always had them."""
    url = _url(block)
    if BlobReference.of(url) is None:
        return block
    match block:
        case {"type": "file" as kind, "file": {"file_url": _, **rest}}:
            rest.pop("media_type", None)
            return {"type": kind, "file": {**rest, "file_data": data_url(url)}}
        case {"type": "input_audio" as kind, "input_audio": {"url": _, **rest}}:
            return {"type": kind, "input_audio": {"data": data_url(url).partition(",")[2], **rest}}
        case _:
            return {**block, "image_url": {**block["image_url"], "url": data_url(url)}}


async def _in_thread(work: Callable[..., _R], *values: Any) -> _R:
    from asyncio import to_thread  # slow to import

    return await to_thread(work, *values)
