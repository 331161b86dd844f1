"""Words in a form in which two texts can be compared, and names for files."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sennit.memory.extraction.terms import slug, stem, terms


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("likes", "liking"),
        ("use", "using"),
        ("stopped", "stop"),
        ("families", "family"),
        ("kids", "children"),
        ("colour", "color"),
        ("favourite", "favorite"),
        ("three", "3"),
        ("movies", "film"),
    ],
)
def test_words_that_mean_the_same_have_one_stem(one: str, other: str) -> None:
    assert stem(one) == stem(other)


@pytest.mark.parametrize(("one", "other"), [("hiking", "biking"), ("news", "new"), ("bus", "bu")])
def test_words_that_do_not_mean_the_same_have_two(one: str, other: str) -> None:
    assert stem(one) != stem(other)


def test_terms_are_the_words_that_carry_the_meaning() -> None:
    assert terms("I do not like the Green teas, please!") == ["lik", "green", "tea"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Green tea", "green-tea"),
        ("Kraków & Łódź", "krakow-odz"),
        ("../../etc/passwd", "etc-passwd"),
        ("a\0b/c\\d", "a-b-c-d"),
    ],
)
def test_a_slug_can_be_the_name_of_a_file(text: str, name: str) -> None:
    assert slug(text) == name


def test_a_slug_is_never_empty_reserved_or_the_same_for_other_scripts() -> None:
    assert slug("日本語") != slug("中文字")
    assert slug("") == slug("")
    assert slug("con") != "con"
    assert slug("NUL") != "nul"


@given(st.lists(st.text(max_size=200), max_size=3))
def test_any_text_has_a_sound_slug_and_always_the_same(pieces: list[str]) -> None:
    name = slug(*pieces)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
    assert len(name) <= 70
    assert slug(*pieces) == name
