"""What every request passes first: is it meant for us, who sent it, and not too fast.

A browser page from elsewhere could reach a server on this machine by a name it made up for it; so
the Host must be one of ours, and an Origin, which browsers send along and pages cannot forge, must
be that very host. Then the token says who is asking; without a file of tokens it is whoever sits
here, and then only loopback is served. It is plain ASGI: nothing here waits or copies.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as HttpScope

from sennit.errors import SennitError
from sennit.server.limits import Rates
from sennit.server.owners import Caller
from sennit.server.problems import Problem, problem_of

if TYPE_CHECKING:
    from sennit.server.state import ServerState

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_SOON = {"retry-after": "2"}
_CHALLENGE = {"www-authenticate": 'Bearer realm="sennit"'}


class Gate:
    """Lets requests pass to the app behind it, each with its Caller."""

    def __init__(self, server: ServerState, app: ASGIApp, *, public: Iterable[str]) -> None:
        """`public` paths, and all below those that end in a slash, need no token."""
        self._server, self._app = server, app
        self._hosts = frozenset(name.lower() for name in (*_LOOPBACK, *server.settings.allow_hosts))
        self._rates = Rates(server.settings.limits)
        self._most, self._inside = server.settings.limits.requests, 0
        self._public = frozenset(public)
        self._folders = tuple(one for one in self._public if one.endswith("/") and one != "/")

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        self._inside += 1
        try:
            self._admit(scope)
            await self._app(scope, receive, send)
        except Problem as problem:
            await problem.response()(scope, receive, send)
        finally:
            self._inside -= 1

    def _admit(self, scope: HttpScope) -> None:
        """Note who asks; raises Problem for whoever may not."""
        host, origin, bearer = _told(scope)
        self._check_host(host)
        if origin is not None:
            _check_origin(origin, host)
        if self._server.draining:
            told = "The server is about to stop; ask again in a moment."
            raise Problem(503, "stopping", told, headers=_SOON)
        if self._inside > self._most:
            raise Problem(503, "full", f"{self._most} requests are under way; wait.", headers=_SOON)
        scope.setdefault("state", {})
        if not self._is_public(scope["path"]):
            caller = self._caller(bearer)
            if caller.name != "local":
                self._rates.take(caller.name)
            scope["state"]["caller"] = caller
        else:
            scope["state"]["caller"] = None

    def _is_public(self, path: str) -> bool:
        return path in self._public or path.startswith(self._folders)

    def _check_host(self, host: str) -> None:
        name = host.rpartition(":")[0] if _has_port(host) else host
        if name not in self._hosts and host not in self._hosts:
            raise Problem(
                421,
                "host",
                f"This server does not answer for the host {host[:200]!r}; start it with "
                f"--allow-host to reach it by another name.",
            )

    def _caller(self, bearer: str | None) -> Caller:
        """Who sent it; raises Problem, also where the file of tokens does not tell."""
        try:
            return self._known(bearer)
        except SennitError as error:
            raise problem_of(error) from None

    def _known(self, bearer: str | None) -> Caller:
        tokens = self._server.tokens
        tokens.refresh()
        if not tokens.guarded:
            return self._server.owners.local()
        found = None if bearer is None else tokens.find(bearer)
        if found is None:
            what = "This token is not valid" if bearer else "A token is needed"
            told = f"{what}; send 'Authorization: Bearer snt_…' (sennit token create makes one)."
            raise Problem(401, "token", told, headers=_CHALLENGE)
        return self._server.owners.holder(found)


def _told(scope: HttpScope) -> tuple[str, str | None, str | None]:
    """Host, Origin and token of a request."""
    host, origin, bearer = "", None, None
    for name, value in scope["headers"]:
        if name == b"host":
            host = value.decode("latin-1").lower()
        elif name == b"origin":
            origin = value.decode("latin-1").lower()
        elif name == b"authorization" and value[:7].lower() == b"bearer ":
            bearer = value[7:].decode("latin-1").strip()
    return host, origin, bearer


def _has_port(host: str) -> bool:
    return host.rpartition(":")[2].isdigit() and not host.endswith("]")


def _check_origin(origin: str, host: str) -> None:
    try:
        parsed = urlsplit(origin)
        same = parsed.scheme in ("http", "https") and parsed.netloc == host
    except ValueError:
        same = False
    if not same:
        told = f"A page from {origin[:200]!r} may not use this server."
        raise Problem(403, "origin", told)
