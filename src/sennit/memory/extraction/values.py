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
"""The author of a result: a model, or rules."""

MAX_ABSTRACT_CHARS = 256
MAX_OVERVIEW_CHARS = 4000


def abstract_of(text: str, letters: int = MAX_ABSTRACT_CHARS) -> str:
    """Return a text as one line, truncated to the length of an abstract."""
    line = " ".join(text[: 8 * letters].split())
    return line if len(line) <= letters else f"{line[: letters - 1].rstrip()}…"


class Category(StrEnum):
    """The category of a memory, which decides its owner and whether it may be merged."""

    PROFILE = "profile"
    """The user: one file, a line per fact."""
    PREFERENCES = "preferences"
    """Likes, dislikes and standing wishes of the user."""
    ENTITIES = "entities"
    """People, pets, projects and other named things."""
    EVENTS = "events"
    """Past and future events and decisions."""
    CASES = "cases"
    """A problem and its solution."""
    PATTERNS = "patterns"
    """A reusable way of doing things."""

    @property
    def owner(self) -> Owner:
        """The kind of owner of these memories."""
        return "agent" if self in (Category.CASES, Category.PATTERNS) else "user"

    @property
    def mergeable(self) -> bool:
        """True if two may become one; events and solved problems stay as they were."""
        return self not in (Category.EVENTS, Category.CASES)


class Action(StrEnum):
    """The action for a candidate."""

    CREATE = "CREATE"
    """Write a new memory."""
    UPDATE = "UPDATE"
    """Close the target's statement and write the new text in its place."""
    MERGE = "MERGE"
    """Write one text with the statements of both."""
    SKIP = "SKIP"
    """Known already; only the evidence is new."""


@dataclass(frozen=True, slots=True)
class QuotedEvidence:
    """The message a memory came from, and the quoted words."""

    message_id: UUID
    quote: str = ""
    """The sentence as it was said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Something worth remembering, not yet compared with known memories."""

    category: Category
    text: str
    """The text to remember, in one to three sentences."""
    slug: str
    """A name for its file without a suffix: a-z, 0-9 and single hyphens, never empty."""
    evidence: tuple[QuotedEvidence, ...]
    """At least one."""
    said_at: datetime
    """When it was said."""
    valid_from: datetime | None = None
    """Since when it holds, or when it happened, if stated."""
    valid_to: datetime | None = None
    """Until when it held, if stated."""

    @property
    def id(self) -> str:
        """An id that is the same for the same text from the same messages."""
        ids = ",".join(str(one.message_id) for one in self.evidence)
        key = f"{self.category}\n{ids}\n{self.text}"
        return f"candidate-{sha256(key.encode(errors='surrogatepass')).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownMemory:
    """A memory that exists already: stored, or an earlier candidate of the same batch."""

    id: str
    """The URI or another id in its store; for a candidate its `id`."""
    category: Category
    text: str
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    """When it ceased to hold; None while it does."""
    stated: tuple[datetime, ...] = ()
    """When each of its sentences was last stated; if empty, at `valid_from`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDecision:
    """The decision about one candidate."""

    action: Action
    candidate: Candidate
    target: str | None = None
    """The `id` of the KnownMemory it concerns; None for CREATE.

    It may be the `id` of an earlier candidate in the same list, whose decision was CREATE: then the
    target is the memory that this decision has just written.
    """
    text: str = ""
    """The text of the memory from now on; for SKIP the unchanged text of the target."""
    absorbed: tuple[str, ...] = ()
    """For MERGE: the `id`s of further memories that become part of the target."""
    closed_at: datetime | None = None
    """For UPDATE: when the old statement ceased to hold."""
    superseded_at: datetime | None = None
    """For UPDATE: set if the known statement is the newer one. The candidate is history then: it
    held until this time, and the known text stays."""
    reason: str = ""
    """A short explanation for people."""


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
    """Extracted candidates, and how they were extracted."""

    candidates: tuple[Candidate, ...] = ()
    method: Method = "rules"
    refused: int = 0
    """The number of a model's claims that nobody had stated."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """The result of the extraction from some messages, ready to be stored."""

    summary: Summary
    decisions: tuple[MemoryDecision, ...]
    method: Method = "rules"
    """How memories were extracted."""
    summary_method: Method = "rules"
    decision_method: Method = "rules"
    refused: int = 0
    """The number of a model's claims that nobody had stated."""
    calls: int = 0
    """The number of model calls; at most three."""
    usage: Usage = field(default_factory=Usage)
    warnings: tuple[str, ...] = ()
    """Problems, for people; nothing is lost without a warning."""

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of created, updated, merged and skipped candidates."""
        actions = [decision.action for decision in self.decisions]
        return {str(action): actions.count(action) for action in Action}
