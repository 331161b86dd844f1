"""JSON Schemas as TypeScript declarations and example values.

Models follow TypeScript more reliably than JSON Schema, in a fraction of the tokens. A schema is
parsed once into types (`_Type`), from which declarations and examples are generated. Schemas are
untrusted input (tool servers, stored messages), hence the invariants:

- an invalid or unknown part becomes `any`; no schema raises an exception;
- references are resolved only within the document; nothing is fetched;
- the cost is proportional to the schema: each definition is parsed once and printed at most once,
  nesting is limited by `_MAX_DEPTH`, the size of an example by `_MAX_NODES`.

The recursive functions use few frames per level (before Python 3.12 a comprehension is one), so
that the deepest schema fits on the stack.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import unquote

_MAX_DEPTH = 100
_MAX_NODES = 2000
_ROOT = "#"
_STOPPED = object()


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """The name, description and parameters of a tool, independent of the provider."""

    name: str
    """The name of the tool."""
    description: str
    """The description that the model reads."""
    parameters: Mapping[str, Any]
    """The JSON schema of the parameters."""


def typescript(schema: Mapping[str, Any], name: str) -> str:
    """Return `schema` as a declaration `name`, followed by the definitions it refers to."""
    return "\n\n".join(_TypeScript(_parse(schema), name).declarations())


def example(schema: Mapping[str, Any]) -> str:
    """Return one line of JSON that fits `schema`."""
    types = _parse(schema)
    return json.dumps(_Example(types).fill(_Reference(_ROOT), 0), ensure_ascii=False)


def tool_schema(schema: Mapping[str, Any], name: str | None = None) -> ToolSchema:
    """Return the tool in a schema of OpenAI, Anthropic or MCP, or in a bare schema of parameters.

    `name` is used if the schema has none; the default for a bare schema is its title.
    """
    tool = _mapping(schema.get("function")) or schema
    parameters: Any = tool.get("parameters", tool.get("input_schema", tool.get("inputSchema")))
    own_name = _text(tool.get("name"))
    if parameters is None and (not own_name or "properties" in tool):
        parameters, own_name = tool, name or _text(tool.get("title"))
    elif parameters is None:
        parameters = {"type": "object", "properties": {}}
    description = _text(tool.get("description"))
    return ToolSchema(own_name or name or "tool", description, _mapping(parameters))


@dataclass(frozen=True, slots=True)
class _Scalar:
    """A basic type with a sample value, or a literal with its value."""

    text: str
    sample: Any


@dataclass(frozen=True, slots=True)
class _Reference:
    key: str


@dataclass(frozen=True, slots=True)
class _Composite:
    """A union or intersection of at least two types, none of them `any` or of the same operator."""

    operator: Literal["|", "&"]
    members: tuple[_Type, ...]


@dataclass(frozen=True, slots=True)
class _Array:
    prefix: tuple[_Type, ...]
    rest: _Type | None


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    type_: _Type
    required: bool = True
    description: str = ""


@dataclass(frozen=True, slots=True)
class _Object:
    fields: tuple[_Field, ...]
    extra: _Type | None = None

    @property
    def record(self) -> _Type | None:
        """The type of all values, if no key is named."""
        return None if self.fields else self.extra


_Type: TypeAlias = "_Scalar | _Reference | _Composite | _Array | _Object"
_ANY = _Scalar("any", "...")
_NUMBER = _Scalar("number", 0)
_SCALARS: Mapping[str, _Type] = {
    "string": _Scalar("string", "..."),
    "number": _NUMBER,
    "integer": _NUMBER,
    "boolean": _Scalar("boolean", False),
    "null": _Scalar("null", None),
}


def _join(operator: Literal["|", "&"], types: Iterable[_Type]) -> _Type:
    """Return the union or intersection, simplified: `any` absorbs a union and is neutral in `&`."""
    flat: list[_Type] = []
    for type_ in types:
        if type_ == _ANY and operator == "|":
            return _ANY
        if isinstance(type_, _Composite) and type_.operator == operator:
            flat.extend(type_.members)
        elif type_ != _ANY:
            flat.append(type_)
    distinct = tuple(dict.fromkeys(flat)) if len(flat) > 1 else tuple(flat)
    if len(distinct) > 1:
        return _Composite(operator, distinct)
    return distinct[0] if distinct else _ANY


def _parse(schema: Mapping[str, Any]) -> dict[str, _Type]:
    """Parse the root (`#`) and every definition (`#/$defs/Name`)."""
    schemas: dict[str, Any] = {_ROOT: schema}
    for section in ("$defs", "definitions"):
        for name, definition in _mapping(_mapping(schema).get(section)).items():
            schemas[f"#/{section}/{name}"] = definition
    parser = _Parser(frozenset(schemas))
    return {key: parser.parse(definition, 0) for key, definition in schemas.items()}


class _Parser:
    """A parser for the schemas of a document; `keys` are its definitions."""

    def __init__(self, keys: frozenset[str]) -> None:
        self._keys = keys

    def parse(self, schema: object, depth: int) -> _Type:
        node = _mapping(schema)
        if not node or depth > _MAX_DEPTH:
            return _ANY
        combined = _join("&", [
            self._reference(_text(node.get("$ref"))),
            _literals(node),
            _join("|", self._each(node.get("anyOf"), depth + 1)),
            _join("|", self._each(node.get("oneOf"), depth + 1)),
            _join("&", self._each(node.get("allOf"), depth + 1)),
        ])  # fmt: skip
        # Beside an enum, a reference or alternatives, a plain `type` is redundant.
        if combined != _ANY and not _mapping(node.get("properties")):
            return combined
        return _join("&", [combined, self._typed(node, depth + 1)])

    def _reference(self, ref: str) -> _Type:
        key = unquote(ref).replace("~1", "/").replace("~0", "~")
        return _Reference(key) if key in self._keys else _ANY

    def _each(self, schemas: object, depth: int) -> list[_Type]:
        return list(map(self.parse, _list(schemas), repeat(depth)))

    def _typed(self, schema: Mapping[str, Any], depth: int) -> _Type:
        types: list[_Type] = []
        for name in _type_names(schema):
            match name:
                case "object":
                    types.append(self._object(schema, depth))
                case "array":
                    types.append(self._array(schema, depth))
                case _:
                    types.append(_SCALARS.get(name, _ANY))
        return _join("|", types)

    def _object(self, schema: Mapping[str, Any], depth: int) -> _Type:
        required = {name for name in _list(schema.get("required")) if isinstance(name, str)}
        fields: list[_Field] = []
        for name, value in _mapping(schema.get("properties")).items():
            type_ = self.parse(value, depth)
            fields.append(_Field(str(name), type_, name in required, _description(value)))
        extras = list(_mapping(schema.get("patternProperties")).values())
        # An object with properties has no others, unless additionalProperties is given.
        is_open = not extras and not isinstance(schema.get("properties"), Mapping)
        if (additional := schema.get("additionalProperties", is_open)) is not False:
            extras.append(additional)
        return _Object(tuple(fields), _join("|", self._each(extras, depth)) if extras else None)

    def _array(self, schema: Mapping[str, Any], depth: int) -> _Type:
        items = schema.get("items")
        prefix = _list(schema.get("prefixItems")) or _list(items)
        is_open = not prefix or _mapping(items)
        rest = self.parse(items, depth) if is_open else None
        return _Array(tuple(self._each(prefix, depth)), rest)


def _type_names(schema: Mapping[str, Any]) -> Iterable[str]:
    """Return the distinct names in `type`, or else the type that other keywords imply."""
    types = schema.get("type")
    if isinstance(types, str):
        return [types]
    if isinstance(types, list):
        return dict.fromkeys(_text(name) for name in _list(cast("object", types)))
    if schema.keys() & {"properties", "additionalProperties", "patternProperties"}:
        return ["object"]
    return ["array"] if schema.keys() & {"items", "prefixItems"} else []


def _literals(schema: Mapping[str, Any]) -> _Type:
    """Return the union of the values of `const` or `enum`."""
    values = [schema["const"]] if "const" in schema else _list(schema.get("enum"))
    return _join("|", [_literal(value, 0) for value in values])


def _literal(value: Any, depth: int) -> _Type:
    if depth > _MAX_DEPTH:
        return _ANY
    if isinstance(value, Mapping):
        items = cast("Mapping[object, Any]", value).items()
        return _Object(tuple([_Field(str(key), _literal(item, depth + 1)) for key, item in items]))
    if isinstance(value, list | tuple):
        items = cast("Sequence[Any]", value)
        return _Array(tuple([_literal(item, depth + 1) for item in items]), None)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):  # a Python object, NaN, an integer of too many digits
        return _ANY
    return _Scalar(text, value)


def _description(schema: object) -> str:
    """Return the description on one line; that of a reference may be inside `allOf`."""
    node = _mapping(schema)
    for candidate in (node, *_list(node.get("allOf"))):
        if words := _text(_mapping(candidate).get("description")).split():
            return " ".join(words)
    return ""


class _TypeScript:
    """A printer of declarations; referenced definitions are named and queued."""

    def __init__(self, types: Mapping[str, _Type], name: str) -> None:
        self._types = types
        self._used_names = {*_SCALARS, "any", "Record"}
        self._names: dict[str, str] = {}
        root = types[_ROOT]
        # The root of a recursive pydantic model is a reference to a definition.
        start = root.key if isinstance(root, _Reference) else _ROOT
        self._names[_ROOT] = self._names[start] = self._new_name(name)
        self._queue = [start]

    def declarations(self) -> Iterator[str]:
        for key in self._queue:  # grows while references are printed
            yield self._declaration(self._names[key], self._types[key])

    def _declaration(self, name: str, type_: _Type) -> str:
        if not isinstance(type_, _Object) or type_.record:
            return f"type {name} = {self._text(type_)};"
        lines = [
            f"  {member}; // {description}\n" if description else f"  {member};\n"
            for member, description in self._members(type_)
        ]
        return f"interface {name} {{\n{''.join(lines)}}}" if lines else f"interface {name} {{}}"

    def _text(self, type_: _Type) -> str:
        match type_:
            case _Scalar(text):
                return text
            case _Reference(key):
                return self._name(key)
            case _Composite(operator, members):
                return f" {operator} ".join([self._operand(member) for member in members])
            case _Array(prefix, rest):
                texts = [self._text(item) for item in prefix]
                rest_types = [f"{'...' if prefix else ''}{self._operand(rest)}[]"] if rest else []
                return f"[{', '.join(texts + rest_types)}]" if prefix or not rest else rest_types[0]
            case _Object():
                record = type_.record
                return f"Record<string, {self._text(record)}>" if record else self._inline(type_)

    def _operand(self, type_: _Type) -> str:
        text = self._text(type_)
        return f"({text})" if isinstance(type_, _Composite) else text

    def _inline(self, type_: _Object) -> str:
        members = [
            f"{member} /* {description.replace('*/', '* /')} */" if description else member
            for member, description in self._members(type_)
        ]
        return f"{{ {'; '.join(members)} }}" if members else "{}"

    def _members(self, type_: _Object) -> list[tuple[str, str]]:
        """Return each `name: type` with its description."""
        members: list[tuple[str, str]] = []
        for field in type_.fields:
            optional = "" if field.required else "?"
            text = f"{_property_name(field.name)}{optional}: {self._text(field.type_)}"
            members.append((text, field.description))
        if type_.extra:
            members.append((f"[key: string]: {self._text(type_.extra)}", ""))
        return members

    def _name(self, key: str) -> str:
        if key not in self._names:
            self._names[key] = self._new_name(key.split("/", 2)[2])
            self._queue.append(key)
        return self._names[key]

    def _new_name(self, wanted: str) -> str:
        """Return an unused identifier similar to `wanted`."""
        name = identifier = re.sub(r"\W|^(?=\d)|^$", "_", wanted)
        # Counted from the number of names, not from 2, so that many equal names are not quadratic.
        suffixes = count(len(self._names) + 1)
        while name in self._used_names:
            name = f"{identifier}_{next(suffixes)}"
        self._used_names.add(name)
        return name


def _property_name(name: str) -> str:
    is_identifier = re.fullmatch(r"(?!\d)[\w$]+", name)
    return name if is_identifier else json.dumps(name, ensure_ascii=False)


class _Example:
    """A generator of example values.

    `_STOPPED` marks a value that is left out, because it is recursive or exceeds the node limit:
    its array or record stays empty, a union takes another member, a field is null.
    """

    def __init__(self, types: Mapping[str, _Type]) -> None:
        self._types = types
        self._active: set[str] = set()
        self._nodes_left = _MAX_NODES

    def fill(self, type_: _Type, depth: int) -> Any:
        value = self._value(type_, depth)
        return None if value is _STOPPED else value

    def _value(self, type_: _Type, depth: int) -> Any:
        self._nodes_left -= 1
        if self._nodes_left < 0 or depth > _MAX_DEPTH:
            return _minimal_value(type_)
        match type_:
            case _Scalar(_, sample):
                return sample
            case _Reference(key):
                return self._follow(key, depth + 1)
            case _Composite(operator, members):
                pick = self._first if operator == "|" else self._merge
                return pick(members, depth + 1)
            case _Array(prefix, rest):
                if prefix or not rest:
                    return [self.fill(item, depth + 1) for item in prefix]
                item = self._value(rest, depth + 1)
                return [] if item is _STOPPED else [item]
            case _Object():
                return self._object(type_, depth + 1)

    def _follow(self, key: str, depth: int) -> Any:
        if key in self._active:
            return _STOPPED
        self._active.add(key)
        value = self._value(self._types[key], depth)
        self._active.remove(key)
        return value

    def _first(self, members: Iterable[_Type], depth: int) -> Any:
        """Return the value of the first member that is neither null nor stopped."""
        fallback = None
        for member in members:
            value = self._value(member, depth)
            if value is _STOPPED:
                fallback = _STOPPED
            elif value is not None:
                return value
        return fallback

    def _merge(self, members: Iterable[_Type], depth: int) -> Any:
        """Return a value of an intersection: for objects, with the fields of all members."""
        values = [self._value(member, depth) for member in members]
        objects = [cast("dict[str, Any]", value) for value in values if isinstance(value, dict)]
        if objects:
            return {name: value for fields in objects for name, value in fields.items()}
        return next((value for value in values if value is not _STOPPED), _STOPPED)

    def _object(self, type_: _Object, depth: int) -> dict[str, Any]:
        if type_.record:
            value = self._value(type_.record, depth)
            return {} if value is _STOPPED else {"...": value}
        values: dict[str, Any] = {}
        for field in type_.fields:
            values[field.name] = self.fill(field.type_, depth)
        return values


def _minimal_value(type_: _Type) -> Any:
    """Return the shortest value of a type."""
    if isinstance(type_, _Scalar):
        return type_.sample
    if isinstance(type_, _Array):
        return []
    return {} if isinstance(type_, _Object) and type_.record else _STOPPED


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _list(value: object) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list | tuple) else ()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
