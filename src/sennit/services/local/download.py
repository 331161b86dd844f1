"""Download of large files: resumable, verified by hash.

Data is written to a `.part` file until its SHA-256 is verified; a lost connection is resumed where
it stopped, in this call or the next. Only https is allowed (http to loopback addresses), redirects
included. A file with a wrong hash is deleted, so it never gets its final name.
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
from io import BufferedRandom
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
            self._fetch(file)
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != self.sha256:
            self._remove()
            raise ModelError(
                f"{redacted_url(self.url)} has SHA-256 {digest}, not {self.sha256}; it was "
                f"deleted. Check that the hash belongs to this file.",
                kind="malformed",
            )
        self._validator_file.unlink(missing_ok=True)

    @property
    def _validator_file(self) -> Path:
        """The file that stores the If-Range validator of the partial download."""
        return self.part.with_name(f"{self.part.name}.mark")

    def _remove(self) -> None:
        self._validator_file.unlink(missing_ok=True)
        self.part.unlink(missing_ok=True)

    def _fetch(self, file: BufferedRandom) -> None:
        failures = 0
        while True:
            start = _size(file)
            try:
                return self._attempt(file, start)
            except _ConnectionLostError as error:
                failures = 1 if _size(file) > start else failures + 1
                if failures >= _MAX_FAILURES:
                    raise _incomplete_error(self.url, error) from error.__cause__
                if failures > 1:
                    time.sleep(FIRST_RETRY_DELAY_SECONDS * 2 ** (failures - 2))

    def _attempt(self, file: BufferedRandom, start: int) -> None:
        try:
            with _open_url(self.url, self._headers(start)) as response:
                self._receive(response, file, start)
        except _HTTPStatusError as error:
            if error.code != 416:  # the partial file is complete or longer
                raise _http_error(self.url, error.code) from error
            file.seek(0)
            if hashlib.file_digest(file, "sha256").hexdigest() != self.sha256:
                file.truncate(0)
                raise _ConnectionLostError("what had come was not of this file") from error

    def _headers(self, start: int) -> dict[str, str]:
        if not start:
            return {}
        headers = {"Range": f"bytes={start}-"}
        if self._validator_file.exists() and (validator := self._validator_file.read_text()):
            headers["If-Range"] = validator
        return headers

    def _receive(self, response: Any, file: BufferedRandom, start: int) -> None:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise ModelError(
                (
                    f"{redacted_url(self.url)} was sent with a content encoding, which is not "
                    f"supported."
                ),
                kind="malformed",
            )
        if not _is_continuation(response, start):
            start = 0
            file.truncate(0)
            self._validator_file.write_text(_validator(response.headers))
        length = response.headers.get("Content-Length")
        total = start + int(length) if length and length.isdigit() else None
        self._check_size(start, total)
        self._copy(response, file, start, total)

    def _copy(self, response: Any, file: BufferedRandom, done: int, total: int | None) -> None:
        while chunk := _read_chunk(response):
            done += len(chunk)
            if done > self.limit:
                self._check_size(0, done)
            file.write(chunk)  # appends: the file is in append mode
            self.progress(done, total)
        if total is not None and done < total:
            raise _ConnectionLostError("it broke off")

    def _check_size(self, start: int, total: int | None) -> None:
        if total is None:
            return
        if total > self.limit:
            self._remove()
            raise ModelError(
                f"{redacted_url(self.url)} is larger than the {self.limit:,} bytes expected.",
                kind="malformed",
            )
        free = shutil.disk_usage(self.part.parent).free
        if total - start > free:
            raise ModelError(
                f"{redacted_url(self.url)} needs {total - start:,} bytes, but only {free:,} are "
                f"free in {str(self.part.parent)!r}."
            )


class _HTTPStatusError(Exception):
    """The server returned a client error (4xx)."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the server said {code}")
        self.code = code


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


@contextmanager
def _open_url(url: str, headers: Mapping[str, str]) -> Generator[Any]:
    try:
        response = _opener(url).open(_request(url, headers), timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        code = error.code
        error.close()
        if code >= 500:
            raise _ConnectionLostError(f"the server said {code}") from error
        raise _HTTPStatusError(code) from None
    except (OSError, http.client.HTTPException) as error:
        raise _ConnectionLostError(str(error)) from error
    with response:
        yield response


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
        raise _ConnectionLostError(f"it broke off ({type(error).__name__})") from error


def _size(file: BufferedRandom) -> int:
    return file.seek(0, 2)


def _is_continuation(response: Any, start: int) -> bool:
    content_range = re.match(r"bytes (\d+)-", response.headers.get("Content-Range") or "")
    return response.status == 206 and content_range is not None and int(content_range[1]) == start


def _validator(headers: Any) -> str:
    """Return a validator for If-Range: a strong ETag, or else the date."""
    etag = headers.get("ETag") or ""
    return etag if etag.startswith('"') else headers.get("Last-Modified") or ""


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _http_error(url: str, code: int) -> ModelError:
    kind = _ERROR_KINDS.get(code, "failed")
    return ModelError(f"{redacted_url(url)}: the server returned {code}.", kind=kind, status=code)


def _incomplete_error(url: str, error: Exception) -> ModelError:
    return ModelError(
        f"{redacted_url(url)} could not be downloaded completely: {error}. The partial file is "
        f"kept; try again to resume.",
        kind="network",
    )
