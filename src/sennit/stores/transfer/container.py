"""The archive container: a folder or .zip file with a manifest and checksums.

    manifest.json              the contents, with checksums, sizes and counts
    sessions/<id>.jsonl        one session each, one JSON object per line
    blobs/<sha256>             the bytes of pictures and files that their messages name
    memories.jsonl             the memories, if they were exported too

It is written under a temporary name and renamed when complete. Archives are untrusted: before the
first line is parsed, the files must be exactly those of the manifest, regular, within the limits,
and have its sizes and checksums. Nothing is unpacked to disk, and files are opened by names that
are generated here, never by names from the archive.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any, cast
from uuid import UUID

import msgspec

from sennit import clock
from sennit.atomic_file import atomic_write
from sennit.errors import ArchiveError, SennitError, short_repr
from sennit.messages.codec import MAX_BYTES, dumps, loads
from sennit.paths import create_private, make_private_folder, nearest_path, private_opener

FORMAT = "sennit-archive"
VERSION = 1
_MANIFEST = "manifest.json"
_FOLDER = "sessions"
_MEMORIES = "memories.jsonl"
_BLOB_FOLDER = "blobs"
_FOLDERS = (_FOLDER, _BLOB_FOLDER)
_CHUNK_BYTES = 1 << 20
MAX_LINE = MAX_BYTES + (1 << 20)
"""Maximum bytes of a line: the largest record, and the other fields of a line."""
_READ_ERRORS = (
    OSError,
    EOFError,
    ValueError,
    NotImplementedError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveLimits:
    """Limits for reading an archive."""

    sessions: int = 100_000
    blobs: int = 1_000_000
    lines: int = 1_000_000
    """In one session."""
    file_bytes: int = 1 << 30
    total_bytes: int = 1 << 36
    ratio: int = 200
    """How many times its size a zip may unpack to ..."""
    ratio_from: int = 2 * MAX_BYTES
    """... when it unpacks to more than this."""
    listing_bytes: int = 32 << 20
    """Maximum bytes of a zip's central directory."""


LIMITS = ArchiveLimits()

Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
# The years 1 to 9999, in microseconds: what a datetime can show.
Moment = Annotated[int, msgspec.Meta(ge=-62_135_596_800_000_000, lt=253_402_300_800_000_000)]


class ArchivedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file with its checksum and size."""

    name: str
    sha256: str
    bytes: Count
    lines: Count


class ArchivedSession(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A session with its counts."""

    id: UUID
    key: str | None
    messages: Count
    segments: Count
    branches: Count


class ArchivedBlob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A blob with its size and media type; its name is the checksum."""

    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    bytes: Count
    media_type: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._+-]+/[A-Za-z0-9._+-]+$")]

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{_BLOB_FOLDER}/{self.sha256}"


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The manifest: all files and sessions of an archive."""

    format: str
    version: int
    created_at: str
    files: list[ArchivedFile]
    sessions: list[ArchivedSession]
    blobs: list[ArchivedBlob] = []
    memories: ArchivedFile | None = None

    @property
    def line_files(self) -> list[ArchivedFile]:
        """The files of the sessions, and that of the memories if there is one."""
        return [*self.files, *([] if self.memories is None else [self.memories])]


def file_of(session: UUID) -> str:
    """Return the name of a session's file."""
    return f"{_FOLDER}/{session}.jsonl"


class ArchiveWriter:
    """Writes sessions into an archive."""

    def __init__(self, create: Callable[[str], IO[bytes]]) -> None:
        """Write to files that `create` makes by name."""
        self._create = create
        self._files: list[ArchivedFile] = []
        self._sessions: list[ArchivedSession] = []
        self._blobs: dict[str, ArchivedBlob] = {}
        self._memories: ArchivedFile | None = None

    def add(self, session: ArchivedSession, lines: Iterable[bytes]) -> None:
        """Write a session; raises ArchiveError if it is too large to be read back."""
        if len(self._sessions) >= LIMITS.sessions:
            raise ArchiveError(
                f"An archive may contain at most {LIMITS.sessions:,} sessions; export some at a "
                f"time."
            )
        shown = f"Session {short_repr(session.key or str(session.id))} is"
        self._files.append(self._write(file_of(session.id), lines, shown))
        self._sessions.append(session)

    def add_memories(self, lines: Iterable[bytes]) -> None:
        """Write the memories; raises ArchiveError if they are too large to be read back."""
        self._memories = self._write(_MEMORIES, lines, "The memories are")

    def _write(self, name: str, lines: Iterable[bytes], what: str) -> ArchivedFile:
        digest, size, count = hashlib.sha256(), 0, 0
        with self._create(name) as stream:
            for line in lines:
                stream.write(line)
                digest.update(line)
                size, count = size + len(line), count + 1
                if size > LIMITS.file_bytes or count > LIMITS.lines:
                    raise ArchiveError(f"{what} too large for an archive.")
        return ArchivedFile(name, digest.hexdigest(), size, count)

    def has_blob(self, hash: bytes) -> bool:
        """Return whether a blob was added."""
        return hash.hex() in self._blobs

    def add_blob(self, hash: bytes, media_type: str, chunks: Iterable[bytes]) -> None:
        """Write a blob; raises ArchiveError if it is too large to be read back."""
        name, size = hash.hex(), 0
        if len(self._blobs) >= LIMITS.blobs:
            raise ArchiveError(
                f"An archive may contain at most {LIMITS.blobs:,} blobs; export some sessions at "
                f"a time."
            )
        with self._create(f"{_BLOB_FOLDER}/{name}") as stream:
            for chunk in chunks:
                stream.write(chunk)
                size += len(chunk)
                if size > LIMITS.file_bytes:
                    raise ArchiveError(f"Blob {name} is too large for an archive.")
        self._blobs[name] = ArchivedBlob(name, size, media_type)

    def finish(self) -> Manifest:
        """Write the manifest and return it."""
        created, blobs = clock.to_iso(clock.now_us()), list(self._blobs.values())
        manifest = Manifest(
            FORMAT, VERSION, created, self._files, self._sessions, blobs, self._memories
        )
        with self._create(_MANIFEST) as stream:
            stream.write(dumps(manifest))
        return manifest


@contextmanager
def writing(path: Path) -> Generator[ArchiveWriter]:
    """Yield a writer whose archive appears at `path` if the block succeeds; call `finish` first.

    It is a zip if the name ends with ".zip", else a folder.
    """
    with atomic_write(path) as temporary:
        if path.suffix.lower() != ".zip":
            make_private_folder(temporary)
            yield ArchiveWriter(partial(_create_in_folder, temporary))
            return
        create_private(temporary)
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as packed:
            yield ArchiveWriter(partial(_create_in_zip, packed))
            total = sum(info.file_size for info in packed.infolist())
        if is_zip_bomb(total, temporary.stat().st_size):
            raise ArchiveError(
                f"The sessions compress so well that {str(path)!r} would be refused as a zip bomb "
                f"on import; export them to a folder, whose name does not end with '.zip'."
            )


def _create_in_folder(folder: Path, name: str) -> IO[bytes]:
    path = folder / name
    make_private_folder(path.parent)
    return open(path, "xb", opener=private_opener)


def _create_in_zip(packed: zipfile.ZipFile, name: str) -> IO[bytes]:
    info = zipfile.ZipInfo(name)  # without a time: the same content gives the same bytes
    # Pictures and most files are compressed already.
    is_blob = name.startswith(f"{_BLOB_FOLDER}/")
    info.compress_type = zipfile.ZIP_STORED if is_blob else zipfile.ZIP_DEFLATED
    info.external_attr = (stat.S_IFREG | 0o600) << 16
    return packed.open(info, "w", force_zip64=True)


class Archive:
    """An archive whose files are those its manifest names, with the checksums it gives."""

    def __init__(self, source: _Source) -> None:
        """Check all files; raises ArchiveError."""
        self._source = source
        _check_sizes(source)
        self.manifest = _read_manifest(source)
        _check_manifest(self.manifest, source.sizes)
        for file in (*self.manifest.line_files, *self.manifest.blobs):
            self._verify_checksum(file)

    def chunks(self, blob: ArchivedBlob) -> Iterator[bytes]:
        """Yield the bytes of a blob."""
        with self._source.open(blob.name) as stream, translate_errors(blob.name):
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk

    def _verify_checksum(self, file: ArchivedFile | ArchivedBlob) -> None:
        digest, size = hashlib.sha256(), 0
        with self._source.open(file.name) as stream, translate_errors(file.name):
            while chunk := stream.read(_CHUNK_BYTES):
                size += len(chunk)
                if size > file.bytes:
                    break
                digest.update(chunk)
        if (digest.hexdigest(), size) != (file.sha256, file.bytes):
            raise _modified_file(file)

    def lines(self, file: ArchivedFile) -> Iterator[bytes]:
        """Yield the lines of a file; raises ArchiveError if it does not match the manifest."""
        digest, count = hashlib.sha256(), 0
        with self._source.open(file.name) as stream:
            while line := _next_line(stream, file.name):
                if not line.endswith(b"\n"):
                    raise ArchiveError(f"{file.name!r} has a line that is too long or truncated.")
                digest.update(line)
                count += 1
                if count > file.lines:
                    break
                yield line
        if (digest.hexdigest(), count) != (file.sha256, file.lines):
            raise _modified_file(file)


def _next_line(stream: IO[bytes], name: str) -> bytes:
    with translate_errors(name):
        return stream.readline(MAX_LINE + 1)


@contextmanager
def reading(path: Path) -> Generator[Archive]:
    """Open and check the archive at `path`; raises ArchiveError."""
    with ExitStack() as stack:
        with translate_errors(path):
            if path.is_dir():
                source = _folder_source(path)
            elif path.is_file():
                check_directory_size(path)
                packed = stack.enter_context(zipfile.ZipFile(path))
                source = _zip_source(packed, path.stat().st_size)
            else:
                raise ArchiveError(
                    f"There is no archive at {str(path)!r}; pass the file or folder that an "
                    f"export wrote.{nearest_path(path)}"
                )
            archive = Archive(source)
        yield archive


@contextmanager
def translate_errors(name: str | Path) -> Generator[None]:
    """Turn errors of reading into an ArchiveError that names the file."""
    try:
        yield
    except SennitError:
        raise
    except _READ_ERRORS as error:
        raise ArchiveError(
            f"{str(name)!r} could not be read as an archive ({error}); pass the file or folder "
            f"that an export wrote, or export again."
        ) from error


@dataclass(frozen=True, slots=True)
class _Source:
    """The files of an archive that is read."""

    sizes: dict[str, int]
    """The files, and the size that each declares."""
    packed: int
    """The total size of the files, compressed in a zip."""
    open: Callable[[str], IO[bytes]]


def _folder_source(path: Path) -> _Source:
    sizes: dict[str, int] = {}
    for name, entry in _scan_folder(path):
        if not entry.is_file(follow_symlinks=False):
            raise _not_regular(name)
        _check_file_count(sizes)
        sizes[name] = entry.stat(follow_symlinks=False).st_size
    return _Source(sizes, sum(sizes.values()), lambda name: (path / name).open("rb"))


def _scan_folder(path: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the entries of an archive's folder, by their names in the archive."""
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.name in _FOLDERS and entry.is_dir(follow_symlinks=False):
                with os.scandir(entry) as files:
                    yield from ((f"{entry.name}/{file.name}", file) for file in files)
            else:
                yield entry.name, entry


def _zip_source(packed: zipfile.ZipFile, size: int) -> _Source:
    sizes: dict[str, int] = {}
    for info in packed.infolist():
        name, kind = info.filename, stat.S_IFMT(info.external_attr >> 16)
        if name[:-1] in _FOLDERS and name[-1] == "/" and not info.file_size:
            continue  # programs that pack a folder list it too
        if info.is_dir() or kind not in (0, stat.S_IFREG):
            raise _not_regular(name)
        if info.flag_bits & 1:
            raise ArchiveError(f"{short_repr(name)} in the archive is encrypted; unpack it first.")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ArchiveError(
                f"{short_repr(name)} uses a compression method that archives do not use."
            )
        if name in sizes:
            raise ArchiveError(f"The archive contains {short_repr(name)} twice.")
        _check_file_count(sizes)
        sizes[name] = info.file_size

    def open_file(name: str) -> IO[bytes]:
        return io.BufferedReader(cast("io.RawIOBase", packed.open(name)), _CHUNK_BYTES)

    return _Source(sizes, size, open_file)


def _check_file_count(sizes: dict[str, int]) -> None:
    if len(sizes) > LIMITS.sessions + LIMITS.blobs:
        raise _too_many_files(LIMITS.sessions + LIMITS.blobs)


def _too_many_files(limit: int) -> ArchiveError:
    return ArchiveError(f"The archive contains more than {limit:,} files.")


def check_directory_size(path: Path) -> None:
    """Raise ArchiveError if the central directory is too large: zipfile reads all of it."""
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - 98))
        tail = stream.read()
    end_record = tail[-22:]
    if end_record[:4] != b"PK\x05\x06":
        raise ArchiveError(f"{str(path)!r} is not a zip file, or is truncated.")
    sizes = [struct.unpack("<L", end_record[12:16])[0]]
    if tail[-42:-38] == b"PK\x06\x07" and tail[:4] == b"PK\x06\x06":
        sizes.append(struct.unpack("<Q", tail[40:48])[0])
    if max(sizes) > LIMITS.listing_bytes:
        raise ArchiveError(f"{str(path)!r} lists too many names to be an archive.")


def _check_sizes(source: _Source) -> None:
    for name, size in source.sizes.items():
        if size > (MAX_BYTES if name == _MANIFEST else LIMITS.file_bytes):
            raise ArchiveError(f"{short_repr(name)} is too large: {size:,} bytes.")
    blobs = sum(name.startswith(f"{_BLOB_FOLDER}/") for name in source.sizes)
    if len(source.sizes) - blobs - (_MEMORIES in source.sizes) > LIMITS.sessions + 1:
        raise _too_many_files(LIMITS.sessions)
    total = sum(source.sizes.values())
    if total > LIMITS.total_bytes:
        raise ArchiveError(f"The archive is too large: {total:,} bytes.")
    if is_zip_bomb(total, source.packed):
        raise ArchiveError(
            f"{source.packed:,} bytes that unpack to {total:,} are refused as a zip bomb."
        )


def is_zip_bomb(total: int, packed: int) -> bool:
    """Return whether the compression ratio is that of a zip bomb."""
    return total > LIMITS.ratio_from and total > packed * LIMITS.ratio


def _read_manifest(source: _Source) -> Manifest:
    if _MANIFEST not in source.sizes:
        raise ArchiveError(f"The archive has no {_MANIFEST}; it is not a Sennit archive.")
    with source.open(_MANIFEST) as stream:
        data = stream.read(MAX_BYTES + 1)
    try:
        value: Any = loads(data)
        _check_format(value)
        return msgspec.convert(value, Manifest)
    except ArchiveError:
        raise
    except (SennitError, msgspec.ValidationError) as error:
        raise ArchiveError(f"The archive's {_MANIFEST} is invalid: {error}") from error


def _check_format(value: Any) -> None:
    manifest = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    if manifest.get("format") != FORMAT:
        raise ArchiveError(f"Its {_MANIFEST} does not name the format {FORMAT!r}.")
    version = manifest.get("version")
    if isinstance(version, int) and version > VERSION:
        raise ArchiveError(
            f"The archive has version {short_repr(version)}, this Sennit reads {VERSION}; update "
            "Sennit."
        )
    if version != VERSION:
        raise ArchiveError(
            f"Its {_MANIFEST} has version {short_repr(version)}, which no version of Sennit "
            f"writes; the archive is damaged or not from Sennit. Export it again."
        )


def _check_manifest(manifest: Manifest, sizes: dict[str, int]) -> None:
    """Raise ArchiveError unless the manifest is consistent and matches the files."""
    names = [file.name for file in manifest.files]
    if names != [file_of(session.id) for session in manifest.sessions]:
        raise ArchiveError("The manifest's files are not those of its sessions.")
    if len(set(names)) < len(names):
        raise ArchiveError("The manifest names a session twice.")
    if manifest.memories is not None and manifest.memories.name != _MEMORIES:
        raise ArchiveError(f"The manifest's memories are not in {_MEMORIES!r}.")
    blobs = {blob.name: blob for blob in manifest.blobs}
    if len(blobs) < len(manifest.blobs):
        raise ArchiveError("The manifest names a blob twice.")
    known = {_MANIFEST, *blobs, *(file.name for file in manifest.line_files)}
    if extra := sizes.keys() - known:
        raise ArchiveError(
            f"The archive contains {short_repr(min(extra))}, which is not in its manifest."
        )
    for file in (*manifest.line_files, *manifest.blobs):
        if file.name not in sizes:
            raise ArchiveError(f"{file.name!r} is missing from the archive.")
        if file.bytes != sizes[file.name]:
            raise _modified_file(file)
    for file in manifest.line_files:
        if file.lines > LIMITS.lines:
            raise ArchiveError(f"{file.name!r} has too many lines: {file.lines:,}.")


def _modified_file(file: ArchivedFile | ArchivedBlob) -> ArchiveError:
    return ArchiveError(f"{file.name!r} does not match the manifest; the archive was modified.")


def _not_regular(name: str) -> ArchiveError:
    return ArchiveError(f"{short_repr(name)} in the archive is not a regular file.")
