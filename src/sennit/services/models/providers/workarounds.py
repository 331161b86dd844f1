"""Workarounds for what pydantic-ai 2.66 loses of a provider's reply; each names what it mends.

They wrap methods of one model or reply, not of the package. With a version that needs one no longer
it is to be removed.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import Any, cast

from sennit.services.models.providers.raw_items import record_items

_PATH_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


def mend_model(model: Any) -> None:
    """Make the whole replies of a model of pydantic-ai complete."""
    if record_items(model):
        return
    if hasattr(model, "_process_thinking"):
        model._process_response = partial(_with_reasoning, model._process_response)
    elif hasattr(model, "_generate_content"):
        model._process_response = partial(_with_whole_parts, model._process_response)
        stream = model._process_streamed_response
        model._process_streamed_response = partial(_stream_with_whole_parts, stream)


def mend_stream(response: Any) -> None:
    """Make a streamed reply complete; before it is read."""
    if hasattr(response, "_map_thinking_delta"):
        # Perplexity and vLLM send the usage so far with each chunk, which would be added up.
        response._add_usage = partial(_replace_usage, response._add_usage)
        response._map_thinking_delta = partial(_with_reasoning_delta, response._map_thinking_delta)


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


def _with_whole_parts(
    process: Callable[..., Any], response: Any, *args: Any, **options: Any
) -> Any:
    _WholeParts(None).mend(response)
    return process(response, *args, **options)


async def _stream_with_whole_parts(
    process: Callable[..., Awaitable[Any]], response: Any, *args: Any, **options: Any
) -> Any:
    return await process(_WholeParts(response), *args, **options)


class _WholeParts:
    """Google's chunks, with calls whose arguments arrive in pieces put together.

    Parts of a kind that the SDK does not know have no content; pydantic-ai would fail on them.
    """

    def __init__(self, chunks: Any) -> None:
        self._chunks = chunks
        self._open: Any = None
        """The part with the call that is still arriving."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chunks, name)

    def __aiter__(self) -> _WholeParts:
        return self

    async def __anext__(self) -> Any:
        chunk = await anext(self._chunks)
        self.mend(chunk)
        return chunk

    def mend(self, response: Any) -> None:
        """Replace the parts of a whole response or a chunk."""
        for candidate in response.candidates or ():
            if candidate.content is not None and candidate.content.parts:
                candidate.content.parts = list(self._whole(candidate.content.parts))

    def _whole(self, parts: Iterable[Any]) -> Iterable[Any]:
        for part in parts:
            call = part.function_call
            if call is not None and (self._open or call.will_continue or call.partial_args):
                yield from self._add(part, call)
            elif part.model_dump(exclude_none=True):
                yield part

    def _add(self, part: Any, call: Any) -> Iterable[Any]:
        """Add a piece of a call; yield the part of the whole call if it was the last."""
        if self._open is None:
            self._open = part
        whole = self._open
        whole.thought_signature = whole.thought_signature or part.thought_signature
        arguments: dict[str, Any] = whole.function_call.args or {}
        whole.function_call.args = arguments
        for piece in call.partial_args or ():
            _set_argument(arguments, piece)
        if not call.will_continue:
            whole.function_call.partial_args = whole.function_call.will_continue = None
            self._open = None
            yield whole


def _set_argument(arguments: dict[str, Any], piece: Any) -> None:
    """Set the value at a path such as "$.places[0].name"; text is added to text."""
    steps = [
        int(index) if index else name
        for name, index in _PATH_STEP.findall((piece.json_path or "").removeprefix("$"))
    ]
    values = (piece.string_value, piece.number_value, piece.bool_value)
    value: Any = next((value for value in values if value is not None), None)
    if not steps:
        return
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # the SDK has no integers here
    place: Any = arguments
    for step, following in pairwise(steps):
        place = _entry(place, step, [] if isinstance(following, int) else {})
    before = _entry(place, steps[-1], None)
    is_more = isinstance(before, str) and isinstance(value, str)
    place[steps[-1]] = f"{before}{value}" if is_more else value


def _entry(place: Any, step: Any, default: Any) -> Any:
    if isinstance(place, dict):
        return cast("dict[Any, Any]", place).setdefault(step, default)
    while len(place) <= step:
        place.append(default)
    return place[step]
