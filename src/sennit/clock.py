"""The clock: the only module that reads the time, so that tests can replace it.

Everything that stamps or orders by time goes through here, so that a test can put another source in
place and replay a run to the microsecond. Time is an int of microseconds since 1970 (UTC): exact,
cheap to store and compare; a datetime is made only when someone looks at it.

How long something takes is another question: `monotonic` counts seconds that no correction of the
system's clock can shorten, and has a source of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from sennit.errors import InvalidTypeError, ValidationError, shown

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_source: Callable[[], int] = time.time_ns
_ticks: Callable[[], float] = time.monotonic


def now_ns() -> int:
    """Nanoseconds since the epoch."""
    return _source()


def now_us() -> int:
    """Microseconds since the epoch."""
    return _source() // 1000


def monotonic() -> float:
    """Seconds since some moment; only the difference of two means anything."""
    return _ticks()


def to_datetime(microseconds: int) -> datetime:
    """The aware UTC datetime for microseconds since the epoch; raises ValidationError."""
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        raise ValidationError(
            f"{microseconds} microseconds since 1970 are outside the years 1 to 9999; the row is "
            f"damaged; run client.doctor()."
        ) from None


def from_datetime(moment: datetime) -> int:
    """Microseconds since the epoch; raises ValidationError for a datetime without a time zone."""
    if not isinstance(moment, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidTypeError(f"Expected a datetime, got {shown(moment)}.")
    if moment.tzinfo is None:
        raise ValidationError(
            f"{shown(moment)} has no time zone; use an aware datetime such as datetime.now(UTC)."
        )
    try:
        utc = moment.astimezone(UTC)
    except OverflowError:
        raise ValidationError(f"{shown(moment)} is outside the years 1 to 9999 of UTC.") from None
    return (utc - _EPOCH) // _MICROSECOND


def to_iso(microseconds: int, timespec: str = "microseconds") -> str:
    """Such as `2026-11-15T20:00:00.123456Z`."""
    moment = to_datetime(microseconds).replace(tzinfo=None)
    return moment.isoformat(timespec=timespec) + "Z"


def from_iso(moment: object) -> datetime:
    """The aware datetime that `to_iso` wrote; raises ValidationError for anything else."""
    try:
        if isinstance(moment, str) and (parsed := datetime.fromisoformat(moment)).tzinfo:
            return parsed
    except ValueError:
        pass
    raise ValidationError(f"Expected an ISO 8601 time with a zone, got {shown(moment)}.")


@contextmanager
def using(source: Callable[[], int]) -> Generator[None]:
    """Read the time from `source` (nanoseconds since the epoch) inside the block."""
    global _source
    previous, _source = _source, source
    try:
        yield
    finally:
        _source = previous


@contextmanager
def ticking(ticks: Callable[[], float]) -> Generator[None]:
    """Count seconds with `ticks` inside the block."""
    global _ticks
    previous, _ticks = _ticks, ticks
    try:
        yield
    finally:
        _ticks = previous
