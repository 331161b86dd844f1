"""Facts: the subject, value and polarity of a clause, which can be compared.

One table of rules serves two ends. Extraction asks of a clause somebody said which fact it states,
and so what kind of memory it is; dedup asks the same of two texts and compares the facts. So "I
live in Lisbon", "I'm based in Lisbon" and "The user lives in Lisbon" are one fact, and "I moved to
Berlin" is another value of it. A clause that no rule knows states no fact.
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
    """One thing that is said to be so, or not so."""

    category: Category
    slot: str
    """What kind of thing it says: `home`, `like`, `job` and so on."""
    value: Words = NO_WORDS
    """The content words that say what: {lisbon}, {green, tea}."""
    about: Words = NO_WORDS
    """Whom or what it is about, if not the user: {anna}, {rex}; for a favourite, its kind."""
    relation: str = ""
    """What that is to the user: sister, dog, project."""
    label: str = ""
    """What a file about it may be called."""
    single: bool = False
    """Whether only one value can hold at a time."""
    positive: bool = True
    change: bool = False
    """Whether it says that something has changed."""
    replaces: Words = NO_WORDS
    """The value it takes the place of, if that was said."""
    frame: Words = NO_WORDS
    """The words the fact is put in ("I live in", "my home is"), as opposed to what it says."""


FactBuilder: TypeAlias = Callable[[re.Match[str], NormalizedClause], Fact | None]

BE = r"(?:am|is|are|was|were)"
HAVE = r"(?:have |has )?"
NAME = (
    r"(?:(?:(?:Dr|Mrs?|Ms|Prof)\. )?(?-i:[^\W\d_a-z][\w'-]*)"
    r"(?: (?-i:[^\W\d_a-z][\w'.-]*)){0,2})"
)
COMMON_THING = r"(?:the(?! (?-i:[A-Z]))|an?|this|that|these|those|my|your|it|another|using|line) "
"""How a thing begins that has no name of its own."""


_LITERALS = re.compile(r"(?<!\\)[A-Za-z']+")
"""The words of a pattern."""


class Rules:
    """A table of rules, tried in the order in which they were added."""

    def __init__(self) -> None:
        self._rules: list[tuple[re.Pattern[str], Words, FactBuilder]] = []
        self.patterns: list[str] = []
        """All of them, in order."""

    def add(self, *patterns: str) -> Callable[[FactBuilder], FactBuilder]:
        """Add a function that makes a fact of a plain clause which one of the patterns begins."""
        compiled = re.compile("|".join(patterns), re.IGNORECASE)
        literal = content(" ".join(_LITERALS.findall(" ".join(patterns))))
        self.patterns += patterns

        def register(maker: FactBuilder) -> FactBuilder:
            self._rules.append((compiled, literal, maker))
            return maker

        return register

    def fact(self, clause: NormalizedClause) -> Fact | None:
        """Return the fact of the first rule that matches a clause."""
        for pattern, literal, maker in self._rules:
            found = pattern.match(clause.text)
            fact = found and maker(found, clause)
            if found and fact:
                # What a wildcard matched is said, also where no group captured it.
                return replace(fact, frame=content(_outside_groups(found)) & literal)
        return None


def _outside_groups(found: re.Match[str]) -> str:
    """The matched text that no group captured."""
    said = list(found[0])
    for number in range(1, found.re.groups + 1):
        start, end = found.span(number)
        if start >= 0:
            said[start - found.start() : end - found.start()] = " " * (end - start)
    return "".join(said)


_CUT = re.compile(
    r",.*| (?:with|since|because|for|until|till|near|together|after|before|last|next|but|though|"
    r"although|when|where|who|which|that|if|as|on|in|at|and (?:I|we|my|our))\b.*",
    re.IGNORECASE,
)


def first_phrase(text: str) -> str:
    """The first phrase of a text: what comes after it says more, but not what is meant."""
    return _CUT.sub("", text, count=1).strip() or text


def content(text: str) -> Words:
    """The content words of a text."""
    return frozenset(terms(text))
