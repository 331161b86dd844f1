"""Contents of a type that this program has not defined.

A message written by a program with contents of its own can be read, shown, sent on and stored by
any other: its fields are kept as data, and go back to the store exactly as they came.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from sennit.errors import CodecError, ValidationError, shown
from sennit.messages.content_base import MessageContent, MessageRole
from sennit.messages.content_registry import BUILT_IN, CONTENT_KINDS, freeze
from sennit.messages.json_values import plain_dict, text
from sennit.messages.validators import Check

if TYPE_CHECKING:
    from pydantic import BaseModel

_log = logging.getLogger(__name__)
_ROLES = {role.value: role for role in MessageRole}


def _name(value: Any, name: str) -> str:
    if not (found := text(value, name)) or found in BUILT_IN:
        raise ValidationError(
            f"{name} must be the name of a content of your own, got {shown(value)}."
        )
    return found


def _role(value: Any, name: str) -> MessageRole:
    if isinstance(value, str) and value in _ROLES:
        return _ROLES[value]
    raise ValidationError(f"{name} must be one of {MessageRole.allowed()}, got {shown(value)}.")


@dataclass(frozen=True, slots=True)
class OpaqueContent(MessageContent):
    """A content of a type that is not defined here: its name, its fields and its role, as stored.

    It reads as its fields.
    """

    _registered: ClassVar[bool] = False
    checks: ClassVar[dict[str, Check]] = {"type": _name, "fields": plain_dict, "role": _role}

    type: str
    """The name it is stored under."""
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    role: MessageRole = MessageRole.UNSET  # pyright: ignore

    @property
    def kind(self) -> str:  # pyright: ignore
        """The name it is stored under."""
        return self.type

    def record(self) -> dict[str, Any]:
        """Return the fields, shared with this content: for reading only."""
        return self.fields


freeze(OpaqueContent)


def stored_type(content: MessageContent) -> dict[str, Any]:
    """Return the type under which a content is stored; with its role, unless it is built in."""
    if (name := content.kind) in BUILT_IN:
        return {"type": name}
    return {"type": name, "role": content.role.value}


def content_of(
    name: object,
    fields: Mapping[str, Any],
    role: object = None,
    models: Mapping[str, type[BaseModel]] | None = None,
) -> MessageContent:
    """Return the content that was stored under a type's name; nothing is imported.

    With a role it is one that a program defined. If it is not defined here, or its class no longer
    takes these fields, it is opaque. Raises CodecError if the name or the role cannot be one.
    """
    if not isinstance(name, str) or (name in BUILT_IN) is not (role is None):
        raise CodecError(
            f"Unknown content type {shown(name)} with the role {shown(role)}; built in are "
            f"{sorted(BUILT_IN)}, and any other is stored with its role."
        )
    if name in BUILT_IN:
        return CONTENT_KINDS[name].from_dict(fields, models)
    if not name or not isinstance(role, str) or role not in _ROLES:
        raise CodecError(f"A stored {shown(name)} cannot have the role {shown(role)}.")
    if (kind := CONTENT_KINDS.get(name)) is not None:
        try:
            return kind.from_dict(fields, models)
        except Exception as error:  # whatever the class's own checks raise
            _log.warning("A stored %r does not fit %s and is opaque: %s", name, kind, error)
    return OpaqueContent(name, dict(fields), _ROLES[role])
