"""Translation of requests to pydantic-ai's messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from json import dumps, loads
from typing import Any, cast

from sennit.errors import MissingExtraError, ValidationError, short_repr
from sennit.ids import new_id
from sennit.messages.provider_state import STATE_KEY
from sennit.services.models.providers.files import FileInput, layer_content
from sennit.services.models.providers.items import calls_in, can_be_answered, mapping
from sennit.services.models.request import ModelRequest

try:
    from genai_prices import calc_price
    from pydantic_ai import messages as layer
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.tools import ToolDefinition
    from pydantic_ai.usage import RequestUsage
except ImportError as error:
    raise MissingExtraError.of("Asking a provider's model", "models") from error


ITEMS_MARK = f"items of a reply {new_id().hex} "
"""The beginning of a text that stands for items; no model and no user can know it."""


def price(usage: RequestUsage, model: str, url: str) -> float | None:
    """Return the cost in US dollars; None if the price list has no entry for the provider's URL."""
    if not usage.has_values():
        return None
    try:
        return float(calc_price(usage, model, provider_api_url=url).total_price)
    except (LookupError, ValueError):
        return None


def items_message(
    items: Sequence[Mapping[str, Any]], container: str | None = None
) -> layer.ModelResponse:
    """Return a message that stands for the items of a reply."""
    details = {"container_id": container} if container else None
    return layer.ModelResponse(
        parts=[layer.TextPart(ITEMS_MARK + dumps(items))],
        provider_name="anthropic" if container else None,
        provider_details=details,
    )


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
    messages: Sequence[Mapping[str, Any]], provider: str = "", accepted: FileInput | None = None
) -> Iterator[layer.ModelMessage]:
    """Translate messages; those between two replies form one request, as providers require.

    A reply of this provider is sent as it came; of one of another provider, the texts and calls.
    Files that are not `accepted` are refused in the last message and described in others.
    """
    names: dict[str, str] = {}
    request_parts: list[layer.ModelRequestPart] = []
    for at, message in enumerate(messages, 1):
        if message.get("role") != "assistant":
            newest = at == len(messages)
            request_parts.append(_request_part(message, names, accepted, newest=newest))
            continue
        translated = layer.ModelResponse(parts=list(_response_parts(message, names)))
        reply = _original(message.get(STATE_KEY), provider, translated) or translated
        if not reply.parts:
            continue  # it has only what another provider does not understand
        if request_parts:
            yield layer.ModelRequest(parts=request_parts)
            request_parts = []
        yield reply
    if request_parts:
        yield layer.ModelRequest(parts=request_parts)


def _request_part(
    message: Mapping[str, Any],
    names: Mapping[str, str],
    accepted: FileInput | None,
    *,
    newest: bool,
) -> layer.ModelRequestPart:
    content = message.get("content")
    match message.get("role"):
        case "system" | "developer":
            return layer.SystemPromptPart(_text(content))
        case "user":
            if not isinstance(content, str):
                content = layer_content(content, accepted, newest=newest)
            return layer.UserPromptPart(content)
        case "tool":
            id = str(message.get("tool_call_id", ""))
            name = names.get(id, "unknown")
            returned = cast("layer.ToolReturnContent", _tool_content(content, accepted))
            return layer.ToolReturnPart(name, returned, id)
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
        details, items = loads(response), [loads(part) for part in parts]
        if not _same_calls(calls_in(items), translated) or not can_be_answered(items):
            return None
        container = mapping(details.get("container")).get("id")
        return items_message(items, container)
    except (ValueError, TypeError, AttributeError):  # damaged
        return None


def _same_calls(calls: Sequence[tuple[str, str]], translated: layer.ModelResponse) -> bool:
    parts = [part for part in translated.parts if isinstance(part, layer.ToolCallPart)]
    return len(calls) == len(parts) and all(
        id in ("", part.tool_call_id) and name == part.tool_name
        for (id, name), part in zip(calls, parts, strict=True)
    )


def _tool_content(content: Any, accepted: FileInput | None) -> str | list[layer.UserContent]:
    """Return the content of a tool result: a text, or texts and files."""
    if content is None or isinstance(content, str):
        return content or ""
    items = layer_content(content, accepted)
    texts = [item for item in items if isinstance(item, str)]
    return "\n\n".join(texts) if len(texts) == len(items) else items


def _text(content: Any) -> str:
    """Join text blocks; raises ValidationError if a block is an image or a file."""
    if content is None or isinstance(content, str):
        return content or ""
    items = layer_content(content, None)
    texts = [item for item in items if isinstance(item, str)]
    if len(texts) != len(items):
        raise ValidationError("Only a user message or a tool result may contain images or files.")
    return "\n\n".join(texts)
