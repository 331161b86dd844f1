"""The router: from a raw path to its endpoint.

The raw path is split at its slashes before the segments are percent-decoded, so a session key with
a slash is sent as `a%2Fb`, and no encoding turns one path into another. Paths without an endpoint
go to the mounted apps.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote_to_bytes

from sennit.errors import SennitError
from sennit.server.http.disconnects import cancel_on_disconnect
from sennit.server.http.endpoint import (
    MAX_INLINE_BYTES,
    Endpoint,
    HTTPRequest,
    RequestModel,
    decode_json,
    decode_large,
    decode_query,
    ok,
)
from sennit.server.http.errors import HTTPError, error_for, internal_error, log_unexpected
from sennit.server.http.limits import read_body
from sennit.server.http.starlette_imports import ASGIApp, HttpScope, Receive, Response, Send

if TYPE_CHECKING:
    from sennit.server.http.callers import Caller
    from sennit.server.state import ServerState

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Node:
    """A node of the routing tree."""

    children: dict[str, _Node] = field(default_factory=dict[str, "_Node"])
    wildcard: _Node | None = None
    endpoints: dict[str, Endpoint] = field(default_factory=dict[str, Endpoint])
    names: tuple[str, ...] = ()
    """The names of the path parameters up to this node."""

    def child(self, segment: str) -> _Node:
        if not segment.startswith("{"):
            return self.children.setdefault(segment, _Node(names=self.names))
        if self.wildcard is None:
            self.wildcard = _Node(names=(*self.names, segment.strip("{}")))
        return self.wildcard


class Router:
    """ASGI app that finds the endpoint of a request, validates its input and sends its result."""

    def __init__(
        self, server: ServerState, endpoints: Iterable[Endpoint], mounts: Mapping[str, ASGIApp]
    ) -> None:
        """Build the routing tree; `mounts` are apps by path prefix: "/mcp", or "" for the rest."""
        self._server = server
        self._root = _Node()
        for endpoint in endpoints:
            node = self._root
            for segment in endpoint.path.split("/")[1:]:
                node = node.child(segment)
            if endpoint.method in node.endpoints:
                raise ValueError(f"{endpoint.method} {endpoint.path} is defined twice.")
            node.endpoints[endpoint.method] = endpoint
        self._mounts = sorted(mounts.items(), key=lambda item: -len(item[0]))

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        try:
            match = self._find(scope)
            if match is None:
                app = self._mounted_app(scope)
            else:
                app = await self._respond(*match, scope, receive)
        except HTTPError as problem:
            app = problem.response()
        except SennitError as error:
            app = error_for(error).response()
        except Exception as error:
            log_unexpected(_log, scope["method"], error)
            app = internal_error().response()
        await app(scope, receive, send)

    def _find(self, scope: HttpScope) -> tuple[Endpoint, dict[str, str]] | None:
        """Return the endpoint and its path parameters; raise HTTPError 405 for another method."""
        node: _Node | None = self._root
        values: list[str] = []
        for segment in _path(scope).split("/")[1:]:
            if (child := node.children.get(segment)) is not None:
                node = child
            elif (node := node.wildcard) is not None and segment:
                values.append(_decode_segment(segment))
            else:
                return None
        method = scope["method"]
        endpoint = node.endpoints.get("GET" if method == "HEAD" else method)
        if endpoint is not None:
            return endpoint, dict(zip(node.names, values, strict=True))
        if not node.endpoints:
            return None
        allowed = ", ".join(sorted(node.endpoints))
        message = f"Method {method} is not allowed here; use {allowed}."
        raise HTTPError(405, "method", message, headers={"allow": allowed})

    def _mounted_app(self, scope: HttpScope) -> ASGIApp:
        path = scope["path"]
        for prefix, app in self._mounts:
            if path == prefix or path.startswith(f"{prefix}/"):
                return app
        raise HTTPError(404, "not_found", f"There is nothing at {path[:200]!r}.")

    async def _respond(
        self, endpoint: Endpoint, path: dict[str, str], scope: HttpScope, receive: Receive
    ) -> Response:
        caller: Any = scope["state"]["caller"]
        if endpoint.scope is not None:
            caller.require(endpoint.scope)
        query = None if endpoint.query is None else decode_query(_query(scope), endpoint.query)
        headers = dict(reversed(list(scope["headers"])))
        body = None
        if endpoint.body is not None:
            data = await read_body(headers, receive, self._server.limits_of(caller))
            if data:
                _check_type(headers)
            if endpoint.adds:
                await self._server.quotas.check(caller, len(data))
            body = await self._decode_body(data, endpoint, endpoint.body, caller)
        request = HTTPRequest(self._server, caller, path, query, body, scope, receive, headers)
        if endpoint.scope == "run":  # waits for a model, so it must not take a slot
            result = await endpoint.handle(request)
        elif endpoint.method == "GET":  # has no side effects, so it can be cancelled
            result = await cancel_on_disconnect(receive, self._in_slot(endpoint, request))
        else:
            result = await self._in_slot(endpoint, request)
        if isinstance(result, Response):
            return result
        return Response(status_code=204) if endpoint.status == 204 else ok(result, endpoint.status)

    async def _in_slot(self, endpoint: Endpoint, request: HTTPRequest) -> Any:
        async with self._server.work.slot(request.caller):
            return await endpoint.handle(request)

    async def _decode_body(
        self, data: bytes, endpoint: Endpoint, kind: type[RequestModel], caller: Caller | None
    ) -> RequestModel:
        if len(data) <= MAX_INLINE_BYTES:
            return decode_json(data, kind, endpoint.validation_status)
        values = self._server.limits_of(caller).values
        run = self._server.work.run
        return await run(caller, decode_large, data, kind, endpoint.validation_status, values)


def _path(scope: HttpScope) -> str:
    raw = scope.get("raw_path") or scope["path"].encode()
    return raw.partition(b"?")[0].decode("latin-1")


def _decode_segment(segment: str) -> str:
    try:
        text = unquote_to_bytes(segment).decode()
    except UnicodeError:
        raise HTTPError(400, "malformed", f"{segment[:200]!r} in the path is not UTF-8.") from None
    if "\0" in text:
        raise HTTPError(400, "malformed", "A path must not contain NUL.")
    return text


def _query(scope: HttpScope) -> dict[str, Any]:
    """Parse the query; a parameter named like `include[]` may be repeated, and is a list."""
    pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    params: dict[str, Any] = {}
    for name, value in pairs:
        if name.endswith("[]"):
            params.setdefault(name, []).append(value)
            continue
        if name in params:
            raise HTTPError(
                422, "invalid", (f"The query parameter {name!r} is given twice."), param=name
            )
        params[name] = value
    return params


def _check_type(headers: dict[bytes, bytes]) -> None:
    media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media_type != b"application/json":
        received = media_type.decode("latin-1") or "no type"
        raise HTTPError(
            415,
            "content_type",
            f"The Content-Type must be 'application/json', got {received[:100]!r}.",
        )
