"""How far something long has come, said now and then, so that nobody takes it for stuck."""

from __future__ import annotations

import sys
from time import monotonic

_EVERY = 15.0


class Progress:
    """Counts what is done of a known number of things, and says it every so many seconds."""

    def __init__(self, label: str, total: int) -> None:
        self._label, self._total = label, total
        self._done = 0
        self._start = self._told = monotonic()

    def advance(self, count: int = 1) -> None:
        """So many more are done."""
        self._done += count
        now = monotonic()
        if now - self._told >= _EVERY and self._done < self._total:
            self._told = now
            left = (now - self._start) / self._done * (self._total - self._done)
            said = f"{self._label}: {self._done} of {self._total}, about {left:.0f} s left"
            print(said, file=sys.stderr, flush=True)
