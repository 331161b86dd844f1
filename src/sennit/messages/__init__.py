"""Messages: contents, parts, encoding and rendering."""

from typing import TYPE_CHECKING

from sennit.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sennit.messages.content import Content
    from sennit.messages.output_schema import ModelSchema
    from sennit.messages.parts import MessageGroup
    from sennit.messages.provider_reply import ProviderCitation, ProviderReply, ProviderToolCall
    from sennit.messages.unset import MaybeUnset

__all__ = [
    "Content",
    "MaybeUnset",
    "MessageGroup",
    "ModelSchema",
    "ProviderCitation",
    "ProviderReply",
    "ProviderToolCall",
]

if not TYPE_CHECKING:  # to type checkers, a misspelt name is an error
    __getattr__ = lazy_exports(
        __name__,
        {
            "content": "Content",
            "output_schema": "ModelSchema",
            "parts": "MessageGroup",
            "provider_reply": "ProviderCitation ProviderReply ProviderToolCall",
            "unset": "MaybeUnset",
        },
    )
