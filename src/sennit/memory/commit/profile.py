"""The profile: one append-only file with a line per fact.

A fact that changes is closed, not erased: its line stays, struck through, with the day it ended,
and the new one stands below. Each fact knows its evidence, its commit, and when it held, so that a
session can be forgotten, or a commit undone, without touching the facts of others. The lines are
written from the facts; where a person has edited the lines, the facts follow them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast
from uuid import UUID

import msgspec

from sennit import clock
from sennit.ids import new_id
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
        """The same, as it is written down."""
        owner = evidence.owner
        return cls(owner.tenant, owner.name, evidence.session, evidence.message)

    @property
    def evidence(self) -> EvidenceRecord:
        """The same, as a store keeps it."""
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
    """The fact that took its place."""
    merged: bool = False
    """Whether its text joins what several messages said."""
    parts: tuple[FactSource, ...] = ()
    """Messages that said a part of it, or the same in other words, and are no witness for it."""


SaidBy: TypeAlias = Callable[[str, Sequence[FactSource], Sequence[FactSource]], str]
"""Gives what messages say of a text, and those that said a part of it, in their own words."""


def facts_in(info: dict[str, Any]) -> list[ProfileFact]:
    """The facts of a version of the profile."""
    return msgspec.convert(info.get("facts", []), list[ProfileFact])


def facts_info(facts: Iterable[ProfileFact]) -> list[dict[str, Any]]:
    """Facts as a version keeps them."""
    return cast("list[dict[str, Any]]", msgspec.to_builtins(list(facts)))


def evidence_of(facts: Iterable[ProfileFact]) -> tuple[EvidenceRecord, ...]:
    """The messages that facts came from."""
    return in_order(source.evidence for fact in facts for source in fact.sources)


def lines_of(facts: Sequence[ProfileFact]) -> str:
    """The file that says these facts."""
    said = [f"- {_line(fact)}" for fact in facts]
    return "\n".join([TITLE, "", *said]) + "\n"


def _line(fact: ProfileFact) -> str:
    if fact.valid_to is None:
        return fact.text
    return f"~~{fact.text}~~ (until {clock.to_iso(fact.valid_to)[:10]})"


def facts_after_edit(body: str, known: Sequence[ProfileFact], now: int) -> list[ProfileFact]:
    """The facts of an edited file: known lines stay what they were, new ones are a person's."""
    left = list(known)
    found: list[ProfileFact] = []
    for line in body.splitlines():
        said = _said(line)
        if not said or said.startswith("#"):
            continue
        closed = _CLOSED.match(said)
        text = closed["text"] if closed else said
        fact = _taken(left, text, is_closed=closed is not None)
        found.append(fact or ProfileFact(new_fact_id(), text, now, now if closed else None))
    return found


def _said(line: str) -> str:
    return line.strip().removeprefix("-").removeprefix("*").strip()


def lines_that_hold(body: str) -> list[str]:
    """The lines of the file without those that are closed."""
    return [line for line in body.strip().splitlines() if not _CLOSED.match(_said(line))]


def _taken(facts: list[ProfileFact], text: str, *, is_closed: bool) -> ProfileFact | None:
    for place, fact in enumerate(facts):
        if fact.text == text and (fact.valid_to is not None) == is_closed:
            return facts.pop(place)
    return None


def new_fact_id() -> str:
    """Return a new id of a fact, unique within its file."""
    return f"fact-{new_id()}"


def closed(facts: Iterable[ProfileFact], uid: str, at: int, replaced_by: str) -> list[ProfileFact]:
    """The facts after one of them has ended, as another has taken its place."""
    return [
        msgspec.structs.replace(fact, valid_to=max(at, fact.valid_from), replaced_by=replaced_by)
        if fact.id == uid and fact.valid_to is None
        else fact
        for fact in facts
    ]


def without_commit(
    facts: Sequence[ProfileFact], commit: UUID, messages: Container[UUID], said_by: SaidBy
) -> list[ProfileFact]:
    """The facts as if a commit of these messages had not been made.

    Its own are gone unless others have said so too, or a part of it, and what these had replaced
    holds again. Those that are left rest on what others said.
    """
    joined: dict[str, set[FactSource]] = {}
    for fact in facts:
        if fact.replaced_by is not None:
            joined.setdefault(fact.replaced_by, set()).update(fact.sources)
    kept: list[ProfileFact] = []
    gone: dict[str, ProfileFact] = {}
    for fact in facts:
        own = fact.commit == commit
        parts = joined.get(fact.id, set()) if own and fact.merged else set[FactSource]()
        others = any(one.message not in messages and one not in parts for one in fact.sources)
        parts_left = tuple(one for one in fact.parts if one.message not in messages)
        if others or not (own or fact.sources):
            kept.append(_unconfirmed(fact, parts_left, messages))
        elif text := said_by(fact.text, (), parts_left):
            kept.append(_in_part(fact, text, parts_left))
        else:
            gone[fact.id] = fact
    return [_outlived(fact, gone) for fact in kept]


def _unconfirmed(
    fact: ProfileFact, parts: tuple[FactSource, ...], messages: Container[UUID]
) -> ProfileFact:
    sources = fact.sources
    if not fact.merged:  # else whoever has said which part of it, all of them are there to go by
        sources = tuple(one for one in sources if one.message not in messages)
    return msgspec.structs.replace(fact, sources=sources, parts=parts)


def _in_part(fact: ProfileFact, text: str, sources: tuple[FactSource, ...]) -> ProfileFact:
    """Give a fact that says only what these messages say of it."""
    several = len(sources) > 1
    return msgspec.structs.replace(
        fact, text=text, sources=sources, parts=(), merged=several, commit=None
    )


def without_sources(
    facts: Iterable[ProfileFact], is_gone: Callable[[FactSource], bool], said_by: SaidBy
) -> list[ProfileFact]:
    """The facts that say nothing of forgotten messages; what others have said too stays.

    Of a text that joins what several messages said, or of which others have said a part, what
    `said_by` finds in those left stays.
    """
    kept: list[ProfileFact] = []
    gone: dict[str, ProfileFact] = {}
    for fact in facts:
        left = tuple(source for source in fact.sources if not is_gone(source))
        parts = tuple(source for source in fact.parts if not is_gone(source))
        joined = fact.merged and len(left) < len(fact.sources)
        if not joined and (left or not fact.sources):
            kept.append(msgspec.structs.replace(fact, sources=left, parts=parts))
        elif text := said_by(fact.text, left, parts):
            kept.append(_in_part(fact, text, (*left, *parts)))
        else:
            gone[fact.id] = fact
    return [_outlived(fact, gone) for fact in kept]


def without_fact(facts: Sequence[ProfileFact], uid: str) -> list[ProfileFact]:
    """The facts without one and those merged into it; what it had replaced holds again."""
    known = {fact.id: fact for fact in facts}

    def is_part(fact: ProfileFact | None) -> bool:
        while fact is not None and fact.id != uid:
            by = known.get(fact.replaced_by or "")
            fact = by if by is not None and by.merged else None
        return fact is not None

    gone = {fact.id: fact for fact in facts if is_part(fact)}
    return [_outlived(fact, gone) for fact in facts if fact.id not in gone]


def _outlived(fact: ProfileFact, gone: Mapping[str, ProfileFact]) -> ProfileFact:
    """Give a fact as it is when some are gone: it holds again if all that took its place are."""
    last, by = fact, fact.replaced_by
    while by is not None and by in gone:
        last = gone[by]
        by = last.replaced_by
    if last is fact:
        return fact
    # Without what took its place it held until that ended, if it ever did.
    return msgspec.structs.replace(fact, valid_to=last.valid_to if by else None, replaced_by=by)
