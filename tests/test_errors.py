"""The error tree: one root, and the built-in that people already catch beside each error."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from sennit import errors
from sennit.errors import (
    AccessError,
    CodecError,
    ExistsError,
    InvalidTypeError,
    NotFoundError,
    OutOfRangeError,
    SennitError,
    ValidationError,
    short_repr,
)

ALL = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, BaseException)
]


@pytest.mark.parametrize("kind", ALL)
def test_every_error_is_a_sennit_error(kind: type[Exception]) -> None:
    assert issubclass(kind, SennitError)


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (ValidationError, ValueError),
        (InvalidTypeError, TypeError),
        (InvalidTypeError, ValueError),
        (CodecError, ValueError),
        (NotFoundError, KeyError),
        (OutOfRangeError, IndexError),
        (ExistsError, ValueError),
        (AccessError, PermissionError),
    ],
)
def test_an_error_can_be_caught_as_the_builtin_people_expect(
    kind: type[Exception], builtin: type[Exception]
) -> None:
    with pytest.raises(builtin):
        raise kind("no")


def test_a_missing_thing_is_not_a_wrong_value() -> None:
    assert not issubclass(NotFoundError, ValueError)
    assert not issubclass(OutOfRangeError, KeyError)


@pytest.mark.parametrize("kind", ALL)
def test_an_error_shows_its_sentence_without_quotes(kind: type[Exception]) -> None:
    assert str(kind("Branch 'x' is gone.")) == "Branch 'x' is gone."


@pytest.mark.parametrize("kind", ALL)
def test_an_error_survives_pickling(kind: type[Exception]) -> None:
    copied = pickle.loads(pickle.dumps(kind("gone")))
    assert type(copied) is kind
    assert str(copied) == "gone"


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def test_a_value_shows_as_its_repr_cut_short() -> None:
    assert short_repr("x") == "'x'"
    assert short_repr("x" * 1000).endswith("… (str)")
    assert len(short_repr("x" * 1000)) < 150


@pytest.mark.parametrize("value", [Unshowable(), nested(100_000), 10**5000], ids=type)
def test_a_value_that_cannot_be_shown_does_not_hide_the_error(value: Any) -> None:
    assert type(value).__name__ in short_repr(value)
    assert len(short_repr(value)) < 150
