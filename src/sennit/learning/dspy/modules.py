"""Copying and inspecting DSPy modules, and the compilation that a module is copied in.

An optimizer copies the program and calls the copies with one example after another, from several
threads. If these calls were turns, each example would be sent the ones before it, and the compiled
session would start with all of them. So a copy made during a compilation records no turns until the
compilation ends; it is still sent the turns from before.
"""

# Only the interpreter knows which functions are running.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from inspect import Parameter, signature
from types import FrameType, NoneType, SimpleNamespace
from typing import Any, cast, get_args, get_type_hints

from sennit.learning.dspy.dspy_imports import History, Module, Predict, Teleprompter

_PREDICT_SETTINGS = frozenset({"signature", "demos", "config", "lm"})


def copy_module(module: Any, mode: str) -> Any:
    """Copy a program: deeply, only its modules ("shallow"), or not at all ("none")."""
    if mode == "none":
        return module
    return module.deepcopy() if mode == "deep" else _copy_modules(module)


def _copy_modules(value: Any) -> Any:
    """Copy modules and the containers that hold them; share all other values.

    A nested session copies itself, so that the copies do not share turns.
    """
    if isinstance(value, Module) and hasattr(value, "copy_with_modules"):
        return value.copy_with_modules()
    if isinstance(value, Module):
        module: Any = copy(value)
        module.__dict__.update({name: _copy_modules(item) for name, item in value.__dict__.items()})
        return module
    if type(value) in (list, tuple):
        return type(value)(_copy_modules(item) for item in value)
    if type(value) is dict:
        return {name: _copy_modules(item) for name, item in cast("Any", value).items()}
    return value


def accepts_argument(module: Any, field: str) -> bool:
    """Return whether `forward` or `aforward` of a program has a parameter with this name."""
    return any(field in signature(method).parameters for method in _forward_methods(module))


def _forward_methods(module: Any) -> Iterator[Callable[..., Any]]:
    """Return the methods that implement a call: `forward` and `aforward`, if defined."""
    kind: Any = module.__class__
    methods = (getattr(kind, name, None) for name in ("forward", "aforward"))
    return (method for method in methods if method is not None)


def history_field_of(module: Any, requested: str) -> str:
    """Return the name of a program's history argument; `requested` if it has no other one.

    That is a parameter of `forward` annotated as a history or, if `forward` accepts any keyword,
    the only history field of the program's predictors.
    """
    if accepts_argument(module, requested):
        return requested
    for method in _forward_methods(module):
        for name in signature(method).parameters:
            if is_history_type(_resolve_annotation(method, name)):
                return name
    if isinstance(module, Predict) or any(map(_accepts_any_keyword, _forward_methods(module))):
        names = {name for node in module.predictors() for name in _history_inputs(node.signature)}
        if len(names) == 1:
            return names.pop()
    return requested


def _accepts_any_keyword(method: Callable[..., Any]) -> bool:
    kinds = (parameter.kind for parameter in signature(method).parameters.values())
    return Parameter.VAR_KEYWORD in kinds


def _resolve_annotation(method: Any, name: str) -> Any:
    """Return the type of a parameter; None if it has none, or one that cannot be resolved."""
    annotation = signature(method).parameters[name].annotation
    if annotation is Parameter.empty:
        return None
    holder = SimpleNamespace(__annotations__={name: annotation})
    try:
        return get_type_hints(holder, getattr(method, "__globals__", None))[name]
    except Exception:  # a name that is undefined in the program's module
        return None


def _history_inputs(of: Any) -> list[str]:
    fields = of.input_fields.items()
    return [name for name, field in fields if is_history_type(field.annotation)]


def is_history_type(annotation: Any) -> bool:
    """Return whether a type is dspy.History, a subclass, or an optional one."""
    if isinstance(annotation, type):
        return issubclass(annotation, History)
    members = [member for member in get_args(annotation) if member is not NoneType]
    return len(members) == 1 and is_history_type(members[0])


def bind_arguments(module: Any, args: tuple[Any, ...], inputs: dict[str, Any]) -> dict[str, Any]:
    """Return all arguments of a call by name; raises TypeError for extra or duplicate ones."""
    if not args:
        return inputs
    parameters = list(signature(next(_forward_methods(module))).parameters.values())[1:]
    names = [each.name for each in parameters if each.kind is Parameter.POSITIONAL_OR_KEYWORD]
    type_name = type(module).__name__
    if len(args) > len(names):
        raise TypeError(
            f"{type_name} takes {len(names)} positional arguments, got {len(args)}; "
            "pass the others by name."
        )
    positional = dict(zip(names, args, strict=False))
    if duplicates := sorted(positional.keys() & inputs.keys()):
        raise TypeError(f"{type_name} got {duplicates} by position and by name; pass them once.")
    return {**positional, **inputs}


def without_settings(module: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of a call without the settings that `dspy.Predict` also accepts.

    A setting may contain a key or a model; a field of the program with such a name is an input.
    """
    fields = dict(inputs)
    for name in _PREDICT_SETTINGS & inputs.keys():
        signatures = (predictor.signature for predictor in module.predictors())
        is_field = any(name in signature.input_fields for signature in signatures)
        if not is_field and not accepts_argument(module, name):
            del fields[name]
    return fields


def prediction_fields(prediction: Any) -> dict[str, Any]:
    """Return the outputs of a program by field name."""
    if hasattr(prediction, "keys"):
        return {str(name): prediction[name] for name in prediction.keys()}  # noqa: SIM118
    if isinstance(prediction, Mapping):
        return dict(cast("Mapping[str, Any]", prediction))
    return {"output": prediction}


class CompileGuard:
    """The compilation during which a session was created, if any."""

    __slots__ = ("_frame", "_thread")

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._frame = _outermost_compile(sys._getframe(1))

    @property
    def is_active(self) -> bool:
        """True while that compilation runs; False if there was none."""
        if self._frame is None:
            return False
        frame = sys._current_frames().get(self._thread)
        while frame is not None and frame is not self._frame:
            frame = frame.f_back
        if frame is None:
            self._frame = None
        return self._frame is not None

    def __deepcopy__(self, memo: object) -> CompileGuard:
        return self


def _outermost_compile(frame: FrameType | None) -> FrameType | None:
    outermost = None
    while frame is not None:
        if frame.f_code.co_name == "compile" and isinstance(
            frame.f_locals.get("self"), Teleprompter
        ):
            outermost = frame
        frame = frame.f_back
    return outermost
