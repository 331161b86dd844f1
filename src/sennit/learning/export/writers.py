"""Writers of exported rows: JSON lines and Parquet.

A file appears under its name when all of it is written; see `stores.whole`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self

import msgspec

from sennit.atomic_file import whole
from sennit.errors import MissingExtraError, ValidationError
from sennit.learning.export.formats import Format, Row
from sennit.messages.codec import dumps
from sennit.paths import create_private

_BATCH = 1000
_encoded = msgspec.json.Encoder().encode  # `dumps` is for what a store keeps, and bounds it
_ENDS_A_LINE = {one.encode(): b"\\u%04x" % ord(one) for one in "\x85\u2028\u2029"}

PARQUET = ".parquet"
ENDINGS = (".jsonl", PARQUET)
"""What the name of a training file may end with."""


class RowWriter(Protocol):
    """Takes rows one by one."""

    count: int

    def write(self, row: Row) -> None:
        """Add one."""
        ...


def writer(path: Path, format: Format, stack: ExitStack) -> RowWriter:
    """Open a new file by its ending; it is complete when the stack is left."""
    part = stack.enter_context(whole(path))
    create_private(part)
    if path.suffix.lower() not in ENDINGS:
        told = f"A training file ends in {' or '.join(ENDINGS)}"
        raise ValidationError(f"{told}, got {str(path)!r}.")
    if path.suffix.lower() == PARQUET:
        return stack.enter_context(_Parquet(part, format.columns))
    return _JsonLines(stack.enter_context(part.open("wb", buffering=1 << 20)))


class _JsonLines:
    """One line of JSON for each."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.count = 0

    def write(self, row: Row) -> None:
        self._file.write(json_line(row))
        self._file.write(b"\n")
        self.count += 1


def json_line(row: Row) -> bytes:
    """A row as JSON in which nobody finds the end of a line, whatever they take for one."""
    line = _encoded(row)
    for end, escaped in _ENDS_A_LINE.items():
        line = line.replace(end, escaped)
    return line


class _Parquet:
    """A column for each field: scores are numbers, texts are texts, all else is JSON.

    So every file of a format has the same columns, whatever its rows hold, and a batch of rows is
    all that is in memory.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        try:
            arrow: Any = import_module("pyarrow")
            parquet: Any = import_module("pyarrow.parquet")
        except ImportError as error:
            raise MissingExtraError.of("Writing Parquet", "export") from error
        kinds = [
            (name, arrow.float64() if name.startswith("score") else arrow.string())
            for name in columns
        ]
        self._schema: Any = arrow.schema(kinds)
        self._batch: Any = arrow.RecordBatch.from_pylist
        self._file: Any = parquet.ParquetWriter(path, self._schema)
        self._waiting: list[Row] = []
        self.count = 0

    def write(self, row: Row) -> None:
        self._waiting.append({name: _cell(value) for name, value in row.items()})
        self.count += 1
        if len(self._waiting) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        self._file.write_batch(self._batch(self._waiting, schema=self._schema))
        self._waiting.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None and self._waiting:
            self._flush()
        self._file.close()


def _cell(value: Any) -> Any:
    return value if value is None or isinstance(value, (str, float, int)) else dumps(value).decode()
