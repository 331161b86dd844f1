"""The messages behind a memory, quoted.

A memory names the messages it came from; only these are read, and only in sessions of the client's
own user. Erased messages and those of other users are missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from sennit import clock
from sennit.memory.commit import profile
from sennit.memory.extraction.dedup import Verdict, compare, covers
from sennit.memory.extraction.english.clauses import expand
from sennit.memory.extraction.english.dates import relative_dates
from sennit.memory.extraction.extract import extract_by_rules
from sennit.memory.extraction.terms import tokens
from sennit.memory.extraction.utterances import read, sentences
from sennit.memory.extraction.values import Candidate, KnownMemory
from sennit.memory.scope import MemoryScope
from sennit.messages.content import InstructionContent
from sennit.messages.message import Message
from sennit.messages.parts import TextPart
from sennit.sessions.records import message_from_record
from sennit.stores.search.tokenizer import speaker

if TYPE_CHECKING:
    from sennit.memory.history.history import EvidenceSource

_MAX_DATES = 3  # resolved in a recalled message

SourceT = TypeVar("SourceT", "EvidenceSource", profile.FactSource)


@dataclass(frozen=True, slots=True)
class QuotedMessage:
    """A message as evidence."""

    session: str
    """The session's key, or its id if it has none."""
    message: UUID
    """The id of the message."""
    role: str
    """The role of its sender."""
    speaker: str
    """The name of the speaker; "" if only a role or id is known."""
    text: str
    """Its text."""
    said_at: datetime
    """The time of the message."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "session": self.session,
            "message": str(self.message),
            "role": self.role,
            "text": self.text,
            "said_at": clock.to_iso(clock.from_datetime(self.said_at)),
        }


def quote_messages(scope: MemoryScope, sources: Iterable[SourceT]) -> dict[SourceT, QuotedMessage]:
    """Return the messages that are still stored, by source."""
    wanted = list(dict.fromkeys(sources))
    by_session: dict[UUID, list[UUID]] = {}
    for source in wanted:
        by_session.setdefault(source.session, []).append(source.message)
    by_id = {
        (session, quoted.message): quoted
        for session, messages in by_session.items()
        for quoted in _quote_session(scope, session, messages)
    }
    return {
        source: by_id[key]
        for source in wanted
        if (key := (source.session, source.message)) in by_id
    }


def recalled_line(quoted: QuotedMessage, excerpt: tuple[int, int] | None = None) -> str:
    """Return a recalled message, or an excerpt, as prompts show it.

    It begins with the date and the speaker, and ends with the dates that it names relatively.
    """
    text = quoted.text
    if excerpt is not None:
        start, end = excerpt
        text = f"{'…' if start else ''}{text[start:end].strip()}{'…' if end < len(text) else ''}"
    dates = list(relative_dates(text, quoted.said_at).items())[:_MAX_DATES]
    meant = "; ".join(f"{words}: {day:%A %Y-%m-%d}" for words, day in dates)
    line = f"[{quoted.said_at:%Y-%m-%d}] {quoted.speaker or quoted.role}: {text}"
    return f"{line} ({meant})" if meant else line


def supported_text(
    scope: MemoryScope,
    text: str,
    sources: Sequence[profile.FactSource],
    parts: Sequence[profile.FactSource] = (),
) -> str:
    """Return the sentences of a text that messages state word for word.

    The messages of `parts` state less than a sentence of it, or the same in other words: their own
    statements are added.
    """
    messages = _own_messages(scope, (*sources, *parts))
    stated = {_normalize(sentence) for message in messages for sentence in sentences(message.text)}
    stated |= {
        _normalize(candidate.text) for message in messages for candidate in _extract(message.text)
    }
    supported = " ".join(sentence for sentence in sentences(text) if _normalize(sentence) in stated)
    for candidate in (
        candidate for message in _own_messages(scope, parts) for candidate in _extract(message.text)
    ):
        if _is_repeated(text, candidate) and not (supported and _is_repeated(supported, candidate)):
            supported = f"{supported} {candidate.text}".strip()
    return supported


def _own_messages(scope: MemoryScope, sources: Iterable[profile.FactSource]) -> list[QuotedMessage]:
    """Return the user's own messages among the sources."""
    user = (scope.user.tenant, scope.user.name)
    own = (source for source in sources if (source.tenant, source.user) == user)
    return list(quote_messages(scope, own).values())


def _normalize(sentence: str) -> tuple[str, ...]:
    return tuple(tokens(expand(sentence)))


def _extract(text: str) -> Sequence[Candidate]:
    return extract_by_rules(read([Message(InstructionContent(instruction=text))])).candidates


def _is_repeated(text: str, candidate: Candidate) -> bool:
    """Return whether a text includes all that a candidate states."""
    known = KnownMemory(id="", category=candidate.category, text=text)
    covered = any(covers(sentence, candidate.text) for sentence in sentences(text))
    return covered or compare(known, candidate).verdict is Verdict.SAME


def _quote_session(
    scope: MemoryScope, session: UUID, wanted: Sequence[UUID]
) -> Iterator[QuotedMessage]:
    record = scope.store.find_session(scope.user, session)
    if record is None:
        return
    name = record.key or str(record.id)
    for stored in scope.store.messages(scope.user, session, wanted):
        yield _quote(name, message_from_record(stored), speaker(stored.body))


def _quote(session: str, message: Message, name: str) -> QuotedMessage:
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    text = "\n".join(texts) or message.rendered_text
    return QuotedMessage(session, message.id, message.role.value, name, text, message.created_at)
