"""A message: one content, a sender, a recipient and a time.

It is immutable, so branches, sessions and threads can share it. Its role follows from its content.
Two messages are equal if their ids are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Never, TypeAlias, cast
from uuid import UUID

import msgspec

from sennit import clock
from sennit.containers.element import NO_METADATA, Element, read_only
from sennit.errors import (
    CodecError,
    InvalidTypeError,
    SennitError,
    StoreError,
    did_you_mean,
    listed,
    short_repr,
)
from sennit.ids import new_id
from sennit.messages.codec import dumps, loads, reader
from sennit.messages.content import (
    CONTENT_KINDS,
    Content,
    MessageContent,
    MessageRole,
    Rendered,
)
from sennit.messages.content_registry import BUILT_IN
from sennit.messages.json_values import plain_dict, validate_text
from sennit.messages.opaque_content import content_of, stored_type

if TYPE_CHECKING:
    from pydantic import BaseModel

    from sennit.messages.parts import Part

SenderRecipient: TypeAlias = MessageRole | str | UUID
"""A sender or recipient: a role, a name, or the id of a branch, session or agent."""

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
ABOUT = "about"
"""The metadata key that describes a message without text."""
_KEYS = frozenset(
    {"id", "created_at", "type", "role", "content", "sender", "recipient", "metadata"}
)
_LAZY_FIELDS = frozenset({"_content", "_sender", "_recipient", "_metadata"})
_BUILT_IN_KINDS = {name: CONTENT_KINDS[name] for name in BUILT_IN}
_ROLES = {role.value: role for role in MessageRole}


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    """The stored form of a message, without its id and time."""

    type: str
    role: str | None = None
    content: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    sender: str | None = None
    recipient: str | None = None
    metadata: dict[str, Any] | None = None


_read_body = reader(_Body)


class Message(Element, key="content"):
    """One content with an id, a time, and optionally a sender, a recipient and metadata.

    `content` is one of the five contents, one of a type of your own, or a dict whose keys belong to
    exactly one of the five. Raises InvalidTypeError or ValidationError for anything else.
    """

    __slots__ = ("_body", "_content", "_recipient", "_sender")

    _body: bytes
    """The JSON of a stored message that is not decoded yet; else empty."""
    _content: MessageContent
    _sender: SenderRecipient | None
    _recipient: SenderRecipient | None

    def __init__(
        self,
        content: MessageContent | Mapping[str, Any],
        sender: SenderRecipient | None = None,
        recipient: SenderRecipient | None = None,
        id: UUID | str | None = None,
        created_at: datetime | str | None = None,
        metadata: Mapping[str, Any] | None = None,
        **unknown: Never,
    ) -> None:
        if unknown:
            raise _unknown_field_error(unknown)
        Element.__init__(
            self,
            id=id,
            created_at=created_at,
            metadata=None if metadata is None else plain_dict(metadata, "metadata"),
        )
        self._body = b""
        if isinstance(content, MessageContent) and type(content) is not MessageContent:
            self._content = content
        else:
            self._content = _content_from(content)
        self._sender = None if sender is None else party(sender, "sender")
        self._recipient = None if recipient is None else party(recipient, "recipient")

    @property
    def content(self) -> Content:
        """The content; `match` and `isinstance` narrow it to one type."""
        return self._content

    @property
    def about(self) -> str | None:
        """The description of a message without text, if its metadata has one."""
        description = self.metadata.get(ABOUT) if self._content.empty else None
        return description if isinstance(description, str) else None

    @property
    def role(self) -> MessageRole:
        """The role, given by the type of the content."""
        return self._content.role

    @property
    def text(self) -> str:
        """The plain text without headings; for a tool call or result, its whole rendering."""
        return self._content.words

    @property
    def rendered(self) -> Rendered:
        """The content as text, or as blocks when it holds images."""
        return self._content.rendered

    @property
    def rendered_text(self) -> str:
        """The content as text, also when it holds images."""
        return self._content.rendered_text

    @property
    def chat_msg(self) -> dict[str, Any]:
        """`{"role": ..., "content": ...}` for a chat API."""
        return self._content.chat_msg

    @property
    def sender(self) -> SenderRecipient | None:
        """The sender, if known."""
        return self._sender

    @property
    def recipient(self) -> SenderRecipient | None:
        """The recipient, if known."""
        return self._recipient

    @property
    def parts(self) -> list[Part]:
        """The parts of this message: text, images, contexts, a tool call or its result."""
        from sennit.messages.parts import parts_of  # parts are built on messages

        return parts_of(self)

    def clone(self, sender: SenderRecipient | None = None) -> Message:
        """Return a copy with a new id and `clone_from` and `original_created_at` metadata."""
        from sennit.messages.parts import regroup_metadata  # parts are built on messages

        return Message(
            self._content,
            sender=self._sender if sender is None else sender,
            recipient=self._recipient,
            metadata={
                **regroup_metadata(self.metadata),
                "clone_from": str(self.id),
                "original_created_at": clock.to_iso(self.created_us),
            },
        )

    def with_content(self, content: MessageContent) -> Message:
        """Return the same message, with its id and all else, in which the content is another."""
        message = object.__new__(type(self))
        message._id, message._created, message._metadata = self._id, self._created, self._metadata
        message._body, message._content = b"", content
        message._sender, message._recipient = self._sender, self._recipient
        return message

    def to_dict(self) -> dict[str, Any]:
        """Return the whole message as a dict of plain data, a deep copy."""
        return self._record(self._content.to_dict(), plain_dict(self.metadata, "metadata"))

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], models: Mapping[str, type[BaseModel]] | None = None
    ) -> Message:
        """Return the message that `to_dict` wrote; nothing is imported or executed.

        `models` maps names to the classes to restore. Raises CodecError if a key is missing or
        unknown, and ValidationError if a value is invalid.
        """
        if not isinstance(data, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise CodecError(f"A stored message is a dict, got {short_repr(data)}.")
        if wrong := (data.keys() - _KEYS) | ({"id", "created_at", "type", "content"} - data.keys()):
            raise CodecError(f"A stored message has wrong or missing keys: {listed(wrong)}.")
        if not isinstance(data["content"], Mapping):
            raise CodecError(
                f"The content of a stored message is a dict, got {short_repr(data['content'])}."
            )
        return cls(
            content_of(
                data["type"],
                cast("Mapping[str, Any]", data["content"]),
                data.get("role"),
                models,
            ),
            sender=data.get("sender"),
            recipient=data.get("recipient"),
            id=validate_text(data["id"], "id"),
            created_at=clock.from_iso(data["created_at"]),
            metadata=data.get("metadata"),
        )

    def to_json(self) -> str:
        """Return the whole message as one line of JSON."""
        return dumps(self._record(self._content.record(), dict(self.metadata))).decode()

    @classmethod
    def from_json(
        cls, data: str | bytes, models: Mapping[str, type[BaseModel]] | None = None
    ) -> Message:
        """Return the message that `to_json` wrote; raises CodecError if it is invalid."""
        return cls.from_dict(loads(data), models)

    def to_record(self) -> dict[str, Any]:
        """Return the stored form without id and time; it shares data, so do not change it."""
        metadata = self._metadata
        return self._body_record(self._content.record(), dict(metadata) if metadata else {})

    @classmethod
    def create_unchecked(
        cls, content: MessageContent, sender: SenderRecipient | None, created: int
    ) -> Message:
        """Return a new message of a valid content, created at these microseconds."""
        message = object.__new__(cls)
        message._id, message._created, message._metadata = new_id(), created, NO_METADATA
        message._body, message._content, message._recipient = b"", content, None
        message._sender = None if sender is None else party(sender, "sender")
        return message

    @classmethod
    def from_stored(cls, id: UUID, created: int, body: bytes) -> Message:
        """Return a stored message from its id, microseconds and the JSON of its `to_record`.

        The body is decoded on first access, so a long session opens fast; a corrupt one raises
        StoreError then.
        """
        message = object.__new__(cls)
        message._id, message._created, message._body = id, created, body
        return message

    @classmethod
    def from_record(cls, id: UUID, created: int, record: Mapping[str, Any]) -> Message:
        """Return the message in an untrusted record, fully validated; raises as from_dict does."""
        return cls.from_dict({**record, "id": str(id), "created_at": clock.to_iso(created)})

    if not TYPE_CHECKING:  # to type checkers, a misspelt attribute is an error

        def __getattr__(self, name: str) -> Any:
            # Only called for missing attributes: those of a stored message not decoded yet.
            if name not in _LAZY_FIELDS:
                raise AttributeError(_unknown_attribute(name))
            self._decode()
            return object.__getattribute__(self, name)

    def _decode(self) -> None:
        """Decode a stored message; raises StoreError if it is corrupt."""
        try:
            self._decode_body()
        except (SennitError, TypeError, ValueError, LookupError, AttributeError) as error:
            raise StoreError(
                f"Message {self._id} cannot be read: it is damaged in the store. Run "
                f"`sennit doctor`, and restore a backup."
            ) from error

    def _decode_body(self) -> None:
        # Bypasses the constructor: decoding dominates the time to read a long history.
        record = _read_body(self._body)
        kind = _BUILT_IN_KINDS.get(record.type)
        if kind is None or record.role is not None:
            content = content_of(record.type, record.content, record.role)
        else:
            content = kind.from_record(record.content)
        sender = None if record.sender is None else party(record.sender, "sender")
        recipient = None if record.recipient is None else party(record.recipient, "recipient")
        # Stored metadata was validated on writing, and a checksum protects it.
        metadata = NO_METADATA if record.metadata is None else read_only(record.metadata)
        self._content, self._sender, self._recipient = content, sender, recipient
        self._metadata = metadata
        self._body = b""

    def __getstate__(self) -> Any:
        if self._body:
            self._decode()
        return super().__getstate__()

    def _record(self, fields: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": str(self._id),
            "created_at": clock.to_iso(self._created),
            **self._body_record(fields, metadata),
        }

    def _body_record(self, fields: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
        record: dict[str, Any] = stored_type(self._content)
        record["content"] = fields
        if self._sender is not None:
            record["sender"] = _party_text(self._sender)
        if self._recipient is not None:
            record["recipient"] = _party_text(self._recipient)
        if metadata:
            record["metadata"] = metadata
        return record

    def __repr__(self) -> str:
        text = " ".join(self._content.words.split())
        return f"Message({self.role.value}, {text[:40]!r}, id={self._id})"


def _content_from(content: Any) -> MessageContent:
    if isinstance(content, Mapping):
        return MessageContent.from_dict(cast("Mapping[str, Any]", content))
    raise InvalidTypeError(
        f"content must be one of the five contents, an instance of your own content type, or a "
        f"dict of the fields of one of the five, got {short_repr(content)}. For plain text use "
        f"InstructionContent(instruction=...)."
    )


def party(value: Any, name: str) -> SenderRecipient:
    """Return a sender or recipient; converts role names and UUID strings.

    Raises InvalidTypeError or ValidationError, naming `name`.
    """
    if isinstance(value, (MessageRole, UUID)):
        return value
    if not isinstance(value, str):
        raise InvalidTypeError(f"{name} must be a role, a UUID or a name, got {short_repr(value)}.")
    if value in _ROLES:
        return _ROLES[value]
    return UUID(value) if _UUID.fullmatch(value) else validate_text(value, name)


def _party_text(party: SenderRecipient) -> str:
    return str.__str__(party) if isinstance(party, MessageRole) else str(party)


def _unknown_attribute(name: str) -> str:
    public = [known for known in dir(Message) if not known.startswith("_")]
    return f"Message has no attribute {name!r}.{did_you_mean(name, public, limit=1)}"


def _unknown_field_error(unknown: Mapping[str, Any]) -> InvalidTypeError:
    if "role" in unknown:
        return InvalidTypeError(
            "'role' is not a field of Message: it follows from the content's type. "
            "Use the content whose role you want, such as AssistantResponseContent."
        )
    return InvalidTypeError(f"Message has no field {', '.join(map(repr, sorted(unknown)))}.")
