"""Dates as people say them, counted from the moment they were said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sennit.memory.extraction.english.dates import is_dated, period, without_dates
from tests.memory.saying import AT


@pytest.mark.parametrize(
    ("said", "start", "end"),
    [
        ("on 2024-05-03", "2024-05-03", None),
        ("on 3 May 2024", "2024-05-03", None),
        ("on May 3rd, 2024", "2024-05-03", None),
        ("on the 3rd of May", "2026-05-03", None),
        ("in March 2023", "2023-03-01", None),
        ("in August", "2026-08-01", None),
        ("until March 2023", None, "2023-03-01"),
        ("on 3 may 2024", "2024-05-03", None),
        ("since 2019", "2019-01-01", None),
        ("until 2019", None, "2019-01-01"),
        ("until June", None, "2026-06-01"),
        ("from 2015 to 2019", "2015-01-01", "2019-01-01"),
        ("yesterday", "2026-11-15", None),
        ("tomorrow", "2026-11-17", None),
        ("two weeks ago", "2026-11-02", None),
        ("a month ago", "2026-10-16", None),
        ("in 3 days", "2026-11-19", None),
        ("last month", "2026-10-01", None),
        ("next week", "2026-11-23", None),
        ("last year", "2025-01-01", None),
        ("last Friday", "2026-11-13", None),
        ("on Thursday", "2026-11-12", None),
        ("this weekend", "2026-11-21", None),
        ("on 31 February", None, None),
        ("in 99999999999 years", None, None),
        ("the 2048 tokens", None, None),
        ("I may 5 times", None, None),
        ("never", None, None),
    ],
)
def test_a_date_is_understood_or_left_alone(said: str, start: str | None, end: str | None) -> None:
    found = period(f"I did it {said}.", AT)
    assert (found.start and found.start.date().isoformat()) == start
    assert (found.end and found.end.date().isoformat()) == end


def test_relative_days_are_counted_in_utc() -> None:
    late = datetime(2026, 11, 16, 1, tzinfo=timezone(timedelta(hours=5)))  # still the 15th in UTC
    found = period("yesterday", late).start
    assert found == datetime(2026, 11, 14, tzinfo=UTC)


def test_a_text_without_its_dates_says_what_happened() -> None:
    assert without_dates("I got married on 3 May 2024") == "I got married"


@given(st.text(max_size=60), st.datetimes(timezones=st.just(UTC)))
def test_any_text_at_any_time_has_dates_or_none(text: str, at: datetime) -> None:
    found = period(f"{text} yesterday and next week, {text} in 12 months", at)
    assert found.start is None or found.start.tzinfo is UTC
    assert is_dated("last year")
