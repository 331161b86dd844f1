"""Labels: scores that people and metrics give to messages.

A label is a score, any finite number, by whoever gave it. Each judge has one label per message;
judging again replaces it. Labels live beside the messages,
which never change, and are erased with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias
from uuid import UUID

from sennit import clock
from sennit.containers.element import Ref, uid_of
from sennit.errors import ValidationError, shown
from sennit.messages.json_values import text
from sennit.sessions.labels import SessionLabels
from sennit.sessions.session import SessionCore
from sennit.stores.records.sessions import LabelRecord, judge_name

Thumb: TypeAlias = Literal["up", "down"]

_THUMBS = {"up": 1.0, "down": 0.0}


@dataclass(frozen=True, slots=True)
class Label:
    """A judgement of one message."""

    message: UUID
    score: float
    by: str
    """Who judged: a person, or a metric."""
    created_at: datetime

    @classmethod
    def of(cls, message: Ref, score: Any, *, by: str) -> Label:
        """A label as of now; raises ValidationError for a score that is no finite number."""
        if not text(by, "by"):
            raise ValidationError("A label needs a judge: by='alice', or the name of a metric.")
        judge_name(by)
        number = finite(score)
        return cls(uid_of(message), number, by, clock.to_datetime(clock.now_us()))


def finite(score: Any) -> float:
    """A score as it can be kept; raises ValidationError for what is no finite number."""
    try:
        number = float(score) if isinstance(score, (bool, int, float)) else math.nan
    except OverflowError:  # an int that no float can hold
        number = math.inf
    if not math.isfinite(number):
        raise ValidationError(f"A score is a finite number, got {shown(score)}.")
    return number


def label(
    session: SessionCore,
    message: Ref,
    score: float | None = None,
    *,
    thumb: Thumb | None = None,
    by: str = "user",
) -> Label:
    """Judge a message by a score or a thumb (up is 1, down is 0); raises NotFoundError."""
    if (score is None) == (thumb is None):
        raise ValidationError("Pass either a score or a thumb.")
    if thumb is not None and thumb not in _THUMBS:
        raise ValidationError(f"A thumb is 'up' or 'down', got {shown(thumb)}.")
    given = Label.of(message, score if thumb is None else _THUMBS[thumb], by=by)
    label_many(session, [given])
    return given


def label_many(session: SessionCore, labels: Sequence[Label]) -> None:
    """Keep several labels, all or none; raises NotFoundError if a message is not there."""
    if labels:
        SessionLabels(session).put([_record(one) for one in labels])


def unlabel(session: SessionCore, message: Ref, *, by: str = "user") -> None:
    """Take back what a judge said of a message, if anything."""
    SessionLabels(session).put([LabelRecord(uid_of(message), by, None, clock.now_us())])


def labels(
    session: SessionCore, message: Ref | None = None, *, by: str | None = None
) -> list[Label]:
    """The labels of a message, or of all, the oldest first; only those `by` one judge if told."""
    wanted = None if message is None else uid_of(message)
    found = [
        _label(one)
        for one in SessionLabels(session).all()
        if by in (None, one.judge) and wanted in (None, one.message)
    ]
    return [one for one in found if one is not None]


def labels_of(session: SessionCore, *, by: str | None = None) -> dict[UUID, list[Label]]:
    """All labels of a session by message, the oldest first; only those `by` one judge if told."""
    return labels_from(SessionLabels(session).all(), by=by)


def labels_from(
    records: Iterable[LabelRecord], *, by: str | None = None
) -> dict[UUID, list[Label]]:
    """The labels in records by message, in their order; only those `by` one judge if told."""
    found: dict[UUID, list[Label]] = {}
    for one in records:
        if by in (None, one.judge) and (label := _label(one)) is not None:
            found.setdefault(one.message, []).append(label)
    return found


def _label(one: LabelRecord) -> Label | None:
    """Return the label of a record; None if the record removes one."""
    if one.score is None:
        return None
    return Label(one.message, one.score, one.judge, clock.to_datetime(one.created))


def average(labels: Iterable[Label]) -> float | None:
    """Return the average of labels; None if there are none."""
    scores = [one.score for one in labels]
    return sum(scores) / len(scores) if scores else None


def _record(one: Label) -> LabelRecord:
    return LabelRecord(one.message, one.by, one.score, clock.from_datetime(one.created_at))
