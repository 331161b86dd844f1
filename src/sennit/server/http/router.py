"""The router: from a raw path to its endpoint.

The raw path is split at its slashes before the segments are percent-decoded, so a session key with
a slash is sent as `a%2Fb`, and no encoding turns one path into another. Paths without an endpoint
go to the mounted apps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote_to_bytes

from sennit.ids import new_id
from sennit.server.http.endpoint import (
    MAX_INLINE_BYTES,
    Endpoint,
    HTTPRequest,
    RequestModel,
    decode_body,
    decode_query,
    ok,
)
from sennit.server.http.errors import HTTPError, response_for
from sennit.server.http.event_stream import cancel_on_disconnect
from sennit.server.http.limits import read_body
from sennit.server.http.starlette_imports import (
    ASGIApp,
    HttpScope,
    Message,
    Receive,
    Response,
    Send,
    compile_path,
)

if TYPE_CHECKING:
    from sennit.server.http.callers import Caller
    from sennit.server.state import ServerState


class Router:
    """ASGI app that finds the endpoint of a request, validates its input and sends its result."""

    def __init__(
        self, server: ServerState, endpoints: Iterable[Endpoint], mounts: Mapping[str, ASGIApp]
    ) -> None:
        """Compile the paths; `mounts` are apps by path prefix: "/mcp", or "" for the rest."""
        self._server, self._mounts = server, mounts
        methods: dict[str, dict[str, Endpoint]] = {}
        for endpoint in endpoints:
            if endpoint.method in methods.setdefault(endpoint.path, {}):
                raise ValueError(f"{endpoint.method} {endpoint.path} is defined twice.")
            methods[endpoint.path][endpoint.method] = endpoint
        self._fixed = {path: methods[path] for path in methods if "{" not in path}
        self._patterns = [(compile_path(path)[0], methods[path]) for path in methods if "{" in path]

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        try:
            match = self._find(scope)
            if match is None:
                app = self._mounted_app(scope["path"])
            else:
                app = await self._respond(*match, scope, receive)
        except Exception as error:
            app = response_for(error, scope)
        is_api = scope["path"].startswith("/v1/")
        await app(scope, receive, partial(_send_with_id, send) if is_api else send)

    def _find(self, scope: HttpScope) -> tuple[Endpoint, dict[str, str]] | None:
        """Return the endpoint and its path parameters; raise HTTPError 405 for another method."""
        path = _path(scope)
        methods, params = self._fixed.get(path), {}
        if methods is None:
            matches = ((pattern.match(path), methods) for pattern, methods in self._patterns)
            match, methods = next((found for found in matches if found[0]), (None, None))
            if match is None or methods is None:
                return None
            params = {name: _decode_segment(value) for name, value in match.groupdict().items()}
        method = scope["method"]
        endpoint = methods.get("GET" if method == "HEAD" else method)
        if endpoint is None:
            allowed = ", ".join(sorted(methods))
            message = f"Method {method} is not allowed here; use {allowed}."
            raise HTTPError(405, "method", message, headers={"allow": allowed})
        return endpoint, params

    def _mounted_app(self, path: str) -> ASGIApp:
        return self._mounts.get("/" + path.split("/")[1], self._mounts[""])

    async def _respond(
        self, endpoint: Endpoint, path: dict[str, str], scope: HttpScope, receive: Receive
    ) -> Response:
        caller: Any = scope["state"]["caller"]
        if endpoint.scope is not None:
            caller.require(endpoint.scope)
        arguments: list[Any] = []
        if endpoint.query is not None:
            arguments.append(decode_query(_query(scope), endpoint.query))
        headers = dict(reversed(list(scope["headers"])))
        ignored: list[str] = []
        if endpoint.body is not None:
            data = await read_body(headers, receive, caller.limits)
            if data:
                _check_type(headers)
            if endpoint.adds:
                await self._server.quotas.check(caller, len(data))
            body, ignored = await self._decode_body(data, endpoint, endpoint.body, caller)
            arguments.append(body)
        request = HTTPRequest(self._server, caller, path, scope, receive, headers, ignored)
        work = self._handle(endpoint, request, arguments)
        # A GET has no side effects, so it can be cancelled.
        result = await (cancel_on_disconnect(receive, work) if endpoint.method == "GET" else work)
        if isinstance(result, Response):
            return result
        return Response(status_code=204) if endpoint.status == 204 else ok(result, endpoint.status)

    async def _handle(self, endpoint: Endpoint, request: HTTPRequest, arguments: list[Any]) -> Any:
        if endpoint.scope == "run":  # waits for a model, so it must not take a slot
            return await endpoint.handle(request, *arguments)
        async with self._server.work.slot(request.caller):
            return await endpoint.handle(request, *arguments)

    async def _decode_body(
        self, data: bytes, endpoint: Endpoint, kind: type[RequestModel], caller: Caller
    ) -> tuple[RequestModel, list[str]]:
        if len(data) <= MAX_INLINE_BYTES:
            return decode_body(data, kind, endpoint.validation_status)
        run, values = self._server.work.run, caller.limits.values
        return await run(caller, decode_body, data, kind, endpoint.validation_status, values)


async def _send_with_id(send: Send, message: Message) -> None:
    """Send a message of a response, which OpenAI's and Anthropic's clients name by an id."""
    if message["type"] == "http.response.start":
        request_id = f"req_{new_id().hex}".encode()
        ids = [(b"x-request-id", request_id), (b"request-id", request_id)]
        message["headers"] = [*message["headers"], *ids]
    await send(message)


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
