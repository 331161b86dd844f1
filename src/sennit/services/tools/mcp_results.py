"""Results of MCP tools: values, and the pictures, recordings and files beside them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, cast

from sennit.errors import ToolError, ValidationError
from sennit.messages.media import AudioPart, FilePart, ImagePart, MediaPart
from sennit.messages.media_types import OCTETS

_PARTS: Mapping[str, type[ImagePart | AudioPart]] = {"image": ImagePart, "audio": AudioPart}


def result_of(answer: Mapping[str, Any]) -> Any:
    """Return the result of a call: structured content if there is any, else text, else the blocks.

    With pictures, recordings and files it is a list of that and their parts. Raises ToolError with
    the server's message if the call failed.
    """
    blocks: list[dict[str, Any]] = []
    files: list[MediaPart] = []
    for block in cast("Iterable[Mapping[str, Any]]", answer.get("content") or ()):
        if (file := _file_of(block)) is not None:
            files.append(file)
        else:
            blocks.append(_content_block(block))
    texts = [piece["text"] for piece in blocks if piece.keys() == {"type", "text"}]
    if answer.get("isError"):
        raise ToolError("\n".join(texts) or "The server reported a failed call without a message.")
    value = answer.get("structuredContent")
    if len(texts) == len(blocks):
        value = "\n".join(texts) if value is None and texts else value
    else:
        value = blocks if value is None else [{"type": "structured", "value": value}, *blocks]
    if not files:
        return value
    return files if value is None else [value, *files]


def _content_block(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return one content block; bytes that are no valid file become a note of their size."""
    resource = block.get("resource")
    merged = {**block, **cast("Mapping[str, Any]", resource or {})}
    result = {
        key: merged[key]
        for key in ("type", "text", "uri", "name", "title", "description", "mimeType")
        if merged.get(key) is not None
    }
    data = merged.get("data", merged.get("blob"))
    if isinstance(data, str):
        result["left_out"] = f"{len(data):,} characters of base64"
    return result


def _file_of(block: Mapping[str, Any]) -> MediaPart | None:
    """Return the picture, recording or file that a block holds; None if it holds none.

    Bytes that are not what the server says are a file of unknown type.
    """
    match block:
        case {"type": "image" | "audio" as kind, "data": str(data)}:
            source, name = block, None
        case {"type": "resource", "resource": {"blob": str(data), "uri": str(uri)} as source}:
            kind, name = "file", re.split("[?#]", uri)[0].rpartition("/")[2] or None
        case _:
            return None
    url = f"data:{source.get('mimeType') or ''};base64,{data}"
    with suppress(ValidationError):
        return _PARTS[kind](url) if kind in _PARTS else FilePart(url, name)
    with suppress(ValidationError):
        return FilePart(f"data:;base64,{data}", name, OCTETS)
    return None
