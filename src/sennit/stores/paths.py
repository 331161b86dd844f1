"""Paths as people give them, made ready for the disk.

Whatever is read from or written to a path that a caller named passes through here first, so that a
"~" means the same everywhere and what no disk can name is refused by name, not by a system's error.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sennit.errors import InvalidTypeError, ValidationError, shown


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
            raise ValidationError(f"The path {shown(named)} holds a NUL character; remove it.")
        return Path(named).expanduser()
    except UnicodeEncodeError as error:
        raise ValidationError(
            f"The path {shown(named)} holds {named[error.start]!r}, which no file name can; "
            f"choose another."
        ) from error
    except RuntimeError as error:
        raise ValidationError(
            f"The path {shown(named)} begins with a home folder that is not known here; write it "
            f"out, or begin with './' if the name itself begins with '~'."
        ) from error
