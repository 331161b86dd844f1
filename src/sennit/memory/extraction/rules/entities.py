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
_OTHER = "|".join(sorted((*PEOPLE, *THINGS), key=len, reverse=True))
_ADJECTIVES = r"(?:(?!name\b)[\w-]+ ){0,2}?"

entity_rules = Rules()


@entity_rules.add(
    rf"my {_ADJECTIVES}({_OTHER})(?:'s name)? (?:is|are|was) (?:called |named )?({NAME})"
    r"(?:,.*| (?:who|and|which) .*)?$"
)
def _is_named(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _entity(found[1], found[2])


@entity_rules.add(
    rf"my {_ADJECTIVES}({_OTHER}) (?:is|are) (?:called|named) (\w.*)",
    rf"I (?:have|has|had) (?:\w+ )?{_ADJECTIVES}({_OTHER})s? (?:called|named) (\w.*)",
)
def _is_called(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _entity(found[1] or found[3], first_phrase(found[2] or found[4]))


@entity_rules.add(rf"my {_ADJECTIVES}({_OTHER})s?,? ({NAME}),? (\S.*)")
def _said_of(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _entity(found[1], found[2], found[3])


@entity_rules.add(rf"({NAME}) (?:is|was) my {_ADJECTIVES}({_OTHER})\b(?:,? (?:and|who) (.+))?")
def _is_my(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return None if POINTS_BACK.match(found[1]) else _entity(found[2], found[1], found[3] or "")


@entity_rules.add(
    rf"I (?:am|is) (?:working on|building|developing|leading|maintaining) (?:an? |the |my )?"
    rf"(?:[\w-]+ ){{0,2}}?(?:({_OTHER}) )?(?:called |named )?({NAME})"
)
def _builds(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _entity(found[1] or "project", found[2])


@entity_rules.add(
    rf"my {_ADJECTIVES}({PERSON}) ((?:{BE}|has|have|had|lives?|works?|likes?|loves?|hates?|"
    r"plays?|studies|wants?|needs?|eats?|speaks?|moved|got|started) .+)"
)
def _unnamed(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _entity(found[1], "", found[2])


_SAID_OF = [
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
    slot, value = _said(rest)
    kind = fold(relation)
    return Fact(Category.ENTITIES, slot, value, content(name), kind, label=name or kind)


def _said(rest: str) -> tuple[str, Words]:
    """Return a statement about somebody as a slot and a value."""
    for slot, pattern in _SAID_OF:
        if found := pattern.match(rest.strip()):
            return slot, content(first_phrase(found[1]) if slot else found[1])
    return "", NO_WORDS


@entity_rules.add(r"my ([a-z-]+) ((?-i:[A-Z])[a-z]+) (\w+s (?!called).+)")
def _anyone(found: re.Match[str], made: NormalizedClause) -> Fact | None:
    """Somebody or something of a kind no list knows, but with a name."""
    return None if TROUBLE.search(made.text) else _entity(found[1], found[2], found[3])


@entity_rules.add(rf"(?:my|the) ({'|'.join(THINGS)})(?:'s)? (?:code ?)?name is ({NAME})")
def _codename(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _entity(found[1], found[2])


@entity_rules.add(rf"I (?:have|has) (?:an?|\w+) ({_OTHER})s?, ({NAME}(?: and {NAME})?)")
def _have_named(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _entity(found[1], found[2])
