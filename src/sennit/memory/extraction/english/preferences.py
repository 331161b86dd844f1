"""Rules for preferences, standing instructions and ways of working.

The last rules could match anything that is said to be a habit, so they come after all others.
"""

from __future__ import annotations

import re
from dataclasses import replace

from sennit.memory.extraction.english.clauses import ANSWER, NormalizedClause
from sennit.memory.extraction.english.facts import (
    BE,
    COMMON_THING,
    HAVE,
    IGNORE_CASE,
    NO_WORDS,
    Fact,
    Rule,
    content,
    first_phrase,
    preference_fact,
    rule,
)
from sennit.memory.extraction.english.lexicon import (
    IMPERATIVES,
    IRREGULAR_PAST,
    LANGUAGES,
    POINTS_BACK,
    TROUBLE,
)
from sennit.memory.extraction.terms import fold, terms
from sennit.memory.extraction.values import Category


def _working_pattern(word: str, condition: str, action: str, clause: NormalizedClause) -> Fact:
    order = fold(word) if fold(word) in ("before", "after") else "when"
    return Fact(
        Category.PATTERNS,
        "pattern",
        content(action) - {"first"},
        content(condition) | {f"{order}:"},
        label=f"{order} {condition} {action}",
        single=" first" in f" {clause.text}",
    )


def _favourite(kind: str, value: str) -> Fact:
    values, about, label = content(value), content(kind), f"favourite {kind}"
    return Fact(Category.PREFERENCES, "favourite", values, about, label=label, single=True)


WORK_STYLE_RULES = (
    rule(
        lambda match, clause: _working_pattern(match[1], match[2], match[3] + match[4], clause),
        r"(whenever|every time|each time|if|when|before|after) ([^,]+), (?:then )?"
        rf"(?:you should |you must )?(?:first )?({IMPERATIVES})\b(.*)",
    ),
    rule(
        lambda match, clause: _working_pattern(match[2], match[3], match[1], clause),
        rf"((?:{IMPERATIVES})\b.*?) (before|after|whenever|every time) (.+)",
    ),
    rule(
        lambda match, _: _favourite(match[1], first_phrase(match[2])),
        r"my (?:all-time )?fav(?:ou?)?rite ([\w ]+?) (?:is|are|has to be) (.+)",
    ),
    rule(
        lambda match, _: _favourite(match[2], match[1]),
        r"(?!(?:that|this|it|these|those|what|which)\b)(.+?) (?:is|are) my (?:all-time "
        r")?fav(?:ou?)?rite ([\w ]+)",
    ),
)


def _preference(slot: str, *patterns: str, positive: bool = True) -> Rule:
    """Return a rule about a preference, with the value in the first group."""
    return rule(lambda match, _: preference_fact(slot, match[1], positive=positive), *patterns)


def _prefers_over(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    value, other = content(match[1]), content(first_phrase(match[2]))
    label = f"{match[1]} or {first_phrase(match[2])}"
    return Fact(Category.PREFERENCES, "prefer", value, value | other, label=label, single=True)


def _prefers(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    phrase = first_phrase(match[1])
    if POINTS_BACK.match(phrase) or not (value := terms(phrase)):
        return None
    kind = frozenset(value[-1:])  # dark mode and light mode are both a mode
    return Fact(Category.PREFERENCES, "prefer", frozenset(value), kind, label=phrase, single=True)


def _tool(text: str) -> Fact | None:
    """Return the preference for a tool, if it has a proper name."""
    return preference_fact("use", re.sub(r" for .*", "", text)) if text[:1].isupper() else None


def _switched(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    fact = _tool(match[2])
    return fact and replace(fact, replaces=content(match[1] or ""), change=True)


def _does(match: re.Match[str], clause: NormalizedClause) -> Fact | None:
    if clause.positive and clause.text.lower().startswith("i can "):
        return None
    once = re.match(rf"\w+ (?:{COMMON_THING})", match[1], IGNORE_CASE)
    return None if once and not clause.habit else preference_fact("do", match[1])


def _answers(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    return _answer_fact(match[1], match[2])


def _answer_fact(how: str, what: str) -> Fact:
    tongue = re.fullmatch(LANGUAGES, what, IGNORE_CASE)
    return Fact(
        Category.PREFERENCES,
        "answer",
        content(f"{how} {what}"),
        frozenset({"language"}) if tongue else NO_WORDS,
        label=f"answer {how} {'language' if tongue else what}",
        single=tongue is not None,
    )


_WANT = r"I (?:would )?(?:wants?|needs?|likes?|loves?|prefers?)"


def _bare_language(match: re.Match[str], clause: NormalizedClause) -> Fact | None:
    """Return the language asked for: "French please."."""
    asked = re.search(r"\bplease\b", clause.clause, IGNORE_CASE)
    return _answer_fact("in", match[1]) if asked else None


# Rules that could match anything come last.
PREFERENCE_RULES = (
    rule(
        _prefers_over,
        r"I (?:would )?(?:prefers?|rather) (?!to )(.+?) "
        r"(?:over|to|rather than|instead of|than) (.+)",
    ),
    rule(
        _answers,
        rf"{_WANT} (?:you to )?(?:all )?(?:of )?(?:your |the |my )?{ANSWER}(?: to me)?(?: to be)? "
        rf"(in) ({LANGUAGES})$",
    ),
    rule(
        _answers,
        rf"{_WANT} you to (?:answer|reply|respond|speak|talk)(?: to me)? (with|like|as|using) (.+)",
    ),
    rule(_bare_language, rf"(?!(?:danish|polish|kiwi)\b)({LANGUAGES})$"),
    rule(_prefers, r"I (?:would )?(?:prefers?|rather) (.+)"),
    _preference(
        "like",
        r"I (?:likes?|loves?|enjoys?|adores?|liked|loved|enjoyed|(?:am|is|was) (?:an? )?"
        r"(?:big |huge |great |massive )?(?:fan of|into|fond of|keen on|interested in|"
        r"passionate about|crazy about)) (.+)",
    ),
    rule(
        lambda match, _: preference_fact("like", re.sub(r" for me$", "", match[1] or match[2])),
        r"nothing beats (.+)",
        r"I (?:am|is) (?:more of )?an? ([\w-]+ (?:person|lover))\b",
    ),
    _preference(
        "like",
        r"I (?:hates?|dislikes?|detests?|loathes?|avoids?|hated|disliked|have gone off) (.+)",
        positive=False,
    ),
    rule(_switched, rf"I {HAVE}(?:switched|changed|migrated)(?: from (.+?))? to (.+)"),
    rule(lambda match, _: _tool(match[1]), r"I uses? (.+)"),
    _preference("stop", r"I stop (.+)"),
    rule(
        _does,
        r"I (?:can )?((?:eats?|drinks?|plays?|reads?|watch(?:es)?|listens? to|collects?|cooks?|"
        r"practi[cs]es?|"
        r"drives?|rides?|wears?|smokes?|paints?|sings?|meditates?|swims?|runs?)(?: .+|$))",
    ),
    rule(
        lambda match, clause: (
            preference_fact("do", match[1])
            if clause.habit and not TROUBLE.search(clause.text)
            else None
        ),
        rf"I (?!{BE}\b|have\b|had\b|can\b|will\b|think\b|get (?:an?|this|the)\b|"
        rf"\w+ed\b|(?:{IRREGULAR_PAST})\b)(\w+.*)",
    ),
    rule(
        _answers,
        rf"(?:{ANSWER}(?: to me)?|address me) "
        r"(in|with|using|like|as|briefly|concisely|formally|informally)\b ?(.*)",
    ),
    rule(
        lambda match, _: Fact(
            Category.PREFERENCES, "keep", content(match[2]), label=f"{match[1]} {match[2]}"
        ),
        rf"keep (?:all )?(?:your |the |my )?({ANSWER}|code|comments|it"
        r"(?= (?:short|brief|simple|concise|formal|casual|light|polite|friendly|professional|"
        r"to))) (.+)",
    ),
    _preference(
        "instruct",
        r"(?!I\b|my\b|the\b|it\b)(\w+ .*\b(?:when you (?:reply|answer|respond|write)|"
        r"in your (?:answers|replies|responses)|when (?:replying|answering|talking) to me)\b.*)",
    ),
    _preference(
        "instruct",
        r"((?:use|write|give me|show(?: me)?) (?:only )?(?:the )?(?:metric|imperial|si|celsius|"
        r"fahrenheit|24-hour|12-hour|british|american|iso|formal|informal|plain|simple|"
        r"gender-neutral) (?:units?|system|times?|clock|dates?|spelling|english|language|words?|"
        r"sentences|pronouns|terms|measurements?)\b.*)",
    ),
    rule(
        lambda match, clause: preference_fact("instruct", match[1]) if clause.habit else None,
        rf"(?:you should |you must |I (?:want|need) you to )?((?:{IMPERATIVES})\b.*)",
    ),
)
