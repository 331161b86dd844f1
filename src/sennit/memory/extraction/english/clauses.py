"""Clauses that rules can read: statements only, in a normal form.

`stated_sentences` yields the sentences of a text in which a person states something, and `clauses`
splits them. Questions, tasks,
suppositions, reported speech, secrets and injected instructions to the memory are left out. A
`NormalizedClause` has no contractions, fillers or negation, so that one rule matches many wordings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from sennit.memory.extraction.english.dates import is_dated
from sennit.memory.extraction.english.lexicon import PEOPLE
from sennit.memory.extraction.terms import FRAME, terms
from sennit.memory.extraction.utterances import Utterance

_I = re.IGNORECASE
ANSWER = r"(?:answers?|repl(?:y|ies)|respon(?:d|ses?)|speak|talk|messages?|explanations?)"
"""The words for what the assistant says."""
_EXPANSIONS = {
    "can't": "can not", "cannot": "can not", "won't": "will not", "let's": "let us",
    "i'm": "I am", "im": "I am", "n't": " not", "'re": " are", "'ve": " have", "'ll": " will",
    "'d": " would",
}  # fmt: skip
_CONTRACTION = re.compile(
    r"\b(?:can't|cannot\b|won't|let's\b|I'm\b|Im\b)|n't\b|'(?:re|ve|ll|d)\b|"
    r"\b(?P<who>it|he|she|that|there|what|who|here|name)'s\b|'s(?P<how> (?:called|named))\b",
    _I,
)
_NO_APOSTROPHE = re.compile(
    r"\b(do|does|did|is|are|was|were|have|has|had|could|should|would|ca|wo)nt\b", _I
)
_GOT = re.compile(r"\b(have|has) got\b", _I)
_USER_PHRASES = [
    (re.compile(r"\b(?:the )?user's\b", _I), "my"),
    (re.compile(r"^(?:the )?user(?= (?:[a-z]*s|no|not|do|did|can|will)\b)", _I), "I"),
]
_FILLER = re.compile(
    r"(?:(?:by the way|btw|also|oh|ah|hi|hello|hey|well|so|actually|in fact|fyi|and|but|now|please|"
    r"just so you know|these days|nowadays|currently|recently|lately|honestly|to be honest|"
    r"unfortunately|luckily|sadly|anyway|from now on|in (?:the )?future|for (?:context|the record|"
    r"your information|reference)|(?:please |do )?(?:note|remember|keep in mind)(?: that)?|"
    r"(?:please )?(?:store|save|record|put) (?:it )?(?:in|to|into) (?:your |the )?memory(?: that)?|"
    r"as (?:you know|I said|mentioned)|(?:because|since|as|given that|considering(?: that)?)(?= "
    r"(?:I|we|my|our)\b)|"
    r"I should (?:probably )?(?:mention|add|say|note|point out)(?: that)?|one more thing|"
    r"(?:just |as )?(?:a )?(?:quick |some |little )?(?:bit of )?(?:context|background|intro|info|"
    r"update)|(?:it )?turns out(?: that)?|you should know(?: that)?)"
    r"(?:\s*[,:.!–—-]+\s*|\s+)"
    r"|(?:hi|hello|hey|thanks|thank you|yes|yeah|no|nope|ok|okay|great|sure|sorry|correction|"
    r"good \w+)[\w ]{0,12}[,:.!–—-]+\s*)",
    _I,
)
_FILLERS = re.compile(rf"^(?:{_FILLER.pattern})+", _I)
_LAST_FILLER = re.compile(
    r",? (?:by the way|btw|though|thanks|thank you|if that helps|you know)$", _I
)
_LEADING_DATE = re.compile(
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
_NEGATION_RULES = [
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
    r"I suppose|I would (?!rather|prefer|(?:like|love|want) "
    rf"(?:you to {ANSWER}|(?:all )?(?:of )?(?:your )?{ANSWER})\b)|would be|"
    r"could be|I could|hypothetical\w*|as if|unless|"
    r"in (?:my|the|a) (?:story|novel|dream|game|book)|my character|lol|haha\w*|lmao|just kidding|"
    r"jk|"
    r"I wonder|for example|for instance|the form (?:asks|says))\b|^(?:e\.g\.|example\b)|"
    r"\N{FACE WITH TEARS OF JOY}",
    _I,
)
_REPORTED = re.compile(
    r"\b(?!I\b|we\b)[\w']+ (?:said|says|say|told (?:me|us)|tells|thinks?|claims?|claimed|wrote|"
    r"writes|asked|believes?|joked)\b(?! hi)",
    _I,
)
_REPORTED_HINTS = (
    "sa",
    "told",
    "tell",
    "think",
    "claim",
    "wrote",
    "writes",
    "ask",
    "believe",
    "joke",
)
_TASK = re.compile(
    r"(?:please )?(?:translate|write|rewrite|summari[sz]e|proofread|correct|generate|create|draft|"
    r"compose|fix|explain|give|tell|act|show|make|help|find|list|describe|convert|analy[sz]e|check|"
    r"review|improve|paraphrase|edit|continue|complete|classify|extract|compare|calculate|look|"
    r"read|tell|let|go|run|open|search|implement|add|remove|delete|update|refactor)\b",
    _I,
)
_UNSAFE = re.compile(
    r"\b(?:pass(?:word|phrase|code)|(?:api|access|private|secret)[ _-]?key|(?:\w+ )?token|secret|"
    r"pin(?: code| number)?|cvv|ssn|social security number|(?:credit )?card(?: number)?)s?\s*"
    r"(?:(?:for|of) [\w ]{1,30}? )?(?:is|are|was|to|=|:)\s*\S"
    r"|\.\.[/\\]|%2e%2e|\bsk-\w|\bghp_\w|\bAKIA\w|\bxox[abp]-|\beyJ\w+\.|"
    r"-----BEGIN",
    _I,
)
_CARD_NUMBER = re.compile(r"\d(?:[ -]?\d){12,15}(?!\d)")
_UNSAFE_HINTS = (
    "pass", "key", "token", "secret", "pin", "cvv", "ssn", "social", "card", "sk-", "ghp_", "akia",
    "xox", "eyj", "-----", "..", "%2e",
)  # fmt: skip
_LEAD = r"(?:^|[.!?:,\n]\s{0,4}|\b(?:please|now|then|and|must|should|to|you)\s{1,4})"
_INJECTION = re.compile(
    rf"{_LEAD}(?:ignore|disregard|forget|override)\b[^.]{{0,40}}\b(?:above|previous|prior|earlier|"
    rf"instructions?|rules|system prompt|everything before)\b"
    rf"|{_LEAD}(?:store|save|write|insert|add|record|remember)\b[^.]{{0,40}}\bthe user "
    r"(?:is|has|wants|likes|must)\b|\b(?:reveal|print|repeat)\b[^.]{0,20}\bsystem prompt\b|"
    r"\bdeveloper mode\b|<\|",
    _I,
)
_INJECTION_HINTS = (
    "ignore", "disregard", "forget", "override", "the user ", "system prompt", "developer mode",
    "<|",
)  # fmt: skip
"""One of these is in every injection; searching for them first saves most of the time."""
_ASKED_ANSWER = (
    r"(?:please )?(?:(?:always|only) )?(?:(?:answer|reply|respond|speak|talk)(?: to me)? "
    r"(?:in|with|briefly|concisely)|call me|address me)\b"
)
_CLAUSE_BREAK = re.compile(
    r"(?:,(?:\s*+(?:and|but|so|while|because|since|as|given that))?|(?<!\s)\s++(?:and|but|so|while|"
    r"though|although|because|since|as|given that))\s++"
    r"(?=(?:I|my|we|our|I'm|im)\b)(?!(?:my|our) (?![\w-]+(?: [\w-]+)? (?:is|are|was|were)\b)"
    r"[\w -]{2,25},)|"
    rf"(?P<asked>,(?:\s*+(?:and|so|but))?|(?<!\s)\s++(?:and|so|but)(?=\s++please\b))\s++"
    rf"(?={_ASKED_ANSWER})|(?<!\s)\s++(?=I(?:'d| would) "
    r"(?:need|want)\b)",
    _I,
)
_SOMEBODY = (
    rf"(?:(?:[Mm]y|[Oo]ur) (?:[\w-]+ )?(?:{'|'.join(sorted(PEOPLE, key=len, reverse=True))}|"
    r"friends|family|kids|parents|team)|(?!I\b|We\b|My\b)[^\W\d_a-z][\w'-]*)"
    r"(?:,? [^\W\d_a-z][\w'-]*)?"
)
_AND_I = re.compile(rf"(?:^|[,.;] |\b(?:and|but|so|then) ){_SOMEBODY}$")
"""A person at the end of a text, who does together with the user what follows after "and I"."""
_TOGETHER = re.compile(rf"{_SOMEBODY} and (?:I|me)\b")
_THEN_ASKED = re.compile(
    r"(?:,|;| -| and| so)\s+(?:so )?(?=(?:what|how|can|could|would|do|does|is|are|which|where|"
    r"any|should|"
    r"will|who|why|got)\b(?:\W+\w+){2})",
    _I,
)
"""The beginning of a question after a statement."""
_DECLARES = re.compile(r"(?:I|I'm|im|I've|we|we're|we've|my|our)\b", _I)
_FULL_STATEMENT = re.compile(rf"{_DECLARES.pattern}|{_ASKED_ANSWER}", _I)
_APPOSITION = re.compile(r"^(\w[\w'.-]*(?: [A-Z][\w'.-]*)?), (my|our) ([\w -]{2,25}?), ")
_ELLIPTIC = re.compile(
    r"(?:just )?(?:turned|had|got|moved|started|bought|finished|love|hate|prefer|been)\b|"
    r"(?P<my>name is\b)|(?P<also>(?:not )?(?:into|fond of|keen on)\b)|"
    r"(?P<meet>meeting (?=(?:(?-i:[A-Z])[\w'-]+|my [a-z]+) (?:on|next|this|tomorrow|today|tonight|"
    r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day)\b))|"
    r"(?P<be>(?:big|huge|not an?|a (?:big|huge)) (?:\w+ )?(?:fan|lover|person)\b)",
    _I,
)
"""The beginning of a clause with an implicit subject."""
_WE = re.compile(r"\b(?:we|our)\b", _I)
_SINGULAR = {"we": "I", "our": "my"}
_CONDITION = re.compile(
    r"(?:if|when|whenever|before|after|every time|each time) [^,]+, (?!I\b)", _I
)
"""The beginning of a rule for working, which is no supposition although it may begin with "if"."""
_MAX_CACHED_CHARS = 1000
"""The length up to which results are cached."""
_SPACES = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class NormalizedClause:
    """A clause in normal form."""

    text: str
    """Without contractions, fillers, adverbs, negation and final punctuation."""
    positive: bool
    """Whether it affirms rather than denies something."""
    change: bool
    """Whether it says that something has changed."""
    clause: str
    """The original clause."""

    @property
    def habit(self) -> bool:
        """True if it says how often."""
        return _HABIT.search(self.clause) is not None

    @property
    def dated(self) -> bool:
        """True if it says when."""
        return is_dated(self.clause)


def is_injection(text: str) -> bool:
    """Return whether a text is an instruction to the memory rather than to the assistant."""
    return (
        _is_injection(text) if len(text) <= _MAX_CACHED_CHARS else _is_injection.__wrapped__(text)
    )


@lru_cache(maxsize=1024)
def _is_injection(text: str) -> bool:
    return _contains_any(text.lower(), _INJECTION_HINTS) and _INJECTION.search(text) is not None


@lru_cache(maxsize=4096)
def is_unsafe(text: str) -> bool:
    """Return whether a text must never be stored: a password, a key or a `..` path."""
    has_hint = _contains_any(text.lower(), _UNSAFE_HINTS)
    return (has_hint and _UNSAFE.search(text) is not None) or _CARD_NUMBER.search(text) is not None


def _contains_any(text: str, hints: tuple[str, ...]) -> bool:
    """Return whether a text contains any hint; a plain loop, because every sentence is checked."""
    for hint in hints:  # noqa: SIM110
        if hint in text:
            return True
    return False


def is_request(sentence: str) -> bool:
    """Return whether a sentence is a question or a task."""
    plain = _without_fillers(expand(sentence))
    return sentence.endswith("?") or bool(_QUESTION.match(plain) or _TASK.match(plain))


def expand(text: str) -> str:
    """Return a text without contractions and with the user in the first person."""
    return _expand(text) if len(text) <= _MAX_CACHED_CHARS else _expand.__wrapped__(text)


@lru_cache(maxsize=4096)
def _expand(text: str) -> str:
    text = text.replace("’", "'")
    if "nt" in text:
        text = _NO_APOSTROPHE.sub(r"\1n't", text)
    if "'" in text or "cannot" in text or "got" in text or text[:3] in ("im ", "Im "):
        text = _GOT.sub(r"\1", _CONTRACTION.sub(_expand_match, text))
    if "ser" in text:
        for pattern, plain in _USER_PHRASES:
            text = pattern.sub(plain, text)
    return text


def content_terms(text: str) -> frozenset[str]:
    """Return the content terms of a text without the words that facts are put in."""
    return frozenset(terms(expand(text))) - FRAME


def _expand_match(match: re.Match[str]) -> str:
    """Return the expansion of a contraction."""
    expansion = _EXPANSIONS.get(match[0].lower())
    return expansion or (f"{match['who']} is" if match["who"] else f" is{match['how']}")


def stated_sentences(utterance: Utterance) -> Iterator[str]:
    """Yield the sentences of an utterance that state something.

    An utterance with an injection has none.
    """
    if is_injection(utterance.text):
        return
    for sentence in map(_before_question, utterance.sentences):
        plain = _without_fillers(expand(sentence))
        if _TASK.match(plain):
            if plain.endswith(":"):
                return  # what follows is material, not a statement
        elif _is_statement(sentence, plain):
            yield sentence


def _before_question(sentence: str) -> str:
    """Return what a sentence states before it asks: "I'm vegan, what can I eat?"."""
    if not sentence.endswith("?") or not _DECLARES.match(_without_fillers(sentence)):
        return sentence
    asked = _THEN_ASKED.search(sentence)
    return sentence[: asked.start()] if asked else sentence


def clauses(sentence: str) -> list[str]:
    """Return the parts of a sentence that may each state something."""
    parts: list[str] = []
    start = 0
    for match in _CLAUSE_BREAK.finditer(sentence):
        part = sentence[start : match.start()]
        if sentence[match.start() :].lstrip(", ").startswith("and I") and _AND_I.search(part[-80:]):
            continue  # "Rosa and I have decided"
        if match["asked"] and not _FULL_STATEMENT.match(_without_fillers(sentence)):
            continue  # "When I ask in German, answer in German"
        parts.append(part)
        start = match.end()
    return [part for part in (*parts, sentence[start:]) if part.strip()]


def _is_statement(sentence: str, plain: str) -> bool:
    """Return whether a sentence is a statement: no question, supposition, report or secret."""
    if sentence.rstrip("\"') ").endswith(("?", "？")) or _QUESTION.match(plain):
        return False
    return not (
        (_SUPPOSED.search(plain) and not _CONDITION.match(plain))
        or _is_reported(plain)
        or is_unsafe(plain)
    )


def _is_reported(plain: str) -> bool:
    return _contains_any(plain, _REPORTED_HINTS) and _REPORTED.search(plain) is not None


def normalize(clause: str) -> NormalizedClause:
    """Return a clause in normal form."""
    text = _LAST_FILLER.sub("", _without_fillers(expand(clause)).rstrip(" .!?,;:…"))
    text = _APPOSITION.sub(r"\2 \3 \1 ", text)
    if elliptic := _ELLIPTIC.match(text):
        text = f"{_subject(elliptic)} {text[0].lower()}{text[1:]}"
    change = _CHANGE.search(clause) is not None
    positive = True
    if "not" in text or "no longer" in text or "never" in text.lower() or change:
        for pattern, replacement in _NEGATION_RULES:
            text, count = pattern.subn(replacement, text)
            positive = positive != bool(count % 2 and replacement != "hate")
    text = _TOGETHER.sub("I", text, count=1) if " and " in text[:80] else text
    text = _WE.sub(lambda match: _SINGULAR[match[0].lower()], text)
    text = " ".join(_ADVERB.sub("", f"{text} ").split()).strip(" ,")
    return NormalizedClause(text, positive, change, clause)


def _subject(elliptic: re.Match[str]) -> str:
    if elliptic["my"]:
        return "my"
    return "I am" if elliptic["be"] or elliptic["also"] or elliptic["meet"] else "I"


def to_sentence(clause: str) -> str:
    """Return a clause as a memory stores it: the speaker's words, as a sentence."""
    sentence = _SPACES.sub(" ", _FILLERS.sub("", clause.strip())).rstrip(" .,;:!")
    sentence = _LAST_FILLER.sub("", sentence)
    return f"{sentence[:1].upper()}{sentence[1:]}." if sentence else ""


def _without_fillers(text: str) -> str:
    text = text.strip()
    while (match := _FILLER.match(text)) or (match := _LEADING_DATE.match(text)):
        text = text[match.end() :]
    return text
