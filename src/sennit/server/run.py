"""The uvicorn server and its graceful shutdown.

uvicorn waits for open requests before it tells the app to stop, and a stream of events would never
end; so the app is told first. It takes nothing new in, suspends what runs and ends its streams, and
what remains is quick.
"""

from __future__ import annotations

import gc
import socket
import sys

from sennit.errors import ValidationError
from sennit.server.app import create_app
from sennit.server.http.starlette_imports import Starlette
from sennit.server.http.uvicorn_protocol import HeaderTimeoutProtocol, uvicorn
from sennit.server.settings import ServerSettings

_GRACE = 10
_BACKLOG = 2048
# Objects made before the new ones are looked through for cycles, how often that happens before
# those that stayed are looked through again, and how often that happens before all are.
_COLLECT = (3_000, 2, 500)
_SWITCH = 0.0005  # seconds that a thread may compute before another one has its turn


class Server(uvicorn.Server):
    """A server whose app is told that it ends before anyone waits for it."""

    def __init__(self, app: Starlette, settings: ServerSettings) -> None:
        limits = settings.limits
        timeouts = {"head_seconds": limits.head_seconds, "send_seconds": limits.send_seconds}
        config = uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            http=type("Protocol", (HeaderTimeoutProtocol,), timeouts),
            ws="none",
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_GRACE,
        )
        super().__init__(config)
        self._state = app.state.server

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open what the app needs first, so that whoever started it hears what is wrong."""
        await self._state.open()
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End: the app first, then the connections."""
        await self._state.drain()
        await super().shutdown(sockets)


def check(settings: ServerSettings) -> None:
    """Raise ValidationError for what would let strangers in."""
    guarded = settings.tokens is not None and settings.tokens.exists()
    if not settings.on_loopback and not guarded:
        raise ValidationError(
            f"Listening on {settings.host!r} requires tokens, because others can reach the server. "
            f"Create one with: sennit token create; or listen on 127.0.0.1."
        )


def listen(settings: ServerSettings) -> socket.socket:
    """The socket to listen at, so that what is wrong with the address is said before anything."""
    check(settings)
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # Connections have the protocol of their listener, and only to those that say TCP does asyncio
    # send at once what it is given; otherwise an answer waits for 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
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
    """Serve until a signal says that it is enough; the process is the server's alone."""
    with listener:
        server = Server(create_app(settings), settings)
        tune()
        server.run(sockets=[listener])


def tune() -> None:
    """Set the interpreter up for a server, which has the process to itself.

    What is there by now stays, and most of what a request makes is gone before the next few
    hundred: to look through it as often as by default takes a sixth of the processor time. While
    objects are looked through nothing else runs, so it is done a few thousand at a time, in 1 or 2
    ms. And a thread that computes for one tenant must not keep the event loop of all waiting for 5
    ms at every turn.
    """
    gc.freeze()
    gc.set_threshold(*_COLLECT)
    sys.setswitchinterval(_SWITCH)
