"""Blobs in an SQL store: rows of chunks, the same for both databases.

A blob is stored in short transactions of a few chunks, so that a slow upload blocks nobody; the
last one gives it its hash, and only that one has to wait for the disk. Erasing one takes its hash
away first, and then a few chunks at a time. What a crash leaves behind has no hash either, and is
collected.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar
from zlib import crc32

from sennit import clock
from sennit.errors import SennitError, StoreError
from sennit.stores.records.blobs import (
    CHUNK_BYTES,
    BlobHasher,
    BlobLimits,
    BlobRecord,
    damaged_blob,
    hashes_in,
    interrupted_upload,
    missing,
    no_blob,
)
from sennit.stores.records.sessions import MessageRecord, Owner
from sennit.stores.sql import blob_statements as sql
from sennit.stores.sql.connection import SqlConnection

_T = TypeVar("_T")

_BATCH_CHUNKS = 16  # that one transaction writes or erases
_BLOBS_PER_COLLECTION = 100
_TOUCH_INTERVAL_US = 600_000_000  # how old a time may be that is not written again


class BlobTable:
    """The blobs of one owner, inside a transaction."""

    def __init__(self, connection: SqlConnection, owner: int) -> None:
        self._connection, self._owner = connection, owner

    def find(self, hash: bytes) -> BlobRecord | None:
        """Return a blob, or None."""
        rows = self._connection.rows(sql.FIND, self._owner, hash)
        return BlobRecord(hash, rows[0][1], rows[0][2]) if rows else None

    def used(self) -> int:
        """Return the size of all blobs."""
        return self._connection.rows(sql.USED, self._owner)[0][0]

    def lock(self, hash: bytes) -> None:
        """Wait for another client that is storing the same bytes, until its transaction ends."""
        self._connection.rows(sql.LOCK_HASH, self._owner, hash)

    def touch(self, hash: bytes, *, is_named_next: bool) -> BlobRecord | None:
        """Keep a blob from being collected for a while; return it, or None.

        One that messages name goes with the last of them, unless the next write names it too.
        """
        rows = self._connection.rows(sql.FIND, self._owner, hash)
        if not rows:
            return None
        number, media_type, size, unused = rows[0]
        now = clock.now_us()
        must_touch = is_named_next if unused is None else unused < now - _TOUCH_INTERVAL_US
        if must_touch and not self._connection.run(sql.TOUCH, now, self._owner, number):
            return None  # it was collected meanwhile
        return BlobRecord(hash, media_type, size)

    def add_chunks(
        self, upload: int | None, position: int, chunks: Sequence[bytes], size: int
    ) -> int:
        """Add chunks to an upload, a new one with None; return its number."""
        now = clock.now_us()
        if upload is None:
            rows = self._connection.rows(sql.ADD_BLOB, self._owner, None, "", size, now)
            upload = int(rows[0][0])
        elif not self._connection.run(sql.GROW_UPLOAD, size, now, self._owner, upload):
            raise interrupted_upload()
        self._connection.run_many(
            sql.ADD_CHUNK,
            [
                (self._owner, upload, pos, chunk, crc32(chunk))
                for pos, chunk in enumerate(chunks, position)
            ],
        )
        return upload

    def complete(self, upload: int, record: BlobRecord) -> None:
        """Make a complete upload a blob."""
        values = (record.hash, record.media_type, record.size, clock.now_us())
        if not self._connection.run(sql.COMPLETE_UPLOAD, *values, self._owner, upload):
            raise interrupted_upload()

    def replace(self, upload: int, record: BlobRecord) -> None:
        """Make a complete upload the blob in the place of a damaged one with the same hash."""
        rows = self._connection.rows(sql.FIND, self._owner, record.hash)
        self.doom([row[0] for row in rows])
        self.complete(upload, record)
        for number, *_ in rows:
            if self._connection.run(sql.MOVE_REFERENCES, upload, self._owner, number):
                self._connection.run(sql.SET_USED, self._owner, [upload])

    def is_damaged(self, hash: bytes) -> bool:
        """Return whether there is such a blob and its bytes are not what was written."""
        blob = self.find(hash)
        try:
            for _ in self.chunks(blob) if blob is not None else ():
                pass
        except StoreError:
            return True
        return False

    def read(self, hash: bytes, offset: int, length: int) -> bytes:
        """Return bytes of a blob; raises NotFoundError, StoreError."""
        rows = self._connection.rows(sql.FIND, self._owner, hash)
        if not rows:
            raise no_blob(hash)
        number, _, size, _ = rows[0]
        end = min(size, offset + length)
        if end <= offset:
            return b""
        first = offset // CHUNK_BYTES
        stop = -(-end // CHUNK_BYTES)
        chunks = self._connection.rows(sql.CHUNKS, self._owner, number, first, stop)
        data = b"".join(chunk for chunk, checksum in chunks if crc32(chunk) == checksum)
        if len(data) != min(size, stop * CHUNK_BYTES) - first * CHUNK_BYTES:
            raise damaged_blob(hash)
        start = offset - first * CHUNK_BYTES
        return data[start : start + end - offset]

    def chunks(self, blob: BlobRecord) -> Iterator[bytes]:
        """Yield the bytes of a blob; raises NotFoundError, StoreError."""
        for offset in range(0, blob.size, _BATCH_CHUNKS * CHUNK_BYTES):
            yield self.read(blob.hash, offset, _BATCH_CHUNKS * CHUNK_BYTES)

    def doom(self, numbers: Sequence[int]) -> None:
        """Mark uploads that have failed, or blobs, for erasure."""
        self._connection.run(sql.DOOM, list(numbers))

    def all(self) -> Iterator[BlobRecord]:
        """Yield all blobs."""
        for _, hash, media_type, size in self._connection.rows(sql.ALL_BLOBS, self._owner):
            yield BlobRecord(bytes(hash), media_type, size)

    def _named(self, hashes: Sequence[bytes]) -> dict[bytes, int]:
        rows = self._connection.rows(sql.NAMED, self._owner, [hash.hex() for hash in hashes])
        return {bytes(hash): number for number, hash in rows}

    def require(self, hashes: Sequence[bytes]) -> None:
        """Raise NotFoundError unless all these blobs exist; until the end they stay."""
        missing(hashes, self._named(hashes))

    def refer(self, session: int, messages: Iterable[tuple[int, MessageRecord]]) -> None:
        """Note which blobs new messages name."""
        hashes = {number: hashes_in(message) for number, message in messages}
        blobs = self._named(list({hash for named in hashes.values() for hash in named}))
        self._connection.run_many(
            sql.ADD_REFERENCE,
            [
                (self._owner, session, number, blobs[hash])
                for number, named in hashes.items()
                for hash in named
                if hash in blobs
            ],
        )
        self._connection.run(sql.SET_USED, self._owner, list(blobs.values()))

    def forget_messages(self, session: int, messages: Sequence[int]) -> None:
        """Note that messages are erased; blobs that only they name will be collected."""
        self._connection.run(sql.DELETE_REFERENCES, self._owner, session, list(messages))


class SqlBlobs(ABC):
    """The blob methods of an SQL store; see `sennit.stores.records.blobs.BlobStore`."""

    @abstractmethod
    def _read(self, work: Callable[[SqlConnection], _T]) -> _T: ...

    @abstractmethod
    def _number(self, connection: SqlConnection, owner: Owner) -> int: ...

    @abstractmethod
    def _change_blobs(self, work: Callable[[SqlConnection], _T], *, durable: bool) -> _T:
        """Run work in one transaction; one that is not durable need not survive a power cut."""

    @abstractmethod
    def _ensure_owner_number(self, owner: Owner) -> int:
        """Return the owner's number, assigned if there is none."""

    def put_blob(
        self,
        owner: Owner,
        chunks: Iterable[bytes],
        media_type: str,
        limits: BlobLimits,
        hash: bytes | None = None,
    ) -> BlobRecord:
        """Store bytes as they come, unless the owner has the same already; return the blob."""
        if hash is not None and self._is_intact(owner, hash):
            number = self._ensure_owner_number(owner)
            stored = self._change_blobs(
                lambda connection: BlobTable(connection, number).touch(hash, is_named_next=True),
                durable=True,
            )
            if stored is not None:
                return stored
        hasher = BlobHasher(limits, self.blob_bytes(owner))
        number, upload, position = self._ensure_owner_number(owner), None, 0
        batch: list[bytes] = []
        try:
            for chunk in hasher.cut(chunks):
                if len(batch) == _BATCH_CHUNKS:
                    hasher.check_quota()
                    upload = self._add_chunks(number, upload, position, batch, hasher.size)
                    position += len(batch)
                    batch.clear()
                batch.append(chunk)
            record = BlobRecord(hasher.hash, media_type, hasher.size)
            return self._finish_blob(
                number, upload, position, batch, record, hasher, is_named_next=hash is not None
            )
        except BaseException:
            if upload is not None:
                with suppress(SennitError):  # it will be collected
                    self._doom(number, upload)
            raise

    def _add_chunks(
        self, owner: int, upload: int | None, position: int, batch: Sequence[bytes], size: int
    ) -> int:
        return self._change_blobs(
            lambda connection: BlobTable(connection, owner).add_chunks(
                upload, position, batch, size
            ),
            durable=False,
        )

    def _finish_blob(
        self,
        owner: int,
        upload: int | None,
        position: int,
        batch: Sequence[bytes],
        record: BlobRecord,
        hasher: BlobHasher,
        *,
        is_named_next: bool,
    ) -> BlobRecord:
        """Store the last chunks, unless the bytes are there already and undamaged."""
        is_damaged = self._read(
            lambda connection: BlobTable(connection, owner).is_damaged(record.hash)
        )

        def finish(connection: SqlConnection) -> BlobRecord:
            table = BlobTable(connection, owner)
            table.lock(record.hash)
            stored = table.touch(record.hash, is_named_next=is_named_next)
            if stored is not None and not is_damaged:
                if upload is not None:
                    table.doom([upload])
                return stored
            hasher.check_quota()
            table.replace(table.add_chunks(upload, position, batch, record.size), record)
            return record

        stored = self._change_blobs(finish, durable=True)
        if is_damaged or (upload is not None and stored is not record):
            self._erase_doomed()
        return stored

    def _doom(self, owner: int, upload: int) -> None:
        self._change_blobs(
            lambda connection: BlobTable(connection, owner).doom([upload]), durable=False
        )
        self._erase_doomed()

    def _is_intact(self, owner: Owner, hash: bytes) -> bool:
        """Return whether there is such a blob, with the bytes that were written."""

        def check(connection: SqlConnection) -> bool:
            table = self._blobs(connection, owner)
            return table.find(hash) is not None and not table.is_damaged(hash)

        return self._read(check)

    def find_blob(self, owner: Owner, hash: bytes) -> BlobRecord | None:
        """Return the owner's blob with that hash, or None."""
        return self._read(lambda connection: self._blobs(connection, owner).find(hash))

    def read_blob(self, owner: Owner, hash: bytes, offset: int, length: int) -> bytes:
        """Return bytes of a blob, fewer at its end."""
        return self._read(
            lambda connection: self._blobs(connection, owner).read(hash, offset, length)
        )

    def blob_bytes(self, owner: Owner) -> int:
        """Return the size of all blobs of an owner."""
        return self._read(lambda connection: self._blobs(connection, owner).used())

    def _blobs(self, connection: SqlConnection, owner: Owner) -> BlobTable:
        return BlobTable(connection, self._number(connection, owner))

    def collect_blobs(self, before: int, owner: Owner | None = None) -> int:
        """Erase blobs that no message names, of all owners or one; return their number."""

        def find(connection: SqlConnection) -> tuple[int | None, bool]:
            number = None if owner is None else self._number(connection, owner)
            return number, bool(connection.rows(sql.HAS_UNUSED, before, number))

        number, has_unused = self._read(find)
        total = 0
        if has_unused:
            while (checked := self._collect_some(before, number))[0]:
                total += checked[1]
            self._erase_doomed()
        return total

    def _collect_some(self, before: int, owner: int | None) -> tuple[int, int]:
        """Check some blobs; return how many, and how many are no longer."""

        def collect(connection: SqlConnection) -> tuple[int, int]:
            rows = connection.rows(sql.UNUSED, before, owner, _BLOBS_PER_COLLECTION)
            candidates = dict(rows)
            # A statement of its own: it sees the messages of those whose lock was waited for.
            named = [row[0] for row in connection.rows(sql.STILL_NAMED, list(candidates))]
            connection.run(sql.KEEP, named)
            doomed = [number for number in candidates if number not in set(named)]
            connection.run(sql.DOOM, doomed)
            return len(rows), sum(candidates[number] is not None for number in doomed)

        return self._change_blobs(collect, durable=False)

    def _erase_doomed(self) -> None:
        """Erase the chunks of doomed blobs, and then their rows."""

        def erase(connection: SqlConnection) -> bool:
            for owner, blob in connection.rows(sql.DOOMED):
                last = connection.rows(sql.LAST_CHUNKS, owner, blob, _BATCH_CHUNKS)
                if last:
                    connection.run(sql.DELETE_CHUNKS, owner, blob, last[-1][0])
                else:
                    connection.run(sql.DELETE_BLOB, owner, blob)
                return True
            return False

        while self._read(lambda connection: bool(connection.rows(sql.DOOMED))):
            self._change_blobs(erase, durable=False)
