"""Replies of providers that hold more than texts and calls, whole and as streams."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.services.wire_server import (
    Step,
    answer,
    anthropic_block,
    anthropic_end,
    anthropic_event,
    anthropic_message,
    anthropic_start,
    chunks,
    completed,
    completion,
    event,
    piece,
)

ARGUMENTS = '{"b": 2, "a": 1}'


@dataclass(frozen=True)
class Provider:
    """How a provider writes a reply, and where it is found in the next request."""

    model: str
    path: str

    def whole(self, items: Sequence[Mapping[str, Any]]) -> list[Step]:
        """A reply with these items."""
        raise NotImplementedError

    def streamed(self, items: Sequence[Mapping[str, Any]]) -> list[Step]:
        """The same as a stream."""
        raise NotImplementedError

    def call(self) -> dict[str, Any]:
        """The item that calls the tool `add`."""
        raise NotImplementedError

    def text(self, text: str) -> dict[str, Any]:
        """The item with a text."""
        raise NotImplementedError

    def sent(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The items of the first reply in a request."""
        raise NotImplementedError


class Anthropic(Provider):
    def whole(self, items: Sequence[Mapping[str, Any]]) -> list[Step]:
        stop = "tool_use" if items[-1]["type"] == "tool_use" else "end_turn"
        return answer(anthropic_message(*items, stop=stop))

    def streamed(self, items: Sequence[Mapping[str, Any]]) -> list[Step]:
        stop = "tool_use" if items[-1]["type"] == "tool_use" else "end_turn"
        blocks = [_anthropic_pieces(index, item) for index, item in enumerate(items)]
        return chunks(anthropic_start(), *blocks, anthropic_end(stop))

    def call(self) -> dict[str, Any]:
        return {"type": "tool_use", "id": "toolu_1", "name": "add", "input": json.loads(ARGUMENTS)}

    def text(self, text: str) -> dict[str, Any]:
        return {"type": "text", "text": text}

    def sent(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        return body["messages"][1]["content"]


def _anthropic_pieces(index: int, item: Mapping[str, Any]) -> bytes:
    match item["type"]:
        case "thinking":
            deltas = [
                {"type": "thinking_delta", "thinking": item["thinking"]},
                {"type": "signature_delta", "signature": item["signature"]},
            ]
            return anthropic_block(index, {**item, "thinking": "", "signature": ""}, *deltas)
        case "text":
            half = len(item["text"]) // 2
            halves = item["text"][:half], item["text"][half:]
            deltas = [{"type": "text_delta", "text": text} for text in halves]
            return anthropic_block(index, {**item, "text": ""}, *deltas)
        case "tool_use" | "server_tool_use":
            text = json.dumps(item["input"])
            deltas = [
                {"type": "input_json_delta", "partial_json": part} for part in (text[:4], text[4:])
            ]
            return anthropic_block(index, {**item, "input": {}}, *deltas)
        case "unheard_of":
            start = anthropic_event("content_block_start", index=index, content_block=item)
            delta = {"type": "unheard_of_delta"}
            more = anthropic_event("content_block_delta", index=index, delta=delta)
            return start + more + anthropic_event("content_block_stop", index=index)
        case _:
            return anthropic_block(index, item)


class Responses(Provider):
    def whole(self, items: Sequence[Mapping[str, Any]]) -> list[Step]:
        return answer(_response(items))

    def streamed(self, items: Sequence[Mapping[str, Any]]) -> list[Step]:
        created = {"response": _response((), status="in_progress")}
        events: list[tuple[str, dict[str, Any]]] = [("response.created", created)]
        for index, item in enumerate(items):
            place = {"item_id": item["id"], "output_index": index}
            started = {**item, "status": "in_progress", **_BEGINNINGS.get(item["type"], {})}
            events.append(("response.output_item.added", {"output_index": index, "item": started}))
            events += [(kind, {**place, **fields}) for kind, fields in _response_pieces(item)]
            events.append(("response.output_item.done", {"output_index": index, "item": item}))
        events.append(("response.completed", {"response": _response(items)}))
        return chunks(*(
            event({"type": kind, "sequence_number": number, **fields}, kind)
            for number, (kind, fields) in enumerate(events)
        ))  # fmt: skip

    def call(self) -> dict[str, Any]:
        return {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": "add",
            "arguments": ARGUMENTS,
            "status": "completed",
        }

    def text(self, text: str) -> dict[str, Any]:
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        return {**message, "content": [part]}

    def sent(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        items = body["input"][1:]
        ours = [item for item in items if item.get("type") == "function_call_output"]
        return items[: items.index(ours[0])]


_BEGINNINGS: Mapping[str, Mapping[str, Any]] = {
    "message": {"content": []},
    "function_call": {"arguments": ""},
    "reasoning": {"summary": [], "encrypted_content": None},
    "code_interpreter_call": {"code": "", "outputs": None},
    "mcp_call": {"arguments": "", "output": None},
}


def _response(items: Sequence[Mapping[str, Any]], status: str = "completed") -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5",
        "status": status,
        "output": list(items),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "usage": {
            "input_tokens": 5,
            "output_tokens": 7,
            "total_tokens": 12,
            "input_tokens_details": {"cached_tokens": 2},
            "output_tokens_details": {"reasoning_tokens": 4},
        },
    }


def _response_pieces(item: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    match item["type"]:
        case "message" if item["content"] and "refusal" in item["content"][0]:
            refusal = item["content"][0]["refusal"]
            return [("response.refusal.delta", {"content_index": 0, "delta": refusal})]
        case "message":
            place, part = {"content_index": 0}, item["content"][0]
            return [
                ("response.content_part.added", {**place, "part": {**part, "text": ""}}),
                ("response.output_text.delta", {**place, "delta": part["text"], "logprobs": []}),
                ("response.output_text.done", {**place, "text": part["text"], "logprobs": []}),
                ("response.content_part.done", {**place, "part": part}),
            ]
        case "function_call":
            return [("response.function_call_arguments.delta", {"delta": item["arguments"]})]
        case "reasoning" if item.get("content"):
            place, text = {"content_index": 0}, item["content"][0]["text"]
            return [("response.reasoning_text.delta", {**place, "delta": text})]
        case "reasoning" if item["summary"]:
            part = item["summary"][0]
            place = {"summary_index": 0}
            return [
                ("response.reasoning_summary_part.added", {**place, "part": {**part, "text": ""}}),
                ("response.reasoning_summary_text.delta", {**place, "delta": part["text"]}),
                ("response.reasoning_summary_part.done", {**place, "part": part}),
            ]
        case "code_interpreter_call":
            return [
                ("response.code_interpreter_call_code.delta", {"delta": item["code"]}),
                ("response.code_interpreter_call_code.done", {"code": item["code"]}),
            ]
        case "web_search_call":
            return [("response.web_search_call.searching", {})]
        case "file_search_call":
            return [("response.file_search_call.searching", {})]
        case "mcp_call":
            return [
                ("response.mcp_call_arguments.delta", {"delta": item["arguments"]}),
                ("response.mcp_call_arguments.done", {"arguments": item["arguments"]}),
            ]
        case "image_generation_call":
            return [("response.image_generation_call.generating", {})]
        case "unheard_of_call":
            return [("response.unheard_of_call.delta", {"delta": "?"})]
        case _:
            return []


class Google(Provider):
    def whole(self, items: Sequence[Mapping[str, Any]]) -> list[Step]:
        return answer(_candidates(items, "STOP"))

    def streamed(self, items: Sequence[Mapping[str, Any]]) -> list[Step]:
        *first, last = items
        return chunks(
            *(event(_candidates([item])) for item in first), event(_candidates([last], "STOP"))
        )

    def call(self) -> dict[str, Any]:
        function = {"id": "c1", "name": "add", "args": json.loads(ARGUMENTS)}
        return {"functionCall": function, "thoughtSignature": "U0lHMw=="}

    def text(self, text: str) -> dict[str, Any]:
        return {"text": text}

    def sent(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        return body["contents"][1]["parts"]


def _candidates(parts: Sequence[Mapping[str, Any]], finish: str | None = None) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    return {
        "candidates": [candidate | ({"finishReason": finish} if finish else {})],
        "modelVersion": "gemini-3-pro",
        "responseId": "r1",
        "usageMetadata": {
            "promptTokenCount": 5,
            "candidatesTokenCount": 3,
            "totalTokenCount": 10,
            "thoughtsTokenCount": 2,
        },
    }


class Chat(Provider):
    """OpenAI's chat completions; the items are fields of one message."""

    def whole(self, items: Sequence[Mapping[str, Any]]) -> list[Step]:
        fields = {name: value for item in items for name, value in item.items()}
        finish = "tool_calls" if "tool_calls" in fields else "stop"
        return answer(completion(**{"content": None, **fields}, finish=finish))

    def streamed(self, items: Sequence[Mapping[str, Any]]) -> list[Step]:
        finish = "tool_calls" if any("tool_calls" in item for item in items) else "stop"
        return completed(*(piece(**item) for item in items), finish=finish)

    def call(self) -> dict[str, Any]:
        function = {"name": "add", "arguments": ARGUMENTS}
        return {
            "tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]
        }

    def text(self, text: str) -> dict[str, Any]:
        return {"content": text}

    def sent(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [{name: value} for name, value in body["messages"][1].items() if name != "role"]


ANTHROPIC = Anthropic("anthropic:claude-wire", "")
RESPONSES = Responses("openai-responses:gpt-5", "/v1")
GOOGLE = Google("google:gemini-3-pro-preview", "")
CHAT = Chat("openai:wire-model", "/v1")
