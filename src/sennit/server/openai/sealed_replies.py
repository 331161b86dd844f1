"""Replies that a client keeps for the server: `encrypted_content` of a reasoning item.

A response that is not stored leaves nothing here, so what its provider signed would be lost with
the next request. A client that includes `reasoning.encrypted_content` gets the messages of the
reply as one text, and sends it back with them. The text is authenticated with a key of this
process, not secret. One from elsewhere, or of a reply that the client has changed, has no effect.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from hashlib import blake2b
from hmac import compare_digest
from secrets import token_bytes
from typing import Any
from uuid import UUID

from sennit.messages.codec import dumps, loads
from sennit.messages.message import Message
from sennit.messages.provider_state import STATE_KEY
from sennit.server.openai.history import turns_of

INCLUDE = "reasoning.encrypted_content"
"""The value of `include` by which a client asks for it."""
_MAC_BYTES = 16
_KEY = token_bytes(32)


def sealed_item(messages: Sequence[Message]) -> dict[str, Any] | None:
    """Return the reasoning item with the messages of a reply; None if it has no provider state."""
    if not any(STATE_KEY in message.metadata for message in messages):
        return None
    data = dumps([message.to_dict() for message in messages])
    return {
        "id": f"rs_{_item_id(messages[-1].id).hex}",
        "type": "reasoning",
        "status": "completed",
        "summary": [],
        "content": [],
        "encrypted_content": urlsafe_b64encode(_mac(data) + data).decode(),
    }


def unseal(text: str, sent: Sequence[Message]) -> list[Message] | None:
    """Return the sealed messages of the reply that a client sent; None if they are not the same."""
    try:
        raw = urlsafe_b64decode(text)
    except ValueError:
        return None
    mac, data = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
    if not compare_digest(mac, _mac(data)):
        return None
    messages = [Message.from_dict(fields) for fields in loads(data)]
    if [turn.digest for turn in turns_of(messages)] != [turn.digest for turn in turns_of(sent)]:
        return None
    return [_copy(message) for message in messages]


def _copy(message: Message) -> Message:
    """Return the message with a new id; its tokens were counted already."""
    metadata = {key: value for key, value in message.metadata.items() if key != "usage"}
    return Message(message.content, sender=message.sender, metadata=metadata)


def _item_id(last: UUID) -> UUID:
    """Return an id that is no message's."""
    return UUID(bytes=blake2b(last.bytes, digest_size=16, person=b"sealed").digest())


def _mac(data: bytes) -> bytes:
    return blake2b(data, key=_KEY, digest_size=_MAC_BYTES).digest()
