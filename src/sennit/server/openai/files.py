"""Files in the messages of clients, in the formats of OpenAI's APIs.

Bytes come in base64. Nothing is fetched: an address stays one, which the provider of a model may
fetch. Ids would name files of another service.
"""

from __future__ import annotations

import msgspec

from sennit.errors import ValidationError
from sennit.messages.media import AudioPart, FilePart, as_data_url


class FileFields(msgspec.Struct, frozen=True):
    """A file, in the formats of both of OpenAI's APIs."""

    filename: str | None = None
    file_data: str | None = None
    """The bytes in base64, or as a `data:` URL."""
    file_id: str | None = None


class AudioFields(msgspec.Struct, frozen=True):
    """A recording in base64."""

    data: str
    format: str


def file_part(file: FileFields, address: str | None = None) -> FilePart:
    """Return a file that a client sends; raises ValidationError if it is none."""
    source = as_data_url(file.file_data) if file.file_data is not None else address
    if source is None:
        raise ValidationError(
            "A file by its 'file_id' is not supported: send its bytes in base64 as 'file_data', or "
            "its address."
        )
    return FilePart(source, file.filename)


def audio_part(audio: AudioFields) -> AudioPart:
    """Return a recording that a client sends; raises ValidationError if it is none."""
    return AudioPart(as_data_url(audio.data))
