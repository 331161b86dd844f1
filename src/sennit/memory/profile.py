"""The profile: one file, a line per fact, append-only.

A fact that changes is closed, not erased: its line stays, struck through, with the day it ended,
and the new one stands below. Each fact knows its evidence, its commit, and when it held, so that a
session can be forgotten, or a commit undone, without touching the facts of others. The lines are
written from the facts; where a person has edited the lines, the facts follow them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, cast
from uuid import UUID

import msgspec

from sennit import clock
from sennit.ids import new_id
from sennit.stores.files import Evidence, in_order
from sennit.stores.records import Owner

TITLE = "# Profile"
_CLOSED = re.compile(r"^~~(?P<text>.*)~~(?: \(until [^)]*\))?$")


class Source(msgspec.Struct, frozen=True):
    """A message a fact came from."""

    tenant: str
    user: str
    session: UUID
    message: UUID

    @classmethod
    def of(cls, evidence: Evidence) -> Source:
        """The same, as it is written down."""
        owner = evidence.owner
        return cls(owner.tenant, owner.name, evidence.session, evidence.message)

    @property
    def evidence(self) -> Evidence:
        """The same, as a store keeps it."""
        return Evidence(Owner(self.tenant, "user", self.user), self.session, self.message)


class Fact(msgspec.Struct, frozen=True):
    """One line of the profile."""

    id: str
    text: str
    valid_from: int
    valid_to: int | None = None
    sources: tuple[Source, ...] = ()
    commit: UUID | None = None
    """The commit that wrote it; None if a person did."""
    closed_by: UUID | None = None
    """The commit that closed it."""
    replaced_by: str | None = None
    """The fact that took its place."""
    merged: bool = False
    """Whether its text joins what several messages said."""


def facts_in(info: dict[str, Any]) -> list[Fact]:
    """The facts of a version of the profile."""
    return msgspec.convert(info.get("facts", []), list[Fact])


def facts_info(facts: Iterable[Fact]) -> list[dict[str, Any]]:
    """Facts as a version keeps them."""
    return cast("list[dict[str, Any]]", msgspec.to_builtins(list(facts)))


def evidence_of(facts: Iterable[Fact]) -> tuple[Evidence, ...]:
    """The messages that facts came from."""
    return in_order(source.evidence for fact in facts for source in fact.sources)


def lines_of(facts: Sequence[Fact]) -> str:
    """The file that says these facts."""
    said = [f"- {_line(fact)}" for fact in facts]
    return "\n".join([TITLE, "", *said]) + "\n"


def _line(fact: Fact) -> str:
    if fact.valid_to is None:
        return fact.text
    return f"~~{fact.text}~~ (until {clock.to_iso(fact.valid_to)[:10]})"


def facts_after_edit(body: str, known: Sequence[Fact], now: int) -> list[Fact]:
    """The facts of an edited file: known lines stay what they were, new ones are a person's."""
    left = list(known)
    found: list[Fact] = []
    for line in body.splitlines():
        said = _said(line)
        if not said or said.startswith("#"):
            continue
        closed = _CLOSED.match(said)
        text = closed["text"] if closed else said
        fact = _taken(left, text, is_closed=closed is not None)
        found.append(fact or Fact(new_fact_id(), text, now, now if closed else None))
    return found


def _said(line: str) -> str:
    return line.strip().removeprefix("-").removeprefix("*").strip()


def lines_that_hold(body: str) -> list[str]:
    """The lines of the file without those that are closed."""
    return [line for line in body.strip().splitlines() if not _CLOSED.match(_said(line))]


def _taken(facts: list[Fact], text: str, *, is_closed: bool) -> Fact | None:
    for place, fact in enumerate(facts):
        if fact.text == text and (fact.valid_to is not None) == is_closed:
            return facts.pop(place)
    return None


def new_fact_id() -> str:
    """What a fact is known by within its file."""
    return f"fact-{new_id()}"


def closed(
    facts: Iterable[Fact], uid: str, at: int, commit: UUID | None, replaced_by: str
) -> list[Fact]:
    """The facts after one of them has ended, as another has taken its place."""
    return [
        msgspec.structs.replace(
            fact,
            valid_to=max(at, fact.valid_from),
            closed_by=commit,
            replaced_by=replaced_by,
        )
        if fact.id == uid and fact.valid_to is None
        else fact
        for fact in facts
    ]


def without_commit(facts: Iterable[Fact], commit: UUID, messages: Container[UUID]) -> list[Fact]:
    """The facts as if a commit of these messages had not been made.

    Its own are gone, those it closed hold again, and those it confirmed rest on what others said.
    """
    left = [_reopened(fact) if fact.closed_by == commit else fact for fact in facts]
    return [_unconfirmed(fact, messages) for fact in left if fact.commit != commit]


def _reopened(fact: Fact) -> Fact:
    return msgspec.structs.replace(fact, valid_to=None, closed_by=None, replaced_by=None)


def _unconfirmed(fact: Fact, messages: Container[UUID]) -> Fact:
    sources = tuple(one for one in fact.sources if one.message not in messages)
    # Where texts were joined, or nobody else is left, they are all there is to go by.
    return fact if fact.merged or not sources else msgspec.structs.replace(fact, sources=sources)


def without_sources(
    facts: Iterable[Fact],
    is_gone: Callable[[Source], bool],
    said_by: Callable[[str, Sequence[Source]], str],
) -> list[Fact]:
    """The facts that say nothing of forgotten messages; what others have said too stays.

    Of a text that joins what several messages said, what `said_by` finds in those left stays.
    """
    kept: list[Fact] = []
    gone: dict[str, str | None] = {}
    for fact in facts:
        left = tuple(source for source in fact.sources if not is_gone(source))
        joined = fact.merged and len(left) < len(fact.sources)
        text = said_by(fact.text, left) if joined else fact.text
        if text and (left or not fact.sources):
            kept.append(msgspec.structs.replace(fact, text=text, sources=left))
        else:
            gone[fact.id] = fact.replaced_by
    return [_outlived(fact, gone) for fact in kept]


def _outlived(fact: Fact, gone: Mapping[str, str | None]) -> Fact:
    """Give a fact as it is when some are gone: it holds again if all that took its place are."""
    if fact.replaced_by not in gone:
        return fact
    by = fact.replaced_by
    while by is not None and by in gone:
        by = gone[by]
    return msgspec.structs.replace(fact, replaced_by=by) if by else _reopened(fact)
