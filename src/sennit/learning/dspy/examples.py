"""DSPy examples and metric scores from turns."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from inspect import signature
from typing import Any

from sennit.learning.dspy.dspy_imports import Example, Prediction
from sennit.learning.dspy.turn import Turn
from sennit.learning.dspy.types import FieldTypes
from sennit.learning.labels import finite_score

_log = logging.getLogger(__name__)


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
