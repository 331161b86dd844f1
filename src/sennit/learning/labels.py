"""Labels: scores that people and metrics give to messages.

A label is a score, any finite number, and the name of its judge. Each judge has one label per
message; a new one replaces it. Labels are stored separately, since messages never change, and are
erased with their message.
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
from sennit.errors import ValidationError, short_repr
from sennit.messages.json_values import validate_text
from sennit.sessions.repository import repository_of
from sennit.sessions.session import SessionCore
from sennit.stores.records.sessions import LabelRecord, PutLabels, judge_name

Thumb: TypeAlias = Literal["up", "down"]

_THUMB_SCORES = {"up": 1.0, "down": 0.0}


@dataclass(frozen=True, slots=True)
class Label:
    """A score of one message by one judge."""

    message: UUID
    """The id of the labelled message."""
    score: float
    """The score; a thumb up is 1, a thumb down 0."""
    by: str
    """The judge: a person or a metric."""
    created_at: datetime
    """When the label was given."""

    @classmethod
    def of(cls, message: Ref, score: float | None, *, by: str) -> Label:
        """Return a label created now; raises ValidationError if the score is not finite."""
        if not validate_text(by, "by"):
            raise ValidationError("A label needs a judge: by='alice', or the name of a metric.")
        judge_name(by)
        number = finite_score(score)
        return cls(uid_of(message), number, by, clock.to_datetime(clock.now_us()))


def finite_score(score: Any) -> float:
    """Return a score as a float; raises ValidationError if it is not a finite number."""
    try:
        number = float(score) if isinstance(score, (bool, int, float)) else math.nan
    except OverflowError:  # an int too large for a float
        number = math.inf
    if not math.isfinite(number):
        raise ValidationError(f"A score must be a finite number, got {short_repr(score)}.")
    return number


def label(
    session: SessionCore,
    message: Ref,
    score: float | None = None,
    *,
    thumb: Thumb | None = None,
    by: str = "user",
) -> Label:
    """Label a message with a score or a thumb (up is 1, down is 0); raises NotFoundError."""
    if (score is None) == (thumb is None):
        raise ValidationError("Pass either a score or a thumb.")
    if thumb is not None and thumb not in _THUMB_SCORES:
        raise ValidationError(f"thumb must be 'up' or 'down', got {short_repr(thumb)}.")
    new_label = Label.of(message, score if thumb is None else _THUMB_SCORES[thumb], by=by)
    label_many(session, [new_label])
    return new_label


def label_many(session: SessionCore, labels: Sequence[Label]) -> None:
    """Store several labels, all or none; raises NotFoundError for a missing message."""
    if labels:
        repository_of(session).record(PutLabels(tuple(map(_to_record, labels))))


def unlabel(session: SessionCore, message: Ref, *, by: str = "user") -> None:
    """Remove a judge's label of a message, if there is one."""
    removal = LabelRecord(uid_of(message), by, None, clock.now_us())
    repository_of(session).record(PutLabels((removal,)))


def labels(
    session: SessionCore, message: Ref | None = None, *, by: str | None = None
) -> list[Label]:
    """Return the labels of a message, or of all, oldest first; `by` selects one judge."""
    message_id = None if message is None else uid_of(message)
    all_labels = [
        _from_record(record)
        for record in repository_of(session).labels()
        if by in (None, record.judge) and message_id in (None, record.message)
    ]
    return [label for label in all_labels if label is not None]


def labels_by_message(session: SessionCore, *, by: str | None = None) -> dict[UUID, list[Label]]:
    """Return all labels of a session by message, oldest first; `by` selects one judge."""
    return group_labels(repository_of(session).labels(), by=by)


def group_labels(
    records: Iterable[LabelRecord], *, by: str | None = None
) -> dict[UUID, list[Label]]:
    """Return the labels of records by message, in order; `by` selects one judge."""
    groups: dict[UUID, list[Label]] = {}
    for record in records:
        if by in (None, record.judge) and (label := _from_record(record)) is not None:
            groups.setdefault(record.message, []).append(label)
    return groups


def _from_record(record: LabelRecord) -> Label | None:
    """Return the label of a record; None if the record removes one."""
    if record.score is None:
        return None
    return Label(record.message, record.score, record.judge, clock.to_datetime(record.created))


def average_score(labels: Iterable[Label]) -> float | None:
    """Return the average score of labels; None if there are none."""
    scores = [label.score for label in labels]
    return sum(scores) / len(scores) if scores else None


def _to_record(label: Label) -> LabelRecord:
    return LabelRecord(label.message, label.by, label.score, clock.from_datetime(label.created_at))
