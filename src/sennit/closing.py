"""Context-manager mixins for objects with close() or aclose()."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, Self


class _Closable(Protocol):
    def close(self) -> None: ...


class Closing:
    """Mixin that makes an object with `close` a context manager."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self: _Closable, *_: object) -> None:
        self.close()


class AsyncClosing:
    """Mixin that makes an object with `aclose` an async context manager."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        close: Callable[[], Awaitable[None]] = getattr(self, "aclose")  # noqa: B009
        await close()
