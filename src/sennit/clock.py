"""The clock: the only module that reads the time, so that tests can replace it.

All timestamps come from here, so that a test can replace the source and replay a run to the
microsecond. Time is an int of microseconds since 1970 (UTC): exact, and cheap to store and compare;
it becomes a datetime only in the public API.

Durations are measured with `monotonic`, which clock corrections do not affect and which has a
source of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from sennit.errors import InvalidTypeError, ValidationError, short_repr

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_wall_clock: Callable[[], int] = time.time_ns
_monotonic_clock: Callable[[], float] = time.monotonic


def now_ns() -> int:
    """Return nanoseconds since the epoch."""
    return _wall_clock()


def now_us() -> int:
    """Return microseconds since the epoch."""
    return _wall_clock() // 1000


def monotonic() -> float:
    """Return seconds from an arbitrary start; only differences are meaningful."""
    return _monotonic_clock()


def to_datetime(microseconds: int) -> datetime:
    """Return the aware UTC datetime for microseconds since the epoch; raises ValidationError."""
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        raise ValidationError(
            f"{microseconds} microseconds since 1970 are outside the years 1 to 9999; the row is "
            f"damaged; run client.doctor()."
        ) from None


def from_datetime(moment: datetime) -> int:
    """Return microseconds since the epoch; raises ValidationError for a naive datetime."""
    if not isinstance(moment, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidTypeError(f"Expected a datetime, got {short_repr(moment)}.")
    if moment.tzinfo is None:
        raise ValidationError(
            f"{short_repr(moment)} has no time zone; use an aware datetime such as "
            "datetime.now(UTC)."
        )
    try:
        utc = moment.astimezone(UTC)
    except OverflowError:
        raise ValidationError(
            f"{short_repr(moment)} is outside the years 1 to 9999 of UTC."
        ) from None
    return (utc - _EPOCH) // _MICROSECOND


def to_iso(microseconds: int, timespec: str = "microseconds") -> str:
    """Return an ISO 8601 time such as `2026-11-15T20:00:00.123456Z`."""
    moment = to_datetime(microseconds).replace(tzinfo=None)
    return moment.isoformat(timespec=timespec) + "Z"


def from_iso(moment: object) -> datetime:
    """Parse an ISO 8601 time with a zone; raises ValidationError for anything else."""
    try:
        if isinstance(moment, str) and (parsed := datetime.fromisoformat(moment)).tzinfo:
            return parsed
    except ValueError:
        pass
    raise ValidationError(f"Expected an ISO 8601 time with a zone, got {short_repr(moment)}.")


@contextmanager
def wall_clock_from(source: Callable[[], int]) -> Generator[None]:
    """Read the time from `source` (nanoseconds since the epoch) inside the block."""
    global _wall_clock
    previous, _wall_clock = _wall_clock, source
    try:
        yield
    finally:
        _wall_clock = previous


@contextmanager
def monotonic_clock_from(ticks: Callable[[], float]) -> Generator[None]:
    """Read the monotonic time from `ticks` inside the block."""
    global _monotonic_clock
    previous, _monotonic_clock = _monotonic_clock, ticks
    try:
        yield
    finally:
        _monotonic_clock = previous
