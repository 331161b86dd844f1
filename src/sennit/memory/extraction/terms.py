"""Content words of a text, normalised for comparison.

Small on purpose: it tells "likes" from "liked" no better than it must, knows a handful of words
that mean the same, and leaves languages it does not know as they are. The same text gives the same
terms for ever, because file names come from here too.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from hashlib import sha256
from itertools import pairwise

from sennit.stores.search.tokenizer import STOP_WORDS

_WORD = re.compile(r"\w+(?:[.@+-]\w+)*", re.UNICODE)
_COUNTED = "zero one two three four five six seven eight nine ten eleven twelve"
NUMBERS = {word: str(number) for number, word in enumerate(_COUNTED.split())}
_ORDERED = "third fourth fifth sixth seventh eighth ninth tenth"  # "first" and "second" mean more
_ORDINALS = {word: str(number) for number, word in enumerate(_ORDERED.split(), 3)}
_SAME = {
    "kid": "child", "children": "child", "mom": "mother", "mum": "mother",
    "dad": "father", "went": "go", "gone": "go", "bought": "buy", "sold": "sell", "ran": "run",
    "met": "meet", "won": "win", "flew": "fly", "lives": "live", "colour": "color",
    "favourite": "favorit", "favorite": "favorit", "neighbour": "neighbor", "lost": "lose",
    "ate": "eat", "eaten": "eat", "drank": "drink", "chose": "choose", "chosen": "choose",
    "wrote": "write", "written": "write", "began": "begin", "got": "get", "made": "make",
    "uses": "use", "used": "use", "using": "use", "movies": "film", "movie": "film",
    "news": "news",
}  # fmt: skip
_SMALL = """
    am being s t m re ve ll d here very really quite also only still already please because
    since while during each every over under after before again all more most other such own same
    now these days nowadays currently
"""
_LITTLE = STOP_WORDS | set(_SMALL.split())
_NOTHING_MORE = """
    a an the i me my mine am is are be been being have has do does what that which please just also
    still already really very quite now currently nowadays
"""
_EMPTY = frozenset(_NOTHING_MORE.split())
"""Words that add nothing to a sentence that says the rest."""
_PLACED = {"to": "in", "into": "in", "at": "in"}
_TOKEN = re.compile(r"(?:(?<!\w)-(?=\d))?\w+(?:[.@'-]\w+)*[+#%]*|[^\w\s]", re.UNICODE)
_SIGNS = frozenset("#%&@")
NEGATIONS = frozenset({"not", "no", "never", "nor", "without", "none", "cannot"})
NARROWING = frozenset({"only", "except", "unless", "less", "but", "if", "when", "rarely"})
"""Words after which a sentence says less than it would without them."""
_LONGEST_SLUG = 60
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)")
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u3040-\u30ff\u3400-\u9fff]")
_VOWEL = re.compile(r"[aeiouy]")


def fold(text: str) -> str:
    """Lower case, without accents and typographic apostrophes."""
    text = text.replace("’", "'").lower()
    if text.isascii():
        return text
    parts = unicodedata.normalize("NFKD", text)
    return "".join(part for part in parts if not unicodedata.combining(part))


def words(text: str) -> list[str]:
    """All words of a text, folded."""
    return _WORD.findall(fold(text))


def tokens(text: str) -> list[str]:
    """Give all words and signs of a text in order, as they are but for case and punctuation.

    "C", "C++" and "C#" are different texts here, as are "5" and "-5", and two emojis.
    """
    return [one for one in _TOKEN.findall(text.replace("’", "'").casefold()) if _is_said(one)]


def _is_said(token: str) -> bool:
    if len(token) > 1 or token.isalnum() or token in _SIGNS:
        return True
    return token != "`" and unicodedata.category(token).startswith("S")


def content_tokens(text: str) -> list[str]:
    """Give the tokens of a text that tell something; unlike terms these keep "before" and "all"."""
    return [_as_told(one) for one in tokens(text) if one not in _EMPTY]


def _as_told(token: str) -> str:
    known = NUMBERS.get(token) or _SAME.get(token) or _PLACED.get(token)
    return known or (token.removesuffix("s") if is_frame(token) else token)


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """A folded word without its ending, about."""
    if word in NUMBERS or word in _ORDINALS:
        return NUMBERS.get(word) or _ORDINALS[word]
    if word in _SAME:
        return _SAME[word]
    if len(word) < 4 or not word.isalpha() or not word.isascii():
        return word
    return _SAME.get(bare := _without_plural(word), _without_ending(bare))


def _without_plural(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "ches", "shes", "xes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _without_ending(word: str) -> str:
    for ending in ("ing", "ed", "ly"):
        root = word.removesuffix(ending)
        if root != word and len(root) > 2 and _VOWEL.search(root):
            word = root[:-1] if root[-1] == root[-2] and root[-1] not in "lsz" else root
            break
    return word[:-1] if word.endswith("e") and len(word) > 2 else word


def terms(text: str) -> list[str]:
    """The stems of a text's content words, in order; those that say "not" are left out."""
    found = [stem(w) for w in words(text) if w not in _LITTLE and w not in NEGATIONS]
    return found if text.isascii() else [piece for term in found for piece in _pieces(term)]


def _pieces(term: str) -> list[str]:
    """A term; of a script that puts no spaces between words, each two signs side by side."""
    if len(term) < 3 or not _UNSPACED.search(term):
        return [term]
    return [one + two for one, two in pairwise(term)]


def is_number(term: str) -> bool:
    """Return whether a term counts or dates something."""
    return term[:1].isdigit()


def slug(*pieces: str) -> str:
    """Return a file name: a-z, 0-9 and single hyphens, never empty."""
    text = " ".join(pieces)
    plain = re.sub(r"[^a-z0-9]+", "-", fold(text)).strip("-")
    short = plain[:_LONGEST_SLUG].rsplit("-", 1)[0] if len(plain) > _LONGEST_SLUG else plain
    short = short.strip("-")[:_LONGEST_SLUG]
    lost = sum(sign.isalnum() for sign in fold(text)) > 2 * len(plain)
    if short and not lost and not _RESERVED.fullmatch(short):
        return short
    mark = sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{short}-{mark}" if short else f"m-{mark}"


_FRAME_WORDS = """
    user person likes dislikes loves enjoys hates prefers wants name named called lives works uses
    has is said mentioned stated asked decided problem solution issue fix fixed solved based located
    tool always first
"""
FRAME = frozenset(map(stem, _FRAME_WORDS.split()))
"""Words in which facts are put; they say nothing that would have to be proved."""


def is_frame(word: str) -> bool:
    """Return whether facts are put in this word, so that it tells none from another."""
    return stem(word) in FRAME
