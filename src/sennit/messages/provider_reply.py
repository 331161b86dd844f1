"""A provider's additions to a reply, for programs: citations, tools it ran, refusals, details.

It is read from the provider state of the reply's messages, so it needs no provider package. What a
provider calls differently has one name here; `items` and `details` have everything as it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from json import loads
from typing import Any, cast

from sennit.messages.message import Message
from sennit.messages.provider_state import STATE_KEY

_RESULT_FIELDS = ("content", "outputs", "output", "results", "result", "tools", "response")
_ARGUMENT_FIELDS = ("input", "arguments", "action", "queries", "code", "args")


@dataclass(frozen=True, slots=True)
class ProviderCitation:
    """A source that a text names."""

    url: str = ""
    """The address of the source, if it has one."""
    title: str = ""
    """The title of the source, if it has one."""
    text: str = ""
    """The words of the source, if the provider quotes them."""
    data: Mapping[str, Any] | None = None
    """The citation as the provider wrote it."""


@dataclass(frozen=True, slots=True)
class ProviderToolCall:
    """The call of a tool that the provider ran itself, such as a web search."""

    name: str
    """The name of the tool, such as "web_search"."""
    arguments: Any = None
    """What it was called with, as the provider wrote it."""
    result: Any = None
    """What it returned, as the provider wrote it; None if that is not in the reply."""


@dataclass(frozen=True, slots=True)
class ProviderReply:
    """The items and details of replies as their provider sent them."""

    provider: str = ""
    """The provider; "" if no message has provider state."""
    items: tuple[Mapping[str, Any], ...] = ()
    """The items of the replies in order: OpenAI's items, Anthropic's blocks, Google's parts, or
    fragments of a chat message."""
    details: tuple[Mapping[str, Any], ...] = ()
    """What concerns each reply as a whole, such as reasons and log probabilities."""

    @classmethod
    def of(cls, messages: Iterable[Message]) -> ProviderReply:
        """Return what the provider sent with these messages, such as those of one run."""
        provider, items, details = "", list[Any](), list[Any]()
        for message in messages:
            match message.metadata.get(STATE_KEY):
                case {"provider": str(provider), "parts": [*parts], **rest}:
                    items += map(_json, parts)
                    details += [_json(rest["response"])] if "response" in rest else []
                case _:
                    pass
        return cls(provider, tuple(filter(None, items)), tuple(filter(None, details)))

    @property
    def citations(self) -> tuple[ProviderCitation, ...]:
        """The sources that the texts name."""
        return tuple(_citation(one) for one in _all_citations((*self.items, *self.details)))

    @property
    def tool_calls(self) -> tuple[ProviderToolCall, ...]:
        """The calls of tools that the provider ran, with their results."""
        return tuple(_tool_calls(self.items))

    @property
    def refusal(self) -> str:
        """The reason of the model or the provider for a refusal; "" if it did not refuse."""
        return "".join(_refusals((*self.items, *self.details)))

    @property
    def logprobs(self) -> Any:
        """The log probabilities of the last reply as they came; None if they were not asked for."""
        for details in reversed(self.details):
            if (found := details.get("logprobs") or details.get("logprobsResult")) is not None:
                return found
        return None


def _json(text: Any) -> Mapping[str, Any]:
    try:
        value = loads(text)
    except (ValueError, TypeError):  # damaged
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield all objects in a value, the outer ones first."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        yield fields
        for field in fields.values():
            yield from _objects(field)
    elif isinstance(value, list | tuple):
        for one in cast("Sequence[Any]", value):
            yield from _objects(one)


def _all_citations(values: Sequence[Any]) -> Iterator[Any]:
    for one in _objects(values):
        match one:
            case {"citations": [*citations]} | {"annotations": [*citations]}:
                yield from citations
            case {"groundingChunks": [*citations]}:
                yield from citations
            case _:
                pass


def _citation(data: Any) -> ProviderCitation:
    if isinstance(data, str):
        return ProviderCitation(url=data)
    fields: dict[str, str] = {}
    for one in _objects(data):
        for name, value in one.items():
            if isinstance(value, str):
                fields.setdefault(name, value)
    url = fields.get("url") or fields.get("uri") or ""
    title = fields.get("title") or fields.get("document_title") or fields.get("filename") or ""
    return ProviderCitation(url, title, fields.get("cited_text") or "", data)


def _tool_calls(items: Sequence[Mapping[str, Any]]) -> Iterator[ProviderToolCall]:
    results = {one["tool_use_id"]: one.get("content") for one in items if "tool_use_id" in one}
    for index, item in enumerate(items):
        match item:
            case {"type": "server_tool_use" | "mcp_tool_use", "id": id, "name": str(name)}:
                yield ProviderToolCall(name, item.get("input"), results.get(id))
            case {"type": "mcp_call", "name": str(name)}:
                yield ProviderToolCall(name, item.get("arguments"), item.get("output"))
            case {"type": str(type), "id": _} if type.endswith("_call") and "call_id" not in item:
                arguments, result = _first(item, _ARGUMENT_FIELDS), _first(item, _RESULT_FIELDS)
                yield ProviderToolCall(type.removesuffix("_call"), arguments, result)
            case {"executableCode": code}:
                after = [_first(one, ("codeExecutionResult",)) for one in items[index + 1 :][:1]]
                yield ProviderToolCall("code_execution", code, after[0] if after else None)
            case {"toolCall": {"toolType": str(name), **call}}:
                answers = [one["toolResponse"] for one in items if "toolResponse" in one]
                answer = [one for one in answers if one.get("id") == call.get("id")]
                result = answer[0].get("response") if answer else None
                yield ProviderToolCall(name.lower(), call.get("args"), result)
            case {"executed_tools": [*tools]}:
                for tool in tools:
                    yield ProviderToolCall(
                        tool.get("type") or "", tool.get("arguments"), tool.get("output")
                    )
            case _:
                pass


def _first(item: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((item[name] for name in names if item.get(name) is not None), None)


def _refusals(values: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for one in _objects(values):
        match one:
            case {"refusal": str(text)} | {"explanation": str(text), "type": "refusal"}:
                yield text
            case {"blockReason": str(reason)}:
                yield one.get("blockReasonMessage") or reason
            case _:
                pass
