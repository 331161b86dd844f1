"""Training files: rows of one format, written one session at a time.

A session is read, told and let go before the next, so what is in memory does not grow with the
store. Conversations are told from what the store keeps, without opening the session. The file
appears when it is complete. Which split a session falls into follows from its id alone: the same
session stays in the same split, in every export and on every machine, so nothing that was trained
on is ever tested on.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Self, TypeAlias
from uuid import UUID

from sennit.errors import NotFoundError, ValidationError, shown
from sennit.learning.examples import Filter, examples
from sennit.learning.export.conversations import NOT_GOOD_ENOUGH, conversations, described_tools
from sennit.learning.export.formats import Format, LeftOut, Row, Unit, format_named
from sennit.learning.export.redaction import Redact, redacted
from sennit.learning.export.writers import RowWriter, json_line, writer
from sennit.learning.preferences import Preference, compare
from sennit.services.registry import ServiceRegistry
from sennit.sessions.session import SessionCore
from sennit.stores.records.sessions import LabelRecord, Snapshot

_log = logging.getLogger(__name__)

Progress: TypeAlias = Callable[[int, int], None]
"""Told how many sessions are done, and of how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """Options of an export."""

    format: str = "openai"
    keep: Filter = field(default_factory=Filter)
    split: Mapping[str, float] | None = None
    """Shares by name, such as {"train": 0.9, "test": 0.1}: a file for each, chosen by session."""
    redact: Redact | None = None
    """Called with every text that was said before it is written; see `learning.redaction`."""

    def __post_init__(self) -> None:
        pairs = format_named(self.format).unit == "preference"
        if pairs and self.keep.strict_trajectory:
            raise ValidationError(
                "strict_trajectory applies to conversations and examples, not to pairs."
            )
        if self.split is not None:
            _check_split(self.split)


def _check_split(split: Mapping[str, float]) -> None:
    shares = list(split.values())
    if not (shares and all(0 < share < math.inf for share in shares)):
        raise ValidationError(f"The shares of a split must be above 0, got {shown(split)}.")
    for name in split:
        if not name or any(one in name for one in "/\\\0"):
            raise ValidationError(f"A split name must be usable in a file name, got {shown(name)}.")


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export."""

    files: Mapping[str, Path]
    """By the names of the split; "all" without one."""
    rows: Mapping[str, int]
    sessions: int
    left_out: Mapping[str, int]
    """Conversations, answers, pairs and examples that are in no file: how many, by the reason."""

    @property
    def skipped(self) -> int:
        """The total number of items that were left out."""
        return sum(self.left_out.values())


@dataclass(frozen=True, slots=True)
class SessionSource:
    """A source of sessions."""

    kept: Callable[[UUID], Snapshot]
    """All of a session as it is stored; raises NotFoundError."""
    labels: Callable[[UUID], Iterable[LabelRecord]]
    """What was thought of its messages; raises NotFoundError."""
    opened: Callable[[UUID], SessionCore]
    """The session itself; raises NotFoundError."""
    services: ServiceRegistry
    """Which tools there are."""


def export(
    sessions: Sequence[UUID],
    source: SessionSource,
    path: Path,
    options: ExportOptions,
    progress: Progress | None = None,
) -> Exported:
    """Write sessions as training data: lines of JSON (.jsonl) or Parquet, as `path` ends.

    Each is read when its turn comes. If there is nothing to write, the log says why. Raises
    ExistsError if a file is there already, ValidationError for any other ending.
    """
    paths = _paths(path, options)
    format = format_named(options.format)
    units = _Units(source, format.unit, options.keep)
    left_out: Counter[str] = Counter()
    told = 0
    with ExitStack() as stack:
        writers = {name: writer(target, format, stack) for name, target in paths.items()}
        for done, uid in enumerate(sessions, 1):
            with suppress(NotFoundError):  # deleted meanwhile
                found = units.of(uid)
                told += 1
                rows = (_row(unit, format, options.redact) for unit in found)
                _write(rows, writers[_share_of(uid, options.split)], left_out)
            if progress is not None:
                progress(done, len(sessions))
    counts = {name: one.count for name, one in writers.items()}
    if left_out and not any(counts.values()):
        reasons = ", ".join(f"{count} ({reason})" for reason, count in left_out.items())
        _log.warning("No row was written to %s; left out: %s.", path, reasons)
    return Exported(paths, counts, told, dict(left_out))


class TrainingLines(Iterator[bytes]):
    """Rows as lines of JSON, each with its end of line, made as they are asked for."""

    def __init__(self, rows: Iterable[Row | LeftOut]) -> None:
        self._rows = iter(rows)
        self.left_out: Counter[str] = Counter()
        """What was left out up to the last line that was asked for: how many, by the reason."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        for row in self._rows:
            if not isinstance(row, LeftOut):
                return json_line(row) + b"\n"
            self.left_out[row.reason] += 1
        raise StopIteration


def lines(session: UUID, source: SessionSource, options: ExportOptions) -> TrainingLines:
    """One session as lines of JSON. Raises NotFoundError."""
    format = format_named(options.format)
    found = _Units(source, format.unit, options.keep).of(session)
    return TrainingLines(_row(unit, format, options.redact) for unit in found)


def _write(rows: Iterable[Row | LeftOut], writing: RowWriter, left_out: Counter[str]) -> None:
    for row in rows:
        if isinstance(row, LeftOut):
            left_out[row.reason] += 1
        else:
            writing.write(row)


def _row(unit: Any, format: Format, redact: Redact | None) -> Row | LeftOut:
    row = unit if isinstance(unit, LeftOut) else format.row(unit)
    return row if redact is None or isinstance(row, LeftOut) else redacted(row, redact)


class _Units:
    """The units of a session for one kind of row."""

    def __init__(self, source: SessionSource, unit: Unit, keep: Filter) -> None:
        self._source, self._unit, self._keep = source, unit, keep
        self._tools = described_tools(source.services)

    def of(self, session: UUID) -> Iterable[Any]:
        """Those of a session; raises NotFoundError if it is gone."""
        keep, source = self._keep, self._source
        if self._unit == "conversation":
            judged = () if keep.min_score is None else source.labels(session)
            return conversations(source.kept(session), judged, keep, self._tools)
        opened = source.opened(session)
        if self._unit == "example":
            return examples(opened, None, keep)
        compared = compare(opened, by=keep.by)
        unpaired = map(LeftOut, compared.left_out.elements())
        return chain(unpaired, (_good_enough(pair, keep) for pair in compared.pairs))


def _good_enough(pair: Preference, keep: Filter) -> Preference | LeftOut:
    return pair if keep.keeps(pair.chosen) else NOT_GOOD_ENOUGH


def _paths(path: Path, options: ExportOptions) -> dict[str, Path]:
    if options.split is None:
        return {"all": path}
    return {name: path.with_name(f"{path.stem}.{name}{path.suffix}") for name in options.split}


def _share_of(session: UUID, split: Mapping[str, float] | None) -> str:
    """Return the split that a session belongs to, always the same for the same session."""
    if split is None:
        return "all"
    drawn = int.from_bytes(hashlib.sha256(session.bytes).digest()[:8], "big") / 2**64
    left = drawn * sum(split.values())
    for name, share in split.items():
        left -= share
        if left < 0:
            return name
    return next(reversed(list(split)))  # what rounding leaves over
