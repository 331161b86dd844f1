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
"""Rules that could match anything: tried last."""


@work_style_rules.add(
    r"(whenever|every time|each time|if|when|before|after) ([^,]+), (?:then )?"
    rf"(?:you should |you must )?(?:first )?({IMPERATIVES})\b(.*)"
)
def _condition_first(match: re.Match[str], clause: NormalizedClause) -> Fact | None:
    return _pattern_fact(match[1], match[2], match[3] + match[4], clause)


@work_style_rules.add(rf"((?:{IMPERATIVES})\b.*?) (before|after|whenever|every time) (.+)")
def _action_first(match: re.Match[str], clause: NormalizedClause) -> Fact | None:
    return _pattern_fact(match[2], match[3], match[1], clause)


def _pattern_fact(word: str, condition: str, action: str, clause: NormalizedClause) -> Fact | None:
    order = fold(word) if fold(word) in ("before", "after") else "when"
    about = content(condition) | {f"{order}:"}
    first = " first" in f" {clause.text}"
    return Fact(
        Category.PATTERNS,
        "pattern",
        content(action) - {"first"},
        about,
        label=f"{order} {condition} {action}",
        single=first,
    )


@work_style_rules.add(r"my fav(?:ou?)?rite ([\w ]+?) (?:is|are) (.+)")
def _favourite(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _favourite_fact(match[1], first_phrase(match[2]))


@work_style_rules.add(r"(.+?) (?:is|are) my (?:all-time )?fav(?:ou?)?rite ([\w ]+)")
def _favourite_after(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _favourite_fact(match[2], match[1])


def _favourite_fact(kind: str, value: str) -> Fact:
    label = f"favourite {kind}"
    return Fact(
        Category.PREFERENCES, "favourite", content(value), content(kind), label=label, single=True
    )


def _preference_fact(slot: str, text: str, *, positive: bool = True) -> Fact | None:
    text = text.strip()
    if POINTS_BACK.match(text) or not (value := content(text)):
        return None
    return Fact(Category.PREFERENCES, slot, value, label=first_phrase(text), positive=positive)


@preference_rules.add(
    r"I (?:would )?(?:prefers?|rather) (?!to )(.+?) (?:over|to|rather than|instead of|than) (.+)"
)
def _prefers_over(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    value, other = content(match[1]), content(first_phrase(match[2]))
    label = f"{match[1]} or {first_phrase(match[2])}"
    return Fact(Category.PREFERENCES, "prefer", value, value | other, label=label, single=True)


@preference_rules.add(r"I (?:would )?(?:prefers?|rather) (.+)")
def _prefers(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    phrase = first_phrase(match[1])
    if POINTS_BACK.match(phrase) or not (phrase_terms := terms(phrase)):
        return None
    kind = frozenset(phrase_terms[-1:])  # dark mode and light mode are both a mode
    return Fact(
        Category.PREFERENCES, "prefer", frozenset(phrase_terms), kind, label=phrase, single=True
    )


@preference_rules.add(
    r"I (?:likes?|loves?|enjoys?|adores?|liked|loved|enjoyed|(?:am|is|was) (?:an? )?"
    r"(?:big |huge |great |massive )?(?:fan of|into|fond of|keen on|interested in|passionate about|"
    r"crazy about)) (.+)"
)
def _likes(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _preference_fact("like", match[1])


@preference_rules.add(
    r"nothing beats (.+)", r"I (?:am|is) (?:more of )?an? ([\w-]+ (?:person|lover))\b"
)
def _praises(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _preference_fact("like", re.sub(r" for me$", "", match[1] or match[2]))


@preference_rules.add(
    r"I (?:hates?|dislikes?|detests?|loathes?|avoids?|hated|disliked|have gone off) (.+)"
)
def _dislikes(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _preference_fact("like", match[1], positive=False)


@preference_rules.add(rf"I {HAVE}(?:switched|changed|migrated)(?: from (.+?))? to (.+)")
def _switched(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    fact = _tool_fact(match[2])
    return fact and replace(fact, replaces=content(match[1] or ""), change=True)


@preference_rules.add(r"I uses? (.+)")
def _uses(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _tool_fact(match[1])


def _tool_fact(text: str) -> Fact | None:
    """Return the preference for a tool, if it has a proper name."""
    return _preference_fact("use", re.sub(r" for .*", "", text)) if text[:1].isupper() else None


@preference_rules.add(r"I stop (.+)")
def _stopped(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _preference_fact("stop", match[1])


@preference_rules.add(
    r"I (?:can )?((?:eats?|drinks?|plays?|reads?|watch(?:es)?|listens? to|collects?|cooks?|"
    r"practi[cs]es?|"
    r"drives?|rides?|wears?|smokes?|paints?|sings?|meditates?|swims?|runs?)(?: .+|$))"
)
def _does(match: re.Match[str], clause: NormalizedClause) -> Fact | None:
    if clause.positive and clause.text.lower().startswith("i can "):
        return None
    once = re.match(rf"\w+ (?:{COMMON_THING})", match[1], re.IGNORECASE)
    return None if once and not clause.habit else _preference_fact("do", match[1])


@preference_rules.add(
    rf"I (?!{BE}\b|have\b|had\b|can\b|will\b|think\b|get (?:an?|this|the)\b|\w+ed\b)(\w+ .+)"
)
def _habit(match: re.Match[str], clause: NormalizedClause) -> Fact | None:
    return (
        _preference_fact("do", match[1])
        if clause.habit and not TROUBLE.search(clause.text)
        else None
    )


_ANSWER = r"(?:answers?|repl(?:y|ies)|respon(?:d|ses?)|speak|talk|messages?|explanations?)"


@preference_rules.add(
    rf"(?:{_ANSWER}(?: to me)?|address me) "
    r"(in|with|using|like|as|briefly|concisely|formally|informally)\b ?(.*)"
)
def _answer_in(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    tongue = re.fullmatch(LANGUAGES, match[2], re.IGNORECASE)
    return Fact(
        Category.PREFERENCES,
        "answer",
        content(f"{match[1]} {match[2]}"),
        frozenset({"language"}) if tongue else NO_WORDS,
        label=f"answer {match[1]} {'language' if tongue else match[2]}",
        single=tongue is not None,
    )


@preference_rules.add(rf"keep (?:all )?(?:your |the |my )?({_ANSWER}|code|comments|it) (.+)")
def _keep(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return Fact(Category.PREFERENCES, "keep", content(match[2]), label=f"{match[1]} {match[2]}")


@preference_rules.add(
    r"(?!I\b|my\b|the\b|it\b)(\w+ .*\b(?:when you (?:reply|answer|respond|write)|"
    r"in your (?:answers|replies|responses)|when (?:replying|answering|talking) to me)\b.*)"
)
def _replying(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _preference_fact("instruct", match[1])


@preference_rules.add(rf"(?:you should |you must |I (?:want|need) you to )?((?:{IMPERATIVES})\b.*)")
def _instructed(match: re.Match[str], clause: NormalizedClause) -> Fact | None:
    return _preference_fact("instruct", match[1]) if clause.habit else None
