"""Writers of exported rows: JSON Lines and Parquet.

A file appears under its name when it is complete; see `atomic_file`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Self

import msgspec

from sennit.atomic_file import atomic_write
from sennit.errors import MissingExtraError, ValidationError
from sennit.learning.export.formats import Format, Row
from sennit.messages.codec import dumps
from sennit.paths import create_private

_BATCH_ROWS = 1000
_encode = msgspec.json.Encoder().encode  # `dumps` enforces the limits of stored values
_LINE_BREAK_ESCAPES = {
    character.encode(): b"\\u%04x" % ord(character) for character in "\x85\u2028\u2029"
}

PARQUET = ".parquet"
SUFFIXES = (".jsonl", PARQUET)
"""The file suffixes of training files."""


def open_writer(path: Path, format: Format, stack: ExitStack) -> JsonLinesWriter | ParquetWriter:
    """Open a new file, with a writer by its suffix; closing `stack` completes the file.

    Raises ValidationError for an unknown suffix.
    """
    temporary = stack.enter_context(atomic_write(path))
    create_private(temporary)
    if path.suffix.lower() not in SUFFIXES:
        raise ValidationError(
            f"A training file must end in {' or '.join(SUFFIXES)}, got {str(path)!r}."
        )
    if path.suffix.lower() == PARQUET:
        return stack.enter_context(ParquetWriter(temporary, format.columns))
    return JsonLinesWriter(stack.enter_context(temporary.open("wb", buffering=1 << 20)))


class JsonLinesWriter:
    """A writer of one line of JSON per row."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.count = 0

    def write(self, row: Row) -> None:
        """Write one row."""
        self._file.write(json_line(row))
        self._file.write(b"\n")
        self.count += 1


def json_line(row: Row) -> bytes:
    """Return a row as JSON with Unicode line separators escaped, for readers that split on them."""
    line = _encode(row)
    for character, escaped in _LINE_BREAK_ESCAPES.items():
        line = line.replace(character, escaped)
    return line


class ParquetWriter:
    """A writer of one column per field: scores are floats, texts are strings, all else is JSON.

    So every file of a format has the same schema, whatever its rows contain, and only one batch of
    rows is in memory.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        try:
            arrow: Any = import_module("pyarrow")
            parquet: Any = import_module("pyarrow.parquet")
        except ImportError as error:
            raise MissingExtraError.of("Writing Parquet", "export") from error
        fields = [
            (name, arrow.float64() if name.startswith("score") else arrow.string())
            for name in columns
        ]
        self._schema: Any = arrow.schema(fields)
        self._batch: Any = arrow.RecordBatch.from_pylist
        self._file: Any = parquet.ParquetWriter(path, self._schema)
        self._buffer: list[Row] = []
        self.count = 0

    def write(self, row: Row) -> None:
        """Write one row, with the others of its batch."""
        self._buffer.append({name: _to_cell(value) for name, value in row.items()})
        self.count += 1
        if len(self._buffer) >= _BATCH_ROWS:
            self._flush()

    def _flush(self) -> None:
        self._file.write_batch(self._batch(self._buffer, schema=self._schema))
        self._buffer.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._buffer:
            self._flush()
        self._file.close()


def _to_cell(value: Any) -> Any:
    return value if value is None or isinstance(value, (str, float, int)) else dumps(value).decode()
