"""Rules about preferences, habits and instructions."""

from __future__ import annotations

import re
from dataclasses import replace

from sennit.memory.extraction.clauses import NormalizedClause
from sennit.memory.extraction.facts import (
    BE,
    COMMON_THING,
    HAVE,
    NO_WORDS,
    Fact,
    Rules,
    content,
    first_phrase,
)
from sennit.memory.extraction.rules.lexicon import IMPERATIVES, LANGUAGES, POINTS_BACK, TROUBLE
from sennit.memory.extraction.terms import fold, terms
from sennit.memory.extraction.values import Category

work_style_rules = Rules()
"""Ways of working and favourites: tried before all others, because "my" is in both."""
preference_rules = Rules()
"""What could be said of anything: tried last."""


@work_style_rules.add(
    r"(whenever|every time|each time|if|when|before|after) ([^,]+), (?:then )?"
    rf"(?:you should |you must )?(?:first )?({IMPERATIVES})\b(.*)"
)
def _condition_first(found: re.Match[str], made: NormalizedClause) -> Fact | None:
    return _pattern(found[1], found[2], found[3] + found[4], made)


@work_style_rules.add(rf"((?:{IMPERATIVES})\b.*?) (before|after|whenever|every time) (.+)")
def _action_first(found: re.Match[str], made: NormalizedClause) -> Fact | None:
    return _pattern(found[2], found[3], found[1], made)


def _pattern(word: str, condition: str, action: str, made: NormalizedClause) -> Fact | None:
    order = fold(word) if fold(word) in ("before", "after") else "when"
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


@work_style_rules.add(r"my fav(?:ou?)?rite ([\w ]+?) (?:is|are) (.+)")
def _favourite(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _favourite_fact(found[1], first_phrase(found[2]))


@work_style_rules.add(r"(.+?) (?:is|are) my (?:all-time )?fav(?:ou?)?rite ([\w ]+)")
def _favourite_after(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _favourite_fact(found[2], found[1])


def _favourite_fact(kind: str, value: str) -> Fact:
    label = f"favourite {kind}"
    return Fact(
        Category.PREFERENCES, "favourite", content(value), content(kind), label=label, single=True
    )


def _preference(slot: str, said: str, *, positive: bool = True) -> Fact | None:
    said = said.strip()
    if POINTS_BACK.match(said) or not (value := content(said)):
        return None
    return Fact(Category.PREFERENCES, slot, value, label=first_phrase(said), positive=positive)


@preference_rules.add(
    r"I (?:would )?(?:prefers?|rather) (?!to )(.+?) (?:over|to|rather than|instead of|than) (.+)"
)
def _prefers_over(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    value, other = content(found[1]), content(first_phrase(found[2]))
    label = f"{found[1]} or {first_phrase(found[2])}"
    return Fact(Category.PREFERENCES, "prefer", value, value | other, label=label, single=True)


@preference_rules.add(r"I (?:would )?(?:prefers?|rather) (.+)")
def _prefers(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    phrase = first_phrase(found[1])
    if POINTS_BACK.match(phrase) or not (said := terms(phrase)):
        return None
    kind = frozenset(said[-1:])  # dark mode and light mode are both a mode
    return Fact(Category.PREFERENCES, "prefer", frozenset(said), kind, label=phrase, single=True)


@preference_rules.add(
    r"I (?:likes?|loves?|enjoys?|adores?|liked|loved|enjoyed|(?:am|is|was) (?:an? )?"
    r"(?:big |huge |great |massive )?(?:fan of|into|fond of|keen on|interested in|passionate about|"
    r"crazy about)) (.+)"
)
def _likes(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _preference("like", found[1])


@preference_rules.add(
    r"nothing beats (.+)", r"I (?:am|is) (?:more of )?an? ([\w-]+ (?:person|lover))\b"
)
def _praises(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _preference("like", re.sub(r" for me$", "", found[1] or found[2]))


@preference_rules.add(
    r"I (?:hates?|dislikes?|detests?|loathes?|avoids?|hated|disliked|have gone off) (.+)"
)
def _dislikes(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _preference("like", found[1], positive=False)


@preference_rules.add(rf"I {HAVE}(?:switched|changed|migrated)(?: from (.+?))? to (.+)")
def _switched(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    fact = _used(found[2])
    return fact and replace(fact, replaces=content(found[1] or ""), change=True)


@preference_rules.add(r"I uses? (.+)")
def _uses(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _used(found[1])


def _used(said: str) -> Fact | None:
    """Return the tool that somebody uses, if it has a name of its own."""
    return _preference("use", re.sub(r" for .*", "", said)) if said[:1].isupper() else None


@preference_rules.add(r"I stop (.+)")
def _stopped(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _preference("stop", found[1])


@preference_rules.add(
    r"I (?:can )?((?:eats?|drinks?|plays?|reads?|watch(?:es)?|listens? to|collects?|cooks?|"
    r"practi[cs]es?|"
    r"drives?|rides?|wears?|smokes?|paints?|sings?|meditates?|swims?|runs?)(?: .+|$))"
)
def _does(found: re.Match[str], made: NormalizedClause) -> Fact | None:
    if made.positive and made.text.lower().startswith("i can "):
        return None
    once = re.match(rf"\w+ (?:{COMMON_THING})", found[1], re.IGNORECASE)
    return None if once and not made.habit else _preference("do", found[1])


@preference_rules.add(
    rf"I (?!{BE}\b|have\b|had\b|can\b|will\b|think\b|get (?:an?|this|the)\b|\w+ed\b)(\w+ .+)"
)
def _habit(found: re.Match[str], made: NormalizedClause) -> Fact | None:
    return _preference("do", found[1]) if made.habit and not TROUBLE.search(made.text) else None


_ANSWER = r"(?:answers?|repl(?:y|ies)|respon(?:d|ses?)|speak|talk|messages?|explanations?)"


@preference_rules.add(
    rf"(?:{_ANSWER}(?: to me)?|address me) "
    r"(in|with|using|like|as|briefly|concisely|formally|informally)\b ?(.*)"
)
def _answer_in(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    tongue = re.fullmatch(LANGUAGES, found[2], re.IGNORECASE)
    return Fact(
        Category.PREFERENCES,
        "answer",
        content(f"{found[1]} {found[2]}"),
        frozenset({"language"}) if tongue else NO_WORDS,
        label=f"answer {found[1]} {'language' if tongue else found[2]}",
        single=tongue is not None,
    )


@preference_rules.add(rf"keep (?:all )?(?:your |the |my )?({_ANSWER}|code|comments|it) (.+)")
def _keep(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return Fact(Category.PREFERENCES, "keep", content(found[2]), label=f"{found[1]} {found[2]}")


@preference_rules.add(
    r"(?!I\b|my\b|the\b|it\b)(\w+ .*\b(?:when you (?:reply|answer|respond|write)|"
    r"in your (?:answers|replies|responses)|when (?:replying|answering|talking) to me)\b.*)"
)
def _replying(found: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _preference("instruct", found[1])


@preference_rules.add(rf"(?:you should |you must |I (?:want|need) you to )?((?:{IMPERATIVES})\b.*)")
def _instructed(found: re.Match[str], made: NormalizedClause) -> Fact | None:
    return _preference("instruct", found[1]) if made.habit else None
