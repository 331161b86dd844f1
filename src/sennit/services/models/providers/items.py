"""The items of replies as providers write them, and one rule per kind for sending them back.

OpenAI's Responses API has items, Anthropic content blocks, Google parts; a chat completion has one
message, of which each item is a fragment with one field. To its own provider an item goes back as
it came, with these exceptions, because the provider refuses it otherwise:

- a fragment of a chat message that is for reading only, such as citations, stays here; of audio,
  only the id goes back;
- `created_by` of OpenAI's items and `file_id` of Anthropic's citations stay here;
- the call of a tool that Anthropic runs is left out if the reply ended before its result;
- a result of a call of OpenAI's that is not a function call has the type that belongs to the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from sennit.messages.provider_state import PartKind

Item: TypeAlias = Mapping[str, Any]

REASONING_FIELDS = (
    "reasoning",
    "reasoning_content",
    "reasoning_text",
    "reasoning_details",
    "thinking",
    "thinking_blocks",
)
"""The fields of a chat message that hold reasoning."""
_READ_ONLY_FIELDS = (
    "annotations",
    "citations",
    "search_results",
    "executed_tools",
    "content_filter_results",
    "logprobs",
    "channel",
    "token_ids",
    "index",
    "metadata",
    "tool_call_id",
)
"""The fields of a chat message that are about it, and that strict servers refuse in a request."""
_SENDS_ANNOTATIONS = ("openrouter",)
"""Providers that parse a file only once if its annotations come back."""
_PLAIN_FIELDS = ("type", "text", "id", "name", "input")
_PLAIN_CALL = ("id", "type", "function")
_THINK = "<think>"


def mapping(value: Any) -> Item:
    """Return an object of JSON, empty for null; raises TypeError for anything else."""
    if value is None or isinstance(value, Mapping):
        return cast("Item", value or {})
    raise TypeError(f"expected an object, got {value!r}")


def array(value: Any) -> Sequence[Any]:
    """Return an array of JSON, empty for null; raises TypeError for anything else."""
    if value is None or isinstance(value, list):
        return cast("list[Any]", value or [])
    raise TypeError(f"expected an array, got {value!r}")


def kind_and_text(item: Item) -> tuple[PartKind, str]:
    """Return the kind of an item and what it contributes: its text, reasoning or call id."""
    match item:
        case {"type": "text", "text": str(text)} | {"refusal": str(text)}:
            return "text", text
        case {"type": "message", "content": [*parts]}:
            return "text", joined_texts(parts)
        case {"type": "thinking", "thinking": str(text)}:
            return "reasoning", text
        case {"type": "reasoning"}:
            return "reasoning", reasoning_text(item)
        case {"type": "tool_use", "id": str(id)} | {"type": "function_call", "call_id": str(id)}:
            return "call", id
        case {"type": str()}:
            return ("call", call[0]) if (call := client_call(item)) else ("other", "")
        case {"content": content}:
            return _content_kind(content)
        case {"tool_calls": [{"id": str(id)}]}:
            return "call", id
        case {"audio": {"transcript": str(text)}}:
            return "text", text
        case {"functionCall": {"name": str(), **call}}:
            return "call", call.get("id") or ""
        case {"text": str(text)}:
            return ("reasoning" if item.get("thought") else "text"), text
        case _:
            return _field_kind(item)


def _content_kind(content: Any) -> tuple[PartKind, str]:
    if isinstance(content, str):
        if content.lstrip().startswith(_THINK):
            return "reasoning", content
        return "text", content
    thinks = any(mapping(part).get("type") == "thinking" for part in array(content))
    return ("reasoning" if thinks else "text"), joined_texts(content)


def _field_kind(item: Item) -> tuple[PartKind, str]:
    for name in REASONING_FIELDS:
        if name in item:
            value = item[name]
            return "reasoning", value if isinstance(value, str) else details_text(value)
    return "other", ""


def is_plain(item: Item) -> bool:
    """Return whether a text or a call has nothing that its provider would miss."""
    match item:
        case {"type": "text" | "tool_use"}:
            return not any(value for name, value in item.items() if name not in _PLAIN_FIELDS)
        case {"type": _}:
            return False
        case {"content": str(text)}:
            return not text.lstrip().startswith(_THINK)
        case {"tool_calls": [{"type": "function", **call}]}:
            return all(name in _PLAIN_CALL for name in call)
        case {"text": str()} | {"functionCall": {"id": str()}}:
            return len(item) == 1
        case _:
            return False


def calls_in(items: Sequence[Item]) -> list[tuple[str, str]]:
    """Return the ids and names of the calls; Google's may have no id."""
    return [
        (id, _name(item)) for item in items for kind, id in [kind_and_text(item)] if kind == "call"
    ]


def _name(item: Item) -> str:
    match item:
        case {"tool_calls": [{"custom": {"name": str(name)}}]}:
            return name
        case {"tool_calls": [{"function": {"name": str(name)}}]}:
            return name
        case {"functionCall": {"name": str(name)}}:
            return name
        case _:
            call = client_call(item)
            return str(item.get("name")) if call is None else call[1]


def joined_texts(parts: Any) -> str:
    """Return the texts and refusals of the parts of a content, joined."""
    return "".join(map(part_text, array(parts)))


def part_text(part: Any) -> str:
    """Return the text of a part of a content, whatever its type."""
    match part:
        case {"text": str(text)} | {"refusal": str(text)} | {"thinking": str(text)}:
            return text
        case {"thinking": [*parts]}:
            return joined_texts(parts)
        case _:
            return ""


def reasoning_text(item: Item) -> str:
    """Return the summary of an item with reasoning of OpenAI's, or else the reasoning."""
    return joined_texts(item.get("summary")) or joined_texts(item.get("content"))


def details_text(details: Any) -> str:
    """Return the text of OpenRouter's details of reasoning, or of what resembles them."""
    return "".join(_detail_texts(array(details) if isinstance(details, list) else [details]))


def _detail_texts(parts: Iterable[Any]) -> Iterator[str]:
    for part in parts:
        match part:
            case {"summary": str(text)}:
                yield text
            case _:
                yield part_text(part)


# Calls of OpenAI's that are not function calls, but that a program has to answer.

_TOOLS: Mapping[str, tuple[str, str]] = {
    "local_shell_call": ("local_shell", "action"),
    "shell_call": ("shell", "action"),
    "apply_patch_call": ("apply_patch", "operation"),
}
"""The names of the tools, and the fields with their arguments."""


def client_call(item: Item) -> tuple[str, str, dict[str, Any]] | None:
    """Return the id, name and arguments of a call that is no function call; None if it is none."""
    match item:
        case {"type": "custom_tool_call", "call_id": str(id), "name": str(name)}:
            return id, name, {"input": item.get("input") or ""}
        case {"type": "shell_call", "environment": {"type": "container_reference"}}:
            return None  # the provider runs it
        case {"type": str(type), "call_id": str(id)} if type in _TOOLS:
            name, field = _TOOLS[type]
            return id, name, dict(item.get(field) or {})
        case _:
            return None


def result_of(call: Item, output: Item) -> Item:
    """Return the result of a call in the form that belongs to it."""
    id, text = call.get("call_id"), _output_text(output.get("output"))
    match call:
        case {"type": "custom_tool_call"}:
            whole = output.get("output")
            result = {"type": "custom_tool_call_output", "call_id": id, "output": whole}
        case {"type": "local_shell_call"}:
            result = {"type": "local_shell_call_output", "id": id, "output": text}
        case {"type": "shell_call"}:
            outcome = {"type": "exit", "exit_code": 0}
            streams = {"stdout": text, "stderr": "", "outcome": outcome}
            result = {"type": "shell_call_output", "call_id": id, "output": [streams]}
        case {"type": "apply_patch_call"}:
            result = {"type": "apply_patch_call_output", "call_id": id, "status": "completed"}
            result["output"] = text
        case _:
            result = dict(output)
    if (caller := call.get("caller")) is not None:
        result["caller"] = caller
    return result


def _output_text(output: Any) -> Any:
    """Return the text of an output; its files are left out where the API takes texts only."""
    if not isinstance(output, list):
        return output
    return "\n".join(part["text"] for part in map(mapping, array(output)) if "text" in part)


# What goes back


def can_be_answered(items: Sequence[Item]) -> bool:
    """Return whether the items have no call that only another program could answer.

    The provider refuses a request without the answer, so such a reply goes back as text.
    """
    return not any(_is_unanswerable(item) for item in items)


def _is_unanswerable(item: Item) -> bool:
    match item:
        case {"type": "computer_call"} | {"type": "tool_search_call", "execution": "client"}:
            return True
        case _:
            return False


def items_to_send(items: Any) -> Any:
    """Return items of OpenAI's, or what is in them, as they go back."""
    if isinstance(items, Mapping):
        fields = cast("Item", items).items()
        return {name: items_to_send(value) for name, value in fields if name != "created_by"}
    return [items_to_send(item) for item in array(items)] if isinstance(items, list) else items


def message_of_blocks(message: Item) -> Item:
    """Return a message of Anthropic's as it goes back, unless it is to be continued."""
    if message.get("role") != "assistant" or not isinstance(message.get("content"), list):
        return message
    blocks = array(message["content"])
    results = {block.get("tool_use_id") for block in blocks}
    # In a reply with calls, the result comes after those of the calls.
    calls = any(block.get("type") == "tool_use" for block in blocks)
    sent = [
        _without_file(block)
        for block in blocks
        if calls
        or block.get("type") not in ("server_tool_use", "mcp_tool_use")
        or block.get("id") in results
    ]
    return {**message, "content": sent}


def _without_file(block: Item) -> Item:
    """Return a block without the ids of files in its citations, and in those of its content."""
    sent = dict(block)
    if citations := array(block.get("citations")):
        sent["citations"] = [
            {name: value for name, value in citation.items() if name != "file_id"}
            for citation in citations
        ]
    if isinstance(content := block.get("content"), list):
        sent["content"] = [_without_file(part) for part in array(content)]
    return sent


def message_to_send(fragments: Sequence[Item], provider: str) -> dict[str, Any]:
    """Return the message of a chat completion as it goes back."""
    message: dict[str, Any] = {"role": "assistant"}
    for fragment in fragments:
        for name, value in fragment.items():
            if name == "audio":
                message[name] = {"id": value.get("id")}
            elif name not in _READ_ONLY_FIELDS or (
                name == "annotations" and provider in _SENDS_ANNOTATIONS
            ):
                message[name] = joined([message[name], value]) if name in message else value
    if not message.keys() & {"content", "audio"}:
        message["content"] = None
    return message


def joined(values: Sequence[Any]) -> Any:
    """Return the value whose pieces came one after the other."""
    if all(isinstance(value, str) for value in values):
        return "".join(values)
    if any(isinstance(value, list) for value in values):
        return _joined_lists(values)
    if all(isinstance(value, dict) for value in values):
        names = dict.fromkeys(name for value in values for name in value)
        return {name: _joined_field(name, values) for name in names}
    return values[-1]


def _joined_field(name: str, values: Sequence[Mapping[str, Any]]) -> Any:
    pieces = [value[name] for value in values if value.get(name) is not None]
    return pieces[-1] if pieces and name in _SAME else joined(pieces) if pieces else None


_SAME = ("id", "type", "format", "index")
"""The fields that a piece repeats rather than continues."""


def _joined_lists(values: Sequence[Any]) -> list[Any]:
    """Join lists; a part continues the one before if both have the same type and index."""
    parts: list[list[Any]] = []
    for value in values:
        text = {"type": "text", "text": value}
        for part in array(value) if isinstance(value, list) else [text]:
            if parts and _continues(parts[-1][0], part):
                parts[-1].append(part)
            else:
                parts.append([part])
    return [part[0] if len(part) == 1 else joined(part) for part in parts]


def _continues(before: Any, part: Any) -> bool:
    match before, part:
        case {"type": str(first), **one}, {"type": str(second), **other}:
            if first != second or one.get("index") != other.get("index"):
                return False
            return "index" in one or first in ("text", "thinking")
        case _:
            return False
