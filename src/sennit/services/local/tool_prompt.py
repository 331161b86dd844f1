"""Tool calling for models without it: a JSON schema to fill in, parsed as it streams.

Small models cannot call tools, but a grammar can hold them to a JSON form:

    {"tool": "weather", "arguments": {"city": "Paris"}}     or     {"answer": "Good morning."}

One alternative per tool, and one to answer in text (or in the JSON asked for) unless a call is a
must. The form is read piece by piece, so that an answer streams as text although it arrives inside
a JSON string.
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

Said: TypeAlias = TextDelta | CallDelta

_PROMPT = """\
You can use tools. Reply with one JSON object and nothing else.
To use a tool: {"tool": "its name", "arguments": {...}}
To answer: {"answer": "your text"}
The tools, and what their arguments look like:
"""
_OPENING = re.compile(
    r'\s*\{\s*"(?:answer"|tool"\s*:\s*(?P<tool>"(?:[^"\\]|\\.)*")\s*,\s*"arguments")\s*:\s*(?=\S)'
)
_IN_STRING = re.compile(
    r'[^"\\]+|\\["\\/bfnrt]|'
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|"  # a pair of surrogates
    r"\\u(?![dD][89abAB])[0-9a-fA-F]{4}"
)
_LONE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(?=[^\\]|\\[^u]|\\u[^dD]|\\u[dD][^c-fC-F])")


def tools_prompt(tools: Sequence[ToolSchema]) -> str:
    """Return the system prompt about the tools."""
    return _PROMPT + "\n\n".join(_described(tool) for tool in tools)


def tools_schema(
    tools: Sequence[ToolSchema], output: ModelSchema | None, *, may_answer: bool = True
) -> dict[str, Any]:
    """The JSON schema of the form; `output` is the schema of an answer that is not plain text.

    Unless it `may_answer`, one of the tools has to be called.
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
    moved = {name: _moved(schema, f"#/$defs/{name}") for name, schema in schemas.items()}
    return {"anyOf": forms, "$defs": moved}


def output_schema(output: ModelSchema) -> dict[str, Any]:
    """The JSON schema of an answer alone; below $defs, since a root cannot be referred to."""
    place = "#/$defs/answer"
    return {"$ref": place, "$defs": {"answer": _moved(output.schema, place)}}


def call_text(name: str, arguments: str) -> str:
    """A call of the past in the form that the model itself fills in."""
    return f'{{"tool": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments or "{}"}}}'


class FormReader:
    """Reads the form as it arrives: `feed` gives what can be told already, `end` the rest."""

    def __init__(self, *, answers_in_json: bool) -> None:
        self._answers_in_json = answers_in_json
        self._unread = ""
        self._text: _StringReader | None = None
        self._value: _ValueReader | None = None
        self._calls = False

    def feed(self, piece: str) -> Iterator[Said]:
        """Take in more of the form."""
        if self._text is None and self._value is None:
            self._unread += piece
            opening = _OPENING.match(self._unread)
            if opening is None:
                return
            piece, self._unread = self._unread[opening.end() :], ""
            yield from self._open(opening["tool"])
        yield from self._more((self._text or cast("_ValueReader", self._value)).feed(piece))

    def end(self, reason: FinishReason) -> Iterator[Said]:
        """Return the deltas held back; a form that broke off before any text has none."""
        if self._value is not None:
            yield from self._more(self._value.end(whole=reason != "length"))
        elif self._text is None and not self._unread.lstrip().startswith("{"):
            yield from self._more(self._unread)

    def reason(self, reason: FinishReason) -> FinishReason:
        """Return the finish reason as other providers name it."""
        return "tool_calls" if self._calls and reason == "stop" else reason

    def _open(self, tool: str | None) -> Iterator[Said]:
        if tool is not None:
            self._calls = True
            yield CallDelta(0, id=f"call_{new_id().hex}", name=json.loads(tool))
        if tool is not None or self._answers_in_json:
            self._value = _ValueReader()
        else:
            self._text = _StringReader()

    def _more(self, said: str) -> Iterator[Said]:
        if said:
            yield CallDelta(0, arguments=said) if self._calls else TextDelta(said)


class _StringReader:
    """Decodes a JSON string that comes in pieces, from its opening quote to its closing one."""

    def __init__(self) -> None:
        self._raw: str = ""
        self._opened = self._closed = False

    def feed(self, piece: str) -> str:
        self._raw += piece
        if not self._opened:
            self._opened = True
            self._raw = self._raw[1:]
        return "".join(self._decoded())

    def _decoded(self) -> Iterator[str]:
        while self._raw and not self._closed:
            if found := _IN_STRING.match(self._raw):
                raw = found.group()
                yield json.loads(f'"{raw}"') if raw[0] == "\\" else raw
            elif found := _LONE.match(self._raw):
                yield "\ufffd"
            else:  # the closing quote, or an escape of which more is to come
                self._closed = self._raw[0] == '"'
                return
            self._raw = self._raw[found.end() :]


class _ValueReader:
    """Passes on the JSON text of a value, but not the brace that closes the form around it.

    Braces at the end of what has come so far may be the last: they wait until more comes.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        known = self._held + piece
        sure = known.rstrip(" \t\r\n}")
        self._held = known[len(sure) :]
        return sure

    def end(self, *, whole: bool) -> str:
        held = self._held.rstrip()
        return held.removesuffix("}").rstrip() if whole else held


def _described(tool: ToolSchema) -> str:
    named = f"{tool.name}: {tool.description}" if tool.description else tool.name
    return f"{named}\n{typescript(tool.parameters, tool.name)}"


def _form(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _moved(schema: Any, place: str) -> Any:
    """`schema` with its references as they have to be when it stands at `place`."""
    if isinstance(schema, Mapping):
        items = cast("Mapping[str, Any]", schema).items()
        return {key: _reference(key, value, place) for key, value in items}
    if isinstance(schema, list | tuple):
        return [_moved(item, place) for item in cast("Sequence[Any]", schema)]
    return schema


def _reference(key: str, value: Any, place: str) -> Any:
    if key == "$ref" and isinstance(value, str) and value.startswith("#"):
        return place + value[1:]
    return _moved(value, place)
