"""Names, positions and shapes of lionpride for Sennit's sessions, operations and containers.

    from sennit.compat.lionpride import GenerateParams, Session, generate, iModel

The classes are subclasses of Sennit's own and keep their behaviour: branches share history, and a
registered service or output schema has to be granted to a branch that names it. The modules are
named as lionpride's, so `from lionpride.services import iModel` becomes
`from sennit.compat.lionpride.services import iModel`.
"""

from sennit.compat.lionpride.core import Element, Flow, Pile, Progression
from sennit.compat.lionpride.operations import (
    IPU,
    CommunicateParams,
    GenerateParams,
    OperateParams,
    OperationRegistry,
    ParseParams,
    ReactParams,
    ReactResult,
    communicate,
    generate,
    operate,
    parse,
    react,
)
from sennit.compat.lionpride.services import ServiceRegistry, Tool, iModel
from sennit.compat.lionpride.session import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    Branch,
    InstructionContent,
    Message,
    MessageContent,
    MessageRole,
    Operation,
    SenderRecipient,
    Session,
    SystemContent,
    prepare_messages_for_chat,
    serialize_sender_recipient,
    validate_sender_recipient,
)
from sennit.errors import AccessError, ExistsError, NotFoundError, ValidationError
from sennit.messages.unset import Unset

__all__ = [
    "IPU",
    "AccessError",
    "ActionRequestContent",
    "ActionResponseContent",
    "AssistantResponseContent",
    "Branch",
    "CommunicateParams",
    "Element",
    "ExistsError",
    "Flow",
    "GenerateParams",
    "InstructionContent",
    "Message",
    "MessageContent",
    "MessageRole",
    "NotFoundError",
    "OperateParams",
    "Operation",
    "OperationRegistry",
    "ParseParams",
    "Pile",
    "Progression",
    "ReactParams",
    "ReactResult",
    "SenderRecipient",
    "ServiceRegistry",
    "Session",
    "SystemContent",
    "Tool",
    "Unset",
    "ValidationError",
    "communicate",
    "generate",
    "iModel",
    "operate",
    "parse",
    "prepare_messages_for_chat",
    "react",
    "serialize_sender_recipient",
    "validate_sender_recipient",
]
