"""Pictures, files and recordings as content parts of OpenAI's Responses API."""

from __future__ import annotations

from typing import Any

from sennit.messages.image_url import is_data_url
from sennit.messages.media import (
    AudioPart,
    FilePart,
    ImagePart,
    MediaPart,
    as_data_url,
    part_of_block,
)


def input_part(part: MediaPart) -> dict[str, Any]:
    """Return a part as the API takes it."""
    match part:
        case ImagePart():
            return {
                "type": "input_image",
                "image_url": part.url,
                "detail": part.detail,
                "file_id": None,
            }
        case FilePart():
            name = {} if part.name is None else {"filename": part.name}
            place = "file_data" if is_data_url(part.url) else "file_url"
            return {"type": "input_file", **name, place: part.url}
        case AudioPart():
            data = part.url.partition(",")[2]
            return {"type": "input_audio", "input_audio": {"data": data, "format": part.format}}


def part_of_input(block: Any) -> MediaPart | None:
    """Return the part of a content part of the API; None if it is another.

    Raises ValidationError for one whose bytes or address cannot be used.
    """
    match block:
        case {"type": "input_image", "image_url": str(url), **more}:
            return ImagePart(url, more.get("detail") or "auto")
        case {"type": "input_file", "file_data": str(data), **more}:
            return FilePart(as_data_url(data), more.get("filename"))
        case {"type": "input_file", "file_url": str(url), **more}:
            return FilePart(url, more.get("filename"))
        case {"type": "input_audio"}:
            return part_of_block(block)
        case _:
            return None
