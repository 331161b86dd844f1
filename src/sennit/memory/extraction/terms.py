"""Content words of a text, normalised for comparison.

Small on purpose: stemming is as coarse as it may be, only a handful of synonyms are known, and
languages other than English are left as they are. The same text gives the same terms forever,
because file names are made of them too.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from hashlib import sha256
from itertools import pairwise

from sennit.stores.search.tokenizer import STOP_WORDS

_WORD = re.compile(r"\w+(?:[.@+-]\w+)*", re.UNICODE)
_NUMBER_NAMES = "zero one two three four five six seven eight nine ten eleven twelve"
NUMBERS = {word: str(number) for number, word in enumerate(_NUMBER_NAMES.split())}
_ORDINAL_NAMES = (
    "third fourth fifth sixth seventh eighth ninth tenth"  # "first" and "second" mean more
)
_ORDINALS = {word: str(number) for number, word in enumerate(_ORDINAL_NAMES.split(), 3)}
_SYNONYMS = {
    "kid": "child", "children": "child", "mom": "mother", "mum": "mother",
    "dad": "father", "went": "go", "gone": "go", "bought": "buy", "sold": "sell", "ran": "run",
    "met": "meet", "won": "win", "flew": "fly", "lives": "live", "colour": "color",
    "favourite": "favorit", "favorite": "favorit", "neighbour": "neighbor", "lost": "lose",
    "ate": "eat", "eaten": "eat", "drank": "drink", "chose": "choose", "chosen": "choose",
    "wrote": "write", "written": "write", "began": "begin", "got": "get", "made": "make",
    "uses": "use", "used": "use", "using": "use", "movies": "film", "movie": "film",
    "news": "news",
}  # fmt: skip
_MINOR_WORDS = """
    am being s t m re ve ll d here very really quite also only still already please because
    since while during each every over under after before again all more most other such own same
    now these days nowadays currently
"""
_STOP_TERMS = STOP_WORDS | set(_MINOR_WORDS.split())
_EMPTY_WORDS = """
    a an the i me my mine am is are be been being have has do does what that which please just also
    still already really very quite now currently nowadays
"""
_EMPTY_TOKENS = frozenset(_EMPTY_WORDS.split())
"""Words that add nothing to a sentence."""
_PREPOSITIONS = {"to": "in", "into": "in", "at": "in"}
_TOKEN = re.compile(r"(?:(?<!\w)-(?=\d))?\w+(?:[.@'-]\w+)*[+#%]*|[^\w\s]", re.UNICODE)
_KEPT_SYMBOLS = frozenset("#%&@")
NEGATIONS = frozenset({"not", "no", "never", "nor", "without", "none", "cannot"})
NARROWING = frozenset({"only", "except", "unless", "less", "but", "if", "when", "rarely"})
"""Words after which a sentence says less than it would without them."""
_MAX_SLUG_CHARS = 60
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)")
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u3040-\u30ff\u3400-\u9fff]")
_VOWEL = re.compile(r"[aeiouy]")


def fold(text: str) -> str:
    """Return a text in lower case, without accents and typographic apostrophes."""
    text = text.replace("’", "'").lower()
    if text.isascii():
        return text
    parts = unicodedata.normalize("NFKD", text)
    return "".join(part for part in parts if not unicodedata.combining(part))


def words(text: str) -> list[str]:
    """Return all words of a text, folded."""
    return _WORD.findall(fold(text))


def tokens(text: str) -> list[str]:
    """Return all words and symbols of a text in order, without case and punctuation.

    "C", "C++" and "C#" are different texts here, as are "5" and "-5", and two emojis.
    """
    return [token for token in _TOKEN.findall(text.replace("’", "'").casefold()) if _is_kept(token)]


def _is_kept(token: str) -> bool:
    if len(token) > 1 or token.isalnum() or token in _KEPT_SYMBOLS:
        return True
    return token != "`" and unicodedata.category(token).startswith("S")


def content_tokens(text: str) -> list[str]:
    """Return the tokens of a text with content; unlike terms these include "before" and "all"."""
    return [_normalize(token) for token in tokens(text) if token not in _EMPTY_TOKENS]


def _normalize(token: str) -> str:
    normalized = NUMBERS.get(token) or _SYNONYMS.get(token) or _PREPOSITIONS.get(token)
    return normalized or (token.removesuffix("s") if is_frame(token) else token)


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """Return an approximate stem of a folded word."""
    if word in NUMBERS or word in _ORDINALS:
        return NUMBERS.get(word) or _ORDINALS[word]
    if word in _SYNONYMS:
        return _SYNONYMS[word]
    if len(word) < 4 or not word.isalpha() or not word.isascii():
        return word
    return _SYNONYMS.get(bare := _without_plural(word), _without_ending(bare))


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
    """Return the stems of a text's content words, in order and without negations."""
    stems = [
        stem(word) for word in words(text) if word not in _STOP_TERMS and word not in NEGATIONS
    ]
    return stems if text.isascii() else [piece for term in stems for piece in _pieces(term)]


def _pieces(term: str) -> list[str]:
    """Return a term, or its bigrams in a script without spaces between words."""
    if len(term) < 3 or not _UNSPACED.search(term):
        return [term]
    return [first + second for first, second in pairwise(term)]


def is_number(term: str) -> bool:
    """Return whether a term is a number or a date."""
    return term[:1].isdigit()


def slug(*pieces: str) -> str:
    """Return a file name: a-z, 0-9 and single hyphens, never empty."""
    text = " ".join(pieces)
    normalized = re.sub(r"[^a-z0-9]+", "-", fold(text)).strip("-")
    short = (
        normalized[:_MAX_SLUG_CHARS].rsplit("-", 1)[0]
        if len(normalized) > _MAX_SLUG_CHARS
        else normalized
    )
    short = short.strip("-")[:_MAX_SLUG_CHARS]
    is_lossy = sum(char.isalnum() for char in fold(text)) > 2 * len(normalized)
    if short and not is_lossy and not _RESERVED.fullmatch(short):
        return short
    digest = sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{short}-{digest}" if short else f"m-{digest}"


_FRAME_WORDS = """
    user person likes dislikes loves enjoys hates prefers wants name named called lives works uses
    has is said mentioned stated asked decided problem solution issue fix fixed solved based located
    tool always first
"""
FRAME = frozenset(map(stem, _FRAME_WORDS.split()))
"""The words facts are put in; they state nothing that would need evidence."""


def is_frame(word: str) -> bool:
    """Return whether a word is one that facts are put in, so that it distinguishes none."""
    return stem(word) in FRAME
