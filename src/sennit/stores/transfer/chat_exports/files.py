"""Files that hold exported conversations: JSON, JSON lines, a .zip or folder with them, SQLite.

JSON is split into its entries while it is read, so that memory is used for one conversation at a
time, whatever the size of the file. Files are untrusted: an entry has the size limit of a message,
a .zip the limits of an archive, and nothing is unpacked to disk.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, NamedTuple, cast

from sennit.errors import ArchiveError, CodecError
from sennit.messages.codec import MAX_BYTES, loads
from sennit.paths import nearest_path
from sennit.stores.transfer.container import (
    LIMITS,
    check_directory_size,
    is_zip_bomb,
    translate_errors,
)

_CHUNK_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"
_EXPORT_NAME = re.compile(r"conversations([-_]?\d+)?\.json", re.IGNORECASE)
_MANIFEST = "manifest.json"
_GAP = re.compile(rb"[\s,]*+")
_ATOM = re.compile(rb'[^\s,\[\]{}"]*+')
# A whole string, a bracket, or the quote of a string that the buffer does not hold to its end.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}"]', re.DOTALL)
_STRING_REST = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_UNSTORABLE = re.compile(rb"\\u(?:[dD][89a-fA-F]|0000)")
# An escape; in the group if it is NUL, or one half of a pair without the other.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89a-fA-F][0-9a-fA-F]{2}|u0000)|.)",
    re.DOTALL,
)
_QUOTE = ord('"')
_OPENING, _CLOSING = b"[{", b"]}"


class ExportFile(NamedTuple):
    """A JSON file of an export."""

    name: str
    size: int
    open: Callable[[], IO[bytes]]


class Entry(NamedTuple):
    """The bytes of one entry of a JSON file."""

    data: bytes | None
    """None if it is larger than MAX_BYTES."""
    end: int
    """The offset in the file after it."""
    is_complete: bool = True
    """False if the file ends within it."""


def check_exists(path: Path) -> None:
    """Raise ArchiveError unless there is a file or a folder at `path`."""
    with translate_errors(path):
        if not path.is_file() and not path.is_dir():
            raise ArchiveError(
                f"There is no file or folder {str(path)!r} to import.{nearest_path(path)}"
            )


def is_archive(path: Path) -> bool:
    """Return whether there is a Sennit archive at `path`, by its manifest."""
    if path.is_dir():
        return (path / _MANIFEST).exists()
    with translate_errors(path):
        if not zipfile.is_zipfile(path):
            return False
        check_directory_size(path)
        with zipfile.ZipFile(path) as packed:
            return _MANIFEST in packed.namelist() and not _exported_names(packed)


def first_bytes(path: Path, count: int) -> bytes:
    """Return the first bytes of a file; raises ArchiveError if it cannot be read."""
    with translate_errors(path), path.open("rb") as stream:
        return stream.read(count)


@contextmanager
def reading_files(path: Path) -> Generator[list[ExportFile]]:
    """Open the JSON files of an export: the file itself, or those in a folder or .zip.

    Raises ArchiveError if there is none, or a .zip is damaged or too large.
    """
    with ExitStack() as stack:
        with translate_errors(path):
            if path.is_dir():
                files = [_plain_file(file) for file in sorted(path.iterdir()) if _is_export(file)]
            elif zipfile.is_zipfile(path) or path.suffix.lower() == ".zip":
                check_directory_size(path)
                files = _zip_files(stack.enter_context(zipfile.ZipFile(path)), path)
            else:
                files = [_plain_file(path)]
        if not files:
            raise ArchiveError(
                f"{str(path)!r} contains no conversations.json and no manifest.json; pass the file "
                f"or folder that ChatGPT, Claude or `sennit export` wrote."
            )
        yield files


def _is_export(path: Path) -> bool:
    return _EXPORT_NAME.fullmatch(path.name) is not None and path.is_file()


def _plain_file(path: Path) -> ExportFile:
    return ExportFile(path.name, path.stat().st_size, lambda: path.open("rb"))


def _exported_names(packed: zipfile.ZipFile) -> list[str]:
    names = packed.namelist()
    return sorted(name for name in names if _EXPORT_NAME.fullmatch(name.rpartition("/")[2]))


def _zip_files(packed: zipfile.ZipFile, path: Path) -> list[ExportFile]:
    infos = [packed.getinfo(name) for name in dict.fromkeys(_exported_names(packed))]
    for info in infos:
        if info.flag_bits & 1:
            raise ArchiveError(f"{info.filename!r} in {str(path)!r} is encrypted; unpack it first.")
    total, size = sum(info.file_size for info in infos), path.stat().st_size
    if total > LIMITS.total_bytes or is_zip_bomb(total, size):
        raise ArchiveError(f"{size:,} bytes that unpack to {total:,} are refused as a zip bomb.")
    return [_packed_file(packed, info) for info in infos]


def _packed_file(packed: zipfile.ZipFile, info: zipfile.ZipInfo) -> ExportFile:
    def open_file() -> IO[bytes]:
        return io.BufferedReader(cast("io.RawIOBase", packed.open(info)), _CHUNK_BYTES)

    return ExportFile(info.filename, info.file_size, open_file)


def entries(file: ExportFile) -> Iterator[Entry]:
    """Yield the entries of a JSON array, of JSON lines, or a single one; raises ArchiveError."""
    with translate_errors(file.name), file.open() as stream:
        head = stream.read(4096)
        if head.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise ArchiveError(f"{file.name!r} is encoded as UTF-16; save it as UTF-8.")
        if _has_lines(head.removeprefix(_BOM), stream):
            stream.seek(0)
            yield from _lines(stream)
        else:
            stream.seek(0)
            yield from _Splitter(stream).entries()


def _has_lines(head: bytes, stream: IO[bytes]) -> bool:
    """Return whether the first line is a whole JSON object."""
    if not head.lstrip().startswith(b"{"):
        return False
    line = head.lstrip()
    if b"\n" not in line:
        line += stream.readline(MAX_BYTES)
    try:
        loads(line.partition(b"\n")[0])
    except CodecError:
        return False
    return True


def _lines(stream: IO[bytes]) -> Iterator[Entry]:
    end = 0
    while line := stream.readline(MAX_BYTES + 1):
        end += len(line)
        if len(line) > MAX_BYTES and not line.endswith(b"\n"):
            while (rest := stream.readline(_CHUNK_BYTES)) and not rest.endswith(b"\n"):
                end += len(rest)
            yield Entry(None, end + len(rest))
        elif line := line.removeprefix(_BOM).strip():
            yield Entry(line, end)


def replace_unstorable(data: bytes) -> bytes:
    r"""Return JSON with NUL and each half of a character, such as "\ud83d" alone, as U+FFFD.

    Outputs of tools contain NUL, and texts that other programs cut end with half an emoji. Neither
    can be stored, and the rest of the conversation should not be lost for it.
    """
    if _UNSTORABLE.search(data) is None:
        return data
    return _ESCAPE.sub(lambda match: b"\\ufffd" if match[1] else match[0], data)


class _Splitter:
    """Splits JSON into the entries of its outer array, or into its top-level values."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._buffer = b""
        self._at = 0
        self._before = 0
        """The offset of the buffer in the file."""

    def entries(self) -> Iterator[Entry]:
        """Yield the entries; the last is incomplete if the file is cut off."""
        while self._fill() and len(self._buffer) < len(_BOM):
            pass
        if self._buffer.startswith(_BOM):
            self._at = len(_BOM)
        if is_array := self._skip_gap() == b"[":
            self._at += 1
        is_cut_off = False
        while (first := self._skip_gap()) not in (b"", b"]"):
            entry = self._entry()
            is_cut_off = not entry.is_complete
            yield entry
        if is_array and not first and not is_cut_off:
            yield Entry(b"", self._before + self._at, is_complete=False)

    def _fill(self) -> bool:
        """Drop what was read and read on; return False at the end of the file."""
        chunk = self._stream.read(_CHUNK_BYTES)
        self._before += self._at
        self._buffer = self._buffer[self._at :] + chunk
        self._at = 0
        return bool(chunk)

    def _skip_gap(self) -> bytes:
        """Skip white space and commas; return the next byte, none at the end of the file."""
        while True:
            self._at = _end(_GAP, self._buffer, self._at)
            if self._at < len(self._buffer):
                return self._buffer[self._at : self._at + 1]
            if not self._fill():
                return b""

    def _entry(self) -> Entry:
        pieces: list[bytes] = []
        size, depth, in_string, is_complete = 0, 0, False, False
        while True:
            end, depth, in_string, is_complete = self._scan(depth, in_string)
            size += end - self._at
            if size <= MAX_BYTES:
                pieces.append(self._buffer[self._at : end])
            else:
                pieces.clear()
            self._at = end
            if is_complete or not self._fill():
                break
        data = b"".join(pieces) if size <= MAX_BYTES else None
        return Entry(data, self._before + self._at, is_complete)

    def _scan(self, depth: int, in_string: bool) -> tuple[int, int, bool, bool]:
        """Find the end of the entry in the buffer.

        Returns a position, the depth and whether a string is open there, and whether it is the end.
        """
        buffer, at = self._buffer, self._at
        if in_string:
            at = _end(_STRING_REST, buffer, at)
            if buffer[at : at + 1] != b'"':
                return at, depth, True, False  # the buffer may end after a backslash
            at += 1
            if not depth:
                return at, 0, False, True
        elif not depth and buffer[at] not in _OPENING and buffer[at] != _QUOTE:
            return max(at + 1, _end(_ATOM, buffer, at)), 0, False, True
        for token in _TOKEN.finditer(buffer, at):
            start, end = token.span()
            if buffer[start] in _OPENING:
                depth += 1
            elif buffer[start] in _CLOSING:
                depth -= 1
            elif end == start + 1:
                return _end(_STRING_REST, buffer, end), depth, True, False
            if not depth:
                return end, 0, False, True
        return len(buffer), depth, False, False


def _end(pattern: re.Pattern[bytes], buffer: bytes, position: int) -> int:
    match = pattern.match(buffer, position)
    return position if match is None else match.end()
