"""The messages behind a memory, quoted.

A memory names the messages it came from; this reads them, and no others of their sessions, and only
in sessions of the client's own user. What was erased since, or was said to somebody else, is not
there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from sennit import clock
from sennit.memory.commit import profile
from sennit.memory.extraction.clauses import expanded
from sennit.memory.extraction.compare import Verdict, compare, covers
from sennit.memory.extraction.extract import extract_by_rules
from sennit.memory.extraction.terms import tokens
from sennit.memory.extraction.utterances import read, sentences
from sennit.memory.extraction.values import Candidate, KnownMemory
from sennit.memory.scope import MemoryScope
from sennit.messages.content import InstructionContent
from sennit.messages.message import Message
from sennit.messages.parts import TextPart
from sennit.sessions.repository import message_from
from sennit.stores.search.tokenizer import speaker

if TYPE_CHECKING:
    from sennit.memory.history.history import EvidenceSource

Named = TypeVar("Named", "EvidenceSource", profile.FactSource)


@dataclass(frozen=True, slots=True)
class QuotedMessage:
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


def said_in(realm: MemoryScope, sources: Iterable[Named]) -> dict[Named, QuotedMessage]:
    """Return the texts of messages that are still stored."""
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


def said_by(
    realm: MemoryScope,
    text: str,
    sources: Sequence[profile.FactSource],
    parts: Sequence[profile.FactSource] = (),
) -> str:
    """Give the sentences of a text that the messages named say in full, word for word.

    Those of `parts` say less than a sentence of it, or the same in other words: theirs are given.
    """
    said = _own(realm, (*sources, *parts))
    spoken = {_plain(one) for message in said for one in sentences(message.text)}
    spoken |= {_plain(one.text) for message in said for one in _stated(message.text)}
    kept = " ".join(one for one in sentences(text) if _plain(one) in spoken)
    for one in (one for message in _own(realm, parts) for one in _stated(message.text)):
        if _repeats(text, one) and not (kept and _repeats(kept, one)):
            kept = f"{kept} {one.text}".strip()
    return kept


def _own(realm: MemoryScope, sources: Iterable[profile.FactSource]) -> list[QuotedMessage]:
    """Return the user's own messages."""
    mine = (realm.user.tenant, realm.user.name)
    own = (one for one in sources if (one.tenant, one.user) == mine)
    return list(said_in(realm, own).values())


def _plain(sentence: str) -> tuple[str, ...]:
    return tuple(tokens(expanded(sentence)))


def _stated(text: str) -> Sequence[Candidate]:
    return extract_by_rules(read([Message(InstructionContent(instruction=text))])).candidates


def _repeats(text: str, said: Candidate) -> bool:
    """Return whether a text says all that was said: then that was remembered as a part of it."""
    known = KnownMemory(id="", category=said.category, text=text)
    covered = any(covers(one, said.text) for one in sentences(text))
    return covered or compare(known, said).verdict is Verdict.SAME


def _session(realm: MemoryScope, session: UUID, wanted: Sequence[UUID]) -> Iterator[QuotedMessage]:
    record = realm.store.find_session(realm.user, session)
    if record is None:
        return
    name = record.key or str(record.id)
    for one in realm.store.messages(realm.user, session, wanted):
        yield _said(name, message_from(one), speaker(one.body))


def _said(session: str, message: Message, name: str) -> QuotedMessage:
    words = [part.text for part in message.parts if isinstance(part, TextPart)]
    text = "\n".join(words) or str(message.rendered)
    return QuotedMessage(session, message.id, message.role.value, name, text, message.created_at)
