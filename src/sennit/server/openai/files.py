"""Files in the messages of clients: the text of a text file, below its name.

Files come with their bytes in base64. Nothing is fetched, and ids name files of another service.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as NotBase64

import msgspec

from sennit.errors import ValidationError

_WAY_OUT = "send the bytes of the file in base64 as 'file_data'."


class FileFields(msgspec.Struct, frozen=True):
    """A file, in the formats of both of OpenAI's APIs."""

    filename: str | None = None
    file_data: str | None = None
    """The bytes in base64, or as a `data:` URL."""
    file_id: str | None = None


def file_text(file: FileFields) -> str:
    """Return the text of a text file, below its name; raise ValidationError for any other file."""
    if file.file_data is None:
        raise ValidationError(f"A file by its id or address is not supported; {_WAY_OUT}")
    is_url = file.file_data.startswith("data:")
    head, _, data = file.file_data.rpartition(",") if is_url else ("", "", file.file_data)
    if is_url and not head.endswith(";base64"):
        raise ValidationError(f"The 'file_data' is a 'data:' URL without base64; {_WAY_OUT}")
    try:
        text = b64decode(data, validate=True).decode()
    except NotBase64:
        raise ValidationError(f"The 'file_data' is not base64; {_WAY_OUT}") from None
    except UnicodeError:
        text = "\0"
    if "\0" in text:
        name = file.filename or head.removeprefix("data:").partition(";")[0]
        raise ValidationError(
            f"The file {name[:100]!r} is not text in UTF-8, and other files are not supported; "
            f"send its text, or its pages as images."
        )
    return "\n".join(filter(None, (file.filename, text)))
