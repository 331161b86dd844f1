"""Context providers, and the use of the model's context window.

Context providers are how what lies above, such as a memory, takes part in a turn without the loop
knowing it. What they give goes into the prompt and onto no branch, so that nobody takes it for
something the user has said; that it was there is told as an event.

Tokens are counted by reading on, never anew: what the provider counted last, and an estimate of
what has come since.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import getattr_static, isawaitable
from typing import TYPE_CHECKING, Any, Protocol, cast

from sennit.errors import InvalidTypeError, short_repr
from sennit.messages.content import (
    ActionRequestContent,
    InstructionContent,
    MessageContent,
)
from sennit.messages.message import Message
from sennit.messages.prompt.incremental import read
from sennit.messages.prompt.tool_chat import unread_messages
from sennit.services.models.protocol import Model
from sennit.services.models.request import ModelRequest
from sennit.services.models.usage import count_chars, tokens_of_chars, tool_char_count
from sennit.sessions.branch import Branch
from sennit.sessions.unarchived import UnarchivedView
from sennit.turns.events import ContextAdded, Injection
from sennit.turns.policies import pass_request
from sennit.turns.prompt_history import prompt_ids
from sennit.turns.result import SPECIAL_TURN_KEY

if TYPE_CHECKING:
    from sennit.sessions.branch import Branch
    from sennit.turns.request import Request
    from sennit.turns.run import Run

REPLACED_KEY = "replaced"
"""The mark, in the metadata, of a message that stands for others."""
_WINDOW_DIVISOR = 4  # contexts may take one in so many tokens of the window
_DEFAULT_BUDGET_TOKENS = 2_000  # tokens for contexts where the window is not known
_MAX_MESSAGES_ON_LOOP = (
    500  # messages to read for the first time from which a prompt is made in a thread
)
_LETTERS_PER_IMAGE = 4_000  # letters that an image counts as


@dataclass(frozen=True, slots=True)
class ContextItem:
    """Something a model should know for its answer."""

    text: str
    uri: str | None = None
    """Where it can be found."""

    @property
    def tokens(self) -> int:
        """About how many tokens it takes."""
        return tokens_of_chars(len(self.text))


@dataclass(frozen=True, slots=True)
class ContextNeed:
    """A request to context providers."""

    branch: Branch
    instruction: Message
    """The newest one, which is about to be answered."""
    budget: int
    """How many tokens there are for all of it; what goes beyond is left out."""


class ContextProvider(Protocol):
    """Gives what belongs into a prompt; the method may be async. One that raises is a warning."""

    def provide(self, need: ContextNeed) -> Any:
        """ContextItems, or texts, the most important first."""
        ...


def checked_contexts(contexts: Any) -> tuple[Any, ...]:
    """Context providers as a tuple; raises InvalidTypeError for what is none."""
    if not isinstance(contexts, Iterable):
        raise InvalidTypeError(f"contexts must be a list of providers, got {short_repr(contexts)}.")
    providers = tuple(cast("Iterable[Any]", contexts))
    for provider in providers:
        if not callable(getattr(provider, "provide", None)):
            raise InvalidTypeError(
                f"A context provider has provide(need), got {short_repr(provider)}."
            )
    return providers


@dataclass(frozen=True, slots=True)
class FixedContext:
    """A context provider that always gives the same."""

    items: tuple[Any, ...]

    def provide(self, need: ContextNeed) -> Any:
        """All of it, whatever the need."""
        del need
        return self.items


def _unread_count(branch: Branch) -> int:
    """Return how many messages the next prompt has to read that none before it has read."""
    if len(branch) <= _MAX_MESSAGES_ON_LOOP:
        return len(branch)
    return unread_messages(branch.session.messages, prompt_ids(branch))


async def build_prompt(run: Run) -> ModelRequest:
    """Return the model request: conversation, contexts, and changes by policies."""
    if _unread_count(run.request.branch) > _MAX_MESSAGES_ON_LOOP:
        request = await to_thread(run.request.model_request)
    else:
        request = run.request.model_request()
    if run.progress.turns > 1:
        request = _without_tool_choice(request)
    if run.request.contexts:
        request = await _with_contexts(run, request)
    if run.request.policies:
        request = await pass_request(run.request.policies, request)
    return request


def _without_tool_choice(request: ModelRequest) -> ModelRequest:
    """The same without a call it is held to: forced every time, a model would never answer."""
    params = {name: value for name, value in request.params.items() if name != "tool_choice"}
    return replace(request, params=params)


async def _with_contexts(run: Run, request: ModelRequest) -> ModelRequest:
    newest = run.request.newest_instruction()
    if newest is None:
        return request
    if run.context is None or run.context[0] != newest.id:
        run.context = (newest.id, await _gather(run, newest))
    items = run.context[1]
    return replace(request, messages=with_items(request.messages, items)) if items else request


async def _gather(run: Run, newest: Message) -> list[ContextItem]:
    """Return the items of all providers that fit, and record them as an event."""
    need = ContextNeed(run.request.branch, newest, context_budget(run))
    items: list[ContextItem] = []
    injections: list[Injection] = []
    remaining = need.budget
    for provider in run.request.contexts:
        for item in await _provide(run, provider, replace(need, budget=remaining)):
            if item.tokens <= remaining:
                remaining -= item.tokens
                items.append(item)
                injections.append(Injection(type(provider).__name__, item.uri, item.tokens))
    if injections:
        run.emit(ContextAdded, message_id=newest.id, items=tuple(injections))
    return items


async def _provide(run: Run, provider: Any, need: ContextNeed) -> list[ContextItem]:
    try:
        items = provider.provide(need)
        items = await items if isawaitable(items) else items
        return [item if isinstance(item, ContextItem) else ContextItem(str(item)) for item in items]
    except Exception as error:
        text = f"{type(provider).__name__} raised {type(error).__name__}: {error}"
        run.warn("context", text)
        return []


def with_items(
    messages: Sequence[Mapping[str, Any]], items: Sequence[ContextItem]
) -> list[Mapping[str, Any]]:
    """Chat messages with items in front of the newest thing the user said."""
    block = "Context:\n" + "\n".join(f"  - {_indented(item.text)}" for item in items)
    result = list(messages)
    index = next((i for i in reversed(range(len(result))) if result[i]["role"] == "user"), None)
    if index is None:
        return [*result, {"role": "user", "content": block}]
    content = result[index]["content"]
    if isinstance(content, str):
        result[index] = {**result[index], "content": f"{block}\n\n{content}"}
    else:
        result[index] = {**result[index], "content": [{"type": "text", "text": block}, *content]}
    return result


def _indented(text: str) -> str:
    return text.strip().replace("\n", "\n    ")


def context_budget(run: Run) -> int:
    """Return the token budget of contexts: a share of the window, at most what is left."""
    window = run.window
    if window is None:
        return _DEFAULT_BUDGET_TOKENS
    return max(0, min(window // _WINDOW_DIVISOR, window - tokens_of(run.request)))


async def window_of(model: Model) -> int | None:
    """A model's window; asking may connect the model, which must not hold up the loop."""
    if isinstance(getattr_static(type(model), "window", None), property):
        return await to_thread(lambda: model.window)
    return model.window


def is_window_full(run: Run) -> bool:
    """Return whether so much of the window is used that what was said earlier has to be
    summarised.
    """
    share = run.options.summarize_at
    if run.window is None or share is None:
        return False
    return tokens_of(run.request) >= share * run.window


def tokens_of(request: Request) -> int:
    """About how many tokens the conversation takes; only what is new since last time is counted."""
    current = request.branch.current
    since = current.since if isinstance(current, UnarchivedView) else 0
    count, measured = read(
        _TokenCounterFactory(since),
        request.session.messages,
        current,
        lambda fold: (fold.total, fold.is_measured),
    )
    if measured or not request.tools:
        return count
    return count + tokens_of_chars(tool_char_count(tool.schema for tool in request.tools.values()))


@dataclass(frozen=True, slots=True)
class _TokenCounterFactory:
    """Begins to count a conversation of which some was archived by a commit, if any was."""

    since: int
    """The id of the last commit: what was counted before it no longer holds."""

    def __call__(self) -> _TokenCounter:
        return _TokenCounter(self.since)


class _TokenCounter:
    """Counts a conversation as it grows."""

    __slots__ = ("_counted", "_letters", "_since")

    def __init__(self, since: int) -> None:
        self._counted = 0  # by the provider
        self._letters = 0  # that have come since
        self._since = since  # the last replacement: what was counted before it no longer holds

    @property
    def is_measured(self) -> bool:
        """True if the provider has counted any of it."""
        return self._counted > 0

    @property
    def total(self) -> int:
        """About how many tokens there are."""
        return self._counted + tokens_of_chars(self._letters)

    def feed(self, messages: Sequence[Message]) -> None:
        """Count what comes next."""
        for message in messages:
            metadata = message.metadata
            if REPLACED_KEY in metadata:
                self._since = max(self._since, message.id.int)
            usage = metadata.get("usage")
            if usage and SPECIAL_TURN_KEY not in metadata and message.id.int > self._since:
                self._count(usage)
            else:
                self._letters += _letters_of(message.content)

    def _count(self, usage: Mapping[str, Any]) -> None:
        input_tokens, output_tokens = usage.get("input_tokens", 0), usage.get("output_tokens", 0)
        if input_tokens:  # what was thought aloud is not sent again
            self._counted = input_tokens + output_tokens - usage.get("reasoning_tokens", 0)
            self._letters = 0


def _letters_of(content: MessageContent) -> int:
    if isinstance(content, InstructionContent):
        return len(content.text) + _LETTERS_PER_IMAGE * len(content.images or ())
    if isinstance(content, ActionRequestContent):
        return len(content.function or "") + count_chars(content.arguments or {})
    return count_chars(content.rendered)
