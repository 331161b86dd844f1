"""Sennit: conversations with language models that branch.

One Session holds many branches of typed messages:

    from sennit import Session, Message, InstructionContent

    session = Session()
    main = session.create_branch(name="main")
    session.add_message(Message(InstructionContent(instruction="Hello")), branches=main)
    other = session.fork(main, name="other")
"""

from sennit.api.client import Client
from sennit.api.models import models_pull
from sennit.api.open import open
from sennit.api.session import Session
from sennit.containers.element import Element
from sennit.containers.flow import Flow
from sennit.containers.pile import Pile
from sennit.containers.progression import Progression
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
    OutOfRangeError,
    OutputError,
    RunError,
    SennitError,
    ServiceError,
    StoreError,
    ToolError,
    ValidationError,
)
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
from sennit.messages.native import to_model_messages
from sennit.messages.parts import ContextPart, ImagePart, MessageGroup, TextPart, ToolPart
from sennit.messages.prepare import prepare_messages_for_chat
from sennit.messages.unset import Unset
from sennit.operations.context import OperationContext
from sennit.operations.ipu import IPU
from sennit.operations.operation import Operation
from sennit.operations.registry import OperationRegistry
from sennit.services.imodel import iModel
from sennit.services.registry import ServiceRegistry
from sennit.services.target import ToolContext
from sennit.services.tools import Tool
from sennit.sessions.branch import Branch

__all__ = [
    "IPU",
    "AccessError",
    "ActionRequestContent",
    "ActionResponseContent",
    "ArchiveError",
    "AssistantResponseContent",
    "Branch",
    "Client",
    "CodecError",
    "ConflictError",
    "ContextPart",
    "Element",
    "ExistsError",
    "Flow",
    "ImagePart",
    "InstructionContent",
    "InvalidTypeError",
    "Message",
    "MessageContent",
    "MessageGroup",
    "MessageRole",
    "MissingExtraError",
    "ModelError",
    "NotFoundError",
    "Operation",
    "OperationContext",
    "OperationRegistry",
    "OutOfRangeError",
    "OutputError",
    "Pile",
    "Progression",
    "RunError",
    "SenderRecipient",
    "SennitError",
    "ServiceError",
    "ServiceRegistry",
    "Session",
    "StoreError",
    "SystemContent",
    "TextPart",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolPart",
    "Unset",
    "ValidationError",
    "iModel",
    "models_pull",
    "open",
    "prepare_messages_for_chat",
    "to_model_messages",
]
