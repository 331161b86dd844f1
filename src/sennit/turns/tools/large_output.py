"""Large results of tools: stored as blobs, shown as a preview, read on with a tool.

The whole result is stored before the message with its preview, which names the blob in its
metadata. There no text of a model or a tool comes, so that the tool reads only what tools of the
same branch have returned.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sennit.errors import ToolError, ValidationError
from sennit.messages.blob_reference import OUTPUT_KEY, BlobReference
from sennit.messages.codec import dumps
from sennit.messages.content import ActionResponseContent
from sennit.services.tools.tool import Tool
from sennit.sessions.repository import repository_of

if TYPE_CHECKING:
    from sennit.sessions.branch import Branch
    from sennit.sessions.session import SessionCore
    from sennit.turns.options import SessionOptions
    from sennit.turns.request import Request

READ_OUTPUT = "read_tool_output"
"""The name of the tool that reads on."""
_PREVIEW_SHARE = 10  # of the limit that a preview has


def with_reader(request: Request, options: SessionOptions) -> Request:
    """Return a request with the tool that reads large results, if results are limited."""
    limit = options.max_output_chars
    if limit is None or repository_of(request.session).blobs is None:
        return request
    return replace(request, tools={READ_OUTPUT: _reader(request.branch, limit), **request.tools})


async def stored_result(session: SessionCore, value: Any, limit: int | None) -> dict[str, Any]:
    """Return the outcome of a call: its result, or the preview of one beyond the limit."""
    if limit is None or repository_of(session).blobs is None:
        return {"result": value}
    text = value if isinstance(value, str) else dumps(value).decode()
    if len(text) <= limit:
        return {"result": value}
    kind = "text/plain" if isinstance(value, str) else "application/json"
    data = text.encode()
    try:
        blob = await session.aput_blob(data, kind)
    except ValidationError:  # the user has no room for more
        return {"result": value}
    preview = text[: max(1, limit // _PREVIEW_SHARE)]
    note = _note(len(preview.encode()), len(data), _name(blob.reference))
    return {"result": f"{preview}\n{note}", OUTPUT_KEY: blob.reference}


def _name(reference: str) -> str:
    """Return the name of a result, by which the model asks for it."""
    named = BlobReference.of(reference)
    return "" if named is None else f"output_{named.hash.hex()[:16]}"


def _note(shown: int, size: int, name: str) -> str:
    if shown >= size:
        return f"[End of {name}.]"
    return (
        f"[{shown:,} of {size:,} bytes. Go on with {READ_OUTPUT}(output={name!r}, start={shown}).]"
    )


def _reader(branch: Branch, limit: int) -> Tool[..., Any]:
    session = branch.session

    async def read_tool_output(output: str, start: int = 0, length: int = limit) -> str:
        """Read on in a tool's result that was too long to be shown whole.

        Args:
            output: The name of the result, as its preview gives it.
            start: The number of bytes to skip, as the preview or the last page gives it.
            length: The number of bytes to read.
        """
        reference = _stored_outputs(branch).get(output)
        if reference is None:
            raise ToolError(f"No result {output!r} was stored here; its preview gives its name.")
        if start < 0 or length < 1:
            raise ToolError("start must be 0 or more, and length 1 or more.")
        blob = await session.aopen_blob(reference)
        page = await session.aread_blob(reference, start, min(length, limit) + 4)
        text = page[: min(length, limit)].decode(errors="ignore") or page.decode(errors="ignore")
        return f"{text}\n{_note(start + len(text.encode()), blob.size, output)}"

    return Tool(read_tool_output, name=READ_OUTPUT, replay="safe")


def _stored_outputs(branch: Branch) -> dict[str, str]:
    """Return the references of the large results on a branch, by name."""
    with branch.session.lock:
        messages = branch.messages
    references = [
        message.metadata[OUTPUT_KEY]
        for message in messages
        if isinstance(message.content, ActionResponseContent) and OUTPUT_KEY in message.metadata
    ]
    return {_name(reference): reference for reference in references if isinstance(reference, str)}
