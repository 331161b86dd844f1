"""Lazy model: connected on first use.

Naming a model needs no network, weights, key or optional package. An invalid name raises at once;
other errors are raised by the first call. The API key is held in a closure, so no repr shows it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Lock
from typing import TypeVar

from sennit.errors import InvalidTypeError, SennitError, ValidationError, short_repr
from sennit.services.models.names import NAME_FORMS, checked_name
from sennit.services.models.protocol import Model, is_model
from sennit.services.models.reply import Delta, Reply
from sennit.services.models.request import ModelRequest

_T = TypeVar("_T")


class LazyModel:
    """A model that is connected on first use."""

    def __init__(
        self,
        name: str,
        window: int | None,
        connect: Callable[[], Model],
        model: Model | None = None,
    ) -> None:
        self.name = name
        self._window = window
        self._connect = connect
        self._lock = Lock()
        self._model = model

    @property
    def window(self) -> int | None:
        """The configured context window, or else the model's own."""
        if self._window is not None:
            return self._window
        model = self._connect_or_none()
        return None if model is None else model.window

    @property
    def streams(self) -> bool:
        """True if it streams; assumed before connecting, since all named models do."""
        return self._model is None or self._model.streams

    @property
    def supports_output_schema(self) -> bool:
        """True if it supports structured output."""
        model = self._connect_or_none()
        return model is not None and model.supports_output_schema

    async def aask(self, request: ModelRequest) -> Reply:
        """Return the whole reply; raises ModelError."""
        model = await self._connected()
        return await model.aask(request)

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        """Stream the reply as deltas; raises ModelError."""
        model = await self._connected()
        async with model.stream(request) as deltas:
            yield deltas

    def connect(self) -> SennitError | None:
        """Connect now; return the error that the first call would raise, if any."""
        try:
            self._connect_once()
        except SennitError as error:
            return error
        return None

    async def aready(self) -> SennitError | None:
        """`connect` for async callers."""
        return None if self._model is not None else await _to_thread(self.connect)

    async def aclose(self) -> None:
        """Close the model's connections, if it was ever connected."""
        close = getattr(self._model, "aclose", None)
        if close is not None:
            await close()

    def close_everywhere(self) -> None:
        """Close the model's connections on all event loops, without waiting for it."""
        close = getattr(self._model, "close_everywhere", None)
        if close is not None:
            close()

    async def _connected(self) -> Model:
        return self._model or await _to_thread(self._connect_once)

    def _connect_once(self) -> Model:
        with self._lock:
            if self._model is None:
                self._model = self._connect()
            return self._model

    def _connect_or_none(self) -> Model | None:
        try:
            return self._connect_once()
        except SennitError:
            return None


async def _to_thread(connect: Callable[[], _T]) -> _T:
    """Connect in a thread, because importing a large package would block the event loop."""
    from asyncio import to_thread  # late: slow to import

    return await to_thread(connect)


def lazy_model(
    model: str | Path | Model,
    *,
    name: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    window: int | None = None,
    fetch_images: bool = False,
) -> LazyModel:
    """Return a lazy model for a name, a weights file or a Model; raises ValidationError."""
    if isinstance(model, str) and model != "local" and not model.startswith("local:"):
        spec = checked_name(model)

        def connect_provider() -> Model:
            from sennit.services.models.providers.model import connect

            options = {"base_url": base_url, "api_key": api_key}
            return connect(spec, **options, window=window, fetch_images=fetch_images)

        return LazyModel(name or spec, window, connect_provider)
    if base_url is not None or api_key is not None:
        raise ValidationError(
            f"{short_repr(model)} has no provider, so base_url and api_key do not apply."
        )
    if isinstance(model, str | Path):
        path = None if model == "local" else Path(str(model).removeprefix("local:"))
        if path is not None and not path.name:
            raise ValidationError(f"{short_repr(model)} has no file; use {NAME_FORMS}.")

        def load() -> Model:
            from sennit.services.local.model import LocalModel

            return LocalModel(path)

        return LazyModel(name or ("local" if path is None else f"local:{path}"), window, load)
    if not is_model(model):
        raise InvalidTypeError(
            f"A model is {NAME_FORMS}, or a Model itself; got {short_repr(model)}."
        )
    return LazyModel(name or model.name, window, lambda: model, model)
