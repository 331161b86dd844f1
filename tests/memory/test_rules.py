"""Facts: many ways of saying a thing, one meaning."""

from __future__ import annotations

import pytest
from hypothesis import given

from sennit.memory.extraction.english.rules import fact_of
from tests import strategies
from tests.memory.saying import texts, user


def meaning(clause: str) -> tuple[object, ...]:
    fact = fact_of(clause)
    assert fact is not None, clause
    return fact.category, fact.slot, fact.value, fact.about, fact.relation, fact.positive


@pytest.mark.parametrize(
    "ways",
    [
        ["I live in Lisbon.", "I'm based in Lisbon", "My home is in Lisbon", "We live in Lisbon",
         "The user lives in Lisbon.", "I've moved to Lisbon", "I am currently living in Lisbon."],
        ["I like tea", "I really love tea!", "I'm a huge fan of tea", "The user likes tea."],
        ["I don't like tea", "I dislike tea", "I can't stand tea", "I’m not a fan of tea"],
        ["My dog is called Rex", "I have a dog named Rex", "My dog's name is Rex"],
        ["My favourite colour is blue", "Blue is my favorite color"],
        ["I prefer tea over coffee", "I prefer tea to coffee", "I'd rather tea than coffee"],
        ["When it fails, read the log", "Whenever it fails, read the log"],
    ],
    ids=lambda ways: ways[0],
)  # fmt: skip
def test_many_ways_of_saying_a_thing_mean_the_same(ways: list[str]) -> None:
    assert len({meaning(way) for way in ways}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I live in Lisbon", "I don't live in Lisbon anymore"),
        ("I live in Lisbon", "I was born in Lisbon"),
        ("I like tea", "I no longer like tea"),
        ("Always use tabs", "Never use tabs"),
        ("Use search before open", "Use open before search"),
        ("I prefer tea over coffee", "I prefer coffee over tea"),
    ],
)
def test_what_means_something_else_is_told_apart(one: str, other: str) -> None:
    assert meaning(one) != meaning(other)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("I'm Ana, I live in Rome, and my dog is called Rex.",
         ["I'm Ana.", "I live in Rome.", "My dog is called Rex."]),
        ("Hi there! Thanks. By the way, I like tea, by the way.", ["I like tea."]),
        ("I like tea; I hate gin.\nI live in Rome",
         ["I like tea.", "I hate gin.", "I live in Rome."]),
        ("Dr. Who is my doctor. I like tea.", ["Dr. Who is my doctor.", "I like tea."]),
    ],
)  # fmt: skip
def test_each_clause_is_a_memory_of_its_own(said: str, found: list[str]) -> None:
    assert texts(user(said)) == found


@given(strategies.texts)
def test_any_clause_states_a_fact_or_none(clause: str) -> None:
    fact = fact_of(clause)
    assert fact is None or fact.label


def test_a_text_full_of_short_forms_is_read_in_linear_time() -> None:
    """In quadratic time it would take hours."""
    assert texts(user("I live in Rome. " + "Mr. " * 400_000))[0] == "I live in Rome."
