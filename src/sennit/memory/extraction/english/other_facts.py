"""Rules for facts about others and things, and for events.

A fact about a person, a pet or a thing names its relation to the user ("my sister Anna"). An event
has a date, or is a thing that people remember; what only concerns the moment or the work at hand
("I'll try it tomorrow") is none.
"""

from __future__ import annotations

import re

from sennit.memory.extraction.english.clauses import NormalizedClause
from sennit.memory.extraction.english.dates import without_dates
from sennit.memory.extraction.english.facts import (
    BE,
    HAVE,
    IGNORE_CASE,
    NAME,
    NO_WORDS,
    Fact,
    content,
    first_phrase,
    rule,
)
from sennit.memory.extraction.english.lexicon import (
    DEEDS,
    GROUPS,
    JOBS,
    LIFE,
    MILESTONES,
    NOT_LASTING,
    OCCASIONS,
    PEOPLE,
    PLANS,
    POINTS_BACK,
    STATES,
    THINGS,
    TROUBLE,
)
from sennit.memory.extraction.terms import fold
from sennit.memory.extraction.values import Category

_PERSON = "|".join(sorted(PEOPLE, key=len, reverse=True))
_ENTITY = "|".join(sorted((*PEOPLE, *THINGS), key=len, reverse=True))
_GROUP = "|".join(GROUPS)
_ADJECTIVES = r"(?:(?!name\b)[\w-]+ ){0,4}?"
_ENTITY_STATEMENTS = [
    (slot, re.compile(pattern, IGNORE_CASE))
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


def _entity(relation: str, name: str, statement: str = "") -> Fact:
    """Return a fact about a person or thing; what is stated about it has a slot and a value."""
    slot, value = "", NO_WORDS
    for slot, pattern in _ENTITY_STATEMENTS:
        if match := pattern.match(statement.strip()):
            value = content(first_phrase(match[1]) if slot else match[1])
            break
    kind = fold(relation)
    return Fact(Category.ENTITIES, slot, value, content(name), kind, label=name or kind)


_DEED = re.compile(rf"{HAVE}(?:{DEEDS})\b", IGNORE_CASE)

ENTITY_RULES = (
    rule(
        lambda match, _: _entity(match[1], match[2]),
        rf"my {_ADJECTIVES}({_ENTITY})(?:'s name)? (?:is|are|was) (?:called |named )?({NAME})"
        r"(?:,.*| (?:who|and|which) .*)?$",
    ),
    rule(
        lambda match, _: _entity(match[1] or match[3], first_phrase(match[2] or match[4])),
        rf"my {_ADJECTIVES}({_ENTITY}) (?:is|are) (?:called|named) (\w.*)",
        rf"I (?:have|has|had) (?:\w+ )?{_ADJECTIVES}({_ENTITY})s? (?:called|named) (\w.*)",
    ),
    rule(
        lambda match, _: _entity(match[1], match[2], match[3]),
        rf"my {_ADJECTIVES}({_ENTITY})s?,? ({NAME}),? (\S.*)",
    ),
    rule(
        lambda match, _: (
            None if POINTS_BACK.match(match[1]) else _entity(match[2], match[1], match[3] or "")
        ),
        rf"({NAME}) (?:is|was) my {_ADJECTIVES}({_ENTITY})\b(?:,? (?:and|who) (.+))?",
    ),
    rule(
        lambda match, _: _entity(match[1] or "project", match[2]),
        rf"I (?:am|is) (?:working on|building|developing|leading|maintaining) (?:an? |the |my )?"
        rf"(?:[\w-]+ ){{0,2}}?(?:({_ENTITY}) )?(?:called |named )?({NAME})",
    ),
    rule(
        lambda match, clause: (
            None if clause.dated and _DEED.match(match[2]) else _entity(match[1], "", match[2])
        ),
        rf"my {_ADJECTIVES}({_PERSON}|{_GROUP}) ((?:{BE}|has|have|had|(?:do|does|did|will|would) "
        rf"not|"
        r"\w+(?:[^s\W]s|ed)|live|work|like|love|hate|play|want|need|eat|speak|got|went|came|took|"
        r"left|broke|won|lost|met|made|gave|bought|ran|drives?) .+)",
    ),
    rule(  # a named entity of a kind that no list contains
        lambda match, clause: (
            None if TROUBLE.search(clause.text) else _entity(match[1], match[2], match[3])
        ),
        r"my ([a-z-]+) ((?-i:[A-Z])[a-z]+) (\w+s (?!called).+)",
    ),
    rule(
        lambda match, _: _entity(match[1], match[2]),
        rf"(?:my|the) ({'|'.join(THINGS)})(?:'s)? (?:code ?)?name is ({NAME})",
    ),
    rule(
        lambda match, _: _entity(match[1], match[2]),
        rf"I (?:have|has) (?:an?|\w+) ({_ENTITY})s?, ({NAME}(?: and {NAME})?)",
    ),
)


def _event(clause: NormalizedClause) -> Fact:
    label = re.sub(rf"^I (?:{BE} |{HAVE})?", "", without_dates(clause.text), flags=IGNORE_CASE)
    return Fact(Category.EVENTS, "event", content(clause.text), label=label)


def _matters_later(clause: NormalizedClause) -> bool:
    """Return whether a clause says something that matters when its day is over."""
    if TROUBLE.search(clause.text):
        return False
    return _NAMED.search(clause.text[1:]) is not None or NOT_LASTING.search(clause.text) is None


def _said_what(match: re.Match[str], clause: NormalizedClause) -> Fact | None:
    """Return an event without a date if it says enough to make sense alone."""
    rest = without_dates(clause.text[match.end() :])
    is_told = len(content(rest)) > 0 and not POINTS_BACK.match(rest.strip())
    return _event(clause) if is_told and _matters_later(clause) else None


_NAMED = re.compile(
    r"(?-i:(?<![.!?] )\b(?!I\b|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day)[A-Z][a-z]+)|\b\d"
)
_NEAR = re.compile(
    r"\b(?:today|tonight|tomorrow|this (?:morning|afternoon|evening))\b", IGNORE_CASE
)


def _dated(_match: re.Match[str], clause: NormalizedClause) -> Fact | None:
    if not clause.dated or not _matters_later(clause):
        return None
    return _event(clause)


def _ahead(match: re.Match[str], clause: NormalizedClause) -> Fact | None:
    """Return a dated plan; of the same day or the next only what has a name or an occasion."""
    trivial = _NEAR.search(clause.clause) and not (
        _NAMED.search(clause.text[1:]) or _OCCASION.search(clause.text)
    )
    return None if trivial else _dated(match, clause)


_OCCASION = re.compile(rf"\b(?:{OCCASIONS})\b", IGNORE_CASE)

EVENT_RULES = (
    rule(
        lambda _, clause: _event(clause) if clause.dated or len(clause.text.split()) > 2 else None,
        rf"I {HAVE}(?:decided?|chose|chosen|agreed|resolved|settled on|am going with|"
        r"are going with|will go with)\b",
        rf"I {HAVE}(?:{MILESTONES})\b",
    ),
    rule(_dated, rf"(?:I|my (?:\w+ )?(?:{_ENTITY})) {HAVE}(?:{DEEDS})\b"),
    rule(_said_what, rf"I {HAVE}(?:{LIFE})", rf"I (?:{PLANS})"),
    rule(
        _said_what,
        r"my (?:\w+ )?(?:goal|dream|plan|new year's resolution|resolution) (?:for [\w ]+ )?is",
    ),
    rule(
        _ahead,
        r"I (?:starts?|begins?|leaves?|moves?|fl(?:y|ies)|travels?|meets?) \w+",
        r"I (?:am|are|is|will be|will|was|were) \w+",
        r"I (?:have|has|had) (?:an?|my|the|two|three|another)\b",
        rf"(?:my|the) (?:[\w-]+ ){{0,2}}?(?:{OCCASIONS})\b",
    ),
)
