"""Value types of extraction: candidates, decisions, evidence; no store.

    messages ──read──▶ Candidate ──compare with Known──▶ Decision
        └────────────▶ Summary

A candidate always names the words it came from. A decision always says what to write and why, so
that whoever stores it needs no judgement of its own: apply the decisions in order, and for SKIP
write nothing but the new evidence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Literal, TypeAlias
from uuid import UUID

from sennit.services.models.reply import Usage

Owner: TypeAlias = Literal["user", "agent"]
Method: TypeAlias = Literal["model", "rules"]
"""Who did the thinking: a model, or rules that need none."""

MAX_ABSTRACT_CHARS = 256
MAX_OVERVIEW_CHARS = 4000


def abstract_of(text: str, letters: int = MAX_ABSTRACT_CHARS) -> str:
    """A text in one line, cut off where it grows longer than an abstract may be."""
    line = " ".join(text[: 8 * letters].split())
    return line if len(line) <= letters else f"{line[: letters - 1].rstrip()}…"


class Category(StrEnum):
    """The category of a memory, which decides its owner and whether it may be merged."""

    PROFILE = "profile"
    """Who the user is: one file, a line per fact."""
    PREFERENCES = "preferences"
    """What the user likes, dislikes and wants done."""
    ENTITIES = "entities"
    """People, pets, projects and other things with a name."""
    EVENTS = "events"
    """What happened, will happen or was decided."""
    CASES = "cases"
    """A problem and what solved it."""
    PATTERNS = "patterns"
    """A way of doing things that can be used again."""

    @property
    def owner(self) -> Owner:
        """The kind of owner of these memories."""
        return "agent" if self in (Category.CASES, Category.PATTERNS) else "user"

    @property
    def mergeable(self) -> bool:
        """True if two may become one; what happened, and what solved a problem, stays as it was."""
        return self not in (Category.EVENTS, Category.CASES)


class Action(StrEnum):
    """The action for a candidate."""

    CREATE = "CREATE"
    """Write a new memory."""
    UPDATE = "UPDATE"
    """Close what the target said and write the new text in its place."""
    MERGE = "MERGE"
    """Write one text that says what both say."""
    SKIP = "SKIP"
    """It is known already; only the evidence is new."""


@dataclass(frozen=True, slots=True)
class QuotedEvidence:
    """The message a memory came from, and the words in it."""

    message_id: UUID
    quote: str = ""
    """The sentence as it was said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Something worth remembering, not yet compared with what is known."""

    category: Category
    text: str
    """What is to be remembered, in one to three sentences."""
    slug: str
    """What its file may be called, without an ending: a-z, 0-9 and single hyphens, never empty."""
    evidence: tuple[QuotedEvidence, ...]
    """At least one."""
    said_at: datetime
    """When it was said."""
    valid_from: datetime | None = None
    """Since when it holds, or when it happened, if that was said."""
    valid_to: datetime | None = None
    """Until when it held, if that was said."""

    @property
    def id(self) -> str:
        """The same whenever the same is extracted from the same messages."""
        ids = ",".join(str(one.message_id) for one in self.evidence)
        said = f"{self.category}\n{ids}\n{self.text}"
        return f"candidate-{sha256(said.encode(errors='surrogatepass')).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownMemory:
    """A memory that is there already: stored, or an earlier candidate of the same batch."""

    id: str
    """Its URI, or whatever else its store knows it by; for a candidate its `id`."""
    category: Category
    text: str
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    """When it ceased to hold; None while it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDecision:
    """The decision about one candidate."""

    action: Action
    candidate: Candidate
    target: str | None = None
    """The `id` of the Known it is about; None for CREATE.

    It may be the `id` of an earlier candidate in the same list, whose decision was CREATE: then the
    memory meant is the one that decision has just written.
    """
    text: str = ""
    """What the memory says from now on; for SKIP what the target says anyway."""
    absorbed: tuple[str, ...] = ()
    """For MERGE: the `id`s of further memories that become part of the target."""
    closed_at: datetime | None = None
    """For UPDATE: when what the target said ceased to hold."""
    reason: str = ""
    """Why, in a few words, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The summary of a conversation."""

    topic: str
    intent: str
    result: str
    status: str
    analysis: tuple[str, ...] = ()
    """The key steps."""
    request: str = ""
    """The user's core goal."""
    concepts: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()

    @property
    def one_line(self) -> str:
        """`[Topic]: [Intent] | [Result] | [Status]`."""
        return f"{self.topic}: {self.intent} | {self.result} | {self.status}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """Extracted candidates, and how they were found."""

    candidates: tuple[Candidate, ...] = ()
    method: Method = "rules"
    refused: int = 0
    """How many things a model wanted remembered that nobody had said."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """All that thinking about some messages gave: ready to be stored."""

    summary: Summary
    decisions: tuple[MemoryDecision, ...]
    method: Method = "rules"
    """How memories were extracted."""
    summary_method: Method = "rules"
    decision_method: Method = "rules"
    refused: int = 0
    """How many things a model wanted remembered that nobody had said."""
    calls: int = 0
    """How often a model was asked; three times at most."""
    usage: Usage = field(default_factory=Usage)
    warnings: tuple[str, ...] = ()
    """What did not go as it should have, for people; nothing is lost without one."""

    @property
    def counts(self) -> dict[str, int]:
        """Return the numbers of created, updated, merged and skipped candidates."""
        actions = [decision.action for decision in self.decisions]
        return {str(action): actions.count(action) for action in Action}
