"""JSON Schemas as TypeScript declarations and example values.

Models follow TypeScript more reliably than JSON Schema, in a fraction of the tokens. A schema is
read once into a few plain shapes; the two printers know only those. Schemas come from strangers
(tool servers, stored messages), hence the invariants:

- whatever does not make sense reads as `any`; nothing here raises on a strange schema;
- references lead only into the document's own definitions, nothing is ever fetched;
- cost stays in proportion to the schema: each definition is read once and printed at most once,
  nesting ends at `_MAX_DEPTH`, an example at `_MAX_NODES`.

The recursions here keep to few frames per level (before Python 3.12 a comprehension is one), so
that the deepest schema still fits on a busy stack.
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
    """A tool as its author described it, whichever API's form that was."""

    name: str
    description: str
    parameters: Mapping[str, Any]


def typescript(schema: Mapping[str, Any], name: str) -> str:
    """`schema` as a declaration called `name`, then one for each definition it needs."""
    return "\n\n".join(_TypeScript(_read(schema), name).declarations())


def example(schema: Mapping[str, Any]) -> str:
    """One line of JSON in the form that `schema` asks for."""
    shapes = _read(schema)
    return json.dumps(_Example(shapes).fill(_Reference(_ROOT), 0), ensure_ascii=False)


def tool_schema(schema: Mapping[str, Any], name: str | None = None) -> ToolSchema:
    """The tool in `schema`: OpenAI's form, Anthropic's or MCP's, or a bare schema of parameters.

    `name` is for a schema that does not name its tool; without it a bare one goes by its title.
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
    """A basic type with a sample of it, or a literal with its value."""

    text: str
    sample: Any


@dataclass(frozen=True, slots=True)
class _Reference:
    key: str


@dataclass(frozen=True, slots=True)
class _Composite:
    """At least two shapes, none of them `any` or joined by the same operator."""

    operator: Literal["|", "&"]
    members: tuple[_Shape, ...]


@dataclass(frozen=True, slots=True)
class _Array:
    prefix: tuple[_Shape, ...]
    rest: _Shape | None


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    shape: _Shape
    required: bool = True
    description: str = ""


@dataclass(frozen=True, slots=True)
class _Object:
    fields: tuple[_Field, ...]
    extra: _Shape | None = None

    @property
    def record(self) -> _Shape | None:
        """The type of all values, if no key has a name."""
        return None if self.fields else self.extra


_Shape: TypeAlias = "_Scalar | _Reference | _Composite | _Array | _Object"
_ANY = _Scalar("any", "...")
_NUMBER = _Scalar("number", 0)
_SCALARS: Mapping[str, _Shape] = {
    "string": _Scalar("string", "..."),
    "number": _NUMBER,
    "integer": _NUMBER,
    "boolean": _Scalar("boolean", False),
    "null": _Scalar("null", None),
}


def _join(operator: Literal["|", "&"], shapes: Iterable[_Shape]) -> _Shape:
    """The union or intersection, simplified: `any` swallows a union and adds nothing to an `&`."""
    flat: list[_Shape] = []
    for shape in shapes:
        if shape == _ANY and operator == "|":
            return _ANY
        if isinstance(shape, _Composite) and shape.operator == operator:
            flat.extend(shape.members)
        elif shape != _ANY:
            flat.append(shape)
    distinct = tuple(dict.fromkeys(flat)) if len(flat) > 1 else tuple(flat)
    if len(distinct) > 1:
        return _Composite(operator, distinct)
    return distinct[0] if distinct else _ANY


def _read(schema: Mapping[str, Any]) -> dict[str, _Shape]:
    """The shapes of the root (`#`) and of every definition (`#/$defs/Name`)."""
    schemas: dict[str, Any] = {_ROOT: schema}
    for section in ("$defs", "definitions"):
        for name, definition in _mapping(_mapping(schema).get(section)).items():
            schemas[f"#/{section}/{name}"] = definition
    reader = _Reader(frozenset(schemas))
    return {key: reader.shape(definition, 0) for key, definition in schemas.items()}


class _Reader:
    """Reads the schemas of a document whose definitions go by `keys`."""

    def __init__(self, keys: frozenset[str]) -> None:
        self._keys = keys

    def shape(self, schema: object, depth: int) -> _Shape:
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
        # Beside an enum, a reference or alternatives, a plain `type` only repeats what they say.
        if combined != _ANY and not _mapping(node.get("properties")):
            return combined
        return _join("&", [combined, self._typed(node, depth + 1)])

    def _reference(self, ref: str) -> _Shape:
        key = unquote(ref).replace("~1", "/").replace("~0", "~")
        return _Reference(key) if key in self._keys else _ANY

    def _each(self, schemas: object, depth: int) -> list[_Shape]:
        return list(map(self.shape, _list(schemas), repeat(depth)))

    def _typed(self, schema: Mapping[str, Any], depth: int) -> _Shape:
        shapes: list[_Shape] = []
        for name in _type_names(schema):
            match name:
                case "object":
                    shapes.append(self._object(schema, depth))
                case "array":
                    shapes.append(self._array(schema, depth))
                case _:
                    shapes.append(_SCALARS.get(name, _ANY))
        return _join("|", shapes)

    def _object(self, schema: Mapping[str, Any], depth: int) -> _Shape:
        required = {name for name in _list(schema.get("required")) if isinstance(name, str)}
        fields: list[_Field] = []
        for name, value in _mapping(schema.get("properties")).items():
            shape = self.shape(value, depth)
            fields.append(_Field(str(name), shape, name in required, _description(value)))
        extras = list(_mapping(schema.get("patternProperties")).values())
        # An object that lists its keys means those and no others, unless it says so.
        is_open = not extras and not isinstance(schema.get("properties"), Mapping)
        if (additional := schema.get("additionalProperties", is_open)) is not False:
            extras.append(additional)
        return _Object(tuple(fields), _join("|", self._each(extras, depth)) if extras else None)

    def _array(self, schema: Mapping[str, Any], depth: int) -> _Shape:
        items = schema.get("items")
        prefix = _list(schema.get("prefixItems")) or _list(items)
        is_open = not prefix or _mapping(items)
        rest = self.shape(items, depth) if is_open else None
        return _Array(tuple(self._each(prefix, depth)), rest)


def _type_names(schema: Mapping[str, Any]) -> Iterable[str]:
    """The types named, each once; where none is, the one that the other keywords imply."""
    types = schema.get("type")
    if isinstance(types, str):
        return [types]
    if isinstance(types, list):
        return dict.fromkeys(_text(name) for name in _list(cast("object", types)))
    if schema.keys() & {"properties", "additionalProperties", "patternProperties"}:
        return ["object"]
    return ["array"] if schema.keys() & {"items", "prefixItems"} else []


def _literals(schema: Mapping[str, Any]) -> _Shape:
    """The only values that `const` or `enum` leave."""
    values = [schema["const"]] if "const" in schema else _list(schema.get("enum"))
    return _join("|", [_literal(value, 0) for value in values])


def _literal(value: Any, depth: int) -> _Shape:
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
    """The description on one line; that of a reference may stand inside `allOf`."""
    node = _mapping(schema)
    for candidate in (node, *_list(node.get("allOf"))):
        if words := _text(_mapping(candidate).get("description")).split():
            return " ".join(words)
    return ""


class _TypeScript:
    """Prints shapes; whatever it refers to gets a name and a place in the queue."""

    def __init__(self, shapes: Mapping[str, _Shape], name: str) -> None:
        self._shapes = shapes
        self._used_names = {*_SCALARS, "any", "Record"}
        self._names: dict[str, str] = {}
        root = shapes[_ROOT]
        # A recursive pydantic model keeps its root among the definitions, behind a reference.
        start = root.key if isinstance(root, _Reference) else _ROOT
        self._names[_ROOT] = self._names[start] = self._new_name(name)
        self._queue = [start]

    def declarations(self) -> Iterator[str]:
        for key in self._queue:  # which grows as references turn up
            yield self._declaration(self._names[key], self._shapes[key])

    def _declaration(self, name: str, shape: _Shape) -> str:
        if not isinstance(shape, _Object) or shape.record:
            return f"type {name} = {self._text(shape)};"
        lines = [
            f"  {member}; // {description}\n" if description else f"  {member};\n"
            for member, description in self._members(shape)
        ]
        return f"interface {name} {{\n{''.join(lines)}}}" if lines else f"interface {name} {{}}"

    def _text(self, shape: _Shape) -> str:
        match shape:
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
                record = shape.record
                return f"Record<string, {self._text(record)}>" if record else self._inline(shape)

    def _operand(self, shape: _Shape) -> str:
        text = self._text(shape)
        return f"({text})" if isinstance(shape, _Composite) else text

    def _inline(self, shape: _Object) -> str:
        members = [
            f"{member} /* {description.replace('*/', '* /')} */" if description else member
            for member, description in self._members(shape)
        ]
        return f"{{ {'; '.join(members)} }}" if members else "{}"

    def _members(self, shape: _Object) -> list[tuple[str, str]]:
        """Each `name: type` with its description."""
        members: list[tuple[str, str]] = []
        for field in shape.fields:
            optional = "" if field.required else "?"
            text = f"{_property_name(field.name)}{optional}: {self._text(field.shape)}"
            members.append((text, field.description))
        if shape.extra:
            members.append((f"[key: string]: {self._text(shape.extra)}", ""))
        return members

    def _name(self, key: str) -> str:
        if key not in self._names:
            self._names[key] = self._new_name(key.split("/", 2)[2])
            self._queue.append(key)
        return self._names[key]

    def _new_name(self, wanted: str) -> str:
        """An identifier like `wish` that nothing else goes by."""
        name = identifier = re.sub(r"\W|^(?=\d)|^$", "_", wanted)
        # Counting from the names so far, not from 2: many equal wishes must not cost a square.
        suffixes = count(len(self._names) + 1)
        while name in self._used_names:
            name = f"{identifier}_{next(suffixes)}"
        self._used_names.add(name)
        return name


def _property_name(name: str) -> str:
    is_identifier = re.fullmatch(r"(?!\d)[\w$]+", name)
    return name if is_identifier else json.dumps(name, ensure_ascii=False)


class _Example:
    """Fills shapes with sample values.

    `_STOPPED` stands for a value left out because it would repeat what is being filled in, or be
    one too many: its array or record stays empty, a union takes another member, a field is null.
    """

    def __init__(self, shapes: Mapping[str, _Shape]) -> None:
        self._shapes = shapes
        self._active: set[str] = set()
        self._nodes_left = _MAX_NODES

    def fill(self, shape: _Shape, depth: int) -> Any:
        value = self._value(shape, depth)
        return None if value is _STOPPED else value

    def _value(self, shape: _Shape, depth: int) -> Any:
        self._nodes_left -= 1
        if self._nodes_left < 0 or depth > _MAX_DEPTH:
            return _minimal_value(shape)
        match shape:
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
                return self._object(shape, depth + 1)

    def _follow(self, key: str, depth: int) -> Any:
        if key in self._active:
            return _STOPPED
        self._active.add(key)
        value = self._value(self._shapes[key], depth)
        self._active.remove(key)
        return value

    def _first(self, members: Iterable[_Shape], depth: int) -> Any:
        """The first member that is neither null nor stopped."""
        fallback = None
        for member in members:
            value = self._value(member, depth)
            if value is _STOPPED:
                fallback = _STOPPED
            elif value is not None:
                return value
        return fallback

    def _merge(self, members: Iterable[_Shape], depth: int) -> Any:
        """One value that is all members at once: if they are objects, with the fields of all."""
        values = [self._value(member, depth) for member in members]
        objects = [cast("dict[str, Any]", value) for value in values if isinstance(value, dict)]
        if objects:
            return {name: value for fields in objects for name, value in fields.items()}
        return next((value for value in values if value is not _STOPPED), _STOPPED)

    def _object(self, shape: _Object, depth: int) -> dict[str, Any]:
        if shape.record:
            value = self._value(shape.record, depth)
            return {} if value is _STOPPED else {"...": value}
        values: dict[str, Any] = {}
        for field in shape.fields:
            values[field.name] = self.fill(field.shape, depth)
        return values


def _minimal_value(shape: _Shape) -> Any:
    """Return the shortest description of `shape`."""
    if isinstance(shape, _Scalar):
        return shape.sample
    if isinstance(shape, _Array):
        return []
    return {} if isinstance(shape, _Object) and shape.record else _STOPPED


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _list(value: object) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list | tuple) else ()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
