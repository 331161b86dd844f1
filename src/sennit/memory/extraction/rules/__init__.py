"""English extraction rules: profile, preferences, entities and events.

Each rule matches the beginning of a normalized clause and builds the fact it states. The first rule
that builds one wins, so the order of the tables matters: rules about others and dates come before
rules that could match anything. In doubt a rule builds no fact.
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
def _any_rule() -> re.Pattern[str]:
    """Return one pattern that matches wherever a rule could, to skip most clauses quickly."""
    patterns = [_NAMED_GROUP.sub("(", pattern) for table in _TABLES for pattern in table.patterns]
    return re.compile("|".join(patterns), re.IGNORECASE)


def is_instruction(clause: str) -> bool:
    """Return whether a clause is a standing instruction ("Always run the tests first")."""
    fact = fact_of(clause)
    return fact is not None and fact.slot == "instruct"


@lru_cache(maxsize=4096)
def fact_of(clause: str) -> Fact | None:
    """Return the fact a clause states, if a rule matches it."""
    normalized = normalize(clause)
    if not _any_rule().match(normalized.text):
        return None
    for table in _TABLES:
        fact = table.fact(normalized)
        if fact is not None:
            positive = fact.positive == normalized.positive
            return replace(fact, positive=positive, change=fact.change or normalized.change)
    return None
