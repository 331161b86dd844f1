"""Response objects of /v1/responses, whole or as stream events.

    created, in_progress, then for each item: output_item.added, its parts and deltas, their ends,
    output_item.done; then completed, incomplete or failed

The request parameters are stored with the input, so a response can be rebuilt from its branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from sennit.messages.message import Message
from sennit.server.http.errors import HTTPError
from sennit.server.http.event_stream import sse_event
from sennit.server.openai.item_schemas import ResponsesRequest
from sennit.server.openai.items import (
    call_item,
    output_items,
    reasoning_item,
    reasoning_part,
    text_item,
    text_part,
)
from sennit.server.openai.sealed_replies import sealed_item
from sennit.server.openai.translate import ModelAnswer, answer_at_end
from sennit.server.openai.turn import raise_for_failure
from sennit.services.models.reply import Usage
from sennit.turns.events import (
    AnyEvent,
    MessageCompleted,
    ReasoningAdded,
    RunEnded,
    RunStarted,
    TextAdded,
    ToolCalled,
)

_INCOMPLETE_REASONS = {"length": "max_output_tokens", "refusal": "content_filter"}
_DEFAULTS: dict[str, Any] = {
    "background": False,
    "completed_at": None,
    "frequency_penalty": 0.0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}


def echoed_params(body: ResponsesRequest) -> dict[str, Any]:
    """Return the request parameters that a response repeats."""
    params: dict[str, Any] = {
        "model": body.model,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "frequency_penalty": body.frequency_penalty,
        "max_tool_calls": body.max_tool_calls,
        "metadata": body.metadata,
        "presence_penalty": body.presence_penalty,
        "parallel_tool_calls": body.parallel_tool_calls,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "safety_identifier": body.safety_identifier,
        "temperature": body.temperature,
        "tool_choice": msgspec.to_builtins(body.tool_choice),
        "top_p": body.top_p,
        "store": body.store,
        "background": body.background,
    }
    if body.tools:
        params["tools"] = [
            {"type": "function", **fields, "strict": bool(fields["strict"])}
            if fields["type"] == "function"
            else fields
            for fields in map(msgspec.to_builtins, body.tools)
        ]
    if body.text is not None and body.text.format is not None:
        params["text"] = {"format": msgspec.to_builtins(body.text.format)}
    if body.reasoning is not None:
        summary = body.reasoning.summary or body.reasoning.generate_summary
        params["reasoning"] = {"effort": body.reasoning.effort, "summary": summary}
    if body.conversation_id is not None:
        params["conversation"] = {"id": body.conversation_id}
    return {name: value for name, value in params.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The fields of a response that are known before its answer."""

    id: str
    created: int
    params: dict[str, Any]
    with_state: bool = False
    """Whether the output ends with the state of the provider, which the client keeps."""

    def build(self, status: str, output: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        """Return the response object with a status, an output and further fields."""
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "output": output,
            "usage": None,
            **_DEFAULTS,
            **self.params,
            **fields,
        }

    def finish(
        self, finish: str | None, output: list[dict[str, Any]], used: Usage, last: Message | None
    ) -> dict[str, Any]:
        """Return the response after the model has stopped, completed at its last message."""
        tokens = usage(used)
        if finish in _INCOMPLETE_REASONS:
            details = {"reason": _INCOMPLETE_REASONS[finish]}
            return self.build("incomplete", output, incomplete_details=details, usage=tokens)
        if finish in ("cancelled", "interrupted"):
            return self.build("cancelled", output, usage=tokens)
        completed_at = self.created if last is None else last.created_us // 1_000_000
        return self.build("completed", output, usage=tokens, completed_at=completed_at)

    def with_answer(self, answer: ModelAnswer) -> dict[str, Any]:
        """Return the response with a stored answer."""
        last = answer.messages[-1] if answer.messages else None
        output = output_items(answer, self.custom_tools, summary=self.has_summary)
        output += self.state_items(answer.messages)
        return self.finish(answer.finish_reason, output, answer.usage, last)

    def state_items(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """Return the item with the state of the provider, if the client keeps it."""
        item = sealed_item(messages) if self.with_state else None
        return [] if item is None else [item]

    @property
    def has_summary(self) -> bool:
        """True if the client asked for a summary, so that the reasoning is returned as one."""
        return self.params.get("reasoning", {}).get("summary") is not None

    @property
    def custom_tools(self) -> list[str]:
        """The names of the custom tools."""
        tools = self.params.get("tools", ())
        return [tool["name"] for tool in tools if tool["type"] == "custom"]

    def fail(self, problem: HTTPError, output: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the failed response."""
        error = {"code": problem.code, "message": problem.message}
        return self.build("failed", output, error=error)


def usage(used: Usage) -> dict[str, Any]:
    """Return token counts as /v1/responses has them."""
    return {
        "input_tokens": used.input_tokens,
        "input_tokens_details": {"cached_tokens": used.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
        "total_tokens": used.input_tokens + used.output_tokens,
    }


@dataclass(frozen=True, slots=True)
class _TextKind:
    """The events of a text, by the item or part that it belongs to."""

    item: Callable[[str, str | None, Message | None], dict[str, Any]]
    prefix: str
    """The prefix of the ids of the items."""
    part_event: str
    """The events of the part, without their ending."""
    text_event: str
    """The events of the text, without their ending."""
    part: Callable[[str], dict[str, Any]]
    index: dict[str, Any]
    """The position of the part."""
    more: dict[str, Any]
    """Further fields of the events of the text."""


_TEXT_KINDS = {
    "message": _TextKind(
        text_item,
        "msg",
        "response.content_part",
        "response.output_text",
        text_part,
        {"content_index": 0},
        {"logprobs": []},
    ),
    "reasoning": _TextKind(
        reasoning_item,
        "rs",
        "response.content_part",
        "response.reasoning_text",
        reasoning_part,
        {"content_index": 0},
        {},
    ),
    "summary": _TextKind(
        partial(reasoning_item, summary=True),
        "rs",
        "response.reasoning_summary_part",
        "response.reasoning_summary_text",
        partial(reasoning_part, summary=True),
        {"summary_index": 0},
        {},
    ),
}


class ResponseEvents:
    """The format of a response, whole or as events."""

    end = b"data: [DONE]\n\n"

    def __init__(self, head: ResponseHead) -> None:
        self._head = head
        self._number = 0
        self._output: list[dict[str, Any]] = []
        self._open: tuple[str, str] | None = None  # the type and id of the current item
        self._text = ""
        self._messages: list[Message] = []

    def whole(self, answer: ModelAnswer) -> dict[str, Any]:
        """Return an answer as a response object."""
        return self._head.with_answer(answer)

    def encode(self, event: AnyEvent) -> Iterator[bytes]:
        """Yield the events of one of ours, encoded as server-sent events."""
        return (sse_event(item, item["type"]) for item in self.convert(event))

    def encode_error(self, problem: HTTPError) -> bytes:
        """Return the encoded event that ends a failed response."""
        response = self._head.fail(problem, self._output)
        event = self._event("response.failed", response=response)
        return sse_event(event, event["type"]) + self.end

    def convert(self, event: AnyEvent) -> Iterator[dict[str, Any]]:
        """Yield the events of one of ours; raise HTTPError if the run failed."""
        if isinstance(event, RunStarted):
            yield from self._start()
        elif isinstance(event, TextAdded):
            yield from self._append_text("message", event.message_id.hex, event.text)
        elif isinstance(event, ReasoningAdded):
            kind = "summary" if self._head.has_summary else "reasoning"
            yield from self._append_text(kind, event.message_id.hex, event.text)
        elif isinstance(event, ToolCalled):
            self._messages.append(event.message)
            yield from self._close()
            yield from self._tool_call(event.message)
        elif isinstance(event, MessageCompleted):
            self._messages.append(event.message)
            yield from self._close(event.message)
        elif isinstance(event, RunEnded):
            yield from self._close()
            metrics = raise_for_failure(event.result).metrics
            # A message of reasoning alone has no event of its own.
            answer = answer_at_end(event.result.body.interactions) or self._messages
            for item in self._head.state_items(answer):
                yield self._event("response.output_item.added", output_index=self._at, item=item)
                yield self._done(item)
            yield self._end(metrics.finish_reason, metrics.usage)

    def _start(self) -> Iterator[dict[str, Any]]:
        response = self._head.build("in_progress", [])
        yield self._event("response.created", response=response)
        yield self._event("response.in_progress", response=response)

    def _end(self, finish: str | None, used: Usage) -> dict[str, Any]:
        last = self._messages[-1] if self._messages else None
        response = self._head.finish(finish, self._output, used, last)
        is_incomplete = response["status"] == "incomplete"
        kind = "response.incomplete" if is_incomplete else "response.completed"
        return self._event(kind, response=response)

    def _append_text(self, kind: str, name: str, text: str) -> Iterator[dict[str, Any]]:
        texts = _TEXT_KINDS[kind]
        if self._open != (kind, name):
            yield from self._close()
            self._open, self._text = (kind, name), ""
            item = texts.item(name, None, None)
            yield self._event("response.output_item.added", output_index=self._at, item=item)
            yield self._in_part(f"{texts.part_event}.added", part=texts.part(""))
        self._text += text
        yield self._in_part(f"{texts.text_event}.delta", delta=text, **texts.more)

    def _close(self, message: Message | None = None) -> Iterator[dict[str, Any]]:
        """Yield the events that end the current item, if there is one, of a completed message."""
        if self._open is None:
            return
        kind, name = self._open
        texts, text = _TEXT_KINDS[kind], self._text
        yield self._in_part(f"{texts.text_event}.done", text=text, **texts.more)
        yield self._in_part(f"{texts.part_event}.done", part=texts.part(text))
        self._open = None
        yield self._done(texts.item(name, text, message))

    def _tool_call(self, message: Message) -> Iterator[dict[str, Any]]:
        custom = self._head.custom_tools
        started, item = call_item(message, custom, in_progress=True), call_item(message, custom)
        position = {"item_id": item["id"], "output_index": self._at}
        is_custom = item["type"] == "custom_tool_call"
        field = "input" if is_custom else "arguments"
        kind = "custom_tool_call_input" if is_custom else "function_call_arguments"
        done = {field: item[field]} if is_custom else {"name": item["name"], field: item[field]}
        yield self._event("response.output_item.added", output_index=self._at, item=started)
        yield self._event(f"response.{kind}.delta", **position, delta=item[field])
        yield self._event(f"response.{kind}.done", **position, **done)
        yield self._done(item)

    def _done(self, item: dict[str, Any]) -> dict[str, Any]:
        event = self._event("response.output_item.done", output_index=self._at, item=item)
        self._output.append(item)
        return event

    @property
    def _at(self) -> int:
        return len(self._output)

    def _in_part(self, kind: str, **fields: Any) -> dict[str, Any]:
        assert self._open is not None
        texts = _TEXT_KINDS[self._open[0]]
        item = f"{texts.prefix}_{self._open[1]}"
        return self._event(kind, item_id=item, output_index=self._at, **texts.index, **fields)

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return event
