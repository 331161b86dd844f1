"""Tool calling for models without it: a JSON schema to fill in, parsed as it streams.

Small models cannot call tools, but a grammar can restrict them to a JSON form:

    {"tool": "weather", "arguments": {"city": "Paris"}}     or     {"answer": "Good morning."}

The schema has one alternative per tool, and one for an answer as text (or structured output) unless
a call is required. The form is parsed incrementally, so an answer streams as text although it
arrives inside a JSON string.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from sennit.ids import new_id
from sennit.messages.output_schema import ModelSchema
from sennit.messages.typescript import ToolSchema, typescript
from sennit.services.models.reply import CallDelta, FinishReason, TextDelta

FormDelta: TypeAlias = TextDelta | CallDelta

_PROMPT = """\
You can use tools. Reply with one JSON object and nothing else.
To use a tool: {"tool": "its name", "arguments": {...}}
To answer: {"answer": "your text"}
The tools, and what their arguments look like:
"""
_OPENING = re.compile(
    r'\s*\{\s*"(?:answer"|tool"\s*:\s*(?P<tool>"(?:[^"\\]|\\.)*")\s*,\s*"arguments")\s*:\s*(?=\S)'
)
_STRING_PIECE = re.compile(
    r'[^"\\]+|\\["\\/bfnrt]|'
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|"  # a pair of surrogates
    r"\\u(?![dD][89abAB])[0-9a-fA-F]{4}"
)
_LONE_SURROGATE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?=[^\\]|\\[^u]|\\u[^dD]|\\u[dD][^c-fC-F])"
)


def tools_prompt(tools: Sequence[ToolSchema]) -> str:
    """Return the system prompt about the tools."""
    return _PROMPT + "\n\n".join(_describe(tool) for tool in tools)


def tools_schema(
    tools: Sequence[ToolSchema], output: ModelSchema | None, *, may_answer: bool = True
) -> dict[str, Any]:
    """Return the JSON schema of the form; `output` is the schema of a structured answer.

    Unless `may_answer`, one of the tools must be called.
    """
    schemas: dict[str, Any] = {f"tool{n}": tool.parameters for n, tool in enumerate(tools)}
    forms = [
        _form({"tool": {"const": tool.name}, "arguments": {"$ref": f"#/$defs/tool{n}"}})
        for n, tool in enumerate(tools)
    ]
    if may_answer and output is not None:
        schemas["answer"] = output.schema
        forms.append(_form({"answer": {"$ref": "#/$defs/answer"}}))
    elif may_answer:
        forms.append(_form({"answer": {"type": "string"}}))
    definitions = {
        name: _rebase_refs(schema, f"#/$defs/{name}") for name, schema in schemas.items()
    }
    return {"anyOf": forms, "$defs": definitions}


def output_schema(output: ModelSchema) -> dict[str, Any]:
    """Return the schema of a structured answer, under $defs because `$ref` cannot name a root."""
    pointer = "#/$defs/answer"
    return {"$ref": pointer, "$defs": {"answer": _rebase_refs(output.schema, pointer)}}


def call_text(name: str, arguments: str) -> str:
    """Return an earlier call in the JSON form of the model's own replies."""
    return f'{{"tool": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments or "{}"}}}'


class FormReader:
    """An incremental parser of the form: `feed` returns new deltas, `end` the remaining ones."""

    def __init__(self, *, answers_in_json: bool) -> None:
        self._answers_in_json = answers_in_json
        self._buffer = ""
        self._text: _StringReader | None = None
        self._value: _ValueReader | None = None
        self._calls = False

    def feed(self, piece: str) -> Iterator[FormDelta]:
        """Parse more of the form and yield its deltas."""
        if self._text is None and self._value is None:
            self._buffer += piece
            opening = _OPENING.match(self._buffer)
            if opening is None:
                return
            piece, self._buffer = self._buffer[opening.end() :], ""
            yield from self._start_value(opening["tool"])
        yield from self._deltas((self._text or cast("_ValueReader", self._value)).feed(piece))

    def end(self, reason: FinishReason) -> Iterator[FormDelta]:
        """Return the buffered deltas; a form truncated before any text has none."""
        if self._value is not None:
            yield from self._deltas(self._value.end(whole=reason != "length"))
        elif self._text is None and not self._buffer.lstrip().startswith("{"):
            yield from self._deltas(self._buffer)

    def reason(self, reason: FinishReason) -> FinishReason:
        """Return the finish reason as other providers name it."""
        return "tool_calls" if self._calls and reason == "stop" else reason

    def _start_value(self, tool: str | None) -> Iterator[FormDelta]:
        if tool is not None:
            self._calls = True
            yield CallDelta(0, id=f"call_{new_id().hex}", name=json.loads(tool))
        if tool is not None or self._answers_in_json:
            self._value = _ValueReader()
        else:
            self._text = _StringReader()

    def _deltas(self, text: str) -> Iterator[FormDelta]:
        if text:
            yield CallDelta(0, arguments=text) if self._calls else TextDelta(text)


class _StringReader:
    """An incremental decoder of a JSON string, from its opening to its closing quote."""

    def __init__(self) -> None:
        self._buffer: str = ""
        self._opened = self._closed = False

    def feed(self, piece: str) -> str:
        self._buffer += piece
        if not self._opened:
            self._opened = True
            self._buffer = self._buffer[1:]
        return "".join(self._decode())

    def _decode(self) -> Iterator[str]:
        while self._buffer and not self._closed:
            if match := _STRING_PIECE.match(self._buffer):
                raw = match.group()
                yield json.loads(f'"{raw}"') if raw[0] == "\\" else raw
            elif match := _LONE_SURROGATE.match(self._buffer):
                yield "\ufffd"
            else:  # the closing quote, or an incomplete escape
                self._closed = self._buffer[0] == '"'
                return
            self._buffer = self._buffer[match.end() :]


class _ValueReader:
    """An incremental reader of a value's JSON text, without the brace that closes the form.

    Trailing braces may be the closing one, so they are buffered until more text arrives.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        text = self._held + piece
        complete = text.rstrip(" \t\r\n}")
        self._held = text[len(complete) :]
        return complete

    def end(self, *, whole: bool) -> str:
        held = self._held.rstrip()
        return held.removesuffix("}").rstrip() if whole else held


def _describe(tool: ToolSchema) -> str:
    heading = f"{tool.name}: {tool.description}" if tool.description else tool.name
    return f"{heading}\n{typescript(tool.parameters, tool.name)}"


def _form(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _rebase_refs(schema: Any, pointer: str) -> Any:
    """Return `schema` with its local references made relative to `pointer`."""
    if isinstance(schema, Mapping):
        items = cast("Mapping[str, Any]", schema).items()
        return {key: _rebase_value(key, value, pointer) for key, value in items}
    if isinstance(schema, list | tuple):
        return [_rebase_refs(item, pointer) for item in cast("Sequence[Any]", schema)]
    return schema


def _rebase_value(key: str, value: Any, pointer: str) -> Any:
    if key == "$ref" and isinstance(value, str) and value.startswith("#"):
        return pointer + value[1:]
    return _rebase_refs(value, pointer)
