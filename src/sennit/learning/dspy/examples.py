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
from sennit.learning.labels import finite

_log = logging.getLogger(__name__)


def example_of(turn: Turn, history_field: str | None, types: FieldTypes) -> Any:
    """A turn as a dspy.Example, with its history as an input where a field is named for it.

    An Example holds one value per name. Where an output is named like an input it is that of the
    input, or a program would be asked what it answered.
    """
    past = {} if history_field is None else {history_field: turn.history_snapshot}
    asked = {**types.restored(turn.inputs), **past}
    outputs = types.restored(turn.outputs)
    said = {name: one for name, one in outputs.items() if name not in asked}
    # As a dict: given by keywords, a field named "base" would be taken for another argument.
    return Example({**asked, **said}).with_inputs(*asked)


def lost_labels(turns: Iterable[Turn]) -> set[str]:
    """Name the outputs that examples cannot hold, because an input has the name."""
    return {name for turn in turns for name in turn.outputs if _differs(turn, name)}


def _differs(turn: Turn, name: str) -> bool:
    if name not in turn.inputs:
        return False
    asked, said = turn.inputs[name], turn.outputs[name]
    try:
        return asked is not said and not bool(asked == said)
    except Exception:  # arrays and the like are not compared as one
        return True


@dataclass(frozen=True, slots=True)
class Judge:
    """A metric that is asked about turns."""

    metric: Callable[..., Any]
    history_field: str
    types: FieldTypes
    zero_on_error: bool

    @property
    def name(self) -> str:
        """The name its labels are under."""
        return getattr(self.metric, "__name__", type(self.metric).__name__)

    def score(self, turn: Turn, gold: Any = None) -> float:
        """Ask the metric about a turn, compared with `gold`, or else with the turn itself.

        A metric that fails raises what it raised, or counts as 0 and is logged.
        """
        try:
            expected = gold
            if gold is None:
                expected = example_of(turn, self.history_field, self.types)
            said = Prediction(self.types.restored(turn.outputs))
            return finite(float(_asked(self.metric, expected, said)))
        except Exception:
            if not self.zero_on_error:
                raise
            _log.warning(
                "The metric %r failed on turn %d, which counts as 0.",
                self.name,
                turn.index,
                exc_info=True,
            )
            return 0.0


def _asked(metric: Callable[..., Any], expected: Any, prediction: Any) -> Any:
    """Call a metric as DSPy does, with a trace of None if it takes one.

    Some optimisers have metrics of five parameters, of which the last three may be None.
    """
    given = (expected, prediction, None, None, None)
    for count in (3, 2, 5):
        try:
            signature(metric).bind(*given[:count])
        except TypeError:
            continue
        except ValueError:  # built in, without a signature
            break
        return metric(*given[:count])
    return metric(*given[:3])


def good_enough(
    turns: Iterable[Turn],
    score: Callable[[Turn], float | None],
    min_score: float | None,
    *,
    strict: bool,
) -> list[Turn]:
    """The turns that reach a score; `strict` stops at the first that does not."""
    if min_score is None:
        return list(turns)
    found: list[Turn] = []
    for turn in turns:
        reached = score(turn)
        if reached is not None and reached >= min_score:
            found.append(turn)
        elif strict:
            break
    return found
