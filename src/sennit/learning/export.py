"""Training files: rows of one format, written one session at a time.

A session is read, told and let go before the next, so what is in memory does not grow with the
store. The file appears when it is complete. Which split a session falls into follows from its id
alone: the same session stays in the same split, in every export and on every machine, so nothing
that was trained on is ever tested on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast
from uuid import UUID

from sennit.errors import NotFoundError, ValidationError, shown
from sennit.learning.conversations import conversations
from sennit.learning.examples import Filter, examples
from sennit.learning.formats import Format, Row, format_named
from sennit.learning.preferences import preferences
from sennit.learning.writers import RowWriter, writer
from sennit.sessions.session import SessionCore

Redact: TypeAlias = Callable[[str], str]
"""Gives a text as it may be shown."""
Progress: TypeAlias = Callable[[int, int], None]
"""Told how many sessions are done, and of how many."""

_FORM = frozenset({"role", "type", "id", "tool_call_id", "from"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """What to write, and what to leave out."""

    format: str = "openai"
    keep: Filter = field(default_factory=Filter)
    split: Mapping[str, float] | None = None
    """Shares by name, such as {"train": 0.9, "test": 0.1}: a file for each, chosen by session."""
    redact: Redact | None = None
    """Called with every text before it is written."""

    def __post_init__(self) -> None:
        format_named(self.format)
        shares = list((self.split or {}).values())
        if self.split is not None and not (shares and all(share > 0 for share in shares)):
            raise ValidationError(f"A split has shares above 0, got {shown(self.split)}.")


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote."""

    files: Mapping[str, Path]
    """By the names of the split; "all" without one."""
    rows: Mapping[str, int]
    sessions: int
    skipped: int
    """Conversations and pairs that the format cannot say, or that the filter left nothing of."""


def export(
    sessions: Sequence[UUID],
    opened: Callable[[UUID], SessionCore],
    path: Path,
    options: ExportOptions,
    progress: Progress | None = None,
) -> Exported:
    """Write sessions as training data: Parquet if `path` ends so, else lines of JSON.

    Each is `opened` when its turn comes. Raises ExistsError if a file is there already.
    """
    paths = _paths(path, options)
    format = format_named(options.format)
    told = skipped = 0
    with ExitStack() as stack:
        writers = {name: writer(target, format, stack) for name, target in paths.items()}
        for done, uid in enumerate(sessions, 1):
            with suppress(NotFoundError):  # deleted meanwhile
                session = opened(uid)
                told += 1
                skipped += _write(session, options, writers[_share_of(uid, options.split)])
            if progress is not None:
                progress(done, len(sessions))
    return Exported(paths, {name: one.count for name, one in writers.items()}, told, skipped)


def _write(session: SessionCore, options: ExportOptions, writing: RowWriter) -> int:
    """Write the rows of a session; gives how many could not be."""
    skipped = 0
    for row in rows(session, options):
        if row is None:
            skipped += 1
        else:
            writing.write(row)
    return skipped


def rows(session: SessionCore, options: ExportOptions) -> Iterator[Row | None]:
    """A session in a format; None stands for something left out."""
    format = format_named(options.format)
    for unit in _units(session, format, options.keep):
        row = format.row(unit) if unit is not None else None
        yield row if row is None or options.redact is None else _redacted(row, options.redact)


def _units(session: SessionCore, format: Format, keep: Filter) -> Iterator[Any]:
    match format.unit:
        case "conversation":
            yield from conversations(session, keep)
        case "example":
            yield from examples(session, None, keep)
        case "preference":
            yield from preferences(session, by=keep.by)


def _redacted(value: Any, redact: Redact) -> Any:
    """The same data with every text as it may be shown; what only gives it form stays."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_redacted(one, redact) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {
            name: one if name in _FORM else _redacted(one, redact)
            for name, one in cast("Row", value).items()
        }
    return value


def _paths(path: Path, options: ExportOptions) -> dict[str, Path]:
    if options.split is None:
        return {"all": path}
    return {name: path.with_name(f"{path.stem}.{name}{path.suffix}") for name in options.split}


def _share_of(session: UUID, split: Mapping[str, float] | None) -> str:
    """Which part of a split a session falls into: always the same for the same session."""
    if split is None:
        return "all"
    drawn = int.from_bytes(hashlib.sha256(session.bytes).digest()[:8], "big") / 2**64
    left = drawn * sum(split.values())
    for name, share in split.items():
        left -= share
        if left < 0:
            return name
    return next(reversed(list(split)))  # what rounding leaves over
