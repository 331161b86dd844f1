"""A message: one content, a sender, a recipient and a time.

It never changes after it is made, so branches, sessions and threads can share it. Its role follows
from its content. Two messages are equal when their ids are.
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
from sennit.errors import CodecError, InvalidTypeError, SennitError, StoreError, shown
from sennit.ids import new_id
from sennit.messages.codec import dumps, loads, reader
from sennit.messages.content import CONTENT_KINDS, MessageContent, MessageRole, Rendered
from sennit.messages.content_registry import BUILT_IN
from sennit.messages.json_values import plain_dict, text
from sennit.messages.opaque_content import content_of, stored_type

if TYPE_CHECKING:
    from pydantic import BaseModel

    from sennit.messages.parts import Part

SenderRecipient: TypeAlias = MessageRole | str | UUID
"""Who sent or gets a message: a role, a name, or the id of a branch, session or agent."""

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
ABOUT = "about"
"""Under this name in its metadata, a message that only carries data says what it is."""
_KEYS = frozenset(
    {"id", "created_at", "type", "role", "content", "sender", "recipient", "metadata"}
)
_IN_BODY = frozenset({"_content", "_sender", "_recipient", "_metadata"})
_BUILT_IN = {name: CONTENT_KINDS[name] for name in BUILT_IN}
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
    """What is left to be read of a message that a store kept."""
    _content: MessageContent
    _sender: SenderRecipient | None
    _recipient: SenderRecipient | None

    def __init__(
        self,
        content: MessageContent | Mapping[str, Any],
        sender: SenderRecipient | None = None,
        recipient: SenderRecipient | None = None,
        id: UUID | str | None = None,
        created_at: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
        **unknown: Never,
    ) -> None:
        if unknown:
            raise _no_such_field(unknown)
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
    def content(self) -> MessageContent:
        """The content."""
        return self._content

    @property
    def about(self) -> str | None:
        """A description of a message that has no text and only carries data; else None."""
        told = self.metadata.get(ABOUT) if self._content.empty else None
        return told if isinstance(told, str) else None

    @property
    def role(self) -> MessageRole:
        """The role, which the type of the content decides."""
        return self._content.role

    @property
    def rendered(self) -> Rendered:
        """The content as text, or as blocks when it holds images."""
        return self._content.rendered

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
        """To whom, if known."""
        return self._recipient

    @property
    def parts(self) -> list[Part]:
        """This message's own parts: text, images, contexts, or its side of a tool call."""
        from sennit.messages.parts import parts_of  # parts are built on messages

        return parts_of(self)

    def clone(self, sender: SenderRecipient | None = None) -> Message:
        """A copy under a new id; its metadata records `clone_from` and `original_created_at`."""
        from sennit.messages.parts import regrouped  # parts are built on messages

        return Message(
            self._content,
            sender=self._sender if sender is None else sender,
            recipient=self._recipient,
            metadata={
                **regrouped(self.metadata),
                "clone_from": str(self.id),
                "original_created_at": clock.to_iso(self.created_us),
            },
        )

    def to_dict(self) -> dict[str, Any]:
        """The whole message as plain data of the caller's own."""
        return self._record(self._content.to_dict(), plain_dict(self.metadata, "metadata"))

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], models: Mapping[str, type[BaseModel]] | None = None
    ) -> Message:
        """The message that `to_dict` wrote; nothing is imported or executed.

        `models` gives classes back by name. Raises CodecError when a key is missing or unknown, and
        ValidationError when a value is not acceptable.
        """
        if not isinstance(data, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise CodecError(f"A stored message is a dict, got {shown(data)}.")
        if wrong := (data.keys() - _KEYS) | ({"id", "created_at", "type", "content"} - data.keys()):
            raise CodecError(
                f"A stored message has wrong or missing keys: {sorted(map(str, wrong))}."
            )
        if not isinstance(data["content"], Mapping):
            raise CodecError(
                f"The content of a stored message is a dict, got {shown(data['content'])}."
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
            id=text(data["id"], "id"),
            created_at=clock.from_iso(data["created_at"]),
            metadata=data.get("metadata"),
        )

    def to_json(self) -> str:
        """The whole message as one line of JSON."""
        return dumps(self._record(self._content.record(), dict(self.metadata))).decode()

    @classmethod
    def from_json(
        cls, data: str | bytes, models: Mapping[str, type[BaseModel]] | None = None
    ) -> Message:
        """The message that `to_json` wrote; raises CodecError if it is not sound."""
        return cls.from_dict(loads(data), models)

    def to_record(self) -> dict[str, Any]:
        """All but the id and the time, as stores keep it; shared with this message, to be read."""
        metadata = self._metadata
        return self._said(self._content.record(), dict(metadata) if metadata else {})

    @classmethod
    def just_said(
        cls, content: MessageContent, sender: SenderRecipient | None, created: int
    ) -> Message:
        """A new message of a content, made at these microseconds."""
        message = object.__new__(cls)
        message._id, message._created, message._metadata = new_id(), created, NO_METADATA
        message._body, message._content, message._recipient = b"", content, None
        message._sender = None if sender is None else party(sender, "sender")
        return message

    @classmethod
    def kept(cls, id: UUID, created: int, body: bytes) -> Message:
        """The message a store kept: its id, microseconds, and the JSON of its `to_record`.

        The body is read when someone looks at it, so a long session opens fast; one that is not
        sound raises StoreError then.
        """
        message = object.__new__(cls)
        message._id, message._created, message._body = id, created, body
        return message

    @classmethod
    def from_record(cls, id: UUID, created: int, record: Mapping[str, Any]) -> Message:
        """The message in a record from outside, checked in full; raises as from_dict does."""
        return cls.from_dict({**record, "id": str(id), "created_at": clock.to_iso(created)})

    def __getattr__(self, name: str) -> Any:
        # Only asked for what is not there: the rest of a kept message, until it is read.
        if name not in _IN_BODY:
            raise AttributeError(f"Message has no attribute {name!r}.")
        try:
            self._read_rest()
        except (SennitError, TypeError, ValueError, LookupError, AttributeError) as error:
            raise StoreError(
                f"Message {self._id} cannot be read: it is damaged in the store. Run "
                f"`sennit doctor`, and restore a backup."
            ) from error
        return object.__getattribute__(self, name)

    def _read_rest(self) -> None:
        # Not by way of a new message: a long history is read at once, and this is most of its cost.
        record = _read_body(self._body)
        kind = _BUILT_IN.get(record.type)
        if kind is None or record.role is not None:
            content = content_of(record.type, record.content, record.role)
        else:
            content = kind.restored(record.content)
        sender = None if record.sender is None else party(record.sender, "sender")
        recipient = None if record.recipient is None else party(record.recipient, "recipient")
        # What was written was checked, and its checksum tells that it is the same.
        metadata = NO_METADATA if record.metadata is None else read_only(record.metadata)
        self._content, self._sender, self._recipient = content, sender, recipient
        self._metadata = metadata
        self._body = b""

    def __getstate__(self) -> Any:
        if self._body:
            self.__getattr__("_content")
        return super().__getstate__()

    def _record(self, fields: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": str(self._id),
            "created_at": clock.to_iso(self._created),
            **self._said(fields, metadata),
        }

    def _said(self, fields: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
        record: dict[str, Any] = stored_type(self._content)
        record["content"] = fields
        if self._sender is not None:
            record["sender"] = _written(self._sender)
        if self._recipient is not None:
            record["recipient"] = _written(self._recipient)
        if metadata:
            record["metadata"] = metadata
        return record

    def __repr__(self) -> str:
        said = " ".join(self._content.words.split())
        return f"Message({self.role.value}, {said[:40]!r}, id={self._id})"


def _content_from(content: Any) -> MessageContent:
    if isinstance(content, Mapping):
        return MessageContent.from_dict(cast("Mapping[str, Any]", content))
    raise InvalidTypeError(
        f"content must be one of the five contents, an instance of your own content type, or a "
        f"dict of the fields of one of the five, got {shown(content)}. For plain text use "
        f"InstructionContent(instruction=...)."
    )


def party(value: Any, name: str) -> SenderRecipient:
    """A sender or recipient; role names and UUID strings become what they name.

    Raises InvalidTypeError or ValidationError, naming `name`.
    """
    if isinstance(value, (MessageRole, UUID)):
        return value
    if not isinstance(value, str):
        raise InvalidTypeError(f"{name} must be a role, a UUID or a name, got {shown(value)}.")
    if value in _ROLES:
        return _ROLES[value]
    return UUID(value) if _UUID.fullmatch(value) else text(value, name)


def _written(party: SenderRecipient) -> str:
    return str.__str__(party) if isinstance(party, MessageRole) else str(party)


def _no_such_field(unknown: Mapping[str, Any]) -> InvalidTypeError:
    if "role" in unknown:
        return InvalidTypeError(
            "'role' is not a field of Message: it follows from the content's type. "
            "Use the content whose role you want, such as AssistantResponseContent."
        )
    return InvalidTypeError(f"Message has no field {', '.join(map(repr, sorted(unknown)))}.")
