"""Formats of training data, one row at a time.

A row is plain data, ready for JSON. Fine-tuning formats have one row per conversation, preference
formats one row per pair, and `dspy` one row per answered instruction. Items that a format cannot
express are left out and counted by reason, so a file contains only rows that training tools accept.
The tests contain the rules of these tools, taken from their documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, TypeAlias

from sennit.errors import ValidationError, did_you_mean, listed, short_repr
from sennit.learning.examples import Example
from sennit.learning.preferences import Preference
from sennit.messages.codec import dumps, loads
from sennit.messages.render import block_text

Row: TypeAlias = dict[str, Any]
Chat: TypeAlias = list[dict[str, Any]]
Unit: TypeAlias = Literal["conversation", "example", "preference"]

_MAX_TOOLS = 128
_IMAGE = "<image>"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An item that is in no file."""

    reason: str
    """The reason, as a predicate whose subject is the item."""


HAS_IMAGES = LeftOut("has pictures")
HAS_FILES = LeftOut("has files or recordings")
SCORED_TOO_LOW = LeftOut("has an answer that is scored too low")
NOT_ALTERNATING = LeftOut("does not alternate between questions and answers")
TEXT_BESIDE_CALLS = LeftOut("has text beside calls of tools")
CALLS_TOOLS = LeftOut("is answered with calls of tools")
NO_TEXT = LeftOut("has a question or an answer without words")
SAME_ANSWERS = LeftOut("has the same answer twice")
TOO_MANY_TOOLS = LeftOut(f"has more than {_MAX_TOOLS} tools")


@dataclass(frozen=True, slots=True)
class ChatConversation:
    """A branch up to its last answer, as chat API messages."""

    chat: Chat
    tools: list[Row]
    """The chat API definitions of the tools it calls."""
    low_scored: frozenset[int] = frozenset()
    """The indexes of messages that were scored too low to train on."""


@dataclass(frozen=True, slots=True)
class Format:
    """A training data format: its unit, its row function and its columns."""

    name: str
    unit: Unit
    row: Callable[[Any], Row | LeftOut]
    columns: tuple[str, ...]
    """All fields that a row may have."""
    about: str


def openai_chat(conversation: ChatConversation) -> Row | LeftOut:
    """Return a row for OpenAI's fine-tuning of chat models, including tool calls."""
    if len(conversation.tools) > _MAX_TOOLS:
        return TOO_MANY_TOOLS
    low = conversation.low_scored
    messages = [_with_weight(message, at in low) for at, message in enumerate(conversation.chat)]
    return _with_tools({"messages": messages}, conversation.tools)


def _with_weight(message: Row, low_scored: bool) -> Row:
    if low_scored and message["role"] == "assistant":
        return {**_without_nulls(message), "weight": 0}
    return _without_nulls(message)


def _without_nulls(message: Row) -> Row:
    """Return a message without fields that are None if its content is None."""
    if message["content"] is not None:
        return message
    return {name: value for name, value in message.items() if value is not None}


def _with_tools(row: Row, tools: list[Row]) -> Row:
    return {**row, "tools": tools} if tools else row


def tool_chat(conversation: ChatConversation) -> Row | LeftOut:
    """Return a conversation for chat templates: tool arguments are objects, not text."""
    if conversation.low_scored:
        return SCORED_TOO_LOW
    if left_out := _why_not_text(conversation.chat):
        return left_out
    return _with_tools({"messages": _parse_arguments(conversation.chat)}, conversation.tools)


def _parse_arguments(chat: Chat) -> Chat:
    names: dict[str, str] = {}
    return [_parse_message(message, names) for message in chat]


def _parse_message(message: Row, tool_names: dict[str, str]) -> Row:
    """Return a message with call arguments as objects, and with the tool name of a result."""
    if message["role"] == "tool":
        return {**message, "name": tool_names[message["tool_call_id"]]}
    calls: list[Row] = message.get("tool_calls", [])
    if not calls:
        return message
    tool_names.update((call["id"], call["function"]["name"]) for call in calls)
    parsed_calls = [{**call, "function": _parse_call(call)} for call in calls]
    return {**message, "content": message["content"] or "", "tool_calls": parsed_calls}


def _parse_call(call: Row) -> Row:
    function = call["function"]
    return {"name": function["name"], "arguments": loads(function["arguments"])}


_SPEAKERS = {"user": "human", "assistant": "gpt", "tool": "observation", "calls": "function_call"}


def sharegpt(conversation: ChatConversation) -> Row | LeftOut:
    """Return a ShareGPT row, in which inputs (questions, results) and outputs alternate."""
    if conversation.low_scored:
        return SCORED_TOO_LOW
    chat = [message for message in conversation.chat if message["role"] != "system"]
    if any(message.get("tool_calls") and message["content"] for message in chat):
        return TEXT_BESIDE_CALLS
    turns = [_sharegpt_turn(kind, list(messages)) for kind, messages in groupby(chat, _kind)]
    if _has_blocks(chat, "file", "input_audio"):
        return HAS_FILES
    image_urls = [url for message in chat for url in _image_urls(message)]
    placeholders = sum(turn["value"].count(_IMAGE) for turn in turns)
    if image_urls and placeholders != len(image_urls):
        return HAS_IMAGES
    if not _alternates(turns):
        return NOT_ALTERNATING
    row: Row = {"conversations": turns}
    if systems := [_text(message) for message in conversation.chat if message["role"] == "system"]:
        row["system"] = "\n\n".join(systems)
    if conversation.tools:
        row["tools"] = dumps([tool["function"] for tool in conversation.tools]).decode()
    return {**row, "images": image_urls} if image_urls else row


def _kind(message: Row) -> str:
    return "calls" if message.get("tool_calls") else message["role"]


def _sharegpt_turn(kind: str, messages: Chat) -> Row:
    """Return messages of one kind as a turn: texts joined, several calls or results as a list."""
    if kind == "calls":
        calls = [_parse_call(call) for message in messages for call in message["tool_calls"]]
        value = dumps(calls[0] if len(calls) == 1 else calls).decode()
    elif kind == "tool" and len(messages) > 1:
        value = dumps([message["content"] for message in messages]).decode()
    else:
        value = "\n\n".join(map(_text_with_placeholders, messages))
    return {"from": _SPEAKERS[kind], "value": value}


def _alternates(turns: Chat) -> bool:
    question_roles = ("human", "observation")
    return len(turns) % 2 == 0 and all(
        (turn["from"] in question_roles) == (index % 2 == 0) for index, turn in enumerate(turns)
    )


def pairs(preference: Preference) -> Row | LeftOut:
    """Return a prompt with a chosen and a rejected answer, each as messages."""
    prompt, chosen, rejected = preference.to_chat()
    if left_out := _why_not_a_pair(prompt, chosen, rejected):
        return left_out
    answers = [_parse_arguments([*prompt, *answer])[len(prompt) :] for answer in (chosen, rejected)]
    row: Row = {"prompt": _parse_arguments(prompt), "chosen": answers[0], "rejected": answers[1]}
    row |= {"score_chosen": preference.chosen.score, "score_rejected": preference.rejected.score}
    return _with_tools(row, called_tools([*prompt, *chosen, *rejected]))


def openai_pairs(preference: Preference) -> Row | LeftOut:
    """Return a row for OpenAI's preference fine-tuning, where each answer is one text message."""
    prompt, chosen, rejected = preference.to_chat()
    if left_out := _why_not_a_pair(prompt, chosen, rejected):
        return left_out
    if not (_is_single_text(chosen) and _is_single_text(rejected)):
        return CALLS_TOOLS
    return {
        "input": _with_tools({"messages": [*map(_without_nulls, prompt)]}, called_tools(prompt)),
        "preferred_output": chosen,
        "non_preferred_output": rejected,
    }


def _why_not_a_pair(prompt: Chat, chosen: Chat, rejected: Chat) -> LeftOut | None:
    """Return the reason why two answers make no pair, or None."""
    if not (_ends_with("user", prompt) and chosen and rejected):
        return NO_TEXT
    if not (_ends_with("assistant", chosen) and _ends_with("assistant", rejected)):
        return CALLS_TOOLS
    if left_out := _why_not_text(prompt):
        return left_out
    return SAME_ANSWERS if chosen == rejected else None


def _ends_with(role: str, chat: Chat) -> bool:
    return bool(chat) and chat[-1]["role"] == role


def _is_single_text(answer: Chat) -> bool:
    return len(answer) == 1 and not answer[0].get("tool_calls")


def single(example: Example) -> Row | LeftOut:
    """Return an answered instruction with its history, question, answer and score."""
    prompt, answer = example.to_chat()
    if not (_ends_with("user", prompt) and example.answered.strip()):
        return NO_TEXT
    return {
        "inputs": {"history": prompt[:-1], "question": _text(prompt[-1])},
        "outputs": {"answer": example.answered},
        "messages": [*prompt, *answer],
        "score": example.score,
    }


def called_tools(chat: Chat, definitions: Mapping[str, Row] | None = None) -> list[Row]:
    """Return definitions of the tools that a chat calls; unknown ones are inferred from calls."""
    definitions = definitions or {}
    arguments: dict[str, dict[str, None]] = {}
    for message in chat:
        for call in message.get("tool_calls", ()):
            name: str = call["function"]["name"]
            names = arguments.setdefault(name, {})
            if name not in definitions:
                names.update(dict.fromkeys(loads(call["function"]["arguments"])))
    return [
        definitions.get(name) or _infer_definition(name, names) for name, names in arguments.items()
    ]


def _infer_definition(name: str, arguments: Iterable[str]) -> Row:
    properties: Row = {argument: {} for argument in arguments}
    schema = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def _image_urls(message: Row) -> list[str]:
    """Return the URLs of the images in a message."""
    blocks = _blocks(message)
    return [block["image_url"]["url"] for block in blocks if block["type"] == "image_url"]


def _why_not_text(chat: Chat) -> LeftOut | None:
    """Return the reason why a chat is more than text, or None."""
    if _has_blocks(chat, "image_url"):
        return HAS_IMAGES
    return HAS_FILES if _has_blocks(chat, "file", "input_audio") else None


def _has_blocks(chat: Chat, *kinds: str) -> bool:
    return any(block["type"] in kinds for message in chat for block in _blocks(message))


def _blocks(message: Row) -> list[Row]:
    content: str | list[Row] | None = message["content"]
    return content if isinstance(content, list) else []


def _text_with_placeholders(message: Row) -> str:
    """Return the text of a message with a placeholder for each image."""
    return _text(message, lambda _: _IMAGE)


def _text(message: Row, replace_image: Callable[[str], str] = str) -> str:
    """Return the text of a message, with each image replaced, by default by its URL."""
    content: str | list[Row] | None = message["content"]
    if content is None or isinstance(content, str):
        return content or ""
    return "\n\n".join(
        replace_image(block["image_url"]["url"])
        if block["type"] == "image_url"
        else block_text(block)
        for block in content
    )


# Columns of each format.
_CHAT = ("messages", "tools")
_SHAREGPT = ("conversations", "system", "tools", "images")
_PAIR = ("prompt", "chosen", "rejected", "score_chosen", "score_rejected", "tools")
_OPENAI_PAIR = ("input", "preferred_output", "non_preferred_output")
_EXAMPLE = ("inputs", "outputs", "messages", "score")

FORMATS = {
    entry.name: entry
    for entry in (
        Format("openai", "conversation", openai_chat, _CHAT, "fine-tuning of chat models, OpenAI"),
        Format("sharegpt", "conversation", sharegpt, _SHAREGPT, "ShareGPT-style conversations"),
        Format("tools", "conversation", tool_chat, _CHAT, "conversations, tool calls as objects"),
        Format("dpo", "preference", pairs, _PAIR, "a prompt with a chosen and a rejected answer"),
        Format("openai-dpo", "preference", openai_pairs, _OPENAI_PAIR, "preferences, OpenAI"),
        Format("dspy", "example", single, _EXAMPLE, "each answered instruction, for DSPy"),
    )
}


def get_format(name: str) -> Format:
    """Return a format by name; raises ValidationError for an unknown one."""
    entry = FORMATS.get(name)
    if entry is None:
        raise ValidationError(
            f"Unknown format {short_repr(name)}; choose one of {listed(FORMATS)}."
            f"{did_you_mean(name, FORMATS)}"
        )
    return entry
