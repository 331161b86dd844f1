"""What tests of memory say, and the files they are judged by."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from sennit import AssistantResponseContent, InstructionContent, Message
from sennit.ids import new_id
from sennit.memory.extraction.english.dates import period
from sennit.memory.extraction.extract import extract_by_rules
from sennit.memory.extraction.utterances import read
from sennit.memory.extraction.values import Candidate, Category, KnownMemory, QuotedEvidence

DATA = Path(__file__).parent / "data"
AT = datetime(2026, 11, 16, 12, tzinfo=UTC)
"""When everything in these tests is said: a Monday."""


def user(text: str) -> Message:
    return Message(InstructionContent(instruction=text), created_at=AT)


def assistant(text: str) -> Message:
    return Message(AssistantResponseContent(text), created_at=AT)


def found(*messages: Message) -> list[Candidate]:
    """What rules find in messages."""
    return list(extract_by_rules(read(messages)).candidates)


def texts(*messages: Message) -> list[str]:
    return [candidate.text for candidate in found(*messages)]


def candidate(category: str, text: str, *, message: UUID | None = None) -> Candidate:
    return Candidate(
        category=Category(category),
        text=text,
        slug="test",
        evidence=(QuotedEvidence(message or new_id(), text),),
        said_at=AT,
        valid_from=period(text, AT).start,
    )


def known(category: str, text: str, id: str = "viking://known") -> KnownMemory:
    start = period(text, AT).start
    return KnownMemory(id=id, category=Category(category), text=text, valid_from=start)


@dataclass(frozen=True)
class Pair:
    category: str
    kind: str
    expected: tuple[str, ...]
    known: str
    new: str


def pairs(name: str) -> list[Pair]:
    """The pairs in a file: category, kind, decisions that are right, known and new text."""
    split = [line.split(" | ") for line in _lines(name)]
    return [
        Pair(category, kind, tuple(right.split("/")), old, new)
        for category, kind, right, old, new in split
    ]


def statements(name: str) -> list[tuple[list[str], str]]:
    """The statements in a file, with the categories that should be found in them."""
    split = [line.split(" | ", 1) for line in _lines(name)]
    return [([] if wanted == "-" else wanted.split(" + "), said) for wanted, said in split]


def _lines(name: str) -> list[str]:
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]
