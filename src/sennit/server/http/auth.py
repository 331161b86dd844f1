"""Authentication middleware: checks the host, the origin and the token of every request.

A page on another site could reach a local server by DNS rebinding, so the Host must be one of ours,
the Origin must equal it, and Sec-Fetch-Site must not name another site. Browsers set these headers
and pages cannot forge them. Then the token identifies the caller; without a token file it is the
local user, and the server listens on loopback only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from sennit.errors import SennitError
from sennit.server.http.callers import Caller
from sennit.server.http.errors import HTTPError, response_for, stopping
from sennit.server.http.limits import LimitsMiddleware
from sennit.server.http.starlette_imports import ASGIApp, HttpScope, Message, Receive, Send

if TYPE_CHECKING:
    from sennit.server.state import ServerState

SocketHandler: TypeAlias = Callable[[ASGIApp, HttpScope, Receive, Send], Awaitable[None]]
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_CLOSE = {"connection": "close"}
_CHALLENGE = {"www-authenticate": 'Bearer realm="sennit"'}
_API_PREFIXES = ("/api/", "/v1/", "/mcp", "/openapi.json")
_SAME_SITE = (None, b"same-origin", b"none")
_RESOURCE_POLICY = (b"cross-origin-resource-policy", b"same-origin")
_SINGLE_HEADERS = {
    b"host": "Host",
    b"origin": "Origin",
    b"sec-fetch-site": "Sec-Fetch-Site",
    b"authorization": "Authorization",
    b"x-api-key": "X-Api-Key",
}


class AuthMiddleware:
    """ASGI middleware that authenticates requests and passes them on with their Caller."""

    def __init__(
        self,
        server: ServerState,
        app: ASGIApp,
        *,
        public: Iterable[str],
        sockets: Mapping[str, SocketHandler] | None = None,
    ) -> None:
        """Wrap an app; `public` paths, and all below those that end in a slash, need no token.

        `sockets` serve WebSockets by their path.
        """
        self._server, self._app, self._sockets = server, app, sockets or {}
        self.limiter = LimitsMiddleware(self._dispatch, server.settings.limits, server.tokens)
        self._version = server.tokens.version
        self._hosts = frozenset(name.lower() for name in (*_LOOPBACK, *server.settings.allow_hosts))
        self._public = frozenset(public)
        self._public_prefixes = tuple(
            path for path in self._public if path.endswith("/") and path != "/"
        )

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        started = False

        async def answer(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], _RESOURCE_POLICY]
            started = started or message["type"] in ("http.response.start", "websocket.accept")
            await send(message)

        try:
            self._admit(scope)
            await self.limiter(scope, receive, answer)
        except (HTTPError, SennitError) as error:
            if started:
                raise
            await response_for(error, scope)(scope, receive, answer)

    async def _dispatch(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        """Pass an admitted request on, or serve a WebSocket with requests to this app."""
        if scope["type"] == "http":
            await self._app(scope, receive, send)
        elif (serve := self._sockets.get(scope["path"])) is not None:
            await serve(self, scope, receive, send)
        else:
            paths = ", ".join(map(repr, self._sockets))
            raise HTTPError(404, "not_found", f"There is no WebSocket here; use {paths}.")

    def _admit(self, scope: HttpScope) -> None:
        """Store the caller in the scope; raise HTTPError if the request is not allowed."""
        _check_version(scope)
        host, origin, site, bearer = _read_headers(scope)
        self._check_host(host)
        if origin is not None:
            _check_origin(origin, host)
        if site not in _SAME_SITE and scope["path"].startswith(_API_PREFIXES):
            message = "Cross-site requests to this server are not allowed."
            raise HTTPError(403, "origin", message)
        if self._server.draining:
            raise stopping()
        caller = None
        if not self._is_public(scope["path"]):
            self.check_tokens()
            caller = self._authenticate(bearer)
        scope.setdefault("state", {})["caller"] = caller

    def _is_public(self, path: str) -> bool:
        return path in self._public or path.startswith(self._public_prefixes)

    def _check_host(self, host: str) -> None:
        name = host.rpartition(":")[0] if _has_port(host) else host
        if name not in self._hosts and host not in self._hosts:
            raise HTTPError(
                421,
                "host",
                f"The host {host[:200]!r} is not allowed; to allow it, start the server with "
                f"--allow-host.",
            )

    def check_tokens(self) -> None:
        """Reload the token file if it has changed, and end the streams of revoked tokens.

        Raises StoreError if it cannot be read.
        """
        tokens = self._server.tokens
        try:
            tokens.refresh()
        finally:
            if tokens.version != self._version:
                self._version = tokens.version
                self.limiter.end_revoked()

    def _authenticate(self, bearer: str | None) -> Caller:
        tokens = self._server.tokens
        if not tokens.requires_token:
            return self._server.callers.local()
        token = None if bearer is None else tokens.find(bearer)
        if token is None:
            reason = "This token is not valid" if bearer else "A token is needed"
            way_out = "send 'Authorization: Bearer snt_…' (create one with sennit token create)"
            raise HTTPError(401, "token", f"{reason}; {way_out}.", headers=_CHALLENGE)
        return self._server.callers.of_token(token)


def _check_version(scope: HttpScope) -> None:
    """Raise HTTPError 400 and close the connection for another HTTP version, or no path."""
    if scope["http_version"] not in ("1.0", "1.1"):
        message = f"This server speaks HTTP/1.1, got {scope['http_version']!r}."
        raise HTTPError(400, "malformed", message, headers=_CLOSE)
    if not scope["path"].startswith("/"):
        message = f"The path of a request must start with '/', got {scope['path'][:200]!r}."
        raise HTTPError(400, "malformed", message, headers=_CLOSE)


def _read_headers(scope: HttpScope) -> tuple[str, str | None, bytes | None, str | None]:
    """Return Host, Origin, Sec-Fetch-Site and token.

    Raises HTTPError 400 for duplicates, and for ambiguous framing: with two lengths, a reverse
    proxy and this server may disagree about where a request ends, which allows request smuggling
    (RFC 9112, section 6.1).
    """
    values: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in values and name in _SINGLE_HEADERS:
            message = f"A request has one {_SINGLE_HEADERS[name]} header, got two; send one."
            raise HTTPError(400, "malformed", message)
        values[name] = value
    if b"transfer-encoding" in values and (
        b"content-length" in values or scope["http_version"] == "1.0"
    ):
        message = "Send a Content-Length or (in HTTP/1.1) a Transfer-Encoding, not both."
        raise HTTPError(400, "malformed", message, headers=_CLOSE)
    origin = values.get(b"origin")
    site = values.get(b"sec-fetch-site")
    authorization = values.get(b"authorization", b"")
    is_bearer = authorization[:7].lower() == b"bearer "
    token = authorization[7:] if is_bearer else values.get(b"x-api-key")  # of Anthropic's clients
    return (
        values.get(b"host", b"").decode("latin-1").lower(),
        None if origin is None else origin.decode("latin-1").lower(),
        None if site is None else site.lower(),
        token.decode("latin-1").strip() if token is not None else None,
    )


def _has_port(host: str) -> bool:
    return host.rpartition(":")[2].isdigit() and not host.endswith("]")


def _check_origin(origin: str, host: str) -> None:
    try:
        parsed = urlsplit(origin)
        same = parsed.scheme in ("http", "https") and parsed.netloc == host
    except ValueError:
        same = False
    if not same:
        message = f"Requests from the origin {origin[:200]!r} are not allowed."
        raise HTTPError(403, "origin", message)
