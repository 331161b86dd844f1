"""The public members of the classes that users hold: a new one is a decision, written down here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sennit import (
    Branch,
    Client,
    ConversationSession,
    Operation,
    Return,
    ServiceRegistry,
    Session,
    iModel,
)
from sennit.memory.memory import Memory
from sennit.turns.stream import RunStream

HERE = Path(__file__).parent
REFERENCE = HERE.parent / "docs" / "reference"
CLASSES: tuple[type, ...] = (
    *(Branch, Client, ConversationSession, Memory, Operation, Return, RunStream),
    *(ServiceRegistry, Session, iModel),
)


def promised() -> dict[str, set[str]]:
    """The names in public_members.txt, by class."""
    text = (HERE / "public_members.txt").read_text(encoding="utf-8")
    sections = (section.split() for section in text.split("\n\n"))
    return {name.removesuffix(":"): set(members) for name, *members in sections}


def members(kind: type) -> set[str]:
    """The public members of a class; those of attributes set in `__init__` are private."""
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_class_has_the_promised_members_and_no_more(kind: type) -> None:
    assert sorted(members(kind)) == sorted(promised()[kind.__name__])


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_each_member_of_a_class_is_in_the_reference_or_the_async_twin_of_one(kind: type) -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in REFERENCE.glob("*.md"))
    named = set(re.findall(r"\w+", text))
    assert {name for name in members(kind) if not {name, name.removeprefix("a")} & named} == set()
