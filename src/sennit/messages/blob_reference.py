"""References to blobs: the bytes of pictures and files, which a store holds once per owner.

`sennit-blob:sha256:<hash>?type=image/png&size=1234` takes the place of a `data:` URL in a stored
message. It counts only where a content has an address (`MessageContent.attachment_urls`); in a text
it is text. A reference says nothing about who may read the bytes: a store looks them up among the
blobs of one owner.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sennit.messages.message import Message

BLOB_PREFIX: Final = "sennit-blob:sha256:"
"""The beginning of a reference to a blob."""
OUTPUT_KEY: Final = "stored_output"
"""The metadata key of a tool result that is a preview: the reference of the whole result."""
MIN_BLOB_BYTES: Final = 1024
"""The smallest size that is worth a blob; fewer bytes stay in the message."""
_TYPE = r"([A-Za-z0-9._+-]+/[A-Za-z0-9._+-]+)"
_REFERENCE = re.compile(rf"{BLOB_PREFIX}([0-9a-f]{{64}})(?:\?type={_TYPE}&size=([0-9]{{1,18}}))?")
_DATA_URL = re.compile(rf"data:{_TYPE};base64,")
_MIN_URL_CHARS = MIN_BLOB_BYTES * 4 // 3


@dataclass(frozen=True, slots=True)
class BlobReference:
    """A reference to a blob; its text is what a message holds."""

    hash: bytes
    """The SHA-256 of the bytes."""
    media_type: str = ""
    """The media type; empty if it is not known yet."""
    size: int = 0
    """The number of bytes; 0 if it is not known yet."""

    @classmethod
    def of(cls, url: str) -> BlobReference | None:
        """Return the reference that an address is, or None."""
        if not url.startswith(BLOB_PREFIX):
            return None
        match = _REFERENCE.fullmatch(url)
        if match is None:
            return None
        return cls(bytes.fromhex(match[1]), match[2] or "", int(match[3] or 0))

    def __str__(self) -> str:
        name = BLOB_PREFIX + self.hash.hex()
        return f"{name}?type={self.media_type}&size={self.size}" if self.media_type else name

    def data_url(self, data: bytes) -> str:
        """Return the `data:` URL of the bytes."""
        return f"data:{self.media_type};base64,{b64encode(data).decode('ascii')}"


def blob_in(url: str) -> tuple[BlobReference, bytes] | None:
    """Return the blob that a `data:` URL is stored as; None for a small one or another address.

    A URL that would not be restored exactly, such as one with parameters, is none either.
    """
    if len(url) < _MIN_URL_CHARS or (match := _DATA_URL.match(url)) is None:
        return None
    encoded = url[match.end() :]
    try:
        data = b64decode(encoded, validate=True)
    except ValueError:
        return None
    if len(data) < MIN_BLOB_BYTES or b64encode(data) != encoded.encode():
        return None
    return BlobReference(sha256(data).digest(), match[1], len(data)), data


def without_bytes(url: str) -> str:
    """Return an address as it is stored: the reference of a `data:` URL, others unchanged."""
    blob = blob_in(url)
    return url if blob is None else str(blob[0])


def named_blobs(messages: Iterable[Message]) -> tuple[bytes, ...]:
    """Return the hashes of the blobs that messages name, each once."""
    references = (BlobReference.of(url) for message in messages for url in _urls(message))
    return tuple(dict.fromkeys(item.hash for item in references if item is not None))


def _urls(message: Message) -> Iterable[str]:
    yield from message.content.attachment_urls
    if isinstance(output := message.metadata.get(OUTPUT_KEY), str):
        yield output
