"""The history of a program, recorded once and read by position.

What every turn adds to the history is told once, as one dict at the end of one growing list. The
history a call sees is a stretch of that list, and a turn remembers which: two numbers, however long
the conversation. A stretch becomes a `dspy.History` when someone looks at it.

The list only grows. Whoever takes turns back, or lets old ones go, continues with a new one, so a
turn that was taken back still knows its past.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, cast

from pydantic import model_serializer

from sennit.errors import InvalidTypeError, shown
from sennit.learning.dspy.dspy_imports import History

Told: TypeAlias = dict[str, Any]


class HistorySpan(NamedTuple):
    """A stretch of what was told, and what was known before anything was."""

    told: list[Told]
    start: int
    stop: int
    known: Sequence[Told] = ()
    """What it holds of the history that the conversation began with."""
    gone: int = 0
    """How much had been told, and let go, before the list begins."""

    def messages(self) -> list[Told]:
        """Return the history entries of the span."""
        return [*self.known, *self.told[self.start : self.stop]]


class HistorySnapshot(History):  # pyright: ignore[reportUntypedBaseClass]
    """A history that is read from what was told when someone looks at it."""

    @classmethod
    def of(cls, span: HistorySpan) -> Any:
        """The history in a stretch, not read yet."""
        made = cls.model_construct()
        object.__setattr__(made, "_span", span)
        return made

    def __getattr__(self, name: str) -> Any:
        if name != "messages":
            return super().__getattr__(name)  # pyright: ignore
        span = cast("HistorySpan", object.__getattribute__(self, "_span"))
        # Copies, so that nobody changes what was told through a history they look at.
        found = self.__dict__["messages"] = [dict(one) for one in span.messages()]
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self.messages == cast("Any", other).messages

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"History(messages={self.messages!r})"

    __str__ = __repr__

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Any:
        return History(messages=self.messages).__deepcopy__(memo)

    @model_serializer(mode="plain")
    def _written(self) -> dict[str, Any]:
        return {"messages": self.messages}


def history_from(given: Any) -> list[Told]:
    """The messages of a history that a caller gave: a History, its dict, or a list of dicts."""
    messages: Any = given.messages if isinstance(given, History) else given
    if isinstance(messages, Mapping):
        messages = cast("Mapping[str, Any]", messages).get("messages")
    if not isinstance(messages, (list, tuple)) or not all(
        isinstance(one, Mapping) for one in cast("Iterable[Any]", messages)
    ):
        raise InvalidTypeError(
            f"A history is a dspy.History, or a list of dicts such as "
            f"[{{'question': '...', 'answer': '...'}}], got {shown(given)}."
        )
    return [dict(one) for one in cast("Sequence[Mapping[str, Any]]", messages)]


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a predictor, without its history."""

    inputs: frozenset[str]
    outputs: frozenset[str]
    optional: frozenset[str] = frozenset()
    """The outputs of which None is a value."""

    def fit(
        self, told: Told, said: Mapping[str, Any], asked: AbstractSet[str] = frozenset()
    ) -> Told | None:
        """Return a turn as this predictor hears it; None if it has none of its outputs.

        Outputs that the turn lacks stay missing, as do those that are None without being
        optional. `said` is what this very predictor said in that turn; it supplies outputs that
        the program as a whole did not return, such as the reasoning, and what it was asked where
        the program has other inputs. `asked` names the inputs of
        the turn. A turn with no input of this predictor is heard only for outputs of its own.
        """
        filled = {**said, **told} if said else told
        unset = {one for one in self.outputs - self.optional if filled.get(one, self) is None}
        found = (self.outputs & filled.keys()) - unset
        if not found:
            return None
        if self.inputs.isdisjoint(filled) and not (found & told.keys()) - asked:
            return None
        return {name: one for name, one in filled.items() if name not in unset} if unset else filled
