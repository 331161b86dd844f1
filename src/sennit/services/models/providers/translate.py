"""Translation between our messages and pydantic-ai's.

Where the layer says less than the provider did, this is how it is got back:

- A refusal's text arrives with the end, not as text; it is told as the last text.
- A stream that just stops counts as a finished one for OpenAI's form; here it is an error, unless
  the provider has said why it finished.
- Some servers give every parallel call the index 0, or repeat the name in each piece: another id
  with a name is another call, and a name said again is not more of it.
- A call that never gets a name is left out; a reply that ends for the sake of one is an error.
- Each piece of text is added to one long string that nobody reads, at quadratic cost; it is kept
  empty.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from json import dumps
from typing import Any, cast

from sennit.errors import ModelError, ValidationError, shown
from sennit.services.models.providers.pydantic_ai_imports import (
    ModelRequestParameters,
    OutputObjectDefinition,
    RequestUsage,
    StreamedResponse,
    ToolDefinition,
    calc_price,
)
from sennit.services.models.providers.pydantic_ai_imports import messages as layer
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

_FINISHES: Mapping[layer.FinishReason, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "refusal",
    "tool_call": "tool_calls",
    "error": "error",
}


def layer_parameters(request: ModelRequest) -> ModelRequestParameters:
    """The tools and the form of the answer."""
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


def layer_messages(messages: Sequence[Mapping[str, Any]]) -> Iterator[layer.ModelMessage]:
    """Translate messages; all between two answers is one request, as providers require."""
    names: dict[str, str] = {}
    asked: list[layer.ModelRequestPart] = []
    for message in messages:
        if message.get("role") != "assistant":
            asked.append(_request_part(message, names))
            continue
        if asked:
            yield layer.ModelRequest(parts=asked)
            asked = []
        yield layer.ModelResponse(parts=list(_response_parts(message, names)))
    if asked:
        yield layer.ModelRequest(parts=asked)


def has_image_address(said: Iterable[layer.ModelMessage]) -> bool:
    """Return whether an image is given by its address, rather than by its bytes."""
    parts = (part for message in said for part in message.parts)
    asked = (part.content for part in parts if isinstance(part, layer.UserPromptPart))
    blocks = (content for content in asked if not isinstance(content, str))
    return any(isinstance(one, layer.ImageUrl) for content in blocks for one in content)


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
                f"A message has the role {shown(role)}; a role is system, user, assistant or tool."
            )


def _response_parts(
    message: Mapping[str, Any], names: dict[str, str]
) -> Iterator[layer.ModelResponsePart]:
    if said := _text(message.get("content")):
        yield layer.TextPart(said)
    for call in cast("Iterable[Mapping[str, Any]]", message.get("tool_calls") or ()):
        function = call["function"]
        names[call["id"]] = function["name"]
        yield layer.ToolCallPart(function["name"], function["arguments"], call["id"])


def _text(content: Any) -> str:
    """Text, or text blocks, as one text."""
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
                f"A content block must be of type 'text' or 'image_url', got {shown(block)}."
            )


def reply(response: layer.ModelResponse) -> Reply:
    """A whole answer."""
    telling, assembly = _Telling(), ReplyAssembler()
    for index, part in enumerate(response.parts):
        for delta in telling.start(index, part):
            assembly.feed(delta)
    for delta in telling.end(response):
        assembly.feed(delta)
    return assembly.reply()


def _image(url: str, detail: Any) -> layer.UserContent:
    if not url.startswith("data:"):
        return layer.ImageUrl(url, vendor_metadata={"detail": detail} if detail else None)
    try:
        return layer.BinaryContent.from_data_uri(url)
    except ValueError as error:
        raise ValidationError(f"An image is not a base64 data URL: {shown(url)}.") from error


async def deltas(response: StreamedResponse) -> AsyncIterator[Delta]:
    """An answer as it comes."""
    telling = _Telling()
    async for event in response:
        for delta in telling.of(event):
            yield delta
        if "_raw_text_content" in vars(response):
            vars(response)["_raw_text_content"] = ""
    for delta in telling.end(_ending(response)):
        yield delta


def _ending(response: StreamedResponse) -> layer.ModelResponse:
    """All but the words: those have been told, and may be many."""
    details = response.provider_details or {}
    if "finish_reason" not in details and response.finish_reason in (None, "stop"):
        raise ModelError("the answer broke off before it was finished.", kind="network")
    return layer.ModelResponse(
        parts=[],
        usage=response.usage,
        model_name=response.model_name,
        provider_url=response.provider_url,
        provider_details=details,
        finish_reason=response.finish_reason,
    )


@dataclass(slots=True)
class _Said:
    """A call as it has been told so far."""

    index: int
    id: str
    name: str


@dataclass(slots=True)
class _Telling:
    """Turns the parts of one answer and their deltas into ours."""

    _open: dict[int, _Said] = field(default_factory=dict[int, _Said])
    """The call that a part of the layer stands for just now."""
    _calls: int = 0

    def of(self, event: layer.ModelResponseStreamEvent) -> Iterator[Delta]:
        """Return the deltas of an event."""
        match event:
            case layer.PartStartEvent():
                yield from self.start(event.index, event.part)
            case layer.PartDeltaEvent(delta=layer.TextPartDelta(content_delta=text)) if text:
                yield TextDelta(text)
            case layer.PartDeltaEvent(delta=layer.ThinkingPartDelta(content_delta=text)) if text:
                yield ReasoningDelta(text)
            case layer.PartDeltaEvent(delta=layer.ToolCallPartDelta() as delta):
                yield self._more(event.index, delta)
            case _:
                pass

    def start(self, index: int, part: layer.ModelResponsePart) -> Iterator[Delta]:
        """Return the deltas of a new part."""
        match part:
            case layer.TextPart(content=text) if text:
                yield TextDelta(text)
            case layer.ThinkingPart(content=text) if text:
                yield ReasoningDelta(text)
            case layer.ToolCallPart():
                yield self._call(index, part.tool_call_id, part.tool_name, part.args)
            case _:
                pass

    def _call(self, part: int, id: str, name: str, arguments: Any) -> CallDelta:
        said = self._open[part] = _Said(self._calls, id, name)
        self._calls += 1
        return CallDelta(said.index, id, name, _json(arguments))

    def _more(self, part: int, delta: layer.ToolCallPartDelta) -> CallDelta:
        said, name = self._open[part], delta.tool_name_delta or ""
        if name and delta.tool_call_id and delta.tool_call_id != said.id:
            return self._call(part, delta.tool_call_id, name, delta.args_delta)
        if name == said.name:
            name = ""
        said.name += name
        return CallDelta(said.index, name=name, arguments=_json(delta.args_delta))

    def end(self, response: layer.ModelResponse) -> Iterator[Delta]:
        """The end of the answer; before it the text of a refusal."""
        finish = response.finish_reason
        reason: FinishReason = _FINISHES[finish] if finish else "stop"
        if reason == "tool_calls" and not self._calls:
            raise ModelError("the answer calls a tool without naming one.", kind="malformed")
        if reason == "stop" and self._calls:
            reason = "tool_calls"
        refusal = (response.provider_details or {}).get("refusal")
        if reason == "refusal" and isinstance(refusal, str):
            yield TextDelta(refusal)
        yield Finished(reason, _usage(response), response.model_name or "")


def _json(arguments: str | dict[str, Any] | None) -> str:
    """Arguments as the model wrote them; some providers only hand out what they have read."""
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return dumps(arguments, ensure_ascii=False)


def _usage(response: layer.ModelResponse) -> Usage:
    usage = response.usage
    details = usage.details
    thought = ("reasoning_tokens", "thinking_tokens", "thoughts_tokens")
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cache_read_tokens,
        reasoning_tokens=next((details[name] for name in thought if name in details), 0),
        cost=price(usage, response.model_name or "", response.provider_url or ""),
    )


def price(usage: RequestUsage, model: str, url: str) -> float | None:
    """US dollars, if the price list knows the address: a model's name alone says too little."""
    if not usage.has_values():
        return None
    try:
        return float(calc_price(usage, model, provider_api_url=url).total_price)
    except (LookupError, ValueError):
        return None
