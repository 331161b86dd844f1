"""Facts: the subject, value and polarity of a clause, which can be compared.

One table of rules has two uses. Extraction asks which fact a clause states, and so which category
of memory it is; deduplication asks the same of two texts and compares the facts. So "I live in
Lisbon", "I'm based in Lisbon" and "The user lives in Lisbon" are one fact, and "I moved to Berlin"
is another value of it. A clause that no rule matches states no fact.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from sennit.memory.extraction.clauses import NormalizedClause
from sennit.memory.extraction.terms import terms
from sennit.memory.extraction.values import Category

Words: TypeAlias = frozenset[str]
NO_WORDS: Words = frozenset()


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


FactBuilder: TypeAlias = Callable[[re.Match[str], NormalizedClause], Fact | None]

BE = r"(?:am|is|are|was|were)"
HAVE = r"(?:have |has )?"
NAME = (
    r"(?:(?:(?:Dr|Mrs?|Ms|Prof)\. )?(?-i:[^\W\d_a-z][\w'-]*)"
    r"(?: (?-i:[^\W\d_a-z][\w'.-]*)){0,2})"
)
COMMON_THING = r"(?:the(?! (?-i:[A-Z]))|an?|this|that|these|those|my|your|it|another|using|line) "
"""The beginning of a noun phrase without a name."""


_LITERAL_WORDS = re.compile(r"(?<!\\)[A-Za-z']+")
"""The words of a pattern."""


class Rules:
    """A table of rules, tried in the order in which they were added."""

    def __init__(self) -> None:
        self._rules: list[tuple[re.Pattern[str], Words, FactBuilder]] = []
        self.patterns: list[str] = []
        """The patterns of all rules, in order."""

    def add(self, *patterns: str) -> Callable[[FactBuilder], FactBuilder]:
        """Add a function that builds a fact from a clause that begins with one of the patterns."""
        compiled = re.compile("|".join(patterns), re.IGNORECASE)
        literal = content(" ".join(_LITERAL_WORDS.findall(" ".join(patterns))))
        self.patterns += patterns

        def register(maker: FactBuilder) -> FactBuilder:
            self._rules.append((compiled, literal, maker))
            return maker

        return register

    def fact(self, clause: NormalizedClause) -> Fact | None:
        """Return the fact of the first rule that matches a clause."""
        for pattern, literal, maker in self._rules:
            match = pattern.match(clause.text)
            fact = match and maker(match, clause)
            if match and fact:
                # Text matched by a wildcard is content, even outside of a group.
                return replace(fact, frame=content(_outside_groups(match)) & literal)
        return None


def _outside_groups(match: re.Match[str]) -> str:
    """Return the matched text that no group captured."""
    chars = list(match[0])
    for number in range(1, match.re.groups + 1):
        start, end = match.span(number)
        if start >= 0:
            chars[start - match.start() : end - match.start()] = " " * (end - start)
    return "".join(chars)


_PHRASE_END = re.compile(
    r",.*| (?:with|since|because|for|until|till|near|together|after|before|last|next|but|though|"
    r"although|when|where|who|which|that|if|as|on|in|at|and (?:I|we|my|our))\b.*",
    re.IGNORECASE,
)


def first_phrase(text: str) -> str:
    """Return the first phrase of a text; the rest adds detail but does not change the subject."""
    return _PHRASE_END.sub("", text, count=1).strip() or text


def content(text: str) -> Words:
    """Return the content words of a text."""
    return frozenset(terms(text))
