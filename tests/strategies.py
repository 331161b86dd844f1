"""Random messages, parts and histories, for the property tests of every room.

Everything here is sound input: what the library must accept and give back exactly. Texts in a
history carry a number of their own, so that a test can tell whether one of them was lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from inspect import isfunction, ismethod
from itertools import count
from math import nan
from typing import Any, ClassVar

from hypothesis import strategies as st
from pydantic import BaseModel, Field

from sennit import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    ContextPart,
    ImagePart,
    InstructionContent,
    Message,
    MessageContent,
    MessageRole,
    OpaqueContent,
    SystemContent,
    TextPart,
    ToolPart,
    Unset,
)
from sennit.messages import MaybeUnset
from sennit.messages.content_registry import CONTENT_KINDS


class Analysis(BaseModel):
    """What came of looking into it."""

    summary: str = Field(description="One sentence.")
    score: float = 0.5


class Tree(BaseModel):
    value: int
    children: list[Tree] = []


class Search(BaseModel):
    """Search for information."""

    query: str
    max_results: int = 10


@dataclass(frozen=True, slots=True)
class ReceiptContent(MessageContent):
    """A content that a program defines itself."""

    kind: ClassVar[str] = "tests.receipt"
    role: ClassVar[MessageRole] = MessageRole.USER

    title: str
    lines: list[Any] = field(default_factory=list[Any])
    paid: MaybeUnset[bool] = Unset

    @property
    def rendered(self) -> str:
        # A stored one may have anything under `lines`.
        lines: Any = self.lines if isinstance(self.lines, list) else [self.lines]  # pyright: ignore
        return "\n".join([f"Receipt: {self.title}", *map(repr, lines)])


@dataclass(slots=True)
class RemarkContent(MessageContent):
    """Another, in the form of the documents, by the assistant."""

    role: ClassVar[MessageRole] = MessageRole.ASSISTANT

    remark: MaybeUnset[Any] = Unset


MODELS: dict[str, type[BaseModel]] = {"Analysis": Analysis, "Tree": Tree, "Search": Search}

_characters = st.characters(exclude_categories=("Cs",), exclude_characters="\0")
_tricky = st.sampled_from(
    [
        "",
        " ",
        "\n",
        "two\nlines",
        "para\n\ngraphs\n",
        " space \n around ",
        "\r\n\u2028\u0085",
        "null",
        "- item",
        "key: value",
        "Instruction: obey",
        '"quoted" \\ {example}',
        "e\u0301 \U0001f9f6 \U0001d54a\U0010ffff",
        "\ufeffBOM \u202e\ufffe",
    ]
)
texts = _tricky | st.text(_characters, max_size=20)
words = st.text(_characters, min_size=1, max_size=12)

integers = st.integers(-(2**63), 2**63 - 1)
numbers = integers | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | texts
json_values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
json_dicts = st.dictionaries(texts, json_values, max_size=3)
json_lists = st.lists(json_values, max_size=3)

_hosts = st.sampled_from(["example.com", "EXAMPLE.org:8080", "[::1]", "xn--9ca.example"])
urls = st.builds(
    "{}://{}/{}".format,
    st.sampled_from(["http", "https", "HTTPS"]),
    _hosts,
    st.sampled_from(["", "a.png", "a/b.jpg?w=1&h=2#top", "%20", "\u00e9\U0001f9f6.png"]),
)
details = st.sampled_from(["low", "high", "auto"])

_zones = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone.min])
moments = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=_zones)
parties = (
    st.none()
    | st.sampled_from(MessageRole)
    | st.uuids()
    | st.uuids().map(str)
    | st.sampled_from(["user", "assistant", "User", "alice", ""])
    | texts
)


def _maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.just(Unset) | values


_factories = st.sampled_from([lambda: "noon", lambda: ""])
systems = st.builds(
    SystemContent, _maybe(texts), st.sampled_from([Unset, True]) | texts
) | st.builds(SystemContent, _maybe(texts), datetime_factory=_factories)
tool_schemas = st.sampled_from(
    [
        Search,
        Tree,
        {"name": "ping"},
        {"schema": {"type": "object"}},
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
    ]
)
response_models = st.sampled_from(
    [Analysis, Tree, {"title": "Point", "type": "object"}, {"type": "string"}]
)
instructions = st.builds(
    InstructionContent,
    instruction=_maybe(texts),
    context=_maybe(json_lists),
    tool_schemas=_maybe(st.lists(tool_schemas, max_size=2)),
    response_model=_maybe(response_models),
    images=_maybe(st.lists(urls, max_size=2)),
    image_detail=_maybe(details),
)
assistant_responses = st.builds(AssistantResponseContent, _maybe(texts), _maybe(texts))
action_requests = st.builds(ActionRequestContent, _maybe(texts), _maybe(json_dicts), _maybe(texts))
action_responses = st.builds(
    ActionResponseContent, _maybe(texts), _maybe(json_values), _maybe(texts)
)
own_contents = st.builds(
    ReceiptContent, texts, st.lists(json_values, max_size=3), _maybe(st.booleans())
) | st.builds(RemarkContent, _maybe(json_values))
kind_names = st.sampled_from(
    ["invoice", "os.system", "__class__", "../../etc/passwd", "<script>", "a b", "É", "opaque", " "]
) | words.filter(lambda name: name not in CONTENT_KINDS)
opaque_contents = st.builds(OpaqueContent, kind_names, json_dicts, st.sampled_from(MessageRole))
contents: st.SearchStrategy[MessageContent] = st.one_of(
    systems,
    instructions,
    assistant_responses,
    action_requests,
    action_responses,
    own_contents,
    opaque_contents,
)
messages = st.builds(
    Message,
    contents,
    sender=parties,
    recipient=parties,
    id=st.none() | st.uuids() | st.uuids().map(str),
    created_at=st.none() | moments,
    metadata=st.none() | json_dicts,
)

text_parts = st.builds(TextPart, texts)
context_parts = st.builds(ContextPart, words, texts)
image_parts = st.builds(ImagePart, urls, details)
tool_parts = st.builds(
    ToolPart,
    texts,
    json_dicts,
    _maybe(json_values),
    st.none() | _maybe(texts),
    st.none() | texts,
)
user_parts = st.lists(text_parts | context_parts | image_parts, min_size=1, max_size=6)
assistant_parts = st.lists(text_parts | context_parts | tool_parts, min_size=1, max_size=6)
role_and_parts = st.tuples(st.just("user"), user_parts) | st.tuples(
    st.just("assistant"), assistant_parts
)


_CALL_IDS = ["a", "b", "call_a", "", None]
_KINDS = ["user", "user", "assistant", "call", "call", "result", "result", "result", "system"]


@st.composite
def histories(draw: st.DrawFn, max_size: int = 12) -> list[Message]:
    """Messages in any order, as crashes, cancels, imports and broken providers leave them.

    Call ids are few, so that they are reused and missed; results name a call, a message that asked,
    something unknown or nothing, and may come twice, late or before their call. No two texts are
    the same.
    """
    said = _Sayings(draw)
    kinds = draw(st.lists(st.sampled_from(_KINDS), max_size=max_size))
    history = [Message(getattr(said, kind)()) for kind in kinds]
    asked = [str(m.id) for m in history if isinstance(m.content, ActionRequestContent)]
    names = st.sampled_from([*_CALL_IDS, *asked])
    return [
        Message(message.content.with_updates(request_id=draw(names)), id=message.id)
        if isinstance(message.content, ActionResponseContent)
        else message
        for message in history
    ]


class _Sayings:
    """Contents whose texts all differ."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._numbers = count(1)

    def user(self) -> InstructionContent:
        return InstructionContent(
            instruction=self._one_of(self._text, self._text, "", Unset),
            context=self._one_of(Unset, [], lambda: [self._text(), {"k": self._text()}]),
            tool_schemas=self._one_of(Unset, Unset, [Search]),
            response_model=self._one_of(Unset, Unset, Analysis),
            images=self._one_of(Unset, Unset, lambda: [f"https://e.org/{next(self._numbers)}"]),
        )

    def assistant(self) -> AssistantResponseContent:
        said = self._one_of(self._text, self._text, "", Unset)
        return AssistantResponseContent(said, self._one_of(Unset, "hm"))

    def call(self) -> ActionRequestContent:
        call_id = self._one_of(Unset, "", "a", "a", "b", "call_a", "call_0", "call_1")
        return ActionRequestContent(self._text(), {"x": self._text()}, call_id)

    def result(self) -> ActionResponseContent:
        if self._draw(st.booleans()):
            return ActionResponseContent(error=self._text())
        result = self._one_of(self._text, lambda: {"r": [self._text()]}, None)
        return ActionResponseContent(result=result)

    def system(self) -> SystemContent:
        return SystemContent(self._text(), self._one_of(Unset, "noon"))

    def _text(self) -> str:
        return f"<{next(self._numbers)}>{self._draw(texts)}"

    def _one_of(self, *choices: Any) -> Any:
        chosen = self._draw(st.sampled_from(choices))
        return chosen() if isfunction(chosen) or ismethod(chosen) else chosen


@st.composite
def sound_histories(draw: st.DrawFn) -> list[MessageContent]:
    """Contents that every provider accepts: each call has an id of its own and its result."""
    numbers = count(1)
    history: list[MessageContent] = []
    for kind in draw(st.lists(st.sampled_from(["system", "user", "turn"]), max_size=6)):
        if kind == "system":
            history.append(SystemContent(f"<sys{next(numbers)}>"))
        elif kind == "user":
            history.append(InstructionContent(instruction=f"<ask{next(numbers)}>"))
        else:
            ids = [f"id{next(numbers)}" for _ in range(draw(st.integers(0, 3)))]
            said: list[MessageContent] = [
                ActionRequestContent("tool", {"x": 1}, call_id) for call_id in ids
            ]
            for _ in range(draw(st.integers(0, 2))):
                text = AssistantResponseContent(f"<say{next(numbers)}>")
                said.insert(draw(st.integers(0, len(said))), text)
            results = [ActionResponseContent(call_id, draw(json_values)) for call_id in ids]
            history += [*said, *results]
    return history


junk: st.SearchStrategy[Any] = json_values | st.sampled_from(
    [None, True, 0, -1, 2**63, 1e308, "", "x", "\0", "user", [], {}, [[]], {"model": "A"}]
)
"""JSON values in places where they do not belong."""
oddities: st.SearchStrategy[Any] = junk | st.sampled_from(
    [object(), b"x", 10**30, nan, "\ud800", {1: 2}, {None: 1}, (1,), {1}, len, Analysis, Unset]
)
"""Python values that no JSON holds, too."""


@st.composite
def mangled(draw: st.DrawFn, records: st.SearchStrategy[Any], odd: st.SearchStrategy[Any]) -> Any:
    """A stored record in which something was replaced, deleted, added or renamed."""
    record = deepcopy(draw(records))
    for _ in range(draw(st.integers(1, 3))):
        places = _places(record)
        if not places:
            break
        container, key = draw(st.sampled_from(places))
        change = draw(st.sampled_from(["replace", "replace", "delete", "add", "rename"]))
        if change == "replace":
            container[key] = deepcopy(draw(odd))
        elif change == "delete" or isinstance(container, list):
            del container[key]
        elif change == "add":
            container[draw(texts)] = deepcopy(draw(odd))
        else:
            container[draw(st.sampled_from(["id", "type", "schema"]) | texts)] = container.pop(key)
    return record


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) within plain data."""
    if not isinstance(value, (dict, list)):
        return []
    keys = list(value) if isinstance(value, dict) else range(len(value))
    return [place for key in keys for place in [(value, key), *_places(value[key])]]


def strings_in(value: Any) -> Iterator[str]:
    """Every string within plain data, other than keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from strings_in(item)


def lines_in(value: Any) -> Iterator[str]:
    """Every line of every string within plain data, as a reader sees it: without outer blanks."""
    return (line.strip() for said in strings_in(value) for line in said.split("\n"))


def same(a: Any, b: Any) -> bool:
    """Equality of plain data that tells 1, 1.0 and True apart, and keeps the order of keys."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b
