"""English rules: the fact that a clause states, with its subject, value and polarity.

One table of rules has two uses. Extraction asks which fact a clause states, and so which category
of memory it is; deduplication asks the same of two texts and compares the facts. So "I live in
Lisbon", "I'm based in Lisbon" and "The user lives in Lisbon" are one fact, and "I moved to Berlin"
is another value of it. A clause that no rule matches states no fact.

Each rule matches the beginning of a normalized clause and builds the fact it states. The first rule
that builds one wins, so the order matters: rules about others and dates come before rules that
could match anything. In doubt a rule builds no fact.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from sennit.memory.extraction.english.clauses import NormalizedClause, normalize
from sennit.memory.extraction.english.dates import without_dates
from sennit.memory.extraction.english.lexicon import (
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
from sennit.memory.extraction.terms import fold, terms
from sennit.memory.extraction.values import Category

Words: TypeAlias = frozenset[str]
_NO_WORDS: Words = frozenset()
_I = re.IGNORECASE


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact that is affirmed or denied."""

    category: Category
    slot: str
    """The kind of fact: `home`, `like`, `job` and so on."""
    value: Words = _NO_WORDS
    """The content words of the value: {lisbon}, {green, tea}."""
    about: Words = _NO_WORDS
    """The subject, if it is not the user: {anna}, {rex}; for a favourite, its kind."""
    relation: str = ""
    """The relation of the subject to the user: sister, dog, project."""
    label: str = ""
    """A name for its file."""
    single: bool = False
    """Whether only one value can hold at a time."""
    positive: bool = True
    change: bool = False
    """Whether it says that something has changed."""
    replaces: Words = _NO_WORDS
    """The value it replaces, if stated."""
    frame: Words = _NO_WORDS
    """The words the fact is put in ("I live in", "my home is"), as opposed to its content."""


_Builder: TypeAlias = Callable[[re.Match[str], NormalizedClause], Fact | None]


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    literal: Words
    """The content words of the pattern itself."""
    build: _Builder


@lru_cache(maxsize=4096)
def fact_of(clause: str) -> Fact | None:
    """Return the fact a clause states, if a rule matches it."""
    normalized = normalize(clause)
    for pattern, literal, build in _RULES:
        match = pattern.match(normalized.text)
        fact = match and build(match, normalized)
        if match and fact:
            return replace(
                fact,
                # Text matched by a wildcard is content, even outside of a group.
                frame=_content(_outside_groups(match)) & literal,
                positive=fact.positive == normalized.positive,
                change=fact.change or normalized.change,
            )
    return None


def is_instruction(clause: str) -> bool:
    """Return whether a clause is a standing instruction ("Always run the tests first")."""
    fact = fact_of(clause)
    return fact is not None and fact.slot == "instruct"


def _outside_groups(match: re.Match[str]) -> str:
    """Return the matched text that no group captured."""
    chars = list(match[0])
    for number in range(1, match.re.groups + 1):
        start, end = match.span(number)
        if start >= 0:
            chars[start - match.start() : end - match.start()] = " " * (end - start)
    return "".join(chars)


_LITERAL_WORDS = re.compile(r"(?<!\\)[A-Za-z']+")
_PHRASE_END = re.compile(
    r",.*| (?:with|since|because|for|until|till|near|together|after|before|last|next|but|though|"
    r"although|when|where|who|which|that|if|as|on|in|at|and (?:I|we|my|our))\b.*",
    _I,
)


def _first_phrase(text: str) -> str:
    """Return the first phrase of a text; the rest adds detail but does not change the subject."""
    return _PHRASE_END.sub("", text, count=1).strip() or text


def _content(text: str) -> Words:
    return frozenset(terms(text))


def _rule(build: _Builder, *patterns: str) -> _Rule:
    """Return a rule that builds a fact from a clause that begins with one of the patterns."""
    literal = _content(" ".join(_LITERAL_WORDS.findall(" ".join(patterns))))
    return _Rule(re.compile("|".join(patterns), _I), literal, build)


_BE = r"(?:am|is|are|was|were)"
_HAVE = r"(?:have |has )?"
_NAME = (
    r"(?:(?:(?:Dr|Mrs?|Ms|Prof)\. )?(?-i:[^\W\d_a-z][\w'-]*)"
    r"(?: (?-i:[^\W\d_a-z][\w'.-]*)){0,2})"
)
_COMMON_THING = r"(?:the(?! (?-i:[A-Z]))|an?|this|that|these|those|my|your|it|another|using|line) "
"""The beginning of a noun phrase without a name."""


def _working_pattern(word: str, condition: str, action: str, clause: NormalizedClause) -> Fact:
    order = fold(word) if fold(word) in ("before", "after") else "when"
    return Fact(
        Category.PATTERNS,
        "pattern",
        _content(action) - {"first"},
        _content(condition) | {f"{order}:"},
        label=f"{order} {condition} {action}",
        single=" first" in f" {clause.text}",
    )


def _favourite(kind: str, value: str) -> Fact:
    values, about, label = _content(value), _content(kind), f"favourite {kind}"
    return Fact(Category.PREFERENCES, "favourite", values, about, label=label, single=True)


# Ways of working and favourites come before all others, because "my" is in both.
_WORK_STYLE = (
    _rule(
        lambda match, clause: _working_pattern(match[1], match[2], match[3] + match[4], clause),
        r"(whenever|every time|each time|if|when|before|after) ([^,]+), (?:then )?"
        rf"(?:you should |you must )?(?:first )?({IMPERATIVES})\b(.*)",
    ),
    _rule(
        lambda match, clause: _working_pattern(match[2], match[3], match[1], clause),
        rf"((?:{IMPERATIVES})\b.*?) (before|after|whenever|every time) (.+)",
    ),
    _rule(
        lambda match, _: _favourite(match[1], _first_phrase(match[2])),
        r"my fav(?:ou?)?rite ([\w ]+?) (?:is|are) (.+)",
    ),
    _rule(
        lambda match, _: _favourite(match[2], match[1]),
        r"(.+?) (?:is|are) my (?:all-time )?fav(?:ou?)?rite ([\w ]+)",
    ),
)


_PAST = re.compile(r"I (?:lived|worked)\b", _I)


def _profile_fact(
    slot: str, text: str, match: re.Match[str], *, single: bool = True
) -> Fact | None:
    """Return a fact about the user; "I lived" and "I worked" deny it."""
    value, positive = _content(_first_phrase(text)), _PAST.match(match[0]) is None
    if not value:
        return None
    return Fact(Category.PROFILE, slot, value, label=slot, single=single, positive=positive)


def _profile(slot: str, *patterns: str, single: bool = True) -> _Rule:
    """Return a rule about the user, with the value in the last group."""
    return _rule(
        lambda match, _: _profile_fact(slot, match[match.lastindex or 0], match, single=single),
        *patterns,
    )


def _moved(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    fact = _profile_fact("home", match[2], match)
    return fact and replace(fact, replaces=_content(match[1] or ""))


def _left(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    fact = _profile_fact("employer", match[1], match)
    return fact and replace(fact, positive=False, change=True)


# Most of what a user is can be only one thing at a time, so another value is a change.
_PROFILE = (
    _rule(
        lambda match, _: _profile_fact(
            "name", re.sub(r"^the name ", "", match[1] or match[2]), match
        ),
        r"(?:my (?:full |first |real |nick)?name is|I (?:am|is) (?:called|named)|I goe?s? by) "
        r"(?!on |in |not |an? |the (?!name))(.+)",
        rf"call me ({_NAME})",
    ),
    _profile(
        "age",
        r"(?:my age is|I (?:am|is|turned|turn)) (\d{1,3})(?: years? old)?"
        r"(?:$|,| (?:yesterday|today|in|on|last|this|and)\b)",
    ),
    _rule(
        lambda match, _: _profile_fact("birthday", match[1].split(" in ")[0], match),
        r"my (?:birthday|date of birth) is (?:on )?(.+)",
    ),
    _rule(
        lambda match, _: _profile_fact(
            "birthday" if match[1][0].isdigit() else "birthplace", match[1], match
        ),
        r"I was born (?:on|in) (.+)",
    ),
    _profile(
        "home",
        r"I (?:am |is |have been |has been )?"
        r"(?:lives?|living|lived|resides?|residing|based|settled)(?: down)? in (.+)",
    ),
    _rule(
        _moved,
        rf"(?:my home(?: ?town)? is(?: in)?|I {_HAVE}(?:moved|relocated)(?: back)?"
        r"(?: from (\w[\w ]*?))? to) "
        rf"(?!{_COMMON_THING})(.+)",
    ),
    _profile("origin", r"I (?:(?:am|is|was) from|comes? from|grew up in|was raised in) (.+)"),
    _profile(
        "job",
        r"(?:I (?:works?|worked|am working|is working|have been working) as"
        r"|my (?:job|profession|occupation|role|job title) is(?: being)?) (?:an? |the )?(.+)",
        r"I do(?:es)? (.+?) for a living",
    ),
    _profile(
        "employer",
        rf"I (?:works?|worked|(?:am|is|have been) working|am employed|{_HAVE}started(?: working|"
        rf" work| a (?:new )?job)?|{_HAVE}got a (?:new )?job) (?:for|at|by) ((?-i:[A-Z])\w.*)",
        r"I (?:works?|(?:am|is|have been) working)(?: nights| days| part-time| full-time)?"
        r" (?:for|at|in) (an? (?!while\b|bit\b|long\b|few\b|lot\b"
        r"|solution\b|fix\b).+)",
        rf"I {_HAVE}joined ((?-i:[A-Z])\w.*)",
        r"my employer is (.+)",
        r"I (?:am|is) (?:an employee|on the staff|a member of staff) (?:of|at) (.+)",
    ),
    _rule(_left, rf"I {_HAVE}(?:left|resigned from|been fired by) ((?-i:[A-Z])\w.*)"),
    _profile(
        "study",
        r"I (?:stud(?:y|ies|ied)|(?:am|is) studying|major(?:ed)? in|have a degree in) "
        rf"(?!{_COMMON_THING})(.+)",
        single=False,
    ),
    _profile("status", rf"I (?:am|is) (?:an? )?({STATES})\b"),
    _profile(
        "children",
        r"I (?:have|has) (?:(\w+) (?:kids|children|kid|child|sons|daughters|grand\w+)|"
        r"(twins|triplets))\b",
        r"I (?:am|is) (?:an? |the )?(?:\w+ )?(?:mother|father|mom|mum|dad|parent) (?:of|to) "
        r"(\w+)\b",
    ),
    _profile("family", r"I (?:am|are) an? (?:\w+ )?(family of \w+)"),
    _profile(
        "health",
        r"I (?:am|is) (?:an? )?([\w-]*(?:betic|exic|epileptic|blind|deaf|autistic|hyperactive))$",
        r"I (?:have|has|suffers? from) (?:an? )?((?:[\w-]+ ){0,3}(?:disease|syndrome|disorder|"
        r"asthma|diabetes|migraines?|arthritis|epilepsy))\b",
        single=False,
    ),
    _profile("diet", rf"I (?:am|is|have been|became|turned) (?:an? )?((?:{DIETS})\b.*)"),
    _profile(
        "allergy",
        r"I (?:am|is) (severely |deathly )?allergic to (.+)",
        r"I ha(?:ve|s) an? (.+?) allergy",
        r"I (?:am|is) ([\w-]+ intolerant)",
        single=False,
    ),
    _profile("nationality", rf"I (?:am|is) (?:an? )?({NATIONS})(?:$|,)"),
    _profile(
        "language",
        rf"I (?:speaks?|(?:am|is) fluent in) (?:some |a little )?(?={LANGUAGES}|(?-i:[A-Z]))(.+)",
        r"my (?:native|first|mother) (?:language|tongue) is (.+)",
        single=False,
    ),
    _rule(
        lambda match, _: _profile_fact(match[1].lower().replace(" ", ""), match[2], match),
        rf"my ({ATTRIBUTES}) is (.+)",
    ),
    _profile(
        "job",
        rf"I (?:am|is) an? ((?:[\w-]+ ){{0,3}}?(?:{JOBS}))"
        r"(?:$|,| (?:at|for|in|from|by|and|with|who)\b)",
    ),
    _rule(
        lambda match, _: (
            None if NO_NAME.match(match[1]) else _profile_fact("name", match[1], match)
        ),
        rf"I (?:am|is) ({_NAME})$",
    ),
)


_PERSON = "|".join(sorted(PEOPLE, key=len, reverse=True))
_ENTITY = "|".join(sorted((*PEOPLE, *THINGS), key=len, reverse=True))
_ADJECTIVES = r"(?:(?!name\b)[\w-]+ ){0,2}?"
_ENTITY_STATEMENTS = [
    (slot, re.compile(pattern, _I))
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


def _entity(relation: str, name: str, statement: str = "") -> Fact:
    """Return a fact about a person or thing; what is stated about it has a slot and a value."""
    slot, value = "", _NO_WORDS
    for slot, pattern in _ENTITY_STATEMENTS:
        if match := pattern.match(statement.strip()):
            value = _content(_first_phrase(match[1]) if slot else match[1])
            break
    kind = fold(relation)
    return Fact(Category.ENTITIES, slot, value, _content(name), kind, label=name or kind)


_ENTITIES = (
    _rule(
        lambda match, _: _entity(match[1], match[2]),
        rf"my {_ADJECTIVES}({_ENTITY})(?:'s name)? (?:is|are|was) (?:called |named )?({_NAME})"
        r"(?:,.*| (?:who|and|which) .*)?$",
    ),
    _rule(
        lambda match, _: _entity(match[1] or match[3], _first_phrase(match[2] or match[4])),
        rf"my {_ADJECTIVES}({_ENTITY}) (?:is|are) (?:called|named) (\w.*)",
        rf"I (?:have|has|had) (?:\w+ )?{_ADJECTIVES}({_ENTITY})s? (?:called|named) (\w.*)",
    ),
    _rule(
        lambda match, _: _entity(match[1], match[2], match[3]),
        rf"my {_ADJECTIVES}({_ENTITY})s?,? ({_NAME}),? (\S.*)",
    ),
    _rule(
        lambda match, _: (
            None if POINTS_BACK.match(match[1]) else _entity(match[2], match[1], match[3] or "")
        ),
        rf"({_NAME}) (?:is|was) my {_ADJECTIVES}({_ENTITY})\b(?:,? (?:and|who) (.+))?",
    ),
    _rule(
        lambda match, _: _entity(match[1] or "project", match[2]),
        rf"I (?:am|is) (?:working on|building|developing|leading|maintaining) (?:an? |the |my )?"
        rf"(?:[\w-]+ ){{0,2}}?(?:({_ENTITY}) )?(?:called |named )?({_NAME})",
    ),
    _rule(
        lambda match, _: _entity(match[1], "", match[2]),
        rf"my {_ADJECTIVES}({_PERSON}) ((?:{_BE}|has|have|had|lives?|works?|likes?|loves?|hates?|"
        r"plays?|studies|wants?|needs?|eats?|speaks?|moved|got|started) .+)",
    ),
    _rule(  # a named entity of a kind that no list contains
        lambda match, clause: (
            None if TROUBLE.search(clause.text) else _entity(match[1], match[2], match[3])
        ),
        r"my ([a-z-]+) ((?-i:[A-Z])[a-z]+) (\w+s (?!called).+)",
    ),
    _rule(
        lambda match, _: _entity(match[1], match[2]),
        rf"(?:my|the) ({'|'.join(THINGS)})(?:'s)? (?:code ?)?name is ({_NAME})",
    ),
    _rule(
        lambda match, _: _entity(match[1], match[2]),
        rf"I (?:have|has) (?:an?|\w+) ({_ENTITY})s?, ({_NAME}(?: and {_NAME})?)",
    ),
)


def _event(clause: NormalizedClause) -> Fact:
    label = re.sub(rf"^I (?:{_BE} |{_HAVE})?", "", without_dates(clause.text), flags=_I)
    return Fact(Category.EVENTS, "event", _content(clause.text), label=label)


_EVENTS = (
    _rule(
        lambda _, clause: _event(clause) if clause.dated or len(clause.text.split()) > 2 else None,
        rf"I {_HAVE}(?:decided?|chose|chosen|agreed|resolved|settled on|am going with|"
        r"are going with|will go with)\b",
        rf"I {_HAVE}(?:{MILESTONES})\b",
    ),
    _rule(
        lambda _, clause: (
            _event(clause) if clause.dated and not TROUBLE.search(clause.text) else None
        ),
        rf"(?:I|my (?:{_PERSON})) {_HAVE}(?:{DEEDS})\b",
        r"I (?:starts?|begins?|leaves?|moves?|fl(?:y|ies)|travels?) \w+",
        r"I (?:am|are|is|will be|will|was|were) \w+",
        r"I (?:have|has|had) (?:an?|my|the|two|three|another)\b",
        rf"(?:my|the) (?:[\w-]+ ){{0,2}}?(?:{OCCASIONS})\b",
    ),
)


def _preference_fact(slot: str, text: str, *, positive: bool = True) -> Fact | None:
    text = text.strip()
    if POINTS_BACK.match(text) or not (value := _content(text)):
        return None
    return Fact(Category.PREFERENCES, slot, value, label=_first_phrase(text), positive=positive)


def _preference(slot: str, *patterns: str, positive: bool = True) -> _Rule:
    """Return a rule about a preference, with the value in the first group."""
    return _rule(lambda match, _: _preference_fact(slot, match[1], positive=positive), *patterns)


def _prefers_over(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    value, other = _content(match[1]), _content(_first_phrase(match[2]))
    label = f"{match[1]} or {_first_phrase(match[2])}"
    return Fact(Category.PREFERENCES, "prefer", value, value | other, label=label, single=True)


def _prefers(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    phrase = _first_phrase(match[1])
    if POINTS_BACK.match(phrase) or not (value := terms(phrase)):
        return None
    kind = frozenset(value[-1:])  # dark mode and light mode are both a mode
    return Fact(Category.PREFERENCES, "prefer", frozenset(value), kind, label=phrase, single=True)


def _tool(text: str) -> Fact | None:
    """Return the preference for a tool, if it has a proper name."""
    return _preference_fact("use", re.sub(r" for .*", "", text)) if text[:1].isupper() else None


def _switched(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    fact = _tool(match[2])
    return fact and replace(fact, replaces=_content(match[1] or ""), change=True)


def _does(match: re.Match[str], clause: NormalizedClause) -> Fact | None:
    if clause.positive and clause.text.lower().startswith("i can "):
        return None
    once = re.match(rf"\w+ (?:{_COMMON_THING})", match[1], _I)
    return None if once and not clause.habit else _preference_fact("do", match[1])


def _answers(match: re.Match[str], _: NormalizedClause) -> Fact | None:
    tongue = re.fullmatch(LANGUAGES, match[2], _I)
    return Fact(
        Category.PREFERENCES,
        "answer",
        _content(f"{match[1]} {match[2]}"),
        frozenset({"language"}) if tongue else _NO_WORDS,
        label=f"answer {match[1]} {'language' if tongue else match[2]}",
        single=tongue is not None,
    )


_ANSWER = r"(?:answers?|repl(?:y|ies)|respon(?:d|ses?)|speak|talk|messages?|explanations?)"
# Rules that could match anything come last.
_PREFERENCES = (
    _rule(
        _prefers_over,
        r"I (?:would )?(?:prefers?|rather) (?!to )(.+?) "
        r"(?:over|to|rather than|instead of|than) (.+)",
    ),
    _rule(_prefers, r"I (?:would )?(?:prefers?|rather) (.+)"),
    _preference(
        "like",
        r"I (?:likes?|loves?|enjoys?|adores?|liked|loved|enjoyed|(?:am|is|was) (?:an? )?"
        r"(?:big |huge |great |massive )?(?:fan of|into|fond of|keen on|interested in|"
        r"passionate about|crazy about)) (.+)",
    ),
    _rule(
        lambda match, _: _preference_fact("like", re.sub(r" for me$", "", match[1] or match[2])),
        r"nothing beats (.+)",
        r"I (?:am|is) (?:more of )?an? ([\w-]+ (?:person|lover))\b",
    ),
    _preference(
        "like",
        r"I (?:hates?|dislikes?|detests?|loathes?|avoids?|hated|disliked|have gone off) (.+)",
        positive=False,
    ),
    _rule(_switched, rf"I {_HAVE}(?:switched|changed|migrated)(?: from (.+?))? to (.+)"),
    _rule(lambda match, _: _tool(match[1]), r"I uses? (.+)"),
    _preference("stop", r"I stop (.+)"),
    _rule(
        _does,
        r"I (?:can )?((?:eats?|drinks?|plays?|reads?|watch(?:es)?|listens? to|collects?|cooks?|"
        r"practi[cs]es?|"
        r"drives?|rides?|wears?|smokes?|paints?|sings?|meditates?|swims?|runs?)(?: .+|$))",
    ),
    _rule(
        lambda match, clause: (
            _preference_fact("do", match[1])
            if clause.habit and not TROUBLE.search(clause.text)
            else None
        ),
        rf"I (?!{_BE}\b|have\b|had\b|can\b|will\b|think\b|get (?:an?|this|the)\b|\w+ed\b)(\w+ .+)",
    ),
    _rule(
        _answers,
        rf"(?:{_ANSWER}(?: to me)?|address me) "
        r"(in|with|using|like|as|briefly|concisely|formally|informally)\b ?(.*)",
    ),
    _rule(
        lambda match, _: Fact(
            Category.PREFERENCES, "keep", _content(match[2]), label=f"{match[1]} {match[2]}"
        ),
        rf"keep (?:all )?(?:your |the |my )?({_ANSWER}|code|comments|it) (.+)",
    ),
    _preference(
        "instruct",
        r"(?!I\b|my\b|the\b|it\b)(\w+ .*\b(?:when you (?:reply|answer|respond|write)|"
        r"in your (?:answers|replies|responses)|when (?:replying|answering|talking) to me)\b.*)",
    ),
    _rule(
        lambda match, clause: _preference_fact("instruct", match[1]) if clause.habit else None,
        rf"(?:you should |you must |I (?:want|need) you to )?((?:{IMPERATIVES})\b.*)",
    ),
)
_RULES = (*_WORK_STYLE, *_PROFILE, *_ENTITIES, *_EVENTS, *_PREFERENCES)
