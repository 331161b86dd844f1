"""Pinned memory: what belongs into every prompt, whatever the question.

Pinned are the files below `viking://user/pinned`, which anyone may write, and the preferences that
say how to answer: language, form of address, format and tone. Of a long profile, the lines that
every answer has to respect come first.
"""

from __future__ import annotations

import re

from sennit import clock
from sennit.memory.extraction.english.rules import fact_of
from sennit.memory.extraction.utterances import sentences
from sennit.memory.extraction.values import Category
from sennit.memory.scope import MemoryScope, folder_of, is_merged
from sennit.stores.records.files import FileRecord

BLOCKS = "pinned/"
"""The user's folder of pinned files."""
_STANDING_SLOTS = frozenset({"answer", "keep", "instruct"})
_ABOUT_ANSWERS = re.compile(
    r"\b(?:answer|reply|replies|respon[ds]|explanation|tone|language|emoji|bullet|unit|concise|brief"
    r"|address|call (?:me|them|him|her)|formal|spelling|format)",
    re.IGNORECASE,
)
_ESSENTIAL = re.compile(
    r"\b(?:allerg|intoleran|vegetarian|vegan|pescatarian|c[o]?eliac|diabet|epilep|asthma|pregnan|"
    r"kosher|halal|gluten|can(?:not|'t) eat|(?:don't|do not|never) eat|call me|name is)",
    re.IGNORECASE,
)


def is_standing(preference: str) -> bool:
    """Return whether a preference says how to answer, and so applies to any answer."""
    if _ABOUT_ANSWERS.search(preference):
        return True
    facts = map(fact_of, sentences(preference))
    return any(fact is not None and fact.slot in _STANDING_SLOTS for fact in facts)


def is_essential(line: str) -> bool:
    """Return whether a line of the profile concerns safety, diet or the form of address."""
    return _ESSENTIAL.search(line) is not None


def pinned_files(scope: MemoryScope) -> list[FileRecord]:
    """Return the pinned files of the user that hold now, blocks first."""
    now = clock.now_us()
    blocks = scope.store.list_files(scope.user, BLOCKS)
    preferences = [
        file
        for file in scope.store.list_files(scope.user, folder_of(Category.PREFERENCES))
        if not is_merged(file) and is_standing(file.latest.body.decode(errors="replace"))
    ]
    return [
        file
        for file in (*blocks, *preferences)
        if not file.path.endswith("/")
        and (file.latest.valid_to is None or file.latest.valid_to > now)
        and file.latest.body.strip()
    ]
