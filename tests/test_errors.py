"""The error tree: one root, and the built-in that people already catch beside each error."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import Session, SessionOptions, StreamingOptions, errors
from sennit.errors import (
    AccessError,
    CodecError,
    ExistsError,
    InvalidTypeError,
    NotFoundError,
    OutOfRangeError,
    SennitError,
    StoreError,
    ValidationError,
    short_repr,
)
from sennit.learning import ExportOptions
from sennit.memory import AutoCommit
from sennit.turns import Budget

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


@pytest.mark.parametrize(
    ("call", "suggestion"),
    [
        (lambda session: session.fork("mian"), "'main'"),
        (lambda session: session.add_message("user", "Hello", branches="Main"), "'main'"),
        (lambda session: session.add_message("assistent", "Hello"), "'assistant'"),
        (lambda session: session.add_message("System", "Hello"), "'system'"),
        (lambda _: ExportOptions(format="opnai"), "'openai'"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest_right_one(
    call: Callable[[Session], object], suggestion: str
) -> None:
    session = Session()
    session.create_branch("main")
    with pytest.raises(SennitError, match=f"Did you mean {suggestion}"):
        call(session)


def test_a_wrong_session_key_is_answered_with_the_nearest_one_of_the_same_user() -> None:
    with sennit.open(":memory:", user="ada") as client:
        client.session("knots")
        with pytest.raises(NotFoundError, match=r"sessions\(\) lists them. Did you mean 'knots'"):
            client.session("knot", create=False)
        with pytest.raises(NotFoundError) as unlike:
            client.session("wholly-different", create=False)
        assert "Did you mean" not in str(unlike.value)


def test_a_store_in_a_folder_that_does_not_exist_is_refused_and_creates_no_folder(
    tmp_path: Path,
) -> None:
    with pytest.raises(StoreError, match=r"there is no folder .* Create it first"):
        sennit.open(tmp_path / "nowhere" / "deep" / "chat.db")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "misspelled", "right"),
    [
        (SessionOptions, "max_turn", "max_turns"),
        (StreamingOptions, "chunk_size", "preferred_chunk_size"),
        (Budget, "token", "tokens"),
        (AutoCommit, "message", "messages"),
    ],
)
def test_a_misspelled_option_is_answered_with_the_right_name(
    options: Callable[..., object], misspelled: str, right: str
) -> None:
    with pytest.raises(InvalidTypeError, match=f"no field '{misspelled}'. Did you mean '{right}'"):
        options(**{misspelled: 3})
