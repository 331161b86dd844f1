"""Each sentence of the two pages of promises is held by a test; one without a test fails here."""

import pytest

from tests import promises


def test_every_promise_has_a_test_that_exists_and_no_line_is_stale() -> None:
    assert promises.mistakes() == []


def test_the_tests_that_hold_promises_are_run(request: pytest.FixtureRequest) -> None:
    """Check the tests of those files that were collected: all of them when the whole suite runs."""
    options, items = request.config.option, request.session.items
    if options.keyword or options.lf or any("::" in path for path in request.config.args):
        pytest.skip("only some tests of each file were collected")
    files = {item.nodeid.partition("::")[0] for item in items}
    cases = {item.nodeid for item in items}
    tests = {case.partition("[")[0] for case in cases} | {
        case.rpartition("::")[0] for case in cases
    }
    named = [test for test in promises.tests() if test.partition("::")[0] in files]
    assert [test for test in named if test not in cases | tests] == []


def test_rows_and_sentences_are_promises_and_the_introduction_is_none() -> None:
    page = """# A page

This introduces it. It promises nothing.

| promise | why |
|---|---|
| A row | because |

## A section

- **Label.** The first, with [a link](elsewhere.md#there), goes
  on. `Second` one.
- **Third** ones

### Below it

A paragraph. With two.
"""
    found = list(promises.promises("a.md", page))
    assert [promise.text for promise in found] == [
        "A row",
        "The first, with a link, goes on.",
        "`Second` one.",
        "Third ones",
        "A paragraph.",
        "With two.",
    ]
    assert [promise.section for promise in found] == ["", *["A section"] * 5]
