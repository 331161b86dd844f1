"""Pictures, files and recordings as parts of messages.

Each has a `url`: the http(s) address where a provider finds it, which is never fetched here, a
`data:` URL with its bytes, or the reference of a stored blob in its place. A file is read only for
a Path, which no request and no stored text can be. A message stores files and recordings as the
dicts that `part_record` returns.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, get_args

from sennit.errors import InvalidTypeError, ValidationError, short_repr
from sennit.messages.blob_reference import BlobReference
from sennit.messages.image_url import check_url, data_size, image_url, is_data_url, without_data
from sennit.messages.json_values import validate_text
from sennit.messages.media_types import (
    AUDIO_FORMATS,
    OCTETS,
    SNIFFED_BYTES,
    audio_type,
    fits,
    is_text_type,
    media_type,
    sniffed_type,
    type_of_name,
)

ImageDetail: TypeAlias = Literal["low", "high", "auto"]

MAX_FILE_BYTES = 50 * 1024 * 1024
"""The maximum size of a file that is sent with its bytes."""
MAX_AUDIO_BYTES = 25 * 1024 * 1024
"""The maximum size of a recording that is sent with its bytes."""
_DATA_URL = re.compile(r"data:([^,]{0,200}?);base64,([A-Za-z0-9+/]*={0,2})", re.IGNORECASE)
CHARS_PER_IMAGE = 4_000
"""The number of characters that a picture counts as, and a file at least."""
_BYTES_PER_CHAR = {"audio/wav": 500, "audio": 125, "video": 125}
"""By media type: 32 tokens a second at usual bit rates, 2,000 tokens for a page of a PDF."""
_MAX_NAME_CHARS = 255
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

_set = object.__setattr__


@dataclass(frozen=True, slots=True, init=False)
class ImagePart:
    """A picture."""

    url: str
    """The address of the image, or the image as a `data:` URL."""
    detail: ImageDetail
    """The resolution a model should use."""

    def __init__(self, url: str | bytes | Path, detail: ImageDetail = "auto") -> None:
        """`url` is an http(s) or `data:` URL, the bytes of the image, or the Path of a file."""
        _set(self, "url", image_url(url))
        _set(self, "detail", detail)
        if self.detail not in get_args(ImageDetail):
            raise ValidationError(
                f"ImagePart.detail must be 'low', 'high' or 'auto', got {short_repr(self.detail)}."
            )

    @property
    def media_type(self) -> str:
        """The media type; "image/*" for an address."""
        if (blob := BlobReference.of(self.url)) is not None:
            return blob.media_type or "image/*"
        return self.url[5:].partition(";")[0] if is_data_url(self.url) else "image/*"


@dataclass(frozen=True, slots=True, init=False)
class FilePart:
    """A file: a PDF, a text, a table, or any other."""

    url: str
    """The address of the file, or the file as a `data:` URL."""
    name: str | None
    """The name of the file, without folders; None if it has none."""
    media_type: str
    """The media type, such as "application/pdf"."""

    def __init__(
        self, url: str | bytes | Path, name: str | None = None, media_type: str | None = None
    ) -> None:
        """`url` is an http(s) or `data:` URL, the bytes of the file, or the Path of a file.

        The media type is the given one, or that of the `data:` URL, or of the name, or else of the
        first bytes; a PDF, a picture, audio, text and Office files must be what they are said to
        be. Raises ValidationError.
        """
        name = _default_name(url) if name is None else _checked_name(name)
        source = _Source.of(url, "file", MAX_FILE_BYTES)
        kind = source.file_type(media_type, name)
        _set(self, "url", source.as_url(kind))
        _set(self, "name", name)
        _set(self, "media_type", kind)


@dataclass(frozen=True, slots=True, init=False)
class AudioPart:
    """A recording: WAV, MP3, FLAC, Ogg, M4A, AAC or WebM."""

    url: str
    """The address of the recording, or the recording as a `data:` URL."""
    media_type: str
    """The media type, such as "audio/wav"."""

    def __init__(self, url: str | bytes | Path, media_type: str | None = None) -> None:
        """`url` is an http(s) or `data:` URL, the bytes, or the Path of a file.

        The media type is that of the bytes, whatever is said; of an address it is the given one or
        that of its ending. Raises ValidationError.
        """
        source = _Source.of(url, "recording", MAX_AUDIO_BYTES)
        kind = source.audio_type(media_type)
        _set(self, "url", source.as_url(kind))
        _set(self, "media_type", kind)

    @property
    def format(self) -> str:
        """The name of the format in chat APIs, such as "wav"."""
        return AUDIO_FORMATS[self.media_type]


MediaPart: TypeAlias = ImagePart | FilePart | AudioPart
"""A part with a `url` and a `media_type`."""

Files: TypeAlias = Sequence[FilePart | AudioPart | Path | str]
"""Files and recordings: parts, or the Paths and URLs of files."""

_KINDS: Mapping[str, type[MediaPart]] = {"image": ImagePart, "file": FilePart, "audio": AudioPart}


@dataclass(frozen=True, slots=True)
class _Source:
    """The address of a file or the reference of a blob, or its bytes as base64."""

    noun: str
    address: str | None
    base64: str
    said: str | None
    """The media type in a `data:` URL or a reference."""

    @classmethod
    def of(cls, url: str | bytes | Path, noun: str, limit: int) -> _Source:
        """Return where a file is; raises ValidationError if it cannot be read or is too large."""
        if isinstance(url, Path):
            url = _read(url, noun, limit)
        if isinstance(url, bytes):
            _check_size(len(url), noun, limit)
            return cls(noun, None, b64encode(url).decode("ascii"), None)
        if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidTypeError(
                f"A {noun} is given by its bytes, a Path, or an http(s) or data: URL, got "
                f"{short_repr(url)}."
            )
        if (blob := BlobReference.of(url)) is not None:
            _check_size(blob.size or 1, noun, limit)
            return cls(noun, url, "", blob.media_type or None)
        if url[:5].lower() != "data:":
            return cls(noun, check_url(url, noun.capitalize()), "", None)
        match = _DATA_URL.fullmatch(url)
        if match is None or len(match[2]) % 4:
            raise ValidationError(
                f"The bytes of a {noun} are written as 'data:application/pdf;base64,…', got "
                f"{short_repr(url[:60])}."
            )
        _check_size(data_size(match[2]), noun, limit)
        return cls(noun, None, match[2], match[1] or None)

    @property
    def head(self) -> bytes:
        return b64decode(self.base64[: SNIFFED_BYTES // 3 * 4])

    def as_url(self, kind: str) -> str:
        """Return the URL to store."""
        return self.address or f"data:{kind};base64,{self.base64}"

    def file_type(self, given: str | None, name: str | None) -> str:
        """Return the media type of a file; raises ValidationError if it is none of what is said."""
        named = type_of_name(name or "")
        said = next((media_type(kind) for kind in (given, self.said) if kind), None)
        if self.address is not None:
            return said or named or OCTETS
        if said == OCTETS:
            return named if named is not None and self._is(named) else OCTETS
        kind = said or named
        if kind is None:
            return sniffed_type(self.head) or ("text/plain" if self._is("text/plain") else OCTETS)
        if not self._is(kind):
            label = "The file" if name is None else f"The file {name!r}"
            expected = "text in UTF-8" if is_text_type(kind) else f"of the type {kind!r}"
            raise ValidationError(
                f"{label} is not {expected}: it begins with {self.head[:12]!r}. Name the right "
                f"media type, or {OCTETS!r} for any bytes."
            )
        return kind

    def _is(self, kind: str) -> bool:
        """Return whether the bytes may be of a media type."""
        if not is_text_type(kind):
            return fits(kind, self.head)
        try:
            return "\0" not in b64decode(self.base64).decode()
        except UnicodeDecodeError:
            return False

    def audio_type(self, given: str | None) -> str:
        """Return the media type of a recording; raises ValidationError if it is none."""
        formats = ", ".join(AUDIO_FORMATS)
        if self.address is not None:
            kind = self.said or given or type_of_name(_default_name(self.address) or "")
            if kind is None or (kind := media_type(kind)) not in AUDIO_FORMATS:
                raise ValidationError(
                    f"The media type of a recording is one of {formats}, got {short_repr(kind)}; "
                    f"pass media_type."
                )
            return kind
        kind = audio_type(self.head)
        if kind is None:
            raise ValidationError(
                f"The bytes of a recording must be one of {formats}; they begin with "
                f"{self.head[:12]!r}."
            )
        return kind


def part_record(part: MediaPart) -> dict[str, Any]:
    """Return a part as a message stores it."""
    name = next(name for name, kind in _KINDS.items() if type(part) is kind)
    record = {"type": name}
    for field in type(part).__slots__:
        if (value := getattr(part, field)) is not None:
            record[field] = value
    return record


def part_of_record(record: Any) -> MediaPart:
    """Return the part that `part_record` wrote; raises ValidationError."""
    if not isinstance(record, dict):
        raise InvalidTypeError(
            f"A file is a FilePart, an AudioPart or a Path, got "
            f"{short_repr(cast('object', record))}."
        )
    fields = dict(cast("dict[str, Any]", record))
    kind = _KINDS.get(str(fields.pop("type", None)))
    if kind is None or not isinstance(fields.get("url"), str):
        raise ValidationError(
            f"A stored file has a 'type' ({', '.join(_KINDS)}) and a 'url', got "
            f"{short_repr(fields)}."
        )
    if wrong := fields.keys() - set(kind.__slots__):
        raise ValidationError(f"A {kind.__name__} has no field {short_repr(sorted(wrong)[0])}.")
    return kind(**fields)


def media_part(value: object) -> MediaPart:
    """Return a part, the record of one, or what a Path or a URL names; raises ValidationError."""
    if isinstance(value, tuple(_KINDS.values())):
        return value
    if isinstance(value, (str, Path)):
        return FilePart(value)
    return part_of_record(value)


def label(part: MediaPart) -> str:
    """Return a part for people: its name, its type and its size, or its address."""
    name = part.name if isinstance(part, FilePart) else None
    text = without_data(part.url).strip("[]")
    return f"[{text}]" if name is None else f"[{name}: {text}]"


def block_of(part: MediaPart) -> dict[str, Any]:
    """Return a part as a content block of a chat API.

    Chat APIs take no address of a file or a recording; the block has it as `file_url` or `url`,
    and so the reference of a blob.
    """
    data = part.url if is_data_url(part.url) else None
    match part:
        case ImagePart():
            return {"type": "image_url", "image_url": {"url": part.url, "detail": part.detail}}
        case FilePart():
            name = {} if part.name is None else {"filename": part.name}
            place = (
                {"file_data": data}
                if data
                else {"file_url": part.url, "media_type": part.media_type}
            )
            return {"type": "file", "file": {**name, **place}}
        case AudioPart():
            place = {"data": data.partition(",")[2]} if data else {"url": part.url}
            return {"type": "input_audio", "input_audio": {**place, "format": part.format}}


def part_of_block(block: Any) -> MediaPart | None:
    """Return the part of a content block of a chat API; None if it is no such block.

    Raises ValidationError for a block whose bytes or address cannot be used.
    """
    match block:
        case {"type": "image_url", "image_url": {"url": str(url), **more}} if more.keys() <= {
            "detail"
        }:
            return ImagePart(url, cast("Any", more.get("detail") or "auto"))
        case {"type": "file", "file": {"file_data": str(data), **more}} if more.keys() <= {
            "filename"
        }:
            return FilePart(as_data_url(data), more.get("filename"))
        case {"type": "file", "file": {"file_url": str(url), **more}} if more.keys() <= {
            "filename",
            "media_type",
        }:
            return FilePart(url, more.get("filename"), more.get("media_type"))
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str()}}:
            return AudioPart(as_data_url(data))
        case {"type": "input_audio", "input_audio": {"url": str(url), "format": str(format)}}:
            kinds = {name: kind for kind, name in AUDIO_FORMATS.items()}
            return AudioPart(url, kinds.get(format))
        case _:
            return None


def estimated_chars(url: str, kind: str) -> int:
    """Return the number of characters that a model reads a file as, roughly."""
    blob = BlobReference.of(url)
    if kind.startswith("image/") or (blob is None and not is_data_url(url)):
        return CHARS_PER_IMAGE
    size = data_size(url.partition(",")[2]) if blob is None else blob.size
    if is_text_type(kind):
        return size
    bytes_per_char = _BYTES_PER_CHAR.get(kind) or _BYTES_PER_CHAR.get(kind.partition("/")[0], 15)
    return max(CHARS_PER_IMAGE, size // bytes_per_char)


def chars_of_recording(block: Mapping[str, Any]) -> int:
    """Return `estimated_chars` of the content block of a recording."""
    match block:
        case {"input_audio": {"data": str(data), "format": str(format)}}:
            kind = type_of_name(f".{format}") or "audio/mpeg"
            return estimated_chars(f"data:{kind};base64,{data}", kind)
        case _:
            return CHARS_PER_IMAGE


def as_data_url(data: str) -> str:
    """Return base64, which some clients send alone, as a `data:` URL."""
    return data if data[:5].lower() == "data:" else f"data:;base64,{data}"


def text_of(part: MediaPart) -> str | None:
    """Return the text of a text file, below its name; None for any other and for an address."""
    if not is_text_type(part.media_type) or not is_data_url(part.url):
        return None
    name = part.name if isinstance(part, FilePart) else None
    return "\n".join(filter(None, (name, part_bytes(part).decode(errors="replace"))))


def part_bytes(part: MediaPart) -> bytes:
    """Return the bytes of a part with a `data:` URL."""
    return b64decode(part.url.partition(",")[2])


def _read(path: Path, noun: str, limit: int) -> bytes:
    try:
        _check_size(path.stat().st_size, noun, limit)
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ValidationError(f"The {noun} {str(path)!r} cannot be read: {reason}.") from error


def _check_size(size: int, noun: str, limit: int) -> None:
    if size > limit:
        raise ValidationError(
            f"A {noun} may have {limit // 2**20} MiB, got {size:,} bytes; send a part of it, or "
            f"its address."
        )
    if not size:
        raise ValidationError(f"A {noun} must not be empty.")


def _default_name(url: object) -> str | None:
    """Return the name of a file by its path or address."""
    if isinstance(url, Path):
        return url.name or None
    if isinstance(url, str) and url[:4].lower() == "http":
        path = re.split("[?#]", url)[0].split("/", 3)[3:]
        from urllib.parse import unquote  # most conversations have no files

        return _checked_name(unquote(path[0])) if path else None
    return None


def _checked_name(name: object) -> str | None:
    """Return the name of a file without folders; raises ValidationError."""
    text = validate_text(name, "FilePart.name")
    base = _CONTROL.sub("", re.split(r"[/\\]", text)[-1]).strip()
    return base[-_MAX_NAME_CHARS:] or None
