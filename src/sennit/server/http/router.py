"""The router: from a raw path to its endpoint.

A piece is decoded after the path was cut at its slashes, so a session whose key holds a slash is
reached as `a%2Fb`, and no encoding turns one path into another. Paths that belong to no endpoint go
to the app that is mounted there, if any.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote_to_bytes

from sennit.errors import SennitError
from sennit.server.http.disconnects import while_there
from sennit.server.http.endpoint import (
    SMALL,
    Endpoint,
    HTTPRequest,
    RequestModel,
    ok,
    read_json,
    read_large,
    read_query,
)
from sennit.server.http.errors import HTTPError, internal, log_unforeseen, problem_of
from sennit.server.http.limits import read_body
from sennit.server.http.starlette_imports import ASGIApp, HttpScope, Receive, Response, Send

if TYPE_CHECKING:
    from sennit.server.http.callers import Caller
    from sennit.server.state import ServerState

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Place:
    """A node of the routing tree."""

    named: dict[str, _Place] = field(default_factory=dict[str, "_Place"])
    any: _Place | None = None
    endpoints: dict[str, Endpoint] = field(default_factory=dict[str, Endpoint])
    names: tuple[str, ...] = ()
    """What stands in the braces on the way here."""

    def step(self, segment: str) -> _Place:
        if not segment.startswith("{"):
            return self.named.setdefault(segment, _Place(names=self.names))
        if self.any is None:
            self.any = _Place(names=(*self.names, segment.strip("{}")))
        return self.any


class Router:
    """Finds the endpoint of a request, checks what it takes, and sends what it gives."""

    def __init__(
        self, server: ServerState, endpoints: Iterable[Endpoint], mounts: Mapping[str, ASGIApp]
    ) -> None:
        """`mounts` are apps by the beginning of their path, such as "/mcp"; "" takes the rest."""
        self._server = server
        self._root = _Place()
        for endpoint in endpoints:
            node = self._root
            for segment in endpoint.path.split("/")[1:]:
                node = node.step(segment)
            if endpoint.method in node.endpoints:
                raise ValueError(f"{endpoint.method} {endpoint.path} stands twice in the table of routes.")
            node.endpoints[endpoint.method] = endpoint
        self._mounts = sorted(mounts.items(), key=lambda item: -len(item[0]))

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        try:
            match = self._find(scope)
            if match is None:
                app = self._mounted(scope)
            else:
                app = await self._answer(*match, scope, receive)
        except HTTPError as problem:
            app = problem.response()
        except SennitError as error:
            app = problem_of(error).response()
        except Exception as error:
            log_unforeseen(_log, scope["method"], error)
            app = internal().response()
        await app(scope, receive, send)

    def _find(self, scope: HttpScope) -> tuple[Endpoint, dict[str, str]] | None:
        """The endpoint and what stands in its braces; raises HTTPError 405 for another method."""
        node: _Place | None = self._root
        values: list[str] = []
        for segment in _path(scope).split("/")[1:]:
            if (child := node.named.get(segment)) is not None:
                node = child
            elif (node := node.any) is not None and segment:
                values.append(_decoded(segment))
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

    def _mounted(self, scope: HttpScope) -> ASGIApp:
        path = scope["path"]
        for prefix, app in self._mounts:
            if path == prefix or path.startswith(f"{prefix}/"):
                return app
        raise HTTPError(404, "not_found", f"There is nothing at {path[:200]!r}.")

    async def _answer(
        self, endpoint: Endpoint, path: dict[str, str], scope: HttpScope, receive: Receive
    ) -> Response:
        caller: Any = scope["state"]["caller"]
        if endpoint.scope is not None:
            caller.require(endpoint.scope)
        query = None if endpoint.query is None else read_query(_query(scope), endpoint.query)
        headers = dict(reversed(list(scope["headers"])))
        body = None
        if endpoint.body is not None:
            data = await read_body(headers, receive, self._server.limits_of(caller))
            if data:
                _check_type(headers)
            if endpoint.adds:
                await self._server.quotas.check(caller, len(data))
            body = await self._decoded(data, endpoint, endpoint.body, caller)
        request = HTTPRequest(self._server, caller, path, query, body, scope, receive, headers)
        if endpoint.scope == "run":  # waits for models, and must not keep others from reading
            result = await endpoint.handle(request)
        elif endpoint.method == "GET":  # changes nothing, so nobody misses it
            result = await while_there(receive, self._in_slot(endpoint, request))
        else:
            result = await self._in_slot(endpoint, request)
        if isinstance(result, Response):
            return result
        return Response(status_code=204) if endpoint.status == 204 else ok(result, endpoint.status)

    async def _in_slot(self, endpoint: Endpoint, request: HTTPRequest) -> Any:
        async with self._server.work.slot(request.caller):
            return await endpoint.handle(request)

    async def _decoded(
        self, data: bytes, endpoint: Endpoint, kind: type[RequestModel], caller: Caller | None
    ) -> RequestModel:
        if len(data) <= SMALL:
            return read_json(data, kind, endpoint.misfit)
        values = self._server.limits_of(caller).values
        run = self._server.work.run
        return await run(caller, read_large, data, kind, endpoint.misfit, values)


def _path(scope: HttpScope) -> str:
    raw = scope.get("raw_path") or scope["path"].encode()
    return raw.partition(b"?")[0].decode("latin-1")


def _decoded(piece: str) -> str:
    try:
        found = unquote_to_bytes(piece).decode()
    except UnicodeError:
        raise HTTPError(400, "malformed", f"{piece[:200]!r} in the path is not UTF-8.") from None
    if "\0" in found:
        raise HTTPError(400, "malformed", "A path must not contain NUL.")
    return found


def _query(scope: HttpScope) -> dict[str, Any]:
    """The query; what is named like `include[]` may be said several times, and is a list."""
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
