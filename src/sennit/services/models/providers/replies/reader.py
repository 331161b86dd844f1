"""The reader of one reply: events become deltas, items are kept as the provider wrote them.

pydantic-ai builds requests and maps errors, but its types of replies lack what is new or rare, and
it raises on some of it. So replies are read here, from the JSON of the provider's own SDK. A reader
raises only if a reply is truncated or has not the documented shape: what it does not know stays in
the items of the reply.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from json import dumps
from typing import Any, TypeAlias

from sennit.errors import ModelError, ModelErrorKind
from sennit.messages.provider_state import ProviderState, StatePart
from sennit.services.models.providers.items import is_plain, kind_and_text
from sennit.services.models.providers.translate import RequestUsage, price
from sennit.services.models.reply import Delta, Finished, FinishReason, Usage

JSON: TypeAlias = Mapping[str, Any]
"""A JSON object."""

_ERROR_KINDS: Mapping[str, ModelErrorKind] = {
    "rate_limit_exceeded": "rate_limit",
    "insufficient_quota": "rate_limit",
    "context_length_exceeded": "context",
    "server_error": "overloaded",
    "vector_store_timeout": "overloaded",
    "invalid_prompt": "bad_request",
}


class ReplyReader(ABC):
    """Reads one reply; its deltas come from `event` or `whole`, the last one from `end`."""

    def __init__(self, provider: str, url: str) -> None:
        self.provider = provider
        self.url = url
        self.model = ""
        """The provider's name for the model that replied."""
        self.usage = RequestUsage()
        self.reason: FinishReason | None = None
        """Why the model stopped; None until the provider says so."""
        self.details: dict[str, Any] = {}
        """What concerns the whole reply beside its usage: reasons, logprobs, citations."""
        self.made_ids: dict[int, str] = {}
        """The ids given here to calls that have none, by item."""
        self._calls = 0

    @abstractmethod
    def event(self, event: JSON) -> Iterator[Delta]:
        """Return the deltas of an event of a stream."""

    @abstractmethod
    def whole(self, body: JSON) -> Iterator[Delta]:
        """Return the deltas of a whole reply."""

    @abstractmethod
    def items(self) -> Sequence[JSON] | None:
        """Return the items of the reply in order, None if one of them is incomplete."""

    @property
    def is_paused(self) -> bool:
        """True if the provider paused the reply, which continues when it is sent back."""
        return False

    def continue_with_next(self) -> None:
        """Take what is read next as the continuation of a paused reply."""
        raise NotImplementedError

    def next_call(self) -> int:
        """Return the number of a new call."""
        self._calls += 1
        return self._calls - 1

    def keep(self, source: JSON, *names: str) -> None:
        """Keep the details that are set."""
        for name in names:
            if (value := source.get(name)) not in (None, "", [], {}):
                self.details[name] = value

    def end(self, *, whole: bool = False) -> Iterator[Delta]:
        """Return the final delta; raises ModelError if the reply is truncated."""
        reason = self.reason or ("stop" if whole else None)
        if reason is None:
            raise ModelError("the reply ended before it was complete.", kind="network")
        if reason == "tool_calls" and not self._calls:
            raise ModelError("the reply calls a tool without a name.", kind="malformed")
        if reason == "stop" and self._calls:
            reason = "tool_calls"
        usage = Usage(
            self.usage.input_tokens,
            self.usage.output_tokens,
            self.usage.cache_read_tokens,
            self.usage.details.get("reasoning_tokens", 0),
            price(self.usage, self.model, self.url),
        )
        yield Finished(reason, usage, self.model, self._state())

    def _state(self) -> ProviderState | None:
        items = self.items()
        if items is None or (all(map(is_plain, items)) and not self.details):
            return None
        kinds = [kind_and_text(item) for item in items]
        parts = [
            StatePart(kind, text or self.made_ids.get(index, ""), dumps(item))
            for index, ((kind, text), item) in enumerate(zip(kinds, items, strict=True))
        ]
        return ProviderState(self.provider, dumps(self.details), tuple(parts))


def count(tokens: Any) -> int:
    """Return a number of tokens, 0 if there is none."""
    return int(tokens) if isinstance(tokens, int | float) else 0


def reply_error(error: Any) -> ModelError:
    """Return the error of a reply that its provider gave up."""
    match error:
        case {"message": str(message), **rest} if message:
            code = rest.get("code")
        case _:
            message, code = "the provider gave the reply up.", None
    return ModelError(message, kind=_ERROR_KINDS.get(str(code), "failed"))
