"""References to something said before: resolved from the sentence before, or a reason to refuse.

A memory is read alone, months later. "She lives in Rome." says nothing then, so a person who was
named just before takes the place of "she"; a statement about "it" or "that" whose referent is in
another sentence is not remembered at all.
"""

from __future__ import annotations

import re

from sennit.memory.extraction.english.lexicon import PEOPLE

_PERSON = re.compile(
    rf"\b[Mm]y (?:[\w-]+ ){{0,2}}?(?:{'|'.join(sorted(PEOPLE, key=len, reverse=True))})\b"
    r"(?:,? (?-i:[A-Z])[\w'-]*)?"
)
_CALLED = re.compile(r"^(?:'s name)? (?:is|was) (?:called|named) ((?-i:[A-Z])[\w'-]*)")
_SUBJECT = re.compile(r"^(?:(?:and|but|so|also),? )?(?:he|she)(?=\b)(?!'d\b)", re.IGNORECASE)
_PRONOUN = re.compile(
    r"\b(?:it|its|this|these|those|them|they|their|he|she|him|her|his|ones|here|"
    r"(?<!for )one(?=$|[,.;!]| (?:is|was|to|with|in the|from)\b)|"
    r"that(?=$|[,.;!]| (?:one|way|time|with|too|again|was|is)\b)|"
    r"there(?! (?:is|are|was|were)\b)|such|you|your|yours)\b(?! (?:morning|afternoon|evening|week|"
    r"weekend|month|year|spring|summer|autumn|fall|winter|monday|tuesday|wednesday|thursday|friday|"
    r"saturday|sunday|time of)\b)",
    re.IGNORECASE,
)
_ANTECEDENT = re.compile(
    r"\b(?:an?|my|our|the|some|two|three) [\w-]+|(?<!^)(?-i:\b[A-Z][a-z]+)|\b\w+s\b", re.IGNORECASE
)
_ADDRESSED = re.compile(r"\byours?\b|\byou\b", re.IGNORECASE)


def person_in(sentence: str) -> str | None:
    """Return the one person of the user's life that a sentence names, with their name if told."""
    matches = list(_PERSON.finditer(sentence))
    if len(matches) != 1:
        return None
    person = matches[0][0].replace(",", "")
    named = _CALLED.match(sentence[matches[0].end() :])
    person = f"{person} {named[1]}" if named else person
    return f"M{person[1:]}"


def with_person(clause: str, person: str) -> str | None:
    """Return a clause that begins with "he" or "she" with the person in their place."""
    return _SUBJECT.sub(person, clause, count=1) if _SUBJECT.match(clause) else None


def is_dangling(clause: str, *, to_assistant: bool = False) -> bool:
    """Return whether a clause refers to something that it does not name.

    With `to_assistant`, as in an instruction, "you" and "your" are clear.
    """
    for match in _PRONOUN.finditer(clause):
        if _ADDRESSED.fullmatch(match[0]):
            if not to_assistant:
                return True
        elif not _ANTECEDENT.search(clause, 0, match.start()):
            return True
    return False
