"""User-given paths, expanded and checked; new files with mode 0600.

Whatever is read from or written to a path that a caller named passes through here first, so that a
"~" means the same everywhere and what no disk can name is refused by name, not by a system's error.
"""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock
from typing import Any

from sennit.errors import InvalidTypeError, ValidationError, shown

_creating = Lock()


def private_opener(path: str, flags: int) -> int:
    """Open a file that, if it is new, only its owner may read and write; an `opener` for open()."""
    return os.open(path, flags, 0o600)


def create_private(path: Path) -> None:
    """Create an empty file that only its owner may read and write; one that is there is left.

    One thread after another: closing a file ends the locks that SQLite has on it in this process.
    """
    with _creating:
        if not path.exists():
            os.close(private_opener(str(path), os.O_RDWR | os.O_CREAT))


def make_private_folder(path: Path) -> None:
    """Create a folder that only its owner may enter; one that is there is left as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)


def local_path(given: str | os.PathLike[str]) -> Path:
    """A path on this machine, with "~" as the home folder; raises ValidationError if it is none."""
    try:
        named: Any = os.fspath(given)
    except TypeError:
        named = None
    if not isinstance(named, str):
        raise InvalidTypeError(f"A path is a string or a pathlib.Path, got {shown(given)}.")
    try:
        if b"\0" in os.fsencode(named):
            raise ValidationError(f"The path {shown(named)} contains a NUL character; remove it.")
        return Path(named).expanduser()
    except UnicodeEncodeError as error:
        raise ValidationError(
            f"The path {shown(named)} contains {named[error.start]!r}, which is not allowed in "
            f"file names; choose another."
        ) from error
    except RuntimeError as error:
        raise ValidationError(
            f"The path {shown(named)} begins with an unknown home directory; write the full path, "
            f"or begin with './' if the name itself begins with '~'."
        ) from error
