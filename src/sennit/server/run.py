"""The uvicorn server and its graceful shutdown.

uvicorn waits for open requests before it shuts the app down, and event streams would never end. So
the app is drained first: it rejects new requests, suspends its runs and ends its streams.
"""

from __future__ import annotations

import gc
import os
import socket
import sys

from sennit.errors import ValidationError
from sennit.server.app import create_app
from sennit.server.http.starlette_imports import Starlette
from sennit.server.http.uvicorn_protocol import HeaderTimeoutProtocol, uvicorn
from sennit.server.settings import ServerSettings

_SHUTDOWN_TIMEOUT_SECONDS = 10
_BACKLOG = 2048
# Allocations per collection of generation 0, and collections of it per one of generations 1 and 2.
_GC_THRESHOLDS = (3_000, 2, 500)
_SWITCH_INTERVAL_SECONDS = 0.0005  # after which a thread yields the GIL


class Server(uvicorn.Server):
    """A uvicorn server that drains the app before it waits for open requests."""

    def __init__(self, app: Starlette, settings: ServerSettings) -> None:
        limits = settings.limits
        timeouts = {"head_seconds": limits.head_seconds, "send_seconds": limits.send_seconds}
        config = uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            http=type("Protocol", (HeaderTimeoutProtocol,), timeouts),
            ws="websockets-sansio",
            ws_max_size=max(limits.body_bytes, limits.for_local_user().body_bytes),
            ws_per_message_deflate=False,
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT_SECONDS,
        )
        super().__init__(config)
        self._state = app.state.server

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the app's resources first, so that their errors reach the caller."""
        await self._state.open()
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain the app, then close the connections."""
        await self._state.drain()
        await super().shutdown(sockets)


def check_address(settings: ServerSettings) -> None:
    """Raise ValidationError for a public address without tokens."""
    guarded = settings.tokens is not None and settings.tokens.exists()
    if not settings.on_loopback and not guarded:
        raise ValidationError(
            f"Listening on {settings.host!r} requires tokens, because others can reach the server. "
            f"Create one with: sennit token create; or listen on 127.0.0.1."
        )


def listen(settings: ServerSettings) -> socket.socket:
    """Return a listening socket; raise ValidationError if the address cannot be used."""
    check_address(settings)
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol, which connections inherit from the listener, is
    # IPPROTO_TCP; without it Nagle's algorithm delays responses by 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if os.name != "nt":  # on Windows it would let another process take over the port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ValidationError(
            f"Cannot listen on {settings.host}:{settings.port}: {error.strerror}; choose another "
            f"with --port."
        ) from error
    listener.set_inheritable(True)
    return listener


def serve(settings: ServerSettings, listener: socket.socket) -> None:
    """Serve until a signal arrives; tunes the interpreter for the whole process."""
    with listener:
        server = Server(create_app(settings), settings)
        tune()
        server.run(sockets=[listener])


def tune() -> None:
    """Tune garbage collection and thread switching for a server process.

    A collection stops all threads. Objects loaded so far are permanent, and most objects of a
    request are short-lived, so collections of the oldest generation are rare: for 2,500 new
    conversations the longest collection took 5 ms (49 ms with the default thresholds), and all of
    them 3.4 % of the CPU time (8.0 %). The shorter switch interval keeps a computing thread from
    delaying the event loop by 5 ms at every switch.
    """
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
