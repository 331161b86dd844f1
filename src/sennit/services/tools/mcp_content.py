"""Content of MCP results, converted to text that can be stored.

A server is a stranger: its tools may have any name, descriptions of any length, schemas of any size
and results of any kind. All of it passes through here and comes out bounded and plain. A tool that
cannot be offered is left out, with the reason; the others are not the worse for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from sennit.errors import ToolError, ValidationError
from sennit.messages.codec import dumps
from sennit.messages.json_values import plain_dict
from sennit.messages.typescript import ToolSchema

MAX_TOOLS = 500
_MAX_NAME = 64
_MAX_DESCRIPTION = 10_000
_MAX_SCHEMA = 100_000
_MAX_DATA = 32_768
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")


def schema_of(listed: Mapping[str, Any], prefix: str | None) -> ToolSchema:
    """A tool as the server lists it, under a name that providers take.

    Raises ValidationError, saying why, if it cannot be offered to a model.
    """
    parameters = plain_dict(listed.get("inputSchema"), "its schema")
    if parameters.get("type") != "object":
        raise ValidationError("its schema is not that of an object.")
    if (size := len(dumps(parameters))) > _MAX_SCHEMA:
        raise ValidationError(f"its schema has {size:,} bytes, and {_MAX_SCHEMA:,} are allowed.")
    name = str(listed.get("name") or "")
    if not name:
        raise ValidationError("it has no name.")
    sound = _NOT_IN_A_NAME.sub("_", f"{prefix}_{name}" if prefix else name)
    if len(sound) > _MAX_NAME:
        raise ValidationError(f"its name is longer than {_MAX_NAME} characters.")
    return ToolSchema(sound, _description(listed), parameters)


def _description(listed: Mapping[str, Any]) -> str:
    said = str(listed.get("description") or listed.get("title") or "")
    sound = said.encode(errors="replace").decode().replace("\0", "")
    return sound if len(sound) <= _MAX_DESCRIPTION else f"{sound[:_MAX_DESCRIPTION]}…"


def result_of(answer: Mapping[str, Any]) -> Any:
    """Return the result of a call: structured content if there is any, else text, else the parts.

    Raises ToolError with the server's own words if the call failed.
    """
    pieces = [_piece(one) for one in cast("Iterable[Any]", answer.get("content") or ())]
    texts = [piece["text"] for piece in pieces if piece.keys() == {"type", "text"}]
    if answer.get("isError"):
        raise ToolError("\n".join(texts) or "The server says that the call failed, not why.")
    structured = answer.get("structuredContent")
    if len(texts) == len(pieces):
        return structured if structured is not None else "\n".join(texts) if texts else None
    if structured is None:
        return pieces
    return [{"type": "structured", "value": structured}, *pieces]


def _piece(given: Mapping[str, Any]) -> dict[str, Any]:
    """One piece of a result; of large pictures and files, only what they are."""
    inner = given.get("resource")
    piece = {**given, **cast("Mapping[str, Any]", inner or {})}
    kept = {
        key: piece[key]
        for key in ("type", "text", "uri", "name", "title", "description", "mimeType")
        if piece.get(key) is not None
    }
    data = piece.get("data", piece.get("blob"))
    if isinstance(data, str):
        if len(data) <= _MAX_DATA:
            kept["data"] = data
        else:
            kept["left_out"] = f"{len(data):,} characters of base64"
    return kept
