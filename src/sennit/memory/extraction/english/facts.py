"""Facts that clauses state, and the parts from which their rules are made.

A rule matches the beginning of a normalized clause and builds the fact it states; in doubt it
builds none. The rules themselves are tables: `user_facts`, `other_facts` and `preferences`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from sennit.memory.extraction.english.clauses import NormalizedClause
from sennit.memory.extraction.english.lexicon import POINTS_BACK
from sennit.memory.extraction.terms import terms
from sennit.memory.extraction.values import Category

Words: TypeAlias = frozenset[str]
NO_WORDS: Words = frozenset()
IGNORE_CASE = re.IGNORECASE


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact that is affirmed or denied."""

    category: Category
    slot: str
    """The kind of fact: `home`, `like`, `job` and so on."""
    value: Words = NO_WORDS
    """The content words of the value: {lisbon}, {green, tea}."""
    about: Words = NO_WORDS
    """The subject, if it is not the user: {anna}, {rex}; for a favourite, its kind."""
    relation: str = ""
    """The relation of the subject to the user: sister, dog, project."""
    label: str = ""
    """A name for its file."""
    single: bool = False
    """Whether only one value can hold at a time."""
    positive: bool = True
    change: bool = False
    """Whether it says that something has changed."""
    replaces: Words = NO_WORDS
    """The value it replaces, if stated."""
    frame: Words = NO_WORDS
    """The words the fact is put in ("I live in", "my home is"), as opposed to its content."""


Builder: TypeAlias = Callable[[re.Match[str], NormalizedClause], Fact | None]


class Rule(NamedTuple):
    """A pattern, and the fact that it states."""

    pattern: re.Pattern[str]
    literal: Words
    """The content words of the pattern itself."""
    build: Builder


_LITERAL_WORDS = re.compile(r"(?<!\\)[A-Za-z']+")
_PHRASE_END = re.compile(
    r",.*| (?:with|since|because|for|until|till|near|together|after|before|last|next|but|though|"
    r"although|so|when|where|who|which|that|if|as|on|in|at|and (?:I|we|my|our))\b.*",
    IGNORE_CASE,
)


def first_phrase(text: str) -> str:
    """Return the first phrase of a text; the rest adds detail but does not change the subject."""
    return _PHRASE_END.sub("", text, count=1).strip() or text


def content(text: str) -> Words:
    """Return the content words of a text."""
    return frozenset(terms(text))


def rule(build: Builder, *patterns: str) -> Rule:
    """Return a rule that builds a fact from a clause that begins with one of the patterns."""
    literal = content(" ".join(_LITERAL_WORDS.findall(" ".join(patterns))))
    return Rule(re.compile("|".join(patterns), IGNORE_CASE), literal, build)


BE = r"(?:am|is|are|was|were)"
HAVE = r"(?:have |has )?"
NAME = (
    r"(?:(?:(?:Dr|Mrs?|Ms|Prof)\. )?(?-i:[^\W\d_a-z][\w'-]*)"
    r"(?: (?-i:[^\W\d_a-z][\w'.-]*)){0,2})"
)
COMMON_THING = r"(?:the(?! (?-i:[A-Z]))|an?|this|that|these|those|my|your|it|another|using|line) "
"""The beginning of a noun phrase without a name."""


def profile_fact(
    slot: str, text: str, *, single: bool = True, positive: bool = True
) -> Fact | None:
    """Return a fact about the user; None if its value refers to something said before."""
    value = content(first_phrase(text))
    if not value or POINTS_BACK.match(text.strip()):
        return None
    return Fact(Category.PROFILE, slot, value, label=slot, single=single, positive=positive)


def preference_fact(slot: str, text: str, *, positive: bool = True) -> Fact | None:
    """Return a preference; None if its value refers to something said before."""
    text = text.strip()
    if POINTS_BACK.match(text) or not (value := content(text)):
        return None
    return Fact(Category.PREFERENCES, slot, value, label=first_phrase(text), positive=positive)
