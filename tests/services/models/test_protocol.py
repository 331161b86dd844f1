"""Telling a model from what is none, without waking it."""

from __future__ import annotations

from typing import Any

import pytest

from sennit.services.models.protocol import Model, is_model
from sennit.testing import ScriptedModel


class Sleeping(ScriptedModel):
    """A model whose properties must not be read yet."""

    @property
    def supports_output_schema(self) -> bool:
        raise AssertionError("Nobody asked it anything.")

    @supports_output_schema.setter
    def supports_output_schema(self, value: bool) -> None:
        pass


def test_a_model_is_recognised_without_reading_its_properties() -> None:
    assert is_model(Sleeping([]))


@pytest.mark.parametrize("value", [None, "openai:gpt-5", object(), ScriptedModel, lambda: None])
def test_what_is_no_model_is_recognised(value: Any) -> None:
    assert not is_model(value)


def test_whatever_the_protocol_asks_for_is_looked_at() -> None:
    members = [name for name in vars(Model) if not name.startswith("_")]
    for member in members:
        whole: dict[str, Any] = dict.fromkeys(members, 1)
        assert is_model(type("Whole", (), whole)())
        del whole[member]
        assert not is_model(type("Lacking", (), whole)())
