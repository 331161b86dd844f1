"""The forms that training tools read, one row at a time.

A row is plain data, ready for JSON. Formats that teach answers have one row per conversation; those
that teach what is better, one row per pair; `examples` has one row per answered instruction. What a
form cannot say (an answer that is not an assistant's message, a pair without text) gives no row,
and the export counts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sennit.errors import ValidationError, shown
from sennit.learning.examples import Example
from sennit.learning.preferences import Preference
from sennit.messages.codec import dumps, loads

Row: TypeAlias = dict[str, Any]
Chat: TypeAlias = list[dict[str, Any]]
Unit: TypeAlias = Literal["conversation", "example", "preference"]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A branch from its beginning, as messages of a chat API."""

    chat: Chat
    tools: list[Row]
    """The tools it was given or has called, as a chat API describes them."""
    weak: frozenset[int] = frozenset()
    """Which of the messages are not to be learnt, as they were scored too low."""


@dataclass(frozen=True, slots=True)
class Format:
    """How a kind of row is made, and of what."""

    name: str
    unit: Unit
    row: Callable[[Any], Row | None]
    columns: tuple[str, ...]
    """All fields a row may have."""
    about: str


def openai_chat(told: Conversation) -> Row | None:
    """OpenAI's fine-tuning of chat models, tool calls included."""
    if not _answers(told.chat):
        return None
    messages = [_weighed(message, at in told.weak) for at, message in enumerate(told.chat)]
    return {"messages": messages, **({"tools": told.tools} if told.tools else {})}


def _weighed(message: Row, weak: bool) -> Row:
    assistant = message["role"] == "assistant"
    spoken = {name: value for name, value in message.items() if value is not None}
    return {**spoken, "weight": 0} if assistant and weak else spoken


def tool_chat(told: Conversation) -> Row | None:
    """Conversations with tools as chat templates take them: arguments are objects, not text."""
    if not _answers(told.chat) or told.weak:
        return None
    messages = [_with_objects(message) for message in told.chat]
    return {"messages": messages, **({"tools": told.tools} if told.tools else {})}


def _with_objects(message: Row) -> Row:
    calls = [
        {
            **call,
            "function": {**call["function"], "arguments": loads(call["function"]["arguments"])},
        }
        for call in message.get("tool_calls", ())
    ]
    said = {**message, "content": message["content"] or ""}
    return {**said, "tool_calls": calls} if calls else said


_SPEAKERS = {"user": "human", "assistant": "gpt", "tool": "observation"}


def sharegpt(told: Conversation) -> Row | None:
    """Lines of who said what, from the first human one; calls and results have their own names."""
    if not _answers(told.chat) or told.weak:
        return None
    systems = [_text(one["content"]) for one in told.chat if one["role"] == "system"]
    lines = [line for message in told.chat for line in _spoken(message)]
    row: Row = {"conversations": lines}
    if systems:
        row["system"] = "\n\n".join(systems)
    if told.tools:
        row["tools"] = dumps([tool["function"] for tool in told.tools]).decode()
    return row


def _spoken(message: Row) -> Iterable[Row]:
    speaker = _SPEAKERS.get(message["role"])
    if speaker is not None and message["content"]:
        yield {"from": speaker, "value": _text(message["content"])}
    for call in message.get("tool_calls", ()):
        said = {"name": call["function"]["name"], "arguments": loads(call["function"]["arguments"])}
        yield {"from": "function_call", "value": dumps(said).decode()}


def pairs(preference: Preference) -> Row | None:
    """A prompt with a chosen and a rejected answer, each as messages."""
    prompt, chosen, rejected = preference.to_chat()
    if not (prompt and _answers(chosen) and _answers(rejected)):
        return None
    return {
        "prompt": [_with_objects(message) for message in prompt],
        "chosen": [_with_objects(message) for message in chosen],
        "rejected": [_with_objects(message) for message in rejected],
        "score_chosen": preference.chosen.score,
        "score_rejected": preference.rejected.score,
    }


def openai_pairs(preference: Preference) -> Row | None:
    """OpenAI's preference fine-tuning: each answer is one message of the assistant, in words."""
    prompt, chosen, rejected = preference.to_chat()
    if not (prompt and _one_text(chosen) and _one_text(rejected)):
        return None
    tools = tools_in(prompt)
    return {
        "input": {"messages": prompt, **({"tools": tools} if tools else {})},
        "preferred_output": chosen,
        "non_preferred_output": rejected,
    }


def _one_text(answer: Chat) -> bool:
    return len(answer) == 1 and answer[0]["role"] == "assistant" and not answer[0].get("tool_calls")


def single(example: Example) -> Row | None:
    """One answered instruction: what came before, what was asked, what answered it, its score."""
    prompt, answer = example.to_chat()
    return {
        "inputs": {"history": prompt[:-1], "question": _text(prompt[-1]["content"])},
        "outputs": {"answer": example.answered},
        "messages": [*prompt, *answer],
        "score": example.score,
    }


def tools_in(chat: Chat, known: Mapping[str, Row] | None = None) -> list[Row]:
    """The tools that a conversation calls; of one nobody `known` describes, the arguments seen."""
    seen: dict[str, dict[str, None]] = {}
    for message in chat:
        for call in message.get("tool_calls", ()):
            names = seen.setdefault(call["function"]["name"], {})
            names.update(dict.fromkeys(loads(call["function"]["arguments"])))
    known = known or {}
    return [known.get(name) or _guessed(name, names) for name, names in seen.items()]


def _guessed(name: str, arguments: Iterable[str]) -> Row:
    properties: Row = {argument: {} for argument in arguments}
    schema = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def _answers(chat: Chat) -> bool:
    return any(message["role"] == "assistant" for message in chat)


def _text(content: Any) -> str:
    """What a message says in words; pictures are named by their address."""
    if isinstance(content, str):
        return content
    blocks: list[Row] = content or []
    return "\n\n".join(block.get("text") or block["image_url"]["url"] for block in blocks)


_CHAT = ("messages", "tools")
_LINES = ("conversations", "system", "tools")
_PAIR = ("prompt", "chosen", "rejected", "score_chosen", "score_rejected")
_OUTPUTS = ("input", "preferred_output", "non_preferred_output")
_SINGLE = ("inputs", "outputs", "messages", "score")

FORMATS = {
    one.name: one
    for one in (
        Format("openai", "conversation", openai_chat, _CHAT, "fine-tuning of chat models, OpenAI"),
        Format("sharegpt", "conversation", sharegpt, _LINES, "ShareGPT-style conversations"),
        Format("tools", "conversation", tool_chat, _CHAT, "conversations, tool calls as objects"),
        Format("dpo", "preference", pairs, _PAIR, "a prompt with a chosen and a rejected answer"),
        Format("openai-dpo", "preference", openai_pairs, _OUTPUTS, "preferences, OpenAI"),
        Format("dspy", "example", single, _SINGLE, "each answered instruction, for DSPy"),
    )
}


def format_named(name: str) -> Format:
    """A format by its name; raises ValidationError, which lists them."""
    found = FORMATS.get(name)
    if found is None:
        raise ValidationError(f"There is no format {shown(name)}; there are {sorted(FORMATS)}.")
    return found
