"""Definitions of special turns, persistence strategies and interaction filters.

A special turn is a value: the prompt, the model, and what is kept of it on the branch.
`special.run` executes it; nothing else of it is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any, TypedDict, Unpack

from sennit.errors import InvalidTypeError, ValidationError, did_you_mean, listed, short_repr
from sennit.messages.content import InstructionContent, SystemContent
from sennit.messages.json_values import plain_dict
from sennit.messages.message import Message, MessageRole
from sennit.numbers import not_negative
from sennit.services.models.protocol import Model
from sennit.services.models.request import MessageInput
from sennit.services.registry import ToolSource
from sennit.turns.context import ContextItem
from sennit.turns.options import SessionOptions

KINDS = ("system", "user", "assistant", "tool", "context")
"""The kinds that a filter distinguishes: the roles, and messages with context only."""


class PersistenceStrategy(Enum):
    """The strategy for keeping the result of a special turn."""

    PERSIST_RESULT = "persist_result"
    """Keep the answer."""
    PERSIST_ALL = "persist_all"
    """Keep all its messages: instruction, tool calls and results, answer."""
    EPHEMERAL = "ephemeral"
    """Keep nothing."""
    REPLACE_ABOVE = "replace_above"
    """Keep the answer in place of all earlier messages, which are moved to a branch of their own.
    """


class _FilterMethod:
    """A method of a filter that, called on the class, starts with an empty filter."""

    def __init__(self, method: Callable[..., InteractionFilter]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(
        self, instance: InteractionFilter | None, owner: type[InteractionFilter]
    ) -> Callable[..., InteractionFilter]:
        return partial(self._method, owner() if instance is None else instance)


@dataclass(frozen=True, slots=True)
class InteractionFilter:
    """A filter of messages by kind: "system", "user", "assistant", "tool" or "context".

    InteractionFilter.allow("user", "assistant").block("assistant")    # only the user's
    """

    allowed: frozenset[str] | None = None
    """The kinds that pass; None for all."""
    blocked: frozenset[str] = frozenset()
    """The kinds that do not pass, even if they are allowed."""

    @_FilterMethod
    def allow(self, *kinds: str | MessageRole) -> InteractionFilter:
        """Return a filter that allows these kinds too, and no others."""
        return InteractionFilter((self.allowed or frozenset()) | _kinds(kinds), self.blocked)

    @_FilterMethod
    def block(self, *kinds: str | MessageRole) -> InteractionFilter:
        """Return a filter that blocks these kinds, even if they are allowed."""
        return InteractionFilter(self.allowed, self.blocked | _kinds(kinds))

    @classmethod
    def default(cls) -> InteractionFilter:
        """Return a filter for everything but system messages."""
        return cls(None, frozenset({"system"}))

    @classmethod
    def preserve_system_context(cls) -> InteractionFilter:
        """Return a filter for system messages and contexts."""
        return cls(frozenset({"system", "context"}))

    @classmethod
    def allow_all(cls) -> InteractionFilter:
        """Return a filter for everything."""
        return cls()

    def passes(self, message: Message) -> bool:
        """Return whether a message passes; a blocked kind does not, even if it is allowed."""
        kind = kind_of(message)
        return kind not in self.blocked and (self.allowed is None or kind in self.allowed)


def kind_of(message: Message) -> str:
    """Return the kind of a message for filters; contexts are instructions without text."""
    content = message.content
    if isinstance(content, InstructionContent) and not (content.instruction or content.has_media):
        return "context"
    return content.role.value


def _kinds(kinds: tuple[str | MessageRole, ...]) -> frozenset[str]:
    names = frozenset(kind.value if isinstance(kind, MessageRole) else kind for kind in kinds)
    if unknown := [name for name in names if name not in KINDS]:
        raise ValidationError(
            f"A filter has no kind {short_repr(unknown[0])}; there are {listed(KINDS)}."
            f"{did_you_mean(unknown[0], KINDS)}"
        )
    return names


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecialTurn:
    """A request beside the conversation; fields that are None inherit from the conversation."""

    name: str = "special"
    """The name that its messages have in `metadata["special_turn"]`."""
    instruction: str | None = None
    """The instruction, which comes last in the prompt."""
    interactions: Sequence[MessageInput] | None = None
    """The messages to send instead of the conversation."""
    sees: InteractionFilter = field(default_factory=InteractionFilter.allow_all)
    """The filter for the messages of the conversation to send."""
    provider: str | None = None
    """The name of a model, or, if `model` is given, the part of its name before the colon."""
    model: str | Model | None = None
    """The model: a registered name or an object."""
    tools: Iterable[ToolSource] | None = None
    """The tools it may call; () for none."""
    context: Sequence[ContextItem | str] | None = None
    """The context items to add instead of those of the context providers; () for none."""
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Model parameters that differ from the conversation; None unsets one."""
    options: SessionOptions = field(default_factory=SessionOptions)
    """The limits of its run; a special turn is never summarised."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """JSON data for the metadata of its messages."""
    timeout: float | None = None
    """The time limit in seconds."""
    strategy: PersistenceStrategy = PersistenceStrategy.PERSIST_RESULT
    """What is kept on the branch."""
    filter: InteractionFilter | None = None
    """The filter for its messages to keep, by default all but system messages. With REPLACE_ABOVE,
    the filter for earlier messages that stay, by default contexts; the system message belongs to
    the branch and stays.
    """

    def __post_init__(self) -> None:
        for name, kind in _TYPES.items():
            if not isinstance(value := getattr(self, name), kind):
                raise InvalidTypeError(f"{name} of a special turn cannot be {short_repr(value)}.")
        if self.timeout is not None:
            not_negative(self.timeout, "timeout")
        object.__setattr__(self, "metadata", plain_dict(self.metadata, "metadata"))
        if isinstance(self.interactions, str):
            raise InvalidTypeError("interactions is a list; a text alone goes into instruction.")

    @property
    def model_name(self) -> str | Model | None:
        """The name of its model, if it is not that of the conversation."""
        if self.provider is not None and isinstance(self.model, str):
            return f"{self.provider}:{self.model}"
        return self.provider if self.model is None else self.model

    @property
    def chosen(self) -> InteractionFilter:
        """The filter, or the default of its strategy."""
        if self.filter is not None:
            return self.filter
        if self.strategy is PersistenceStrategy.REPLACE_ABOVE:
            return InteractionFilter.preserve_system_context()
        return InteractionFilter.default()


class SpecialTurnFields(TypedDict, total=False):
    """The fields of SpecialTurn except `instruction`, by name."""

    name: str
    """The name that its messages have in `metadata["special_turn"]`."""
    interactions: Sequence[MessageInput] | None
    """The messages to send instead of the conversation."""
    sees: InteractionFilter
    """The filter for the messages of the conversation to send."""
    provider: str | None
    """The name of a model, or the part of its name before the colon."""
    model: str | Model | None
    """The model: a registered name or an object."""
    tools: Iterable[ToolSource] | None
    """The tools it may call."""
    context: Sequence[ContextItem | str] | None
    """The context items to add."""
    params: Mapping[str, Any]
    """Model parameters that differ from the conversation."""
    options: SessionOptions
    """The limits of its run."""
    metadata: Mapping[str, Any]
    """JSON data for the metadata of its messages."""
    timeout: float | None
    """The time limit in seconds."""
    strategy: PersistenceStrategy
    """What is kept on the branch."""
    filter: InteractionFilter | None
    """The filter for its messages to keep."""


class GreetingFields(SpecialTurnFields, total=False):
    """The fields of SpecialTurn, by name."""

    instruction: str | None
    """The instruction, which comes last in the prompt."""


_NoneType = type(None)
_TYPES: Mapping[str, Any] = {
    "name": str,
    "instruction": (str, _NoneType),
    "sees": InteractionFilter,
    "provider": (str, _NoneType),
    "options": SessionOptions,
    "strategy": PersistenceStrategy,
    "filter": (InteractionFilter, _NoneType),
}

_GREETING_PROMPT = (
    "Greet the user, who has just joined and has said nothing yet, in one or two friendly "
    "sentences. Say what you can help with, if you know. Ask nothing else and call no tool."
)
_SUMMARY_PROMPT = (
    "Summarise the conversation above for yourself: you will go on with it from your summary "
    "alone. Keep what the user wants and has decided, facts, names, numbers, results of tools, and "
    "what is still open. Leave out greetings and detours. Answer with the summary and nothing else."
)

_NO_OUTPUT_LIMITS = {"max_tokens": None, "stop": None}  # limits on answers do not apply to them


def greeting(system_prompt: str | None = None, **overrides: Unpack[GreetingFields]) -> SpecialTurn:
    """Return a special turn in which the model greets; it sees only the system message or
    `system_prompt`.

    `overrides` are fields of SpecialTurn.
    """
    turn = SpecialTurn(
        name="greeting",
        instruction=_GREETING_PROMPT,
        sees=InteractionFilter.preserve_system_context(),
        tools=(),
        context=(),
        params=_NO_OUTPUT_LIMITS,
        timeout=60.0,
    )
    if system_prompt is not None:
        turn = replace(turn, interactions=(SystemContent(system_message=system_prompt),))
    return replace(turn, **overrides)


def summarize(
    instruction: str = _SUMMARY_PROMPT, **overrides: Unpack[SpecialTurnFields]
) -> SpecialTurn:
    """Return a special turn whose answer replaces all earlier messages except for an unfinished
    turn.

    `overrides` are fields of SpecialTurn.
    """
    turn = SpecialTurn(
        name="summary",
        instruction=instruction,
        tools=(),
        context=(),
        params=_NO_OUTPUT_LIMITS,
        timeout=300.0,
        strategy=PersistenceStrategy.REPLACE_ABOVE,
    )
    return replace(turn, **overrides)


class GreetingSpecialTurn:
    """A factory of greetings."""

    @staticmethod
    def create(provider_or_model: str | Model, system_prompt: str | None = None) -> SpecialTurn:
        """Return a greeting by a registered model or a model object; see `greeting`."""
        return greeting(system_prompt, model=provider_or_model)
