"""Guard against recording turns while an optimiser compiles copies of a session.

An optimiser copies the program it compiles, and calls the copies with one example after the other,
from as many threads as it likes. If these calls were turns, each example would hear those before
it, and the compiled session would begin with all of them. So a copy that is made while an optimiser
compiles keeps no turns until that has ended; what it knew when it was copied it still hears.
"""

# Nobody but the interpreter knows which functions are running.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import sys
import threading
from types import FrameType

from sennit.learning.dspy.dspy_imports import Teleprompter


class CompileGuard:
    """The compilation that a copy was made in, as long as it goes on."""

    __slots__ = ("_frame", "_thread")

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._frame = _outermost_compile(sys._getframe(1))

    @property
    def goes_on(self) -> bool:
        """True if the optimiser is still at work; False if there was none."""
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
    found = None
    while frame is not None:
        if frame.f_code.co_name == "compile" and isinstance(
            frame.f_locals.get("self"), Teleprompter
        ):
            found = frame
        frame = frame.f_back
    return found
