"""A program in which packages cannot be imported, as if they were not installed.

    python -m tests.without PACKAGE,PACKAGE -m MODULE [ARGUMENT …]
    python -m tests.without PACKAGE,PACKAGE -c CODE

With "SIGINT:PACKAGE" somebody presses Ctrl-C as that package is imported.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import ClassVar


class Installed(PathFinder):
    """Finds what Python finds, but for some packages."""

    missing: ClassVar[set[str]] = set()

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        name = fullname.partition(".")[0]
        if f"SIGINT:{name}" in cls.missing:
            os.kill(os.getpid(), signal.SIGINT)
        return None if name in cls.missing else PathFinder.find_spec(fullname, path, target)


if __name__ == "__main__":
    _, packages, kind, what, *arguments = sys.argv
    Installed.missing = set(packages.split(","))
    sys.meta_path[sys.meta_path.index(PathFinder)] = Installed
    sys.argv = [what, *arguments]
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<test>", "exec"), {"__name__": "__main__"})
