"""Atomic file writes: temporary file, fsync, rename.

What takes long to write is written under another name beside its target, brought to the disk, and
only then given its name. Whoever sees the name sees all of it: a crash leaves at most a file that
begins with a dot and ends with ".part", which may be deleted.
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

_KEPT = 40  # characters of a name


@contextmanager
def whole(path: Path) -> Generator[Path]:
    """Yield a temporary path for a file or folder that is renamed to `path` when the block
    succeeds.

    Raises ExistsError if something is there already, StoreError if the disk refuses.
    """
    # Cut, so that it fits where the name itself does, with room for what SQLite puts beside it.
    part = path.parent / f".{path.name[:_KEPT]}.{new_id().hex}.part"
    try:
        _refuse_existing(path)
        if not path.parent.is_dir():
            make_private_folder(path.parent)
        yield part
        _bring_to_disk(part)
        _refuse_existing(path)
        part.rename(path)
        _sync(path.parent)
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


def _bring_to_disk(path: Path) -> None:
    for folder, _, names in os.walk(path):
        for name in names:
            _sync(Path(folder, name))
        _sync(Path(folder))
    if path.is_file():
        _sync(path)


def _sync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():
        return  # Windows knows no such thing for folders
    descriptor = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Remove what was not finished; what a disk will not let go hides no error before it."""
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()
