"""The rules: ways in which people say who they are, what they like, whom they know, what happened.

Each rule matches the beginning of a plain clause, in English, and makes the fact it states. The
first that makes one wins, so the order of this file matters: what is said of others and of days
comes before what could be said of anything. A rule would rather know nothing than guess.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from sennit.memory.dates import without_dates
from sennit.memory.facts import NOTHING, RULES, Fact, Words, content, first_phrase, rule
from sennit.memory.lexicon import (
    ATTRIBUTES,
    DEEDS,
    DIETS,
    IMPERATIVES,
    JOBS,
    LANGUAGES,
    MILESTONES,
    NATIONS,
    NO_NAME,
    OCCASIONS,
    PEOPLE,
    POINTS_BACK,
    STATES,
    THINGS,
    TROUBLE,
)
from sennit.memory.phrases import Plain, plain
from sennit.memory.terms import folded, terms
from sennit.memory.values import Category

_BE = r"(?:am|is|are|was|were)"
_HAVE = r"(?:have |has )?"
_NAME = (
    r"(?:(?:(?:Dr|Mrs?|Ms|Prof)\. )?(?-i:[^\W\d_a-z][\w'-]*)(?: (?-i:[^\W\d_a-z][\w'.-]*)){0,2})"
)
_PERSON = "|".join(sorted(PEOPLE, key=len, reverse=True))
_OTHER = "|".join(sorted((*PEOPLE, *THINGS), key=len, reverse=True))
_COMMON_THING = r"(?:the(?! (?-i:[A-Z]))|an?|this|that|these|those|my|your|it|another|using|line) "
_ADJECTIVES = r"(?:(?!name\b)[\w-]+ ){0,2}?"


@lru_cache(maxsize=4096)
def fact_of(clause: str) -> Fact | None:
    """The fact a clause states, if a rule knows it."""
    made = plain(clause)
    for pattern, maker in RULES:
        found = pattern.match(made.text)
        fact = found and maker(found, made)
        if fact:
            positive = fact.positive == made.positive
            return replace(fact, positive=positive, change=fact.change or made.change)
    return None


# Ways of doing things.


@rule(
    r"(whenever|every time|each time|if|when|before|after) ([^,]+), (?:then )?"
    rf"(?:you should |you must )?(?:first )?({IMPERATIVES})\b(.*)"
)
def _condition_first(found: re.Match[str], made: Plain) -> Fact | None:
    return _pattern(found[1], found[2], found[3] + found[4], made)


@rule(rf"((?:{IMPERATIVES})\b.*?) (before|after|whenever|every time) (.+)")
def _action_first(found: re.Match[str], made: Plain) -> Fact | None:
    return _pattern(found[2], found[3], found[1], made)


def _pattern(word: str, condition: str, action: str, made: Plain) -> Fact | None:
    order = folded(word) if folded(word) in ("before", "after") else "when"
    about = content(condition) | {f"{order}:"}
    first = " first" in f" {made.text}"
    return Fact(
        Category.PATTERNS,
        "pattern",
        content(action) - {"first"},
        about,
        label=f"{order} {condition} {action}",
        single=first,
    )


# Favourites.


@rule(r"my fav(?:ou?)?rite ([\w ]+?) (?:is|are) (.+)")
def _favourite(found: re.Match[str], _: Plain) -> Fact | None:
    return _favourite_fact(found[1], first_phrase(found[2]))


@rule(r"(.+?) (?:is|are) my (?:all-time )?fav(?:ou?)?rite ([\w ]+)")
def _favourite_after(found: re.Match[str], _: Plain) -> Fact | None:
    return _favourite_fact(found[2], found[1])


def _favourite_fact(kind: str, value: str) -> Fact:
    label = f"favourite {kind}"
    return Fact(
        Category.PREFERENCES, "favourite", content(value), content(kind), label=label, single=True
    )


# Who somebody is.


def _profile(slot: str, said: str, *, single: bool = True) -> Fact | None:
    value = content(first_phrase(said))
    return Fact(Category.PROFILE, slot, value, label=slot, single=single) if value else None


@rule(
    r"(?:my (?:full |first |real |nick)?name is|I (?:am|is) (?:called|named)|I goe?s? by) "
    r"(?!on |in |not |an? |the (?!name))(.+)",
    rf"call me ({_NAME})",
)
def _named(found: re.Match[str], _: Plain) -> Fact | None:
    return _profile("name", re.sub(r"^the name ", "", found[1] or found[2]))


@rule(
    r"(?:my age is|I (?:am|is|turned|turn)) (\d{1,3})(?: years? old)?"
    r"(?:$|,| (?:yesterday|today|in|on|last|this|and)\b)"
)
def _age(found: re.Match[str], _: Plain) -> Fact | None:
    return _profile("age", found[1])


@rule(r"my (?:birthday|date of birth) is (?:on )?(.+)")
def _birthday(found: re.Match[str], _: Plain) -> Fact | None:
    return _profile("birthday", found[1].split(" in ")[0])


@rule(r"I was born (?:on|in) (.+)")
def _born(found: re.Match[str], _: Plain) -> Fact | None:
    return _profile("birthday" if found[1][0].isdigit() else "birthplace", found[1])


@rule(
    r"I (?:am |is |have been |has been )?"
    r"(?:lives?|living|lived|resides?|residing|based|settled)(?: down)? in (.+)"
)
def _home(found: re.Match[str], _: Plain) -> Fact | None:
    return _profile("home", found[1])


@rule(
    rf"(?:my home(?: ?town)? is(?: in)?|I {_HAVE}(?:moved|relocated)(?: back)?"
    r"(?: from (\w[\w ]*?))? to) "
    rf"(?!{_COMMON_THING})(.+)"
)
def _moved(found: re.Match[str], _: Plain) -> Fact | None:
    fact = _profile("home", found[2])
    return fact and replace(fact, replaces=content(found[1] or ""))


@rule(r"I (?:(?:am|is|was) from|comes? from|grew up in|was raised in) (.+)")
def _origin(found: re.Match[str], _: Plain) -> Fact | None:
    return _profile("origin", found[1])


@rule(
    r"(?:I (?:works?|worked|am working|is working|have been working) as"
    r"|my (?:job|profession|occupation|role|job title) is(?: being)?) (?:an? |the )?(.+)",
    r"I do(?:es)? (.+?) for a living",
)
def _job(found: re.Match[str], _: Plain) -> Fact | None:
    return _profile("job", found[1] or found[2])


@rule(
    rf"I (?:works?|worked|(?:am|is|have been) working|am employed|{_HAVE}started(?: working| work|"
    rf" a (?:new )?job)?|{_HAVE}got a (?:new )?job) (?:for|at|by) ((?-i:[A-Z])\w.*)",
    r"I (?:works?|(?:am|is|have been) working)(?: nights| days| part-time| full-time)?"
    r" (?:for|at|in) (an? (?!while\b|bit\b|long\b|few\b|lot\b"
    r"|solution\b|fix\b).+)",
    rf"I {_HAVE}joined ((?-i:[A-Z])\w.*)",
    r"my employer is (.+)",
    r"I (?:am|is) (?:an employee|on the staff|a member of staff) (?:of|at) (.+)",
)
def _employer(found: re.Match[str], _: Plain) -> Fact | None:
    return _profile("employer", next(filter(None, found.groups())))


@rule(rf"I {_HAVE}(?:left|resigned from|been fired by) ((?-i:[A-Z])\w.*)")
def _left(found: re.Match[str], _: Plain) -> Fact | None:
    fact = _profile("employer", found[1])
    return fact and replace(fact, positive=False, change=True)


@rule(
    r"I (?:stud(?:y|ies|ied)|(?:am|is) studying|major(?:ed)? in|have a degree in) "
    rf"(?!{_COMMON_THING})(.+)"
)
def _study(found: re.Match[str], _: Plain) -> Fact | None:
    return _profile("study", found[1], single=False)


@rule(rf"I (?:am|is) (?:an? )?({STATES})\b")
def _state(found: re.Match[str], _: Plain) -> Fact | None:
    return _profile("status", found[1])


@rule(
    r"I (?:have|has) (?:(\w+) (?:kids|children|kid|child|sons|daughters|grand\w+)|"
    r"(twins|triplets))\b",
    r"I (?:am|is) (?:an? |the )?(?:\w+ )?(?:mother|father|mom|mum|dad|parent) (?:of|to) (\w+)\b",
)
def _children(found: re.Match[str], _: Plain) -> Fact | None:
    return _profile("children", found[1] or found[2] or found[3])


@rule(r"I (?:am|are) an? (?:\w+ )?(family of \w+)")
def _family(found: re.Match[str], _: Plain) -> Fact | None:
    return _profile("family", found[1])


@rule(
    r"I (?:am|is) (?:an? )?([\w-]*(?:betic|exic|epileptic|blind|deaf|autistic|hyperactive))$",
    r"I (?:have|has|suffers? from) (?:an? )?((?:[\w-]+ ){0,3}(?:disease|syndrome|disorder|asthma|"
    r"diabetes|migraines?|arthritis|epilepsy))\b",
)
def _health(found: re.Match[str], _: Plain) -> Fact | None:
    return _profile("health", found[1] or found[2], single=False)


@rule(rf"I (?:am|is|have been|became|turned) (?:an? )?((?:{DIETS})\b.*)")
def _diet(found: re.Match[str], _: Plain) -> Fact | None:
    return _profile("diet", found[1])


@rule(
    r"I (?:am|is) (?:severely |deathly )?allergic to (.+)",
    r"I ha(?:ve|s) an? (.+?) allergy",
    r"I (?:am|is) ([\w-]+ intolerant)",
)
def _allergy(found: re.Match[str], _: Plain) -> Fact | None:
    return _profile("allergy", found[1] or found[2] or found[3], single=False)


@rule(rf"I (?:am|is) (?:an? )?({NATIONS})(?:$|,)")
def _nation(found: re.Match[str], _: Plain) -> Fact | None:
    return _profile("nationality", found[1])


@rule(
    rf"I (?:speaks?|(?:am|is) fluent in) (?:some |a little )?(?={LANGUAGES}|(?-i:[A-Z]))(.+)",
    r"my (?:native|first|mother) (?:language|tongue) is (.+)",
)
def _language(found: re.Match[str], _: Plain) -> Fact | None:
    return _profile("language", found[1] or found[2], single=False)


@rule(rf"my ({ATTRIBUTES}) is (.+)")
def _attribute(found: re.Match[str], _: Plain) -> Fact | None:
    return _profile(found[1].lower().replace(" ", ""), found[2])


# People, pets, projects.


@rule(
    rf"my {_ADJECTIVES}({_OTHER})(?:'s name)? (?:is|are|was) (?:called |named )?({_NAME})"
    r"(?:,.*| (?:who|and|which) .*)?$"
)
def _is_named(found: re.Match[str], _: Plain) -> Fact | None:
    return _entity(found[1], found[2])


@rule(
    rf"my {_ADJECTIVES}({_OTHER}) (?:is|are) (?:called|named) (\w.*)",
    rf"I (?:have|has|had) (?:\w+ )?{_ADJECTIVES}({_OTHER})s? (?:called|named) (\w.*)",
)
def _is_called(found: re.Match[str], _: Plain) -> Fact | None:
    return _entity(found[1] or found[3], first_phrase(found[2] or found[4]))


@rule(rf"my {_ADJECTIVES}({_OTHER})s?,? ({_NAME}),? (\S.*)")
def _said_of(found: re.Match[str], _: Plain) -> Fact | None:
    return _entity(found[1], found[2], found[3])


@rule(rf"({_NAME}) (?:is|was) my {_ADJECTIVES}({_OTHER})\b(?:,? (?:and|who) (.+))?")
def _is_my(found: re.Match[str], _: Plain) -> Fact | None:
    return None if POINTS_BACK.match(found[1]) else _entity(found[2], found[1], found[3] or "")


@rule(
    rf"I (?:am|is) (?:working on|building|developing|leading|maintaining) (?:an? |the |my )?"
    rf"(?:[\w-]+ ){{0,2}}?(?:({_OTHER}) )?(?:called |named )?({_NAME})"
)
def _builds(found: re.Match[str], _: Plain) -> Fact | None:
    return _entity(found[1] or "project", found[2])


@rule(
    rf"my {_ADJECTIVES}({_PERSON}) ((?:{_BE}|has|have|had|lives?|works?|likes?|loves?|hates?|"
    r"plays?|studies|wants?|needs?|eats?|speaks?|moved|got|started) .+)"
)
def _unnamed(found: re.Match[str], _: Plain) -> Fact | None:
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
        ("", rf"(?:{_BE} )?(.*)"),
    )
]


def _entity(relation: str, name: str, rest: str = "") -> Fact:
    slot, value = _said(rest)
    kind = folded(relation)
    return Fact(Category.ENTITIES, slot, value, content(name), kind, label=name or kind)


def _said(rest: str) -> tuple[str, Words]:
    """What is said of somebody, as a slot and a value."""
    for slot, pattern in _SAID_OF:
        if found := pattern.match(rest.strip()):
            return slot, content(first_phrase(found[1]) if slot else found[1])
    return "", NOTHING


@rule(r"my ([a-z-]+) ((?-i:[A-Z])[a-z]+) (\w+s (?!called).+)")
def _anyone(found: re.Match[str], made: Plain) -> Fact | None:
    """Somebody or something of a kind no list knows, but with a name."""
    return None if TROUBLE.search(made.text) else _entity(found[1], found[2], found[3])


@rule(rf"(?:my|the) ({'|'.join(THINGS)})(?:'s)? (?:code ?)?name is ({_NAME})")
def _codename(found: re.Match[str], _: Plain) -> Fact | None:
    return _entity(found[1], found[2])


@rule(rf"I (?:have|has) (?:an?|\w+) ({_OTHER})s?, ({_NAME}(?: and {_NAME})?)")
def _have_named(found: re.Match[str], _: Plain) -> Fact | None:
    return _entity(found[1], found[2])


# What happened, will happen or was decided.


def _event(made: Plain) -> Fact:
    label = re.sub(rf"^I (?:{_BE} |{_HAVE})?", "", without_dates(made.text), flags=re.IGNORECASE)
    return Fact(Category.EVENTS, "event", content(made.text), label=label)


@rule(
    rf"I {_HAVE}(?:decided?|chose|chosen|agreed|resolved|settled on|am going with|are going with|"
    r"will go with)\b",
    rf"I {_HAVE}(?:{MILESTONES})\b",
)
def _decided(_: re.Match[str], made: Plain) -> Fact | None:
    return _event(made) if made.dated or len(made.text.split()) > 2 else None


@rule(
    rf"(?:I|my (?:{_PERSON})) {_HAVE}(?:{DEEDS})\b",
    r"I (?:starts?|begins?|leaves?|moves?|fl(?:y|ies)|travels?) \w+",
    r"I (?:am|are|is|will be|will|was|were) \w+",
    r"I (?:have|has|had) (?:an?|my|the|two|three|another)\b",
    rf"(?:my|the) (?:[\w-]+ ){{0,2}}?(?:{OCCASIONS})\b",
)
def _dated(_: re.Match[str], made: Plain) -> Fact | None:
    return _event(made) if made.dated and not TROUBLE.search(made.text) else None


# What somebody likes, does and wants done.


def _preference(slot: str, said: str, *, positive: bool = True) -> Fact | None:
    said = said.strip()
    if POINTS_BACK.match(said) or not (value := content(said)):
        return None
    return Fact(Category.PREFERENCES, slot, value, label=first_phrase(said), positive=positive)


@rule(r"I (?:would )?(?:prefers?|rather) (?!to )(.+?) (?:over|to|rather than|instead of|than) (.+)")
def _prefers_over(found: re.Match[str], _: Plain) -> Fact | None:
    value, other = content(found[1]), content(first_phrase(found[2]))
    label = f"{found[1]} or {first_phrase(found[2])}"
    return Fact(Category.PREFERENCES, "prefer", value, value | other, label=label, single=True)


@rule(r"I (?:would )?(?:prefers?|rather) (.+)")
def _prefers(found: re.Match[str], _: Plain) -> Fact | None:
    phrase = first_phrase(found[1])
    if POINTS_BACK.match(phrase) or not (said := terms(phrase)):
        return None
    kind = frozenset(said[-1:])  # dark mode and light mode are both a mode
    return Fact(Category.PREFERENCES, "prefer", frozenset(said), kind, label=phrase, single=True)


@rule(
    r"I (?:likes?|loves?|enjoys?|adores?|liked|loved|enjoyed|(?:am|is|was) (?:an? )?"
    r"(?:big |huge |great |massive )?(?:fan of|into|fond of|keen on|interested in|passionate about|"
    r"crazy about)) (.+)"
)
def _likes(found: re.Match[str], _: Plain) -> Fact | None:
    return _preference("like", found[1])


@rule(r"nothing beats (.+)", r"I (?:am|is) (?:more of )?an? ([\w-]+ (?:person|lover))\b")
def _praises(found: re.Match[str], _: Plain) -> Fact | None:
    return _preference("like", re.sub(r" for me$", "", found[1] or found[2]))


@rule(r"I (?:hates?|dislikes?|detests?|loathes?|avoids?|hated|disliked|have gone off) (.+)")
def _dislikes(found: re.Match[str], _: Plain) -> Fact | None:
    return _preference("like", found[1], positive=False)


@rule(
    rf"I (?:am|is) an? ((?:[\w-]+ ){{0,3}}?(?:{JOBS}))(?:$|,| (?:at|for|in|from|by|and|with|who)\b)"
)
def _works_as(found: re.Match[str], _: Plain) -> Fact | None:
    return _profile("job", found[1])


@rule(rf"I (?:am|is) ({_NAME})$")
def _is(found: re.Match[str], _: Plain) -> Fact | None:
    return None if NO_NAME.match(found[1]) else _profile("name", found[1])


@rule(rf"I {_HAVE}(?:switched|changed|migrated)(?: from (.+?))? to (.+)")
def _switched(found: re.Match[str], _: Plain) -> Fact | None:
    fact = _used(found[2])
    return fact and replace(fact, replaces=content(found[1] or ""), change=True)


@rule(r"I uses? (.+)")
def _uses(found: re.Match[str], _: Plain) -> Fact | None:
    return _used(found[1])


def _used(said: str) -> Fact | None:
    """What somebody uses, if it has a name: "a loop" or "the main branch" is used in passing."""
    return _preference("use", re.sub(r" for .*", "", said)) if said[:1].isupper() else None


@rule(r"I stop (.+)")
def _stopped(found: re.Match[str], _: Plain) -> Fact | None:
    return _preference("stop", found[1])


@rule(
    r"I (?:can )?((?:eats?|drinks?|plays?|reads?|watch(?:es)?|listens? to|collects?|cooks?|"
    r"practi[cs]es?|"
    r"drives?|rides?|wears?|smokes?|paints?|sings?|meditates?|swims?|runs?)(?: .+|$))"
)
def _does(found: re.Match[str], made: Plain) -> Fact | None:
    if made.positive and made.text.lower().startswith("i can "):
        return None
    once = re.match(rf"\w+ (?:{_COMMON_THING})", found[1], re.IGNORECASE)
    return None if once and not made.habit else _preference("do", found[1])


@rule(rf"I (?!{_BE}\b|have\b|had\b|can\b|will\b|think\b|get (?:an?|this|the)\b|\w+ed\b)(\w+ .+)")
def _habit(found: re.Match[str], made: Plain) -> Fact | None:
    return _preference("do", found[1]) if made.habit and not TROUBLE.search(made.text) else None


_ANSWER = r"(?:answers?|repl(?:y|ies)|respon(?:d|ses?)|speak|talk|messages?|explanations?)"


@rule(
    rf"(?:{_ANSWER}(?: to me)?|address me) "
    r"(in|with|using|like|as|briefly|concisely|formally|informally)\b ?(.*)"
)
def _answer_in(found: re.Match[str], _: Plain) -> Fact | None:
    tongue = re.fullmatch(LANGUAGES, found[2], re.IGNORECASE)
    return Fact(
        Category.PREFERENCES,
        "answer",
        content(f"{found[1]} {found[2]}"),
        frozenset({"language"}) if tongue else NOTHING,
        label=f"answer {found[1]} {'language' if tongue else found[2]}",
        single=tongue is not None,
    )


@rule(rf"keep (?:all )?(?:your |the |my )?({_ANSWER}|code|comments|it) (.+)")
def _keep(found: re.Match[str], _: Plain) -> Fact | None:
    return Fact(Category.PREFERENCES, "keep", content(found[2]), label=f"{found[1]} {found[2]}")


@rule(
    r"(?!I\b|my\b|the\b|it\b)(\w+ .*\b(?:when you (?:reply|answer|respond|write)|"
    r"in your (?:answers|replies|responses)|when (?:replying|answering|talking) to me)\b.*)"
)
def _replying(found: re.Match[str], _: Plain) -> Fact | None:
    return _preference("instruct", found[1])


@rule(rf"(?:you should |you must |I (?:want|need) you to )?((?:{IMPERATIVES})\b.*)")
def _instructed(found: re.Match[str], made: Plain) -> Fact | None:
    return _preference("instruct", found[1]) if made.habit else None
