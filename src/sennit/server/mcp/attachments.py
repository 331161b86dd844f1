"""Pictures, recordings and files of messages, as results of MCP tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote

from sennit.errors import OutOfRangeError, ValidationError
from sennit.messages.image_url import is_data_url
from sennit.messages.media import AudioPart, FilePart, ImagePart, MediaPart, label, part_bytes
from sennit.messages.media_types import is_text_type
from sennit.messages.message import Message
from sennit.messages.parts import ToolPart
from sennit.sessions.blobs import inline_blobs
from sennit.sessions.branch import Branch

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

MAX_ATTACHMENT_CHARS = 5_000_000
"""The maximum length of an attachment as base64."""


def attachments_of(message: Message) -> Iterator[MediaPart]:
    """Yield the pictures, recordings and files of a message or of a tool's result."""
    for part in message.parts:
        if isinstance(part, MediaPart):
            yield part
        elif isinstance(part, ToolPart):
            yield from part.files


def find_attachment(branch: Branch, index: int, number: int) -> MediaPart:
    """Return an attachment with its bytes; raises OutOfRangeError, ValidationError if too large."""
    with branch.session.lock:
        count = len(branch)
        messages = branch.session.messages.pick(branch[index : index + 1])
    inlined = inline_blobs(branch.session, messages)
    attachments = [part for message in inlined for part in attachments_of(message)]
    if number >= len(attachments):
        raise OutOfRangeError(
            f"Branch {branch.name!r} has {count} messages, and message {index} has "
            f"{len(attachments)} attachments; got number {number}. See read_session."
        )
    part = attachments[number]
    if len(part.url) > MAX_ATTACHMENT_CHARS:
        raise ValidationError(
            f"The attachment {label(part)} is too large: {MAX_ATTACHMENT_CHARS:,} characters of "
            f"base64 are allowed."
        )
    return part


def file_result(part: MediaPart) -> CallToolResult:
    """Return an attachment as the result of a tool."""
    from mcp_types import CallToolResult

    return CallToolResult(content=[_content(part)])


def _content(part: MediaPart) -> ContentBlock:
    from mcp_types import (
        AudioContent,
        BlobResourceContents,
        EmbeddedResource,
        ImageContent,
        ResourceLink,
        TextResourceContents,
    )

    kind, name = part.media_type, part.name if isinstance(part, FilePart) else None
    if not is_data_url(part.url):
        return ResourceLink(uri=part.url, name=name or part.url, mime_type=kind)
    data = part.url.partition(",")[2]
    if isinstance(part, ImagePart):
        return ImageContent(data=data, mime_type=kind)
    if isinstance(part, AudioPart):
        return AudioContent(data=data, mime_type=kind)
    uri = f"attachment:///{quote(name or 'file')}"
    if is_text_type(kind):
        text = part_bytes(part).decode(errors="replace")
        contents = TextResourceContents(uri=uri, mime_type=kind, text=text)
    else:
        contents = BlobResourceContents(uri=uri, mime_type=kind, blob=data)
    return EmbeddedResource(resource=contents)
