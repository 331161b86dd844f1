"""Download of large files: resumable, verified by hash.

Data is written to a `.part` file until its SHA-256 is verified; a lost connection is resumed where
it stopped, in this call or the next. The file may have changed in between, so a resumed file with a
wrong hash is downloaded once more from the start. Otherwise a wrong hash is an error, and the file
is deleted. Only https is allowed (http to loopback addresses), redirects included.
"""

from __future__ import annotations

import hashlib
import http.client
import ipaddress
import re
import shutil
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from io import SEEK_END, BufferedRandom
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from sennit.errors import ModelError, ModelErrorKind, ValidationError

try:
    import fcntl
except ImportError:  # Windows: concurrent downloads of one file are not prevented
    fcntl = None

Progress: TypeAlias = Callable[[int, int | None], object]
"""Called with the bytes so far and the total, if that is known."""

_CHUNK_BYTES = 1 << 18
_TIMEOUT_SECONDS = 60.0
_MAX_FAILURES = 5  # consecutive attempts without progress
FIRST_RETRY_DELAY_SECONDS = 1.0
"""The delay after the second failure without progress; doubled after each further one."""
_ERROR_KINDS: Mapping[int, ModelErrorKind] = {
    401: "auth",
    403: "auth",
    404: "not_found",
    410: "not_found",
    429: "rate_limit",
}


class _ConnectionLostError(Exception):
    """The connection failed; the data received so far is valid."""


def check_url(url: str) -> str:
    """Return `url` if it may be fetched: https, or http on this machine; else ValidationError."""
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        raise ValidationError("The download URL is malformed.") from None
    if parts.scheme == "https" and host:
        return url
    if parts.scheme == "http" and host and _is_loopback(host):
        return url
    raise ValidationError(f"Only https URLs are allowed, got {redacted_url(url)}.")


def redacted_url(url: str) -> str:
    """Return the repr of `url` without credentials and query, which may be secret."""
    parts = urlsplit(url)
    return repr(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"[:200])


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A file to fetch."""

    url: str
    part: Path
    """The partial file."""
    sha256: str
    limit: int
    """The maximum size in bytes."""
    progress: Progress

    def run(self) -> None:
        """Download into `part`; raises ModelError, with `part` deleted or resumable."""
        check_url(self.url)
        with _lock_file(self.part) as file:
            was_resumed = self._fetch(file)
            digest = _sha256(file)
            if was_resumed and digest != self.sha256:
                file.truncate(0)
                self._fetch(file)
                digest = _sha256(file)
        if digest != self.sha256:
            self.part.unlink(missing_ok=True)
            raise ModelError(
                f"{redacted_url(self.url)} has SHA-256 {digest}, not {self.sha256}; it was "
                f"deleted. Check that the hash belongs to this file.",
                kind="malformed",
            )

    def _fetch(self, file: BufferedRandom) -> bool:
        """Download the rest of the file; return whether an earlier connection began it."""
        failures, was_resumed = 0, False
        while True:
            start = file.seek(0, SEEK_END)
            was_resumed = was_resumed or start > 0
            try:
                self._attempt(file, start)
                return was_resumed
            except _ConnectionLostError as error:
                failures = 1 if file.seek(0, SEEK_END) > start else failures + 1
                if failures >= _MAX_FAILURES:
                    raise ModelError(
                        f"{redacted_url(self.url)} could not be downloaded completely: {error}. "
                        f"The partial file is kept; try again to resume.",
                        kind="network",
                    ) from error.__cause__
                if failures > 1:
                    time.sleep(FIRST_RETRY_DELAY_SECONDS * 2 ** (failures - 2))

    def _attempt(self, file: BufferedRandom, start: int) -> None:
        response = self._open(start)
        if response is None:
            return
        with response:
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise ModelError(
                    f"{redacted_url(self.url)} was sent with a content encoding, which is not "
                    f"supported.",
                    kind="malformed",
                )
            if not _is_continuation(response, start):
                start = 0
                file.truncate(0)
            length = response.headers.get("Content-Length")
            total = start + int(length) if length and length.isdigit() else None
            self._check_size(start, total)
            self._copy(response, file, start, total)

    def _open(self, start: int) -> Any:
        """Request the file from byte `start` on; None if there are no further bytes."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        try:
            return _opener(self.url).open(_request(self.url, headers), timeout=_TIMEOUT_SECONDS)
        except urllib.error.HTTPError as error:
            code = error.code
            error.close()
            if code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                return None
            if code >= 500:
                raise _ConnectionLostError(f"the server returned {code}") from error
        except (OSError, http.client.HTTPException) as error:
            raise _ConnectionLostError(str(error)) from error
        raise ModelError(
            f"{redacted_url(self.url)}: the server returned {code}.",
            kind=_ERROR_KINDS.get(code, "failed"),
            status=code,
        )

    def _copy(self, response: Any, file: BufferedRandom, done: int, total: int | None) -> None:
        while chunk := _read_chunk(response):
            done += len(chunk)
            self._check_size(done, done)
            file.write(chunk)  # appends: the file is in append mode
            self.progress(done, total)
        if total is not None and done < total:
            raise _ConnectionLostError("the connection was closed early")

    def _check_size(self, start: int, total: int | None) -> None:
        if total is None:
            return
        if total > self.limit:
            self.part.unlink(missing_ok=True)
            raise ModelError(
                f"{redacted_url(self.url)} is larger than the {self.limit:,} bytes expected.",
                kind="malformed",
            )
        if total > start and total - start > (free := shutil.disk_usage(self.part.parent).free):
            raise ModelError(
                f"{redacted_url(self.url)} needs {total - start:,} bytes, but only {free:,} are "
                f"free in {str(self.part.parent)!r}."
            )


class _HTTPSRedirects(urllib.request.HTTPRedirectHandler):
    """A handler that follows redirects to https URLs, and from loopback to loopback over http."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme != "https" and req.type != "http":
            raise ModelError(
                f"{redacted_url(req.full_url)} redirects to {redacted_url(newurl)}, which is not "
                f"https; the redirect was not followed.",
                kind="bad_request",
            )
        try:
            check_url(newurl)
        except ValidationError as error:
            raise ModelError(
                f"{redacted_url(req.full_url)} has a redirect that was not followed: {error}",
                kind="bad_request",
            ) from None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener(url: str) -> urllib.request.OpenerDirector:
    handlers: list[urllib.request.BaseHandler] = [_HTTPSRedirects()]
    if _is_loopback(urlsplit(url).hostname or ""):
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)


def _request(url: str, headers: Mapping[str, str]) -> urllib.request.Request:
    parts = urlsplit(url)
    credentials, _, host = parts.netloc.rpartition("@")
    defaults = {"User-Agent": "sennit", "Accept-Encoding": "identity"}
    request = urllib.request.Request(
        parts._replace(netloc=host).geturl(), headers={**defaults, **headers}
    )
    if credentials:  # not forwarded on a redirect
        basic = b64encode(unquote(credentials).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {basic}")
    return request


@contextmanager
def _lock_file(part: Path) -> Generator[BufferedRandom]:
    """Open `part` to read and append under an exclusive lock; raises ModelError if locked."""
    with part.open("a+b") as file:
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ModelError(
                f"{part.name!r} is being downloaded by another process.", kind="busy"
            ) from None
        yield file


def _read_chunk(response: Any) -> bytes:
    try:
        return response.read(_CHUNK_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise _ConnectionLostError(f"the connection failed ({type(error).__name__})") from error


def _sha256(file: BufferedRandom) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()


def _is_continuation(response: Any, start: int) -> bool:
    content_range = re.match(r"bytes (\d+)-", response.headers.get("Content-Range") or "")
    return response.status == 206 and content_range is not None and int(content_range[1]) == start


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
