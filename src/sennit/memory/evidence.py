"""What was said: the words behind a memory, for people to check it by.

A memory names the messages it came from; this reads them, and no others of their sessions, and only
in sessions of the client's own user. What was erased since, or was said to somebody else, is not
there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sennit import clock
from sennit.memory.realm import Realm
from sennit.messages.message import Message
from sennit.messages.parts import TextPart
from sennit.sessions.keeper import message_from
from sennit.stores.words import speaker

if TYPE_CHECKING:
    from sennit.memory.history import Source


@dataclass(frozen=True, slots=True)
class Said:
    """A message as evidence."""

    session: str
    """The session's key, or its id if it has none."""
    message: UUID
    role: str
    speaker: str
    """The name of who said it; "" for a mere role or id."""
    text: str
    said_at: datetime

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "session": self.session,
            "message": str(self.message),
            "role": self.role,
            "text": self.text,
            "said_at": clock.to_iso(clock.from_datetime(self.said_at)),
        }


def said_in(realm: Realm, sources: Iterable[Source]) -> dict[Source, Said]:
    """What the messages say that are still kept."""
    wanted = list(dict.fromkeys(sources))
    by_session: dict[UUID, list[UUID]] = {}
    for one in wanted:
        by_session.setdefault(one.session, []).append(one.message)
    found = {
        (session, said.message): said
        for session, messages in by_session.items()
        for said in _session(realm, session, messages)
    }
    return {one: found[key] for one in wanted if (key := (one.session, one.message)) in found}


def _session(realm: Realm, session: UUID, wanted: Sequence[UUID]) -> Iterator[Said]:
    record = realm.store.find_session(realm.user, session)
    if record is None:
        return
    name = record.key or str(record.id)
    for one in realm.store.messages(realm.user, session, wanted):
        yield _said(name, message_from(one), speaker(one.body))


def _said(session: str, message: Message, name: str) -> Said:
    words = [part.text for part in message.parts if isinstance(part, TextPart)]
    text = "\n".join(words) or str(message.rendered)
    return Said(session, message.id, message.role.value, name, text, message.created_at)
