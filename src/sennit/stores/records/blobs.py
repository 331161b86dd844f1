"""Records of blobs: pictures, audio, documents and other bytes, stored once per owner.

A blob has the SHA-256 of its bytes as its key, so that storing the same bytes again stores nothing.
A message names a blob by its reference, `sennit-blob:sha256:` and the hash in hexadecimal digits,
where its content has an address; in a text it is text. The blob is written first, in a transaction
of its own, so no crash leaves a message without its blob; a blob that no message names is collected
after BLOB_GRACE_US.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Protocol

import msgspec

from sennit.errors import NotFoundError, StoreError, ValidationError
from sennit.messages.blob_reference import BLOB_PREFIX, named_blobs
from sennit.messages.message import Message
from sennit.stores.records.sessions import MessageRecord, Owner

CHUNK_BYTES: Final = 256 * 1024
"""The bytes of each chunk but the last."""
BLOB_GRACE_US: Final = 24 * 3_600_000_000
"""How long a blob stays that no message has named yet."""
_READ_BYTES: Final = 4 * CHUNK_BYTES
_MARK: Final = BLOB_PREFIX.encode()


class BlobRecord(msgspec.Struct, frozen=True, gc=False):
    """A stored blob."""

    hash: bytes
    """The SHA-256 of its bytes."""
    media_type: str
    """The media type that it was first stored with."""
    size: int
    """The number of its bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobLimits:
    """Limits for storing a blob."""

    blob_bytes: int = 512 * 1024 * 1024
    """The maximum size of one blob."""
    owner_bytes: int = 10 * 1024 * 1024 * 1024
    """The maximum size of all blobs of an owner."""


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """A blob of a store that is copied."""

    owner: Owner
    record: BlobRecord
    chunks: Iterable[bytes]


class BlobStore(Protocol):
    """The part of a store that has the blobs."""

    def put_blob(
        self,
        owner: Owner,
        chunks: Iterable[bytes],
        media_type: str,
        limits: BlobLimits,
        hash: bytes | None = None,
    ) -> BlobRecord:
        """Store bytes as they come, unless the owner has the same already; return the blob.

        Damaged bytes of a stored blob are replaced. With their `hash`, if it is known, bytes that
        are there are not read again, and the next write names the blob: it stays until then also
        if a message that named it is erased. Nothing is stored if `chunks` raises. Raises
        ValidationError for a blob beyond the limits.
        """
        ...

    def find_blob(self, owner: Owner, hash: bytes) -> BlobRecord | None:
        """Return the owner's blob with that hash, or None."""
        ...

    def read_blob(self, owner: Owner, hash: bytes, offset: int, length: int) -> bytes:
        """Return bytes of a blob, fewer at its end.

        Raises NotFoundError if the owner has no such blob, StoreError if its bytes are damaged.
        """
        ...

    def blob_bytes(self, owner: Owner) -> int:
        """Return the size of all blobs of an owner."""
        ...

    def collect_blobs(self, before: int, owner: Owner | None = None) -> int:
        """Erase blobs that no message names, of all owners or one; return their number.

        A blob whose last message was erased goes at once, one that was never named if it was
        stored before that time.
        """
        ...


def hashes_in(message: MessageRecord) -> tuple[bytes, ...]:
    """Return the hashes of the blobs that a message names, each once; a text names none."""
    if _MARK not in message.body:
        return ()
    return named_blobs([Message.from_stored(message.id, message.created, message.body)])


def names_blobs(messages: Iterable[MessageRecord]) -> bool:
    """Return whether any of these messages may name a blob."""
    return any(_MARK in message.body for message in messages)


def blob_chunks(store: BlobStore, owner: Owner, blob: BlobRecord) -> Iterator[bytes]:
    """Yield the bytes of a blob; raises NotFoundError, StoreError."""
    for offset in range(0, blob.size, _READ_BYTES):
        yield store.read_blob(owner, blob.hash, offset, _READ_BYTES)


class BlobHasher:
    """Cuts bytes into chunks of one size, and hashes and counts them on the way."""

    def __init__(self, limits: BlobLimits, used: int) -> None:
        """Refuse bytes beyond the limits of an owner who has used some of them."""
        self._limits, self._used = limits, used
        self._digest = sha256()
        self.size = 0

    @property
    def hash(self) -> bytes:
        """The hash of the bytes so far."""
        return self._digest.digest()

    def cut(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the bytes in chunks of CHUNK_BYTES; raises ValidationError beyond the limit."""
        rest = bytearray()
        for chunk in chunks:
            self._digest.update(chunk)
            self.size += len(chunk)
            check_blob_size(self.size, self._limits)
            view = memoryview(chunk)
            while len(rest) + len(view) >= CHUNK_BYTES:
                missing_bytes = CHUNK_BYTES - len(rest)
                yield bytes(rest + view[:missing_bytes])
                rest.clear()
                view = view[missing_bytes:]
            rest += view
        if rest:
            yield bytes(rest)

    def check_quota(self) -> None:
        """Raise ValidationError if the owner has no room for the bytes."""
        if self._used + self.size > self._limits.owner_bytes:
            raise ValidationError(
                f"A blob of {self.size:,} bytes does not fit: the blobs of this user have "
                f"{self._used:,} of at most {self._limits.owner_bytes:,} bytes. Delete sessions "
                f"with files, or raise the limit owner_bytes."
            )


def check_blob_size(size: int, limits: BlobLimits) -> None:
    """Raise ValidationError if a blob has too many bytes."""
    if size > limits.blob_bytes:
        raise ValidationError(
            f"A blob may have {limits.blob_bytes:,} bytes, got {size:,} or more; make it smaller, "
            f"or raise the limit blob_bytes."
        )


def blob_reference(hash: bytes) -> str:
    """Return the reference of a blob."""
    return BLOB_PREFIX + hash.hex()


def no_blob(hash: bytes) -> NotFoundError:
    """Return the error for a blob that the owner does not have."""
    return NotFoundError(
        f"There is no blob {blob_reference(hash)!r} of this user; store its bytes first."
    )


def missing_blob(hash: bytes) -> StoreError:
    """Return the error for a blob that messages name and the store does not have."""
    return StoreError(
        f"Blob {blob_reference(hash)!r} is missing from the store, although messages name it. Run "
        f"`sennit doctor`, and restore a backup."
    )


def damaged_blob(hash: bytes) -> StoreError:
    """Return the error for a blob whose bytes do not match their checksums."""
    return StoreError(
        f"Blob {blob_reference(hash)!r} is damaged in the store: its bytes are not what was "
        f"written. Run `sennit doctor`, and restore a backup."
    )


def interrupted_upload() -> StoreError:
    """Return the error for an upload whose first chunks were collected meanwhile."""
    return StoreError("The upload took too long and its first bytes were collected; send it again.")


def missing(hashes: Sequence[bytes], found: Iterable[bytes]) -> None:
    """Raise NotFoundError unless all hashes were found."""
    present = set(found)
    for hash in hashes:
        if hash not in present:
            raise no_blob(hash)
