"""User-supplied paths, expanded and validated; private files and folders (mode 0600 and 0700).

Every path from a caller passes through here, so that "~" means the same everywhere and an invalid
path raises ValidationError rather than an operating-system error.
"""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock
from typing import Any

from sennit.errors import InvalidTypeError, NotFoundError, ValidationError, nearest, short_repr

_create_lock = Lock()


def private_opener(path: str, flags: int) -> int:
    """Open a file, created with mode 0600 if it is new; an `opener` for open()."""
    return os.open(path, flags, 0o600)


def create_private(path: Path) -> None:
    """Create an empty file with mode 0600, unless it exists.

    Serialised: closing a file drops the POSIX locks that SQLite holds on it in this process.
    """
    with _create_lock:
        if not path.exists():
            os.close(private_opener(str(path), os.O_RDWR | os.O_CREAT))


def make_private_folder(path: Path) -> None:
    """Create a folder with mode 0700, unless it exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)


def nearest_path(path: Path) -> str:
    """Return " Did you mean 'notes.py'?" with the file nearest to a missing one, or ""."""
    folder = path.parent
    if not folder.is_dir() and folder != path:
        return nearest_path(folder)
    try:
        others = (name for name in os.listdir(folder) if name != path.name)
        names = nearest(path.name, others, limit=1)
    except OSError:
        return ""
    return "".join(f" Did you mean {str(folder / name)!r}?" for name in names)


def local_path(path: str | os.PathLike[str]) -> Path:
    """Return a path on this machine, with "~" expanded; raises ValidationError if it is invalid."""
    try:
        text: Any = os.fspath(path)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise InvalidTypeError(f"A path is a string or a pathlib.Path, got {short_repr(path)}.")
    try:
        if b"\0" in os.fsencode(text):
            raise ValidationError(
                f"The path {short_repr(text)} contains a NUL character; remove it."
            )
        return Path(text).expanduser()
    except UnicodeEncodeError as error:
        raise ValidationError(
            f"The path {short_repr(text)} contains {text[error.start]!r}, which is not allowed in "
            f"file names; choose another."
        ) from error
    except RuntimeError as error:
        raise ValidationError(
            f"The path {short_repr(text)} begins with an unknown home directory; write the full "
            f"path, or begin with './' if the name itself begins with '~'."
        ) from error


def target_path(path: str | os.PathLike[str]) -> Path:
    """Return a local path to write to; raises NotFoundError rather than create missing folders."""
    target = local_path(path)
    if not target.parent.is_dir():
        raise NotFoundError(
            f"{str(path)!r} cannot be written: there is no folder {str(target.parent)!r}. Create "
            f"it first, or check the path.{nearest_path(target.parent)}"
        )
    return target
