"""Families of Pydantic AI conversations: a conversation and its forks, stored in one session.

The record log of the session holds the entries and records of the whole family, in order. A record
names the head of its conversation, the last entry of its history, and has a revision for optimistic
locking. The id of the message that stores a record is derived from the record it replaces, so the
store itself rejects a second successor, from any process.

Each conversation is also a branch. The log is the source of truth; the branch is updated after it,
and by the next save if a crash came between.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid5

from sennit.adapters.branch_history import LruCache, get_or_create_branch, sessions_with_prefix
from sennit.adapters.record_log import RecordLog
from sennit.api.client import Client
from sennit.errors import ConflictError, ExistsError, NotFoundError, ValidationError, short_repr
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.stores.retention import SHARED_ROOT_KEY

_KEY_PREFIX = "pydantic-ai:"
_LOG_NAME = "pydantic-ai log"
_MAX_SYNC_TRIES = 5


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """A Pydantic AI message, stored as one or more Sennit messages."""

    id: str
    parent: str | None
    messages: list[Message]


@dataclass(frozen=True, slots=True)
class RecordUpdate:
    """A record to store, with its new entries."""

    conversation: str
    head: str | None
    revision: str
    record: str
    """The record as JSON."""
    entries: Sequence[StoredEntry]


@dataclass(frozen=True, slots=True)
class _Record:
    """The newest record of a conversation; its text is None after a delete."""

    message: UUID
    revision: str | None
    head: str | None
    text: str | None


class ConversationFamily(RecordLog):
    """A conversation and its forks, read from the record log of one session."""

    name = _LOG_NAME

    def _reset(self) -> None:
        self._entries: dict[str, StoredEntry] = {}
        self._records: dict[str, _Record] = {}

    @staticmethod
    def entry_metadata(id: str, parent: str | None) -> dict[str, Any]:
        """Return the metadata of the first message of an entry."""
        return {_LOG_NAME: {"entry": id, "parent": parent}}

    def _apply(self, messages: Sequence[Message]) -> None:
        open_entry: StoredEntry | None = None
        for message in messages:
            match message.metadata.get(_LOG_NAME):
                case {"entry": str(id), "parent": parent}:
                    open_entry = self._entries[id] = StoredEntry(id, parent, [message])
                case {
                    "conversation": str(name),
                    "record": text,
                    "head": head,
                    "revision": revision,
                }:
                    self._records[name] = _Record(message.id, revision, head, text)
                    open_entry = None
                case _ if open_entry is not None:
                    open_entry.messages.append(message)
                case _:
                    pass

    def record(self, conversation: str) -> str | None:
        """Return the newest record of a conversation as JSON; None if missing or deleted."""
        record = self._records.get(conversation)
        return None if record is None else record.text

    def records(self) -> list[str]:
        """Return the newest records of all conversations as JSON."""
        return [record.text for record in self._records.values() if record.text is not None]

    def holds(self, entry: str) -> bool:
        """Return whether an entry is in this family."""
        return entry in self._entries

    def chain(self, head: str | None, limit: int | None = None) -> list[StoredEntry]:
        """Return the entries up to `head`, at most the last `limit`; raises NotFoundError."""
        entries: list[StoredEntry] = []
        entry_id = head
        while entry_id is not None and (limit is None or len(entries) < limit):
            if entry_id not in self._entries:
                raise NotFoundError(f"Entry {short_repr(entry_id)} does not exist for this user.")
            entries.append(self._entries[entry_id])
            entry_id = entries[-1].parent
        return entries[::-1]

    def save(self, update: RecordUpdate, expected_revision: str | None) -> None:
        """Store a record with its new entries; raises ConflictError."""
        new_ids = {entry.id for entry in update.entries}
        if update.head is not None and update.head not in new_ids and not self.holds(update.head):
            raise ConflictError(f"Entry {update.head!r} was erased; read the conversation again.")
        messages = [message for entry in update.entries for message in entry.messages]
        self._append_record(update, expected_revision, messages)
        self._sync_branch(update.conversation)

    def _append_record(
        self, record: RecordUpdate | str, expected_revision: str | None, messages: Sequence[Message]
    ) -> None:
        """Append a record after the expected one; a conversation name alone records a delete."""
        name = record if isinstance(record, str) else record.conversation
        previous = self._records.get(name)
        if (None if previous is None else previous.revision) != expected_revision:
            raise _changed(name)
        data: dict[str, Any] = {
            "conversation": name,
            "record": None if isinstance(record, str) else record.record,
            "head": None if isinstance(record, str) else record.head,
            "revision": None if isinstance(record, str) else record.revision,
        }
        previous_id = "" if previous is None else str(previous.message)
        id = uuid5(self.session.id, f"{name}\n{previous_id}")
        try:
            description = f"Pydantic AI's record of {name}"
            self.append([*messages, self.new_record(data, description, id)])
        except ExistsError as error:
            raise _changed(name) from error

    def _sync_branch(self, conversation: str) -> None:
        """Update the branch of a conversation to the head of its record."""
        for _ in range(_MAX_SYNC_TRIES):
            head = self._records[conversation].head
            try:
                self._move_branch_to(self._get_or_fork_branch(conversation, head), head)
            except (ConflictError, ExistsError):  # another process updates it too: sync and retry
                self.sync(self.session)
            else:
                return
        # Another process keeps updating the branch, and leaves it up to date.

    def _get_or_fork_branch(self, conversation: str, head: str | None) -> Branch:
        """Return the branch of a conversation; a new one is forked where it shares history."""
        branch = self.session.get_branch(conversation, None)
        if branch is None and head is not None:
            last = self._entries[head].messages[-1].id
            for other in self._records:
                source = self.session.get_branch(other, None)
                if source is not None and last in source:
                    return self.session.fork(source, at=last, name=conversation)
        return get_or_create_branch(self.session, conversation)

    def _move_branch_to(self, branch: Branch, head: str | None) -> None:
        """Make a branch end at entry `head`; a fork keeps the messages this removes."""
        with self.session.lock:
            missing, entry_id = list[StoredEntry](), head
            while entry_id is not None and self._entries[entry_id].messages[-1].id not in branch:
                missing.append(self._entries[entry_id])
                entry_id = missing[-1].parent
            shared_length = (
                0 if entry_id is None else branch.index(self._entries[entry_id].messages[-1].id) + 1
            )
            if shared_length < len(branch):
                self.session.fork(branch)
                del branch[shared_length:]
            message_ids = [message.id for entry in reversed(missing) for message in entry.messages]
            if message_ids:
                branch.extend(message_ids)

    def delete(self, conversation: str, expected_revision: str) -> bool:
        """Erase a conversation and the entries that no other needs; raises ConflictError.

        Return False without erasing anything if it is the last one: delete the session instead.
        """
        record = self._records.get(conversation)
        if record is None or record.revision != expected_revision:
            raise _changed(conversation)
        if len(self.records()) == 1:
            return False
        self._append_record(conversation, expected_revision, ())
        branch = self.session.get_branch(conversation, None)
        if branch is not None:
            self.session.remove_branch(branch)
        self.session.remove_messages(self._unreachable_messages())
        self.sync(self.session)
        return True

    def _unreachable_messages(self) -> list[Message]:
        """Return the messages of entries that no record reaches from its head or branches."""
        heads: set[str] = set()
        for text in self.records():
            record = json.loads(text)
            heads |= {
                entry_id
                for entry_id in (record["head_id"], *record["branches"])
                if entry_id is not None
            }
        reachable: set[str] = set()
        for head in heads:
            entry_id: str | None = head
            while entry_id is not None and entry_id not in reachable and entry_id in self._entries:
                reachable.add(entry_id)
                entry_id = self._entries[entry_id].parent
        return [
            message
            for id, entry in self._entries.items()
            if id not in reachable
            for message in entry.messages
        ]


def _changed(conversation: str) -> ConflictError:
    return ConflictError(f"Conversation {conversation!r} was changed; read it again.")


class ConversationFamilies:
    """The conversation families of a client's owner."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._cache = LruCache[UUID, ConversationFamily]()

    def find(self, conversation: str) -> ConversationFamily | None:
        """Return the family of a conversation; None if there is none."""
        try:
            session = self._client.session(_KEY_PREFIX + conversation, create=False)
            root_key = session.metadata.get(SHARED_ROOT_KEY)
            if root_key is not None:
                session = self._client.session(root_key, create=False)
        except NotFoundError:
            return None
        family = self._cache.get(session.id, lambda: ConversationFamily(session))
        family.sync(session)
        return family

    def find_or_create(self, conversation: str, forked_from: str | None) -> ConversationFamily:
        """Return the family of a conversation; create it in the family of `forked_from`, if given.

        Raises ValidationError for a reserved name, and ConflictError or NotFoundError if the family
        is erased at the same time.
        """
        if conversation == _LOG_NAME:
            raise ValidationError(
                f"{_LOG_NAME!r} is reserved for the record log; choose another conversation name."
            )
        existing = self.find(conversation)
        if existing is not None:
            return existing
        parent = None if forked_from is None else self.find(forked_from)
        root_key = None if parent is None else parent.session.key
        # The first process to create this session decides which family has the conversation.
        title = f"{_KEY_PREFIX}{conversation} (in {root_key})"
        metadata = None if root_key is None else {SHARED_ROOT_KEY: root_key, "title": title}
        session = self._client.session(_KEY_PREFIX + conversation, metadata=metadata)
        family = self.find(conversation)
        if family is None:  # it refers to a family that was erased
            session.describe(metadata or {})
            family = self.find(conversation)
        if family is None:
            raise ConflictError(f"Conversation {conversation!r} was erased; try again.")
        return family

    def delete(self, family: ConversationFamily, conversation: str, expected_revision: str) -> None:
        """Erase a conversation; raises ConflictError."""
        root_key = family.session.key
        if not family.delete(conversation, expected_revision):
            self._cache.discard(family.session.id)
            self._client.delete_session(family.session.id)
        if root_key != _KEY_PREFIX + conversation:
            self._client.delete_session(_KEY_PREFIX + conversation)

    def find_by_entry(self, entry: str) -> ConversationFamily:
        """Return the family of an entry; raises NotFoundError.

        It is nearly always a cached one; otherwise all families are searched.
        """
        for family in self._cache.newest_first():
            if family.holds(entry):
                return family
        for _, family in self.all():
            if family.holds(entry):
                return family
        raise NotFoundError(f"Entry {short_repr(entry)} does not exist for this user.")

    def all(self) -> Iterator[tuple[datetime, ConversationFamily]]:
        """Yield all families with the time of their last change, most recent first."""
        for info in sessions_with_prefix(self._client, _KEY_PREFIX):
            if info.key is not None and SHARED_ROOT_KEY not in info.metadata:
                family = self.find(info.key.removeprefix(_KEY_PREFIX))
                if family is not None:
                    yield info.updated_at, family
