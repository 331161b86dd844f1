"""The command-line program, which parses options and prints results.

What it is made of (typer, rich, prompt-toolkit) is the extra `cli`. This module needs none of it,
so that `sennit` without the extra says what is missing instead of breaking.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from io import TextIOWrapper

from sennit.errors import MissingExtraError

_OURS = "sennit"
CANNOT = 2
"""The exit code for a wrong option, and for a command whose packages are not installed."""
INTERRUPTED = 130


def main() -> None:
    """Run the program `sennit`."""
    try:
        with _quiet_interrupts():
            from sennit.cli.app import app
    except ImportError as error:
        if (error.name or _OURS).partition(".")[0] == _OURS:
            raise
        sys.stderr.write(f"sennit: {MissingExtraError.of('The command line', 'cli')}\n")
        sys.exit(CANNOT)
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # what a terminal cannot show becomes a question mark
            stream.reconfigure(errors="replace")
    app(prog_name="sennit")


def _open_closed_streams() -> None:
    """Put the null device where whoever started the program has closed a stream (`<&-`)."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


@contextmanager
def _quiet_interrupts() -> Generator[None]:
    """End the program without a traceback if Ctrl-C is pressed while it is still being loaded."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is not signal.default_int_handler:  # somebody has said that it is ignored
        yield
        return
    signal.signal(signal.SIGINT, _end_at_once)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def _end_at_once(_number: int, _frame: object) -> None:
    os._exit(INTERRUPTED)
