"""Download of large files: resumable, verified by hash.

What has come is kept beside the target in a `.part` file until its SHA-256 is right; a connection
that breaks off is taken up where it stopped, in this call or the next. Only https is spoken (http
to this machine itself), redirects included. A wrong hash removes what was fetched: nothing that was
not asked for ever gets its real name.
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
except ImportError:  # not on Windows, where two downloads of one file are the user's own lookout
    fcntl = None

Progress: TypeAlias = Callable[[int, int | None], object]
"""Told the bytes that are here and how many there will be, if that is known."""

_PIECE = 1 << 18
_TIMEOUT = 60.0
_ATTEMPTS = 5  # in a row that bring nothing
WAIT = 1.0
"""Seconds before the second attempt; doubled for each further one."""
_KINDS: Mapping[int, ModelErrorKind] = {
    401: "auth",
    403: "auth",
    404: "not_found",
    410: "not_found",
    429: "rate_limit",
}


class _BrokenOff(Exception):
    """The connection failed; what has come is good."""


def check_address(url: str) -> str:
    """Return `url` if it may be fetched: https, or http on this machine; else ValidationError."""
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        raise ValidationError("The download URL is malformed.") from None
    if parts.scheme == "https" and host:
        return url
    if parts.scheme == "http" and host and _is_here(host):
        return url
    raise ValidationError(f"Only https URLs are allowed, got {address_shown(url)}.")


def address_shown(url: str) -> str:
    """`url` without what may be secret: credentials and query."""
    parts = urlsplit(url)
    return repr(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"[:200])


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A file to fetch."""

    url: str
    part: Path
    """Where it grows."""
    sha256: str
    limit: int
    """More bytes than this are refused."""
    progress: Progress

    def run(self) -> None:
        """Fetch it into `part`; raises ModelError, with `part` gone or good to go on from."""
        check_address(self.url)
        with _alone(self.part) as file:
            self._fetch(file)
            file.seek(0)
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != self.sha256:
            self._remove()
            raise ModelError(
                f"{address_shown(self.url)} has SHA-256 {found}, not {self.sha256}; it was "
                f"deleted. Check that the hash belongs to this file.",
                kind="malformed",
            )
        self._mark.unlink(missing_ok=True)

    @property
    def _mark(self) -> Path:
        """Holds what tells whether the file is still the same on the server."""
        return self.part.with_name(f"{self.part.name}.mark")

    def _remove(self) -> None:
        self._mark.unlink(missing_ok=True)
        self.part.unlink(missing_ok=True)

    def _fetch(self, file: BufferedRandom) -> None:
        failures = 0
        while True:
            before = _length(file)
            try:
                return self._once(file, before)
            except _BrokenOff as error:
                failures = 1 if _length(file) > before else failures + 1
                if failures >= _ATTEMPTS:
                    raise _unreachable(self.url, error) from error.__cause__
                if failures > 1:
                    time.sleep(WAIT * 2 ** (failures - 2))

    def _once(self, file: BufferedRandom, start: int) -> None:
        try:
            with _opened(self.url, self._headers(start)) as response:
                self._take(response, file, start)
        except _Refused as error:
            if error.code != 416:  # what is here is as long as the file, or longer
                raise _failure(self.url, error.code) from error
            file.seek(0)
            if hashlib.file_digest(file, "sha256").hexdigest() != self.sha256:
                file.truncate(0)
                raise _BrokenOff("what had come was not of this file") from error

    def _headers(self, start: int) -> dict[str, str]:
        if not start:
            return {}
        headers = {"Range": f"bytes={start}-"}
        if self._mark.exists() and (mark := self._mark.read_text()):
            headers["If-Range"] = mark
        return headers

    def _take(self, response: Any, file: BufferedRandom, start: int) -> None:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise ModelError(
                (
                    f"{address_shown(self.url)} was sent with a content encoding, which is not "
                    f"supported."
                ),
                kind="malformed",
            )
        if not _continues(response, start):
            start = 0
            file.truncate(0)
            self._mark.write_text(_validator(response.headers))
        length = response.headers.get("Content-Length")
        total = start + int(length) if length and length.isdigit() else None
        self._check_room(start, total)
        self._copy(response, file, start, total)

    def _copy(self, response: Any, file: BufferedRandom, done: int, total: int | None) -> None:
        while piece := _piece(response):
            done += len(piece)
            if done > self.limit:
                self._check_room(0, done)
            file.write(piece)  # at the end, where a file opened to append always writes
            self.progress(done, total)
        if total is not None and done < total:
            raise _BrokenOff("it broke off")

    def _check_room(self, start: int, total: int | None) -> None:
        if total is None:
            return
        if total > self.limit:
            self._remove()
            raise ModelError(
                f"{address_shown(self.url)} is larger than the {self.limit:,} bytes expected.",
                kind="malformed",
            )
        free = shutil.disk_usage(self.part.parent).free
        if total - start > free:
            raise ModelError(
                f"{address_shown(self.url)} needs {total - start:,} bytes, but only {free:,} are "
                f"free in {str(self.part.parent)!r}."
            )


class _Refused(Exception):
    """The server answered with an error."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the server said {code}")
        self.code = code


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows to https addresses; from this machine also to itself."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme != "https" and req.type != "http":
            raise ModelError(
                f"{address_shown(req.full_url)} redirects to {address_shown(newurl)}, which is not "
                f"https; the redirect was not followed.",
                kind="bad_request",
            )
        try:
            check_address(newurl)
        except ValidationError as error:
            raise ModelError(
                f"{address_shown(req.full_url)} has a redirect that was not followed: {error}",
                kind="bad_request",
            ) from None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@contextmanager
def _opened(url: str, headers: Mapping[str, str]) -> Generator[Any]:
    try:
        response = _opener(url).open(_request(url, headers), timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        code = error.code
        error.close()
        if code >= 500:
            raise _BrokenOff(f"the server said {code}") from error
        raise _Refused(code) from None
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenOff(str(error)) from error
    with response:
        yield response


def _opener(url: str) -> urllib.request.OpenerDirector:
    handlers: list[urllib.request.BaseHandler] = [_Redirects()]
    if _is_here(urlsplit(url).hostname or ""):
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)


def _request(url: str, headers: Mapping[str, str]) -> urllib.request.Request:
    parts = urlsplit(url)
    credentials, _, place = parts.netloc.rpartition("@")
    own = {"User-Agent": "sennit", "Accept-Encoding": "identity"}
    request = urllib.request.Request(
        parts._replace(netloc=place).geturl(), headers={**own, **headers}
    )
    if credentials:  # for this host alone: not sent along when redirected
        basic = b64encode(unquote(credentials).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {basic}")
    return request


@contextmanager
def _alone(part: Path) -> Generator[BufferedRandom]:
    """`part`, open to read and write, and ours alone for as long."""
    with part.open("a+b") as opened:
        try:
            if fcntl is not None:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ModelError(
                f"{part.name!r} is being downloaded by another process.", kind="busy"
            ) from None
        yield opened


def _piece(response: Any) -> bytes:
    try:
        return response.read(_PIECE)
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenOff(f"it broke off ({type(error).__name__})") from error


def _length(file: BufferedRandom) -> int:
    return file.seek(0, 2)


def _continues(response: Any, start: int) -> bool:
    given = re.match(r"bytes (\d+)-", response.headers.get("Content-Range") or "")
    return response.status == 206 and given is not None and int(given[1]) == start


def _validator(headers: Any) -> str:
    """Return a validator for If-Range: a strong ETag, or else the date."""
    etag = headers.get("ETag") or ""
    return etag if etag.startswith('"') else headers.get("Last-Modified") or ""


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _failure(url: str, code: int) -> ModelError:
    kind = _KINDS.get(code, "failed")
    return ModelError(f"{address_shown(url)}: the server returned {code}.", kind=kind, status=code)


def _unreachable(url: str, error: Exception) -> ModelError:
    return ModelError(
        f"{address_shown(url)} could not be downloaded completely: {error}. The partial file is "
        f"kept; try again to resume.",
        kind="network",
    )
