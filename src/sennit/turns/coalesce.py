"""Coalescing of small text deltas.

A delta waits for more, but never longer than the delay: a timer publishes the text of a stalled
stream.
"""

from __future__ import annotations

from asyncio import TimerHandle, get_running_loop
from collections.abc import Callable
from uuid import UUID

from sennit.turns.options import StreamingOptions


class Coalescer:
    """Joins small deltas; `show` is called with each joined one."""

    def __init__(self, options: StreamingOptions, show: Callable[[UUID, str, bool], None]) -> None:
        self._options, self._show = options, show
        self._pieces: list[str] = []
        self._size = 0
        self._source: tuple[UUID, bool] | None = None
        self._timer: TimerHandle | None = None

    def add(self, message_id: UUID, text: str, reasoning: bool) -> None:
        """Add a delta of a message's text or reasoning."""
        if not self._options.coalesce_tokens:
            self._show(message_id, text, reasoning)
            return
        if self._source != (message_id, reasoning):
            self.flush()
            self._source = (message_id, reasoning)
        self._pieces.append(text)
        self._size += len(text)
        if self._size >= self._options.preferred_chunk_size:
            self.flush()
        elif self._timer is None:
            delay = self._options.coalesce_delay_ms / 1000
            self._timer = get_running_loop().call_later(delay, self.flush)

    def flush(self) -> None:
        """Publish the collected text."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._source is None or not self._pieces:
            return
        message_id, reasoning = self._source
        text = "".join(self._pieces)
        self._pieces, self._size, self._source = [], 0, None
        self._show(message_id, text, reasoning)
