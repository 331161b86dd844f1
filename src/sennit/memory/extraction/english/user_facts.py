"""Rules for facts about the user: name, home, work, family, health, diet, languages.

The value is in the last group of a pattern. Most of what a user is can be only one thing at a time,
so another value is a change; the slots of which there can be several say so.
"""

from __future__ import annotations

import re
from dataclasses import replace

from sennit.memory.extraction.english.clauses import NormalizedClause
from sennit.memory.extraction.english.facts import (
    COMMON_THING,
    HAVE,
    IGNORE_CASE,
    NAME,
    Fact,
    Rule,
    content,
    profile_fact,
    rule,
)
from sennit.memory.extraction.english.lexicon import (
    ATTRIBUTES,
    BODY,
    BUSINESSES,
    DIETS,
    FAITHS,
    ILLNESSES,
    JOBS,
    LANGUAGES,
    NATIONS,
    NO_JOB,
    NO_NAME,
    RELATIVES,
    STATES,
)

_AM = r"(?:am|is|was)"
_HAVE_BEEN = r"(?:am|is|are|have been|has been)"
_AFTER = (
    r"(?:$|[,;]| (?:at|for|in|from|by|and|with|who|on|working|based|but|so|specialis|specializ|of|"
    r"here|living|since|near|down|up|doing|making|myself|mostly|that|to|if|because|whose|out|I|"
    r"we)\b)"
)
"""The end of a noun phrase."""
_PAST = re.compile(r"I (?:lived|worked)\b", IGNORE_CASE)
_ENOUGH_LETTERS = re.compile(r"[^\W\d_]{2}|\d")


def _from_match(slot: str, match: re.Match[str], *, single: bool = True) -> Fact | None:
    """Return a fact with the last group as its value; "I lived" and "I worked" deny it."""
    text = match[match.lastindex or 0]
    return profile_fact(slot, text, single=single, positive=_PAST.match(match[0]) is None)


def _profile(slot: str, *patterns: str, single: bool = True) -> Rule:
    return rule(lambda match, _: _from_match(slot, match, single=single), *patterns)


def _named(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    text = re.sub(r"^the name ", "", match[match.lastindex or 0])
    if NO_NAME.match(text) or not _ENOUGH_LETTERS.search(text):
        return None
    return profile_fact("name", text)


def _moved(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    fact = profile_fact("home", match[2])
    return fact and replace(fact, replaces=content(match[1] or ""))


def _left(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    fact = profile_fact("employer", match[1], positive=False)
    return fact and replace(fact, change=True)


def _not_tolerated(match: re.Match[str], clause: NormalizedClause) -> Fact | None:
    """Return the food that a clause says the user cannot have."""
    if clause.positive or not re.search(r"\b(?:can'?t|cannot|can not)\b", clause.clause, re.I):
        return None
    if match[1].startswith("any"):
        return None
    return profile_fact("allergy", match[1], single=False, positive=False)


PROFILE_RULES = (
    rule(
        _named,
        r"(?:my (?:full |first |real |nick)?name is|I (?:am|is) (?:called|named)|I goe?s? by"
        r"|the name is) (?!on |in |not |an? |the (?!name))(.+)",
        rf"(?:(?:you|people|everyone|everybody|friends|they|most people) (?:can |may |all )?)?"
        rf"calls? me ({NAME})",
        rf"this is ({NAME}) (?:from|here|speaking|writing)\b",
        rf"({NAME}) here(?:$|[,;]| from\b)",
    ),
    _profile(
        "age",
        r"(?:my age is|I (?:am|is|turned|turn)) (\d{1,3})(?: years? old)?"
        r"(?:$|,| (?:yesterday|today|in|on|last|this|and|so|but)\b)",
        r"I (?:am|is) an? (\d{1,3})[- ]?(?:years?|yrs?|y)[- ]?(?:old|o)\b",
        r"I (?:am|is) in my ((?:early |mid[- ]|late )?(?:teens|(?:twen|thir|for|fif|six|seven|eigh|"
        r"nine)ties|\d0'?s))\b",
        r"I (?:am|is) an? (teenager|senior citizen|pensioner)\b",
    ),
    rule(
        lambda match, _: profile_fact("birthday", match[1].split(" in ")[0]),
        r"my (?:birthday|b-?day|date of birth|birth ?date) is (?:on )?(?:the )?(.+)",
    ),
    rule(
        lambda match, _: profile_fact(
            "birthday" if match[1][0].isdigit() else "birthplace", match[1]
        ),
        r"I was born (?:on|in) (?:the )?(.+)",
    ),
    _profile(
        "home",
        r"I (?:am |is |have been |has been |have |has )?"
        r"(?:lives?|lived|living|resid(?:es?|ing)|based|located|settled|writing)(?: down| alone)?"
        r"(?: in (?:an? |the )(?:[\w-]+ ){1,3}?)?(?: to you)? (?:in|near|outside|from) "
        r"(?!(?:fear|peace|hope|mind|order|case|general|time|a (?:hurry|way)|line|file|my "
        r"head)\b)(.+)",
        r"my (?:home|house|flat|apartment) is (an? .+|in .+|near .+)",
    ),
    _profile(
        "household",
        r"I (?:am |have been )?(?:lives?|living) ((?:with|on|by|next to|close to|above|at) .+|"
        r"alone\b.*)",
        single=False,
    ),
    rule(
        _moved,
        rf"(?:my home(?: ?town)? is(?: in)?|I {HAVE}(?:moved|relocated)(?: back)?"
        r"(?: from (\w[\w ]*?))? to) "
        rf"(?!{COMMON_THING})(.+)",
    ),
    _profile(
        "origin",
        r"I (?:(?:am|is|was|come|comes)(?: all the way)? from|(?:grew up|was raised|was brought up)"
        r" (?:in|on|by|near|between)) (.+)",
    ),
    _profile(
        "job",
        rf"I (?:works?|worked|am working|is working|have been working|{HAVE}started(?: out)?|"
        rf"make an?"
        r" living|earn my living|am employed|freelance) as (?:an? |the )?(.+)"
        r"|my (?:day )?(?:job|profession|occupation|role|job title|trade|work) is(?: being)? "
        r"(?:an? |"
        r"the )?(.+)",
        r"I do(?:es)? (.+?) for a living",
        r"I (?:am|is|have been) training (?:to be|as) (?:an? )?(.+)",
    ),
    _profile(
        "employer",
        rf"I (?:works?|worked|(?:am|is|have been) working|am employed|{HAVE}started(?: working|"
        rf" work| a (?:new )?job)?|{HAVE}got a (?:new )?job) (?:for|at|by) "
        rf"((?:the )?(?-i:[A-Z])\w.*)",
        r"I (?:works?|(?:am|is|have been) working)(?: nights| days| part-time| full-time)?"
        r" (?:for|at|in) ((?:an? |the )(?!while\b|bit\b|long\b|few\b|lot\b|moment\b|same\b|"
        r"morning\b|"
        r"evening\b|afternoon\b|weekend\b|night\b|solution\b|fix\b|first\b|last\b|next\b).+)",
        rf"I {HAVE}joined ((?-i:[A-Z])\w.*)",
        r"my employer is (.+)",
        r"I (?:am|is) (?:an employee|on the staff|a member of staff) (?:of|at) (.+)",
    ),
    _profile(
        "work",
        r"I (?:works?|(?:am|have been) working) "
        r"(in (?!progress|theory|order|case|general|parallel)[a-z][\w ]*$"
        r"|(?:from home|remotely|night ?s(?:hifts)?|shifts|freelance|part[- ]time|"
        r"full[- ]time)\b.*)",
        rf"I (?:runs?|owns?|manages?|operates?|founded|co-?founded|{HAVE}opened|{HAVE}started) "
        rf"((?:an?|my own|the|two|three|several|my) (?:[\w'-]+ ){{0,3}}?(?:{BUSINESSES})\b.*)",
        r"I (?:teach(?:es)?|coach(?:es)?|tutors?|lectures?) "
        r"(?:on |in )?((?!you|them|him|her|myself|me\b).+)",
        r"I (?:am|is) (?:the |an? )?((?:head|director|chief|chair|vice president|vp|lead) (?:of |"
        r"for )?"
        r"\w.*|in charge of .+|responsible for .+)",
        single=False,
    ),
    rule(_left, rf"I {HAVE}(?:left|resigned from|been fired by) ((?-i:[A-Z])\w.*)"),
    _profile(
        "study",
        r"I (?:stud(?:y|ies|ied)|(?:am|is) studying|major(?:ed)? in|have a degree in) "
        rf"(?!{COMMON_THING})(.+)",
        r"I (?:am|is) (?:doing|pursuing|finishing|completing) ((?:an?|my) (?:[\w-]+ ){0,2}?(?:phd|"
        r"doctorate|master'?s?|bachelor'?s?|degree|mba|apprenticeship|internship|residency|"
        r"a-levels)"
        r"\b.*)",
        rf"I {HAVE}(?:graduated from|went to) ((?-i:[A-Z])\w.*)",
        r"I (?:am|is) (?:at|in) (university|college|uni|high school|grad school|medical school|"
        r"law school)\b",
        single=False,
    ),
    _profile(
        "status",
        rf"I {_HAVE_BEEN} (?!getting married)(?:an? )?(?:(?:happily|newly|getting|recently|long|"
        rf"\w+ (?:months?|weeks?))"
        rf" )*((?:{STATES})\b.*)",
    ),
    _profile(
        "children",
        r"I (?:have|has) (?:(\w+) (?:(?:small|little|grown-up|grown|young|adult|teenage) )?"
        r"(?:kids|children|kid|child|sons|daughters|boys|girls|grand\w+)|(twins|triplets))\b",
        r"I (?:am|is) (?:an? |the )?(?:\w+ )?(?:mother|father|mom|mum|dad|parent) (?:of|to) "
        r"(\w+)\b",
    ),
    _profile(
        "family",
        r"I (?:am|are) an? (?:\w+ )?(family of \w+|only child\b)",
        r"I (?:am|is) the ((?:youngest|eldest|oldest|middle) (?:child|of \w+)\b.*)",
    ),
    _profile(
        "health",
        rf"I {_HAVE_BEEN} (?:an? )?(?:\w+ )?((?:{BODY})\b.*)",
        rf"I (?:have|has|had|suffers? from|lives? with) (?:an? |the )?"
        rf"((?:[\w-]+ ){{0,3}}(?:{ILLNESSES})\b)",
        rf"I (?:was|{HAVE}been|got) diagnosed with (.+)",
        r"I (?:am on|takes?) ([a-z-]+) (?:once|twice|daily|every|three times|for my)\b",
        r"I (?:am|is|weighs?|measures?) ((?:about |around )?\d+(?:[.,]\d+)? ?(?:cm|kg|kilos?|m|"
        r"lbs?|"
        r"pounds|stone|feet|ft|foot|centimet(?:er|re)s)\b.*)",
        r"I wears? ((?:an? )?size \w+.*|glasses|contacts|contact lenses|hearing aids?|an? "
        r"hearing aid)",
        single=False,
    ),
    _profile(
        "diet",
        rf"I (?:am|is|are|have been|became|turned|went) (?:on )?(?:an? |the )?(?:[\w-]+ "
        rf")?((?:{DIETS})\b.*)",
        rf"I (?:eats?|keeps?|follows?) (?:an? )?((?:{DIETS})\b.*)",
    ),
    _profile(
        "allergy",
        r"I (?:am|is) (?:[\w-]+ )?allergic to (.+)",
        r"I ha(?:ve|s) an? (.+?) allergy",
        r"I (?:am|is) ((?:[\w-]+ )?intoll?erant\b.*)",
        single=False,
    ),
    rule(_not_tolerated, r"I (?:can )?(?:eat|have|drink|tolerate|do|digest) ([\w ,-]+)"),
    _profile(
        "nationality",
        rf"I (?:am|is) (?:an? )?((?:half |part |originally )?(?:{NATIONS})(?:[ -](?:{NATIONS}))?)"
        rf"{_AFTER}",
    ),
    _profile("religion", rf"I (?:am|is) (?:an? )?(?:\w+ )?((?:{FAITHS})){_AFTER}", single=False),
    _profile(
        "language",
        rf"I (?:speaks?|(?:am|is) fluent in) (?:some |a little |a bit of )?"
        rf"(?={LANGUAGES}|(?-i:[A-Z]))(.+)",
        r"my (?:native|first|second|mother) (?:language|tongue) is (.+)",
        rf"({LANGUAGES}) is my (?:native|first|second|third|mother) (?:language|tongue)",
        rf"I (?:am|is) (?:an? )?((?:native |fluent )?{LANGUAGES}) speaker",
        rf"I (?:am |have been )?(?:learn|learning|taking up) ((?:{LANGUAGES})\b.*)",
        single=False,
    ),
    rule(
        lambda match, _: profile_fact(match[1].lower().replace(" ", ""), match[2]),
        rf"my ({ATTRIBUTES}) (?:is|are) (.+)",
    ),
    _profile(
        "job",
        rf"I (?:am|is|have been) (?:an?|the) (?!(?:\w+ )?(?:{NO_JOB})\b)"
        rf"((?:[\w-]+ ){{0,3}}?(?:{JOBS})){_AFTER}",
        rf"(?:as|being) an? (?!(?:\w+ )?(?:{NO_JOB})\b)"
        rf"((?:[\w-]+ ){{0,3}}?(?:{JOBS}|{STATES}|{BODY}|{DIETS})){_AFTER}",
    ),
    rule(_named, rf"I (?:am|is) ({NAME})(?:$|, (?=an? )| from (?-i:[A-Z]))"),
)

FAMILY_RULES = (
    _profile(
        "relatives",
        rf"I (?:have|has) (?:any )?((?:an? |one |two |three |four |five |no )?(?:[\w-]+ ){{0,2}}?"
        rf"(?:{RELATIVES})\b.*)",
        single=False,
    ),
)
"""Rules about the family, after those that name its members."""
