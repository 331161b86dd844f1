"""The hook that gives predictors the history of the call they are part of.

A predictor becomes one by its class, not by a function put into it: a copy of it hears as well, so
whatever an optimiser does to copies (demonstrations, instructions, models) reaches the prompt.

Which call a predictor is part of travels in DSPy's own settings, which DSPy takes along into its
worker threads. A thread that a program starts by itself has none of them. Where the program speaks
on one conversation only, the one call under way whose session holds the predictor is meant. Where
it serves several, the thread may be left over from a call for someone else, so nothing is heard.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from types import NoneType
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar, cast, get_args

from sennit.errors import ValidationError
from sennit.learning.dspy.dspy_imports import History, dspy
from sennit.learning.dspy.history import Fields
from sennit.learning.dspy.incomplete_turns import is_incomplete, omitting_missing_outputs
from sennit.learning.dspy.modules import is_history_type

_CALL = "sennit_call"
_NODE = "_sennit_node"
_STACK = "sennit_nodes"

_P = ParamSpec("_P")
_R = TypeVar("_R")

_log = logging.getLogger(__name__)
_under_way: list[ActiveCall] = []


class ActiveCall(Protocol):
    """A call of a session that is under way."""

    @property
    def alone(self) -> bool:
        """True if its program speaks on no other conversation."""
        ...

    def history_for(self, node: str, fields: Fields) -> Any:
        """The history for a predictor."""
        ...

    def told(self, history: Any) -> bool:
        """Return whether this is the history that the program was called with."""
        ...

    def memory_for(self, node: str) -> str:
        """Return the consolidated memory of a predictor."""
        ...

    def heard(self, node: str, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Take note of what a predictor was asked and said."""
        ...

    def holds(self, predictor: Any) -> bool:
        """Return whether this predictor is part of the session's program."""
        ...

    async def aside(self, work: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Do what may wait for the store, where no event loop waits with it."""
        ...


class HistoryAwarePredictor:
    """A mixin for predictor classes that adds the history to each call."""

    def forward(self, **kwargs: Any) -> Any:
        """Predict, with the history of the call where the caller gave none."""
        ready = _prepared(self, kwargs)
        with running(self, ready.adapter):
            prediction = cast("Any", super()).forward(**ready.kwargs)
        return ready.told(prediction)

    async def aforward(self, **kwargs: Any) -> Any:
        """The same, awaited; the loop does not wait for what is heard and noted."""
        call = _call_of(self)
        ready = await _aside(call, _prepared, self, kwargs)
        with running(self, ready.adapter):
            prediction = await cast("Any", super()).aforward(**ready.kwargs)
        return await _aside(call, ready.told, prediction)


def _same(prediction: Any) -> Any:
    return prediction


class _Prepared(NamedTuple):
    """A call of a predictor, ready to be made."""

    kwargs: dict[str, Any]
    told: Callable[[Any], Any] = _same
    """Takes note of the prediction, and returns it."""
    adapter: Any = None
    """The adapter to use instead of the configured one."""


def _prepared(predictor: Any, kwargs: dict[str, Any]) -> _Prepared:
    call = _call_of(predictor)
    signature = kwargs.get("signature", predictor.signature)
    field = history_field(signature)
    if field is None:
        return _Prepared(kwargs)
    if field in kwargs and (call is None or not call.told(kwargs[field])):
        return _Prepared(kwargs)  # the program's own choice
    if call is None:
        return _Prepared({**kwargs, field: History(messages=[])})
    node: str = predictor.__dict__[_NODE]
    fields = fields_in(signature)

    def told(prediction: Any) -> Any:
        asked = {name: kwargs[name] for name in signature.input_fields if name in kwargs}
        asked.pop(field, None)
        said = {name: prediction[name] for name in signature.output_fields if name in prediction}
        call.heard(node, asked, said)
        return prediction

    history = call.history_for(node, fields)
    given = {**kwargs, field: history}
    if memory := call.memory_for(node):
        told_of = f"{signature.instructions}\n\nWhat you remember:\n{memory}"
        given["signature"] = signature.with_instructions(told_of)
    if not is_incomplete(history.messages, fields.outputs):
        return _Prepared(given, told)
    configured = dspy.settings.adapter or dspy.ChatAdapter()
    return _Prepared(given, told, omitting_missing_outputs(configured))


def fields_in(signature: Any) -> Fields:
    """Return the fields of a signature, without its history."""
    outputs = signature.output_fields
    return Fields(
        frozenset(signature.input_fields) - {history_field(signature)},
        frozenset(outputs),
        frozenset(name for name, one in outputs.items() if _allows_none(one.annotation)),
    )


def _allows_none(annotation: Any) -> bool:
    return annotation in (Any, None, NoneType) or NoneType in get_args(annotation)


async def _aside(call: ActiveCall | None, work: Callable[..., _R], *args: Any) -> _R:
    return work(*args) if call is None else await call.aside(work, *args)


def _call_of(predictor: Any) -> ActiveCall | None:
    call: ActiveCall | None = dspy.settings.get(_CALL)
    if call is not None:
        return call
    holding = [one for one in list(_under_way) if one.holds(predictor)]
    if len(holding) == 1 and holding[0].alone:
        return holding[0]
    if holding:
        _log.warning(
            "The predictor %r runs in a thread that does not say which conversation it belongs to, "
            "and is sent no history. Start it with dspy.Parallel, or run it in "
            "contextvars.copy_context().",
            predictor.__dict__[_NODE],
        )
    return None


class CallContext:
    """A call while it is under way, as a context manager."""

    __slots__ = ("_call", "_context")

    def __init__(self, call: ActiveCall) -> None:
        self._call = call
        self._context = dspy.context(**{_CALL: call, _STACK: ()})

    def __enter__(self) -> None:
        self._context.__enter__()
        _under_way.append(self._call)

    def __exit__(self, *error: object) -> None:
        _under_way.remove(self._call)
        self._context.__exit__(*error)


def running(predictor: Any, adapter: Any = None) -> Any:
    """Return a context in which a predictor is what runs, with another adapter if given."""
    node: str = predictor.__dict__[_NODE]
    formatting = {} if adapter is None else {"adapter": adapter}
    return dspy.context(**{_STACK: (*active_nodes(), node)}, **formatting)


def active_nodes() -> tuple[str, ...]:
    """The predictors that are running here, the innermost last."""
    return dspy.settings.get(_STACK) or ()


def current_call() -> Any:
    """The call under way here, if any."""
    return dspy.settings.get(_CALL)


def wire(program: Any, field: str, *, strict: bool) -> None:
    """Let all predictors of a program hear; raises ValidationError where `strict` finds no room."""
    for name, predictor in program.named_predictors():
        _let_hear(predictor)
        predictor.__dict__[_NODE] = name
        predictor.signature = _with_history(predictor.signature, field, strict)


def _let_hear(predictor: Any) -> None:
    if not isinstance(predictor, HistoryAwarePredictor):
        predictor.__class__ = _hearing(predictor.__class__)


@cache
def _hearing(kind: type) -> type:
    return type(kind.__name__, (HistoryAwarePredictor, kind), {"__module__": kind.__module__})


def history_field(signature: Any) -> str | None:
    """The field of a signature that holds a history."""
    for name, field in signature.input_fields.items():
        if field.annotation is History:
            return name
    return None


def _with_history(signature: Any, field: str, strict: bool) -> Any:
    if history_field(signature) is not None:
        return signature
    for name, one in signature.input_fields.items():
        if is_history_type(one.annotation):  # DSPy knows a history only by its very class
            return signature.with_updated_fields(name, type_=History)
    taken = signature.fields.get(field)
    if taken is None:
        return signature.prepend(field, dspy.InputField(desc="The conversation so far."), History)
    if strict:
        raise ValidationError(
            f"The field {field!r} of {signature.__name__} is a {taken.annotation}, not a "
            f"dspy.History; annotate it so, or choose another history_field."
        )
    _log.warning(
        "The field %r of %s is a %s, not a dspy.History, so its predictor is sent no history; "
        "annotate it so, or choose another history_field.",
        field,
        signature.__name__,
        taken.annotation,
    )
    return signature
