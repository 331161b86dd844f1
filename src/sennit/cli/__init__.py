"""The command line: shows and accepts, decides nothing.

What it is made of (typer, rich, prompt-toolkit) is the extra `cli`. This module needs none of it,
so that `sennit` without the extra says what is missing instead of breaking.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper

_OURS = "sennit"


def main() -> None:
    """The program `sennit`."""
    try:
        from sennit.cli.app import app
    except ImportError as error:
        if (error.name or _OURS).partition(".")[0] == _OURS:
            raise
        sys.exit(
            f"sennit: the command line needs the package {error.name!r}; "
            f"run: pip install 'sennit[cli]'"
        )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # what a terminal cannot show becomes a question mark
            stream.reconfigure(errors="replace")
    app(prog_name="sennit")
