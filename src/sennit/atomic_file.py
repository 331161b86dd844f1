"""Atomic file writes: temporary file, fsync, rename.

A file is written under a temporary name beside its target, synced to disk, and then renamed, so the
target is always complete. A crash leaves at most a file that begins with a dot and ends with
".part", which may be deleted.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from sennit.errors import ExistsError, StoreError
from sennit.ids import new_id
from sennit.paths import make_private_folder

_MAX_NAME_CHARS = 40


@contextmanager
def atomic_write(path: Path, *, replace: bool = False) -> Generator[Path]:
    """Yield a temporary path for a file or folder that is renamed to `path` when the block
    succeeds.

    With `replace` it replaces a file at `path`. Raises ExistsError if `path` exists otherwise,
    StoreError if it cannot be written.
    """
    # Truncated, so that it fits wherever the name does, with room for SQLite's suffixes.
    part = path.parent / f".{path.name[:_MAX_NAME_CHARS]}.{new_id().hex}.part"
    try:
        if not replace:
            _refuse_existing(path)
        if not path.parent.is_dir():
            make_private_folder(path.parent)
        yield part
        _fsync_tree(part)
        if not replace:
            _refuse_existing(path)
        part.replace(path)
        _fsync(path.parent)
    except OSError as error:
        raise StoreError(
            f"{str(path)!r} could not be written ({error}); check the disk and its permissions, or "
            f"choose another path."
        ) from error
    finally:
        _remove(part)


def _refuse_existing(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.lstat()
        raise ExistsError(f"{str(path)!r} already exists; choose another name or delete it.")


def _fsync_tree(path: Path) -> None:
    for folder, _, names in os.walk(path):
        for name in names:
            _fsync(Path(folder, name))
        _fsync(Path(folder))
    if path.is_file():
        _fsync(path)


def _fsync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():
        return  # Windows cannot sync folders
    descriptor = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Remove an unfinished file or folder; errors are ignored, so as not to hide an earlier one."""
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()
