"""Media types of files: by their first bytes, and by the ending of their name.

The bytes of clients and tools are not trusted: a type that has a signature is accepted only for
bytes that begin with it. Nothing is unpacked or decoded further, so a file can be no bomb here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sennit.errors import ValidationError, short_repr
from sennit.messages.json_values import validate_text

OCTETS = "application/octet-stream"
"""The media type of bytes of which nothing is known."""
SNIFFED_BYTES = 1024
"""The number of bytes at the beginning that tell the type of a file."""
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The media types of pictures that models see."""
AUDIO_FORMATS: Mapping[str, str] = {
    "audio/wav": "wav",
    "audio/mpeg": "mp3",
    "audio/flac": "flac",
    "audio/ogg": "ogg",
    "audio/mp4": "m4a",
    "audio/aac": "aac",
    "audio/webm": "webm",
}
"""The media types of recordings, with their names in chat APIs."""

_OFFICE = "application/vnd.openxmlformats-officedocument"
_ENDINGS: Mapping[str, str] = {
    "pdf": "application/pdf",
    "txt": "text/plain",
    "md": "text/markdown",
    "markdown": "text/markdown",
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
    "html": "text/html",
    "htm": "text/html",
    "xml": "text/xml",
    "json": "application/json",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "docx": f"{_OFFICE}.wordprocessingml.document",
    "xlsx": f"{_OFFICE}.spreadsheetml.sheet",
    "pptx": f"{_OFFICE}.presentationml.presentation",
    "zip": "application/zip",
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "oga": "audio/ogg",
    "opus": "audio/ogg",
    **{ending: kind for kind, ending in AUDIO_FORMATS.items()},
}
_SAME: Mapping[str, str] = {
    "application/x-pdf": "application/pdf",
    "application/x-zip-compressed": "application/zip",
    "application/x-yaml": "application/yaml",
    "text/x-markdown": "text/markdown",
    "text/json": "application/json",
    "image/jpg": "image/jpeg",
    "audio/x-wav": "audio/wav",
    "audio/wave": "audio/wav",
    "audio/vnd.wave": "audio/wav",
    "audio/mp3": "audio/mpeg",
    "audio/x-flac": "audio/flac",
    "audio/opus": "audio/ogg",
    "audio/m4a": "audio/mp4",
    "audio/x-m4a": "audio/mp4",
    "audio/x-aac": "audio/aac",
    "audio/aacp": "audio/aac",
}
_TEXT_TYPES = ("application/json", "application/xml", "application/yaml", "application/toml")
_ZIPPED = (f"{_OFFICE}.", "application/vnd.oasis.opendocument.", "application/epub+zip")
_MEDIA_TYPE = re.compile(r"[a-z0-9][\w.+-]*/[a-z0-9][\w.+-]*", re.ASCII)
_AUDIO_BRANDS = (b"M4A ", b"M4B ")


def media_type(value: str) -> str:
    """Return a media type in its usual spelling, without parameters; raises ValidationError."""
    kind = validate_text(value, "media_type").partition(";")[0].strip().lower()
    if not _MEDIA_TYPE.fullmatch(kind):
        raise ValidationError(
            f"A media type is written as 'application/pdf', got {short_repr(value)}."
        )
    return _SAME.get(kind, kind)


def type_of_name(name: str) -> str | None:
    """Return the media type for the ending of a file's name; None if it is not known."""
    return _ENDINGS.get(name.rpartition(".")[2].lower()) if "." in name else None


def is_text_type(kind: str) -> bool:
    """Return whether files of a media type are text."""
    return kind.startswith("text/") or kind in _TEXT_TYPES or kind.endswith(("+json", "+xml"))


def sniffed_type(head: bytes) -> str | None:
    """Return the media type whose signature is at the beginning of a file; None for no other."""
    if b"%PDF-" in head[:SNIFFED_BYTES]:
        return "application/pdf"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "application/zip"
    return _image_type(head) or _sound_type(head)


def _image_type(head: bytes) -> str | None:
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return None


def _sound_type(head: bytes) -> str | None:
    """Return the media type of audio, or of the containers that films are in too."""
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        return "audio/wav"
    if head.startswith(b"fLaC"):
        return "audio/flac"
    if head.startswith(b"OggS"):
        return "audio/ogg"
    if head[4:8] == b"ftyp":
        return "audio/mp4" if head[8:12] in _AUDIO_BRANDS else "video/mp4"
    if head.startswith(b"\x1a\x45\xdf\xa3"):
        return "video/webm"
    if head.startswith(b"ID3"):
        return "audio/mpeg"
    if len(head) > 1 and head[0] == 0xFF:  # a frame: 12 bits of sync, then version and layer
        if head[1] & 0xF6 == 0xF0:
            return "audio/aac"
        if head[1] & 0xE6 == 0xE2:
            return "audio/mpeg"
    return None


def audio_type(head: bytes) -> str | None:
    """Return the media type of a recording by its first bytes; None if it is none."""
    kind = _sound_type(head)
    return None if kind is None else kind.replace("video/", "audio/")


def fits(kind: str, head: bytes) -> bool:
    """Return whether bytes that begin with `head` may be a file of a media type.

    Text is not checked, nor a type without a signature.
    """
    found = sniffed_type(head)
    if kind in ("application/pdf", "application/zip", *IMAGE_TYPES):
        return found == kind
    if kind.startswith(_ZIPPED):
        return found == "application/zip"
    if kind in AUDIO_FORMATS:
        return audio_type(head) is not None
    return True
