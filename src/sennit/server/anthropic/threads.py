"""Threads: conversations that the server holds, continued from the id of a message that it sent.

A request that continues a thread brings only new messages. The system text and the tools are those
of the request that created it, kept in the metadata of its first new message; the requests after it
refer to that message. If one message is continued twice, the second time makes a fork.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from sennit.server.anthropic.message_events import MESSAGE_PREFIX
from sennit.server.anthropic.message_schemas import MessagesRequest, OfferedTool, ThreadParam
from sennit.server.http.callers import Caller
from sennit.server.http.errors import HTTPError, bad_param
from sennit.server.openai.stored_responses import StoredResponse, find_response

_KEY = "thread"  # in the metadata of the first new message of each request


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread that a request continues."""

    previous: StoredResponse
    """The answer that it is continued from."""
    root: str
    """The id of the message that keeps the system text and the tools."""
    settings: dict[str, Any]
    """The system text and the tools."""
    system: str | None
    """The system text, with what was added since the thread was created."""

    def complete(self, body: MessagesRequest) -> MessagesRequest:
        """Return a request with what the thread keeps; raise HTTPError 400 if it repeats that."""
        for name in ("system", "tools"):
            if getattr(body, name):
                message = f"A thread keeps its {name!r}; leave it out, or create a new thread."
                raise bad_param(name, message)
        tools = msgspec.convert(self.settings["tools"], list[OfferedTool])
        return replace(body, system=self.system, tools=tools)

    def notes(self, system: str | None) -> dict[str, Any]:
        """Return what the first new message of the request keeps, whose system text this is."""
        changed = {} if system == self.settings["system"] else {"system": system}
        return {_KEY: {"root": self.root, **changed}}


def thread_notes(body: MessagesRequest, system: str | None) -> dict[str, Any]:
    """Return what the first new message of the request that creates a thread keeps."""
    return {_KEY: {"system": system, "tools": msgspec.to_builtins(body.tools or ())}}


async def find_thread(caller: Caller, param: ThreadParam) -> Thread | None:
    """Return the thread that a request continues; None if it creates one.

    Raises HTTPError 404 if the owner has no complete answer with that id.
    """
    if param.type == "create":
        return None
    name = param.previous_message_id or ""
    previous = await find_response(caller, name, MESSAGE_PREFIX, _KEY)
    if previous is None or not previous.answer.is_complete:
        raise _not_found(name)
    notes = previous.first.metadata[_KEY]
    root = notes.get("root", previous.first.id.hex)
    messages = previous.session.messages
    if UUID(hex=root) not in messages:  # removed since
        raise _not_found(name)
    settings = messages[UUID(hex=root)].metadata[_KEY]
    return Thread(previous, root, settings, notes.get("system", settings["system"]))


def _not_found(name: str) -> HTTPError:
    message = (
        f"There is no thread with a message {name[:100]!r}; send the whole conversation to create "
        f"one."
    )
    details = {"error_code": "thread_not_found"}
    return HTTPError(
        404, "thread_not_found", message, param="thread.previous_message_id", details=details
    )
