"""Rules about events and decisions with a date."""

from __future__ import annotations

import re

from sennit.memory.extraction.clauses import NormalizedClause
from sennit.memory.extraction.dates import without_dates
from sennit.memory.extraction.facts import BE, HAVE, Fact, Rules, content
from sennit.memory.extraction.rules.entities import PERSON
from sennit.memory.extraction.rules.lexicon import DEEDS, MILESTONES, OCCASIONS, TROUBLE
from sennit.memory.extraction.values import Category

event_rules = Rules()


def _event(clause: NormalizedClause) -> Fact:
    label = re.sub(rf"^I (?:{BE} |{HAVE})?", "", without_dates(clause.text), flags=re.IGNORECASE)
    return Fact(Category.EVENTS, "event", content(clause.text), label=label)


@event_rules.add(
    rf"I {HAVE}(?:decided?|chose|chosen|agreed|resolved|settled on|am going with|are going with|"
    r"will go with)\b",
    rf"I {HAVE}(?:{MILESTONES})\b",
)
def _decided(_: re.Match[str], clause: NormalizedClause) -> Fact | None:
    return _event(clause) if clause.dated or len(clause.text.split()) > 2 else None


@event_rules.add(
    rf"(?:I|my (?:{PERSON})) {HAVE}(?:{DEEDS})\b",
    r"I (?:starts?|begins?|leaves?|moves?|fl(?:y|ies)|travels?) \w+",
    r"I (?:am|are|is|will be|will|was|were) \w+",
    r"I (?:have|has|had) (?:an?|my|the|two|three|another)\b",
    rf"(?:my|the) (?:[\w-]+ ){{0,2}}?(?:{OCCASIONS})\b",
)
def _dated(_: re.Match[str], clause: NormalizedClause) -> Fact | None:
    return _event(clause) if clause.dated and not TROUBLE.search(clause.text) else None
