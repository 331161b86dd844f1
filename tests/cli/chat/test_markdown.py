"""Markdown that is rendered while it arrives."""

from __future__ import annotations

from io import StringIO

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from sennit.cli.chat.markdown import MarkdownStream

MARKUP = "knot|a| |\n|\n\n|*|**|_|`|```|~~|#|- |1. |> |[|](x)|!|<|https://x.y>|\\|é漢|---|[ ] |(|)"
WORDS = st.sampled_from([*MARKUP.split("|"), "|"])


def rendered(text: str, *, width: int = 60, size: int | None = None, colour: bool = False) -> str:
    """What a terminal shows of a text that arrives in pieces of a size."""
    paper = StringIO()
    console = Console(
        file=paper, width=width, force_terminal=colour, color_system="standard" if colour else None
    )
    stream, size = MarkdownStream(console), size or len(text) or 1
    for at in range(0, len(text), size):
        for shown, style in stream.add(text[at : at + size]):
            console.out(shown, style=style, end="", highlight=False)
    for shown, style in stream.end():
        console.out(shown, style=style, end="", highlight=False)
    return paper.getvalue()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("# One\n## Two\n#three", "One\nTwo\n#three"),
        ("A **bold** and *slanted* and `code *x*` word", "A bold and slanted and code *x* word"),
        ("***both*** and **bold *slanted* bold**", "both and bold slanted bold"),
        ("_slanted_ and ~~gone~~", "slanted and gone"),
        ("- one\n* two\n+ three\n  - four", "• one\n• two\n• three\n  • four"),
        ("1. one\n2) two", "1. one\n2) two"),
        ("- [ ] open\n- [x] done", "• ☐ open\n• ☑ done"),
        ("> said\n>> twice", "│ said\n│ │ twice"),
        ("---", "─" * 40),
        ("```python\nx = '**'\n# no heading\n```\nafter", "x = '**'\n# no heading\nafter"),
        ("~~~\n```\n~~~", "```\n"),
        (
            "[a knot](https://a.b/c_(d)) and <https://x.y>",
            "a knot (https://a.b/c_(d)) and https://x.y",
        ),
        ("[https://x.y](https://x.y)", "https://x.y"),
        (r"\*not slanted\* and \# no heading", "*not slanted* and # no heading"),
    ],
)
def test_markup_is_shown_as_what_it_means(text: str, shown: str) -> None:
    assert rendered(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "2 * 3 * 4 and 2**3",
        "snake_case_name and __init__.py",
        "a `b",
        "**never closed",
        "[1] is a note, [x] too",
        "a < b and b > a <tag>",
        "#hashtag",
        "-5 degrees",
        "1.5 metres",
        "C:\\folder",
        "wow! ~ and ~5",
        "",
        "no\n\nmarkup  at all",
    ],
)
def test_what_is_no_markup_is_shown_as_it_was_written(text: str) -> None:
    assert rendered(text) == text


@given(st.lists(WORDS, max_size=40).map("".join), st.integers(1, 6), st.integers(20, 60))
@example("knot__knot_", 1, 20)
def test_the_pieces_make_no_difference(text: str, size: int, width: int) -> None:
    assert rendered(text, size=size, width=width) == rendered(text, width=width)


@given(st.lists(WORDS, max_size=40).map("".join))
def test_no_word_is_lost(text: str) -> None:
    assert rendered(text, width=200).count("knot") >= text.count("knot") - text.count("```") * 40


def test_words_appear_while_their_line_is_still_written() -> None:
    stream = MarkdownStream(Console(file=StringIO(), width=60))

    def shown(text: str) -> str:
        return "".join(shown for shown, _ in stream.add(text))

    assert shown("Once upon") == "Once upon"
    assert shown(" a **dark") == " a"
    assert shown(" and** stormy") == " dark and stormy"
    assert shown(" night\n#") == " night\n"
    assert shown("# The end") == "The end"


def test_list_items_and_quotes_hang_and_code_is_not_wrapped() -> None:
    text = "- one two three four five\n> six seven eight nine ten\n\n```\n" + "x " * 20 + "\n```"
    assert rendered(text, width=20).splitlines() == [
        "• one two three four",
        "  five",
        "│ six seven eight",
        "│ nine ten",
        "",
        "x " * 20,
    ]


def test_a_table_is_drawn_when_it_is_complete() -> None:
    table = "| Knot | Slips |\n|---|---|\n| Bowline | **no** |\n"
    lines = [line.split() for line in rendered(f"{table}\nDone.", size=3).splitlines()]
    assert lines[0] == ["Knot", "Slips"]
    assert ["Bowline", "no"] in lines
    assert lines[-1] == ["Done."]


def test_styles_end_with_their_span() -> None:
    assert rendered("a **b** c", colour=True) == "a \x1b[1mb\x1b[0m c"
