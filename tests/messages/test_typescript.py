"""Schemas as a model reads them: what is printed for real models, and that no schema can hurt."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum
from textwrap import dedent
from typing import Annotated, Any, Generic, Literal, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel, StringConstraints

from sennit.messages.typescript import ToolSchema, example, tool_schema, typescript

T = TypeVar("T")


class Analysis(BaseModel):
    summary: str
    score: float
    recommendations: list[str]


class Color(Enum):
    RED = "red"
    GREEN = "green"


class Address(BaseModel):
    """Where someone lives."""

    city: str


class Box(BaseModel, Generic[T]):
    value: T


class Node(BaseModel):
    value: int
    children: list[Node] = []
    by_name: dict[str, Node] = {}
    next: Node | None = None


class Sum(BaseModel):
    left: Sum | Number
    right: Sum | Number


class Number(BaseModel):
    n: int


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


def printed(model: type[BaseModel]) -> str:
    return typescript(model.model_json_schema(), model.__name__)


def shown(model: type[BaseModel]) -> Any:
    return json.loads(example(model.model_json_schema()))


def of_field(schema: Any) -> str:
    """The type printed for one field with this schema."""
    text = typescript({"properties": {"x": schema}, "required": ["x"]}, "T")
    first = text.split("\n\n")[0]
    return first.removeprefix("interface T {\n  x: ").removesuffix(";\n}")


def code(text: str) -> str:
    return dedent(text).strip("\n")


def test_a_model_prints_as_an_interface() -> None:
    assert printed(Analysis) == code("""
        interface Analysis {
          summary: string;
          score: number;
          recommendations: string[];
        }
    """)


def test_an_example_has_a_sample_for_each_field() -> None:
    assert (
        example(Analysis.model_json_schema())
        == '{"summary": "...", "score": 0, "recommendations": ["..."]}'
    )


def test_optional_fields_get_a_question_mark() -> None:
    class Person(BaseModel):
        name: str
        age: int | None = None

    assert printed(Person) == code("""
        interface Person {
          name: string;
          age?: number | null;
        }
    """)


def test_basic_types_have_their_typescript_names() -> None:
    class Basics(BaseModel):
        text: str
        whole: int
        real: float
        flag: bool
        nothing: None
        anything: Any

    assert printed(Basics) == code("""
        interface Basics {
          text: string;
          whole: number;
          real: number;
          flag: boolean;
          nothing: null;
          anything: any;
        }
    """)
    assert example(Basics.model_json_schema()) == (
        '{"text": "...", "whole": 0, "real": 0, "flag": false, "nothing": null, "anything": "..."}'
    )


def test_containers_print_as_arrays_tuples_and_records() -> None:
    class Containers(BaseModel):
        mixed: list[int | str]
        grid: list[list[float]]
        pair: tuple[int, str]
        many: tuple[int, ...]
        table: dict[str, list[int]]
        loose: dict[str, Any]
        patterned: dict[Annotated[str, StringConstraints(pattern="^a")], int]

    assert printed(Containers) == code("""
        interface Containers {
          mixed: (number | string)[];
          grid: number[][];
          pair: [number, string];
          many: number[];
          table: Record<string, number[]>;
          loose: Record<string, any>;
          patterned: Record<string, number>;
        }
    """)
    assert shown(Containers) == {
        "mixed": [0], "grid": [[0]], "pair": [0, "..."], "many": [0],
        "table": {"...": [0]}, "loose": {"...": "..."}, "patterned": {"...": 0},
    }  # fmt: skip


def test_a_tuple_may_go_on_after_its_first_items() -> None:
    schema = {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}}

    assert of_field(schema) == "[string, ...number[]]"
    assert example(schema) == '["..."]'


def test_items_given_as_a_list_are_a_tuple() -> None:
    assert of_field({"items": [{"type": "string"}, {"type": "null"}]}) == "[string, null]"


def test_nested_models_follow_as_further_interfaces_each_once() -> None:
    class Person(BaseModel):
        home: Address
        work: Address

    assert printed(Person) == code("""
        interface Person {
          home: Address;
          work: Address;
        }

        interface Address {
          city: string;
        }
    """)
    assert shown(Person) == {"home": {"city": "..."}, "work": {"city": "..."}}


def test_definitions_that_nothing_refers_to_are_left_out() -> None:
    schema = {"properties": {}, "$defs": {"Unused": {"type": "string"}}}

    assert typescript(schema, "T") == "interface T {}"


def test_inline_objects_stay_inline() -> None:
    point = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    }

    assert of_field(point) == "{ a: string; b: number }"
    assert of_field({"type": "array", "items": point}) == "{ a: string; b: number }[]"


def test_fields_of_inline_objects_keep_their_descriptions() -> None:
    point = {"properties": {"a": {"type": "string", "description": "ends */ early"}}}

    assert of_field(point) == "{ a?: string /* ends * / early */ }"


def test_enums_print_as_a_type_of_their_own() -> None:
    class Paint(BaseModel):
        color: Color

    assert printed(Paint) == code("""
        interface Paint {
          color: Color;
        }

        type Color = "red" | "green";
    """)
    assert shown(Paint) == {"color": "red"}


def test_literals_print_as_values() -> None:
    class Choice(BaseModel):
        one: Literal["a"]
        some: Literal["b", 2, True, None]

    assert printed(Choice) == code("""
        interface Choice {
          one: "a";
          some: "b" | 2 | true | null;
        }
    """)
    assert shown(Choice) == {"one": "a", "some": "b"}


def test_a_constant_may_be_a_list_or_an_object() -> None:
    constant = {"const": {"a": [1, "x"], "b": []}}

    assert of_field(constant) == '{ a: [1, "x"]; b: [] }'
    assert example(constant) == '{"a": [1, "x"], "b": []}'


def test_text_outside_ascii_is_printed_as_it_is() -> None:
    schema = {"properties": {"größe": {"enum": ["weiß"], "description": "→ breit"}}}

    assert typescript(schema, "Maß") == 'interface Maß {\n  größe?: "weiß"; // → breit\n}'
    assert example(schema) == '{"größe": "weiß"}'


def test_a_union_that_admits_anything_is_any() -> None:
    class Loose(BaseModel):
        x: Any | None

    assert "x: any;" in printed(Loose)


def test_equal_alternatives_print_once() -> None:
    assert of_field({"type": ["integer", "number"]}) == "number"
    assert of_field({"anyOf": [{"type": "string"}, {"anyOf": [{"type": "string"}]}]}) == "string"


def test_an_example_of_a_union_takes_the_first_alternative_that_is_not_null() -> None:
    assert example({"type": ["null", "integer"]}) == "0"
    assert example({"anyOf": [{"type": "null"}, {"const": "a"}, {"type": "string"}]}) == '"a"'
    assert example({"anyOf": [{"type": "null"}]}) == "null"


def test_discriminated_unions_print_their_alternatives() -> None:
    class Owner(BaseModel):
        pet: Annotated[Cat | Dog, Field(discriminator="kind", description="At home")]

    assert printed(Owner) == code("""
        interface Owner {
          pet: Cat | Dog; // At home
        }

        interface Cat {
          kind: "cat";
        }

        interface Dog {
          kind: "dog";
        }
    """)
    assert shown(Owner) == {"pet": {"kind": "cat"}}


def test_descriptions_stand_behind_the_field_on_one_line() -> None:
    class Query(BaseModel):
        text: str = Field(description="What to\n  look for")
        limit: int = Field(10, description=" ")

    assert printed(Query) == code("""
        interface Query {
          text: string; // What to look for
          limit?: number;
        }
    """)


@pytest.mark.parametrize("schema", [
    {"$ref": "#/$defs/A", "description": "here"},
    {"allOf": [{"$ref": "#/$defs/A"}], "description": "here"},
    {"allOf": [{"$ref": "#/$defs/A", "description": "here"}]},
])  # fmt: skip
def test_a_reference_keeps_the_description_of_its_field(schema: dict[str, Any]) -> None:
    document = {"properties": {"a": schema}, "$defs": {"A": {"enum": [1]}}}

    assert typescript(document, "T") == "interface T {\n  a?: A; // here\n}\n\ntype A = 1;"


def test_a_field_takes_its_own_description_and_not_that_of_its_model() -> None:
    class Person(BaseModel):
        home: Address = Field(description="Not a box")
        work: Address

    assert "home: Address; // Not a box\n  work: Address;\n" in printed(Person)


def test_generic_models_get_names_that_are_identifiers() -> None:
    class Shelf(BaseModel):
        box: Box[int]

    assert "box: Box_int_;" in printed(Shelf)
    assert typescript(Box[int].model_json_schema(), "Box[int]") == code("""
        interface Box_int_ {
          value: number;
        }
    """)
    assert typescript({}, "2nd-try") == "type _2nd_try = any;"
    assert typescript({}, "") == "type _ = any;"


def test_keys_that_are_not_identifiers_are_quoted() -> None:
    class Headers(BaseModel):
        content_type: str = Field(alias="content-type")
        second: str = Field(alias='2"')
        money: str = Field(alias="$money")

    assert printed(Headers) == code("""
        interface Headers {
          "content-type": string;
          "2\\"": string;
          $money: string;
        }
    """)


def test_models_that_allow_further_fields_say_so() -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")
        a: int

    assert printed(Open) == "interface Open {\n  a: number;\n  [key: string]: any;\n}"
    assert shown(Open) == {"a": 0}


def test_a_model_without_fields_is_an_empty_interface() -> None:
    class Empty(BaseModel):
        pass

    assert printed(Empty) == "interface Empty {}"
    assert shown(Empty) == {}


def test_root_models_print_as_a_type() -> None:
    class Scores(RootModel[dict[str, int]]):
        pass

    class Pets(RootModel[list[Cat | Dog]]):
        pass

    assert printed(Scores) == "type Scores = Record<string, number>;"
    assert printed(Pets).startswith("type Pets = (Cat | Dog)[];\n\ninterface Cat {")
    assert shown(Scores) == {"...": 0}
    assert shown(Pets) == [{"kind": "cat"}]


def test_a_recursive_model_refers_to_itself_by_name() -> None:
    assert printed(Node) == code("""
        interface Node {
          value: number;
          children?: Node[];
          by_name?: Record<string, Node>;
          next?: Node | null;
        }
    """)


def test_a_recursive_root_takes_the_name_it_is_given() -> None:
    assert typescript(Node.model_json_schema(), "Tree").splitlines()[2] == "  children?: Tree[];"


def test_a_schema_may_refer_to_its_own_root() -> None:
    schema = {"properties": {"next": {"$ref": "#"}}}

    assert typescript(schema, "Link") == "interface Link {\n  next?: Link;\n}"
    assert example(schema) == '{"next": null}'


def test_an_example_stops_where_a_model_repeats() -> None:
    assert example(Node.model_json_schema()) == (
        '{"value": 0, "children": [], "by_name": {}, "next": null}'
    )


def test_an_example_leaves_a_recursion_by_another_alternative() -> None:
    assert shown(Sum) == {"left": {"n": 0}, "right": {"n": 0}}


def test_definitions_that_only_name_each_other_end() -> None:
    loop = {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}}

    assert typescript(loop, "T") == "type T = B;\n\ntype B = T;"
    assert example(loop) == "null"


def test_all_of_with_one_entry_is_that_entry_and_several_are_joined() -> None:
    a = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    b = {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}

    assert of_field({"allOf": [a]}) == "{ a: string }"
    assert of_field({"allOf": [a, b]}) == "{ a: string } & { b: number }"
    assert of_field({"items": {"allOf": [a, b]}}) == "({ a: string } & { b: number })[]"
    assert of_field({"allOf": [a], **b}) == "{ a: string } & { b: number }"
    assert example({"allOf": [a, b]}) == '{"a": "...", "b": 0}'


def test_a_type_beside_alternatives_is_not_repeated() -> None:
    assert of_field({"type": "string", "oneOf": [{"const": "a"}, {"const": "b"}]}) == '"a" | "b"'


def test_alternatives_that_say_only_what_is_required_change_nothing() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    }

    assert typescript(schema, "T") == "interface T {\n  a?: string;\n  b?: string;\n}"


@pytest.mark.parametrize("ref", [
    "#/$defs/Missing", "#/properties/x", "https://example.com/a.json", "other.json#/$defs/A", "", 5,
])  # fmt: skip
def test_references_that_lead_elsewhere_are_any(ref: Any) -> None:
    assert of_field({"$ref": ref}) == "any"


def test_references_may_be_escaped_and_use_the_older_section() -> None:
    schema = {
        "properties": {
            "slash": {"$ref": "#/definitions/a~1b"},
            "space": {"$ref": "#/$defs/c%20d"},
            "tilde": {"$ref": "#/$defs/e~01"},
        },
        "definitions": {"a/b": {"const": 1}},
        "$defs": {"c d": {"const": 2}, "e~1": {"const": 3}},
    }

    assert typescript(schema, "T").split("\n\n")[1:] == [
        "type a_b = 1;",
        "type c_d = 2;",
        "type e_1 = 3;",
    ]


def test_two_definitions_never_share_a_name() -> None:
    names = ["a-b", "a.b", "a_b", "T", "string"]
    schema = {
        "properties": {name: {"$ref": f"#/$defs/{name}"} for name in names},
        "$defs": {name: {"const": name} for name in names},
    }

    declared = [line.split()[1] for line in typescript(schema, "T").split("\n\n")]

    assert declared[:2] == ["T", "a_b"]
    assert len({*declared, "string"}) == len(names) + 2


@pytest.mark.parametrize(("schema", "expected"), [
    ({"type": 5}, "any"),
    ({"type": "widget"}, "any"),
    ({"type": ["string", 5]}, "any"),
    ({"type": []}, "any"),
    ({"type": "object", "properties": 5}, "Record<string, any>"),
    ({"type": "object", "properties": {"a": 5}, "required": ["a"]}, "{ a: any }"),
    ({"properties": {"a": True}, "required": "a"}, "{ a?: any }"),
    ({"properties": {"a": {}}, "required": [["a"], 1]}, "{ a?: any }"),
    ({"additionalProperties": 5}, "Record<string, any>"),
    ({"type": "array", "items": 5}, "any[]"),
    ({"enum": 5}, "any"),
    ({"enum": [float("nan"), "a"]}, "any"),
    ({"const": object()}, "any"),
    ({"anyOf": {"type": "string"}}, "any"),
    ({"type": "string", "allOf": [5, None]}, "string"),
    ({"type": "string", "description": 5}, "string"),
    (["not a schema"], "any"),
    (None, "any"),
])  # fmt: skip
def test_what_makes_no_sense_is_any(schema: Any, expected: str) -> None:
    assert of_field(schema) == expected
    json.loads(example({"properties": {"x": schema}}))


def test_a_document_whose_definitions_make_no_sense_still_prints() -> None:
    schema = {"$ref": "#/$defs/A", "$defs": {"A": 5}, "definitions": [1]}

    assert typescript(schema, "T") == "type T = any;"


def nested(levels: int, wrap: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = wrap(schema)
    return schema


def deep_in_the_stack(frames: int, call: Callable[[], str]) -> str:
    return call() if frames == 0 else deep_in_the_stack(frames - 1, call)


def test_a_hundred_levels_are_printed_and_deeper_ones_are_any() -> None:
    def wrap(schema: Any) -> dict[str, Any]:
        return {"type": "array", "items": schema}

    assert typescript(nested(100, wrap), "T") == f"type T = string{'[]' * 100};"
    assert typescript(nested(101, wrap), "T") == f"type T = any{'[]' * 101};"


@pytest.mark.parametrize("wrap", [
    lambda s: {"type": "array", "items": s},
    lambda s: {"type": "array", "prefixItems": [s, {"type": "null"}]},
    lambda s: {"type": "object", "properties": {"a": s}},
    lambda s: {"type": "object", "additionalProperties": s},
    lambda s: {"anyOf": [{"type": "array", "items": s}, {"type": "null"}]},
    lambda s: {"allOf": [s, {"properties": {"b": {}}}]},
    lambda s: {"const": [s]},
])  # fmt: skip
def test_a_depth_bomb_fits_on_a_busy_stack(wrap: Callable[[Any], dict[str, Any]]) -> None:
    bomb = nested(20_000, wrap)

    assert "any" in deep_in_the_stack(400, lambda: typescript(bomb, "T"))
    json.loads(deep_in_the_stack(400, lambda: example(bomb)))


def doubling(levels: int) -> dict[str, Any]:
    """Definitions that each hold the next one twice."""
    definitions: dict[str, Any] = {f"L{levels}": {"type": "string"}}
    for level in range(levels):
        deeper = {"$ref": f"#/$defs/L{level + 1}"}
        properties = {"a": deeper, "b": {"type": "array", "items": deeper}}
        definitions[f"L{level}"] = {"type": "object", "properties": properties}
    return {"$ref": "#/$defs/L0", "$defs": definitions}


def test_definitions_that_double_at_each_level_print_once() -> None:
    assert typescript(doubling(30), "T").count("interface") == 30


def test_an_example_of_doubling_definitions_stays_small() -> None:
    text = example(doubling(30))

    assert json.loads(text)["b"] == []
    assert len(text) < 30_000


def test_an_example_of_a_long_chain_of_definitions_ends() -> None:
    chain = {f"L{i}": {"properties": {"a": {"$ref": f"#/$defs/L{i + 1}"}}} for i in range(5000)}
    schema = {"$ref": "#/$defs/L0", "$defs": chain}

    assert json.loads(deep_in_the_stack(400, lambda: example(schema)))["a"]["a"]
    assert typescript(schema, "T").count("interface") == 5000


def test_unions_that_double_without_leading_anywhere_end() -> None:
    definitions: dict[str, Any] = {}
    for level in range(40):
        deeper = [{"$ref": f"#/$defs/{side}{level + 1}"} for side in "AB"]
        definitions |= {f"{side}{level}": {"oneOf": deeper} for side in "AB"}
    definitions |= {f"{side}40": {"$ref": "#"} for side in "AB"}

    assert example({"$ref": "#/$defs/A0", "$defs": definitions}) == "null"


def test_many_definitions_wishing_for_one_name_all_get_one() -> None:
    names = [f"x{'-' if i & 1 else '.'}{i * '.'}" for i in range(300)] + ["x_", "x__"]
    schema = {
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in names],
        "$defs": {name: {"const": name} for name in names},
    }

    declared = [line.split()[1] for line in typescript(schema, "T").split("\n\n")]

    assert len(set(declared)) == len(declared) == len(names) + 1


PARAMETERS = {"type": "object", "properties": {"q": {"type": "string"}}}


@pytest.mark.parametrize("schema", [
    {"type": "function", "function": {
        "name": "find", "description": "Finds", "parameters": PARAMETERS}},
    {"type": "function", "name": "find", "description": "Finds", "parameters": PARAMETERS},
    {"name": "find", "description": "Finds", "parameters": PARAMETERS},
    {"name": "find", "description": "Finds", "input_schema": PARAMETERS},
    {"name": "find", "description": "Finds", "inputSchema": PARAMETERS},
])  # fmt: skip
def test_tools_are_understood_in_the_form_of_every_api(schema: dict[str, Any]) -> None:
    assert tool_schema(schema) == ToolSchema("find", "Finds", PARAMETERS)
    assert tool_schema(schema, "other").name == "find"


def test_a_bare_schema_is_a_tool_named_by_argument_title_or_default() -> None:
    titled = {**PARAMETERS, "title": "Find", "description": "Finds"}

    assert tool_schema(titled, "search") == ToolSchema("search", "Finds", titled)
    assert tool_schema(titled) == ToolSchema("Find", "Finds", titled)
    assert tool_schema(PARAMETERS) == ToolSchema("tool", "", PARAMETERS)
    assert tool_schema({}) == ToolSchema("tool", "", {})


def test_a_pydantic_model_may_describe_a_tool() -> None:
    tool = tool_schema(Address.model_json_schema(), "locate")

    assert (tool.name, tool.description) == ("locate", "Where someone lives.")
    assert typescript(tool.parameters, tool.name) == "interface locate {\n  city: string;\n}"


def test_a_tool_without_parameters_takes_none() -> None:
    tool = tool_schema({"name": "now", "description": "The time"})

    assert typescript(tool.parameters, tool.name) == "interface now {}"


def test_a_malformed_tool_keeps_what_makes_sense() -> None:
    malformed = {"name": 5, "description": [], "parameters": 7}

    assert tool_schema(malformed) == ToolSchema("tool", "", {})
    assert tool_schema({"function": 5, "title": "T"}).name == "T"


KEYWORDS = st.sampled_from([
    "type", "properties", "required", "items", "prefixItems", "additionalProperties", "anyOf",
    "patternProperties", "oneOf", "allOf", "enum", "const", "$ref", "$defs", "definitions",
    "description", "title", "default", "function", "name", "parameters", "input_schema",
])  # fmt: skip
WORDS = st.sampled_from([
    "object", "array", "string", "integer", "null", "#", "#/$defs/title", "#/definitions/name",
    "#/$defs/type",
])  # fmt: skip
TEXT = st.text('ab1ß-$~/% "\n\u2028', max_size=4)
JSON = st.recursive(
    WORDS | TEXT | st.none() | st.booleans() | st.integers() | st.floats(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYWORDS | TEXT, inner, max_size=6),
    max_leaves=40,
)


@given(st.dictionaries(KEYWORDS, JSON, max_size=8))
def test_no_schema_raises_and_every_example_is_json(schema: dict[str, Any]) -> None:
    assert typescript(schema, "T")
    json.loads(example(schema))
    tool = tool_schema(schema)
    assert typescript(tool.parameters, tool.name)
