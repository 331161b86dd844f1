"""A model that is connected on first use.

Naming a model costs nothing: no network, no weights, no key, no optional package. What is wrong
with the name itself is said at once; the rest when somebody asks. A key is held in the closure that
connects, out of reach of any repr, and handed to the provider alone.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from sennit.errors import InvalidTypeError, SennitError, ValidationError, shown
from sennit.services.models.protocol import Model, is_model
from sennit.services.models.reply import Delta, Reply
from sennit.services.models.request import ModelRequest

_T = TypeVar("_T")
_NAME = re.compile(r"([A-Za-z0-9_.-]+):\S+")
_FORMS = "'provider:model', such as 'openai:gpt-5', or 'local', or 'local:/path/to/weights.gguf'"


class LazyModel:
    """A model that is connected when it is first needed."""

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
        """The window that was given, else the model's own."""
        if self._window is not None:
            return self._window
        model = self._if_possible()
        return None if model is None else model.window

    @property
    def streams(self) -> bool:
        """True if it streams; all models that go by a name do, so that none is connected to see."""
        return self._model is None or self._model.streams

    @property
    def shapes_output(self) -> bool:
        """True if it can be held to a schema."""
        model = self._if_possible()
        return model is not None and model.shapes_output

    async def ask(self, request: ModelRequest) -> Reply:
        """The whole reply; raises ModelError."""
        model = await self._connected()
        return await model.ask(request)

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        """The reply as deltas; raises ModelError."""
        model = await self._connected()
        async with model.stream(request) as deltas:
            yield deltas

    async def ready(self) -> None:
        """Connect now, if that is possible; what prevents it is said when it is asked."""
        if self._model is None:
            await _in_thread(self._if_possible)

    async def aclose(self) -> None:
        """Let go of what the model holds open; one that was never connected holds nothing."""
        close = getattr(self._model, "aclose", None)
        if close is not None:
            await close()

    async def _connected(self) -> Model:
        return self._model or await _in_thread(self._now)

    def _now(self) -> Model:
        with self._lock:
            if self._model is None:
                self._model = self._connect()
            return self._model

    def _if_possible(self) -> Model | None:
        try:
            return self._now()
        except SennitError:
            return None


async def _in_thread(connect: Callable[[], _T]) -> _T:
    """Connecting may import a large package; that must not hold up the loop."""
    import asyncio  # takes long to import, and is there once anything is awaited

    return await asyncio.to_thread(connect)


def connection(
    model: str | Path | Model,
    *,
    name: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    window: int | None = None,
    fetch_images: bool = False,
) -> LazyModel:
    """The connection to a model; raises ValidationError if it names none."""
    if isinstance(model, str) and not _is_local(model):
        _check_name(model)
        connected = _provider(
            model, base_url=base_url, api_key=api_key, window=window, fetch_images=fetch_images
        )
        return LazyModel(name or model, window, connected)
    if base_url is not None or api_key is not None:
        raise ValidationError(
            f"{shown(model)} has no provider, so base_url and api_key do not apply."
        )
    if isinstance(model, str | Path):
        path = _weights(model)
        default = "local" if path is None else f"local:{path}"
        return LazyModel(name or default, window, lambda: _local(path))
    if not is_model(model):
        raise InvalidTypeError(f"A model is {_FORMS}, or a Model itself; got {shown(model)}.")
    return LazyModel(name or model.name, window, lambda: model, model)


def _is_local(model: str) -> bool:
    return model == "local" or model.startswith("local:")


def _check_name(model: str) -> None:
    found = _NAME.fullmatch(model)
    if found is None:
        raise ValidationError(f"{shown(model)} is not a model name; use {_FORMS}.")
    from sennit.services.models.providers.model import PROVIDERS

    names: list[str] = ["local", *PROVIDERS]
    if found[1] not in names:
        known = ", ".join(names)
        raise ValidationError(f"{shown(model)} has an unknown provider; there are {known}.")


def _provider(model: str, **given: Any) -> Callable[[], Model]:
    def connected() -> Model:
        from sennit.services.models.providers.model import connect

        return connect(model, **given)

    return connected


def _weights(model: str | Path) -> Path | None:
    """The file of weights that was named; None for the model that is always there."""
    if model == "local":
        return None
    path = model if isinstance(model, Path) else Path(model.removeprefix("local:"))
    if not path.name:
        raise ValidationError(f"{shown(model)} has no file; use {_FORMS}.")
    return path


def _local(path: Path | None) -> Model:
    from sennit.services.local.model import LocalModel

    return LocalModel(path)
