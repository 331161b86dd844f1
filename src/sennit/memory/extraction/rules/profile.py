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


def _profile(slot: str, said: str, *, single: bool = True) -> Fact | None:
    value = content(first_phrase(said))
    return Fact(Category.PROFILE, slot, value, label=slot, single=single) if value else None


def _ended(fact: Fact | None, found: re.Match[str]) -> Fact | None:
    """A fact that "I lived" or "I worked" states: it was so, and is not any more."""
    over = re.match(r"I (?:lived|worked)\b", found[0], re.IGNORECASE)
    return replace(fact, positive=False) if fact and over else fact


@profile_rules.add(
    r"(?:my (?:full |first |real |nick)?name is|I (?:am|is) (?:called|named)|I goe?s? by) "
    r"(?!on |in |not |an? |the (?!name))(.+)",
    rf"call me ({NAME})",
)
def _named(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile("name", re.sub(r"^the name ", "", found[1] or found[2]))


@profile_rules.add(
    r"(?:my age is|I (?:am|is|turned|turn)) (\d{1,3})(?: years? old)?"
    r"(?:$|,| (?:yesterday|today|in|on|last|this|and)\b)"
)
def _age(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile("age", found[1])


@profile_rules.add(r"my (?:birthday|date of birth) is (?:on )?(.+)")
def _birthday(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile("birthday", found[1].split(" in ")[0])


@profile_rules.add(r"I was born (?:on|in) (.+)")
def _born(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile("birthday" if found[1][0].isdigit() else "birthplace", found[1])


@profile_rules.add(
    r"I (?:am |is |have been |has been )?"
    r"(?:lives?|living|lived|resides?|residing|based|settled)(?: down)? in (.+)"
)
def _home(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _ended(_profile("home", found[1]), found)


@profile_rules.add(
    rf"(?:my home(?: ?town)? is(?: in)?|I {HAVE}(?:moved|relocated)(?: back)?"
    r"(?: from (\w[\w ]*?))? to) "
    rf"(?!{COMMON_THING})(.+)"
)
def _moved(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    fact = _profile("home", found[2])
    return fact and replace(fact, replaces=content(found[1] or ""))


@profile_rules.add(r"I (?:(?:am|is|was) from|comes? from|grew up in|was raised in) (.+)")
def _origin(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile("origin", found[1])


@profile_rules.add(
    r"(?:I (?:works?|worked|am working|is working|have been working) as"
    r"|my (?:job|profession|occupation|role|job title) is(?: being)?) (?:an? |the )?(.+)",
    r"I do(?:es)? (.+?) for a living",
)
def _job(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _ended(_profile("job", found[1] or found[2]), found)


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
def _employer(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _ended(_profile("employer", next(filter(None, found.groups()))), found)


@profile_rules.add(rf"I {HAVE}(?:left|resigned from|been fired by) ((?-i:[A-Z])\w.*)")
def _left(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    fact = _profile("employer", found[1])
    return fact and replace(fact, positive=False, change=True)


@profile_rules.add(
    r"I (?:stud(?:y|ies|ied)|(?:am|is) studying|major(?:ed)? in|have a degree in) "
    rf"(?!{COMMON_THING})(.+)"
)
def _study(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile("study", found[1], single=False)


@profile_rules.add(rf"I (?:am|is) (?:an? )?({STATES})\b")
def _state(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile("status", found[1])


@profile_rules.add(
    r"I (?:have|has) (?:(\w+) (?:kids|children|kid|child|sons|daughters|grand\w+)|"
    r"(twins|triplets))\b",
    r"I (?:am|is) (?:an? |the )?(?:\w+ )?(?:mother|father|mom|mum|dad|parent) (?:of|to) (\w+)\b",
)
def _children(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile("children", found[1] or found[2] or found[3])


@profile_rules.add(r"I (?:am|are) an? (?:\w+ )?(family of \w+)")
def _family(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile("family", found[1])


@profile_rules.add(
    r"I (?:am|is) (?:an? )?([\w-]*(?:betic|exic|epileptic|blind|deaf|autistic|hyperactive))$",
    r"I (?:have|has|suffers? from) (?:an? )?((?:[\w-]+ ){0,3}(?:disease|syndrome|disorder|asthma|"
    r"diabetes|migraines?|arthritis|epilepsy))\b",
)
def _health(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile("health", found[1] or found[2], single=False)


@profile_rules.add(rf"I (?:am|is|have been|became|turned) (?:an? )?((?:{DIETS})\b.*)")
def _diet(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile("diet", found[1])


@profile_rules.add(
    r"I (?:am|is) (severely |deathly )?allergic to (.+)",
    r"I ha(?:ve|s) an? (.+?) allergy",
    r"I (?:am|is) ([\w-]+ intolerant)",
)
def _allergy(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile("allergy", found[2] or found[3] or found[4], single=False)


@profile_rules.add(rf"I (?:am|is) (?:an? )?({NATIONS})(?:$|,)")
def _nation(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile("nationality", found[1])


@profile_rules.add(
    rf"I (?:speaks?|(?:am|is) fluent in) (?:some |a little )?(?={LANGUAGES}|(?-i:[A-Z]))(.+)",
    r"my (?:native|first|mother) (?:language|tongue) is (.+)",
)
def _language(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile("language", found[1] or found[2], single=False)


@profile_rules.add(rf"my ({ATTRIBUTES}) is (.+)")
def _attribute(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile(found[1].lower().replace(" ", ""), found[2])


@profile_rules.add(
    rf"I (?:am|is) an? ((?:[\w-]+ ){{0,3}}?(?:{JOBS}))(?:$|,| (?:at|for|in|from|by|and|with|who)\b)"
)
def _works_as(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _profile("job", found[1])


@profile_rules.add(rf"I (?:am|is) ({NAME})$")
def _is(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return None if NO_NAME.match(found[1]) else _profile("name", found[1])
