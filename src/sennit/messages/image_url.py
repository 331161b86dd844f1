"""Validation of image URLs.

An image URL is stored here and fetched by a provider's server, so only plain http(s) URLs are
accepted. Files, scripts, inline data, credentials and characters that URL parsers disagree about
are refused on input, so nothing downstream has to check again.
"""

from __future__ import annotations

import re

from sennit.errors import InvalidTypeError, ValidationError, short_repr

_REFUSED = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029\ud800-\udfff\\]")


def check_image_url(url: str) -> str:
    """Return `url` if it is a plain http(s) URL; raises ValidationError otherwise."""
    from urllib.parse import urlsplit  # most conversations have no images

    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidTypeError(f"Image URL must be a string, got {short_repr(url)}.")
    if match := _REFUSED.search(url):
        raise ValidationError(
            f"Image URL must not contain NUL, control characters, spaces, backslashes or lone "
            f"surrogates, got {match.group()!r} in {_redact(url)}."
        )
    try:
        parsed = urlsplit(url)
        host, _port = parsed.hostname, parsed.port
    except ValueError:
        # The parser's message may contain a password, so it is not chained.
        raise ValidationError(f"Image URL is malformed: {_redact(url)}.") from None
    if parsed.scheme not in ("http", "https"):
        got = f"{parsed.scheme}://" if parsed.scheme else f"no scheme in {_redact(url)}"
        raise ValidationError(f"Image URL must use http:// or https:// scheme, got: {got}")
    if "@" in parsed.netloc:
        raise ValidationError(f"Image URL must not contain credentials, got: {_redact(url)}")
    if not host:
        raise ValidationError(f"Image URL must have a host, got: {_redact(url)}")
    return url


def http_host(url: str) -> str | None:
    """Return the host of an http(s) URL; None for any other or malformed one."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        return None
    return host if parts.scheme in ("http", "https") and host else None


def _redact(url: str) -> str:
    return "an address with credentials" if "@" in url else repr(url[:200])
