"""Formats of training data, one row at a time.

A row is plain data, ready for JSON. Formats that teach answers have one row per conversation; those
that teach what is better, one row per pair; `dspy` has one row per answered instruction. What a
form cannot say is left out, with the reason, which the export counts: a file holds only what the
tools that read it accept. What they accept is in the tests, written down from their documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, TypeAlias

from sennit.errors import ValidationError, shown
from sennit.learning.examples import Example
from sennit.learning.preferences import Preference
from sennit.messages.codec import dumps, loads

Row: TypeAlias = dict[str, Any]
Chat: TypeAlias = list[dict[str, Any]]
Unit: TypeAlias = Literal["conversation", "example", "preference"]

_MOST_TOOLS = 128
_PICTURE = "<image>"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that a file does not hold."""

    reason: str
    """Why, as the end of a sentence that begins with what was left out."""


PICTURES = LeftOut("has pictures")
SCORED_TOO_LOW = LeftOut("has an answer that is scored too low")
UNEVEN = LeftOut("does not alternate between questions and answers")
TEXT_BESIDE_CALLS = LeftOut("has text beside calls of tools")
CALLS_TOOLS = LeftOut("is answered with calls of tools")
NO_WORDS = LeftOut("has a question or an answer without words")
SAME_ANSWERS = LeftOut("has the same answer twice")
TOO_MANY_TOOLS = LeftOut(f"has more than {_MOST_TOOLS} tools")


@dataclass(frozen=True, slots=True)
class ChatConversation:
    """A branch from its beginning to its last answer, as messages of a chat API."""

    chat: Chat
    tools: list[Row]
    """The tools it has called, as a chat API describes them."""
    weak: frozenset[int] = frozenset()
    """Which of the messages are not to be learnt, as they were scored too low."""


@dataclass(frozen=True, slots=True)
class Format:
    """A format: how a kind of row is built, and from what."""

    name: str
    unit: Unit
    row: Callable[[Any], Row | LeftOut]
    columns: tuple[str, ...]
    """All fields a row may have."""
    about: str


def openai_chat(told: ChatConversation) -> Row | LeftOut:
    """OpenAI's fine-tuning of chat models, tool calls included."""
    if len(told.tools) > _MOST_TOOLS:
        return TOO_MANY_TOOLS
    messages = [_weighed(message, at in told.weak) for at, message in enumerate(told.chat)]
    return _with_tools({"messages": messages}, told.tools)


def _weighed(message: Row, weak: bool) -> Row:
    if weak and message["role"] == "assistant":
        return {**_spoken(message), "weight": 0}
    return _spoken(message)


def _spoken(message: Row) -> Row:
    """A message without the content it does not have."""
    if message["content"] is not None:
        return message
    return {name: value for name, value in message.items() if value is not None}


def _with_tools(row: Row, tools: list[Row]) -> Row:
    return {**row, "tools": tools} if tools else row


def tool_chat(told: ChatConversation) -> Row | LeftOut:
    """Conversations with tools as chat templates take them: arguments are objects, not text."""
    if told.weak:
        return SCORED_TOO_LOW
    if _has_pictures(told.chat):
        return PICTURES
    return _with_tools({"messages": _with_objects(told.chat)}, told.tools)


def _with_objects(chat: Chat) -> Chat:
    names: dict[str, str] = {}
    return [_with_object(message, names) for message in chat]


def _with_object(message: Row, names: dict[str, str]) -> Row:
    """A message whose calls have objects as arguments, and whose result names its tool."""
    if message["role"] == "tool":
        return {**message, "name": names[message["tool_call_id"]]}
    calls: list[Row] = message.get("tool_calls", [])
    if not calls:
        return message
    names.update((call["id"], call["function"]["name"]) for call in calls)
    objects = [{**call, "function": _called(call)} for call in calls]
    return {**message, "content": message["content"] or "", "tool_calls": objects}


def _called(call: Row) -> Row:
    function = call["function"]
    return {"name": function["name"], "arguments": loads(function["arguments"])}


_SPEAKERS = {"user": "human", "assistant": "gpt", "tool": "observation", "calls": "function_call"}


def sharegpt(told: ChatConversation) -> Row | LeftOut:
    """Lines of who said what, in which questions or results and answers or calls alternate."""
    if told.weak:
        return SCORED_TOO_LOW
    chat = [one for one in told.chat if one["role"] != "system"]
    if any(one.get("tool_calls") and one["content"] for one in chat):
        return TEXT_BESIDE_CALLS
    lines = [_line(kind, list(said)) for kind, said in groupby(chat, _kind)]
    pictures = [url for message in chat for url in _pictures(message)]
    if sum(line["value"].count(_PICTURE) for line in lines if pictures) != len(pictures):
        return PICTURES
    if not _alternates(lines):
        return UNEVEN
    row: Row = {"conversations": lines}
    if systems := [_text(one) for one in told.chat if one["role"] == "system"]:
        row["system"] = "\n\n".join(systems)
    if told.tools:
        row["tools"] = dumps([tool["function"] for tool in told.tools]).decode()
    return {**row, "images": pictures} if pictures else row


def _kind(message: Row) -> str:
    return "calls" if message.get("tool_calls") else message["role"]


def _line(kind: str, said: Chat) -> Row:
    """Return one turn as a row: texts joined, several calls or results as a list."""
    if kind == "calls":
        calls = [_called(call) for message in said for call in message["tool_calls"]]
        value = dumps(calls[0] if len(calls) == 1 else calls).decode()
    elif kind == "tool" and len(said) > 1:
        value = dumps([message["content"] for message in said]).decode()
    else:
        value = "\n\n".join(map(_marked, said))
    return {"from": _SPEAKERS[kind], "value": value}


def _alternates(lines: Chat) -> bool:
    asked = ("human", "observation")
    return len(lines) % 2 == 0 and all(
        (line["from"] in asked) == (at % 2 == 0) for at, line in enumerate(lines)
    )


def pairs(preference: Preference) -> Row | LeftOut:
    """A prompt with a chosen and a rejected answer, each as messages."""
    prompt, chosen, rejected = preference.to_chat()
    if left_out := _unfit(prompt, chosen, rejected):
        return left_out
    whole = [_with_objects([*prompt, *answer])[len(prompt) :] for answer in (chosen, rejected)]
    row: Row = {"prompt": _with_objects(prompt), "chosen": whole[0], "rejected": whole[1]}
    row |= {"score_chosen": preference.chosen.score, "score_rejected": preference.rejected.score}
    return _with_tools(row, tools_in([*prompt, *chosen, *rejected]))


def openai_pairs(preference: Preference) -> Row | LeftOut:
    """OpenAI's preference fine-tuning: each answer is one message of the assistant, in words."""
    prompt, chosen, rejected = preference.to_chat()
    if left_out := _unfit(prompt, chosen, rejected):
        return left_out
    if not (_one_text(chosen) and _one_text(rejected)):
        return CALLS_TOOLS
    return {
        "input": _with_tools({"messages": [_spoken(one) for one in prompt]}, tools_in(prompt)),
        "preferred_output": chosen,
        "non_preferred_output": rejected,
    }


def _unfit(prompt: Chat, chosen: Chat, rejected: Chat) -> LeftOut | None:
    """Return the reason why two answers make no pair, or None."""
    if not (_ends_with("user", prompt) and chosen and rejected):
        return NO_WORDS
    if not (_ends_with("assistant", chosen) and _ends_with("assistant", rejected)):
        return CALLS_TOOLS
    if _has_pictures(prompt):
        return PICTURES
    return SAME_ANSWERS if chosen == rejected else None


def _ends_with(role: str, chat: Chat) -> bool:
    return bool(chat) and chat[-1]["role"] == role


def _one_text(answer: Chat) -> bool:
    return len(answer) == 1 and not answer[0].get("tool_calls")


def single(example: Example) -> Row | LeftOut:
    """One answered instruction: what came before, what was asked, what answered it, its score."""
    prompt, answer = example.to_chat()
    if not (_ends_with("user", prompt) and example.answered.strip()):
        return NO_WORDS
    return {
        "inputs": {"history": prompt[:-1], "question": _text(prompt[-1])},
        "outputs": {"answer": example.answered},
        "messages": [*prompt, *answer],
        "score": example.score,
    }


def tools_in(chat: Chat, known: Mapping[str, Row] | None = None) -> list[Row]:
    """The tools that a conversation calls; of one nobody `known` describes, the arguments seen."""
    known = known or {}
    seen: dict[str, dict[str, None]] = {}
    for message in chat:
        for call in message.get("tool_calls", ()):
            name: str = call["function"]["name"]
            names = seen.setdefault(name, {})
            if name not in known:
                names.update(dict.fromkeys(loads(call["function"]["arguments"])))
    return [known.get(name) or _guessed(name, names) for name, names in seen.items()]


def _guessed(name: str, arguments: Iterable[str]) -> Row:
    properties: Row = {argument: {} for argument in arguments}
    schema = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def _pictures(message: Row) -> list[str]:
    """The addresses of the pictures in a message."""
    said: str | list[Row] | None = message["content"]
    if not isinstance(said, list):
        return []
    return [block["image_url"]["url"] for block in said if block["type"] == "image_url"]


def _has_pictures(chat: Chat) -> bool:
    return any(_pictures(message) for message in chat)


def _marked(message: Row) -> str:
    """Return the text of a message with a placeholder for each image."""
    return _text(message, lambda _: _PICTURE)


def _text(message: Row, picture: Callable[[str], str] = str) -> str:
    """Return the text of a message; by default images are named by their URL."""
    said: str | list[Row] | None = message["content"]
    if said is None or isinstance(said, str):
        return said or ""
    told = (block.get("text") or picture(block["image_url"]["url"]) for block in said)
    return "\n\n".join(told)


_CHAT = ("messages", "tools")
_LINES = ("conversations", "system", "tools", "images")
_PAIR = ("prompt", "chosen", "rejected", "score_chosen", "score_rejected", "tools")
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
