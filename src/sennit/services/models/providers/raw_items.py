"""The items of a reply as the provider wrote them.

OpenAI's Responses API and Anthropic's Messages API take the items of a reply back unchanged in the
next request. pydantic-ai translates them instead, and its translation lacks what it has no type
for: outputs of tools that the provider ran, phases, items of new kinds, the bytes of arguments. So
the items are recorded here as a reply is read, and take the place of the translation in a request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from json import loads
from typing import Any, get_args

from sennit.messages.provider_state import PartKind

RAW_ITEMS = "raw_items"
"""The key of the items in the metadata of a pydantic-ai response."""


_TRANSLATED = frozenset(
    {
        "message",
        "reasoning",
        "function_call",
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
        "tool_search_call",
        "tool_search_output",
        "compaction",
    }
)
"""The types of OpenAI's items that pydantic-ai translates from a stream."""
_PLAIN_FIELDS = ("type", "text", "id", "name", "input")


def record_items(model: Any) -> bool:
    """Have a model of pydantic-ai record and send raw items; return False for other APIs."""
    if hasattr(model, "_responses_create"):
        recorder, output, mapper = _ResponsesRecorder, "output", "_map_messages"
    elif hasattr(model, "_messages_create"):
        recorder, output, mapper = _AnthropicRecorder, "content", "_map_message"
    else:
        return False
    model._process_response = partial(_process, model._process_response, output)
    stream = model._process_streamed_response
    model._process_streamed_response = partial(_process_stream, stream, recorder)
    setattr(model, mapper, partial(_map_with_items, getattr(model, mapper)))
    return True


def kind_and_text(item: Mapping[str, Any]) -> tuple[PartKind, str]:
    """Return the kind of an item and what it contributes: its text, reasoning or call id."""
    match item:
        case {"type": "text", "text": str(text)}:
            return "text", text
        case {"type": "message", "content": [*parts]}:
            return "text", "".join(_texts(parts))
        case {"type": "thinking", "thinking": str(text)}:
            return "reasoning", text
        case {"type": "reasoning", "summary": [*summary], **rest}:
            return "reasoning", "".join(_texts(summary or rest.get("content") or ()))
        case {"type": "tool_use", "id": str(id)} | {"type": "function_call", "call_id": str(id)}:
            return "call", id
        case _:
            return "other", ""


def calls_in(items: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return the ids and names of the calls."""
    kinds = [(*kind_and_text(item), item) for item in items]
    return [(id, str(item.get("name"))) for kind, id, item in kinds if kind == "call"]


def _texts(parts: Sequence[Any]) -> Iterator[str]:
    for part in parts:
        match part:
            case {"text": str(text)}:
                yield text
            case _:
                pass


def _process(
    process: Callable[..., Any], output: str, response: Any, *args: Any, **options: Any
) -> Any:
    """Process a whole reply; items of a kind that the SDK does not know are only recorded."""
    items = list(getattr(response, output, None) or ())
    raw = [item.to_dict() for item in items]
    kind = response.__class__
    known = [item for item in items if item.type in _known_types(kind, output)]
    if len(known) < len(items):
        setattr(response, output, known)
    processed = process(response, *args, **options)
    if not all(map(_is_plain, raw)):
        processed.metadata = {RAW_ITEMS: raw}
    return processed


@cache
def _known_types(response: Any, output: str) -> frozenset[str]:
    """Return the types of the items that a class of the SDK has a class for."""

    def names(annotation: Any) -> Iterator[str]:
        if isinstance(annotation, str):
            yield annotation
        fields: Any = getattr(annotation, "model_fields", None)
        for part in get_args(annotation) if fields is None else (fields["type"].annotation,):
            yield from names(part)

    return frozenset(names(response.model_fields[output].annotation))


async def _process_stream(
    process: Callable[..., Awaitable[Any]],
    recorder: type[_Recorder],
    response: Any,
    *args: Any,
    **options: Any,
) -> Any:
    streamed = await process(response, *args, **options)
    recording = streamed._response = recorder(streamed._response)
    streamed.get = partial(_with_recording, streamed.get, recording)
    return streamed


def _with_recording(get: Callable[[], Any], recording: _Recorder) -> Any:
    response = get()
    items = recording.items()
    if items is not None and not all(map(_is_plain, items)):
        response.metadata = {RAW_ITEMS: items}
    return response


def _is_plain(item: Mapping[str, Any]) -> bool:
    """Return whether a text or a call has nothing that its provider would miss."""
    return item["type"] in ("text", "tool_use") and not any(
        value for name, value in item.items() if name not in _PLAIN_FIELDS
    )


async def _map_with_items(
    map_messages: Callable[..., Awaitable[tuple[Any, list[Any]]]],
    messages: Sequence[Any],
    *args: Any,
    **options: Any,
) -> tuple[Any, list[Any]]:
    """Translate messages; the metadata of a reply has the raw items by the text that marks them."""
    raw: dict[str, list[Any]] = {}
    for message in messages:
        raw |= message.metadata or {}
    system, translated = await map_messages(messages, *args, **options)
    return system, [item for message in translated for item in _with_items(message, raw)]


def _with_items(message: Any, raw: Mapping[str, list[Any]]) -> list[Any]:
    """Return the items in place of a message that only has their mark."""
    match message:
        case {"role": "assistant", "content": str(mark)} if mark in raw:
            return raw[mark]
        case {"role": "assistant", "content": [{"text": str(mark)}]} if mark in raw:
            return [{**message, "content": raw[mark]}]
        case _:
            return [message]


class _Recorder:
    """A stream of events that records the items in them; otherwise the stream itself."""

    def __init__(self, events: Any) -> None:
        self._events = events
        self._items: dict[int, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._events, name)

    def __aiter__(self) -> _Recorder:
        return self

    async def __anext__(self) -> Any:
        while True:
            event = await anext(self._events)
            if self.record(event):
                return event

    def record(self, event: Any) -> bool:
        """Record what an event says about an item; return whether it is passed on."""
        raise NotImplementedError

    def items(self) -> list[Any] | None:
        """Return the items in order; None if one of them is incomplete."""
        return [self._items[index] for index in sorted(self._items)]


class _ResponsesRecorder(_Recorder):
    def __init__(self, events: Any) -> None:
        super().__init__(events)
        self._only_recorded: set[int] = set()  # items that pydantic-ai would warn of

    def record(self, event: Any) -> bool:
        index = getattr(event, "output_index", None)
        if event.type == "response.output_item.added" and event.item.type not in _TRANSLATED:
            self._only_recorded.add(event.output_index)
        if event.type == "response.output_item.done":
            self._items[event.output_index] = event.item.to_dict()
        return index not in self._only_recorded


class _AnthropicRecorder(_Recorder):
    def __init__(self, events: Any) -> None:
        super().__init__(events)
        self._pieces: dict[tuple[int, str], list[str]] = {}  # of texts, by block and field

    def record(self, event: Any) -> bool:
        if event.type == "content_block_start":
            self._items[event.index] = event.content_block.to_dict()
        elif event.type == "content_block_delta" and event.index in self._items:
            delta = event.delta
            if delta.type == "text_delta":
                self._add(event.index, "text", delta.text)
            else:
                for name, value in delta.to_dict().items():
                    self._add(event.index, name, value)
        return True

    def _add(self, index: int, name: str, value: Any) -> None:
        block = self._items[index]
        if name == "citation":
            block["citations"] = [*(block.get("citations") or ()), value]
        elif isinstance(value, str) and name != "type":
            self._pieces.setdefault((index, name), [block.get(name) or ""]).append(value)
        elif name != "type":
            block[name] = value

    def items(self) -> list[Any] | None:
        for (index, name), pieces in self._pieces.items():
            text = "".join(pieces)
            if name != "partial_json":
                self._items[index][name] = text
                continue
            try:
                self._items[index]["input"] = loads(text) if text.strip() else {}
            except ValueError:  # cut off
                return None
        items = super().items() or []
        # An empty text is refused in a request.
        return [item for item in items if item.get("type") != "text" or item["text"].strip()]
