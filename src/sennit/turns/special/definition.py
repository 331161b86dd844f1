"""Definitions of special turns, persistence strategies and interaction filters.

A special turn is a value: what the model sees, which one is asked, and what is kept of it on the
branch. How one is carried out is in `aside`; it leaves no trace but what it keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any

from sennit.errors import InvalidTypeError, ValidationError, short_repr
from sennit.messages.content import InstructionContent, SystemContent
from sennit.messages.message import Message, MessageRole
from sennit.services.models.limits.validators import not_negative
from sennit.services.models.protocol import Model
from sennit.services.models.request import MessageInput
from sennit.turns.options import SessionOptions

KINDS = ("system", "user", "assistant", "tool", "context")
"""What a filter tells apart: the roles, and what is context alone."""


class PersistenceStrategy(Enum):
    """The strategy for keeping the result of a special turn."""

    PERSIST_RESULT = "persist_result"
    """The answer."""
    PERSIST_ALL = "persist_all"
    """All that was said in it: its instruction, tool calls and their results, the answer."""
    EPHEMERAL = "ephemeral"
    """Nothing."""
    REPLACE_ABOVE = "replace_above"
    """The answer, in place of all that stood above; that goes to a branch of its own."""


class _FilterMethod:
    """A method of a filter that also begins a new one when it is called on the class."""

    def __init__(self, method: Callable[..., InteractionFilter]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(
        self, instance: InteractionFilter | None, owner: type[InteractionFilter]
    ) -> Callable[..., InteractionFilter]:
        return partial(self._method, owner() if instance is None else instance)


@dataclass(frozen=True, slots=True)
class InteractionFilter:
    """Chooses messages by kind: "system", "user", "assistant", "tool" or "context".

    InteractionFilter.allow("user", "assistant").block("assistant")    # the user's alone
    """

    allowed: frozenset[str] | None = None
    """The kinds that pass; None for all."""
    blocked: frozenset[str] = frozenset()
    """The kinds that do not pass, allowed or not."""

    @_FilterMethod
    def allow(self, *kinds: str | MessageRole) -> InteractionFilter:
        """Let these pass, and no others but those allowed before."""
        return InteractionFilter((self.allowed or frozenset()) | _kinds(kinds), self.blocked)

    @_FilterMethod
    def block(self, *kinds: str | MessageRole) -> InteractionFilter:
        """Let these not pass, even if they are allowed."""
        return InteractionFilter(self.allowed, self.blocked | _kinds(kinds))

    @classmethod
    def default(cls) -> InteractionFilter:
        """All but system messages."""
        return cls(None, frozenset({"system"}))

    @classmethod
    def preserve_system_context(cls) -> InteractionFilter:
        """System messages and contexts."""
        return cls(frozenset({"system", "context"}))

    @classmethod
    def allow_all(cls) -> InteractionFilter:
        """Everything."""
        return cls()

    def passes(self, message: Message) -> bool:
        """Return whether a message is chosen; what is blocked is not, even if it is allowed."""
        kind = kind_of(message)
        return kind not in self.blocked and (self.allowed is None or kind in self.allowed)


def kind_of(message: Message) -> str:
    """Return the kind of a message for filters; contexts are instructions without text."""
    content = message.content
    if isinstance(content, InstructionContent) and not (content.instruction or content.images):
        return "context"
    return content.role.value


def _kinds(kinds: tuple[str | MessageRole, ...]) -> frozenset[str]:
    names = frozenset(kind.value if isinstance(kind, MessageRole) else kind for kind in kinds)
    if unknown := [name for name in names if name not in KINDS]:
        raise ValidationError(
            f"A filter has no kind {short_repr(unknown[0])}; there are {', '.join(KINDS)}."
        )
    return names


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecialTurn:
    """A question beside the conversation. What is None is as in the conversation."""

    name: str = "special"
    """What its messages are marked with, as `metadata["special_turn"]`."""
    instruction: str | None = None
    """What is asked, after all it sees."""
    interactions: Sequence[MessageInput] | None = None
    """What it sees instead of the conversation."""
    sees: InteractionFilter = field(default_factory=InteractionFilter.allow_all)
    """What it sees of the conversation."""
    provider: str | None = None
    """Who is asked: the name of a model, or with `model` what stands before the colon in it."""
    model: str | Model | None = None
    """The model that is asked: a registered name, or an object."""
    tools: Iterable[Any] | None = None
    """The tools it may call; () for none."""
    context: Sequence[Any] | None = None
    """What is added to the prompt instead of what context providers give; () for nothing."""
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Params of the model that are not as in the conversation; None unsets one."""
    options: SessionOptions = field(default_factory=SessionOptions)
    """How far it may go; a special turn is never summarised."""
    timeout: float | None = None
    """The most seconds it may take."""
    strategy: PersistenceStrategy = PersistenceStrategy.PERSIST_RESULT
    """What it leaves on the branch."""
    filter: InteractionFilter | None = None
    """Which of its messages are kept, by default all but system messages. With REPLACE_ABOVE, which
    messages above stay, by default contexts; the system message is the branch's own and stays."""

    def __post_init__(self) -> None:
        for name, kind in _TYPES.items():
            if not isinstance(value := getattr(self, name), kind):
                raise InvalidTypeError(f"{name} of a special turn cannot be {short_repr(value)}.")
        if self.timeout is not None:
            not_negative(self.timeout, "timeout")
        if isinstance(self.interactions, str):
            raise InvalidTypeError("interactions is a list; a text alone goes into instruction.")

    @property
    def model_name(self) -> str | Model | None:
        """The model that is asked, if it is not the conversation's."""
        if self.provider is not None and isinstance(self.model, str):
            return f"{self.provider}:{self.model}"
        return self.provider if self.model is None else self.model

    @property
    def chosen(self) -> InteractionFilter:
        """The filter, or what it is by default."""
        if self.filter is not None:
            return self.filter
        if self.strategy is PersistenceStrategy.REPLACE_ABOVE:
            return InteractionFilter.preserve_system_context()
        return InteractionFilter.default()


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

_NO_OUTPUT_LIMITS = {"max_tokens": None, "stop": None}  # limits on answers are not meant for these


def greeting(system_prompt: str | None = None, **overrides: Any) -> SpecialTurn:
    """A turn in which the model greets; it sees the system message alone, or `system_prompt`.

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


def summarize(instruction: str = _SUMMARY_PROMPT, **overrides: Any) -> SpecialTurn:
    """A turn whose answer stands for all that was said above it, but for an unfinished turn.

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
    """Makes greetings."""

    @staticmethod
    def create(provider_or_model: str | Model, system_prompt: str | None = None) -> SpecialTurn:
        """A greeting by a registered model, or a model object; see `greeting`."""
        return greeting(system_prompt, model=provider_or_model)
