"""Schemas of sessions, branches and messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias
from uuid import UUID

from msgspec import UNSET, UnsetType, convert

from sennit import clock
from sennit.errors import ValidationError, short_repr
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
    MessageRole,
    SystemContent,
)
from sennit.messages.message import Message, SenderRecipient
from sennit.messages.unset import Unset
from sennit.server.http.endpoint import ResponseModel
from sennit.sessions.branch import Branch
from sennit.sessions.client import SessionInfo
from sennit.sessions.repository import repository_of
from sennit.sessions.run_repository import RunRepository
from sennit.stores.records.sessions import RunRecord
from sennit.turns.subscription import has_active_run
from sennit.turns.tools.pending_calls import pending_approvals

Kind: TypeAlias = Literal["system", "instruction", "answer", "call", "result", "custom", "record"]

_KINDS: Mapping[str, Kind] = {
    "system": "system",
    "instruction": "instruction",
    "assistant_response": "answer",
    "action_request": "call",
    "action_response": "result",
}


class Origin(ResponseModel):
    """The fork point of a branch."""

    branch_id: UUID
    branch_name: str
    message_count: int


class BranchShape(ResponseModel):
    """A branch."""

    id: UUID
    name: str
    created_at: str
    message_count: int
    forked_from: Origin | None
    running: bool
    waiting: int
    """The number of tool calls that wait for approval."""
    interrupted: bool
    """Whether its last run was interrupted and can be resumed."""


class ToolCallShape(ResponseModel):
    """A tool call."""

    call_id: str
    function: str
    arguments: dict[str, Any]


class ToolResultShape(ResponseModel):
    """A tool result."""

    request_id: str
    success: bool
    result: Any = UNSET
    error: str | UnsetType = UNSET
    files: list[dict[str, Any]] | UnsetType = UNSET
    """Pictures, files and recordings, each with its `type`, `url` and `media_type`."""


class Sibling(ResponseModel):
    """Another version of a message, on another branch."""

    branch_id: UUID
    branch_name: str
    message_id: UUID


class MessageShape(ResponseModel):
    """A message and its index on a branch."""

    id: UUID
    index: int | None
    """The index on the branch, counting the system message; None if it is on none."""
    role: str
    kind: Kind
    text: str
    sender: str | None
    created_at: str
    metadata: dict[str, Any]
    siblings: list[Sibling]
    """All versions of it, itself included, oldest first; empty if there is only one."""
    reasoning: str | UnsetType = UNSET
    call: ToolCallShape | UnsetType = UNSET
    result: ToolResultShape | UnsetType = UNSET
    images: list[str] | UnsetType = UNSET
    files: list[dict[str, Any]] | UnsetType = UNSET
    """Files and recordings, each with its `type`, `url` and `media_type`."""
    context: list[Any] | UnsetType = UNSET
    type: str | UnsetType = UNSET
    """The name of an application-defined content type."""


def fields_of(shape: ResponseModel) -> dict[str, Any]:
    """Return the fields of a model, to build one that extends it."""
    return {name: getattr(shape, name) for name in shape.__struct_fields__}


def iso(moment: datetime) -> str:
    """Return a time in ISO 8601, in UTC."""
    return clock.to_iso(clock.from_datetime(moment))


def branch_shape(branch: Branch) -> BranchShape:
    """Return a branch as its schema; reads the store, so call it in a thread."""
    return _branch_shape(branch, RunRepository(branch).last())


def branch_shapes(branches: Sequence[Branch]) -> list[BranchShape]:
    """Return branches of one session as schemas, with one read for their last runs."""
    last = repository_of(branches[0].session).last_runs() if branches else {}
    return [_branch_shape(branch, last.get(branch.id)) for branch in branches]


def _branch_shape(branch: Branch, last: RunRecord | None) -> BranchShape:
    runs, origin = RunRepository(branch), branch.forked_from
    state = "ended" if last is None else last.state
    running = state == "running" and has_active_run(runs)
    waiting = len(pending_approvals(branch)) if state == "suspended" else 0
    return BranchShape(
        id=branch.id,
        name=branch.name,
        created_at=clock.to_iso(branch.created_us),
        message_count=len(branch),
        forked_from=None if origin is None else convert(origin, Origin, from_attributes=True),
        running=running,
        waiting=waiting,
        interrupted=state != "ended" and not running and not waiting,
    )


def message_shape(
    message: Message, index: int | None = None, siblings: list[Sibling] | None = None
) -> MessageShape:
    """Return a message as its schema."""
    content, fields, about = message.content, dict[str, Any](), message.about
    text = content.words
    match content:
        case _ if about is not None:  # application data: its description, without its content
            text = about
        case AssistantResponseContent():
            if content.reasoning:
                fields["reasoning"] = content.reasoning
        case InstructionContent():
            if content.images:
                fields["images"] = list(content.images)
            if content.files:
                fields["files"] = list(content.files)
            if content.context:
                fields["context"] = list(content.context)
        case ActionRequestContent():
            text, fields["call"] = "", _tool_call(message, content)
        case ActionResponseContent():
            text, fields["result"] = "", _tool_result(content)
        case SystemContent():
            pass
        case _:
            fields["type"] = content.kind
    return MessageShape(
        id=message.id,
        index=index,
        role=message.role.value,
        kind=_KINDS.get(content.kind, "custom") if about is None else "record",
        text=text,
        sender=_sender_name(message.sender),
        created_at=clock.to_iso(message.created_us),
        metadata=dict(message.metadata) if about is None else {},
        siblings=siblings or [],
        **fields,
    )


def _tool_call(message: Message, content: ActionRequestContent) -> ToolCallShape:
    return ToolCallShape(
        call_id=content.call_id or str(message.id),
        function=content.function or "",
        arguments={} if content.arguments is Unset else content.arguments,
    )


def _tool_result(content: ActionResponseContent) -> ToolResultShape:
    request, files = content.request_id or "", content.files or UNSET
    if not content.success:
        error = content.error or ""
        return ToolResultShape(request_id=request, success=False, error=error, files=files)
    value = None if content.result is Unset else content.result
    return ToolResultShape(request_id=request, success=True, result=value, files=files)


def _sender_name(party: SenderRecipient | None) -> str | None:
    if party is None:
        return None
    return party.value if isinstance(party, MessageRole) else str(party)


def as_cursor(info: SessionInfo) -> str:
    """Return the cursor of a page that ends with this session."""
    return f"{clock.from_datetime(info.updated_at)}_{info.id}"


def cursor(text: str) -> SessionInfo:
    """Parse the cursor in `before`; raise ValidationError if it is invalid."""
    moment, _, uid = text.partition("_")
    try:
        at = clock.to_datetime(int(moment))
        return SessionInfo(UUID(uid), None, at, at, {})
    except ValueError:
        raise ValidationError(
            f"before must be the 'next' of the previous page, got {short_repr(text)}."
        ) from None
