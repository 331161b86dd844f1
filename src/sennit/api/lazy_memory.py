"""Memory created on first use, because most programs that open a session never need it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sennit.memory.memory import Memory, MemoryEngine


class LazyMemory:
    """The memory shared by all sessions of a client, or owned by one session."""

    def __init__(self, create: Callable[[], MemoryEngine]) -> None:
        self._create, self._lock = create, Lock()
        self.existing: MemoryEngine | None = None
        """The engine; None before the first `get`."""

    def get(self) -> MemoryEngine:
        """Return the engine, creating it on first use; raises StoreError without a store."""
        with self._lock:
            if self.existing is None:
                self.existing = self._create()
            return self.existing

    @cached_property
    def public(self) -> Memory:
        """The memory for users; raises StoreError without a store."""
        from sennit.memory.memory import Memory

        return Memory(self.get())

    def close(self) -> None:
        """Finish running work, if the memory was ever created."""
        if self.existing is not None:
            self.existing.close()
