"""Starlette, imported here and nowhere else."""

from __future__ import annotations

from sennit.errors import MissingExtraError

try:
    from starlette.applications import Starlette
    from starlette.datastructures import Headers
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import compile_path
    from starlette.types import ASGIApp, Message, Receive, Send
    from starlette.types import Scope as HttpScope
except ImportError as error:
    raise MissingExtraError.of("sennit.server", "server") from error

__all__ = [
    "ASGIApp",
    "Headers",
    "HttpScope",
    "Message",
    "Receive",
    "Response",
    "Send",
    "Starlette",
    "StreamingResponse",
    "compile_path",
]
