"""Sennit: conversations with language models that branch.

One Session holds many branches of typed messages:

    from sennit import Session, Message, InstructionContent

    session = Session()
    main = session.create_branch(name="main")
    session.add_message(Message(InstructionContent(instruction="Hello")), branches=main)
    other = session.fork(main, name="other")
"""

from typing import TYPE_CHECKING

from sennit.api.local_models import models_pull
from sennit.api.open import conversation
from sennit.api.open import open as open  # not in __all__: a star import keeps the builtin
from sennit.api.session import Session
from sennit.errors import (
    AccessError,
    ArchiveError,
    CodecError,
    ConflictError,
    ExistsError,
    InvalidTypeError,
    MissingExtraError,
    ModelError,
    NotFoundError,
    NothingToAskError,
    OutOfRangeError,
    OutputError,
    PolicyError,
    RunError,
    SennitError,
    ServiceError,
    StoreError,
    ToolError,
    UsageError,
    ValidationError,
)
from sennit.lazy_exports import lazy_exports
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
    MessageContent,
    MessageRole,
    SystemContent,
)
from sennit.messages.message import Message, SenderRecipient
from sennit.messages.opaque_content import OpaqueContent
from sennit.messages.unset import Unset
from sennit.sessions.branch import Branch

if TYPE_CHECKING:
    from sennit.api.client import Client
    from sennit.messages.media import AudioPart, FilePart, ImagePart
    from sennit.messages.parts import ContextPart, TextPart, ToolPart
    from sennit.messages.prompt.plain_chat import prepare_messages_for_chat
    from sennit.messages.prompt.tool_chat import to_model_messages
    from sennit.operations.ipu import IPU
    from sennit.operations.operation import Operation
    from sennit.operations.registry import OperationRegistry
    from sennit.services.models.imodel import iModel
    from sennit.services.registry import ServiceRegistry
    from sennit.services.tools.tool import Tool
    from sennit.turns.conversation import ConversationSession
    from sennit.turns.observers import ConversationObserver
    from sennit.turns.options import SessionOptions, StreamingOptions
    from sennit.turns.request import Request
    from sennit.turns.result import Return
    from sennit.turns.special.definition import (
        GreetingSpecialTurn,
        InteractionFilter,
        PersistenceStrategy,
        SpecialTurn,
    )

__all__ = [
    "IPU",
    "AccessError",
    "ActionRequestContent",
    "ActionResponseContent",
    "ArchiveError",
    "AssistantResponseContent",
    "AudioPart",
    "Branch",
    "Client",
    "CodecError",
    "ConflictError",
    "ContextPart",
    "ConversationObserver",
    "ConversationSession",
    "ExistsError",
    "FilePart",
    "GreetingSpecialTurn",
    "ImagePart",
    "InstructionContent",
    "InteractionFilter",
    "InvalidTypeError",
    "Message",
    "MessageContent",
    "MessageRole",
    "MissingExtraError",
    "ModelError",
    "NotFoundError",
    "NothingToAskError",
    "OpaqueContent",
    "Operation",
    "OperationRegistry",
    "OutOfRangeError",
    "OutputError",
    "PersistenceStrategy",
    "PolicyError",
    "Request",
    "Return",
    "RunError",
    "SenderRecipient",
    "SennitError",
    "ServiceError",
    "ServiceRegistry",
    "Session",
    "SessionOptions",
    "SpecialTurn",
    "StoreError",
    "StreamingOptions",
    "SystemContent",
    "TextPart",
    "Tool",
    "ToolError",
    "ToolPart",
    "Unset",
    "UsageError",
    "ValidationError",
    "conversation",
    "iModel",
    "models_pull",
    "prepare_messages_for_chat",
    "to_model_messages",
]

if not TYPE_CHECKING:  # to type checkers, a misspelt name is an error
    # Imported on first access, because they are slow to import and often not needed.
    __getattr__ = lazy_exports(
        __name__,
        {
            "api.client": "Client",
            "messages.media": "AudioPart FilePart ImagePart",
            "messages.parts": "ContextPart TextPart ToolPart",
            "messages.prompt.plain_chat": "prepare_messages_for_chat",
            "messages.prompt.tool_chat": "to_model_messages",
            "operations.ipu": "IPU",
            "operations.operation": "Operation",
            "operations.registry": "OperationRegistry",
            "services.models.imodel": "iModel",
            "services.registry": "ServiceRegistry",
            "services.tools.tool": "Tool",
            "turns.conversation": "ConversationSession",
            "turns.observers": "ConversationObserver",
            "turns.options": "SessionOptions StreamingOptions",
            "turns.request": "Request",
            "turns.result": "Return",
            "turns.special.definition": (
                "GreetingSpecialTurn InteractionFilter PersistenceStrategy SpecialTurn"
            ),
        },
    )
