"""Sentences that say more than what is known: no word of them is lost, whoever decides."""

from __future__ import annotations

import json
from itertools import chain, repeat
from pathlib import Path

import pytest

import sennit
from sennit.memory.extraction.terms import terms
from sennit.testing import ScriptedModel

_DATA = Path(__file__).parent / "data"


def _pairs(name: str) -> list[tuple[str, ...]]:
    return [
        tuple(part.strip() for part in line.split("|"))
        for line in (_DATA / name).read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    ]


PAIRS = _pairs("more.psv")
APART = _pairs("apart.psv")


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


@pytest.mark.parametrize(("known", "new"), APART)
def test_a_small_word_a_sign_or_the_order_can_make_all_the_difference(known: str, new: str) -> None:
    remembered = kept(known, new)
    assert known in remembered
    assert new in remembered


@pytest.mark.parametrize("action", ["SKIP", "MERGE", "UPDATE"])
@pytest.mark.parametrize(("known", "new"), APART)
def test_a_model_that_keeps_the_known_text_loses_nothing_new(
    known: str, new: str, action: str
) -> None:
    claim = {"category": "preferences", "content": new, "evidence": [1]}
    decision = {"candidate": 1, "action": action, "known": "A", "text": known}
    answers = (json.dumps({"memories": [claim]}), json.dumps({"decisions": [decision]}))
    assert new in kept(known, new, ScriptedModel(chain(answers, repeat("No.", 4))))


@pytest.mark.parametrize(
    "again", ["I like C++!", "i like c++", "I really like C++ now.", "The user likes C++."]
)
def test_what_says_nothing_new_is_a_repeat(again: str) -> None:
    assert kept("I like C++.", again).count("C++") == 1
