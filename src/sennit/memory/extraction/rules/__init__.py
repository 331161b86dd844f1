"""English extraction rules: profile, preferences, entities and events.

Each rule matches the beginning of a plain clause, in English, and makes the fact it states. The
first that makes one wins, so the order of the tables matters: what is said of others and of days
comes before what could be said of anything. A rule would rather know nothing than guess.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from sennit.memory.extraction.clauses import normalize
from sennit.memory.extraction.facts import Fact
from sennit.memory.extraction.rules.entities import entity_rules
from sennit.memory.extraction.rules.events import event_rules
from sennit.memory.extraction.rules.preferences import preference_rules, work_style_rules
from sennit.memory.extraction.rules.profile import profile_rules

_TABLES = (work_style_rules, profile_rules, entity_rules, event_rules, preference_rules)


_NAMED_GROUP = re.compile(r"\(\?P<\w+>")


@lru_cache(maxsize=1)
def _any() -> re.Pattern[str]:
    """Return one pattern that matches where any rule could, to skip most clauses quickly."""
    patterns = [_NAMED_GROUP.sub("(", one) for table in _TABLES for one in table.patterns]
    return re.compile("|".join(patterns), re.IGNORECASE)


def is_instruction(clause: str) -> bool:
    """Return whether a clause says what to do ("Always run the tests first") and nothing of
    anybody.
    """
    fact = fact_of(clause)
    return fact is not None and fact.slot == "instruct"


@lru_cache(maxsize=4096)
def fact_of(clause: str) -> Fact | None:
    """The fact a clause states, if a rule knows it."""
    made = normalize(clause)
    if not _any().match(made.text):
        return None
    for table in _TABLES:
        fact = table.fact(made)
        if fact is not None:
            positive = fact.positive == made.positive
            return replace(fact, positive=positive, change=fact.change or made.change)
    return None
