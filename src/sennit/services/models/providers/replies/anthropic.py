"""Replies of Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from json import dumps, loads
from typing import Any

from sennit.services.models.providers.items import array, mapping
from sennit.services.models.providers.replies.reader import (
    JSON,
    ReplyReader,
    RequestUsage,
    count,
)
from sennit.services.models.reply import CallDelta, Delta, FinishReason, ReasoningDelta, TextDelta

_REASONS: Mapping[str, FinishReason] = {
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
_PAUSES = ("pause_turn", "compaction")


class AnthropicReader(ReplyReader):
    """Reads a message, whose items are its content blocks."""

    def __init__(self, provider: str, url: str) -> None:
        super().__init__(provider, url)
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[tuple[int, str], list[str]] = {}
        """The pieces of a text, by block and field."""
        self._calls_at: dict[int, int] = {}
        """The numbers of the calls, by block."""
        self._spent: dict[str, Any] = {}
        self._spent_before: RequestUsage = RequestUsage()
        self._first = 0
        """The place of the first block, after those of the messages that this one continues."""

    def event(self, event: JSON) -> Iterator[Delta]:
        match event:
            case {"type": "message_start", "message": message} if message:
                yield from self._start(message)
            case {"type": "content_block_start", "index": int(index), "content_block": block}:
                yield from self._block(self._first + index, dict(block))
            case {"type": "content_block_delta", "index": int(index), "delta": delta}:
                yield from self._delta(self._first + index, delta)
            case {"type": "message_delta", "delta": delta}:
                self._spend(event.get("usage"))
                self.keep(event, "context_management")
                yield from self._stop(delta)
            case _:
                pass

    def whole(self, body: JSON) -> Iterator[Delta]:
        yield from self._start({**body, "content": body["content"]})

    def _start(self, message: JSON) -> Iterator[Delta]:
        self.model = message.get("model") or self.model
        self._spend(message.get("usage"))
        self.keep(message, "container", "input_transformations", "diagnostics")
        for index, block in enumerate(array(message.get("content"))):
            yield from self._block(self._first + index, dict(block), whole=True)
        yield from self._stop(message)

    @property
    def is_paused(self) -> bool:
        return self.details.get("stop_reason") in _PAUSES and self.items() is not None

    def continue_with_next(self) -> None:
        self._first = 1 + max(self._blocks, default=-1)
        self._spent_before, self._spent = self.usage, {}
        self.reason = None

    def _block(self, index: int, block: dict[str, Any], *, whole: bool = False) -> Iterator[Delta]:
        self._blocks[index] = block
        match block:
            case {"type": "text", "text": str(text)} if text:
                yield TextDelta(text)
            case {"type": "thinking", "thinking": str(text)} if text:
                yield ReasoningDelta(text)
            case {"type": "tool_use", "id": id, "name": name}:
                self._calls_at[index] = number = self.next_call()
                arguments = block.get("input")
                shown = dumps(arguments, ensure_ascii=False) if whole or arguments else ""
                yield CallDelta(number, id, name, shown)
            case _:
                pass

    def _delta(self, index: int, delta: JSON) -> Iterator[Delta]:
        match delta:
            case {"type": "text_delta", "text": str(text)} if text:
                yield TextDelta(text)
            case {"type": "thinking_delta", "thinking": str(text)} if text:
                yield ReasoningDelta(text)
            case {"type": "input_json_delta", "partial_json": str(text)} if text:
                if index in self._calls_at:  # else it is a tool that the provider runs
                    yield CallDelta(self._calls_at[index], arguments=text)
            case _:
                pass
        if index in self._blocks:
            for name, value in delta.items():
                self._add(index, name, value)

    def _add(self, index: int, name: str, value: Any) -> None:
        block = self._blocks[index]
        if name == "citation":
            block["citations"] = [*(block.get("citations") or ()), value]
        elif isinstance(value, str) and name != "type":
            self._pieces.setdefault((index, name), [block.get(name) or ""]).append(value)
        elif name != "type" and value is not None:
            block[name] = value

    def _stop(self, delta: JSON) -> Iterator[Delta]:
        self.keep(delta, "stop_sequence", "stop_details", "container")
        if not (stop := delta.get("stop_reason")):
            return
        self.reason = _REASONS.get(stop, "stop")
        if stop in _PAUSES or stop not in (*_REASONS, "end_turn", "stop_sequence"):
            self.details["stop_reason"] = stop
        else:
            self.details.pop("stop_reason", None)
        match delta:
            case {"stop_details": {"explanation": str(text)}} if text and not self._blocks:
                yield from self._block(0, {"type": "text", "text": text})
            case _:
                pass

    def _spend(self, usage: Any) -> None:
        """Take the usage so far; it is cumulative."""
        for name, value in mapping(usage).items():
            if value is not None:
                self._spent[name] = value
        spent = self._spent
        read, written = (
            count(spent.get(f"cache_{name}_input_tokens")) for name in ("read", "creation")
        )
        thinking = mapping(spent.get("output_tokens_details")).get("thinking_tokens")
        self.usage = self._spent_before + RequestUsage(
            input_tokens=count(spent.get("input_tokens")) + read + written,
            output_tokens=count(spent.get("output_tokens")),
            cache_read_tokens=read,
            cache_write_tokens=written,
            details={"reasoning_tokens": count(thinking)},
        )

    def items(self) -> Sequence[JSON] | None:
        for (index, name), pieces in self._pieces.items():
            text = "".join(pieces)
            if name != "partial_json":
                self._blocks[index][name] = text
                continue
            try:
                self._blocks[index]["input"] = loads(text) if text.strip() else {}
            except ValueError:  # cut off
                return None
        blocks = (self._blocks[index] for index in sorted(self._blocks))
        # An empty text is refused in a request.
        return [block for block in blocks if block.get("type") != "text" or block["text"].strip()]
