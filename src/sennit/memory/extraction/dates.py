"""Dates and periods in text: "since 2019", "last month", "on 3 May".

Relative words are counted from the moment they were said. A month or year stands for its first
moment, in UTC: memories need the order of things, not the hour. What is not understood is not
guessed: there is simply no date.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sennit.memory.extraction.terms import NUMBERS

_YEAR_ROUND = (
    "January February March April May June July August September October November December"
)
_MONTHS = _YEAR_ROUND.lower().split()
_WEEK = "monday tuesday wednesday thursday friday saturday sunday"
_DAYS: list[str] = [*_WEEK.split()]
_COUNTS = {**NUMBERS, "a": "1", "an": "1"}
_MONTH = "|".join(f"{month[:3]}(?:{month[3:]})?" if month[3:] else month for month in _MONTHS)
_NAMED = _MONTH.replace("may", "(?-i:May)")  # what one may do is no date
_DAY = "|".join(_DAYS)
_YEAR = r"(?:19|20)\d\d"
_UNIT = "day|week|month|year"
_DATE = rf"""(?ix)
    \b(?:
      (?P<iso>{_YEAR}-\d\d-\d\d)
    | (?P<d1>\d{{1,2}})(?:st|nd|rd|th)?\s(?:of\s)?(?P<m1>{_MONTH})\b\.?(?:,?\s(?P<y1>{_YEAR}))?
    | (?P<m2>{_NAMED})\.?\s(?P<d2>\d{{1,2}})(?:st|nd|rd|th)?\b(?:,?\s(?P<y2>{_YEAR}))?
    | (?P<m3>{_NAMED})\.?\s(?P<y3>{_YEAR})
    | (?:in|since|until|till|by|from|to|for|last|next|this|through)\s(?P<m4>{_NAMED})
        (?!\.?,?\s(?:\d|{_YEAR}))
    | (?:in|since|until|till|by|from|to|of|before|after|during)\s(?P<y4>{_YEAR})
    | (?P<count>\d+|{"|".join(_COUNTS)})\s(?P<unit>{_UNIT})s?\sago
    | in\s(?P<count2>\d+|{"|".join(_COUNTS)})\s(?P<unit2>{_UNIT})s?
    | (?P<which>last|next|this|past|coming)\s(?P<what>{_UNIT}|weekend|{_DAY})
    | (?P<near>yesterday|today|tonight|tomorrow|this\smorning|last\snight)
    | on\s(?P<day>{_DAY})
    )\b
"""
_FIND = re.compile(_DATE)
_HINT = re.compile(
    rf"\d|ago\b|last |next |this |past |coming |day\b|tonight|tomorrow|\b(?:{_MONTH})\b",
    re.IGNORECASE,
)
_UNTIL = re.compile(r"\b(?:until|till|through|to)\s*$", re.IGNORECASE)
_NEAR = {
    "yesterday": -1, "last night": -1, "today": 0, "tonight": 0, "this morning": 0, "tomorrow": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Period:
    """Since when and until when, as far as it was said."""

    start: datetime | None = None
    end: datetime | None = None


def period(text: str, said_at: datetime) -> Period:
    """The dates a text names: the first is the start unless "until" stands before it."""
    start = end = None
    if not _HINT.search(text):
        return Period()
    for found in _FIND.finditer(text):
        moment = _moment(found, said_at)
        before = text[: found.start()] + _lead(found)
        if moment is None:
            continue
        if _UNTIL.search(before) and (start is not None or not before.rstrip().endswith("to")):
            end = end or moment
        elif start is None:
            start = moment
    return Period(start, end)


def is_dated(text: str) -> bool:
    """Return whether a text names a date, whichever."""
    return _HINT.search(text) is not None and _FIND.search(text) is not None


def without_dates(text: str) -> str:
    """A text without its dates and the words that lead to them."""
    bare = _FIND.sub(" ", text)
    bare = re.sub(r"\b(?:since|until|till|from|on|in|by|at)\s*(?=$|[,.!])", " ", bare.strip())
    return " ".join(bare.split()).strip(" ,")


def _lead(found: re.Match[str]) -> str:
    """The word a month or a year needs before it, to be one."""
    return f"{found[0].split()[0]} " if found["m4"] or found["y4"] else ""


def _moment(found: re.Match[str], at: datetime) -> datetime | None:
    at = at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    try:
        if found["iso"]:
            return datetime.fromisoformat(found["iso"]).replace(tzinfo=UTC)
        if found["y4"]:
            return datetime(int(found["y4"]), 1, 1, tzinfo=UTC)
        for month, day, year in (("m1", "d1", "y1"), ("m2", "d2", "y2"), ("m3", "", "y3")):
            if found[month]:
                return _calendar(at, found[month], found[day] if day else "1", found[year])
        if found["m4"]:
            return _calendar(at, found["m4"], "1", None)
        return _relative(found, _midnight(at))
    except (ValueError, OverflowError):  # 31 February, or before the year 1
        return None


def _calendar(at: datetime, month: str, day: str, year: str | None) -> datetime:
    number = next(n for n, name in enumerate(_MONTHS, 1) if name.startswith(month[:3].lower()))
    return datetime(int(year) if year else at.year, number, int(day), tzinfo=UTC)


def _relative(found: re.Match[str], today: datetime) -> datetime | None:
    if found["near"]:
        return today + timedelta(days=_NEAR[" ".join(found["near"].lower().split())])
    if found["count"] or found["count2"]:
        said = (found["count"] or found["count2"]).lower()
        count = int(_COUNTS.get(said, said))
        unit = (found["unit"] or found["unit2"]).lower()
        return _shifted(today, unit, -count if found["count"] else count)
    if found["day"]:
        ahead = (_DAYS.index(found["day"].lower()) - today.weekday()) % 7
        return today + timedelta(days=ahead or 7)
    return _which(found["which"].lower(), found["what"].lower(), today)


def _which(which: str, what: str, today: datetime) -> datetime:
    step = {"last": -1, "past": -1, "this": 0, "next": 1, "coming": 1}[which]
    if what in _DAYS:
        ahead = (_DAYS.index(what) - today.weekday()) % 7
        if step < 0:
            return today + timedelta(days=ahead - 7)
        return today + timedelta(days=ahead or 7 * step)
    if what in ("week", "weekend"):
        first = today - timedelta(days=today.weekday()) + timedelta(weeks=step)
        return first + timedelta(days=5 if what == "weekend" else 0)
    if what == "day":
        return today + timedelta(days=step)
    first = today.replace(day=1) if what == "month" else today.replace(day=1, month=1)
    return _shifted(first, what, step)


def _shifted(moment: datetime, unit: str, count: int) -> datetime:
    if unit in ("day", "week"):
        return moment + timedelta(days=count * (7 if unit == "week" else 1))
    months = moment.year * 12 + moment.month - 1 + count * (12 if unit == "year" else 1)
    year, month = divmod(months, 12)
    return datetime(year, month + 1, min(moment.day, 28), tzinfo=UTC)


def _midnight(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)
