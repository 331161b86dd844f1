"""Contents of a type that this program has not defined.

Any program can read, render, send and store a message with a content type of another program: its
fields are preserved as data and written back unchanged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, cast

from sennit.errors import CodecError, ValidationError, listed, short_repr
from sennit.messages.blob_reference import BlobReference
from sennit.messages.content_base import MessageContent, MessageRole
from sennit.messages.content_registry import BUILT_IN, CONTENT_KINDS, freeze
from sennit.messages.json_values import plain_dict, validate_text
from sennit.messages.validators import Check

if TYPE_CHECKING:
    from pydantic import BaseModel

_log = logging.getLogger(__name__)
_ROLES = {role.value: role for role in MessageRole}


def _check_name(value: Any, name: str) -> str:
    if not (kind_name := validate_text(value, name)) or kind_name in BUILT_IN:
        raise ValidationError(
            f"{name} must be the name of a content of your own, got {short_repr(value)}."
        )
    return kind_name


def _check_role(value: Any, name: str) -> MessageRole:
    if isinstance(value, str) and value in _ROLES:
        return _ROLES[value]
    raise ValidationError(
        f"{name} must be one of {listed(MessageRole.allowed())}, got {short_repr(value)}."
    )


@dataclass(frozen=True, slots=True)
class OpaqueContent(MessageContent):
    """A content of an undefined type: its name, fields and role, as stored.

    It renders as its fields.
    """

    _registered: ClassVar[bool] = False
    checks: ClassVar[dict[str, Check]] = {
        "type": _check_name,
        "fields": plain_dict,
        "role": _check_role,
    }

    type: str
    """The name it is stored under."""
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    """The stored fields, unchanged."""
    role: MessageRole = MessageRole.UNSET  # pyright: ignore
    """The role of the message."""

    @property
    def kind(self) -> str:  # pyright: ignore
        """The name it is stored under."""
        return self.type

    def record(self) -> dict[str, Any]:
        """Return the fields, shared with this content: for reading only."""
        return self.fields

    @property
    def attachment_urls(self) -> Sequence[str]:
        """The fields that are references to blobs, at any depth: its class may have them there."""
        return [text for text in _strings(self.fields) if BlobReference.of(text) is not None]


def _strings(value: Any) -> Iterator[str]:
    """Yield the strings in a JSON value."""
    match value:
        case str():
            yield value
        case dict():
            for item in cast("dict[str, Any]", value).values():
                yield from _strings(item)
        case list():
            for item in cast("list[Any]", value):
                yield from _strings(item)
        case _:
            pass


freeze(OpaqueContent)


def stored_type(content: MessageContent) -> dict[str, Any]:
    """Return the stored type of a content, with its role unless it is built in."""
    if (name := content.kind) in BUILT_IN:
        return {"type": name}
    return {"type": name, "role": content.role.value}


def content_of(
    name: object,
    fields: Mapping[str, Any],
    role: object = None,
    models: Mapping[str, type[BaseModel]] | None = None,
) -> MessageContent:
    """Return the content stored under a type name; nothing is imported.

    Types that a program defined are stored with a role. If the type is not defined here, or its
    class rejects the fields, the content is opaque. Raises CodecError for an invalid name or role.
    """
    if not isinstance(name, str) or (name in BUILT_IN) is not (role is None):
        raise CodecError(
            f"Unknown content type {short_repr(name)} with the role {short_repr(role)}; built in "
            f"are {listed(BUILT_IN)}, and any other is stored with its role."
        )
    if name in BUILT_IN:
        return CONTENT_KINDS[name].from_dict(fields, models)
    if not name or not isinstance(role, str) or role not in _ROLES:
        raise CodecError(f"A stored {short_repr(name)} cannot have the role {short_repr(role)}.")
    if (kind := CONTENT_KINDS.get(name)) is not None:
        try:
            return kind.from_dict(fields, models)
        except Exception as error:  # whatever the class's own checks raise
            _log.warning("A stored %r does not fit %s and is opaque: %s", name, kind, error)
    return OpaqueContent(name, dict(fields), _ROLES[role])
