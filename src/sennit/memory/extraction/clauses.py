"""Clauses that rules can read: statements only, in a normal form.

`own_statements` gives the clauses of a text in which a person says how things are. Questions,
tasks, suppositions, reported speech, secrets and orders to the memory itself are none. `Plain` is a
clause without contractions, fillers and negation, so that one rule matches many ways of saying a
thing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from sennit.memory.extraction.dates import is_dated
from sennit.memory.extraction.terms import FRAME, terms
from sennit.memory.extraction.utterances import Utterance

_I = re.IGNORECASE
_WHOLE = {
    "can't": "can not", "cannot": "can not", "won't": "will not", "let's": "let us",
    "i'm": "I am", "im": "I am", "n't": " not", "'re": " are", "'ve": " have", "'ll": " will",
    "'d": " would",
}  # fmt: skip
_CONTRACTED = re.compile(
    r"\b(?:can't|cannot\b|won't|let's\b|I'm\b|Im\b)|n't\b|'(?:re|ve|ll|d)\b|"
    r"\b(?P<who>it|he|she|that|there|what|who|here|name)'s\b|'s(?P<how> (?:called|named))\b",
    _I,
)
_GOT = re.compile(r"\b(have|has) got\b", _I)
_THIRD_PERSON = [
    (re.compile(r"\b(?:the )?user's\b", _I), "my"),
    (
        re.compile(r"^(?:the )?user(?= (?:[a-z]*s|no|not|do|did|can|will)\b)", _I),
        "I",
    ),
]
_FILLER = re.compile(
    r"(?:(?:by the way|btw|also|oh|ah|hi|hello|hey|well|so|actually|in fact|fyi|and|but|now|please|"
    r"just so you know|these days|nowadays|currently|recently|lately|honestly|to be honest|"
    r"unfortunately|luckily|sadly|anyway|from now on|in (?:the )?future|for (?:context|the record|"
    r"your information|reference)|(?:please |do )?(?:note|remember|keep in mind)(?: that)?|"
    r"(?:please )?(?:store|save|record|put) (?:it )?(?:in|to|into) (?:your |the )?memory(?: that)?|"
    r"as (?:you know|I said|mentioned)|(?:it )?turns out(?: that)?|you should know(?: that)?)"
    r"(?:\s*[,:.!–—-]+\s*|\s+)"
    r"|(?:hi|hello|hey|thanks|thank you|yes|yeah|no|nope|ok|okay|great|sure|sorry|correction|"
    r"good \w+)[\w ]{0,12}[,:.!–—-]+\s*)",
    _I,
)
_FILLERS = re.compile(rf"^(?:{_FILLER.pattern})+", _I)
_LAST = re.compile(r",? (?:by the way|btw|though|thanks|thank you|if that helps|you know)$", _I)
_DATE_FIRST = re.compile(
    r"(?:yesterday|today|tonight|tomorrow|(?:last|next|this) \w+|"
    r"(?:in|since|on|until) [\w ]{2,20}?|\w+ (?:days?|weeks?|months?|years?) ago),?\s+"
    r"(?=(?:I|we|my|our)\b)",
    _I,
)
_ADVERB = re.compile(
    r"\b(?:really|absolutely|actually|just|now|currently|still|also|very|truly|totally|recently|"
    r"definitely|simply|these days|nowadays|at the moment|any ?more|any longer|too|as well|please|"
    r"already|finally|after all|mostly|generally|originally|from now on|always|usually|typically|"
    r"normally|often|rarely|only|quite|so much|a lot|completely|entirely|altogether)\b[,]?\s*",
    _I,
)
_CHANGE = re.compile(
    r"\b(?:now|no longer|any ?more|any longer|instead|moved|relocated|switched|changed|turned|"
    r"these days|nowadays|from now on|new|joined|started|stopped|quit|gave up|given up|used to)\b",
    _I,
)
_HABIT = re.compile(
    r"\b(?:always|usually|typically|normally|often|rarely|never|only|ever|from now on|"
    r"in (?:the )?future|every (?:day|morning|evening|night|week|month|year|time|\w+day))\b",
    _I,
)
_NOT = [
    (re.compile(pattern, _I), plain)
    for pattern, plain in (
        (r"\b(?:can|could) not (?:stand|bear)\b", "hate"),
        (r"\b(?:do|does|did|will|would) not (?:ever )?", ""),
        (r"\b(am|is|are|was|were|have|has|had|can|could|should) not\b", r"\1"),
        (r"\bno longer ", ""),
        (r"\bnever ", ""),
        (r"\bused to ", ""),
        (r"\bnot to\b", "to"),
        (r"\b(?:have |has )?(?:stopped|quit|gave up|given up) ", "stop "),
    )
]
_QUESTION = re.compile(
    r"(?:what|why|how|who|whom|whose|which|where|do|does|did|is|are|am|was|were|can|could|would|"
    r"will|should|shall|may|have you|has|any idea)\b(?! not\b)",
    _I,
)
_SUPPOSED = re.compile(
    r"^(?:if|suppose|supposing|imagine|pretend|assume|assuming|hypothetically|what if|let us "
    r"(?:say|assume|pretend|imagine)|say I)\b|\b(?:maybe|perhaps|might|not sure|I wish|I guess|"
    r"I suppose|I would (?!rather|prefer)|would be|could be|I could|hypothetical\w*|as if|unless|"
    r"in (?:my|the|a) (?:story|novel|dream|game|book)|my character)\b",
    _I,
)
_REPORTED = re.compile(
    r"\b(?!I\b|we\b)[\w']+ (?:said|says|say|told (?:me|us)|tells|thinks?|claims?|claimed|wrote|"
    r"writes|asked|believes?|joked)\b(?! hi)",
    _I,
)
_REPORTING = ("sa", "told", "tell", "think", "claim", "wrote", "writes", "ask", "believe", "joke")
_TASK = re.compile(
    r"(?:please )?(?:translate|write|rewrite|summari[sz]e|proofread|correct|generate|create|draft|"
    r"compose|fix|explain|give|tell|act|show|make|help|find|list|describe|convert|analy[sz]e|check|"
    r"review|improve|paraphrase|edit|continue|complete|classify|extract|compare|calculate|look|"
    r"read|tell|let|go|run|open|search|implement|add|remove|delete|update|refactor)\b",
    _I,
)
_UNFIT = re.compile(
    r"\b(?:pass(?:word|phrase|code)|(?:api|access|private|secret)[ _-]?key|(?:\w+ )?token|secret|"
    r"pin(?: code| number)?|cvv|ssn|social security number|(?:credit )?card(?: number)?)s?\s*"
    r"(?:(?:for|of) [\w ]{1,30}? )?(?:is|are|was|to|=|:)\s*\S"
    r"|\.\.[/\\]|%2e%2e|\bsk-\w|\bghp_\w|\bAKIA\w|\bxox[abp]-|\beyJ\w+\.|"
    r"-----BEGIN",
    _I,
)
_CARD = re.compile(r"\d(?:[ -]?\d){12,15}(?!\d)")
_UNFIT_HINTS = (
    "pass", "key", "token", "secret", "pin", "cvv", "ssn", "social", "card", "sk-", "ghp_", "akia",
    "xox", "eyj", "-----", "..", "%2e",
)  # fmt: skip
_LEAD = r"(?:^|[.!?:,\n]\s{0,4}|\b(?:please|now|then|and|must|should|to|you)\s{1,4})"
_ORDER = re.compile(
    rf"{_LEAD}(?:ignore|disregard|forget|override)\b[^.]{{0,40}}\b(?:above|previous|prior|earlier|"
    rf"instructions?|rules|system prompt|everything before)\b"
    rf"|{_LEAD}(?:store|save|write|insert|add|record|remember)\b[^.]{{0,40}}\bthe user "
    r"(?:is|has|wants|likes|must)\b|\b(?:reveal|print|repeat)\b[^.]{0,20}\bsystem prompt\b|"
    r"\bdeveloper mode\b|<\|",
    _I,
)
_ORDER_HINTS = (
    "ignore", "disregard", "forget", "override", "the user ", "system prompt", "developer mode",
    "<|",
)  # fmt: skip
"""One of these stands in every order; looking for them first saves most of the time."""
_CLAUSES = re.compile(
    r"(?:,(?:\s*+(?:and|but|so|while))?|(?<!\s)\s++(?:and|but|so|while|though|although))\s++"
    r"(?=(?:I|my|we|our)\b)(?!(?:my|our) [\w -]{2,25},)",
    _I,
)
_APPOSED = re.compile(r"^(\w[\w'.-]*(?: [A-Z][\w'.-]*)?), (my|our) ([\w -]{2,25}?), ")
_ELLIPTIC = re.compile(
    r"(?:just )?(?:turned|had|got|moved|started|bought|finished|love|hate|prefer|been)\b|"
    r"(?P<my>name is\b)|(?P<also>(?:not )?(?:into|fond of|keen on)\b)|"
    r"(?P<be>(?:big|huge|not an?|a (?:big|huge)) (?:\w+ )?(?:fan|lover|person)\b)",
    _I,
)
"""How a clause begins whose subject goes without saying."""
_WE = re.compile(r"\b(?:we|our)\b", _I)
_ONE = {"we": "I", "our": "my"}
_RULE = re.compile(r"(?:if|when|whenever|before|after|every time|each time) [^,]+, (?!I\b)", _I)
"""How a way of working begins; it is no supposition although it may begin with "if"."""
_SHORT = 1000
"""The longest text of which it is worth noting what it was found to be."""
_SPACES = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class NormalizedClause:
    """A clause made plain."""

    text: str
    """Without contractions, fillers, adverbs and negation; the signs at its end are gone too."""
    positive: bool
    """Whether it says that something is so, rather than that it is not."""
    change: bool
    """Whether it says that something has changed."""
    clause: str
    """As it was said."""

    @property
    def habit(self) -> bool:
        """True if it says how often."""
        return _HABIT.search(self.clause) is not None

    @property
    def dated(self) -> bool:
        """True if it says when."""
        return is_dated(self.clause)


def is_injection(text: str) -> bool:
    """Return whether a text tries to tell the memory, rather than the assistant, what to do."""
    return _is_order(text) if len(text) <= _SHORT else _is_order.__wrapped__(text)


@lru_cache(maxsize=1024)
def _is_order(text: str) -> bool:
    return _holds(text.lower(), _ORDER_HINTS) and _ORDER.search(text) is not None


@lru_cache(maxsize=4096)
def is_unsafe(text: str) -> bool:
    """Return whether a text holds what must never be stored: a password, a key, a path that
    climbs.
    """
    hinted_at = _holds(text.lower(), _UNFIT_HINTS)
    return (hinted_at and _UNFIT.search(text) is not None) or _CARD.search(text) is not None


def _holds(text: str, hints: tuple[str, ...]) -> bool:
    """Return whether any of these stands in a text; a plain loop, as every sentence comes by
    here.
    """
    for hint in hints:  # noqa: SIM110
        if hint in text:
            return True
    return False


def is_request(sentence: str) -> bool:
    """Return whether a sentence asks for something: a question or a task."""
    plain = _without_fillers(expand_contractions(sentence))
    return sentence.endswith("?") or bool(_QUESTION.match(plain) or _TASK.match(plain))


def expand_contractions(text: str) -> str:
    """A text without contractions, about the user in the first person."""
    return _expanded(text) if len(text) <= _SHORT else _expanded.__wrapped__(text)


@lru_cache(maxsize=4096)
def _expanded(text: str) -> str:
    text = text.replace("’", "'")
    if "'" in text or "cannot" in text or "got" in text or text[:3] in ("im ", "Im "):
        text = _GOT.sub(r"\1", _CONTRACTED.sub(_in_full, text))
    if "ser" in text:
        for pattern, plain in _THIRD_PERSON:
            text = pattern.sub(plain, text)
    return text


def content_terms(text: str) -> frozenset[str]:
    """The terms of a text that would have to be proved, however it puts them."""
    return frozenset(terms(expand_contractions(text))) - FRAME


def _in_full(found: re.Match[str]) -> str:
    """Return the expansion of a contraction."""
    whole = _WHOLE.get(found[0].lower())
    return whole or (f"{found['who']} is" if found["who"] else f" is{found['how']}")


def stated_sentences(utterance: Utterance) -> Iterator[str]:
    """The sentences in which a person says how things are, in their own words.

    A text that gives orders to the memory has none.
    """
    if is_injection(utterance.text):
        return
    for sentence in utterance.sentences:
        plain = _without_fillers(expand_contractions(sentence))
        if _TASK.match(plain):
            if plain.endswith(":"):
                return  # what follows is material, not a statement
        elif _is_statement(sentence, plain):
            yield sentence


def own_statements(utterance: Utterance) -> Iterator[str]:
    """The same, clause by clause."""
    for sentence in stated_sentences(utterance):
        yield from clauses(sentence)


def clauses(sentence: str) -> list[str]:
    """The parts of a sentence that may each say something of their own."""
    return [clause for clause in _CLAUSES.split(sentence) if clause.strip()]


def _is_statement(sentence: str, plain: str) -> bool:
    """Return whether a sentence says how things are: no question, supposition, report or secret."""
    if sentence.rstrip("\"') ").endswith(("?", "？")) or _QUESTION.match(plain):
        return False
    return not (
        (_SUPPOSED.search(plain) and not _RULE.match(plain))
        or _is_reported(plain)
        or is_unsafe(plain)
    )


def _is_reported(plain: str) -> bool:
    return _holds(plain, _REPORTING) and _REPORTED.search(plain) is not None


def normalize(clause: str) -> NormalizedClause:
    """A clause made plain, and what was taken away from it."""
    text = _LAST.sub("", _without_fillers(expand_contractions(clause)).rstrip(" .!?,;:…"))
    text = _APPOSED.sub(r"\2 \3 \1 ", text)
    if elliptic := _ELLIPTIC.match(text):
        text = f"{_subject(elliptic)} {text}"
    change = _CHANGE.search(clause) is not None
    positive = True
    if "not" in text or "no longer" in text or "never" in text.lower() or change:
        for pattern, replacement in _NOT:
            text, count = pattern.subn(replacement, text)
            positive = positive != bool(count % 2 and replacement != "hate")
    text = _WE.sub(lambda found: _ONE[found[0].lower()], text)
    text = " ".join(_ADVERB.sub("", f"{text} ").split()).strip(" ,")
    return NormalizedClause(text, positive, change, clause)


def _subject(elliptic: re.Match[str]) -> str:
    if elliptic["my"]:
        return "my"
    return "I am" if elliptic["be"] or elliptic["also"] else "I"


def to_sentence(clause: str) -> str:
    """A clause as a memory holds it: the speaker's words, as a sentence of their own."""
    said = _SPACES.sub(" ", _FILLERS.sub("", clause.strip())).rstrip(" .,;:!")
    said = _LAST.sub("", said)
    return f"{said[:1].upper()}{said[1:]}." if said else ""


def _without_fillers(text: str) -> str:
    text = text.strip()
    while (found := _FILLER.match(text)) or (found := _DATE_FIRST.match(text)):
        text = text[found.end() :]
    return text
