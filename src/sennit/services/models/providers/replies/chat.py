"""Replies of chat completions, of OpenAI and of the many servers that are compatible with it.

The items are fragments of one message, each with one field: {"content": "Hi"}, {"tool_calls":
[one]}. Joined, they are the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from json import dumps
from typing import Any

from sennit.ids import new_id
from sennit.services.models.providers.items import (
    REASONING_FIELDS,
    array,
    details_text,
    joined,
    kind_and_text,
    mapping,
    part_text,
)
from sennit.services.models.providers.replies.reader import (
    JSON,
    ReplyReader,
    RequestUsage,
    count,
    reply_error,
)
from sennit.services.models.reply import (
    CallDelta,
    Delta,
    FinishReason,
    ReasoningDelta,
    TextDelta,
)

_REASONS: Mapping[str, FinishReason] = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    "content_filter": "refusal",
    "safety": "refusal",
    "refusal": "refusal",
    "error": "error",
}
_DETAILS = ("citations", "search_results", "moderation", "prompt_filter_results")
_TEXTS = ("content", "thinking in content", *REASONING_FIELDS)
"""The fragments that end when something else is said."""


@dataclass(slots=True)
class _Fragment:
    """A field of the message that is still arriving."""

    name: str
    pieces: list[Any] = field(default_factory=list[Any])

    def item(self) -> JSON:
        return {self.name: joined(self.pieces)}


@dataclass(slots=True)
class _Call:
    """A tool call that is still arriving; it is shown when its name is known."""

    id: str = ""
    name: str = ""
    number: int | None = None
    is_custom: bool = False
    """Whether its argument is a text rather than JSON."""
    arguments: list[str] = field(default_factory=list[str])
    more: dict[str, Any] = field(default_factory=dict[str, Any])
    """Its other fields, such as a signature."""

    def item(self) -> JSON:
        text, kind = "".join(self.arguments), "custom" if self.is_custom else "function"
        argument = {"input": text} if self.is_custom else {"arguments": text or "{}"}
        call = {"id": self.id, "type": kind, kind: {"name": self.name, **argument}}
        return {"tool_calls": [call | self.more]}

    def shown(self, text: str) -> str:
        """Return a piece of the arguments as JSON."""
        return dumps(text, ensure_ascii=False)[1:-1] if self.is_custom else text


class ChatReader(ReplyReader):
    """Reads a chat completion, whose items are fragments of its message."""

    def __init__(self, provider: str, url: str) -> None:
        super().__init__(provider, url)
        self._fragments: list[_Fragment | _Call] = []
        self._open: dict[str, _Fragment] = {}
        self._current: dict[Any, _Call] = {}
        """The current call by index."""
        self._tag = _ThinkTag()
        self._choice: int | None = None
        self._reasoning = ""
        """The field whose reasoning is shown; some servers send it under two names."""
        self._is_legacy = False
        self._custom: list[int] = []
        """The calls whose argument is a text that is still arriving."""

    def event(self, event: JSON) -> Iterator[Delta]:
        self.model = event.get("model") or self.model
        self.keep(event, *_DETAILS)
        if error := event.get("error"):
            raise reply_error(error)
        if usage := event.get("usage"):
            self._spend(usage)
        choices = array(event.get("choices"))
        for choice in choices:
            yield from self._read(choice)
        if usage and not choices and self._fragments:
            yield from self._close()
            self.reason = self.reason or "stop"  # nothing follows: some servers give no reason

    def whole(self, body: JSON) -> Iterator[Delta]:
        choices: Any = body["choices"] or ()
        choice = choices[0]
        for message in array(choice.get("messages")) or [mapping(choice.get("message"))]:
            yield from self.event({**body, "choices": [{**choice, "delta": _in_order(message)}]})
        yield from self._close()

    def _read(self, choice: JSON) -> Iterator[Delta]:
        index = choice.get("index") or 0
        self._choice = index if self._choice is None else self._choice
        if index != self._choice:
            return  # another version of the reply
        for name, values in mapping(choice.get("logprobs")).items():
            if isinstance(values, list) and values:
                self.details.setdefault("logprobs", {}).setdefault(name, []).extend(values)
        for name, value in mapping(choice.get("delta")).items():
            if value not in (None, "", [], {}) and name != "role":
                yield from self._field(name, value)
        if finish := choice.get("finish_reason"):
            yield from self._close()
            if self.reason != "refusal":
                self.reason = _REASONS.get(finish, "stop")
            if finish not in ("stop", "length", "tool_calls"):
                self.details["finish_reason"] = finish

    def _field(self, name: str, value: Any) -> Iterator[Delta]:
        match name, value:
            case "content", str():
                yield from self._content(self._tag.split(value))
            case "content", [*parts]:
                kinds = [kind_and_text({"content": [part]})[0] for part in parts]
                yield from self._content(zip(kinds, parts, strict=True))
            case "tool_calls", [*calls]:
                for call in calls:
                    yield from self._call(call)
            case "function_call", {**call}:
                self._is_legacy = True
                yield from self._call({"index": name, "function": call})
            case "refusal", str():
                self.reason = "refusal"
                self._add(name, value)
                yield TextDelta(value)
            case "audio", {"transcript": str(text)}:
                self._add(name, value)
                yield TextDelta(text)
            case _ if name in REASONING_FIELDS:
                self._add(name, value)
                text = value if isinstance(value, str) else details_text(value)
                if text and self._reasoning in ("", name):
                    self._reasoning = name
                    self._open.pop("content", None)
                    yield ReasoningDelta(text)
            case _:
                self._add(name, value)

    def _content(self, pieces: Iterable[tuple[str, Any]]) -> Iterator[Delta]:
        for kind, piece in pieces:
            value = piece if isinstance(piece, str) else [piece]
            text = piece if isinstance(piece, str) else part_text(piece)
            if kind == "reasoning":
                text = text if value is not piece else self._tag.inner(text)
                self._open.pop("content", None)
                self._add("content", value, key="thinking in content")
                if text:
                    yield ReasoningDelta(text)
            elif piece:
                for name in _TEXTS[1:]:
                    self._open.pop(name, None)
                self._add("content", value)
                if text:
                    yield TextDelta(text)

    def _add(self, name: str, value: Any, *, key: str = "") -> None:
        fragment = self._open.get(key or name)
        if fragment is None:
            fragment = self._open[key or name] = _Fragment(name)
            self._fragments.append(fragment)
        fragment.pieces.append(value)

    def _call(self, piece: JSON) -> Iterator[Delta]:
        function: JSON = piece.get("function") or piece.get("custom") or {}
        name = function.get("name") or ""
        call = self._call_of(piece, name)
        call.is_custom = call.is_custom or bool(piece.get("custom"))
        arguments: Any = function.get("input" if call.is_custom else "arguments")
        text = "" if arguments is None else arguments
        text = text if isinstance(text, str) else dumps(text, ensure_ascii=False)
        known = ("id", "type", "index", "function", "custom")
        call.more |= {key: value for key, value in piece.items() if key not in known and value}
        name = "" if name == call.name else name
        call.id, call.name = call.id or piece.get("id") or "", call.name + name
        call.arguments.append(text)
        if not call.name:
            return
        if call.number is not None:
            if name or text:
                yield CallDelta(call.number, name=name, arguments=call.shown(text))
            return
        call.number = self.next_call()
        calls = [one for one in self._fragments if isinstance(one, _Call)]
        if not call.id or sum(call.id == one.id for one in calls) > 1:
            call.id = f"call_{new_id().hex}"
        start = '{"input": "' if call.is_custom else ""
        self._custom += [call.number] if call.is_custom else []
        shown = call.shown("".join(call.arguments))
        yield CallDelta(call.number, call.id, call.name, start + shown)

    def _call_of(self, piece: JSON, name: str) -> _Call:
        """Return the call that a piece continues, or a new one.

        Not all servers number their calls, and some give all of them the number 0.
        """
        id, index = piece.get("id"), piece.get("index")
        if index is None:
            last = next(reversed(self._current.values()), None)
            known = [call for call in self._current.values() if id and call.id == id]
            call = known[0] if known else (None if id or name else last)
            index = len(self._current)
        else:
            call = self._current.get(index)
            if call is not None and call.name and name and id and id != call.id:
                call = None
        if call is None:
            call = self._current[index] = _Call()
            self._fragments.append(call)
            for text in _TEXTS:
                self._open.pop(text, None)
        return call

    def _close(self) -> Iterator[Delta]:
        """Show what was held back, and the ends of texts that are arguments."""
        yield from self._content(self._tag.close())
        custom, self._custom = self._custom, []
        for number in custom:
            yield CallDelta(number, arguments='"}')

    def _spend(self, usage: JSON) -> None:
        """Take the usage so far, which is cumulative, under the names of many servers."""
        cached = mapping(usage.get("prompt_tokens_details")).get("cached_tokens")
        if cached is None:
            cached = usage.get("prompt_cache_hit_tokens") or usage.get("cached_tokens")
        details = mapping(usage.get("completion_tokens_details"))
        reasoning = details.get("reasoning_tokens") or usage.get("reasoning_tokens")
        self.usage = RequestUsage(
            input_tokens=count(usage.get("prompt_tokens")),
            output_tokens=count(usage.get("completion_tokens")),
            cache_read_tokens=count(cached),
            details={"reasoning_tokens": count(reasoning)},
        )

    def items(self) -> Sequence[JSON] | None:
        if self._is_legacy:
            return None  # it goes back as a tool call
        named = (one for one in self._fragments if isinstance(one, _Fragment) or one.name)
        return [one.item() for one in named]


def _in_order(message: JSON) -> JSON:
    """Return a whole message in the order of a stream, with its calls numbered."""
    first = {name: message[name] for name in REASONING_FIELDS if name in message}
    calls = enumerate(array(message.get("tool_calls")))
    return {**first, **message, "tool_calls": [{**call, "index": at} for at, call in calls]}


class _ThinkTag:
    """Tells reasoning in tags at the beginning of a text from the text."""

    _START = "<think>"
    _END = "</think>"

    def __init__(self) -> None:
        self._held: str = ""
        self._place: str = "before"

    def split(self, text: str) -> list[tuple[str, str]]:
        """Return pieces with their kinds; the tags are part of the reasoning."""
        if self._place == "after":
            return [("text", text)]
        text = self._held + text
        self._held = ""
        if self._place == "before":
            start = text.lstrip()
            if len(start) < len(self._START) and self._START.startswith(start):
                self._held = text  # perhaps the beginning of a tag
                return []
            self._place = "inside" if start.startswith(self._START) else "after"
            if self._place == "after":
                return [("text", text)]
        reasoning, end, answer = text.partition(self._END)
        if end:
            self._place = "after"
            return [("reasoning", reasoning + end), ("text", answer)]
        tail = text.rfind("<")
        if tail > 0 and self._END.startswith(text[tail:]):
            self._held = text[tail:]
            text = text[:tail]
        return [("reasoning", text)]

    def close(self) -> list[tuple[str, str]]:
        """Return what was held back."""
        held = self._held
        self._held = ""
        return [("reasoning" if self._place == "inside" else "text", held)] if held else []

    def inner(self, piece: str) -> str:
        """Return a piece without the tags."""
        if self._place == "before":
            return piece
        return piece.replace(self._START, "", 1).replace(self._END, "", 1)
