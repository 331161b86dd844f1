"""Programs as a session handles them: copied, and read."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from inspect import signature
from typing import Any, cast

from sennit.learning.dspy.framework import Module


def copied(module: Any, mode: str) -> Any:
    """A program of one's own: copied through and through, its modules alone, or not at all."""
    if mode == "none":
        return module
    return module.deepcopy() if mode == "deep" else _modules_copied(module)


def _modules_copied(value: Any) -> Any:
    """Modules and what holds them are copied; all else is shared."""
    if isinstance(value, Module):
        made: Any = copy(value)
        made.__dict__.update({name: _modules_copied(one) for name, one in value.__dict__.items()})
        return made
    if type(value) in (list, tuple):
        return type(value)(_modules_copied(one) for one in value)
    if type(value) is dict:
        return {name: _modules_copied(one) for name, one in cast("Any", value).items()}
    return value


def takes(module: Any, field: str) -> bool:
    """Whether a program wants to be given a field, however it is called."""
    kind: Any = module.__class__
    called = (getattr(kind, name, None) for name in ("forward", "aforward"))
    return any(field in signature(one).parameters for one in called if one is not None)


def fields_of(prediction: Any) -> dict[str, Any]:
    """What a program said, by field."""
    if hasattr(prediction, "keys"):
        return {str(name): prediction[name] for name in prediction.keys()}  # noqa: SIM118
    if isinstance(prediction, Mapping):
        return dict(cast("Mapping[str, Any]", prediction))
    return {"output": prediction}
