"""Conversation store and message history for Pydantic AI.

    store = SennitConversationStore(client)               # for `conversation=`
    history = SennitMessageHistory(client, "chat_001")    # for `message_history=`

The history is one branch of a session, as the other adapters have it. The store keeps what Pydantic
AI calls a conversation: its log of entries, and the record that says where it ends. A conversation
and all forks of it are one session (see `families`): forks share entries, and each conversation is
also a branch, so that search, memory and the studio see it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from threading import RLock
from typing import Any, cast

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
        ImageUrl,
        ModelMessage,
        ModelMessagesTypeAdapter,
        ModelRequest,
        UserPromptPart,
    )
except ImportError as error:
    raise MissingExtraError.of("sennit.adapters.pydantic_ai", "pydantic-ai") from error

from sennit.adapters.branch_handle import BranchHandle
from sennit.adapters.message_mapping import MessageFormat, answer, call, instruction, result
from sennit.adapters.pydantic_ai.conversations import (
    ConversationFamilies,
    ConversationFamily,
    StoredEntry,
    Unsaved,
)
from sennit.api.client import Client
from sennit.errors import ConflictError, NotFoundError
from sennit.messages.content import MessageContent
from sennit.services.models.providers.translate import layer_messages
from sennit.sessions.async_method import async_method
from sennit.sessions.branches import DEFAULT_BRANCH

__all__ = ["SennitConversationStore", "SennitMessageHistory"]

_RECORD = TypeAdapter(ConversationRecord)


class SennitMessageHistory:
    """One branch of one session as a message history."""

    def __init__(self, client: Client, session_id: str, *, branch: str = DEFAULT_BRANCH) -> None:
        """The session is made when it is first read or written."""
        self.session_id = session_id
        self._place = BranchHandle(client, session_id, branch)

    @property
    def branch(self) -> str:
        """The name of its branch."""
        return self._place.branch

    def messages(self) -> list[ModelMessage]:
        """Return the messages in order, for `message_history=`."""
        return _FORM.theirs(self._place.said())

    def add(self, messages: Sequence[ModelMessage]) -> None:
        """Keep messages, such as `result.new_messages()`, all or none."""
        new = [one for message in messages for one in _FORM.ours(message)]
        if new:
            self._place.add(new)

    def fork(self, name: str | None = None) -> SennitMessageHistory:
        """The same conversation on a new branch; it shares what was said, at any length.

        Raises ExistsError if the name is taken.
        """
        place = self._place.fork(name=name, at=None)
        return SennitMessageHistory(place.client, place.session, branch=place.branch)

    amessages = async_method(messages)
    aadd = async_method(add)
    afork = async_method(fork)


class SennitConversationStore(ConversationStore):
    """A `ConversationStore` for the owner of a client; several processes may share it.

    A record and its new entries are kept together or not at all, and of two saves of one revision
    the second is refused. Deleting a conversation erases the entries that no other one needs.
    """

    def __init__(self, client: Client) -> None:
        self._families = ConversationFamilies(client)
        self._lock = RLock()

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """The record of a conversation, or None."""
        return await asyncio.to_thread(self._read_record_now, conversation_id)

    def _read_record_now(self, conversation_id: str) -> ConversationRecord | None:
        with self._lock:
            family = self._families.of(conversation_id)
            text = None if family is None else family.record(conversation_id)
        return None if text is None else _RECORD.validate_json(text)

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """The records, the newest first; without a limit, or with a scope, all have to be read."""
        return await asyncio.to_thread(self._read_records_now, scope, limit)

    def _read_records_now(self, scope: str | None, limit: int | None) -> list[ConversationRecord]:
        found: list[ConversationRecord] = []
        with self._lock:
            for changed, family in self._families.all():
                if limit is not None and len(found) >= limit:
                    found = _newest(found, limit)
                    if not found or found[-1].updated_at >= changed:
                        break  # what follows was changed before all of these
                records = (_RECORD.validate_json(text) for text in family.records())
                found += [one for one in records if scope is None or one.scope == scope]
        return _newest(found, limit)

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Keep a record and its new entries; raises ConversationConflict."""
        await asyncio.to_thread(self._write_now, record, new_entries, expected_revision)

    def _write_now(
        self,
        record: ConversationRecord,
        new_entries: Sequence[ConversationEntry],
        expected: str | None,
    ) -> None:
        unsaved = Unsaved(
            conversation=record.conversation_id,
            head=record.head_id,
            revision=record.revision,
            record=_RECORD.dump_json(record).decode(),
            entries=[
                StoredEntry(one.id, one.parent_id, _FORM.ours(one.message, **_noted(one)))
                for one in new_entries
            ],
        )
        new = expected is None
        with self._lock, _conflicts(record.conversation_id):
            family = self._families.for_writing(
                record.conversation_id, record.forked_from if new else None
            )
            family.save(unsaved, expected)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Erase a conversation and the entries no other one needs; raises ConversationConflict."""
        await asyncio.to_thread(self._delete_now, conversation_id, expected_revision)

    def _delete_now(self, conversation_id: str, expected: str) -> None:
        with self._lock:
            family = self._families.of(conversation_id)
            if family is None:
                raise ConversationConflict(conversation_id)
            with _conflicts(conversation_id):
                self._families.delete(family, conversation_id, expected)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """One entry; raises NotFoundError, which is a LookupError."""
        return (await self.read_history(entry_id, limit=1))[-1]

    async def read_history(
        self, head_id: str | None, *, limit: int | None = None
    ) -> list[ConversationEntry]:
        """The entries up to one, in order, or the last so many; raises NotFoundError."""
        if head_id is None or limit == 0:
            return []
        return await asyncio.to_thread(self._read_history_now, head_id, limit)

    def _read_history_now(self, head: str, limit: int | None) -> list[ConversationEntry]:
        with self._lock:
            entries = self._families.holding(head).chain(head, limit)
        return [
            ConversationEntry(id=one.id, parent_id=one.parent, message=_FORM.whole(one.messages[0]))
            for one in entries
        ]


class _conflicts:
    """Someone else was faster, in the words of Pydantic AI."""

    def __init__(self, conversation: str) -> None:
        self._conversation = conversation

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (ConflictError, NotFoundError)):
            raise ConversationConflict(self._conversation) from error


def _noted(entry: ConversationEntry) -> dict[str, Any]:
    return ConversationFamily.noted(entry.id, entry.parent_id)


def _newest(records: list[ConversationRecord], limit: int | None) -> list[ConversationRecord]:
    return sorted(records, key=lambda one: one.updated_at, reverse=True)[:limit]


def _contents(message: ModelMessage) -> Iterator[MessageContent]:
    """Yield the contents of a message's parts; system prompts belong to the agent, not to the
    history.
    """
    thought = ""
    for part in cast("Sequence[Any]", message.parts):
        match part.part_kind:
            case "user-prompt":
                yield _prompt(part)
            case "tool-return":
                failed = part.outcome != "success"
                yield result(part.tool_call_id, part.model_response_object(), failed=failed)
            case "thinking":
                if thought:
                    yield answer("", thought)
                thought = part.content
            case "text":
                yield answer(part.content, thought)
                thought = ""
            case "tool-call":
                if thought:
                    yield answer("", thought)
                thought = ""
                yield call(part.tool_name, part.args or {}, part.tool_call_id)
            case _:
                pass
    if thought:
        yield answer("", thought)
    elif isinstance(message, ModelRequest) and not message.parts:
        yield instruction("")


def _prompt(part: UserPromptPart) -> MessageContent:
    if isinstance(part.content, str):
        return instruction(part.content)
    said = [one for one in part.content if isinstance(one, str)]
    images = [one.url for one in part.content if isinstance(one, ImageUrl)]
    return instruction("\n\n".join(said), images)


def _written(message: ModelMessage) -> Any:
    return ModelMessagesTypeAdapter.dump_python([message], mode="json")[0]


def _restored(written: Any) -> ModelMessage:
    return ModelMessagesTypeAdapter.validate_python([written])[0]


def _told(chat: Sequence[dict[str, Any]]) -> Iterator[ModelMessage]:
    return layer_messages(chat)


_FORM = MessageFormat[ModelMessage](
    "pydantic_ai", write=_written, read=_restored, contents=_contents, tell=_told
)
