"""Validation of image URLs.

An image URL is stored here and fetched by somebody else's server: it may name a public web address
and nothing more. Files, scripts, inline data, credentials and characters that parsers disagree
about are refused where the value enters, so that nothing downstream has to check again.
"""

from __future__ import annotations

import re

from sennit.errors import InvalidTypeError, ValidationError, shown

_REFUSED = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029\ud800-\udfff\\]")


def check_image_url(url: str) -> str:
    """Return `url` if it is a plain http(s) address; raises ValidationError otherwise."""
    from urllib.parse import urlsplit  # most conversations have no images

    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidTypeError(f"Image URL must be a string, got {shown(url)}.")
    if found := _REFUSED.search(url):
        raise ValidationError(
            f"Image URL must not contain NUL, control characters, spaces, backslashes or lone "
            f"surrogates, got {found.group()!r} in {_shown(url)}."
        )
    try:
        parsed = urlsplit(url)
        host, _port = parsed.hostname, parsed.port
    except ValueError:
        # What the parser says may repeat a password, so it is not passed on.
        raise ValidationError(f"Image URL is malformed: {_shown(url)}.") from None
    if parsed.scheme not in ("http", "https"):
        got = f"{parsed.scheme}://" if parsed.scheme else f"no scheme in {_shown(url)}"
        raise ValidationError(f"Image URL must use http:// or https:// scheme, got: {got}")
    if "@" in parsed.netloc:
        raise ValidationError(f"Image URL must not contain credentials, got: {_shown(url)}")
    if not host:
        raise ValidationError(f"Image URL must have a host, got: {_shown(url)}")
    return url


def http_host(url: str) -> str | None:
    """Return the host of an http(s) address; None if that is none, or malformed."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        return None
    return host if parts.scheme in ("http", "https") and host else None


def _shown(url: str) -> str:
    return "an address with credentials" if "@" in url else repr(url[:200])
