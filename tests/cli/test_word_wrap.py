"""Word wrap of text that arrives in pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sennit.cli.word_wrap import WordWrap, joined, wrap_text

TEXTS = st.text(st.sampled_from("ab \n\té漢"), max_size=120)


def test_lines_are_broken_between_words() -> None:
    assert wrap_text("one two three four", 9) == "one two\nthree\nfour"
    assert wrap_text("    indented code\n- item", 40) == "    indented code\n- item"


def test_a_word_is_shown_as_it_comes_unless_it_may_have_to_move() -> None:
    wrap = WordWrap("")

    def shown(text: str) -> str:
        return joined(wrap.add(text, 80, ""))

    assert shown("Once up") == "Once up"
    assert shown("on a time") == "on a time"
    assert shown(" " + "x" * 50) == " " + "x" * 50
    assert shown(" nearly") == ""
    assert shown("there") == ""
    assert shown("fore") == "\nnearlytherefore"
    assert wrap.end() == []


def test_the_lines_of_a_paragraph_hang_below_its_first_word() -> None:
    wrap = WordWrap("")
    pieces = wrap.begin("• ", "  ", "") + wrap.add("one two three\nfour", 9, "") + wrap.end()
    assert joined(pieces) == "• one two\n  three\nfour"


def test_a_word_longer_than_a_line_is_left_whole() -> None:
    address = "https://example.com/" + "a" * 40
    assert wrap_text(f"See {address} now", 30) == f"See\n{address}\nnow"


@given(TEXTS, st.integers(25, 60), st.integers(1, 7))
def test_words_and_line_ends_stay_whatever_the_pieces(text: str, width: int, size: int) -> None:
    wrap = WordWrap("")
    pieces = [wrap.add(text[at : at + size], width, "") for at in range(0, len(text), size)]
    shown = "".join(map(joined, pieces)) + joined(wrap.end())
    assert shown.split() == text.split()
    assert shown == wrap_text(text, width)
    assert wrap_text(text, 10_000) == text
