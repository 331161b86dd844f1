"""Copying and inspecting DSPy modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from inspect import Parameter, signature
from types import NoneType, SimpleNamespace
from typing import Any, cast, get_args, get_type_hints

from sennit.learning.dspy.dspy_imports import History, Module, Predict

_SETTINGS = frozenset({"signature", "demos", "config", "lm"})


def copied(module: Any, mode: str) -> Any:
    """A program of one's own: copied through and through, its modules alone, or not at all."""
    if mode == "none":
        return module
    return module.deepcopy() if mode == "deep" else _modules_copied(module)


def _modules_copied(value: Any) -> Any:
    """Modules and what holds them are copied; all else is shared.

    A session inside has its own way: the turns of two copies are apart.
    """
    if isinstance(value, Module) and hasattr(value, "copied_modules"):
        return value.copied_modules()
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
    """Tell whether a program wants to be given a field, however it is called."""
    return any(field in signature(one).parameters for one in _entries(module))


def _entries(module: Any) -> Iterator[Callable[..., Any]]:
    """The methods that a call of a program ends in."""
    kind: Any = module.__class__
    called = (getattr(kind, name, None) for name in ("forward", "aforward"))
    return (one for one in called if one is not None)


def history_field_of(module: Any, wanted: str) -> str:
    """Return the name by which a program takes a history; `wanted` if it has no other one.

    A parameter of `forward` that is annotated as a history is one; where `forward` passes on
    whatever it is given, so is the history field that all predictors of the program share.
    """
    if takes(module, wanted):
        return wanted
    parameters = [(one, each) for one in _entries(module) for each in signature(one).parameters]
    for entry, name in parameters:
        if is_history_type(_annotation(entry, name)):
            return name
    if isinstance(module, Predict) or any(map(_takes_anything, _entries(module))):
        named = {name for one in module.predictors() for name in _history_inputs(one.signature)}
        if len(named) == 1:
            return named.pop()
    return wanted


def _takes_anything(entry: Callable[..., Any]) -> bool:
    kinds = (one.kind for one in signature(entry).parameters.values())
    return Parameter.VAR_KEYWORD in kinds


def _annotation(entry: Any, name: str) -> Any:
    """Return the type of a parameter; None if it has none, or one that cannot be resolved."""
    found = signature(entry).parameters[name].annotation
    if found is Parameter.empty:
        return None
    alone = SimpleNamespace(__annotations__={name: found})
    try:
        return get_type_hints(alone, getattr(entry, "__globals__", None))[name]
    except Exception:  # a name that is not known where the program was defined
        return None


def _history_inputs(of: Any) -> list[str]:
    return [name for name, one in of.input_fields.items() if is_history_type(one.annotation)]


def is_history_type(annotation: Any) -> bool:
    """Tell whether a type is a history, an optional one, or a subclass."""
    if isinstance(annotation, type):
        return issubclass(annotation, History)
    parts = [one for one in get_args(annotation) if one is not NoneType]
    return len(parts) == 1 and is_history_type(parts[0])


def by_name(module: Any, args: tuple[Any, ...], inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name; raises TypeError for one that has none, or two."""
    if not args:
        return inputs
    parameters = list(signature(next(_entries(module))).parameters.values())[1:]
    names = [one.name for one in parameters if one.kind is Parameter.POSITIONAL_OR_KEYWORD]
    kind = type(module).__name__
    if len(args) > len(names):
        raise TypeError(
            f"{kind} takes {len(names)} positional arguments, got {len(args)}; pass the others by "
            f"name."
        )
    given = dict(zip(names, args, strict=False))
    if twice := sorted(given.keys() & inputs.keys()):
        raise TypeError(f"{kind} got {twice} twice: by position and by name.")
    return {**given, **inputs}


def fields_asked(module: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of a call without the settings that `dspy.Predict` takes beside them.

    A setting may hold a key or a whole model; a field of the program with such a name is an input.
    """
    found = dict(inputs)
    for name in _SETTINGS & inputs.keys():
        fields = (one.signature.input_fields for one in module.predictors())
        if not takes(module, name) and not any(name in one for one in fields):
            del found[name]
    return found


def fields_of(prediction: Any) -> dict[str, Any]:
    """Return the output of a program, by field."""
    if hasattr(prediction, "keys"):
        return {str(name): prediction[name] for name in prediction.keys()}  # noqa: SIM118
    if isinstance(prediction, Mapping):
        return dict(cast("Mapping[str, Any]", prediction))
    return {"output": prediction}
