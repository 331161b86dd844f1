"""JSON encoding and decoding of stored values.

The only encoder and decoder of stored or exchanged data. Input is limited in size and decoded to
plain values; no class is looked up, nothing is imported or called. Deep nesting, huge numbers and
invalid text are refused by `plain`, which validates every value of a message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from sennit.errors import CodecError, short_repr

MAX_BYTES = 64 * 1024 * 1024

_T = TypeVar("_T")

_encoder = msgspec.json.Encoder()


def dumps(value: Any, most: int | None = None) -> bytes:
    """Encode a plain value as compact JSON; raises CodecError if it exceeds `most` bytes.

    The default limit is that of one record.
    """
    try:
        data = _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError, UnicodeError) as error:
        raise CodecError(f"The value cannot be encoded as JSON: {error}.") from error
    if len(data) > (most := most or MAX_BYTES):
        raise CodecError(
            f"{len(data):,} bytes of JSON exceed the limit of one record ({most:,}); split it."
        )
    return data


def loads(data: bytes | str) -> Any:
    """Decode JSON bytes or text; raises CodecError if it is invalid."""
    if not isinstance(data, (bytes, str)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise CodecError(f"JSON is text or bytes, got {short_repr(data)}.")
    try:
        data = data.encode() if isinstance(data, str) else data
    except UnicodeError as error:
        raise _not_json(error) from error
    return _plain(data)


def reader(form: type[_T], most: int | None = None) -> Callable[[bytes], _T]:
    """Return a decoder of JSON bytes into a msgspec struct; raises CodecError as `loads` does."""
    decode = msgspec.json.Decoder(form).decode

    def read(data: bytes) -> _T:
        try:
            if len(data) > (limit := most or MAX_BYTES):
                raise CodecError(
                    f"{len(data):,} bytes of JSON exceed the limit of one record ({limit:,})."
                )
            return decode(data)
        except RecursionError as error:
            raise CodecError("This JSON is nested too deeply to be a message.") from error
        except (msgspec.DecodeError, UnicodeError) as error:
            raise _not_json(error) from error

    return read


_plain = reader(object)


def _not_json(error: Exception) -> CodecError:
    return CodecError(f"Invalid JSON: {error}.")
