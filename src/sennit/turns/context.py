"""Context providers, and the use of the model's context window.

Context providers let upper layers, such as memory, take part in a turn without the loop knowing
them. Their items are added to the prompt but to no branch, so that nobody takes them for messages
of the user; an event records them. In later prompts they stay with the message that they were sent
with, if their provider keeps them.

Tokens are counted incrementally: the last count of the provider, plus an estimate of the messages
since then.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Awaitable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import getattr_static, isawaitable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast
from uuid import UUID

from sennit.errors import InvalidTypeError, short_repr
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    InstructionContent,
    MessageContent,
)
from sennit.messages.media import CHARS_PER_IMAGE, estimated_chars
from sennit.messages.message import Message
from sennit.messages.prompt.incremental import read
from sennit.messages.prompt.tool_chat import instruction_places, unread_messages
from sennit.messages.provider_state import without_state
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
"""The metadata key of a message that replaces others."""
_WINDOW_DIVISOR = 4  # context items get at most this fraction of the window
_DEFAULT_BUDGET_TOKENS = 2_000  # for context items if the window is unknown
_MAX_MESSAGES_ON_LOOP = 500  # new to the prompt; with more, a thread builds it


@dataclass(frozen=True, slots=True)
class ContextItem:
    """An item that a model should know for its answer."""

    text: str
    """The text to add to the prompt."""
    uri: str | None = None
    """The URI of the item."""
    heading: str = ""
    """The heading above it and the items after it that have the same."""

    @property
    def tokens(self) -> int:
        """The estimated number of tokens."""
        return tokens_of_chars(len(self.text))


@dataclass(frozen=True, slots=True)
class ContextNeed:
    """A request to context providers."""

    branch: Branch
    """The branch that is about to be answered."""
    instruction: Message
    """The newest user message, which is about to be answered."""
    budget: int
    """The number of tokens for all items; items beyond it are left out."""
    shown: Collection[str] = frozenset()
    """The texts of items that earlier messages of the prompt have."""


ContextItems: TypeAlias = Iterable[ContextItem | str]


class ContextProvider(Protocol):
    """Provides items for a prompt; the method may be async. If it raises, the run has a warning.

    A provider may also have a method `sent(branch)` that returns the items it gave in earlier runs,
    by the id of the instruction, in order; then later prompts have them in the same place.
    """

    def provide(self, need: ContextNeed) -> ContextItems | Awaitable[ContextItems]:
        """Return ContextItems or texts, the most important first."""
        ...


def checked_contexts(contexts: Any) -> tuple[ContextProvider, ...]:
    """Return the context providers as a tuple; raises InvalidTypeError for anything else."""
    if not isinstance(contexts, Iterable):
        raise InvalidTypeError(f"contexts must be a list of providers, got {short_repr(contexts)}.")
    providers = tuple(cast("Iterable[Any]", contexts))
    for provider in providers:
        if isinstance(provider, type) or not callable(getattr(provider, "provide", None)):
            raise InvalidTypeError(
                f"A context provider is an object with provide(need), such as "
                f"MemoryContext(client.memory), got {short_repr(provider)}."
            )
    return providers


@dataclass(frozen=True, slots=True)
class FixedContext:
    """A context provider that always returns the same items."""

    items: tuple[ContextItem | str, ...]

    def provide(self, need: ContextNeed) -> ContextItems:
        """Return all items."""
        del need
        return self.items


def _unread_count(branch: Branch) -> int:
    """Return the number of messages that the next prompt is the first to read."""
    if len(branch) <= _MAX_MESSAGES_ON_LOOP:
        return len(branch)
    return unread_messages(branch.session.messages, prompt_ids(branch))


async def build_prompt(run: Run) -> ModelRequest:
    """Return the model request: conversation, contexts, and changes by policies."""
    if _unread_count(run.request.branch) > _MAX_MESSAGES_ON_LOOP:
        request = await to_thread(run.request.model_request)
    else:
        request = run.request.model_request()
    if not run.sends_state:
        request = replace(request, messages=without_state(request.messages))
    if run.progress.turns > 1:
        request = _without_tool_choice(request)
    if run.output is not None:
        request = await run.output.add_to(request, run.request)
    if run.request.contexts:
        request = await _with_contexts(run, request)
    if run.request.policies:
        request = await pass_request(run.request.policies, request)
    return request


def _without_tool_choice(request: ModelRequest) -> ModelRequest:
    """Return the request without `tool_choice`: forced every time, a model would never answer."""
    params = {name: value for name, value in request.params.items() if name != "tool_choice"}
    return replace(request, params=params)


class RunContexts:
    """The context items of a run, by the instruction that they are sent with."""

    def __init__(self, sent: Sequence[Mapping[UUID, Sequence[ContextItem]]]) -> None:
        """`sent` are the items of earlier runs, for each provider."""
        self.sent = sent
        self.gathered: dict[UUID, list[ContextItem]] = {}

    def of(self, instruction: UUID) -> list[ContextItem]:
        """Return the items of an instruction."""
        if (gathered := self.gathered.get(instruction)) is not None:
            return gathered
        return [item for items in self.sent for item in items.get(instruction, ())]


async def _with_contexts(run: Run, request: ModelRequest) -> ModelRequest:
    """Return the request with each instruction behind the items that were sent with it.

    What was sent once stays where it stood, so that a provider's cache of the prompt is of use.
    """
    newest = run.request.newest_instruction()
    if newest is None:
        return request
    if run.contexts is None:
        run.contexts = RunContexts(
            [await _sent(run, provider) for provider in run.request.contexts]
        )
    branch = run.request.branch
    places = instruction_places(branch.session.messages, prompt_ids(branch))
    if newest.id not in run.contexts.gathered:
        shown = {item.text for uid in places if uid != newest.id for item in run.contexts.of(uid)}
        run.contexts.gathered[newest.id] = await _gather(run, newest, run.contexts, shown)
    messages = list(request.messages)
    for uid, at in places.items():
        items = run.contexts.of(uid)
        if items and at < len(messages) and messages[at]["role"] == "user":
            messages[at] = _with_items(messages[at], items)
    return replace(request, messages=messages)


async def _sent(run: Run, provider: Any) -> Mapping[UUID, Sequence[ContextItem]]:
    """Return the items that a provider gave in earlier runs, if it keeps them."""
    read = getattr(provider, "sent", None)
    if read is None:
        return {}
    try:
        return await to_thread(read, run.request.branch)
    except Exception as error:
        run.warn("context", _failure(provider, error))
        return {}


async def _gather(
    run: Run, newest: Message, contexts: RunContexts, shown: Collection[str]
) -> list[ContextItem]:
    """Return the items of all providers that fit, and record new ones as an event.

    A run that goes on sends again what it had sent with the instruction.
    """
    need = ContextNeed(run.request.branch, newest, context_budget(run), shown)
    items: list[ContextItem] = []
    injections: list[Injection] = []
    remaining = need.budget
    for provider, sent in zip(run.request.contexts, contexts.sent, strict=True):
        if newest.id in sent:
            items += sent[newest.id]
            continue
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
        run.warn("context", _failure(provider, error))
        return []


def _failure(provider: Any, error: Exception) -> str:
    return f"{type(provider).__name__} raised {type(error).__name__}: {error}"


def _with_items(message: Mapping[str, Any], items: Sequence[ContextItem]) -> Mapping[str, Any]:
    """Return a user's chat message with the items in front of its text."""
    block = "\n".join(_block_lines(items))
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": f"{block}\n\n{content}"}
    return {**message, "content": [{"type": "text", "text": block}, *content]}


def _block_lines(items: Sequence[ContextItem]) -> Iterator[str]:
    """Yield the lines of the items, with a heading where it changes."""
    yield "Context:"
    heading = ""
    for item in items:
        if item.heading and item.heading != heading:
            yield f"  {item.heading}:"
        heading = item.heading
        yield f"  - {_indented(item.text)}"


def _indented(text: str) -> str:
    return text.strip().replace("\n", "\n    ")


def context_budget(run: Run) -> int:
    """Return the token budget of contexts: a share of the window, at most what is left."""
    window = run.window
    if window is None:
        return _DEFAULT_BUDGET_TOKENS
    return max(0, min(window // _WINDOW_DIVISOR, window - tokens_of(run.request)))


async def window_of(model: Model) -> int | None:
    """Return the context window of a model, in a thread if computing it may connect to the
    provider.
    """
    if isinstance(getattr_static(type(model), "window", None), property):
        return await to_thread(lambda: model.window)
    return model.window


def is_window_full(run: Run) -> bool:
    """Return whether so much of the window is used that earlier messages have to be summarised."""
    share = run.options.summarize_at
    if run.window is None or share is None:
        return False
    return tokens_of(run.request) >= share * run.window


def tokens_of(request: Request) -> int:
    """Return the estimated tokens of the conversation, counting only new messages."""
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
    """A factory of token counters for a conversation that may have archived messages."""

    since: int
    """The id of the last commit, which invalidates earlier counts."""

    def __call__(self) -> _TokenCounter:
        return _TokenCounter(self.since)


class _TokenCounter:
    """An incremental count of the tokens of a conversation."""

    __slots__ = ("_chars", "_counted", "_since")

    def __init__(self, since: int) -> None:
        self._counted = 0  # tokens, by the provider
        self._chars = 0  # characters since then
        self._since = since  # the last replacement, which invalidates earlier counts

    @property
    def is_measured(self) -> bool:
        """True if the provider has counted a part of it."""
        return self._counted > 0

    @property
    def total(self) -> int:
        """The estimated number of tokens."""
        return self._counted + tokens_of_chars(self._chars)

    def feed(self, messages: Sequence[Message]) -> None:
        """Count the next messages."""
        for message in messages:
            metadata = message.metadata
            if REPLACED_KEY in metadata:
                self._since = max(self._since, message.id.int)
            usage = metadata.get("usage")
            if usage and SPECIAL_TURN_KEY not in metadata and message.id.int > self._since:
                self._count(usage)
            else:
                self._chars += _chars_of(message.content)

    def _count(self, usage: Mapping[str, Any]) -> None:
        input_tokens, output_tokens = usage.get("input_tokens", 0), usage.get("output_tokens", 0)
        if input_tokens:  # reasoning is not sent again
            self._counted = input_tokens + output_tokens - usage.get("reasoning_tokens", 0)
            self._chars = 0


def _chars_of(content: MessageContent) -> int:
    if isinstance(content, InstructionContent):
        images = CHARS_PER_IMAGE * len(content.images or ())
        return len(content.rendered_text) + images + _chars_of_files(content.files or ())
    if isinstance(content, ActionRequestContent):
        return len(content.function or "") + count_chars(content.arguments or {})
    if isinstance(content, ActionResponseContent) and content.files:
        return count_chars(content.rendered) + _chars_of_files(content.files)
    return count_chars(content.rendered)


def _chars_of_files(files: Iterable[Mapping[str, Any]]) -> int:
    return sum(estimated_chars(file["url"], file.get("media_type", "image/*")) for file in files)
