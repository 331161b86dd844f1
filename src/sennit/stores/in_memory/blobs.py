"""Blobs of the in-memory store."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass

from sennit import clock
from sennit.stores.records.blobs import (
    CHUNK_BYTES,
    BlobHasher,
    BlobLimits,
    BlobRecord,
    StoredBlob,
    no_blob,
)
from sennit.stores.records.sessions import Owner


@dataclass(slots=True)
class _Blob:
    record: BlobRecord
    data: bytes
    unused: int | None
    """When it was stored, if no message has named it yet; 0 if one that did was erased."""


class BlobDict:
    """The blobs of all owners."""

    def __init__(self) -> None:
        self._blobs: dict[Owner, dict[bytes, _Blob]] = {}

    def _of(self, owner: Owner) -> dict[bytes, _Blob]:
        return self._blobs.get(owner, {})

    def put(
        self,
        owner: Owner,
        data: bytes,
        hasher: BlobHasher,
        media_type: str,
        *,
        is_named_next: bool,
    ) -> BlobRecord:
        """Store bytes that a hasher has seen, unless they are there; return the blob.

        One that messages name goes with the last of them, unless the next write names it too.
        """
        stored = self._of(owner).get(hasher.hash)
        if stored is not None:
            if is_named_next or stored.unused is not None:
                stored.unused = clock.now_us()
            return stored.record
        hasher.check_quota()
        record = BlobRecord(hasher.hash, media_type, len(data))
        self._blobs.setdefault(owner, {})[record.hash] = _Blob(record, data, clock.now_us())
        return record

    def find(self, owner: Owner, hash: bytes) -> BlobRecord | None:
        """Return a blob, or None."""
        blob = self._of(owner).get(hash)
        return None if blob is None else blob.record

    def read(self, owner: Owner, hash: bytes, offset: int, length: int) -> bytes:
        """Return bytes of a blob; raises NotFoundError."""
        blob = self._of(owner).get(hash)
        if blob is None:
            raise no_blob(hash)
        return blob.data[offset : offset + length]

    def used(self, owner: Owner) -> int:
        """Return the size of an owner's blobs."""
        return sum(blob.record.size for blob in self._of(owner).values())

    def hashes(self, owner: Owner) -> Container[bytes]:
        """Return the hashes of an owner's blobs."""
        return self._of(owner).keys()

    def mark(self, owner: Owner, hashes: Iterable[bytes], *, erased: bool) -> None:
        """Note that a message names blobs, or that one that did was erased."""
        for hash in hashes:
            if (blob := self._of(owner).get(hash)) is None:
                continue
            if not erased:
                blob.unused = None
            elif blob.unused is None:
                blob.unused = 0

    def collect(
        self, before: int, only: Owner | None, named_by: Callable[[Owner], Container[bytes]]
    ) -> int:
        """Erase unused blobs, of all owners or one, that no message of their owner names."""
        total = 0
        for owner, blobs in self._blobs.items():
            if only not in (None, owner):
                continue
            candidates = [
                hash
                for hash, blob in blobs.items()
                if blob.unused is not None and blob.unused < before
            ]
            named = named_by(owner) if candidates else ()
            for hash in candidates:
                if hash in named:
                    blobs[hash].unused = None
                else:
                    del blobs[hash]
                    total += 1
        return total

    def all(self) -> list[StoredBlob]:
        """Return all blobs of all owners."""
        return [
            StoredBlob(owner, blob.record, _chunks(blob.data))
            for owner, blobs in self._blobs.items()
            for blob in blobs.values()
        ]


def received(chunks: Iterable[bytes], limits: BlobLimits, used: int) -> tuple[bytes, BlobHasher]:
    """Return the bytes of a new blob, and the hasher that has seen them."""
    hasher = BlobHasher(limits, used)
    return b"".join(hasher.cut(chunks)), hasher


def _chunks(data: bytes) -> Iterator[bytes]:
    return (data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES))
