"""/v1/responses/compact: a conversation as its user messages and a summary of the rest.

The summary is in the `encrypted_content` of a compaction item, which a client sends back among the
items of its next request. It is the client's own text, encoded and not encrypted.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sennit.errors import CodecError, ValidationError
from sennit.messages.codec import dumps, loads
from sennit.messages.content import InstructionContent, MessageRole
from sennit.messages.message import Message

COMPACTION = "compaction"
"""The type of a compaction item."""
_HEAD = "This is a summary of the conversation so far:\n\n"
_SUMMARY = "summary"


def compaction_item(uid: UUID, summary: str) -> dict[str, Any]:
    """Return a compaction item."""
    content = urlsafe_b64encode(dumps({_SUMMARY: summary})).decode()
    return {"id": f"cmp_{uid.hex}", "type": COMPACTION, "encrypted_content": content}


def summary_message(content: str) -> Message:
    """Return the message for a compaction item; raises ValidationError if it is another's."""
    try:
        fields: Any = loads(urlsafe_b64decode(content))
        summary = fields[_SUMMARY]
    except (ValueError, CodecError, KeyError, TypeError):
        raise ValidationError(
            "The 'encrypted_content' of a compaction item must come from /v1/responses/compact of "
            "this server."
        ) from None
    text = InstructionContent(instruction=f"{_HEAD}{summary}")
    return Message(text, sender=MessageRole.USER)


def user_messages(messages: Sequence[Message]) -> list[Message]:
    """Return the messages of the user, without earlier summaries."""
    return [
        message
        for message in messages
        if isinstance(message.content, InstructionContent)
        and not (message.content.instruction or "").startswith(_HEAD)
    ]
