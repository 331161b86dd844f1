"""Names, positions and shapes of SmartHopper, in snake case, for Sennit's conversations.

    from sennit.compat.smarthopper import AIRequestCall, ConversationSession, SpecialTurnConfig

The classes are Sennit's own with further names. Observers also get `on_final` for a special turn
whose result is kept; tools are selected by patterns; filters and time limits have SmartHopper's
defaults. The page docs/coming-from/smarthopper.md shows both side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, cast

from sennit.errors import InvalidTypeError, ValidationError, short_repr
from sennit.ids import new_id
from sennit.messages.message import MessageRole
from sennit.services.models.protocol import Model
from sennit.services.models.request import MessageInput
from sennit.services.tools.tool import Tool
from sennit.sessions.branch import Branch
from sennit.turns.conversation import ConversationSession as _ConversationSession
from sennit.turns.events import RunEnded
from sennit.turns.observers import ConversationObserver, Observers, observer_warning
from sennit.turns.options import SessionOptions, StreamingOptions
from sennit.turns.request import Request
from sennit.turns.result import Notice, Return
from sennit.turns.special.definition import InteractionFilter as _InteractionFilter
from sennit.turns.special.definition import (
    PersistenceStrategy,
    SpecialTurn,
    greeting,
    summarize,
)

__all__ = [
    "AIRequestCall",
    "ConversationObserver",
    "ConversationSession",
    "GreetingSpecialTurn",
    "HistoryPersistenceStrategy",
    "InteractionFilter",
    "Return",
    "SessionOptions",
    "SpecialTurnConfig",
    "StreamingOptions",
    "SummarizeSpecialTurn",
    "filter_tools",
]

HistoryPersistenceStrategy = PersistenceStrategy
GREETING_TIMEOUT_SECONDS = 30.0
SUMMARY_TIMEOUT_SECONDS = 60.0


def filter_tools(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that a tool filter selects, in their order.

    A filter is a list of patterns with `*` and `?`, separated by commas or blanks; one that begins
    with "-" takes names out again, and the last that matches decides. "*" selects all, "-*" none,
    "* -delete_*" all but some.
    """
    if not isinstance(pattern, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidTypeError(f"A tool filter is a string, got {short_repr(pattern)}.")
    patterns = pattern.replace(",", " ").split()
    if not patterns:
        raise ValidationError("A tool filter is empty; use '*' for all tools, '-*' for none.")
    if patterns[0].startswith("-") and patterns[0] != "-*":
        patterns.insert(0, "*")
    return [name for name in names if _is_selected(name, patterns)]


def _is_selected(name: str, patterns: Sequence[str]) -> bool:
    selected = False
    for pattern in patterns:
        if fnmatchcase(name, pattern.removeprefix("-")):
            selected = not pattern.startswith("-")
    return selected


def AIRequestCall(
    branch: Branch, *, model: str | Model, tool_filter: str = "-*", **options: Any
) -> Request:
    """Return the request of a conversation with the tools of the session that a filter selects.

    Only tools that the branch was granted are considered. For the `options` see `Request.of`.
    """
    return Request.of(branch, model=model, tools=_granted(branch, tool_filter), **options)


def _granted(branch: Branch, tool_filter: str) -> list[str]:
    services = branch.session.services
    names = [name for name in services if isinstance(services.get(name), Tool)]
    return [name for name in filter_tools(tool_filter, names) if branch.may_use(name)]


class InteractionFilter(_InteractionFilter):
    """A filter whose default leaves out contexts as well as system messages."""

    __slots__ = ()

    @classmethod
    def default(cls) -> InteractionFilter:
        """Return a filter for the conversation only: user, assistant and tools."""
        return cls(None, frozenset({"system", "context"}))

    def with_allow(self, *kinds: str | MessageRole) -> InteractionFilter:
        """Return a filter that allows these kinds too, and no others."""
        more = self.allow(*kinds)
        return InteractionFilter(more.allowed, more.blocked)

    def with_block(self, *kinds: str | MessageRole) -> InteractionFilter:
        """Return a filter that blocks these kinds, even if they are allowed."""
        more = self.block(*kinds)
        return InteractionFilter(more.allowed, more.blocked)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecialTurnConfig:
    """A special turn in SmartHopper's terms; None inherits from the conversation."""

    override_interactions: Sequence[MessageInput] | None = None
    """The messages to send instead of the conversation."""
    override_provider: str | None = None
    """The name of a model, or, with `override_model`, the part before the colon."""
    override_model: str | Model | None = None
    override_tool_filter: str | None = None
    """The pattern of the tools it may call; see `filter_tools`."""
    process_tools: bool = True
    """Whether the tools that the model calls are run."""
    force_non_streaming: bool = False
    """Whether it runs without streaming, whatever the caller prefers."""
    timeout_ms: float | None = None
    persistence_strategy: PersistenceStrategy = PersistenceStrategy.PERSIST_RESULT
    """What is kept on the branch."""
    persistence_filter: _InteractionFilter | None = None
    """The filter for what is kept: by default the conversation, or, to replace, system messages and
    contexts.
    """
    turn_type: str = "special"
    """The name that its messages have in `metadata["special_turn"]`."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """JSON data for the metadata of its messages."""

    def on(self, request: Request) -> SpecialTurn:
        """Return the special turn for the conversation with this request."""
        pattern, tools = self.override_tool_filter, None
        if pattern is not None:
            granted = _granted(request.branch, pattern)
            own = [name for name in filter_tools(pattern, request.tools) if name not in granted]
            tools = [*granted, *(request.tools[name] for name in own)]
        kept = self.persistence_filter
        if kept is None and self.persistence_strategy is not PersistenceStrategy.REPLACE_ABOVE:
            kept = InteractionFilter.default()
        return SpecialTurn(
            name=self.turn_type,
            interactions=self.override_interactions,
            provider=self.override_provider,
            model=self.override_model,
            tools=tools,
            options=SessionOptions(process_tools=self.process_tools),
            timeout=None if self.timeout_ms is None else self.timeout_ms / 1000,
            strategy=self.persistence_strategy,
            filter=kept,
            metadata=self.metadata,
        )


class GreetingSpecialTurn:
    """A factory of greetings."""

    @staticmethod
    def create(provider_name: str | Model, system_prompt: str | None = None) -> SpecialTurn:
        """Return a greeting by a registered model or a model object, within 30 seconds."""
        return greeting(system_prompt, model=provider_name, timeout=GREETING_TIMEOUT_SECONDS)


class SummarizeSpecialTurn:
    """A factory of summaries."""

    @staticmethod
    def create(provider_name: str | Model | None = None) -> SpecialTurn:
        """Return a summary, by default by the conversation's model, within 60 seconds."""
        return summarize(model=provider_name, timeout=SUMMARY_TIMEOUT_SECONDS)


class ConversationSession(_ConversationSession):
    """A conversation with an observer by position, and special turns from a SpecialTurnConfig."""

    def __init__(
        self,
        request: Request,
        observer: ConversationObserver | Iterable[ConversationObserver] | None = None,
        *,
        generate_greeting: bool = False,
    ) -> None:
        several = observer if isinstance(observer, Iterable) else (observer,)
        observers = [one for one in several if one is not None]
        super().__init__(request, observers=observers, generate_greeting=generate_greeting)

    async def execute_special_turn(
        self, turn: SpecialTurn | SpecialTurnConfig, prefer_streaming: bool = False
    ) -> Return:
        """Run a special turn; observers get `on_final` if its result is kept."""
        if isinstance(turn, SpecialTurnConfig):
            prefer_streaming = prefer_streaming and not turn.force_non_streaming
            turn = turn.on(self.request)
        result = await super().execute_special_turn(turn, prefer_streaming)
        if not _is_kept(turn, result):
            return result
        warnings: list[Notice] = []

        def warn(observer: Any, error: BaseException) -> None:
            warnings.append(Notice("warning", "observer", observer_warning(observer, error)))

        observers = Observers(self._observers, self.request, warn)
        observers.notify([RunEnded(seq=0, run_id=result.run_id or new_id(), result=result)])
        await observers.finish()
        return replace(result, notices=(*result.notices, *warnings))

    def execute_special_turn_sync(
        self, turn: SpecialTurn | SpecialTurnConfig, prefer_streaming: bool = False
    ) -> Return:
        """`execute_special_turn` for programs without an event loop."""
        return super().execute_special_turn_sync(cast("SpecialTurn", turn), prefer_streaming)


def _is_kept(turn: SpecialTurn, result: Return) -> bool:
    """Return whether something of a special turn was put on the branch."""
    if not result.success or turn.strategy is PersistenceStrategy.EPHEMERAL:
        return False
    replaces = turn.strategy is PersistenceStrategy.REPLACE_ABOVE
    return replaces or any(map(turn.chosen.passes, result.body.interactions))
