"""Pydantic AI conversation store and message history.

    store = SennitConversationStore(client)               # for `conversation=`
    history = SennitMessageHistory(client, "chat_001")    # for `message_history=`

The history is one branch of a session, as in the other adapters. The store holds what Pydantic AI
calls a conversation: a log of entries, and a record with the id of the last one. A conversation and
all its forks are one session (see `conversations`): forks share entries, and each conversation is
also a branch, so search, memory and the studio can read it.
"""

# The async methods match the base class, but pyright cannot tell from the type of async_method.
# pyright: reportAssignmentType=false

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import RLock
from typing import Any, Final, cast

from pydantic import TypeAdapter

from sennit.errors import MissingExtraError

try:
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )
    from pydantic_ai.messages import (
        AudioUrl,
        BinaryContent,
        DocumentUrl,
        ImageUrl,
        ModelMessage,
        ModelMessagesTypeAdapter,
        ModelRequest,
        TextContent,
        UserContent,
        UserPromptPart,
    )
except ImportError as error:
    raise MissingExtraError.of("sennit.adapters.pydantic_ai", "pydantic-ai") from error

from sennit.adapters.branch_history import BranchHistory
from sennit.adapters.message_mapping import (
    MediaMaker,
    MessageFormat,
    answer,
    call,
    instruction,
    result,
)
from sennit.adapters.pydantic_ai.conversations import (
    ConversationFamilies,
    ConversationFamily,
    RecordUpdate,
    StoredEntry,
)
from sennit.api.client import Client
from sennit.errors import ConflictError, NotFoundError
from sennit.messages.content import MessageContent
from sennit.messages.media import AudioPart, FilePart, ImagePart, MediaPart
from sennit.messages.media_types import IMAGE_TYPES
from sennit.services.models.providers.translate import layer_messages
from sennit.sessions.async_method import async_method

__all__ = ["SennitConversationStore", "SennitMessageHistory"]

_RECORD_ADAPTER = TypeAdapter(ConversationRecord)


def _contents(message: ModelMessage) -> Iterator[MessageContent]:
    """Yield the contents of a message's parts, except system prompts, which the agent adds."""
    reasoning = ""
    for part in cast("Sequence[Any]", message.parts):
        match part.part_kind:
            case "user-prompt":
                yield _prompt(part)
            case "tool-return":
                failed = part.outcome != "success"
                value = part.model_response_object()
                yield result(part.tool_call_id, value, _media(part.files), failed=failed)
            case "thinking":
                if reasoning:
                    yield answer("", reasoning)
                reasoning = part.content
            case "text":
                yield answer(part.content, reasoning)
                reasoning = ""
            case "tool-call":
                if reasoning:
                    yield answer("", reasoning)
                reasoning = ""
                yield call(part.tool_name, part.args or {}, part.tool_call_id)
            case _:
                pass
    if reasoning:
        yield answer("", reasoning)
    elif isinstance(message, ModelRequest) and not message.parts:
        yield instruction("")


def _prompt(part: UserPromptPart) -> MessageContent:
    content = part.content or ""
    if isinstance(content, str):
        return instruction(content)
    texts = [item.content if isinstance(item, TextContent) else item for item in content]
    texts = [text for text in texts if isinstance(text, str)]
    return instruction("\n\n".join(texts), _media(content))


def _media(content: Sequence[UserContent]) -> Iterator[MediaMaker]:
    for item in content:
        if isinstance(item, ImageUrl):
            yield partial(ImagePart, item.url)
        elif isinstance(item, AudioUrl):
            yield partial(AudioPart, item.url, item.media_type)
        elif isinstance(item, DocumentUrl):
            yield partial(FilePart, item.url, media_type=item.media_type)
        elif isinstance(item, BinaryContent):
            yield partial(_part_of_bytes, item)


def _part_of_bytes(item: BinaryContent) -> MediaPart:
    if item.media_type in IMAGE_TYPES:
        return ImagePart(item.data)
    if item.is_audio:
        return AudioPart(item.data)
    name = item.identifier if "." in item.identifier else None
    return FilePart(item.data, name, item.media_type)


def _to_json_data(message: ModelMessage) -> Any:
    return ModelMessagesTypeAdapter.dump_python([message], mode="json")[0]


def _from_json_data(data: Any) -> ModelMessage:
    return ModelMessagesTypeAdapter.validate_python([data])[0]


_FORMAT = MessageFormat[ModelMessage](
    "pydantic_ai",
    write=_to_json_data,
    read=_from_json_data,
    contents=_contents,
    from_chat=layer_messages,
)


class SennitMessageHistory(BranchHistory[ModelMessage]):
    """One branch of one session as a message history."""

    _format = _FORMAT

    def messages(self) -> list[ModelMessage]:
        """Return the messages in order, for `message_history=`."""
        return self._read()

    def add(self, messages: Sequence[ModelMessage]) -> None:
        """Append messages, such as `result.new_messages()`, all or none."""
        self._append(messages)

    def fork(self, name: str | None = None) -> SennitMessageHistory:
        """Fork the conversation onto a new branch that shares its history.

        Raises ExistsError if the name is taken.
        """
        return self._fork(name)

    amessages: Final = async_method(messages)
    aadd: Final = async_method(add)
    afork: Final = async_method(fork)


class SennitConversationStore(ConversationStore):
    """A `ConversationStore` for the owner of a client; several processes may share it.

    A record and its new entries are written in one transaction, and of two writes that expect the
    same revision the second raises ConversationConflict. Deleting a conversation erases the entries
    that no other conversation needs.
    """

    def __init__(self, client: Client) -> None:
        self._families = ConversationFamilies(client)
        self._lock = RLock()

    def _record_now(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation; None if there is none."""
        with self._lock:
            family = self._families.find(conversation_id)
            text = None if family is None else family.record(conversation_id)
        return None if text is None else _RECORD_ADAPTER.validate_json(text)

    def _records_now(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """Return the records, newest first; without a limit, all sessions are read."""
        records: list[ConversationRecord] = []
        with self._lock:
            for updated_at, family in self._families.all():
                if limit is not None and len(records) >= limit:
                    records = _newest(records, limit)
                    if not records or records[-1].updated_at >= updated_at:
                        break  # all other families were changed earlier
                decoded = map(_RECORD_ADAPTER.validate_json, family.records())
                records += [record for record in decoded if scope is None or record.scope == scope]
        return _newest(records, limit)

    def _write_now(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and its new entries; raises ConversationConflict."""
        update = RecordUpdate(
            conversation=record.conversation_id,
            head=record.head_id,
            revision=record.revision,
            record=_RECORD_ADAPTER.dump_json(record).decode(),
            entries=[
                StoredEntry(
                    entry.id,
                    entry.parent_id,
                    _FORMAT.to_messages(
                        entry.message,
                        **ConversationFamily.entry_metadata(entry.id, entry.parent_id),
                    ),
                )
                for entry in new_entries
            ],
        )
        is_new = expected_revision is None
        with self._lock, _translate_conflicts(record.conversation_id):
            family = self._families.find_or_create(
                record.conversation_id, record.forked_from if is_new else None
            )
            family.save(update, expected_revision)

    def _delete_now(self, conversation_id: str, *, expected_revision: str) -> None:
        """Erase a conversation and the entries that no other needs; raises ConversationConflict."""
        with self._lock:
            family = self._families.find(conversation_id)
            if family is None:
                raise ConversationConflict(conversation_id)
            with _translate_conflicts(conversation_id):
                self._families.delete(family, conversation_id, expected_revision)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return an entry; raises NotFoundError, which is a LookupError."""
        return (await self.read_history(entry_id, limit=1))[-1]

    def _history_now(
        self, head_id: str | None, *, limit: int | None = None
    ) -> list[ConversationEntry]:
        """Return the entries up to `head_id`, at most the last `limit`; raises NotFoundError."""
        if head_id is None or limit == 0:
            return []
        with self._lock:
            entries = self._families.find_by_entry(head_id).chain(head_id, limit)
        return [
            ConversationEntry(
                id=entry.id, parent_id=entry.parent, message=_FORMAT.original(entry.messages[0])
            )
            for entry in entries
        ]

    read_record = async_method(_record_now)
    read_records = async_method(_records_now)
    write_record = async_method(_write_now)
    delete_record = async_method(_delete_now)
    read_history = async_method(_history_now)


@contextmanager
def _translate_conflicts(conversation: str) -> Generator[None]:
    """Raise Sennit's conflicts as ConversationConflict."""
    try:
        yield
    except (ConflictError, NotFoundError) as error:
        raise ConversationConflict(conversation) from error


def _newest(records: list[ConversationRecord], limit: int | None) -> list[ConversationRecord]:
    return sorted(records, key=lambda record: record.updated_at, reverse=True)[:limit]
