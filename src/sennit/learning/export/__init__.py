"""Training data export: rows of one format, written one session at a time.

Each session is released before the next is read, so memory use does not grow with the store.
Conversations are read from stored rows, without opening the session. The file appears under its
name when it is complete. The split of a session is derived from its id alone: it is the same in
every export and on every machine, so no training data leaks into the test split.
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
from typing import Any, TypeAlias
from uuid import UUID

from sennit.errors import NotFoundError, ValidationError, short_repr
from sennit.learning.examples import Filter, examples
from sennit.learning.export.conversations import NOT_GOOD_ENOUGH, conversations, tool_definitions
from sennit.learning.export.formats import LeftOut, Row, get_format
from sennit.learning.export.redaction import Redact, redact_row
from sennit.learning.export.stored_rows import Chat
from sennit.learning.export.writers import (
    JsonLinesWriter,
    ParquetWriter,
    json_line,
    open_writer,
)
from sennit.learning.preferences import compare
from sennit.services.registry import ServiceRegistry
from sennit.sessions.session import SessionCore
from sennit.stores.records.sessions import LabelRecord, Snapshot

_log = logging.getLogger(__name__)

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number of sessions done and the total number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """Options of an export."""

    format: str = "openai"
    """The name of the format; see FORMATS."""
    keep: Filter = field(default_factory=Filter)
    """The filter that examples must pass."""
    split: Mapping[str, float] | None = None
    """Shares by name, such as {"train": 0.9, "test": 0.1}; each name gets a file of its own."""
    redact: Redact | None = None
    """Called with every text before it is written; see `learning.export.redaction`."""

    def __post_init__(self) -> None:
        pairs = get_format(self.format).unit == "preference"
        if pairs and self.keep.strict_trajectory:
            raise ValidationError(
                "strict_trajectory applies to conversations and examples, not to pairs."
            )
        if self.split is not None:
            _check_split(self.split)


def _check_split(split: Mapping[str, float]) -> None:
    shares = list(split.values())
    if not (shares and all(0 < share < math.inf for share in shares)):
        raise ValidationError(f"The shares of a split must be above 0, got {short_repr(split)}.")
    for name in split:
        if not name or any(character in name for character in "/\\\0"):
            raise ValidationError(
                f"A split name must be usable in a file name, got {short_repr(name)}."
            )


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The result of an export."""

    files: Mapping[str, Path]
    """The files by split name; "all" without a split."""
    rows: Mapping[str, int]
    """The number of rows by split name."""
    sessions: int
    """The number of sessions that were read."""
    left_out: Mapping[str, int]
    """The number of conversations, answers, pairs and examples in no file, by reason."""

    @property
    def skipped(self) -> int:
        """The total number of items that were left out."""
        return sum(self.left_out.values())


@dataclass(frozen=True, slots=True)
class SessionSource:
    """Access to the stored sessions of an export."""

    kept: Callable[[UUID], Snapshot]
    """Returns a session as stored; raises NotFoundError."""
    labels: Callable[[UUID], Iterable[LabelRecord]]
    """Returns the labels of a session; raises NotFoundError."""
    opened: Callable[[UUID], SessionCore]
    """Opens a session; raises NotFoundError."""
    inline: Callable[[Chat], Chat]
    """Returns chat messages with the bytes of the blobs that they name."""
    services: ServiceRegistry
    """The registry with the definitions of tools."""


def export(
    sessions: Sequence[UUID],
    source: SessionSource,
    path: Path,
    options: ExportOptions,
    progress: Progress | None = None,
) -> ExportResult:
    """Write sessions as training data, as JSON Lines (.jsonl) or Parquet by the suffix of `path`.

    Sessions are read one at a time. If no row is written, the reasons are logged. Raises
    ExistsError if a file exists already, ValidationError for any other suffix.
    """
    paths = _paths(path, options)
    training = _TrainingRows(source, options)
    session_count = 0
    with ExitStack() as stack:
        writers = {
            name: open_writer(target, training.format, stack) for name, target in paths.items()
        }
        for done, uid in enumerate(sessions, 1):
            with suppress(NotFoundError):  # deleted in the meantime
                rows = training.of(uid)
                session_count += 1
                _write(rows, writers[_split_of(uid, options.split)])
            if progress is not None:
                progress(done, len(sessions))
    counts = {name: row_writer.count for name, row_writer in writers.items()}
    left_out = dict(training.left_out)
    if left_out and not any(counts.values()):
        reasons = ", ".join(f"{count} ({reason})" for reason, count in left_out.items())
        _log.warning("No row was written to %s; left out: %s.", path, reasons)
    return ExportResult(paths, counts, session_count, left_out)


def _write(rows: Iterator[Row], row_writer: JsonLinesWriter | ParquetWriter) -> None:
    """Write the rows of a session; no row of it is held when this returns."""
    for row in rows:
        row_writer.write(row)


class TrainingLines(Iterator[bytes]):
    """An iterator of rows as lines of JSON, each with its newline."""

    def __init__(self, rows: Iterator[Row], left_out: Counter[str]) -> None:
        self._rows = rows
        self.left_out = left_out
        """The number of items left out so far, by reason."""

    def __next__(self) -> bytes:
        return json_line(next(self._rows)) + b"\n"


def lines(session: UUID, source: SessionSource, options: ExportOptions) -> TrainingLines:
    """Return one session as lines of JSON; raises NotFoundError."""
    training = _TrainingRows(source, options)
    return TrainingLines(training.of(session), training.left_out)


class _TrainingRows:
    """The rows of sessions in one format; all that is in no row is counted by reason."""

    def __init__(self, source: SessionSource, options: ExportOptions) -> None:
        self.format = get_format(options.format)
        self.left_out: Counter[str] = Counter()
        self._source, self._options = source, options
        self._tools = tool_definitions(source.services)

    def of(self, session: UUID) -> Iterator[Row]:
        """Return the rows of a session; raises NotFoundError if it was deleted."""
        return self._rows(self._units(session))

    def _rows(self, units: Iterable[Any]) -> Iterator[Row]:
        to_row, redact = self.format.row, self._options.redact
        for unit in units:
            row = unit if isinstance(unit, LeftOut) else to_row(unit)
            if isinstance(row, LeftOut):
                self.left_out[row.reason] += 1
            else:
                yield row if redact is None else redact_row(row, redact)

    def _units(self, session: UUID) -> Iterable[Any]:
        """Return the conversations, examples or pairs of a session, and what is left out."""
        keep, source = self._options.keep, self._source
        if self.format.unit == "conversation":
            labels = () if keep.min_score is None else source.labels(session)
            return conversations(source.kept(session), labels, keep, self._tools, source.inline)
        opened = source.opened(session)
        if self.format.unit == "example":
            return examples(opened, None, keep)
        comparison = compare(opened, by=keep.by)
        unpaired = map(LeftOut, comparison.left_out.elements())
        kept = (p if keep.keeps(p.chosen) else NOT_GOOD_ENOUGH for p in comparison.pairs)
        return chain(unpaired, kept)


def _paths(path: Path, options: ExportOptions) -> dict[str, Path]:
    if options.split is None:
        return {"all": path}
    return {name: path.with_name(f"{path.stem}.{name}{path.suffix}") for name in options.split}


def _split_of(session: UUID, split: Mapping[str, float] | None) -> str:
    """Return the split of a session, which depends only on its id."""
    if split is None:
        return "all"
    fraction = int.from_bytes(hashlib.sha256(session.bytes).digest()[:8], "big") / 2**64
    remaining = fraction * sum(split.values())
    for name, share in split.items():
        remaining -= share
        if remaining < 0:
            return name
    return next(reversed(list(split)))  # because of rounding
