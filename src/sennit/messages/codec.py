"""JSON encoding and decoding of stored values.

The only encoder and decoder for what is stored or exchanged. What comes in is bounded in size and
becomes plain values: no class is looked up, nothing is imported or called. Depth, huge numbers and
broken text are refused by `plain`, through which every value passes on its way into a message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from sennit.errors import CodecError, shown

MAX_BYTES = 64 * 1024 * 1024

_T = TypeVar("_T")

_encoder = msgspec.json.Encoder()


def dumps(value: Any, most: int | None = None) -> bytes:
    """Compact JSON for a plain value; raises CodecError if it is more than `most` bytes.

    That is by default what one record may hold.
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
    """The value in JSON bytes or text; raises CodecError if it is not sound JSON."""
    if not isinstance(data, (bytes, str)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise CodecError(f"JSON is text or bytes, got {shown(data)}.")
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
