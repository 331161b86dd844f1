"""Image addresses that no parser, log or server trips over, and loading that runs no code."""

from __future__ import annotations

import ast
import traceback
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sennit
from sennit import SennitError
from sennit.errors import InvalidTypeError, ValidationError
from sennit.messages.image_url import check_image_url
from tests.strategies import urls


@given(urls)
def test_a_plain_web_address_is_returned_as_it_is(url: str) -> None:
    assert check_image_url(url) == url


@pytest.mark.parametrize(
    ("url", "got"),
    [
        ("file:///etc/passwd", "file://"),
        ("javascript:alert(1)", "javascript://"),
        ("data:image/png;base64,AAAA", "data://"),
        ("data://text/plain,hello", "data://"),
        ("ftp://example.com/a.png", "ftp://"),
        ("viking://user/a.png", "viking://"),
        ("FILE:///etc/passwd", "file://"),
    ],
)
def test_another_scheme_is_refused_in_the_documented_words(url: str, got: str) -> None:
    with pytest.raises(ValueError, match="Image URL must use http:// or https:// scheme") as caught:
        check_image_url(url)
    assert str(caught.value) == f"Image URL must use http:// or https:// scheme, got: {got}"


@pytest.mark.parametrize("url", ["", "a.png", "/etc/passwd", "//example.com/a.png", "example.com"])
def test_an_address_without_a_scheme_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="no scheme"):
        check_image_url(url)


@pytest.mark.parametrize(
    "url", ["http://", "https:///a.png", "http:a.png", "http://:80/", "http://?q"]
)
def test_an_address_without_a_host_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="host"):
        check_image_url(url)


@pytest.mark.parametrize(
    "character",
    ["\0", "\n", "\r", "\t", "\x1b", "\x7f", "\x85", " ", "\\", "\u2028", "\u2029"],
)
@pytest.mark.parametrize(
    "place", ["{}http://e.org/", "http://e{}.org/", "http://e.org/{}", "ht{}tp://e.org"]
)
def test_control_characters_spaces_and_backslashes_are_refused(character: str, place: str) -> None:
    with pytest.raises(ValidationError, match="must not contain") as caught:
        check_image_url(place.format(character))
    assert repr(character) in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("port", ["99999", "-1", "abc", "8_0", "\u0661"])
def test_a_bad_port_is_refused(port: str) -> None:
    with pytest.raises(ValidationError, match="malformed"):
        check_image_url(f"http://example.com:{port}/a.png")


@pytest.mark.parametrize("url", ["http://[::1", "http://[x]/", "http://exa\u2100mple.com/"])
def test_a_host_that_cannot_be_parsed_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="malformed"):
        check_image_url(url)


@pytest.mark.parametrize(
    "url", ["http://user@example.com/", "http://@example.com/", "http://a:b@e.org"]
)
def test_credentials_are_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="credentials"):
        check_image_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hunter2@example.com/a.png",
        "http://hunter2@example.com/a.png",
        "https://user:hunter2@/a.png",
        "http://user:hunter2@example.com:99999/",
        "http://user:hunter2@example.com:port/",
        "http://user:hunter2@exa\u2100mple.com/",
        "http://user:hunter2@[::1/",
        "http://user:hunter2@exa mple.com/",
        "http://user:hunter2 @example.com/",
        "http://user:hunter2@example.com/a b.png",
        "//user:hunter2@example.com/",
        "ftp://user:hunter2@example.com/",
    ],
)
def test_a_password_never_shows_in_the_error(url: str) -> None:
    with pytest.raises(ValidationError) as caught:
        check_image_url(url)
    assert "hunter2" not in str(caught.value)


def test_a_password_never_shows_in_what_caused_the_error() -> None:
    with pytest.raises(ValidationError) as caught:
        check_image_url("http://user:hunter2@exa\u2100mple.com/")
    cause = "".join(traceback.format_exception_only(caught.value.__cause__))
    assert "hunter2" not in cause


def test_a_lone_surrogate_is_refused_because_it_could_not_be_stored() -> None:
    with pytest.raises(ValidationError):
        check_image_url("http://example.com/\ud800.png")


@pytest.mark.parametrize("value", [None, 5, b"http://e.org", ["http://e.org"], object()])
def test_only_a_string_is_an_address(value: Any) -> None:
    with pytest.raises(InvalidTypeError, match="must be a string") as caught:
        check_image_url(value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("scheme", ["ftp", "", "http"])
def test_the_error_for_a_long_address_stays_short(scheme: str) -> None:
    with pytest.raises(ValidationError) as caught:
        check_image_url(f"{scheme}:{'a' * 100_000} ")
    assert len(str(caught.value)) < 1000


@given(st.text(st.characters()) | st.text("htps:/@[]%?#\\ .0a\0\ud800"))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    for url in (text, f"http://{text}", f"http://e.org/{text}"):
        try:
            checked = check_image_url(url)
        except SennitError:
            continue
        assert checked == url
        checked.encode()


RUNS_CODE = {
    "pickle",
    "cPickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "joblib",
    "jsonpickle",
}


def test_nothing_is_loaded_in_a_way_that_runs_code() -> None:
    """No module imports a format that runs code, evaluates a text, or imports a name found in data.

    `cli/load.py` imports what the user named on the command line, `lazy_exports.py` the names of a
    package's own table, `workarounds.py` modules of pydantic-ai from a table of its own.
    """
    found: list[str] = []
    root = Path(sennit.__file__).parent
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Import(names=names) if RUNS_CODE & {name.name for name in names}:
                    found.append(f"{path}:{node.lineno}")
                case ast.ImportFrom(module=module) if module in RUNS_CODE:
                    found.append(f"{path}:{node.lineno}")
                case ast.Call(func=ast.Name("eval" | "exec" | "__import__" | "compile")):
                    found.append(f"{path}:{node.lineno}")
                case ast.Call(func=ast.Name("import_module"), args=[ast.Constant()]):
                    pass
                case ast.Call(func=ast.Name("import_module")):
                    found.append(str(path.relative_to(root)))
                case _:
                    pass
    workarounds = "services/models/providers/workarounds.py"
    assert sorted(found) == ["cli/load.py", "lazy_exports.py", workarounds]
