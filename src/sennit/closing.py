"""Context-manager mixins for objects with close() or aclose()."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol, Self


class _Closes(Protocol):
    def close(self) -> None: ...


class _ClosesAwaited(Protocol):
    def aclose(self) -> Awaitable[None]: ...


class Closing:
    """`with` for what has `close`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self: _Closes, *_: object) -> None:
        self.close()


class AsyncClosing:
    """`async with` for what has `aclose`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self: _ClosesAwaited, *_: object) -> None:
        await self.aclose()
