"""Sessions and branches with lionpride's names, positions and dicts."""

# An operation becomes one with a `response` by its parts.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, cast
from uuid import UUID

from sennit.api.session import Session as _Session
from sennit.compat.lionpride.core import (
    Flow,
    PileNames,
    Progression,
    element_dict,
    element_fields,
    field_of,
    flow_dict,
    progression_dict,
)
from sennit.compat.lionpride.operations import arguments_for, run_operation, values_of
from sennit.compat.lionpride.services import ServiceRegistry
from sennit.containers.element import uid_of
from sennit.containers.flow import Flow as _Flow
from sennit.errors import CodecError, InvalidTypeError
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
    MessageContent,
    MessageRole,
    SystemContent,
)
from sennit.messages.message import Message, SenderRecipient, party
from sennit.messages.prompt.plain_chat import prepare_messages_for_chat
from sennit.operations.operation import Operation as _Operation
from sennit.operations.registry import OperationRegistry
from sennit.services.models.protocol import Model
from sennit.services.registry import ServiceRegistry as _ServiceRegistry
from sennit.sessions.branch import Branch as _Branch
from sennit.sessions.branches import BranchRef
from sennit.sessions.views import MessagePile

__all__ = [
    "ActionRequestContent",
    "ActionResponseContent",
    "AssistantResponseContent",
    "Branch",
    "InstructionContent",
    "Message",
    "MessageContent",
    "MessageRole",
    "Operation",
    "SenderRecipient",
    "Session",
    "SystemContent",
    "prepare_messages_for_chat",
    "serialize_sender_recipient",
    "validate_sender_recipient",
]


def validate_sender_recipient(value: object) -> SenderRecipient:
    """Return a sender or recipient; converts role names and UUID strings, and None to UNSET."""
    return MessageRole.UNSET if value is None else party(value, "sender or recipient")


def serialize_sender_recipient(value: SenderRecipient | None) -> str | None:
    """Return a sender or recipient as text."""
    return value.value if isinstance(value, MessageRole) else None if value is None else str(value)


class Branch(_Branch):
    """A branch whose `system` is an id, with `order`, `set_system_message` and `to_dict`."""

    __slots__ = ()

    @property
    def system(self) -> UUID | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The id of the system message; `session.get_branch_system` returns the message."""
        return self.system_id

    @property
    def system_message(self) -> UUID | None:
        """The same as `system`, under its newer name."""
        return self.system_id

    @property
    def session_id(self) -> UUID:
        """The id of its session."""
        return self.session.id

    @property
    def order(self) -> list[UUID]:
        """The ids of the messages in order, as a copy."""
        return self[:]

    def set_system_message(self, message: Message | UUID) -> None:
        """Set the system message."""
        self.session.set_branch_system(self, message)

    def to_dict(self) -> dict[str, Any]:
        """Return the name, ids, system message and grants as plain data."""
        return {
            **progression_dict(self),
            "session_id": str(self.session_id),
            "system": None if self.system is None else str(self.system),
            "capabilities": sorted(self.capabilities),
            "resources": sorted(self.resources),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], session: Session | None = None) -> Branch:
        """Create the branch that `to_dict` wrote in a session that has its messages.

        Data grant nothing: the branch is fenced until the program grants its services again.
        """
        if session is None:
            raise InvalidTypeError(
                "A branch belongs to a session: pass it, Branch.from_dict(data, session), or load "
                "the whole session with Session.from_dict."
            )
        order = field_of(data, "order", list)
        return session.create_branch(
            data.get("name"), messages=order, resources=(), capabilities=()
        )


class SessionMessages(PileNames[Message], MessagePile):
    """The messages of a session, with the names of `Pile` that do not replace one."""

    __slots__ = ()


class Session(_Session, key="conversations"):
    """A session with default models, positions and shapes of lionpride.

    `default_generate_model` answers operations that name no model, `default_parse_model` converts
    texts for `parse`; both are registered. `default_branch` is created with grants for them, the
    `default_capabilities` and the `default_system`.
    """

    branch_type: ClassVar[type[_Branch]] = Branch
    message_pile_type: ClassVar[type[MessagePile]] = SessionMessages

    def __init__(
        self,
        user: SenderRecipient | None = None,
        conversations: _Flow[Message, Any] | None = None,
        services: _ServiceRegistry | None = None,
        operations: OperationRegistry | None = None,
        store: Any = None,
        *,
        default_branch: str | None = None,
        default_generate_model: Model | str | None = None,
        default_parse_model: Model | str | None = None,
        default_capabilities: Iterable[str] | None = None,
        default_system: Message | str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            "user" if user is None else user,
            conversations,
            ServiceRegistry() if services is None else services,
            operations,
            store,
            **options,
        )
        self._default_models: dict[str, str] = {}
        self._default_branch: UUID | None = None
        for operation, model in (
            ("generate", default_generate_model),
            ("parse", default_parse_model),
        ):
            if model is not None:
                self.set_default_model(model, operation)
        if default_branch is not None:
            branch = self.create_branch(
                default_branch,
                system=default_system,
                resources=set(self._default_models.values()),
                capabilities=set(default_capabilities or ()),
            )
            self._default_branch = branch.id

    @property
    def messages(self) -> SessionMessages:
        """All messages by id, whether on a branch or not."""
        return cast("SessionMessages", super().messages)

    @property
    def default_branch(self) -> Branch:
        """The branch set with `set_default_branch`, else "main", created on first access."""
        if self._default_branch is not None:
            return cast("Branch", self.get_branch(self._default_branch))
        return cast("Branch", super().default_branch)

    def set_default_branch(self, branch: BranchRef) -> None:
        """Set the branch for calls that name none; raises NotFoundError."""
        self._default_branch = self.get_branch(branch).id

    def set_default_model(self, model: Model | str, operation: str = "generate") -> None:
        """Set the model for operations that name none, and grant it to the default branch."""
        if not isinstance(model, str):
            self.services.register(model)
        name = model if isinstance(model, str) else model.name
        self.services.model(name)
        self._default_models[operation] = name
        if self._default_branch is not None:
            self.get_branch(self._default_branch).grant(resources={name})

    def default_model_name(self, operation: str) -> str | None:
        """Return the name of the model for "generate" or "parse" calls that name none."""
        return self._default_models.get(operation)

    @property
    def default_generate_model(self) -> Model | None:
        """The model for operations that name none."""
        return self._default_model("generate")

    @property
    def default_parse_model(self) -> Model | None:
        """The model for `parse` calls that name none."""
        return self._default_model("parse")

    def _default_model(self, operation: str) -> Model | None:
        name = self._default_models.get(operation)
        return None if name is None else self.services.model(name)

    def create_branch(
        self,
        name: str | None = None,
        *,
        system: Message | UUID | str | None = None,
        capabilities: Any = None,
        resources: Any = None,
        messages: Iterable[UUID | Message | str] | None = None,
    ) -> Branch:
        """Create a branch, with `messages` of the session in this order."""
        branch = super().create_branch(
            name, system=system, capabilities=capabilities, resources=resources
        )
        if messages is not None:
            try:
                branch.extend([uid_of(message) for message in messages])
            except BaseException:
                self.remove_branch(branch)
                raise
        return cast("Branch", branch)

    async def conduct(self, *args: Any, **named: Any) -> Operation:
        """Return an operation, ready to invoke: `conduct(branch, operation, ipu)`.

        In the newer order, `conduct(operation, branch, params)`, it has already run.
        """
        runs = "operation_type" in named or self._is_operation(args)
        names = ("operation", "branch", "params") if runs else ("branch", "operation", "ipu")
        if len(args) > len(names):
            raise InvalidTypeError(f"conduct takes {', '.join(names)}, got {len(args)} values.")
        given = dict(zip(names, args, strict=False)) | named
        operation = given.pop("operation_type", None) or given.pop("operation")
        branch = self.get_branch(given.pop("branch", None) or self.default_branch)
        ipu, params = given.pop("ipu", None), values_of(given.pop("params", None)) | given
        arguments = arguments_for(self, branch, operation, params)
        conducted = Operation.of(
            await super().conduct(branch=branch, operation=operation, ipu=ipu, params=arguments)
        )
        if runs:
            await conducted.invoke()
        return conducted

    def _is_operation(self, args: Sequence[object]) -> bool:
        """Return whether the values of `conduct` start with an operation, not a branch."""
        first, second = (*args, None, None)[:2]
        return first in self.operations and not (
            isinstance(second, str) and second in self.operations
        )

    async def invoke(
        self, operation: str, branch: BranchRef | None = None, parameters: Any = None
    ) -> Any:
        """Run an operation and return its result."""
        return await run_operation(self, branch or self.default_branch, operation, parameters)

    def register_operation(
        self, name: str, function: Callable[..., Any], *, override: bool = False
    ) -> None:
        """Register an operation; see `OperationRegistry.register`."""
        self.operations.register(name, function, replace=override)

    def to_dict(self) -> dict[str, Any]:
        """Return the messages and branches as plain data, without services and operations."""
        conversations = flow_dict(self.conversations)
        conversations["progressions"]["items"] = [
            branch.to_dict() for branch in self.branches if isinstance(branch, Branch)
        ]
        return {
            **element_dict(self),
            "user": serialize_sender_recipient(self.user),
            "conversations": conversations,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], **options: Any) -> Self:
        """Return the session that `to_dict` wrote; `options` are those of the constructor.

        Data grant nothing: its branches are fenced until the program grants their services again.
        """
        stored = field_of(data, "conversations", dict)
        if "id" not in data:
            raise CodecError("A stored session lacks the key 'id'.")
        flow = Flow[Message, Progression].from_dict(stored)
        session = cls(data.get("user"), flow, **element_fields(data), **options)
        for branch in session.branches:
            branch.grant(resources=(), capabilities=())
        return session


class Operation(_Operation):
    """An operation whose result is also called `response`."""

    @classmethod
    def of(cls, operation: _Operation) -> Self:
        """Return the same operation as this class."""
        return cls(
            operation._spec,
            operation._context,
            operation._params,
            operation._needs,
            operation._ipu,
        )

    @property
    def response(self) -> Any:
        """The result; None before it is done."""
        return self.result
