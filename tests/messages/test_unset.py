"""Unset: one falsy value that is not None and stays itself through copy and pickle."""

from __future__ import annotations

import copy
import pickle

import pytest

from sennit import ActionResponseContent, InstructionContent, ToolPart, Unset
from sennit.messages.unset import UnsetType


def test_unset_is_falsy_and_is_not_none() -> None:
    assert not Unset
    assert Unset is not None
    assert Unset != None  # noqa: E711
    assert Unset != ""


def test_unset_shows_as_its_name() -> None:
    assert repr(Unset) == str(Unset) == f"{Unset}" == "Unset"


def test_there_is_only_one_unset() -> None:
    assert list(UnsetType) == [Unset]
    assert UnsetType("Unset") is Unset


def test_unset_survives_copying() -> None:
    assert copy.copy(Unset) is Unset
    assert copy.deepcopy(Unset) is Unset
    assert copy.deepcopy([Unset])[0] is Unset


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_unset_survives_pickling(protocol: int) -> None:
    assert pickle.loads(pickle.dumps(Unset, protocol)) is Unset


def test_unset_stays_itself_inside_a_copied_content_and_part() -> None:
    for copied in (copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))):
        assert copied(InstructionContent(instruction="x")).context is Unset
        assert copied(ToolPart("f", {})).output is Unset


def test_a_field_nobody_set_is_unset() -> None:
    assert InstructionContent().instruction is Unset
    assert ActionResponseContent(result=None).result is None
    assert ActionResponseContent().result is Unset
