"""DSPy examples and metric scores from turns.

A turn read from a store or a file holds plain data: the fields of a model, the value of an enum,
the text of a date. Metrics and examples expect the types of the program's signatures, so values are
converted back to these. Images and other block types stay the text that DSPy sends: constructed
from a text, they would read the file of that name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from inspect import signature
from typing import Any, get_args

from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticUserError

from sennit.learning.dspy.dspy_imports import BlockType, Example, Prediction
from sennit.learning.dspy.history import Turn
from sennit.learning.labels import finite_score

_log = logging.getLogger(__name__)
_JSON_TYPES = (str, int, float, bool, list, dict, Any)


class FieldTypes:
    """The types of fields by name; a name used with several types has none."""

    def __init__(self, program: Any) -> None:
        annotations: dict[str, list[Any]] = {}
        for predictor in program.predictors():
            for name, field in predictor.signature.fields.items():
                annotations.setdefault(name, []).append(field.annotation)
        self._types = {
            name: types[0]
            for name, types in annotations.items()
            if all(other == types[0] for other in types)
            and types[0] not in _JSON_TYPES
            and not _contains_block_type(types[0], set())
        }
        self._adapters: dict[str, TypeAdapter[Any] | None] = {}

    def restore(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values, each converted to the type of its field where possible."""
        return {name: self._restore_value(name, value) for name, value in values.items()}

    def _restore_value(self, name: str, value: Any) -> Any:
        adapter = self._adapter(name)
        for strict in (True, False):  # a value that has the type already stays as it is
            if adapter is not None:
                with suppress(Exception):  # custom validators may raise anything
                    restored = adapter.validate_python(value, strict=strict)
                    return value if strict else restored
        return value

    def _adapter(self, name: str) -> TypeAdapter[Any] | None:
        if name in self._types and name not in self._adapters:
            try:
                self._adapters[name] = TypeAdapter(self._types[name])
            except PydanticUserError:  # a type that pydantic does not support
                self._adapters[name] = None
        return self._adapters.get(name)


def _contains_block_type(annotation: Any, seen: set[int]) -> bool:
    """Return whether a type is, or contains, one that DSPy sends as a content block."""
    if id(annotation) in seen:
        return False
    seen.add(id(annotation))
    if isinstance(annotation, type) and issubclass(annotation, BlockType):
        return True
    nested = list(get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        nested += [field.annotation for field in annotation.model_fields.values()]
    return any(_contains_block_type(inner, seen) for inner in nested)


def example_of(turn: Turn, history_field: str | None, types: FieldTypes) -> Any:
    """Return a turn as a dspy.Example, with its history as an input if a field name is given.

    An Example has one value per name. If an output is named like an input, the input wins, because
    otherwise the program would be called with its own answer.
    """
    history = {} if history_field is None else {history_field: turn.history_snapshot}
    inputs = {**types.restore(turn.inputs), **history}
    outputs = types.restore(turn.outputs)
    labels = {name: value for name, value in outputs.items() if name not in inputs}
    # As a dict: passed by keyword, a field named "base" would bind to Example's parameter.
    return Example({**inputs, **labels}).with_inputs(*inputs)


def hidden_outputs(turns: Iterable[Turn]) -> set[str]:
    """Return the names of outputs that examples lack because an input has the same name."""
    return {name for turn in turns for name in turn.outputs if _differs(turn, name)}


def _differs(turn: Turn, name: str) -> bool:
    if name not in turn.inputs:
        return False
    input_value, output_value = turn.inputs[name], turn.outputs[name]
    try:
        return input_value is not output_value and not bool(input_value == output_value)
    except Exception:  # arrays, for example, have no single truth value
        return True


@dataclass(frozen=True, slots=True)
class Judge:
    """A metric that scores turns."""

    metric: Callable[..., Any]
    history_field: str
    types: FieldTypes
    zero_on_error: bool

    @property
    def name(self) -> str:
        """The name of the metric, used as the judge of its labels."""
        return getattr(self.metric, "__name__", type(self.metric).__name__)

    def score(self, turn: Turn, gold: Any = None) -> float:
        """Score a turn against `gold`, by default against the turn itself.

        If the metric raises, the error is raised again or, with `zero_on_error`, logged and scored
        as 0.
        """
        try:
            expected = gold
            if gold is None:
                expected = example_of(turn, self.history_field, self.types)
            prediction = Prediction(self.types.restore(turn.outputs))
            return finite_score(float(_call_metric(self.metric, expected, prediction)))
        except Exception:
            if not self.zero_on_error:
                raise
            _log.warning(
                "The metric %r failed on turn %d, which is scored as 0.",
                self.name,
                turn.index,
                exc_info=True,
            )
            return 0.0


def _call_metric(metric: Callable[..., Any], expected: Any, prediction: Any) -> Any:
    """Call a metric as DSPy does, with a trace of None if it takes one.

    Metrics of some optimizers have five parameters, of which the last three may be None.
    """
    arguments = (expected, prediction, None, None, None)
    for count in (3, 2, 5):
        try:
            signature(metric).bind(*arguments[:count])
        except TypeError:
            continue
        except ValueError:  # a builtin without a signature
            break
        return metric(*arguments[:count])
    return metric(*arguments[:3])


def filter_by_score(turns: Iterable[Turn], min_score: float | None, *, strict: bool) -> list[Turn]:
    """Return the turns that reach `min_score`; `strict` stops at the first that does not."""
    if min_score is None:
        return list(turns)
    passing: list[Turn] = []
    for turn in turns:
        if turn.score is not None and turn.score >= min_score:
            passing.append(turn)
        elif strict:
            break
    return passing
