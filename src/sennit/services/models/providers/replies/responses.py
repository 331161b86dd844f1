"""Replies of OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from json import dumps

from sennit.services.models.providers.items import (
    array,
    client_call,
    joined_texts,
    mapping,
    reasoning_text,
)
from sennit.services.models.providers.replies.reader import (
    JSON,
    ReplyReader,
    RequestUsage,
    count,
    reply_error,
)
from sennit.services.models.reply import CallDelta, Delta, ReasoningDelta, TextDelta

_TEXTS = (
    "response.output_text.delta",
    "response.refusal.delta",
    "response.audio.transcript.delta",
)
_REASONINGS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")


class ResponsesReader(ReplyReader):
    """Reads a response, whose items are those of its output."""

    def __init__(self, provider: str, url: str) -> None:
        super().__init__(provider, url)
        self._items: dict[int, JSON] = {}
        self._shown: set[int] = set()
        """The items whose text or arguments have been shown."""
        self._calls_at: dict[int, int] = {}
        """The numbers of the calls, by item."""
        self._refused = False

    def event(self, event: JSON) -> Iterator[Delta]:
        index = event.get("output_index")
        match event:
            case {"type": "response.output_item.added", "item": item}:
                yield from self._call(index or 0, item)
            case {"type": "response.output_item.done", "item": item}:
                yield from self._item(index or 0, item)
            case {"type": kind, "delta": str(text)} if text and kind in _TEXTS:
                self._shown.add(index or 0)
                yield TextDelta(text)
            case {"type": kind, "delta": str(text)} if text and kind in _REASONINGS:
                self._shown.add(index or 0)
                yield ReasoningDelta(text)
            case {"type": "response.function_call_arguments.delta", "delta": str(text)}:
                if index in self._calls_at and text:
                    self._shown.add(index)
                    yield CallDelta(self._calls_at[index], arguments=text)
            case {"type": kind, "response": response} if kind in _ENDS:
                yield from self.whole(response)
            case {"type": "error"}:
                raise reply_error(event.get("error") or event)
            case {"response": {"model": str(model)}}:
                self.model = model
            case _:
                pass

    def whole(self, body: JSON) -> Iterator[Delta]:
        self.model = body.get("model") or self.model
        self._spend(mapping(body.get("usage")))
        self.keep(body, "input_transformations", "moderation")
        for index, item in enumerate(array(body.get("output"))):
            if index not in self._items:
                yield from self._item(index, item)
        match body:
            case {"status": "failed", "error": error}:
                raise reply_error(error)
            case {"status": "incomplete", "incomplete_details": details}:
                reason = mapping(details).get("reason")
                self.details["incomplete_details"] = details
                self.reason = "refusal" if reason == "content_filter" else "length"
            case {"status": "cancelled"}:
                self.reason = "error"
            case _:
                self.reason = "refusal" if self._refused else "stop"

    def _call(self, index: int, item: JSON) -> Iterator[Delta]:
        """Begin a call of one of our tools."""
        match item:
            case {"type": "function_call", "call_id": str(id), "name": str(name)}:
                self._calls_at[index] = number = self.next_call()
                yield CallDelta(number, id, name)
            case _:
                pass

    def _item(self, index: int, item: JSON) -> Iterator[Delta]:
        """Keep a complete item, and show what no delta has shown."""
        self._items[index] = item
        shown = index in self._shown
        self._shown.add(index)
        match item:
            case {"type": "message", "content": [*parts]}:
                refusals = [part["refusal"] for part in parts if part.get("type") == "refusal"]
                self._refused = self._refused or bool(refusals)
                self._keep_logprobs(parts)
                text = joined_texts(parts)
                if not shown and text:
                    yield TextDelta(text)
            case {"type": "reasoning"}:
                if not shown and (text := reasoning_text(item)):
                    yield ReasoningDelta(text)
            case {"type": "function_call"}:
                if index not in self._calls_at:
                    yield from self._call(index, item)
                if not shown and item.get("arguments"):
                    yield CallDelta(self._calls_at[index], arguments=item["arguments"])
            case _ if call := client_call(item):
                id, name, arguments = call
                yield CallDelta(self.next_call(), id, name, dumps(arguments, ensure_ascii=False))
            case _:
                pass

    def _keep_logprobs(self, parts: Sequence[JSON]) -> None:
        logprobs = [one for part in parts for one in array(part.get("logprobs"))]
        if logprobs:
            self.details["logprobs"] = [*self.details.get("logprobs", ()), *logprobs]

    def _spend(self, usage: JSON) -> None:
        cached = mapping(usage.get("input_tokens_details"))
        output = mapping(usage.get("output_tokens_details"))
        self.usage = RequestUsage(
            input_tokens=count(usage.get("input_tokens")),
            output_tokens=count(usage.get("output_tokens")),
            cache_read_tokens=count(cached.get("cached_tokens")),
            details={"reasoning_tokens": count(output.get("reasoning_tokens"))},
        )

    def items(self) -> Sequence[JSON]:
        return [self._items[index] for index in sorted(self._items)]
