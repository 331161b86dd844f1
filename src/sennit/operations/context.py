"""The context of an operation: its session, branch and services.

Names of services are resolved here only, and never without checking the grants of the branch. A
string is always a registered name. A service that is passed as an object needs no grant, unless the
branch is fenced: then its name must be granted like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sennit.errors import ExistsError, InvalidTypeError, short_repr
from sennit.messages.content import InstructionContent
from sennit.messages.message import Message, SenderRecipient
from sennit.services.models.protocol import Model, is_model
from sennit.services.tools.tool import Tool
from sennit.sessions.grants import Needs, check_access
from sennit.sessions.service_call import as_list

if TYPE_CHECKING:
    from sennit.operations.params import Tools
    from sennit.services.registry import ServiceRegistry
    from sennit.sessions.branch import Branch
    from sennit.sessions.session import SessionCore


@dataclass(frozen=True, slots=True)
class OperationContext:
    """The session and the branch of an operation; its first argument."""

    session: SessionCore
    """The session of the operation."""
    branch: Branch
    """The branch the operation works on."""

    def model(self, imodel: str | Model) -> Model:
        """Return a model by name; raises NotFoundError, or AccessError if it is not granted."""
        names = frozenset({model_grant_name(self.session.services, imodel)})
        if isinstance(imodel, str):
            check_access(self.branch, Needs(resources=names))
            return self.session.services.model(imodel)
        check_access(self.branch, Needs(passed_resources=names))
        return imodel

    def tools(self, tools: Tools) -> list[Tool]:
        """Return tools by name; a typed function becomes a tool. Raises as `model` does."""
        services = self.session.services
        requested = as_list(tools)
        registered = frozenset(
            tool_grant_name(services, tool) for tool in requested if isinstance(tool, str)
        )
        all_names = frozenset(tool_grant_name(services, tool) for tool in requested)
        check_access(self.branch, Needs(resources=registered, passed_resources=all_names))
        return [services.as_tool(tool) for tool in requested]


def model_grant_name(services: ServiceRegistry, imodel: Any) -> str:
    """Return the name to grant for a model; raises NotFoundError or InvalidTypeError."""
    if isinstance(imodel, str):
        services.model(imodel)
        return imodel
    if is_model(imodel):
        return services.name_of(imodel) or imodel.name
    raise InvalidTypeError(f"imodel must be a model or the name of one, got {short_repr(imodel)}.")


def tool_grant_name(services: ServiceRegistry, tool: Any) -> str:
    """Return the name to grant for a tool; raises NotFoundError or InvalidTypeError."""
    if isinstance(tool, str):
        return services.tool(tool).name
    if (registered := services.name_of(tool)) is not None:
        return registered
    if isinstance(tool, Tool):
        return tool.name
    name = getattr(tool, "__name__", None)
    if callable(tool) and not isinstance(tool, type) and isinstance(name, str):
        return name
    raise InvalidTypeError(
        "A tool is a Tool, a typed function or the name of a registered one, got "
        f"{short_repr(tool)}."
    )


def instruction_message(
    where: OperationContext, instruction: Any, *, sender: SenderRecipient | None, **fields: Any
) -> tuple[Message, InstructionContent]:
    """Return the instruction as a new message; `fields` apply only to a string.

    Raises InvalidTypeError for anything else, ExistsError for a message that is already stored.
    """
    if isinstance(instruction, str):
        instruction = InstructionContent.create(instruction=instruction, **fields)
    elif names := [name for name, value in fields.items() if value is not None]:
        raise InvalidTypeError(
            f"{', '.join(names)} can be passed only with a text instruction; put them into the "
            f"InstructionContent."
        )
    if isinstance(instruction, Message) and sender is not None:
        raise InvalidTypeError("A Message has its own sender; leave sender out.")
    content = instruction.content if isinstance(instruction, Message) else instruction
    if not isinstance(content, InstructionContent):
        raise InvalidTypeError(f"An instruction is needed, got {short_repr(content)}.")
    if not isinstance(instruction, Message):
        return Message(content, sender=where.session.user if sender is None else sender), content
    if instruction in where.session.messages:
        raise ExistsError(
            f"Message {instruction.id} is already in the session; clone() it to send it again, or "
            f"use the operation 'generate' to have it answered."
        )
    return instruction, content
