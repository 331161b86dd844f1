"""The clipboard: a program of the desktop, or else the escape sequence OSC 52.

Most terminals pass OSC 52 to the clipboard of the machine at which the user sits, also over SSH.
"""

from __future__ import annotations

import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from shutil import which
from typing import TextIO

_TIMEOUT = 2.0  # seconds


def copy(text: str, terminal: TextIO) -> bool:
    """Copy a text; return False if it was sent to the terminal, which may ignore it."""
    for command in _programs():
        if which(command[0]) is not None and _run(command, text):
            return True
    terminal.write(f"\x1b]52;c;{b64encode(text.encode()).decode()}\a")
    terminal.flush()
    return False


def _programs() -> Iterator[list[str]]:
    if sys.platform == "darwin":
        yield ["pbcopy"]
    if sys.platform == "win32":
        yield ["clip"]
    if os.environ.get("WAYLAND_DISPLAY"):
        yield ["wl-copy"]
    if os.environ.get("DISPLAY"):
        yield ["xclip", "-selection", "clipboard"]
        yield ["xsel", "--input", "--clipboard"]


def _run(command: list[str], text: str) -> bool:
    try:
        ran = subprocess.run(  # the outputs stay open in a program that serves the clipboard
            command,
            input=text.encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ran.returncode == 0
