"""Compile guard: no turns are recorded while an optimizer compiles copies of a session.

An optimizer copies the program and calls the copies with one example after another, from several
threads. If these calls were turns, each example would be sent the ones before it, and the compiled
session would start with all of them. So a copy made during a compilation records no turns until the
compilation ends; it is still sent the turns from before.
"""

# Only the interpreter knows which functions are running.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import sys
import threading
from types import FrameType

from sennit.learning.dspy.dspy_imports import Teleprompter


class CompileGuard:
    """The compilation during which a session was created, if any."""

    __slots__ = ("_frame", "_thread")

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._frame = _outermost_compile(sys._getframe(1))

    @property
    def is_active(self) -> bool:
        """True while that compilation runs; False if there was none."""
        if self._frame is None:
            return False
        frame = sys._current_frames().get(self._thread)
        while frame is not None and frame is not self._frame:
            frame = frame.f_back
        if frame is None:
            self._frame = None
        return self._frame is not None

    def __deepcopy__(self, memo: object) -> CompileGuard:
        return self


def _outermost_compile(frame: FrameType | None) -> FrameType | None:
    outermost = None
    while frame is not None:
        if frame.f_code.co_name == "compile" and isinstance(
            frame.f_locals.get("self"), Teleprompter
        ):
            outermost = frame
        frame = frame.f_back
    return outermost
