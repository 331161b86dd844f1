"""Translation between our messages and pydantic-ai's.

It also compensates for what pydantic-ai loses or gets wrong:

- The text of a refusal comes with the finish reason; it is emitted as the last text delta.
- pydantic-ai treats a truncated OpenAI stream as finished; here it is an error, unless the
  provider sent a finish reason.
- Some servers give every parallel call the index 0, or repeat the name in each chunk: a new id
  with a name starts a new call, and a repeated name is not appended.
- A call without a name is dropped; a reply whose finish reason is such a call is an error.
- pydantic-ai appends each text delta to one long string that nothing reads, at quadratic cost; the
  string is reset after every event.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from json import dumps, loads
from typing import Any, cast

from sennit.errors import MissingExtraError, ModelError, ValidationError, short_repr
from sennit.ids import new_id
from sennit.messages.provider_state import STATE_KEY, PartKind, ProviderState, StatePart
from sennit.services.models.providers.raw_items import RAW_ITEMS, calls_in, kind_and_text
from sennit.services.models.providers.workarounds import mend_stream
from sennit.services.models.reply import (
    CallDelta,
    Delta,
    Finished,
    FinishReason,
    ReasoningDelta,
    Reply,
    ReplyAssembler,
    TextDelta,
    Usage,
)
from sennit.services.models.request import ModelRequest

try:
    from genai_prices import calc_price
    from pydantic_ai import messages as layer
    from pydantic_ai.models import ModelRequestParameters, StreamedResponse
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.tools import ToolDefinition
    from pydantic_ai.usage import RequestUsage
except ImportError as error:
    raise MissingExtraError.of("Asking a provider's model", "models") from error

_FINISH_REASONS: Mapping[layer.FinishReason, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "refusal",
    "tool_call": "tool_calls",
    "error": "error",
}


def layer_parameters(request: ModelRequest) -> ModelRequestParameters:
    """Translate the tools and the output schema."""
    tools = [
        ToolDefinition(
            name=tool.name,
            description=tool.description or None,
            parameters_json_schema=dict(tool.parameters),
        )
        for tool in request.tools
    ]
    if request.output is None:
        return ModelRequestParameters(function_tools=tools)
    name = "".join(c if c.isascii() and c.isalnum() else "_" for c in request.output.name)[:64]
    return ModelRequestParameters(
        function_tools=tools,
        output_mode="native",
        output_object=OutputObjectDefinition(dict(request.output.schema), name or "Output"),
    )


def layer_messages(
    messages: Sequence[Mapping[str, Any]], provider: str = ""
) -> Iterator[layer.ModelMessage]:
    """Translate messages; those between two replies form one request, as providers require.

    A reply of this provider is sent as it came; of one of another provider, the texts and calls.
    """
    names: dict[str, str] = {}
    request_parts: list[layer.ModelRequestPart] = []
    for message in messages:
        if message.get("role") != "assistant":
            request_parts.append(_request_part(message, names))
            continue
        if request_parts:
            yield layer.ModelRequest(parts=request_parts)
            request_parts = []
        translated = layer.ModelResponse(parts=list(_response_parts(message, names)))
        yield _original(message.get(STATE_KEY), provider, translated) or translated
    if request_parts:
        yield layer.ModelRequest(parts=request_parts)


def has_image_url(messages: Iterable[layer.ModelMessage]) -> bool:
    """Return whether a message refers to an image by URL rather than holding its bytes."""
    parts = (part for message in messages for part in message.parts)
    contents = (part.content for part in parts if isinstance(part, layer.UserPromptPart))
    block_lists = (content for content in contents if not isinstance(content, str))
    return any(isinstance(block, layer.ImageUrl) for content in block_lists for block in content)


def _request_part(message: Mapping[str, Any], names: Mapping[str, str]) -> layer.ModelRequestPart:
    content = message.get("content")
    match message.get("role"):
        case "system" | "developer":
            return layer.SystemPromptPart(_text(content))
        case "user":
            return layer.UserPromptPart(content if isinstance(content, str) else _blocks(content))
        case "tool":
            id = str(message.get("tool_call_id", ""))
            return layer.ToolReturnPart(names.get(id, "unknown"), _text(content), id)
        case role:
            raise ValidationError(
                f"A message has the role {short_repr(role)}; a role is system, user, assistant or "
                "tool."
            )


def _response_parts(
    message: Mapping[str, Any], names: dict[str, str]
) -> Iterator[layer.ModelResponsePart]:
    if text := _text(message.get("content")):
        yield layer.TextPart(text)
    for call in cast("Iterable[Mapping[str, Any]]", message.get("tool_calls") or ()):
        function = call["function"]
        names[call["id"]] = function["name"]
        yield layer.ToolCallPart(function["name"], function["arguments"], call["id"])


def _original(
    state: Any, provider: str, translated: layer.ModelResponse
) -> layer.ModelResponse | None:
    """Return the reply as its provider sent it, None if that is another or the calls differ."""
    match state:
        case {"provider": name, "response": str(response), "parts": [*parts]} if name == provider:
            pass
        case _:
            return None
    try:
        fields, items = loads(response), [loads(part) for part in parts]
        if fields.pop(RAW_ITEMS, False):
            if calls_in(items) != _calls(translated):
                return None
            mark = f"items of reply {new_id().hex}"
            return layer.ModelResponse(parts=[layer.TextPart(mark)], metadata={mark: items})
        fields["parts"] = items
        (original,) = layer.ModelMessagesTypeAdapter.validate_json(dumps([fields]))
    except (
        ValueError,
        TypeError,
        AttributeError,
    ):  # damaged, or of a pydantic-ai with other fields
        return None
    if isinstance(original, layer.ModelResponse) and _calls(original) == _calls(translated):
        return original
    return None


def _calls(response: layer.ModelResponse) -> list[tuple[str, str]]:
    return [
        (part.tool_call_id, part.tool_name)
        for part in response.parts
        if isinstance(part, layer.ToolCallPart)
    ]


def _provider_state(response: layer.ModelResponse, provider: str) -> ProviderState | None:
    """Return what the provider sent beside texts and calls; None if there is nothing."""
    raw: list[dict[str, Any]] | None = (response.metadata or {}).get(RAW_ITEMS)
    if raw is None and all(map(_is_plain, response.parts)):
        return None
    dumped = layer.ModelMessagesTypeAdapter.dump_json([response], exclude_none=True)
    (fields,) = loads(dumped)
    for name in ("timestamp", "usage", "metadata"):
        fields.pop(name, None)
    if raw is not None:
        del fields["parts"]
        parts = [StatePart(*kind_and_text(item), dumps(item)) for item in raw]
        return ProviderState(provider, dumps({**fields, RAW_ITEMS: True}), tuple(parts))
    parts = [
        StatePart(*_kind_and_text(part), dumps(data))
        for part, data in zip(response.parts, fields.pop("parts"), strict=True)
    ]
    return ProviderState(provider, dumps(fields), tuple(parts))


def _is_plain(part: layer.ModelResponsePart) -> bool:
    """Return whether the canonical content of a part is all of it."""
    match part:
        case layer.TextPart(id=None, provider_details=None, citations=None):
            return True
        case layer.ToolCallPart(id=None, provider_details=None):
            return True
        case _:
            return False


def _kind_and_text(part: layer.ModelResponsePart) -> tuple[PartKind, str]:
    match part:
        case layer.TextPart(content=text):
            return "text", text
        case layer.ThinkingPart():
            return "reasoning", _thinking_text(part)
        case layer.ToolCallPart(tool_call_id=id):
            return "call", id
        case _:
            return "other", ""


def _text(content: Any) -> str:
    """Join text blocks; raises ValidationError if a block is an image."""
    if content is None or isinstance(content, str):
        return content or ""
    blocks = [block for block in _blocks(content) if isinstance(block, str)]
    if len(blocks) != len(content):
        raise ValidationError("Only a user message may contain images.")
    return "\n\n".join(blocks)


def _blocks(content: Any) -> list[layer.UserContent]:
    return [_block(block) for block in cast("Iterable[Mapping[str, Any]]", content or ())]


def _block(block: Mapping[str, Any]) -> layer.UserContent:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image_url", "image_url": {"url": str(url), **more}}:
            return _image(url, more.get("detail"))
        case _:
            raise ValidationError(
                f"A content block must be of type 'text' or 'image_url', got {short_repr(block)}."
            )


def reply(response: layer.ModelResponse, provider: str) -> Reply:
    """Translate a whole reply of a provider."""
    translator, assembly = _DeltaTranslator(provider), ReplyAssembler()
    for index, part in enumerate(response.parts):
        for delta in translator.on_part(index, part):
            assembly.feed(delta)
    for delta in translator.finish(response):
        assembly.feed(delta)
    return assembly.reply()


def _image(url: str, detail: Any) -> layer.UserContent:
    if not url.startswith("data:"):
        return layer.ImageUrl(url, vendor_metadata={"detail": detail} if detail else None)
    try:
        return layer.BinaryContent.from_data_uri(url)
    except ValueError as error:
        raise ValidationError(f"An image is not a base64 data URL: {short_repr(url)}.") from error


async def deltas(response: StreamedResponse, provider: str) -> AsyncIterator[Delta]:
    """Translate a streamed reply of a provider as it arrives."""
    mend_stream(response)
    translator = _DeltaTranslator(provider)
    async for event in response:
        for delta in translator.on_event(event):
            yield delta
        if "_raw_text_content" in vars(response):
            vars(response)["_raw_text_content"] = ""
    for delta in translator.finish(_response_end(response)):
        yield delta


def _response_end(response: StreamedResponse) -> layer.ModelResponse:
    """Return the whole response; raises ModelError if it is truncated."""
    details = response.provider_details or {}
    if "finish_reason" not in details and response.finish_reason in (None, "stop"):
        raise ModelError("the reply ended before it was complete.", kind="network")
    return response.get()


@dataclass(slots=True)
class _OpenCall:
    """A tool call that is still streaming."""

    index: int
    id: str
    name: str


@dataclass(slots=True)
class _DeltaTranslator:
    """Translates the parts and deltas of one reply."""

    _provider: str
    _open_calls: dict[int, _OpenCall] = field(default_factory=dict[int, _OpenCall])
    """The current call of each part, by the part's index."""
    _call_count: int = 0

    def on_event(self, event: layer.ModelResponseStreamEvent) -> Iterator[Delta]:
        """Return the deltas of an event."""
        match event:
            case layer.PartStartEvent():
                yield from self.on_part(event.index, event.part)
            case layer.PartDeltaEvent(delta=layer.TextPartDelta(content_delta=text)) if text:
                yield TextDelta(text)
            case layer.PartDeltaEvent(delta=layer.ThinkingPartDelta() as delta):
                if text := _thinking_delta_text(delta):
                    yield ReasoningDelta(text)
            case layer.PartDeltaEvent(delta=layer.ToolCallPartDelta() as delta):
                if event.index in self._open_calls:  # else it is a tool that the provider runs
                    yield self._continue_call(event.index, delta)
            case _:
                pass

    def on_part(self, index: int, part: layer.ModelResponsePart) -> Iterator[Delta]:
        """Return the deltas of a new part."""
        match part:
            case layer.TextPart(content=text) if text:
                yield TextDelta(text)
            case layer.ThinkingPart():
                if text := _thinking_text(part):
                    yield ReasoningDelta(text)
            case layer.ToolCallPart():
                yield self._start_call(index, part.tool_call_id, part.tool_name, part.args)
            case _:
                pass

    def _start_call(self, part: int, id: str, name: str, arguments: Any) -> CallDelta:
        call = self._open_calls[part] = _OpenCall(self._call_count, id, name)
        self._call_count += 1
        return CallDelta(call.index, id, name, _json(arguments))

    def _continue_call(self, part: int, delta: layer.ToolCallPartDelta) -> CallDelta:
        call, name = self._open_calls[part], delta.tool_name_delta or ""
        if name and delta.tool_call_id and delta.tool_call_id != call.id:
            return self._start_call(part, delta.tool_call_id, name, delta.args_delta)
        if name == call.name:
            name = ""
        call.name += name
        return CallDelta(call.index, name=name, arguments=_json(delta.args_delta))

    def finish(self, response: layer.ModelResponse) -> Iterator[Delta]:
        """Return the final delta, preceded by the text of a refusal; raises ModelError."""
        finish = response.finish_reason
        reason: FinishReason = _FINISH_REASONS[finish] if finish else "stop"
        if reason == "tool_calls" and not self._call_count:
            raise ModelError("the reply calls a tool without a name.", kind="malformed")
        if reason == "stop" and self._call_count:
            reason = "tool_calls"
        refusal = (response.provider_details or {}).get("refusal")
        if reason == "refusal" and isinstance(refusal, str):
            yield TextDelta(refusal)
        state = _provider_state(response, self._provider)
        yield Finished(reason, _usage(response), response.model_name or "", state)


def _thinking_text(part: layer.ThinkingPart) -> str:
    """Return the reasoning of a part, or else what the model wrote before it was summarised."""
    return part.content or "".join((part.provider_details or {}).get("raw_content", ()))


def _thinking_delta_text(delta: layer.ThinkingPartDelta) -> str:
    if delta.content_delta:
        return delta.content_delta
    update = delta.provider_details
    details = update(None) if callable(update) else update
    return "".join((details or {}).get("raw_content", ()))


def _json(arguments: str | dict[str, Any] | None) -> str:
    """Return arguments as JSON text; some providers send them parsed."""
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return dumps(arguments, ensure_ascii=False)


def _usage(response: layer.ModelResponse) -> Usage:
    usage = response.usage
    details = usage.details
    reasoning_keys = ("reasoning_tokens", "thinking_tokens", "thoughts_tokens")
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cache_read_tokens,
        reasoning_tokens=next((details[name] for name in reasoning_keys if name in details), 0),
        cost=price(usage, response.model_name or "", response.provider_url or ""),
    )


def price(usage: RequestUsage, model: str, url: str) -> float | None:
    """Return the cost in US dollars; None if the price list has no entry for the provider's URL."""
    if not usage.has_values():
        return None
    try:
        return float(calc_price(usage, model, provider_api_url=url).total_price)
    except (LookupError, ValueError):
        return None
