"""Validation of images: by URL, with their bytes, or as a reference to a stored blob.

An image URL is stored here and fetched by a provider's server, so only plain http(s) URLs are
accepted. Scripts, credentials and characters that URL parsers disagree about are refused on input,
so nothing downstream has to check again. The bytes of an image are stored as a `data:` URL, with
the type that they have. A file is read only for a Path, which no request and no stored text can be.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from pathlib import Path

from sennit.errors import InvalidTypeError, ValidationError, listed, short_repr
from sennit.messages.blob_reference import BlobReference
from sennit.messages.media_types import IMAGE_TYPES, sniffed_type

MAX_IMAGE_BYTES = 20 * 1024 * 1024
"""The maximum size of an image that is sent with its bytes."""
_IS_DATA = re.compile(r"data:(?!//)", re.IGNORECASE)
_DATA_URL = re.compile(r"data:([^,;]*);base64,([A-Za-z0-9+/]+={0,2})")
_SNIFFED_CHARS = 32  # of base64, enough to recognise an image
_REFUSED = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029\ud800-\udfff\\]")


def image_url(image: str | bytes | Path) -> str:
    """Return the URL of an image: its address, or a `data:` URL; raises ValidationError.

    An image is an http(s) or `data:` URL, its bytes, the Path of a file, or the reference of a
    blob, whose bytes are checked when the message is stored.
    """
    if isinstance(image, Path):
        image = _read(image)
    if isinstance(image, bytes):
        return _data_url(image)
    if isinstance(image, str) and _IS_DATA.match(image):  # pyright: ignore[reportUnnecessaryIsInstance]
        return _check_data_url(image)
    if isinstance(image, str) and (blob := BlobReference.of(image)) is not None:  # pyright: ignore[reportUnnecessaryIsInstance]
        check_image_type(blob)
        return image
    return check_image_url(image)


def check_image_type(blob: BlobReference) -> None:
    """Raise ValidationError for a blob of a known type that is no image."""
    if blob.media_type and blob.media_type not in IMAGE_TYPES:
        raise ValidationError(
            f"Blob {str(blob)!r} is no image; an image is one of {listed(sorted(IMAGE_TYPES))}."
        )
    if blob.size > MAX_IMAGE_BYTES:
        raise _too_large(blob.size)


def is_data_url(url: str) -> bool:
    """Return whether a valid image URL holds the bytes of the image."""
    return url.startswith("data:")


def without_data(url: str) -> str:
    """Return an image URL for people: of a `data:` URL or a blob, the type and the size."""
    if (blob := BlobReference.of(url)) is not None:
        return f"[{blob.media_type}, {blob.size:,} bytes]"
    if not is_data_url(url):
        return url
    kind, _, data = url.partition(";base64,")
    return f"[{kind.removeprefix('data:')}, {data_size(data):,} bytes]"


def data_size(base64: str) -> int:
    """Return the number of bytes that base64 has."""
    return len(base64) * 3 // 4 - base64[-2:].count("=")


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_IMAGE_BYTES:
            raise _too_large(path.stat().st_size)
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ValidationError(f"The image {str(path)!r} cannot be read: {reason}.") from error


def _data_url(data: bytes) -> str:
    if len(data) > MAX_IMAGE_BYTES:
        raise _too_large(len(data))
    kind = _sniffed(data)
    if kind is None:
        raise _no_image(f"{len(data):,} bytes that begin with {data[:8]!r}")
    return f"data:{kind};base64,{b64encode(data).decode('ascii')}"


def _check_data_url(url: str) -> str:
    """Return a `data:` URL with the type that its bytes have."""
    match = _DATA_URL.fullmatch(url)
    if match is None or len(match[2]) % 4:
        raise _no_image(repr(url[:40]))
    if len(match[2]) // 4 * 3 > MAX_IMAGE_BYTES + 2:
        raise _too_large(len(match[2]) // 4 * 3)
    kind = _sniffed(b64decode(match[2][:_SNIFFED_CHARS]))
    if kind is None:
        raise _no_image(f"{match[1]!r} whose bytes are none of these")
    return url if match[1] == kind else f"data:{kind};base64,{match[2]}"


def _sniffed(data: bytes) -> str | None:
    """Return the media type of an image by its first bytes; None if it is none."""
    kind = sniffed_type(data)
    return kind if kind in IMAGE_TYPES else None


def _too_large(size: int) -> ValidationError:
    return ValidationError(
        f"An image may have {MAX_IMAGE_BYTES // 2**20} MiB, got {size:,} bytes; scale it down."
    )


def _no_image(got: str) -> ValidationError:
    return ValidationError(
        f"The bytes of images must be a PNG, JPEG, GIF or WebP, as base64 in a data: URL; got "
        f"{got}."
    )


def check_image_url(url: str) -> str:
    """Return `url` if it is a plain http(s) URL; raises ValidationError otherwise."""
    return check_url(url, "Image")


def check_url(url: str, noun: str) -> str:
    """Return the URL of an image or another file if it is a plain http(s) URL.

    Raises ValidationError otherwise, which begins with `noun`.
    """
    from urllib.parse import urlsplit  # most conversations have no images

    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidTypeError(f"{noun} URL must be a string, got {short_repr(url)}.")
    if match := _REFUSED.search(url):
        raise ValidationError(
            f"{noun} URL must not contain NUL, control characters, spaces, backslashes or lone "
            f"surrogates, got {match.group()!r} in {_redact(url)}."
        )
    try:
        parsed = urlsplit(url)
        host, _port = parsed.hostname, parsed.port
    except ValueError:
        # The parser's message may contain a password, so it is not chained.
        raise ValidationError(f"{noun} URL is malformed: {_redact(url)}.") from None
    if parsed.scheme not in ("http", "https"):
        got = f"{parsed.scheme}://" if parsed.scheme else f"no scheme in {_redact(url)}"
        raise ValidationError(f"{noun} URL must use http:// or https:// scheme, got: {got}")
    if "@" in parsed.netloc:
        raise ValidationError(f"{noun} URL must not contain credentials, got: {_redact(url)}")
    if not host:
        raise ValidationError(f"{noun} URL must have a host, got: {_redact(url)}")
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
