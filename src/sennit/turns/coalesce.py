"""Coalescing of small text deltas.

A piece waits for more, but never longer than the delay: a real timer shows what a stalled stream
has said so far.
"""

from __future__ import annotations

from asyncio import TimerHandle, get_running_loop
from collections.abc import Callable
from uuid import UUID

from sennit.turns.options import StreamingOptions


class Coalescer:
    """Passes text on in larger pieces; `show` is called with each."""

    def __init__(self, options: StreamingOptions, show: Callable[[UUID, str, bool], None]) -> None:
        self._options, self._show = options, show
        self._pieces: list[str] = []
        self._size = 0
        self._source: tuple[UUID, bool] | None = None
        self._timer: TimerHandle | None = None

    def add(self, message_id: UUID, text: str, reasoning: bool) -> None:
        """Take a piece of a message's text, or of its reasoning."""
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
        """Show what has gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._source is None or not self._pieces:
            return
        message_id, reasoning = self._source
        text = "".join(self._pieces)
        self._pieces, self._size, self._source = [], 0, None
        self._show(message_id, text, reasoning)
