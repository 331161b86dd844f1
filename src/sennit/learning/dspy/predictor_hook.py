"""Predictor hook that adds the history of the active call to each prediction.

The hook is a mixin added to the predictor's class, not a function set on the instance, so copies
have it too: whatever an optimizer does to copies (demonstrations, instructions, models) reaches the
prompt.

The active call is stored in DSPy's settings, which DSPy passes on to its worker threads. A thread
that a program starts by itself has no such settings. If the program serves only one conversation,
the single active call whose session contains the predictor is used. If it serves several, the
thread may belong to another conversation, so the predictor is sent no history.

A turn may lack an output of the predictor: it was said by another program, added by hand, or a
field of it is excluded from the history. DSPy's adapters write "None" (or null) for a missing
output, which teaches the model to answer so. Such a turn is formatted with a signature that has
only the outputs the turn has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cache
from itertools import groupby
from types import NoneType
from typing import Any, NamedTuple, TypeVar, cast, get_args

from sennit.errors import ValidationError
from sennit.learning.dspy.call import SessionCall
from sennit.learning.dspy.dspy_imports import Adapter, History, dspy
from sennit.learning.dspy.history import Fields
from sennit.learning.dspy.modules import is_history_type

_CALL_SETTING = "sennit_call"
_NODE_ATTRIBUTE = "_sennit_node"
_NODES_SETTING = "sennit_nodes"

_R = TypeVar("_R")

_log = logging.getLogger(__name__)
_active_calls: list[SessionCall] = []


class HistoryAwarePredictor:
    """A mixin for predictor classes that adds the history to each call."""

    def forward(self, **kwargs: Any) -> Any:
        """Predict with the history of the active call, unless the caller passes another one."""
        prepared = _prepare(self, kwargs)
        with node_context(self, prepared.adapter):
            prediction = cast("Any", super()).forward(**prepared.kwargs)
        return prepared.record(prediction)

    async def aforward(self, **kwargs: Any) -> Any:
        """Predict like `forward`, without blocking the event loop on the store."""
        call = _active_call_of(self)
        prepared = await _run_off_loop(call, _prepare, self, kwargs)
        with node_context(self, prepared.adapter):
            prediction = await cast("Any", super()).aforward(**prepared.kwargs)
        return await _run_off_loop(call, prepared.record, prediction)


def _identity(prediction: Any) -> Any:
    return prediction


class _PreparedCall(NamedTuple):
    """The arguments of a predictor call, and what to do after it."""

    kwargs: dict[str, Any]
    record: Callable[[Any], Any] = _identity
    """Records the prediction and returns it."""
    adapter: Any = None
    """The adapter to use; None for the configured one."""


def _prepare(predictor: Any, kwargs: dict[str, Any]) -> _PreparedCall:
    call = _active_call_of(predictor)
    signature = kwargs.get("signature", predictor.signature)
    field = history_field(signature)
    if field is None:
        return _PreparedCall(kwargs)
    if field in kwargs and (call is None or not call.is_own_history(kwargs[field])):
        return _PreparedCall(kwargs)  # the program passed a history of its own
    if call is None:
        return _PreparedCall({**kwargs, field: History(messages=[])})
    node: str = predictor.__dict__[_NODE_ATTRIBUTE]
    fields = signature_fields(signature)

    def record(prediction: Any) -> Any:
        inputs = {name: kwargs[name] for name in signature.input_fields if name in kwargs}
        inputs.pop(field, None)
        outputs = {name: prediction[name] for name in signature.output_fields if name in prediction}
        call.record(node, inputs, outputs)
        return prediction

    history = call.history_for(node, fields)
    arguments = {**kwargs, field: history}
    if memory := call.memory_for(node):
        instructions = f"{signature.instructions}\n\nWhat you remember:\n{memory}"
        arguments["signature"] = signature.with_instructions(instructions)
    if not _is_incomplete(history.messages, fields.outputs):
        return _PreparedCall(arguments, record)
    configured = dspy.settings.adapter or dspy.ChatAdapter()
    return _PreparedCall(arguments, record, _omitting_missing_outputs(configured))


def _is_incomplete(messages: Sequence[Mapping[str, Any]], outputs: frozenset[str]) -> bool:
    """Return whether a message of a history lacks one of these outputs."""
    return any(not outputs <= message.keys() for message in messages)


def _omitting_missing_outputs(adapter: Any) -> Any:
    """Copy an adapter so that it leaves missing outputs out of the history's messages.

    An adapter that is not a `dspy.Adapter` formats histories in its own way and is returned as
    it is.
    """
    if not isinstance(adapter, Adapter):
        return adapter
    copied: Any = copy(adapter)

    def format_conversation_history(
        signature: Any, history_field_name: str, inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        history = inputs.pop(history_field_name, None)

        def missing(message: Mapping[str, Any]) -> frozenset[str]:
            return frozenset(signature.output_fields) - message.keys()

        formatted: list[dict[str, Any]] = []
        for absent, messages in groupby([] if history is None else history.messages, missing):
            reduced = signature
            for name in absent:
                reduced = reduced.delete(name)
            part = {history_field_name: History.model_construct(messages=list(messages))}
            formatted += adapter.format_conversation_history(reduced, history_field_name, part)
        return formatted

    def json_fallback() -> Any:
        return _omitting_missing_outputs(adapter._make_json_adapter_fallback())

    copied.format_conversation_history = format_conversation_history
    # The adapter that ChatAdapter tries when an answer cannot be parsed.
    copied._make_json_adapter_fallback = json_fallback
    return copied


def signature_fields(signature: Any) -> Fields:
    """Return the fields of a signature without its history field."""
    outputs = signature.output_fields
    return Fields(
        frozenset(signature.input_fields) - {history_field(signature)},
        frozenset(outputs),
        frozenset(name for name, field in outputs.items() if _allows_none(field.annotation)),
    )


def _allows_none(annotation: Any) -> bool:
    return annotation in (Any, None, NoneType) or NoneType in get_args(annotation)


async def _run_off_loop(call: SessionCall | None, work: Callable[..., _R], *args: Any) -> _R:
    return work(*args) if call is None else await call.run_off_loop(work, *args)


def _active_call_of(predictor: Any) -> SessionCall | None:
    if (call := current_call()) is not None:
        return call
    owners = [active for active in list(_active_calls) if active.holds(predictor)]
    if len(owners) == 1 and owners[0].is_exclusive:
        return owners[0]
    if owners:
        _log.warning(
            "The predictor %r runs in a thread without DSPy's settings, so its conversation is "
            "unknown and it is sent no history. Start the thread with dspy.Parallel, or run it in "
            "contextvars.copy_context().",
            predictor.__dict__[_NODE_ATTRIBUTE],
        )
    return None


@contextmanager
def call_context(call: SessionCall) -> Generator[None]:
    """Make a call the active one inside the block."""
    with dspy.context(**{_CALL_SETTING: call, _NODES_SETTING: ()}):
        _active_calls.append(call)
        try:
            yield
        finally:
            _active_calls.remove(call)


def node_context(predictor: Any, adapter: Any = None) -> Any:
    """Return a context in which a predictor is the active node, with another adapter if given."""
    node: str = predictor.__dict__[_NODE_ATTRIBUTE]
    adapter_setting = {} if adapter is None else {"adapter": adapter}
    return dspy.context(**{_NODES_SETTING: (*active_nodes(), node)}, **adapter_setting)


def active_nodes() -> tuple[str, ...]:
    """Return the names of the running predictors, innermost last."""
    return dspy.settings.get(_NODES_SETTING) or ()


def current_call() -> SessionCall | None:
    """Return the active call; None if there is none."""
    return dspy.settings.get(_CALL_SETTING)


def attach_history(program: Any, field: str, *, strict: bool) -> None:
    """Send history to all predictors of a program.

    With `strict`, raises ValidationError if the field exists with a type that is not a history.
    """
    for name, predictor in program.named_predictors():
        if HistoryAwarePredictor not in predictor.__class__.__mro__:
            predictor.__class__ = _history_aware(predictor.__class__)
        predictor.__dict__[_NODE_ATTRIBUTE] = name
        predictor.signature = _with_history_field(predictor.signature, field, strict)


@cache
def _history_aware(kind: type) -> type:
    return type(kind.__name__, (HistoryAwarePredictor, kind), {"__module__": kind.__module__})


def history_field(signature: Any) -> str | None:
    """Return the name of the history field of a signature; None if it has none."""
    for name, field in signature.input_fields.items():
        if field.annotation is History:
            return name
    return None


def _with_history_field(signature: Any, field: str, strict: bool) -> Any:
    if history_field(signature) is not None:
        return signature
    for name, input_field in signature.input_fields.items():
        if is_history_type(input_field.annotation):  # DSPy recognizes only this exact class
            return signature.with_updated_fields(name, type_=History)
    existing = signature.fields.get(field)
    if existing is None:
        return signature.prepend(field, dspy.InputField(desc="The conversation so far."), History)
    if strict:
        raise ValidationError(
            f"The field {field!r} of {signature.__name__} is a {existing.annotation}, not a "
            f"dspy.History; change its annotation, or choose another history_field."
        )
    _log.warning(
        "The field %r of %s is a %s, not a dspy.History, so its predictor is sent no history; "
        "change its annotation, or choose another history_field.",
        field,
        signature.__name__,
        existing.annotation,
    )
    return signature
