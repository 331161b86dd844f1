"""Checks on what comes from outside and will be handed on.

An image URL is stored here and fetched by somebody else's server: it may name a public web address
and nothing more. Files, scripts, inline data, credentials and characters that parsers disagree
about are refused where the value enters, so that nothing downstream has to check again.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from sennit.errors import InvalidTypeError, ValidationError

_CONTROL_OR_SPACE = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029\\]")


def check_image_url(url: str) -> str:
    """Return `url` if it is a plain http(s) address; raises ValidationError otherwise."""
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidTypeError(f"Image URL must be a string, got {url!r}.")
    if found := _CONTROL_OR_SPACE.search(url):
        raise ValidationError(
            f"Image URL must not contain NUL, control characters, spaces or backslashes, "
            f"got {found.group()!r} in {url[:200]!r}."
        )
    try:
        parsed = urlsplit(url)
        host, _port = parsed.hostname, parsed.port
    except ValueError as error:
        raise ValidationError(f"Image URL is malformed: {url[:200]!r} ({error}).") from error
    if parsed.scheme not in ("http", "https"):
        got = f"{parsed.scheme}://" if parsed.scheme else f"no scheme in {url[:200]!r}"
        raise ValidationError(f"Image URL must use http:// or https:// scheme, got: {got}")
    if not host:
        raise ValidationError(f"Image URL must name a host, got: {url[:200]!r}")
    if "@" in parsed.netloc:
        # The URL is not repeated: what it holds may be a password.
        raise ValidationError(f"Image URL for host {host!r} must not hold credentials.")
    return url
