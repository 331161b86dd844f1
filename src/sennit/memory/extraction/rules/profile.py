"""Rules about the user: name, home, work, family, health, languages.

Most of it can be only one thing at a time, so another value is a change.
"""

from __future__ import annotations

import re
from dataclasses import replace

from sennit.memory.extraction.clauses import NormalizedClause
from sennit.memory.extraction.facts import (
    COMMON_THING,
    HAVE,
    NAME,
    Fact,
    Rules,
    content,
    first_phrase,
)
from sennit.memory.extraction.rules.lexicon import (
    ATTRIBUTES,
    DIETS,
    JOBS,
    LANGUAGES,
    NATIONS,
    NO_NAME,
    STATES,
)
from sennit.memory.extraction.values import Category

profile_rules = Rules()


def _profile_fact(slot: str, text: str, *, single: bool = True) -> Fact | None:
    value = content(first_phrase(text))
    return Fact(Category.PROFILE, slot, value, label=slot, single=single) if value else None


def _negate_if_past(fact: Fact | None, match: re.Match[str]) -> Fact | None:
    """Negate a fact that is stated in the past tense, as in "I lived" or "I worked"."""
    is_past = re.match(r"I (?:lived|worked)\b", match[0], re.IGNORECASE)
    return replace(fact, positive=False) if fact and is_past else fact


@profile_rules.add(
    r"(?:my (?:full |first |real |nick)?name is|I (?:am|is) (?:called|named)|I goe?s? by) "
    r"(?!on |in |not |an? |the (?!name))(.+)",
    rf"call me ({NAME})",
)
def _named(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile_fact("name", re.sub(r"^the name ", "", match[1] or match[2]))


@profile_rules.add(
    r"(?:my age is|I (?:am|is|turned|turn)) (\d{1,3})(?: years? old)?"
    r"(?:$|,| (?:yesterday|today|in|on|last|this|and)\b)"
)
def _age(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile_fact("age", match[1])


@profile_rules.add(r"my (?:birthday|date of birth) is (?:on )?(.+)")
def _birthday(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile_fact("birthday", match[1].split(" in ")[0])


@profile_rules.add(r"I was born (?:on|in) (.+)")
def _born(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile_fact("birthday" if match[1][0].isdigit() else "birthplace", match[1])


@profile_rules.add(
    r"I (?:am |is |have been |has been )?"
    r"(?:lives?|living|lived|resides?|residing|based|settled)(?: down)? in (.+)"
)
def _home(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _negate_if_past(_profile_fact("home", match[1]), match)


@profile_rules.add(
    rf"(?:my home(?: ?town)? is(?: in)?|I {HAVE}(?:moved|relocated)(?: back)?"
    r"(?: from (\w[\w ]*?))? to) "
    rf"(?!{COMMON_THING})(.+)"
)
def _moved(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    fact = _profile_fact("home", match[2])
    return fact and replace(fact, replaces=content(match[1] or ""))


@profile_rules.add(r"I (?:(?:am|is|was) from|comes? from|grew up in|was raised in) (.+)")
def _origin(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile_fact("origin", match[1])


@profile_rules.add(
    r"(?:I (?:works?|worked|am working|is working|have been working) as"
    r"|my (?:job|profession|occupation|role|job title) is(?: being)?) (?:an? |the )?(.+)",
    r"I do(?:es)? (.+?) for a living",
)
def _job(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _negate_if_past(_profile_fact("job", match[1] or match[2]), match)


@profile_rules.add(
    rf"I (?:works?|worked|(?:am|is|have been) working|am employed|{HAVE}started(?: working| work|"
    rf" a (?:new )?job)?|{HAVE}got a (?:new )?job) (?:for|at|by) ((?-i:[A-Z])\w.*)",
    r"I (?:works?|(?:am|is|have been) working)(?: nights| days| part-time| full-time)?"
    r" (?:for|at|in) (an? (?!while\b|bit\b|long\b|few\b|lot\b"
    r"|solution\b|fix\b).+)",
    rf"I {HAVE}joined ((?-i:[A-Z])\w.*)",
    r"my employer is (.+)",
    r"I (?:am|is) (?:an employee|on the staff|a member of staff) (?:of|at) (.+)",
)
def _employer(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _negate_if_past(_profile_fact("employer", next(filter(None, match.groups()))), match)


@profile_rules.add(rf"I {HAVE}(?:left|resigned from|been fired by) ((?-i:[A-Z])\w.*)")
def _left(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    fact = _profile_fact("employer", match[1])
    return fact and replace(fact, positive=False, change=True)


@profile_rules.add(
    r"I (?:stud(?:y|ies|ied)|(?:am|is) studying|major(?:ed)? in|have a degree in) "
    rf"(?!{COMMON_THING})(.+)"
)
def _study(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile_fact("study", match[1], single=False)


@profile_rules.add(rf"I (?:am|is) (?:an? )?({STATES})\b")
def _state(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile_fact("status", match[1])


@profile_rules.add(
    r"I (?:have|has) (?:(\w+) (?:kids|children|kid|child|sons|daughters|grand\w+)|"
    r"(twins|triplets))\b",
    r"I (?:am|is) (?:an? |the )?(?:\w+ )?(?:mother|father|mom|mum|dad|parent) (?:of|to) (\w+)\b",
)
def _children(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile_fact("children", match[1] or match[2] or match[3])


@profile_rules.add(r"I (?:am|are) an? (?:\w+ )?(family of \w+)")
def _family(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile_fact("family", match[1])


@profile_rules.add(
    r"I (?:am|is) (?:an? )?([\w-]*(?:betic|exic|epileptic|blind|deaf|autistic|hyperactive))$",
    r"I (?:have|has|suffers? from) (?:an? )?((?:[\w-]+ ){0,3}(?:disease|syndrome|disorder|asthma|"
    r"diabetes|migraines?|arthritis|epilepsy))\b",
)
def _health(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile_fact("health", match[1] or match[2], single=False)


@profile_rules.add(rf"I (?:am|is|have been|became|turned) (?:an? )?((?:{DIETS})\b.*)")
def _diet(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile_fact("diet", match[1])


@profile_rules.add(
    r"I (?:am|is) (severely |deathly )?allergic to (.+)",
    r"I ha(?:ve|s) an? (.+?) allergy",
    r"I (?:am|is) ([\w-]+ intolerant)",
)
def _allergy(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile_fact("allergy", match[2] or match[3] or match[4], single=False)


@profile_rules.add(rf"I (?:am|is) (?:an? )?({NATIONS})(?:$|,)")
def _nation(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile_fact("nationality", match[1])


@profile_rules.add(
    rf"I (?:speaks?|(?:am|is) fluent in) (?:some |a little )?(?={LANGUAGES}|(?-i:[A-Z]))(.+)",
    r"my (?:native|first|mother) (?:language|tongue) is (.+)",
)
def _language(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile_fact("language", match[1] or match[2], single=False)


@profile_rules.add(rf"my ({ATTRIBUTES}) is (.+)")
def _attribute(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile_fact(match[1].lower().replace(" ", ""), match[2])


@profile_rules.add(
    rf"I (?:am|is) an? ((?:[\w-]+ ){{0,3}}?(?:{JOBS}))(?:$|,| (?:at|for|in|from|by|and|with|who)\b)"
)
def _works_as(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile_fact("job", match[1])


@profile_rules.add(rf"I (?:am|is) ({NAME})$")
def _is(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return None if NO_NAME.match(match[1]) else _profile_fact("name", match[1])
