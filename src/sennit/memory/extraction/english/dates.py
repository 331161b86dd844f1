"""Dates and periods in text: "since 2019", "last month", "on 3 May".

Relative dates are resolved from the time they were said. A month or year stands for its first
moment, in UTC: memories need the order of things, not the hour. A date that is not understood is
ignored, never guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sennit.memory.extraction.english.lexicon import IRREGULAR_PAST
from sennit.memory.extraction.terms import NUMBERS

_MONTH_NAMES = (
    "January February March April May June July August September October November December"
)
_MONTHS = _MONTH_NAMES.lower().split()
_DAY_NAMES = "monday tuesday wednesday thursday friday saturday sunday"
_DAYS: list[str] = [*_DAY_NAMES.split()]
_COUNTS = {**NUMBERS, "a": "1", "an": "1"}
_MONTH = "|".join(f"{month[:3]}(?:{month[3:]})?" if month[3:] else month for month in _MONTHS)
_CAPITAL_MONTH = _MONTH.replace("may", "(?-i:May)")  # the verb "may" is no date
_DAY = "|".join(_DAYS)
_YEAR = r"(?:19|20)\d\d"
_UNIT = "day|week|month|year"
_UNDATED_BEFORE = (
    "every each any a an the my is was are like love hate enjoy prefer to and or of for than "
    "black good happy casual"
)
"""The words before a weekday without "on" that make it no date: "every Friday"."""
_NO_DATE_BEFORE = "".join(rf"(?<!\b{word}\s)" for word in _UNDATED_BEFORE.split())
_DATE = rf"""(?ix)
    \b(?:
      (?P<iso>{_YEAR}-\d\d-\d\d)
    | (?P<d1>\d{{1,2}})(?:st|nd|rd|th)?\s(?:of\s)?(?P<m1>{_MONTH})\b\.?(?:,?\s(?P<y1>{_YEAR}))?
    | (?P<m2>{_CAPITAL_MONTH})\.?\s(?P<d2>\d{{1,2}})(?:st|nd|rd|th)?\b(?:,?\s(?P<y2>{_YEAR}))?
    | (?P<m3>{_CAPITAL_MONTH})\.?\s(?P<y3>{_YEAR})
    | (?:in|since|until|till|by|from|to|for|last|next|this|through)\s(?P<m4>{_CAPITAL_MONTH})
        (?!\.?,?\s(?:\d|{_YEAR}))
    | (?:in|since|until|till|by|from|to|of|before|after|during)\s(?P<y4>{_YEAR})
    | (?P<count>\d+|{"|".join(_COUNTS)})\s(?P<unit>{_UNIT})s?\sago
    | in\s(?P<count2>\d+|{"|".join(_COUNTS)})\s(?P<unit2>{_UNIT})s?
    | (?P<which>last|next|this|past|coming)\s(?P<what>{_UNIT}|weekend|{_DAY})
    | (?P<near>yesterday|today|tonight|tomorrow|this\smorning|last\snight)
    | (?:on\s|{_NO_DATE_BEFORE}(?=(?:{_DAY})(?:\W*$|\s(?:at|morning|afternoon|evening|night)\b)))
        (?P<day>{_DAY})
    )\b
"""
_DATE_PATTERN = re.compile(_DATE)
_PAST = re.compile(rf"\b(?:I|we) (?:{IRREGULAR_PAST}|[a-z]+ed)\b", re.IGNORECASE)
_UNTIL = re.compile(r"\b(?:until|till|through|to)\s*$", re.IGNORECASE)
_NEAR_DAYS = {
    "yesterday": -1, "last night": -1, "today": 0, "tonight": 0, "this morning": 0, "tomorrow": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Period:
    """The start and the end of a period, as far as they are stated."""

    start: datetime | None = None
    end: datetime | None = None


def period(text: str, said_at: datetime) -> Period:
    """Return the dates a text names: the first is the start unless it follows "until"."""
    start = end = None
    for match in _DATE_PATTERN.finditer(text):
        moment = _resolve(match, said_at)
        before = text[: match.start()] + _leading_word(match)
        if moment is None:
            continue
        if _UNTIL.search(before) and (start is not None or not before.rstrip().endswith("to")):
            end = end or moment
        elif start is None:
            start = moment
    return Period(start, end)


def relative_dates(text: str, said_at: datetime) -> dict[str, datetime]:
    """Return the dates that a text names from the day it was said on, such as "yesterday"."""
    moments: dict[str, datetime] = {}
    for match in _DATE_PATTERN.finditer(text):
        if any(match[group] for group in ("near", "count", "count2", "which", "day")):
            moment = _resolve(match, said_at)
            if moment is not None:
                moments.setdefault(match[0].lower(), moment)
    return moments


def is_dated(text: str) -> bool:
    """Return whether a text names any date."""
    return _DATE_PATTERN.search(text) is not None


def without_dates(text: str) -> str:
    """Return a text without its dates and the prepositions before them."""
    bare = _DATE_PATTERN.sub(" ", text)
    bare = re.sub(r"\b(?:since|until|till|from|on|in|by|at)\s*(?=$|[,.!])", " ", bare.strip())
    return " ".join(bare.split()).strip(" ,")


def _leading_word(match: re.Match[str]) -> str:
    """Return the word before a month or a year that makes it a date."""
    return f"{match[0].split()[0]} " if match["m4"] or match["y4"] else ""


def _resolve(match: re.Match[str], at: datetime) -> datetime | None:
    at = at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    try:
        if match["iso"]:
            return datetime.fromisoformat(match["iso"]).replace(tzinfo=UTC)
        if match["y4"]:
            return datetime(int(match["y4"]), 1, 1, tzinfo=UTC)
        for month, day, year in (("m1", "d1", "y1"), ("m2", "d2", "y2"), ("m3", "", "y3")):
            if match[month]:
                return _calendar_date(at, match[month], match[day] if day else "1", match[year])
        if match["m4"]:
            return _calendar_date(at, match["m4"], "1", None)
        return _relative_date(match, _midnight(at))
    except (ValueError, OverflowError):  # 31 February, or before the year 1
        return None


def _calendar_date(at: datetime, month: str, day: str, year: str | None) -> datetime:
    number = next(n for n, name in enumerate(_MONTHS, 1) if name.startswith(month[:3].lower()))
    return datetime(int(year) if year else at.year, number, int(day), tzinfo=UTC)


def _relative_date(match: re.Match[str], today: datetime) -> datetime | None:
    if match["near"]:
        return today + timedelta(days=_NEAR_DAYS[" ".join(match["near"].lower().split())])
    if match["count"] or match["count2"]:
        number = (match["count"] or match["count2"]).lower()
        count = int(_COUNTS.get(number, number))
        unit = (match["unit"] or match["unit2"]).lower()
        return _shift(today, unit, -count if match["count"] else count)
    if match["day"]:
        ahead = (_DAYS.index(match["day"].lower()) - today.weekday()) % 7
        is_past = _PAST.search(match.string, 0, match.start())
        return today + timedelta(days=ahead - 7 if is_past else ahead or 7)
    return _adjacent_period(match["which"].lower(), match["what"].lower(), today)


def _adjacent_period(which: str, what: str, today: datetime) -> datetime:
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
    return _shift(first, what, step)


def _shift(moment: datetime, unit: str, count: int) -> datetime:
    if unit in ("day", "week"):
        return moment + timedelta(days=count * (7 if unit == "week" else 1))
    months = moment.year * 12 + moment.month - 1 + count * (12 if unit == "year" else 1)
    year, month = divmod(months, 12)
    return datetime(year, month + 1, min(moment.day, 28), tzinfo=UTC)


def _midnight(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)
