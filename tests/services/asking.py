"""Asking a model in a test: each call in an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from sennit.errors import ModelError
from sennit.services.models.protocol import Model
from sennit.services.models.reply import Delta, Reply, ReplyAssembler
from sennit.services.models.request import ModelRequest

HI: Sequence[Mapping[str, Any]] = ({"role": "user", "content": "hi"},)


def request(messages: Sequence[Mapping[str, Any]] = HI, **more: Any) -> ModelRequest:
    return ModelRequest(messages=messages, **more)


def asked(model: Model, request: ModelRequest | None = None) -> Reply:
    return asyncio.run(model.aask(request or ModelRequest(messages=HI)))


def streamed(model: Model, request: ModelRequest | None = None) -> list[Delta]:
    return asyncio.run(_streamed(model, request or ModelRequest(messages=HI)))


async def _streamed(model: Model, request: ModelRequest) -> list[Delta]:
    async with model.stream(request) as deltas:
        return [delta async for delta in deltas]


def folded(deltas: Sequence[Delta]) -> Reply:
    assembly = ReplyAssembler()
    for delta in deltas:
        assembly.feed(delta)
    return assembly.reply()


def failing(model: Model, request: ModelRequest | None = None, *, stream: bool) -> ModelError:
    """The error that asking ends with."""
    with pytest.raises(ModelError) as caught:
        (streamed if stream else asked)(model, request)
    return caught.value
