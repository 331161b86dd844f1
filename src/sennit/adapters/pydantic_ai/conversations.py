"""Pydantic AI conversations that share history: a conversation and its forks, in one session.

The log of the session holds the entries and the records of all of them, in order. Where a record
says that its conversation ends, its history ends; what it is based on is its revision. The id of
the message that holds a record follows from the record it replaces, so a second one for the same
cannot be kept, by whichever process: the store itself refuses it.

Beside the log each conversation is a branch with what was said in it. The log is the truth; the
branch follows it, and is mended by the next save if a crash came between.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid5

from sennit.adapters.branch_handle import LruCache, named_branch, sessions_under
from sennit.adapters.record_log import RecordLog
from sennit.api.client import Client
from sennit.api.session import Session
from sennit.errors import ConflictError, ExistsError, NotFoundError, ValidationError, shown
from sennit.messages.message import Message
from sennit.sessions.branch import Branch
from sennit.stores.retention import SHARES

_KEY = "pydantic-ai:"
_LOG = "pydantic-ai log"
_TRIES = 5


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """A message of a conversation, as messages of ours."""

    id: str
    parent: str | None
    messages: list[Message]


@dataclass(frozen=True, slots=True)
class Unsaved:
    """A record to be kept, with the entries that are new in it."""

    conversation: str
    head: str | None
    revision: str
    record: str
    """As JSON."""
    entries: Sequence[StoredEntry]


@dataclass(frozen=True, slots=True)
class _Record:
    """The newest record of a conversation; after it was deleted, without a text."""

    message: UUID
    revision: str | None
    head: str | None
    text: str | None


class ConversationFamily:
    """One session and what its log says."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._log = RecordLog(_LOG)
        self._entries: dict[str, StoredEntry] = {}
        self._records: dict[str, _Record] = {}

    @staticmethod
    def noted(id: str, parent: str | None) -> dict[str, Any]:
        """The metadata of the message that an entry begins with."""
        return {_LOG: {"entry": id, "parent": parent}}

    def follow(self, session: Session) -> None:
        """Take in what is new."""
        self.session = session
        anew, messages = self._log.new(session)
        if anew:
            self._entries, self._records = {}, {}
        begun: StoredEntry | None = None
        for message in messages:
            match message.metadata.get(_LOG):
                case {"entry": str(id), "parent": parent}:
                    begun = self._entries[id] = StoredEntry(id, parent, [message])
                case {"conversation": str(name), "record": text, "head": head, "revision": now}:
                    self._records[name] = _Record(message.id, now, head, text)
                    begun = None
                case _ if begun is not None:
                    begun.messages.append(message)
                case _:
                    pass

    def record(self, conversation: str) -> str | None:
        """The newest record of a conversation, as JSON; None if it is not here, or deleted."""
        found = self._records.get(conversation)
        return None if found is None else found.text

    def records(self) -> list[str]:
        """Those of all conversations that are here."""
        return [one.text for one in self._records.values() if one.text is not None]

    def holds(self, entry: str) -> bool:
        """Return whether an entry is here."""
        return entry in self._entries

    def chain(self, head: str | None, limit: int | None = None) -> list[StoredEntry]:
        """The entries up to one, in order, or the last so many; raises NotFoundError."""
        found: list[StoredEntry] = []
        at = head
        while at is not None and (limit is None or len(found) < limit):
            if at not in self._entries:
                raise NotFoundError(f"There is no entry {shown(at)} of this user.")
            found.append(self._entries[at])
            at = found[-1].parent
        return found[::-1]

    def save(self, unsaved: Unsaved, expected: str | None) -> None:
        """Keep a record with its entries; raises ConflictError."""
        new = {one.id for one in unsaved.entries}
        if unsaved.head is not None and unsaved.head not in new and not self.holds(unsaved.head):
            raise ConflictError(f"The entry {unsaved.head!r} was erased meanwhile.")
        said = [message for one in unsaved.entries for message in one.messages]
        self._put(unsaved, expected, said)
        self._show(unsaved.conversation)

    def _put(self, record: Unsaved | str, expected: str | None, said: Sequence[Message]) -> None:
        """Let a record follow the one that is expected; a name alone says that it is deleted."""
        name = record if isinstance(record, str) else record.conversation
        before = self._records.get(name)
        if (None if before is None else before.revision) != expected:
            raise ConflictError(f"The conversation {name!r} was changed meanwhile.")
        data: dict[str, Any] = {
            "conversation": name,
            "record": None if isinstance(record, str) else record.record,
            "head": None if isinstance(record, str) else record.head,
            "revision": None if isinstance(record, str) else record.revision,
        }
        based_on = "" if before is None else str(before.message)
        id = uuid5(self.session.id, f"{name}\n{based_on}")
        try:
            about = f"Pydantic AI's record of {name}"
            self._log.add(self.session, [*said, self._log.record(data, about, id)])
        except ExistsError as error:
            raise ConflictError(f"The conversation {name!r} was changed meanwhile.") from error
        self.follow(self.session)

    def _show(self, conversation: str) -> None:
        """Let the conversation's branch hold what its record says."""
        for _ in range(_TRIES):
            head = self._records[conversation].head
            try:
                self._bring(self._branch(conversation, head), head)
            except (ConflictError, ExistsError):  # others do the same: look again
                self.follow(self.session)
            else:
                return
        # Others still do; the last of them leaves it as it has to be.

    def _branch(self, conversation: str, head: str | None) -> Branch:
        """Its branch; a new one is forked from one that it shares history with."""
        found = self.session.get_branch(conversation, None)
        if found is None and head is not None:
            last = self._entries[head].messages[-1].id
            for other in self._records:
                source = self.session.get_branch(other, None)
                if source is not None and last in source:
                    return self.session.fork(source, at=last, name=conversation)
        return named_branch(self.session, conversation)

    def _bring(self, branch: Branch, head: str | None) -> None:
        """Let a branch end with an entry; what it held beyond that stays on a fork."""
        with self.session.lock:
            missing, at = list[StoredEntry](), head
            while at is not None and self._entries[at].messages[-1].id not in branch:
                missing.append(self._entries[at])
                at = missing[-1].parent
            shared = 0 if at is None else branch.index(self._entries[at].messages[-1].id) + 1
            if shared < len(branch):
                self.session.fork(branch)
                del branch[shared:]
            said = [message.id for one in reversed(missing) for message in one.messages]
            if said:
                branch.extend(said)

    def delete(self, conversation: str, expected: str) -> bool:
        """Erase a conversation and the entries no other needs; False if it was the last one.

        Then nothing is done: the whole session has to go. Raises ConflictError.
        """
        here = self._records.get(conversation)
        if here is None or here.revision != expected:
            raise ConflictError(f"The conversation {conversation!r} was changed meanwhile.")
        if len(self.records()) == 1:
            return False
        self._put(conversation, expected, ())
        branch = self.session.get_branch(conversation, None)
        if branch is not None:
            self.session.remove_branch(branch)
        self.session.remove_messages(self._unreachable())
        self.follow(self.session)
        return True

    def _unreachable(self) -> list[Message]:
        """Return the messages that no conversation holds, or that are left on a branch of their
        own.
        """
        tips: set[str] = set()
        for text in self.records():
            record = json.loads(text)
            tips |= {one for one in (record["head_id"], *record["branches"]) if one is not None}
        reached: set[str] = set()
        for tip in tips:
            at: str | None = tip
            while at is not None and at not in reached and at in self._entries:
                reached.add(at)
                at = self._entries[at].parent
        return [
            message
            for id, entry in self._entries.items()
            if id not in reached
            for message in entry.messages
        ]


class ConversationFamilies:
    """All families of a client's owner."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._open = LruCache[UUID, ConversationFamily]()

    def of(self, conversation: str) -> ConversationFamily | None:
        """The family of a conversation, if there is one."""
        try:
            session = self._client.session(_KEY + conversation, create=False)
            root = session.metadata.get(SHARES)
            if root is not None:
                session = self._client.session(root, create=False)
        except NotFoundError:
            return None
        return self._ready(session)

    def for_writing(self, conversation: str, forked_from: str | None) -> ConversationFamily:
        """The family in which a conversation is, or is to be.

        Raises ValidationError, and ConflictError or NotFoundError if it is erased meanwhile.
        """
        if conversation == _LOG:
            raise ValidationError(
                f"{_LOG!r} is reserved for the record log; choose another conversation name."
            )
        found = self.of(conversation)
        if found is not None:
            return found
        family = None if forked_from is None else self.of(forked_from)
        root = None if family is None else family.session.key
        # Whoever makes this session first decides where the conversation is.
        title = f"{_KEY}{conversation} (in {root})"
        metadata = None if root is None else {SHARES: root, "title": title}
        session = self._client.session(_KEY + conversation, metadata=metadata)
        made = self.of(conversation)
        if made is None:  # it says where a conversation was whose session is gone
            session.describe(metadata or {})
            made = self.of(conversation)
        if made is None:
            raise ConflictError(f"The conversation {conversation!r} was erased meanwhile.")
        return made

    def delete(self, family: ConversationFamily, conversation: str, expected: str) -> None:
        """Erase a conversation; raises ConflictError."""
        root = family.session.key
        if not family.delete(conversation, expected):
            self._open.drop(family.session.id)
            self._client.delete_session(family.session.id)
        if root != _KEY + conversation:
            self._client.delete_session(_KEY + conversation)

    def holding(self, entry: str) -> ConversationFamily:
        """The family that an entry is in; raises NotFoundError.

        It is nearly always one that was just read. If not, all are looked through.
        """
        for family in self._open.newest_first():
            if family.holds(entry):
                return family
        for _, family in self.all():
            if family.holds(entry):
                return family
        raise NotFoundError(f"There is no entry {shown(entry)} of this user.")

    def all(self) -> Iterator[tuple[datetime, ConversationFamily]]:
        """All families with the time of their last change, the newest first."""
        for one in sessions_under(self._client, _KEY):
            if one.key is not None and SHARES not in one.metadata:
                family = self.of(one.key.removeprefix(_KEY))
                if family is not None:
                    yield one.updated_at, family

    def _ready(self, session: Session) -> ConversationFamily:
        found = self._open.get(session.id, lambda: ConversationFamily(session))
        found.follow(session)
        return found
