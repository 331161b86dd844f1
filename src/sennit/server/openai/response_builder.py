"""Response objects of /v1/responses, whole or as stream events.

    created, in_progress, then for each item: output_item.added, its parts and deltas, their ends,
    output_item.done; then completed, incomplete or failed

What was asked is kept with what was said, so a response can be told again from its branch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from sennit.messages.message import Message
from sennit.server.http.errors import HTTPError
from sennit.server.openai.event_stream import data
from sennit.server.openai.item_schemas import (
    ResponsesRequest,
    call_item,
    items_of,
    output_items,
    text_item,
    text_part,
    thought_item,
)
from sennit.server.openai.translate import ModelAnswer
from sennit.server.openai.turn import sound
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

_FALLBACKS: dict[str, Any] = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt": None,
    "reasoning": {"effort": None, "summary": None},
    "service_tier": "default",
    "store": True,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}


def asked_for(body: ResponsesRequest) -> dict[str, Any]:
    """Return the request parameters that a response repeats."""
    params: dict[str, Any] = {
        "model": body.model,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata,
        "parallel_tool_calls": body.parallel_tool_calls,
        "previous_response_id": body.previous_response_id,
        "temperature": body.temperature,
        "tool_choice": msgspec.to_builtins(body.tool_choice),
        "top_p": body.top_p,
        "store": body.store,
    }
    if body.tools:
        params["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": bool(tool.strict),
            }
            for tool in body.tools
        ]
    if body.text is not None and body.text.format is not None:
        params["text"] = {"format": body.text.format}
    if body.reasoning is not None:
        params["reasoning"] = {"effort": body.reasoning.effort, "summary": None}
    if body.conversation_id is not None:
        params["conversation"] = {"id": body.conversation_id}
    return {name: value for name, value in params.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The fields of a response that are known before its answer."""

    id: str
    created: int
    asked: dict[str, Any]

    def told(self, status: str, output: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        """The response as it stands."""
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "output": output,
            "usage": None,
            **_FALLBACKS,
            **self.asked,
            **fields,
        }

    def ended(
        self, finish: str | None, output: list[dict[str, Any]], used: Usage, last: Message | None
    ) -> dict[str, Any]:
        """The response once the model has stopped; it was completed with its last message."""
        tokens = usage(used)
        if finish == "length":
            details = {"reason": "max_output_tokens"}
            return self.told("incomplete", output, incomplete_details=details, usage=tokens)
        if finish == "refusal":
            details = {"reason": "content_filter"}
            return self.told("incomplete", output, incomplete_details=details, usage=tokens)
        if finish in ("cancelled", "interrupted"):
            return self.told("cancelled", output, usage=tokens)
        completed_at = self.created if last is None else last.created_us // 1_000_000
        return self.told("completed", output, usage=tokens, completed_at=completed_at)

    def answered(self, answer: ModelAnswer) -> dict[str, Any]:
        """The response with an answer that stands on a branch."""
        last = answer.messages[-1] if answer.messages else None
        return self.ended(answer.finish, output_items(answer), answer.usage, last)

    def failed(self, problem: HTTPError, output: list[dict[str, Any]]) -> dict[str, Any]:
        """The response that came to nothing."""
        error = {"code": problem.code, "message": problem.message}
        return self.told("failed", output, error=error)


def usage(used: Usage) -> dict[str, Any]:
    """Tokens as this endpoint counts them."""
    return {
        "input_tokens": used.input_tokens,
        "input_tokens_details": {"cached_tokens": used.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
        "total_tokens": used.input_tokens + used.output_tokens,
    }


class ResponseEvents:
    """Converts the events of a run to events of a streamed response."""

    def __init__(self, head: ResponseHead) -> None:
        self._head = head
        self._number = 0
        self._output: list[dict[str, Any]] = []
        self._open: tuple[str, str] | None = None  # the kind and name of the item being said
        self._text = ""
        self._last: Message | None = None

    def encoded(self, event: AnyEvent) -> Iterator[bytes]:
        """The events that tell of one of ours, as they are sent."""
        return self._sent(self.of(event))

    def encoded_answer(self, answer: ModelAnswer) -> Iterator[bytes]:
        """The events of an answer that is there already, as they are sent."""
        return self._sent(self.of_answer(answer))

    def _sent(self, events: Iterator[dict[str, Any]]) -> Iterator[bytes]:
        return (data(event, event["type"]) for event in events)

    def failed(self, problem: HTTPError) -> bytes:
        """The end of a response that came to nothing."""
        response = self._head.failed(problem, self._output)
        event = self._event("response.failed", response=response)
        return data(event, event["type"])

    def of(self, event: AnyEvent) -> Iterator[dict[str, Any]]:
        """The events that tell of one of ours; raises Problem if the run failed."""
        if isinstance(event, RunStarted):
            yield from self._begun()
        elif isinstance(event, TextAdded):
            yield from self._more("message", event.message_id.hex, event.text)
        elif isinstance(event, ReasoningAdded):
            yield from self._more("reasoning", event.message_id.hex, event.text)
        elif isinstance(event, ToolCalled):
            self._last = event.message
            yield from self._close()
            yield from self._called(event.message)
        elif isinstance(event, MessageCompleted):
            self._last = event.message
            yield from self._close()
        elif isinstance(event, RunEnded):
            yield from self._close()
            metrics = sound(event.result).metrics
            yield self._ended(metrics.finish_reason, metrics.usage)

    def of_answer(self, answer: ModelAnswer) -> Iterator[dict[str, Any]]:
        """The events of an answer that is there already."""
        yield from self._begun()
        for message in answer.messages:
            self._last = message
            for item in items_of(message):
                if item["type"] == "function_call":
                    yield from self._called(message)
                else:
                    yield from self._more(item["type"], message.id.hex, item["content"][0]["text"])
                    yield from self._close()
        yield self._ended(answer.finish, answer.usage)

    def _begun(self) -> Iterator[dict[str, Any]]:
        response = self._head.told("in_progress", [])
        yield self._event("response.created", response=response)
        yield self._event("response.in_progress", response=response)

    def _ended(self, finish: str | None, used: Usage) -> dict[str, Any]:
        response = self._head.ended(finish, self._output, used, self._last)
        is_incomplete = response["status"] == "incomplete"
        kind = "response.incomplete" if is_incomplete else "response.completed"
        return self._event(kind, response=response)

    def _more(self, kind: str, name: str, text: str) -> Iterator[dict[str, Any]]:
        if self._open != (kind, name):
            yield from self._close()
            self._open, self._text = (kind, name), ""
            item = text_item(name, None) if kind == "message" else thought_item(name, None)
            yield self._event("response.output_item.added", output_index=self._at, item=item)
            yield self._part("response.content_part.added", "")
        self._text += text
        if kind == "message":
            delta: dict[str, Any] = {"delta": text, "logprobs": []}
            yield self._in_part("response.output_text.delta", **delta)
        else:
            yield self._in_part("response.reasoning_text.delta", delta=text)

    def _close(self) -> Iterator[dict[str, Any]]:
        """The end of the item that is being said, if there is one."""
        if self._open is None:
            return
        kind, name = self._open
        if kind == "message":
            yield self._in_part("response.output_text.done", text=self._text, logprobs=[])
        else:
            yield self._in_part("response.reasoning_text.done", text=self._text)
        yield self._part("response.content_part.done", self._text)
        item = text_item(name, self._text) if kind == "message" else thought_item(name, self._text)
        self._open = None
        yield self._done(item)

    def _called(self, message: Message) -> Iterator[dict[str, Any]]:
        started, item = call_item(message, in_progress=True), call_item(message)
        position = {"item_id": item["id"], "output_index": self._at}
        arguments = item["arguments"]
        yield self._event("response.output_item.added", output_index=self._at, item=started)
        yield self._event("response.function_call_arguments.delta", **position, delta=arguments)
        yield self._event(
            "response.function_call_arguments.done",
            **position,
            name=item["name"],
            arguments=arguments,
        )
        yield self._done(item)

    def _done(self, item: dict[str, Any]) -> dict[str, Any]:
        event = self._event("response.output_item.done", output_index=self._at, item=item)
        self._output.append(item)
        return event

    @property
    def _at(self) -> int:
        return len(self._output)

    def _part(self, kind: str, text: str) -> dict[str, Any]:
        assert self._open is not None
        is_message = self._open[0] == "message"
        part = text_part(text) if is_message else {"type": "reasoning_text", "text": text}
        return self._in_part(kind, part=part)

    def _in_part(self, kind: str, **fields: Any) -> dict[str, Any]:
        assert self._open is not None
        prefix = "msg" if self._open[0] == "message" else "rs"
        item = f"{prefix}_{self._open[1]}"
        return self._event(kind, item_id=item, output_index=self._at, content_index=0, **fields)

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return event
