"""Static files of the studio.

Only files that existed at startup are served, from memory, by their exact names: no request path is
ever joined to a folder. The content security policy allows only these scripts: no inline script or
style, no eval, no other host, and only DOMPurify may turn text into HTML (trusted types).
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import PurePosixPath

from sennit.server.http.errors import HTTPError
from sennit.server.http.starlette_imports import Headers, Receive, Response, Send
from sennit.server.http.starlette_imports import HttpScope as Scope
from sennit.studio import INDEX, MEDIA_TYPES, STATIC, files

PUBLIC = ("/", "/studio/")
"""The public paths: the page asks for a token and contains no user data."""

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types dompurify",
    )
)

_HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Revalidated by ETag at every load.
    "cache-control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    media_type: str
    etag: str


class StudioFiles:
    """An ASGI app that serves the page and its files."""

    def __init__(self) -> None:
        self._files = {f"/studio/{name}": _read(name) for name in files()}
        self._files["/"] = self._files[f"/studio/{INDEX}"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._response(scope)(scope, receive, send)

    def _response(self, scope: Scope) -> Response:
        path: str = scope["path"]
        file = self._files.get(path)
        if file is None:
            return HTTPError(404, "not_found", f"There is nothing at {path[:200]!r}.").response()
        if scope["method"] not in ("GET", "HEAD"):
            message = f"{scope['method']} is not allowed here; use GET."
            return HTTPError(405, "method", message, headers={"allow": "GET, HEAD"}).response()
        headers = {**_HEADERS, "etag": file.etag}
        if file.etag in Headers(scope=scope).get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers=headers, media_type=file.media_type)


def _read(name: str) -> _File:
    content = (STATIC / name).read_bytes()
    media_type = MEDIA_TYPES[PurePosixPath(name).suffix]
    return _File(content, media_type, f'"{sha256(content).hexdigest()[:32]}"')
