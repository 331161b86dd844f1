"""Workarounds for what pydantic-ai 2.66 loses of a provider's reply; each names what it mends.

They wrap methods of one model or reply, not of the package. With a version that needs one no longer
it is to be removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any, cast

UNKNOWN_ITEMS = "unknown_items"
"""The key, in the metadata of a pydantic-ai response, of output items that it cannot hold."""


def mend_model(model: Any) -> None:
    """Make the whole replies of a model of pydantic-ai complete."""
    if hasattr(model, "_get_enabled_server_tool_names"):
        # Anthropic: the call of a provider-run tool is dropped unless this request enabled the
        # tool, but its result is kept, and the provider refuses a result without its call.
        model._get_enabled_server_tool_names = _every_server_tool
    if hasattr(model, "_process_thinking"):
        model._process_response = partial(_with_reasoning, model._process_response)
    elif hasattr(model, "_responses_create"):
        model._process_response = partial(_without_unknown_items, model._process_response)


def mend_stream(response: Any) -> None:
    """Make a streamed reply complete; before it is read."""
    if hasattr(response, "_map_thinking_delta"):
        # Perplexity and vLLM send the usage so far with each chunk, which would be added up.
        response._add_usage = partial(_replace_usage, response._add_usage)
        response._map_thinking_delta = partial(_with_reasoning_delta, response._map_thinking_delta)


class _AllNames(frozenset[str]):
    """A set that contains every name."""

    def __contains__(self, _: object) -> bool:
        return True


def _every_server_tool(*_: Any, **__: Any) -> frozenset[str]:
    return _AllNames()


def _with_reasoning(process: Callable[..., Any], response: Any, *args: Any, **options: Any) -> Any:
    for choice in getattr(response, "choices", None) or ():
        _name_reasoning(choice.message)
    return process(response, *args, **options)


def _with_reasoning_delta(map_delta: Callable[[Any], Any], choice: Any) -> Any:
    _name_reasoning(choice.delta)
    return map_delta(choice)


def _name_reasoning(message: Any) -> None:
    """Put reasoning under the name that is read: "reasoning_text", or Mistral's thinking parts."""
    names = ("reasoning", "reasoning_content")
    if message is None or any(getattr(message, name, None) for name in names):
        return
    text = getattr(message, "reasoning_text", None)
    if not isinstance(text, str):
        text = "".join(_thinking_texts(getattr(message, "content", None)))
    if text:
        message.reasoning_content = text


def _thinking_texts(content: Any) -> Iterable[str]:
    """Yield the texts of the thinking parts of a content that is a list."""
    for part in cast("list[Any]", content) if isinstance(content, list) else ():
        match part:
            case {"type": "thinking", "thinking": str(text)}:
                yield text
            case {"type": "thinking", "thinking": [*pieces]}:
                yield from (text for piece in pieces if (text := _text_of(piece)))
            case _:
                pass


def _text_of(piece: Any) -> str:
    match piece:
        case {"text": str(text)}:
            return text
        case _:
            return ""


def _replace_usage(add: Callable[..., None], usage: Any, **options: Any) -> None:
    if options["reported"]:
        options["cumulative"] = True
    add(usage, **options)


def _without_unknown_items(
    process: Callable[..., Any], response: Any, *args: Any, **options: Any
) -> Any:
    """Process a whole reply; output items of a kind that the SDK does not know are kept apart."""
    known = _known_item_types()
    unknown = [item for item in response.output or () if item.type not in known]
    if unknown:
        response.output = [item for item in response.output if item.type in known]
    processed = process(response, *args, **options)
    if unknown:
        processed.metadata = {UNKNOWN_ITEMS: [item.to_dict() for item in unknown]}
    return processed


@cache
def _known_item_types() -> frozenset[str]:
    from typing import get_args

    from openai.types.responses import ResponseOutputItem

    union = get_args(ResponseOutputItem)[0]
    return frozenset(
        name for kind in get_args(union) for name in get_args(kind.model_fields["type"].annotation)
    )
