"""Rules about people, pets, projects and other named things."""

from __future__ import annotations

import re

from sennit.memory.extraction.clauses import NormalizedClause
from sennit.memory.extraction.facts import (
    BE,
    NAME,
    NO_WORDS,
    Fact,
    Rules,
    Words,
    content,
    first_phrase,
)
from sennit.memory.extraction.rules.lexicon import (
    JOBS,
    PEOPLE,
    POINTS_BACK,
    STATES,
    THINGS,
    TROUBLE,
)
from sennit.memory.extraction.terms import fold
from sennit.memory.extraction.values import Category

PERSON = "|".join(sorted(PEOPLE, key=len, reverse=True))
_ENTITY = "|".join(sorted((*PEOPLE, *THINGS), key=len, reverse=True))
_ADJECTIVES = r"(?:(?!name\b)[\w-]+ ){0,2}?"

entity_rules = Rules()


@entity_rules.add(
    rf"my {_ADJECTIVES}({_ENTITY})(?:'s name)? (?:is|are|was) (?:called |named )?({NAME})"
    r"(?:,.*| (?:who|and|which) .*)?$"
)
def _is_named(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _entity(match[1], match[2])


@entity_rules.add(
    rf"my {_ADJECTIVES}({_ENTITY}) (?:is|are) (?:called|named) (\w.*)",
    rf"I (?:have|has|had) (?:\w+ )?{_ADJECTIVES}({_ENTITY})s? (?:called|named) (\w.*)",
)
def _is_called(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _entity(match[1] or match[3], first_phrase(match[2] or match[4]))


@entity_rules.add(rf"my {_ADJECTIVES}({_ENTITY})s?,? ({NAME}),? (\S.*)")
def _named_statement(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _entity(match[1], match[2], match[3])


@entity_rules.add(rf"({NAME}) (?:is|was) my {_ADJECTIVES}({_ENTITY})\b(?:,? (?:and|who) (.+))?")
def _named_is_my(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return None if POINTS_BACK.match(match[1]) else _entity(match[2], match[1], match[3] or "")


@entity_rules.add(
    rf"I (?:am|is) (?:working on|building|developing|leading|maintaining) (?:an? |the |my )?"
    rf"(?:[\w-]+ ){{0,2}}?(?:({_ENTITY}) )?(?:called |named )?({NAME})"
)
def _builds(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _entity(match[1] or "project", match[2])


@entity_rules.add(
    rf"my {_ADJECTIVES}({PERSON}) ((?:{BE}|has|have|had|lives?|works?|likes?|loves?|hates?|"
    r"plays?|studies|wants?|needs?|eats?|speaks?|moved|got|started) .+)"
)
def _unnamed(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _entity(match[1], "", match[2])


_STATEMENT_PATTERNS = [
    (slot, re.compile(pattern, re.IGNORECASE))
    for slot, pattern in (
        ("home", r"(?:lives?|living|(?:has |have )?moved|relocated|is based)(?: in| to) (.+)"),
        ("job", r"works? as (?:an? )?(.+)"),
        ("age", r"(?:is|turned) (\w+)(?: years old|$)"),
        ("use", r"(?:uses?|runs on|relies on) (.+)"),
        ("status", rf"is ({STATES})\b"),
        ("job", rf"is an? ((?:\w+ )?(?:{JOBS})\b.*)"),
        ("", rf"(?:{BE} )?(.*)"),
    )
]


def _entity(relation: str, name: str, rest: str = "") -> Fact:
    slot, value = _slot_and_value(rest)
    kind = fold(relation)
    return Fact(Category.ENTITIES, slot, value, content(name), kind, label=name or kind)


def _slot_and_value(rest: str) -> tuple[str, Words]:
    """Return a statement about an entity as a slot and a value."""
    for slot, pattern in _STATEMENT_PATTERNS:
        if match := pattern.match(rest.strip()):
            return slot, content(first_phrase(match[1]) if slot else match[1])
    return "", NO_WORDS


@entity_rules.add(r"my ([a-z-]+) ((?-i:[A-Z])[a-z]+) (\w+s (?!called).+)")
def _unlisted_kind(match: re.Match[str], clause: NormalizedClause) -> Fact | None:
    """Match a named entity of a kind that no list contains."""
    return None if TROUBLE.search(clause.text) else _entity(match[1], match[2], match[3])


@entity_rules.add(rf"(?:my|the) ({'|'.join(THINGS)})(?:'s)? (?:code ?)?name is ({NAME})")
def _codename(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _entity(match[1], match[2])


@entity_rules.add(rf"I (?:have|has) (?:an?|\w+) ({_ENTITY})s?, ({NAME}(?: and {NAME})?)")
def _has_named(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _entity(match[1], match[2])
