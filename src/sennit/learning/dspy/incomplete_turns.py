"""Prompts for histories whose turns lack some outputs of the predictor.

A turn may lack an output: it was said by another program, added by hand, or a field of it is
excluded from the history. DSPy's adapters write "None" (or null) for a missing output, which
teaches the model to answer so. The adapter returned here formats such a turn with a signature
that has only the outputs the turn has. The adapter's class stays the same, because DSPy's
streaming listeners and callbacks go by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from itertools import groupby
from typing import Any

from sennit.learning.dspy.dspy_imports import Adapter, History


def is_incomplete(messages: Sequence[Mapping[str, Any]], outputs: frozenset[str]) -> bool:
    """Return whether a message of a history lacks one of these outputs."""
    return any(not outputs <= message.keys() for message in messages)


def omitting_missing_outputs(adapter: Any) -> Any:
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
        return omitting_missing_outputs(adapter._make_json_adapter_fallback())

    copied.format_conversation_history = format_conversation_history
    # The adapter that ChatAdapter tries when an answer cannot be parsed.
    copied._make_json_adapter_fallback = json_fallback
    return copied
