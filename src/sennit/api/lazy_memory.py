"""Memory created on first use, because most programs that open a session never need it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sennit.memory.memory import Memory


class LazyMemory:
    """The memory that all sessions of a client have in common, or one session has alone."""

    def __init__(self, make: Callable[[], Memory]) -> None:
        self._make, self._lock = make, Lock()
        self.made: Memory | None = None
        """None until somebody has asked for it."""

    def get(self) -> Memory:
        """The memory, made now if there is none; raises StoreError if there can be none."""
        with self._lock:
            if self.made is None:
                self.made = self._make()
            return self.made

    def close(self) -> None:
        """Finish what it has under way, if it was ever made."""
        if self.made is not None:
            self.made.close()
