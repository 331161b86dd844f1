"""Blobs: bytes stored once per owner, named by messages, collected when nobody names them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from threading import Barrier
from uuid import UUID

from sennit import clock
from sennit.errors import NotFoundError, ValidationError
from sennit.ids import new_id
from sennit.messages.codec import dumps
from sennit.stores.records.blobs import (
    BLOB_GRACE_US,
    CHUNK_BYTES,
    BlobLimits,
    BlobRecord,
    blob_reference,
)
from sennit.stores.records.sessions import (
    AddMessages,
    Append,
    MessageRecord,
    Owner,
    RemoveMessages,
    RequireBlobs,
)
from sennit.testing.conformance.fixtures import (
    NOON,
    OWNER,
    STRANGER,
    FakeClock,
    Scenario,
    message,
    raises,
    same,
)

_LARGE = bytes(range(256)) * (CHUNK_BYTES * 20 // 256) + b"end"
_LIMITS = BlobLimits()
_FAR = 2**62


def _put(
    s: Scenario, data: bytes, owner: Owner = OWNER, limits: BlobLimits = _LIMITS
) -> BlobRecord:
    pieces = (data[start : start + 100_000] for start in range(0, len(data), 100_000))
    return s.store.put_blob(owner, pieces, "text/plain", limits)


def _has(s: Scenario, data: bytes, owner: Owner = OWNER) -> bool:
    return s.store.find_blob(owner, sha256(data).digest()) is not None


def _name(s: Scenario, data: bytes, name: str = "main") -> UUID:
    """Append a message that names a blob."""
    hash = sha256(data).digest()
    record = _picture(blob_reference(hash))
    branch = s.stored(name).id
    s.write(RequireBlobs((hash,)), AddMessages((record,)), Append(branch, (record.id,)))
    return record.id


def _picture(url: str) -> MessageRecord:
    content = {"instruction": "see", "images": [url]}
    body = dumps({"type": "instruction", "content": content})
    return MessageRecord(new_id(), NOON, body)


def a_blob_is_stored_and_read_in_pieces(s: Scenario) -> None:
    for data in (b"", b"x", _LARGE[:CHUNK_BYTES], _LARGE[: CHUNK_BYTES + 1], _LARGE):
        record = _put(s, data)
        same(record, BlobRecord(sha256(data).digest(), "text/plain", len(data)), "The blob")
        same(s.store.find_blob(OWNER, record.hash), record, "The stored blob")
        for offset, length in ((0, len(data)), (1, 5), (CHUNK_BYTES - 2, 4), (len(data) // 2, 9)):
            read = s.store.read_blob(OWNER, record.hash, offset, length)
            same(read, data[offset : offset + length], "What was read")
        same(s.store.read_blob(OWNER, record.hash, len(data) + 1, 10), b"", "Past the end")


def the_same_bytes_are_stored_once(s: Scenario) -> None:
    first = _put(s, _LARGE)
    same(_put(s, _LARGE), first, "The second blob")
    same(s.store.blob_bytes(OWNER), len(_LARGE), "The bytes that are stored")


def the_blobs_of_another_owner_do_not_exist(s: Scenario) -> None:
    record = _put(s, b"secret", STRANGER)
    same(s.store.find_blob(OWNER, record.hash), None, "The blob of a stranger")
    raises(NotFoundError, lambda: s.store.read_blob(OWNER, record.hash, 0, 6), "Reading their blob")
    s.branch("main", "a")
    raises(NotFoundError, lambda: _name(s, b"secret"), "Naming their blob")
    s.shows(main="a")
    same(s.store.blob_bytes(OWNER), 0, "The bytes of the other owner")


def a_blob_beyond_a_limit_is_refused_and_leaves_nothing(s: Scenario) -> None:
    _put(s, b"kept")
    small, full = BlobLimits(blob_bytes=len(_LARGE) - 1), BlobLimits(owner_bytes=len(_LARGE) + 3)
    for limits in (small, full):
        raises(ValidationError, lambda limits=limits: _put(s, _LARGE, OWNER, limits), "A limit")
        same(_has(s, _LARGE), False, "Whether it was stored")
        same(s.store.blob_bytes(OWNER), 4, "The bytes that are stored")
    _put(s, _LARGE, OWNER, BlobLimits(owner_bytes=len(_LARGE) + 4))


def a_source_that_fails_stores_nothing(s: Scenario) -> None:
    def failing() -> Iterator[bytes]:
        yield _LARGE
        raise OSError("the connection was lost")

    raises(OSError, lambda: s.store.put_blob(OWNER, failing(), "", _LIMITS), "A source that fails")
    same(s.store.blob_bytes(OWNER), 0, "The bytes that are stored")


def a_blob_that_no_message_names_is_collected_after_a_while(s: Scenario) -> None:
    with clock.wall_clock_from(FakeClock(NOON)):
        _put(s, _LARGE)
        same(s.store.collect_blobs(NOON), 0, "Blobs collected at once")
    with clock.wall_clock_from(FakeClock(NOON + BLOB_GRACE_US)):
        _put(s, _LARGE)
        s.store.scrub()
        same(_has(s, _LARGE), True, "Whether a blob that was stored again is there")
    same(s.store.collect_blobs(_FAR), 1, "Blobs collected")
    same(_has(s, _LARGE), False, "Whether the blob is there")
    same(s.store.blob_bytes(OWNER), 0, "The bytes that are stored")
    same(s.store.collect_blobs(_FAR), 0, "Blobs collected again")


def a_blob_that_a_message_names_goes_with_the_last_one(s: Scenario) -> None:
    _put(s, _LARGE)
    s.branch("main", "a")
    first, second = _name(s, _LARGE), _name(s, _LARGE)
    same(s.store.collect_blobs(_FAR), 0, "Blobs collected while two messages name it")
    s.write(RemoveMessages((first,)))
    s.store.scrub()
    same(_has(s, _LARGE), True, "Whether the blob is there while a message names it")
    s.write(RemoveMessages((second,)))
    s.store.scrub()
    same(_has(s, _LARGE), False, "Whether the blob is there without a message")


def a_named_blob_that_is_stored_again_goes_with_its_last_message(s: Scenario) -> None:
    _put(s, _LARGE)
    s.branch("main", "a")
    named = _name(s, _LARGE)
    _put(s, _LARGE)
    s.write(RemoveMessages((named,)))
    s.store.scrub()
    same(_has(s, _LARGE), False, "Whether the blob is there without a message")


def a_text_that_quotes_a_reference_keeps_no_blob(s: Scenario) -> None:
    reference = blob_reference(_put(s, _LARGE).hash)
    s.branch("main", "a")
    named, quoting = _name(s, _LARGE), message(f"see {reference}")
    s.write(AddMessages((quoting,)), Append(s.stored("main").id, (quoting.id,)))
    s.write(RemoveMessages((named,)))
    s.store.scrub()
    same(_has(s, _LARGE), False, "Whether the blob is there without a message")


def the_blobs_of_one_owner_are_collected_alone(s: Scenario) -> None:
    _put(s, b"mine")
    _put(s, b"theirs", STRANGER)
    same(s.store.collect_blobs(_FAR, OWNER), 1, "Blobs collected")
    same(_has(s, b"mine"), False, "Whether the blob of the owner is there")
    same(_has(s, b"theirs", STRANGER), True, "Whether the blob of the other owner is there")


def the_same_bytes_from_many_threads_are_stored_once(s: Scenario) -> None:
    for size in (10, len(_LARGE)):
        data, threads = _LARGE[:size], 4
        start = Barrier(threads)

        def put(data: bytes = data, start: Barrier = start) -> BlobRecord:
            start.wait()
            return _put(s, data)

        with ThreadPoolExecutor(threads) as pool:
            records = [future.result() for future in [pool.submit(put) for _ in range(threads)]]
        same(set(records), {BlobRecord(sha256(data).digest(), "text/plain", size)}, "The blobs")
    same(s.store.blob_bytes(OWNER), 10 + len(_LARGE), "The bytes that are stored")


def a_deleted_session_takes_its_blobs_along(s: Scenario) -> None:
    other = s.beside()
    for scene in (s, other):
        _put(s, b"shared")
        _put(s, scene.id.bytes)
        scene.branch("main", "a")
        _name(scene, b"shared")
        _name(scene, scene.id.bytes)
    s.store.delete_session(OWNER, s.id)
    s.store.scrub()
    same(_has(s, s.id.bytes), False, "Whether its own blob is there")
    same(_has(s, other.id.bytes), True, "Whether the blob of another session is there")
    same(_has(s, b"shared"), True, "Whether the shared blob is there")
    s.store.delete_session(OWNER, other.id)
    s.store.scrub()
    same(s.store.blob_bytes(OWNER), 0, "The bytes that are stored")


def a_fork_shares_the_blobs_of_its_history(s: Scenario) -> None:
    _put(s, _LARGE)
    _name(s.branch("main", "a"), _LARGE)
    before = s.store.blob_bytes(OWNER)
    s.fork("main", "fork").remove("main")
    same(s.store.blob_bytes(OWNER), before, "The bytes that are stored")
    s.store.scrub()
    same(_has(s, _LARGE), True, "Whether the fork has the blob")


def a_write_that_requires_a_missing_blob_is_refused_whole(s: Scenario) -> None:
    s.branch("main", "a")
    error = raises(NotFoundError, lambda: _name(s, b"missing"), "A missing blob")
    assert sha256(b"missing").hexdigest() in str(error), f"The error names no blob: {error}"
    s.shows(main="a").holds("a")
