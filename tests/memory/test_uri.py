"""Addresses are written in one way and lead nowhere else."""

from __future__ import annotations

import unicodedata
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sennit import ValidationError
from sennit.memory.uri import SCOPES, Uri, is_name


def parsed(text: str) -> Uri | None:
    try:
        return Uri.parse(text)
    except ValidationError:
        return None


@pytest.mark.parametrize(
    "uri",
    [
        "viking://user",
        "viking://user/memories/profile.md",
        "viking://session/chat_001/history/archive_001/.abstract.md",
        "viking://agent/skills/code-search",
        "viking://resources/a folder/naïve 🦜.md",
        "viking://user/memories/100% sure.md",
    ],
)
def test_an_address_is_written_as_it_was_read(uri: str) -> None:
    assert str(Uri.parse(uri)) == uri
    assert str(Uri.parse(uri + "/")) == uri


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "profile.md",
        "/etc/passwd",
        "file:///etc/passwd",
        "viking:/user",
        "VIKING://user",
        "viking://",
        "viking:///user",
        "viking://root/x",
        "viking://user@host/x",
        "viking://user/..",
        "viking://user/../agent/memories",
        "viking://user/./x",
        "viking://user/.../x",
        "viking://user//x",
        "viking://user/x//",
        "viking://user/a\\..\\b",
        "viking://user/%2e%2e/x",
        "viking://user/%2E%2e%2fx",
        "viking://user/a%00b",
        "viking://user/a\0b",
        "viking://user/a\nb",
        "viking://user/a\x7fb",
        "viking://user/\u202egnp.exe",
        "viking://user/zero\u200bwidth",
        "viking://user/ x",
        "viking://user/x ",
        "viking://user/x.",
        "viking://user/c:",
        "viking://user/a?b",
        "viking://user/a#b",
        "viking://user/*.md",
        "viking://user/CON",
        "viking://user/nul.md",
        "viking://user/" + "x" * 201,
        "viking://user/" + "é" * 101,
        "viking://user" + "/x" * 33,
        "viking://user/\ud800",
    ],
)
def test_tricks_are_refused(uri: str) -> None:
    with pytest.raises(ValidationError):
        Uri.parse(uri)


@pytest.mark.parametrize("uri", [None, 7, b"viking://user", ["viking://user"]])
def test_only_strings_are_addresses(uri: object) -> None:
    with pytest.raises(TypeError):
        Uri.parse(uri)


def test_two_ways_to_write_a_letter_are_one_name() -> None:
    assert Uri.parse("viking://user/cafe\u0301.md") == Uri.parse("viking://user/caf\u00e9.md")


def test_what_normalising_turns_into_a_trick_is_refused() -> None:
    for sign in map(chr, range(0x10000)):
        if unicodedata.category(sign) == "Cs":
            continue
        uri = parsed(f"viking://user/{sign}{sign}/x")
        assert uri is None or not set(uri.names) & {"..", ".", ""}


_pieces = st.sampled_from(
    [
        "..",
        ".",
        "/",
        "//",
        "\\",
        "%2e",
        "%2f",
        "\0",
        "a",
        "b.md",
        " ",
        "\u2024",
        "\uff0e",
        "viking:",
    ]
)
_anything = st.lists(_pieces | st.text(max_size=5), max_size=8).map("".join)


@given(_anything)
def test_whatever_is_parsed_is_confined_and_reads_back(rest: str) -> None:
    uri = parsed(f"viking://user/{rest}")
    if uri is None:
        return
    assert uri.scope == "user"
    assert all(is_name(name) and name not in ("", ".", "..") for name in uri.names)
    assert not any(sign in name for name in uri.names for sign in "/\\\0")
    assert Uri.parse(str(uri)) == uri
    assert str(uri).startswith("viking://user")


@given(_anything)
def test_a_name_leads_one_step_down_or_nowhere(name: str) -> None:
    top = Uri.parse("viking://agent/skills")
    try:
        below = top / name
    except ValidationError:
        return
    assert below.parent == top
    assert below.is_within(top)
    assert not top.is_within(below)


def test_scopes_do_not_meet() -> None:
    for one, other in product(SCOPES, SCOPES):
        below = Uri.parse(f"viking://{one}/x").is_within(Uri.parse(f"viking://{other}"))
        assert below == (one == other)
