"""Sanitised content of MCP servers: tool schemas and results.

A server is untrusted: names, descriptions, schemas and results may be of any kind and size. Here
they become JSON data of limited size. A tool that cannot be offered raises ValidationError with the
reason, and does not affect the others.
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
_MAX_NAME_CHARS = 64
_MAX_DESCRIPTION_CHARS = 10_000
_MAX_SCHEMA_BYTES = 100_000
_MAX_DATA_CHARS = 32_768
_INVALID_NAME_CHARS = re.compile(r"[^a-zA-Z0-9_-]")


def schema_of(listed: Mapping[str, Any], prefix: str | None) -> ToolSchema:
    """Return the schema of a listed tool, under a name that providers accept.

    Raises ValidationError if the tool cannot be offered to a model.
    """
    parameters = plain_dict(listed.get("inputSchema"), "its schema")
    if parameters.get("type") != "object":
        raise ValidationError("its schema is not that of an object.")
    if (size := len(dumps(parameters))) > _MAX_SCHEMA_BYTES:
        raise ValidationError(
            f"its schema has {size:,} bytes, and {_MAX_SCHEMA_BYTES:,} are allowed."
        )
    name = str(listed.get("name") or "")
    if not name:
        raise ValidationError("it has no name.")
    tool_name = _INVALID_NAME_CHARS.sub("_", f"{prefix}_{name}" if prefix else name)
    if len(tool_name) > _MAX_NAME_CHARS:
        raise ValidationError(f"its name is longer than {_MAX_NAME_CHARS} characters.")
    return ToolSchema(tool_name, _description(listed), parameters)


def _description(listed: Mapping[str, Any]) -> str:
    text = str(listed.get("description") or listed.get("title") or "")
    clean = text.encode(errors="replace").decode().replace("\0", "")
    return clean if len(clean) <= _MAX_DESCRIPTION_CHARS else f"{clean[:_MAX_DESCRIPTION_CHARS]}…"


def result_of(answer: Mapping[str, Any]) -> Any:
    """Return the result of a call: structured content if there is any, else text, else the parts.

    Raises ToolError with the server's message if the call failed.
    """
    blocks = [_content_block(block) for block in cast("Iterable[Any]", answer.get("content") or ())]
    texts = [piece["text"] for piece in blocks if piece.keys() == {"type", "text"}]
    if answer.get("isError"):
        raise ToolError("\n".join(texts) or "The server reported a failed call without a message.")
    structured = answer.get("structuredContent")
    if len(texts) == len(blocks):
        return structured if structured is not None else "\n".join(texts) if texts else None
    if structured is None:
        return blocks
    return [{"type": "structured", "value": structured}, *blocks]


def _content_block(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return one content block; large binary data is replaced by a note of its size."""
    resource = block.get("resource")
    merged = {**block, **cast("Mapping[str, Any]", resource or {})}
    result = {
        key: merged[key]
        for key in ("type", "text", "uri", "name", "title", "description", "mimeType")
        if merged.get(key) is not None
    }
    data = merged.get("data", merged.get("blob"))
    if isinstance(data, str):
        if len(data) <= _MAX_DATA_CHARS:
            result["data"] = data
        else:
            result["left_out"] = f"{len(data):,} characters of base64"
    return result
