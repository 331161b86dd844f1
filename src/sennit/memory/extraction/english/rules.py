"""English rules: the fact that a clause states, with its subject, value and polarity.

One table of rules has two uses. Extraction asks which fact a clause states, and so which category
of memory it is; deduplication asks the same of two texts and compares the facts. So "I live in
Lisbon", "I'm based in Lisbon" and "The user lives in Lisbon" are one fact, and "I moved to Berlin"
is another value of it. A clause that no rule matches states no fact.

Each rule matches the beginning of a normalized clause and builds the fact it states. The first rule
that builds one wins, so the order matters: rules about others and dates come before rules that
could match anything. In doubt a rule builds no fact.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from sennit.memory.extraction.english.clauses import normalize
from sennit.memory.extraction.english.facts import Fact, content
from sennit.memory.extraction.english.other_facts import ENTITY_RULES, EVENT_RULES
from sennit.memory.extraction.english.preferences import PREFERENCE_RULES, WORK_STYLE_RULES
from sennit.memory.extraction.english.user_facts import FAMILY_RULES, PROFILE_RULES

# Ways of working and favourites come first, because "my" is in both; rules that could match
# anything come last.
_RULES = (
    *WORK_STYLE_RULES,
    *PROFILE_RULES,
    *ENTITY_RULES,
    *FAMILY_RULES,
    *EVENT_RULES,
    *PREFERENCE_RULES,
)


@lru_cache(maxsize=4096)
def fact_of(clause: str) -> Fact | None:
    """Return the fact a clause states, if a rule matches it."""
    normalized = normalize(clause)
    for pattern, literal, build in _RULES:
        match = pattern.match(normalized.text)
        fact = match and build(match, normalized)
        if match and fact:
            return replace(
                fact,
                # Text matched by a wildcard is content, even outside of a group.
                frame=content(_outside_groups(match)) & literal,
                positive=fact.positive == normalized.positive,
                change=fact.change or normalized.change,
            )
    return None


def is_instruction(clause: str) -> bool:
    """Return whether a clause is a standing instruction ("Always run the tests first")."""
    fact = fact_of(clause)
    return fact is not None and fact.slot == "instruct"


def _outside_groups(match: re.Match[str]) -> str:
    """Return the matched text that no group captured."""
    chars = list(match[0])
    for number in range(1, match.re.groups + 1):
        start, end = match.span(number)
        if start >= 0:
            chars[start - match.start() : end - match.start()] = " " * (end - start)
    return "".join(chars)
