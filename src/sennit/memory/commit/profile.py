"""The profile: one append-only file with a line per fact.

A fact that changes is closed, not erased: its line stays, struck through, with the day it ended,
and the new one follows below. Each fact has its own evidence, commit and validity, so that a
session can be forgotten, or a commit undone, without touching other facts. The lines are rendered
from the facts; after a person edits the lines, the facts follow them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast
from uuid import UUID

import msgspec

from sennit import clock
from sennit.ids import new_id
from sennit.memory.extraction.values import abstract_of
from sennit.stores.records.files import EvidenceRecord, in_order
from sennit.stores.records.sessions import Owner

TITLE = "# Profile"
_CLOSED = re.compile(r"^~~(?P<text>.*)~~(?: \(until [^)]*\))?$")


class FactSource(msgspec.Struct, frozen=True):
    """A message a fact came from."""

    tenant: str
    user: str
    session: UUID
    message: UUID

    @classmethod
    def of(cls, evidence: EvidenceRecord) -> FactSource:
        """Return the source for an evidence record."""
        owner = evidence.owner
        return cls(owner.tenant, owner.name, evidence.session, evidence.message)

    @property
    def evidence(self) -> EvidenceRecord:
        """The evidence record for the store."""
        return EvidenceRecord(Owner(self.tenant, "user", self.user), self.session, self.message)


class ProfileFact(msgspec.Struct, frozen=True):
    """One line of the profile."""

    id: str
    text: str
    valid_from: int
    valid_to: int | None = None
    sources: tuple[FactSource, ...] = ()
    commit: UUID | None = None
    """The commit that wrote it; None if a person did."""
    replaced_by: str | None = None
    """The fact that replaced it."""
    merged: bool = False
    """Whether its text combines the statements of several messages."""
    parts: tuple[FactSource, ...] = ()
    """Messages that state a part of it, or the same in other words: no evidence for all of it."""
    stated: tuple[int, ...] = ()
    """When each of its sentences was last stated; if empty, at `valid_from`."""


SupportedText: TypeAlias = Callable[[str, Sequence[FactSource], Sequence[FactSource]], str]
"""Returns what messages support of a text: in full, and for the second sequence in part."""


def load_facts(info: dict[str, Any]) -> list[ProfileFact]:
    """Return the facts in the info of a version."""
    return msgspec.convert(info.get("facts", []), list[ProfileFact])


def _dump_facts(facts: Iterable[ProfileFact]) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", msgspec.to_builtins(list(facts)))


def version_content(facts: Sequence[ProfileFact], did: str) -> dict[str, Any]:
    """Return the body, the evidence and the info of a version with these facts."""
    current = "; ".join(fact.text for fact in facts if fact.valid_to is None)
    return {
        "body": render(facts).encode(),
        "evidence": evidence_of(facts),
        "info": {"did": did, "abstract": abstract_of(current), "facts": _dump_facts(facts)},
    }


def evidence_of(facts: Iterable[ProfileFact]) -> tuple[EvidenceRecord, ...]:
    """Return the messages that facts came from."""
    return in_order(source.evidence for fact in facts for source in fact.sources)


def render(facts: Sequence[ProfileFact]) -> str:
    """Return the text of the profile file."""
    lines = [f"- {_line(fact)}" for fact in facts]
    return "\n".join([TITLE, "", *lines]) + "\n"


def _line(fact: ProfileFact) -> str:
    if fact.valid_to is None:
        return fact.text
    return f"~~{fact.text}~~ (until {clock.to_iso(fact.valid_to)[:10]})"


def facts_after_edit(body: str, old_facts: Sequence[ProfileFact], now: int) -> list[ProfileFact]:
    """Return the facts of an edited file: unchanged lines keep theirs, new lines become facts."""
    remaining = list(old_facts)
    facts: list[ProfileFact] = []
    for line in body.splitlines():
        content = _line_text(line)
        if not content or content.startswith("#"):
            continue
        closed = _CLOSED.match(content)
        text = closed["text"] if closed else content
        fact = _pop_fact(remaining, text, is_closed=closed is not None)
        facts.append(fact or ProfileFact(new_fact_id(), text, now, now if closed else None))
    return facts


def _line_text(line: str) -> str:
    return line.strip().removeprefix("-").removeprefix("*").strip()


def current_lines(body: str) -> list[str]:
    """Return the lines of the file that are not closed."""
    return [line for line in body.strip().splitlines() if not _CLOSED.match(_line_text(line))]


def _pop_fact(facts: list[ProfileFact], text: str, *, is_closed: bool) -> ProfileFact | None:
    for index, fact in enumerate(facts):
        if fact.text == text and (fact.valid_to is not None) == is_closed:
            return facts.pop(index)
    return None


def new_fact_id() -> str:
    """Return a new id of a fact, unique within its file."""
    return f"fact-{new_id()}"


def close_fact(
    facts: Iterable[ProfileFact], uid: str, at: int, replaced_by: str
) -> list[ProfileFact]:
    """Return the facts with one of them closed and replaced by another."""
    return [
        msgspec.structs.replace(fact, valid_to=max(at, fact.valid_from), replaced_by=replaced_by)
        if fact.id == uid and fact.valid_to is None
        else fact
        for fact in facts
    ]


def insert_older(
    facts: Sequence[ProfileFact], newer: ProfileFact, older: ProfileFact, ended: int
) -> list[ProfileFact]:
    """Return the facts with one that a newer one had replaced before it became known.

    It stands between the facts before and after it: it ends when the next one begins, or at `ended`
    if even the newest began before it.
    """
    by_id = {fact.id: fact for fact in facts}

    def leads_to_newer(fact: ProfileFact | None) -> bool:
        while fact is not None and fact.id != newer.id:
            fact = by_id.get(fact.replaced_by or "")
        return fact is not None

    start = older.valid_from
    later = [fact for fact in facts if fact.valid_from > start and leads_to_newer(fact)]
    following = min(later, key=lambda fact: fact.valid_from, default=newer)
    end = following.valid_from if later else ended
    older = msgspec.structs.replace(
        older,
        valid_to=end if older.valid_to is None else min(older.valid_to, end),
        replaced_by=following.id,
    )
    result: list[ProfileFact] = []
    for fact in facts:
        if fact is following:
            result.append(older)
        holds_then = fact.valid_to is not None and fact.valid_from <= start < fact.valid_to
        is_before = holds_then and leads_to_newer(fact)
        changed = {"valid_to": start, "replaced_by": older.id} if is_before else {}
        result.append(msgspec.structs.replace(fact, **changed))
    return result


def without_commit(
    facts: Sequence[ProfileFact],
    commit: UUID,
    messages: Container[UUID],
    supported_text: SupportedText,
) -> list[ProfileFact]:
    """Return the facts as if a commit of these messages had not been made.

    A fact of the commit stays only if other messages support it, at least in part; a fact that it
    had replaced holds again. The facts that stay lose the evidence of the commit's messages.
    """
    merged_sources: dict[str, set[FactSource]] = {}
    for fact in facts:
        if fact.replaced_by is not None:
            merged_sources.setdefault(fact.replaced_by, set()).update(fact.sources)
    remaining: list[ProfileFact] = []
    gone: dict[str, ProfileFact] = {}
    for fact in facts:
        own = fact.commit == commit
        parts = merged_sources.get(fact.id, set()) if own and fact.merged else set[FactSource]()
        others = any(
            source.message not in messages and source not in parts for source in fact.sources
        )
        parts_left = tuple(source for source in fact.parts if source.message not in messages)
        if others or not (own or fact.sources):
            remaining.append(_without_evidence(fact, parts_left, messages))
        elif text := supported_text(fact.text, (), parts_left):
            remaining.append(_narrow(fact, text, parts_left))
        else:
            gone[fact.id] = fact
    return [_restore(fact, gone) for fact in remaining]


def _without_evidence(
    fact: ProfileFact, parts: tuple[FactSource, ...], messages: Container[UUID]
) -> ProfileFact:
    sources = fact.sources
    if not fact.merged:  # which message stated which part of a merged fact is unknown: keep all
        sources = tuple(source for source in sources if source.message not in messages)
    return msgspec.structs.replace(fact, sources=sources, parts=parts)


def _narrow(fact: ProfileFact, text: str, sources: tuple[FactSource, ...]) -> ProfileFact:
    """Return a fact reduced to what these messages support."""
    several = len(sources) > 1
    return msgspec.structs.replace(
        fact, text=text, sources=sources, parts=(), merged=several, commit=None, stated=()
    )


def without_sources(
    facts: Iterable[ProfileFact],
    is_gone: Callable[[FactSource], bool],
    supported_text: SupportedText,
) -> list[ProfileFact]:
    """Return the facts without what rests on forgotten messages alone.

    A fact with other evidence stays. A merged fact that has lost evidence, or one of which other
    messages state a part, is reduced to what `supported_text` returns.
    """
    remaining: list[ProfileFact] = []
    gone: dict[str, ProfileFact] = {}
    for fact in facts:
        sources = tuple(source for source in fact.sources if not is_gone(source))
        parts = tuple(source for source in fact.parts if not is_gone(source))
        is_reduced = fact.merged and len(sources) < len(fact.sources)
        if not is_reduced and (sources or not fact.sources):
            remaining.append(msgspec.structs.replace(fact, sources=sources, parts=parts))
        elif text := supported_text(fact.text, sources, parts):
            remaining.append(_narrow(fact, text, (*sources, *parts)))
        else:
            gone[fact.id] = fact
    return [_restore(fact, gone) for fact in remaining]


def without_fact(facts: Sequence[ProfileFact], uid: str) -> list[ProfileFact]:
    """Return the facts without one and those merged into it; a fact it had replaced holds again."""
    by_id = {fact.id: fact for fact in facts}

    def is_part(fact: ProfileFact | None) -> bool:
        while fact is not None and fact.id != uid:
            successor = by_id.get(fact.replaced_by or "")
            fact = successor if successor is not None and successor.merged else None
        return fact is not None

    gone = {fact.id: fact for fact in facts if is_part(fact)}
    return [_restore(fact, gone) for fact in facts if fact.id not in gone]


def _restore(fact: ProfileFact, gone: Mapping[str, ProfileFact]) -> ProfileFact:
    """Return a fact without removed ones: it holds again if all its successors are gone."""
    last, successor = fact, fact.replaced_by
    while successor is not None and successor in gone:
        last = gone[successor]
        successor = last.replaced_by
    if last is fact:
        return fact
    # Without its successors it held until the last of them ended, if that ever did.
    return msgspec.structs.replace(
        fact, valid_to=last.valid_to if successor else None, replaced_by=successor
    )
