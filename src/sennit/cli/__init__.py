"""The command-line program, which parses options and prints results.

It needs the extra `cli` (typer, rich, prompt-toolkit). This module imports none of these, so that
`sennit` without the extra prints which one is missing.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from io import TextIOWrapper

from sennit.errors import MissingExtraError

_PACKAGE = "sennit"
USAGE_ERROR = 2
"""The exit code for a wrong option, and for a command whose packages are not installed."""
INTERRUPTED = 130
_STARTING = "Starting…"


def main() -> None:
    """Run the program `sennit`."""
    try:
        with quiet_interrupts(), sign_of_life():
            if find_spec("prompt_toolkit") is None:  # imported later, by the chat
                raise ModuleNotFoundError(name="prompt_toolkit")
            from sennit.cli.app import app
    except ImportError as error:
        if (error.name or _PACKAGE).partition(".")[0] == _PACKAGE:
            raise
        sys.stderr.write(f"sennit: {MissingExtraError.of('The command line', 'cli')}\n")
        sys.exit(USAGE_ERROR)
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # unencodable characters become question marks
            stream.reconfigure(errors="replace")
    app(prog_name="sennit")


def _open_closed_streams() -> None:
    """Replace standard streams that the parent process has closed (`<&-`) by the null device."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


@contextmanager
def quiet_interrupts() -> Generator[None]:
    """Exit without a traceback if Ctrl-C is pressed during the imports."""
    previous = signal.getsignal(signal.SIGINT)
    if previous is not signal.default_int_handler:  # the parent process ignores it
        yield
        return
    signal.signal(signal.SIGINT, _exit_immediately)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def sign_of_life() -> Generator[None]:
    """Show that a chat or a server is starting while its packages are imported."""
    if sys.argv[1:2] not in (["chat"], ["serve"]) or sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    sys.stderr.write(_STARTING)
    sys.stderr.flush()
    try:
        yield
    finally:
        sys.stderr.write(f"\r{' ' * len(_STARTING)}\r")
        sys.stderr.flush()


def _exit_immediately(_number: int, _frame: object) -> None:
    os._exit(INTERRUPTED)
