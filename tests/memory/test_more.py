"""Sentences that say more than what is known: no word of them is lost, whoever decides."""

from __future__ import annotations

import json
from itertools import chain, repeat
from pathlib import Path

import pytest

import sennit
from sennit.memory.terms import terms
from sennit.testing import ScriptedModel

_FILE = Path(__file__).parent / "data" / "more.psv"
PAIRS = [
    tuple(part.strip() for part in line.split("|"))
    for line in _FILE.read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


def kept(known: str, new: str, model: ScriptedModel | None = None) -> str:
    """All that is remembered after both were said, each in a commit of its own."""
    with sennit.open(":memory:") as client:
        session = client.session("chat")
        session.add_message("user", known)
        assert sum(session.commit()["counts"].values()) > 0
        if model is not None:
            client.memory.use(model=model)
        session.add_message("user", new)
        session.commit()
        return "\n".join(str(memory) for memory in client.memory.all())


def test_there_are_enough_pairs() -> None:
    assert len(PAIRS) >= 40


@pytest.mark.parametrize(("known", "new"), PAIRS)
def test_rules_lose_no_word(known: str, new: str) -> None:
    assert frozenset(terms(new)) <= frozenset(terms(kept(known, new)))


@pytest.mark.parametrize(("known", "new"), PAIRS)
@pytest.mark.parametrize("category", ["profile", "preferences", "entities"])
def test_a_model_that_wants_it_skipped_loses_no_word(known: str, new: str, category: str) -> None:
    claim = {"category": category, "content": new, "evidence": [1]}
    decision = {"candidate": 1, "action": "SKIP", "known": "A", "text": ""}
    answers = (json.dumps({"memories": [claim]}), json.dumps({"decisions": [decision]}))
    model = ScriptedModel(chain(answers, repeat("No.", 4)))
    assert frozenset(terms(new)) <= frozenset(terms(kept(known, new, model)))
