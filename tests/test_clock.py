"""Time is exact to the microsecond, comes from one source, and is read back as it was written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given

from sennit import SennitError, clock
from sennit.errors import InvalidTypeError, ValidationError
from tests.strategies import moments


@given(moments)
def test_a_moment_survives_microseconds_exactly(moment: datetime) -> None:
    back = clock.to_datetime(clock.from_datetime(moment))
    assert back == moment
    assert back.tzinfo is UTC


@given(moments)
def test_a_moment_survives_iso_exactly(moment: datetime) -> None:
    microseconds = clock.from_datetime(moment)
    written = clock.to_iso(microseconds)
    assert written.endswith("Z")
    assert clock.from_datetime(clock.from_iso(written)) == microseconds


def test_iso_is_written_with_z_and_the_asked_precision() -> None:
    assert clock.to_iso(1_500_000) == "1970-01-01T00:00:01.500000Z"
    assert clock.to_iso(1_500_999, "milliseconds") == "1970-01-01T00:00:01.500Z"


def test_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(ValidationError, match="time zone"):
        clock.from_datetime(datetime(2026, 1, 1))


@pytest.mark.parametrize("value", [None, 5, "2026-01-01T00:00:00Z"])
def test_only_a_datetime_is_a_moment(value: Any) -> None:
    with pytest.raises(InvalidTypeError, match="datetime"):
        clock.from_datetime(value)


@pytest.mark.parametrize(
    "written",
    [
        None,
        5,
        1.5,
        b"2026-01-01T00:00:00Z",
        "",
        "now",
        "2026-01-01",
        "2026-01-01T00:00:00",
        "2026-13-01T00:00:00Z",
    ],
)
def test_what_is_no_iso_time_with_a_zone_is_refused(written: Any) -> None:
    with pytest.raises(ValidationError, match="ISO 8601"):
        clock.from_iso(written)


@pytest.mark.parametrize(
    "moment",
    [
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    ],
)
def test_a_moment_outside_the_years_1_to_9999_of_utc_is_refused(moment: datetime) -> None:
    with pytest.raises(SennitError):
        clock.from_datetime(moment)


def test_another_source_holds_inside_the_block_only() -> None:
    with clock.wall_clock_from(lambda: 1_234_567_891):
        assert clock.now_ns() == 1_234_567_891
        assert clock.now_us() == 1_234_567
        with clock.wall_clock_from(lambda: 0):
            assert clock.now_us() == 0
        assert clock.now_us() == 1_234_567
    assert clock.now_us() > 1_700_000_000_000_000


def test_the_source_comes_back_after_an_error() -> None:
    with pytest.raises(RuntimeError), clock.wall_clock_from(lambda: 0):
        raise RuntimeError
    assert clock.now_us() != 0


def test_seconds_can_be_counted_by_another_source_inside_a_block() -> None:
    with clock.monotonic_clock_from(lambda: 5.0):
        assert clock.monotonic() == 5
        with clock.monotonic_clock_from(lambda: 6.0):
            assert clock.monotonic() == 6
        assert clock.monotonic() == 5
    assert clock.monotonic() <= clock.monotonic()
