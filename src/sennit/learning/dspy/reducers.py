"""History reducers: they shorten the history that a predictor is sent.

A reducer is called just before a predictor, with the entries that would be sent to it. The turns
and the histories stored with them stay whole: undo, forks and stored sessions work as without it,
and an example for an optimizer is reduced again, by the same rule, when it is replayed.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol, TypeAlias, cast

from sennit.errors import InvalidTypeError, ValidationError, short_repr
from sennit.learning.dspy.dspy_imports import BLOCK_START, dspy
from sennit.learning.dspy.history import Fields, HistoryEntry
from sennit.learning.dspy.plain_values import fields_as_text, plain_fields, without_blocks
from sennit.services.models.usage import tokens_of_chars

_MEDIA_TOKENS = 1_000  # of an image, recording or file, roughly
_MAX_SUMMARIES = 1_024
_ASKED = "Summarize our conversation so far."

_log = logging.getLogger(__name__)

TokenCounter: TypeAlias = Callable[[str], int]
"""Returns the tokens of a text."""


class HistoryReducer(Protocol):
    """A function that returns the history entries to send in place of others."""

    def __call__(self, entries: list[HistoryEntry], fields: Fields, /) -> Sequence[HistoryEntry]:
        """Return the entries to send; `fields` names the inputs and outputs of the predictor."""
        ...


def parse_reducers(value: Any) -> tuple[HistoryReducer, ...]:
    """Return the reducers in an option: none, one, or several; raises InvalidTypeError."""
    if value is None:
        return ()
    reducers = [value] if callable(value) else value
    if not isinstance(reducers, Iterable) or not all(
        callable(reduce) for reduce in cast("Iterable[Any]", reducers)
    ):
        raise InvalidTypeError(
            f"history_reducer must be a function of entries and fields such as "
            f"TokenBudget(2_000), or a list of these, got {short_repr(value)}."
        )
    return tuple(cast("Iterable[HistoryReducer]", reducers))


def _estimate(text: str) -> int:
    return tokens_of_chars(len(text))


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """A reducer that keeps the latest turns, as many as fit a number of tokens."""

    tokens: int
    """The maximum number of tokens of the history."""
    count: TokenCounter = _estimate
    """Counts the tokens of a text; the default estimates them from its length."""

    def __post_init__(self) -> None:
        _require_tokens(self.tokens, 0)

    def __call__(self, entries: list[HistoryEntry], _fields: Fields) -> list[HistoryEntry]:
        """Return the latest entries that fit."""
        first, free = len(entries), self.tokens
        while first and (free := free - _cost(_text(entries[first - 1]), self.count)) >= 0:
            first -= 1
        return entries[first:]


@dataclass(frozen=True, slots=True)
class RecentMedia:
    """A reducer that sends images, recordings and files only with the latest turns.

    In earlier ones a text such as "[image]" takes their place.
    """

    turns: int = 1
    """The number of turns that keep them."""

    def __post_init__(self) -> None:
        if isinstance(cast("Any", self.turns), bool) or self.turns < 0:
            raise ValidationError(f"turns must be at least 0, got {short_repr(self.turns)}.")

    def __call__(self, entries: list[HistoryEntry], _fields: Fields) -> list[HistoryEntry]:
        """Return the entries, the earlier ones without media."""
        first = max(0, len(entries) - self.turns)
        return [*map(_without_media, entries[:first]), *entries[first:]]


class Summarize:
    """A reducer that replaces the oldest turns by a summary once they exceed a number of tokens.

    A quarter of the tokens is for the summary. When the turns exceed the rest, the summary takes
    in all but the latest, which keep half of it; so a summary is written once in many turns, and
    the prompts in between begin alike. Summaries are kept in memory only: after a restart they are
    written again. If the model fails, the turn goes on without a new summary; a warning says so.
    """

    def __init__(
        self,
        tokens: int,
        *,
        lm: Any = None,
        program: Any = None,
        count: TokenCounter = _estimate,
    ) -> None:
        """Summarize beyond `tokens`, with the model `lm`, by default the configured one.

        `program` is a DSPy program from `past_summary` and `conversation` to `summary`.
        """
        _require_tokens(tokens, 16)
        self.tokens, self._lm, self._count = tokens, lm, count
        words = tokens // 8
        self._program = program or dspy.Predict(
            dspy.Signature(
                "past_summary, conversation -> summary",
                "Summarize a conversation for the one who goes on with it. Keep names, numbers, "
                "wishes, decisions and open questions, from the past summary too. "
                f"Write at most {words} words.",
            )
        )
        self._summaries: OrderedDict[bytes, str] = OrderedDict()

    def __call__(self, entries: list[HistoryEntry], fields: Fields) -> list[HistoryEntry]:
        """Return the summary of the oldest entries, then the others."""
        texts = [_text(entry) for entry in entries]
        costs = [_cost(text, self._count) for text in texts]
        limit = self.tokens - self.tokens // 4
        summary, key, first, used = "", b"", 0, 0
        for index, cost in enumerate(costs):
            used += cost
            if used <= limit:
                continue
            stop, kept = self._split(costs, first, index, limit)
            key = sha256(key + "\n\n".join(texts[first:stop]).encode()).digest()
            try:
                summary = self._summary(key, summary, texts[first:stop])
            except Exception:
                _log.warning("The history could not be summarized; it is cut", exc_info=True)
                entries = TokenBudget(limit, self._count)(entries, fields)
                first = 0
                break
            first, used = stop, kept
        if not summary:
            return entries[first:]
        return [_summary_entry(summary, entries[-1], fields), *entries[first:]]

    @staticmethod
    def _split(costs: Sequence[int], first: int, last: int, limit: int) -> tuple[int, int]:
        """Return where the entries that stay begin, and their tokens."""
        stop, kept = last + 1, 0
        while stop > first and kept + costs[stop - 1] <= limit // 2:
            stop -= 1
            kept += costs[stop]
        if stop > last and costs[last] <= limit:  # a long entry alone
            return last, costs[last]
        return stop, kept

    def _summary(self, key: bytes, past: str, texts: Sequence[str]) -> str:
        """Return the summary of an earlier summary and texts, written once."""
        known = self._summaries.get(key)
        if known is not None:
            return known
        # An optimizer must not take the summary for a step of the program.
        with dspy.context(trace=None, **({} if self._lm is None else {"lm": self._lm})):
            written = self._program(past_summary=past, conversation="\n\n".join(texts))
        summary = str(written.summary)
        room = self.tokens // 4
        while summary and (size := self._count(summary)) > room:
            summary = summary[: min(len(summary) - 1, len(summary) * room // size)]
        self._summaries[key] = summary
        while len(self._summaries) > _MAX_SUMMARIES:
            self._summaries.popitem(last=False)
        return summary


def _summary_entry(summary: str, newest: HistoryEntry, fields: Fields) -> HistoryEntry:
    """Return a summary as an entry: an answer in the predictor's last output."""
    asked = [name for name in newest if name in fields.inputs][:1]
    answered = [name for name in newest if name in fields.outputs][-1:]
    return {**dict.fromkeys(asked, _ASKED), **dict.fromkeys(answered, summary)}


def _text(entry: HistoryEntry) -> str:
    return fields_as_text(plain_fields(entry))


def _cost(text: str, count: TokenCounter) -> int:
    media = text.count(BLOCK_START)
    return count(without_blocks(text) if media else text) + media * _MEDIA_TOKENS


def _without_media(entry: HistoryEntry) -> HistoryEntry:
    reduced = dict(entry)
    for name, plain in plain_fields(entry).items():
        if (shown := without_blocks(plain)) != plain:
            reduced[name] = shown
    return reduced


def _require_tokens(value: Any, minimum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidTypeError(f"tokens must be an int, got {short_repr(value)}.")
    if value < minimum:
        raise ValidationError(f"tokens must be at least {minimum}, got {value}.")
