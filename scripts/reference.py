"""Generator of docs/reference: every public name with its types, defaults and meaning.

    python -m scripts.reference          writes the pages
    python -m scripts.reference --check  says whether they are up to date

Signatures come from the running code, meanings from its docstrings: those of classes and
functions, and the string below a field. A class that is not exported but that a public call takes
or returns is described too, on the page of its area. A test checks that the pages are up to date.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache, cached_property
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import FunctionType, GenericAlias
from typing import Any, TypeVar, cast, get_overloads, is_typeddict

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
MODULES = (  # public, the shortest import first
    "sennit",
    "sennit.events",
    "sennit.services",
    "sennit.messages",
    "sennit.turns",
    "sennit.operations",
    "sennit.memory",
    "sennit.learning",
    "sennit.learning.dspy",
    "sennit.containers",
    "sennit.adapters.openai_agents",
    "sennit.adapters.langgraph",
    "sennit.adapters.langchain",
    "sennit.adapters.pydantic_ai",
    "sennit.server",
    "sennit.testing",
)


@dataclass(frozen=True)
class Area:
    """A page, and the modules whose names it describes."""

    file: str
    title: str
    about: str
    modules: tuple[str, ...]


AREAS = (
    Area(
        "clients",
        "Clients and sessions",
        "Open a store, get a session, fork and compare branches. "
        "Guides: [sessions](../sessions.md), [stores](../stores.md).",
        ("sennit.api", "sennit.sessions", "sennit.stores"),
    ),
    Area(
        "conversations",
        "Conversations",
        "Run turns: results, streams, options, tools, approval. "
        "Guide: [conversations](../conversations.md).",
        ("sennit.turns",),
    ),
    Area(
        "events",
        "Events",
        "The numbered steps of a run, as `events()` and observers receive them. "
        "Guide: [conversations](../conversations.md#streaming).",
        ("sennit.turns.events",),
    ),
    Area(
        "special-turns",
        "Special turns, policies and context",
        "Side questions, checks of requests and replies, additions to the prompt. "
        "Guide: [special turns](../special-turns.md).",
        ("sennit.turns.special", "sennit.turns.policies", "sennit.turns.context"),
    ),
    Area(
        "messages",
        "Messages",
        "Messages, their contents and parts, and prompts. "
        "Guides: [messages](../messages.md), [prompts](../prompts.md).",
        ("sennit.messages",),
    ),
    Area(
        "models",
        "Models and tools",
        "Models, tools, MCP servers and the registry that holds them. "
        "Guides: [models](../models.md), [tools](../tools.md).",
        ("sennit.services",),
    ),
    Area(
        "operations",
        "Operations",
        "Named operations, started with `conduct`. Guide: [operations](../operations.md).",
        ("sennit.operations",),
    ),
    Area(
        "memory",
        "Memory and search",
        "Commits, memories, files and search: `client.memory`, `client.fs`, `client.find`. "
        "Guides: [memory](../memory.md), [search](../find.md).",
        ("sennit.memory",),
    ),
    Area(
        "learning",
        "Learning and DSPy",
        "Labels, examples, preferences, training files and DSPy programs. "
        "Guides: [learning](../learning.md), [DSPy](../dspy.md).",
        ("sennit.learning",),
    ),
    Area(
        "adapters",
        "Adapters",
        "Histories for other frameworks. Guide: [adapters](../adapters.md).",
        ("sennit.adapters",),
    ),
    Area(
        "server",
        "Server",
        "The server as an ASGI application. Guide: [the server](../server.md).",
        ("sennit.server",),
    ),
    Area(
        "testing",
        "Testing",
        "A scripted model, failpoints and the conformance suite for stores. "
        "Guide: [test without a model](../how-to/test-without-a-model.md).",
        ("sennit.testing",),
    ),
    Area(
        "containers",
        "Containers",
        "The data structures of sessions. Guide: [containers](../containers.md).",
        ("sennit.containers",),
    ),
    Area(
        "errors",
        "Errors",
        "All exceptions of Sennit derive from `SennitError`, and from the builtin that fits.",
        ("sennit.errors",),
    ),
)
# Classes that signatures name, but that Sennit alone makes and calls.
_INTERNAL = (
    "sennit.api.lazy_memory",
    "sennit.learning.dspy.",
    "sennit.memory.scope",
    "sennit.server.active_runs",
    "sennit.server.http.caches",
    "sennit.server.http.callers",
    "sennit.server.http.limits",
    "sennit.services.models.limits.",
    "sennit.sessions.branch",
    "sennit.sessions.grants",
    "sennit.sessions.plan",
    "sennit.sessions.repository",
    "sennit.sessions.rewrite",
    "sennit.sessions.run_repository",
    "sennit.sessions.segments",
    "sennit.sessions.views",
    "sennit.stores.",
    "sennit.turns.subscription",
)
_NOTE = "<!-- Written from the code by `make reference`; do not edit. -->\n"
_ADDRESS = re.compile(r"<(?:function |bound method )?([\w.]+)(?: object)? at 0x[0-9a-f]+>")
_WIDTH = 88


def pages() -> dict[Path, str]:
    """Return the text of each page by its path."""
    names = _Names()
    written = {FOLDER / f"{area.file}.md": names.page(area) for area in AREAS}
    return {FOLDER / "index.md": names.index(), **written}


class _Names:
    """All names to describe: what the public modules export, and the types that reach users."""

    def __init__(self) -> None:
        self.exported: dict[str, tuple[str, object]] = {}  # name -> import path, value
        for module in MODULES:
            for name, value in _exports(module):
                if not any(value is known for _, known in self.exported.values()):
                    key = name if name not in self.exported else f"{module.split('.')[-1]}.{name}"
                    self.exported[key] = (module, value)

    def index(self) -> str:
        lines = [
            "# Reference",
            "",
            _NOTE,
            "Every public name with its types, defaults and meaning. An async twin is listed with "
            "its method.",
            "",
        ]
        for area in AREAS:
            lines.append(f"## [{area.title}]({area.file}.md)\n\n{area.about.split(' Guide')[0]}\n")
            names = sorted(self._of(area), key=str.lower)
            shown = (f"[`{name}`]({area.file}.md#{_anchor(name)})" for name in names)
            lines.append(_wrapped(", ".join(shown)) + "\n")
        return "\n".join(lines)

    def page(self, area: Area) -> str:
        entries = [
            self._entry(name, *self.exported[name])
            for name in sorted(self._of(area), key=str.lower)
        ]
        inner = [
            self._entry(kind.__name__, "", kind)
            for kind in sorted(self.inner, key=lambda kind: kind.__name__.lower())
            if _area(kind) is area
        ]
        aliases = [
            f"- `{name}` = `{text}`"
            for (module, name), text in sorted(self.aliases.items(), key=lambda item: item[0][1])
            if _area_of(module) is area
        ]
        text = f"# {area.title}\n\n{_NOTE}\n{_wrapped(area.about)}\n" + "".join(entries)
        if inner:
            text += (
                "\n## Types of parameters and results\n\nYou get these from the calls above, or "
                "implement them; they need no import.\n"
            )
            text += "".join(entry.replace("\n## ", "\n### ", 1) for entry in inner)
        if aliases:
            text += "\n## Type aliases\n\n" + "\n".join(aliases) + "\n"
        return text

    def _of(self, area: Area) -> list[str]:
        return [
            name for name, (module, value) in self.exported.items() if _area(value, module) is area
        ]

    @cached_property
    def classes(self) -> set[type]:
        """The classes that have an entry of their own."""
        return {value for _, value in self.exported.values() if isinstance(value, type)}

    @cached_property
    def inner(self) -> set[type]:
        """Classes that are not exported but that public calls take or return, however far."""
        return self._reached[0]

    @cached_property
    def aliases(self) -> dict[tuple[str, str], str]:
        """The text of each type alias that a signature names, by module and name."""
        return self._reached[1]

    @cached_property
    def _reached(self) -> tuple[set[type], dict[tuple[str, str], str]]:
        reached: set[type] = set()
        aliases: dict[tuple[str, str], str] = {}
        todo = [value for _, value in self.exported.values()]
        while todo:
            value = todo.pop()
            for module, name in _mentioned(value):
                alias = _alias(module, name)
                if alias is not None:
                    aliases[module, name] = alias
                found = _resolve(module, name)
                if (
                    isinstance(found, type)
                    and found.__module__.startswith("sennit")
                    and _reaches_users(found)
                    and found not in self.classes
                    and found not in reached
                    and not any(found in known.__mro__ for known in self.classes)
                ):
                    reached.add(found)
                    todo.append(found)
        return reached, aliases

    def _entry(self, name: str, module: str, value: object) -> str:
        short = name.rsplit(".", 1)[-1]
        heading = f"\n## {name}\n\n"
        if module and module != "sennit":
            heading += f"`from {module} import {short}`\n\n"
        if isinstance(value, type):
            return heading + self._class(short, value)
        if callable(value):
            return heading + _signature_block(short, value) + _docstring(value)
        if (text := _constant_doc(module, short)) is not None:
            return heading + text + "\n"
        listed = (
            cast("Iterable[object]", value) if isinstance(value, dict | frozenset | tuple) else ()
        )
        keys = ", ".join(f"`{key}`" for key in sorted(map(str, listed)))
        return heading + f"`{type(value).__name__}`{' of ' if keys else ''}{keys}.\n"

    def _class(self, name: str, kind: type) -> str:
        text = ""
        bases = [base for base in kind.__bases__ if base in self.classes or base in self.inner]
        if issubclass(kind, BaseException):
            builtin = [base for base in kind.__bases__ if base.__module__ == "builtins"]
            bases += [base for base in builtin if base is not Exception]
        if bases:
            text += f"Extends {' and '.join(self._link(base) for base in bases)}.\n\n"
        doc = _docstring(kind)
        text += f"{doc}\n" if doc else ""
        if issubclass(kind, Enum):
            values = ", ".join(f"`{one.name}` (`{one.value!r}`)" for one in kind)
            return f"{text}Values: {values}.\n"
        constructed = not issubclass(kind, BaseException | dict) and not _is_protocol(kind)
        if constructed and "__init__" in dir(kind) and not _made_inside(kind):
            text += _signature_block(name, kind)
            init = vars(kind).get("__init__")
            if isinstance(init, FunctionType) and not is_dataclass(kind):
                text += f"{_docstring(init)}\n"
        text += self._fields(kind)
        text += self._attributes(kind)
        for member, value in self._methods(kind):
            text += f"\n### {name}.{member}\n\n" + value
        return text.rstrip("\n") + "\n"

    def _link(self, kind: type) -> str:
        area = _area(kind)
        if kind.__module__ == "builtins" or area is None:
            return f"`{kind.__name__}`"
        return f"[`{kind.__name__}`]({area.file}.md#{_anchor(kind.__name__)})"

    def _fields(self, kind: type) -> str:
        docs = _field_docs(kind)
        if is_typeddict(kind):
            rows = [
                (f"`{name}`", _code(_type(_annotation(kind, name))), docs.get(name, ""))
                for name in kind.__annotations__
            ]
            return _table(("key", "type", "meaning"), rows)
        if not is_dataclass(kind):
            return ""
        rows = [
            (
                f"`{field.name}`",
                _code(_type(field.type)),
                _code(_default(field)),
                docs.get(field.name, ""),
            )
            for field in fields(kind)
            if not field.name.startswith("_")
        ]
        return _table(("field", "type", "default", "meaning"), rows)

    def _attributes(self, kind: type) -> str:
        rows: list[tuple[str, str, str]] = []
        own = {field.name for field in fields(kind)} if is_dataclass(kind) else set[str]()
        for name, member in self._members(kind):
            getter = member.fget if isinstance(member, property) else getattr(member, "func", None)
            if getter is None or name in own:
                continue
            result = getattr(getter, "__annotations__", {}).get("return", "")
            rows.append((f"`{name}`", _code(_type(result)), _summary(member)))
        docs = {} if is_dataclass(kind) or is_typeddict(kind) else _field_docs(kind)
        known = {row[0] for row in rows}
        for name, text in docs.items():
            if f"`{name}`" not in known and not name.startswith("_"):
                rows.append((f"`{name}`", _code(_annotation(kind, name)), text))
        return _table(("attribute", "type", "meaning"), sorted(rows))

    def _methods(self, kind: type) -> Iterator[tuple[str, str]]:
        """Yield methods; an async twin is named with its method, and not listed again."""
        members = {
            name: member
            for name, member in self._members(kind)
            if isinstance(member, FunctionType | classmethod | staticmethod)
        }
        for name, member in members.items():
            plain = members.get(name[1:]) if name[0] == "a" else members.get(f"{name}_sync")
            if plain is not None and _is_async(member) and name[0] == "a":
                continue
            if name.endswith("_sync") and name.removesuffix("_sync") in members:
                continue
            called = getattr(kind, name)
            text = _signature_block(name, called, skip_self=not isinstance(member, staticmethod))
            twin = f"a{name}" if f"a{name}" in members else None
            if twin is not None:
                text += f"Async twin: `await {twin}(…)`.\n\n"
            elif f"{name}_sync" in members:
                text += f"Blocking twin: `{name}_sync(…)`.\n\n"
            yield name, text + _docstring(called)

    def _members(self, kind: type) -> Iterator[tuple[str, Any]]:
        for name in sorted(dir(kind)):
            if name.startswith("_"):
                continue
            owner = next((base for base in kind.__mro__ if name in vars(base)), None)
            if owner is None or not owner.__module__.startswith("sennit"):
                continue
            if owner is kind or owner not in self.classes:
                yield name, inspect.getattr_static(kind, name)


def _reaches_users(kind: type) -> bool:
    return not kind.__name__.startswith("_") and not kind.__module__.startswith(_INTERNAL)


def _exports(module: str) -> Iterator[tuple[str, object]]:
    loaded = import_module(module)
    # A star import leaves `open` out, so as not to hide the builtin.
    for name in sorted({*loaded.__all__, *({"open"} & vars(loaded).keys())}, key=str.lower):
        yield name, getattr(loaded, name)


def _area(value: object, module: str = "") -> Area | None:
    home = getattr(value, "__module__", None)
    return _area_of(home if isinstance(home, str) and home.startswith("sennit") else module)


def _area_of(module: str) -> Area | None:
    """Return the area whose module prefix is the longest that fits."""
    fitting = [
        (len(prefix), area)
        for area in AREAS
        for prefix in area.modules
        if module == prefix or module.startswith(f"{prefix}.")
    ]
    return max(fitting, key=lambda pair: pair[0])[1] if fitting else AREAS[0]


# The source: field docstrings, aliases, imports


@cache
def _tree(module: str) -> ast.Module:
    path = sys.modules[module].__file__ if module in sys.modules else import_module(module).__file__
    assert path is not None
    return ast.parse(Path(path).read_text(encoding="utf-8"))


@cache
def _imports(module: str) -> dict[str, tuple[str, str]]:
    """Return where each imported name comes from, including imports for the type checker."""
    return {
        one.asname or one.name: (node.module, one.name)
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for one in node.names
    }


def _resolve(module: str, name: str) -> object:
    if name in vars(sys.modules.get(module) or import_module(module)):
        return vars(sys.modules[module])[name]
    home, original = _imports(module).get(name, ("", ""))
    if not home.startswith("sennit"):
        return None
    return getattr(import_module(home), original, None)


def _alias(module: str, name: str) -> str | None:
    """Return the text of a type alias of ours."""
    home, original = _imports(module).get(name, (module, name))
    if not home.startswith("sennit"):
        return None
    for node in _tree(home).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == original:
            value = getattr(node, "value", None)
            found = getattr(import_module(home), original, None)
            is_type = (
                (isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation))
                or isinstance(found, GenericAlias)
                or type(found).__module__ in ("typing", "types")
            )
            if value is not None and is_type and not isinstance(found, TypeVar):
                text = ast.unparse(value)
                return text.replace("'", '"') if "Literal" in text else text
    return None


def _class_node(kind: type) -> ast.ClassDef | None:
    if not kind.__module__.startswith("sennit"):
        return None
    for node in ast.walk(_tree(kind.__module__)):
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
            return node
    return None


@cache
def _field_docs(kind: type) -> dict[str, str]:
    """Return the docstring of each field: the string below it, in the class or a base."""
    docs: dict[str, str] = {}
    for base in (*_typed_dict_bases(kind), *reversed(kind.__mro__)):
        node = _class_node(base)
        if node is None:
            continue
        init = [
            one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"
        ]
        for body in (node.body, *(one.body for one in init)):
            docs.update(_strings_below(body))
    return docs


def _typed_dict_bases(kind: type) -> list[type]:
    """Return the bases of a TypedDict, which does not have them in its `__mro__`."""
    node = _class_node(kind) if is_typeddict(kind) else None
    names = [base.id for base in node.bases if isinstance(base, ast.Name)] if node else []
    module = vars(import_module(kind.__module__))
    return [module[name] for name in names if is_typeddict(module[name])]


def _strings_below(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for before, node in pairwise(body):
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        target = (
            before.targets[0] if isinstance(before, ast.Assign) else getattr(before, "target", None)
        )
        name = getattr(target, "id", getattr(target, "attr", None))
        if isinstance(name, str) and isinstance(node.value.value, str):
            yield name, _one_line(node.value.value)


def _annotation(kind: type, name: str) -> str:
    for base in kind.__mro__:
        node = _class_node(base)
        for one in ast.walk(node) if node is not None else ():
            target = getattr(one, "target", None)
            if isinstance(one, ast.AnnAssign) and name in (
                getattr(target, "id", None),
                getattr(target, "attr", None),
            ):
                return ast.unparse(one.annotation)
    return ""


def _constant_doc(module: str, name: str) -> str | None:
    home, original = _imports(module).get(name, (module, name))
    return dict(_strings_below(_tree(home).body)).get(original)


def _mentioned(value: object) -> Iterator[tuple[str, str]]:
    """Yield module and name of each type in the public signatures of a class or function."""
    for member in _public_callables(value):
        module = getattr(member, "__module__", "")
        if not isinstance(module, str) or not module.startswith("sennit"):
            continue
        for annotation in getattr(member, "__annotations__", {}).values():
            for name in re.findall(r"[A-Za-z_]\w*", _type(annotation)):
                yield module, name
    if isinstance(value, type):
        for base in value.__mro__:
            if base.__module__.startswith("sennit"):
                for name, annotation in vars(base).get("__annotations__", {}).items():
                    if not name.startswith("_"):
                        for one in re.findall(r"[A-Za-z_]\w*", _type(annotation)):
                            yield base.__module__, one


def _public_callables(value: object) -> Iterator[object]:
    if not isinstance(value, type):
        yield value
        return
    for base in value.__mro__:
        for name, member in vars(base).items():
            if name.startswith("_") and name not in ("__init__", "__call__", "__iter__"):
                continue
            if isinstance(member, property):
                yield member.fget
            else:
                yield getattr(member, "func", getattr(member, "__func__", member))


# Text


def _signature_block(name: str, called: Any, *, skip_self: bool = False) -> str:
    versions = get_overloads(inspect.unwrap(called)) if inspect.isroutine(called) else []
    drop = 1 if skip_self and versions else 0
    shown = [_signature(name, one, drop) for one in versions or [called]]
    if not versions and skip_self and inspect.isfunction(called):
        shown = [_signature(name, called, 1)]
    return "```py\n" + "\n".join(shown) + "\n```\n\n"


def _signature(name: str, called: Any, drop: int) -> str:
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):
        return f"{name}(…)"
    parameters = list(signature.parameters.values())[drop:]
    parts: list[str] = []
    starred = False
    for place, one in enumerate(parameters):
        if one.kind is one.KEYWORD_ONLY and not starred:
            starred = True
            parts.append("*")
        if one.kind is one.VAR_POSITIONAL:
            starred = True
        parts.append(_parameter(one))
        following = parameters[place + 1 : place + 2]
        if one.kind is one.POSITIONAL_ONLY and (
            not following or following[0].kind is not one.POSITIONAL_ONLY
        ):
            parts.append("/")
    returned = signature.return_annotation
    if hasattr(called, "plan"):  # a planned method carries out the plan that it declares
        returned = str(returned).removeprefix("Plan[").removesuffix("]")
    result = (
        "" if returned is inspect.Signature.empty or isinstance(called, type) else _type(returned)
    )
    arrow = f" -> {result}" if result else ""
    head = "async " if _is_async(called) else ""
    line = f"{head}{name}({', '.join(parts)}){arrow}"
    if len(line) <= _WIDTH:
        return line
    inside = "".join(f"    {part},\n" for part in parts).replace("    *,\n", "    *,\n")
    return f"{head}{name}(\n{inside}){arrow}"


def _parameter(one: inspect.Parameter) -> str:
    stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
    kind = "" if one.annotation is one.empty else f": {_type(one.annotation)}"
    if one.default is one.empty:
        return f"{stars}{one.name}{kind}"
    return f"{one.name}{kind}{' = ' if kind else '='}{_value(one.default)}"


def _is_async(called: Any) -> bool:
    called = getattr(called, "__func__", called)
    return inspect.iscoroutinefunction(called)


def _type(annotation: Any) -> str:
    if isinstance(annotation, str):
        return annotation.strip("'\"") if annotation[:1] in "'\"" else annotation
    if annotation is None:
        return "None"
    if isinstance(annotation, type) and not isinstance(annotation, GenericAlias):
        return annotation.__name__
    return re.sub(r"\b(?:typing|collections\.abc|sennit(?:\.\w+)+)\.", "", str(annotation))


def _value(default: Any) -> str:
    if isinstance(default, Enum):
        return f"{type(default).__name__}.{default.name}"
    if isinstance(default, type):
        return default.__name__
    return _ADDRESS.sub(r"\1", repr(default)) if not callable(default) else _callable_name(default)


def _callable_name(value: Any) -> str:
    return getattr(value, "__name__", _ADDRESS.sub(r"\1", repr(value)))


def _default(field: Any) -> str:
    if field.default is not MISSING:
        return _value(field.default)
    if field.default_factory is MISSING:
        return "required"
    try:
        made, again = field.default_factory(), field.default_factory()
    except TypeError:
        return "…"
    plain = made == again and isinstance(made, list | dict | tuple | set | frozenset | str | int)
    return repr(made) if plain else "generated"


def _is_protocol(kind: type) -> bool:
    return bool(getattr(kind, "_is_protocol", False))


def _made_inside(kind: type) -> bool:
    """Return whether users get such objects from calls and do not construct them."""
    return kind not in _exported_classes() and not is_dataclass(kind)


@cache
def _exported_classes() -> frozenset[type]:
    return frozenset(
        value for module in MODULES for _, value in _exports(module) if isinstance(value, type)
    )


def _docstring(value: Any) -> str:
    doc = inspect.getdoc(value) or ""
    if isinstance(value, type):
        doc = inspect.cleandoc(vars(value).get("__doc__") or "")
        if doc.startswith(f"{value.__name__}("):
            doc = ""  # generated by dataclass
    return _markdown(doc)


def _markdown(doc: str) -> str:
    """Return a docstring as Markdown: code becomes a block, an Args section a list."""
    out: list[str] = []
    for paragraph in re.split(r"\n\s*\n", doc.strip()):
        first, _, rest = paragraph.partition("\n")
        if first in ("Args:", "Returns:", "Raises:", "Yields:", "Attributes:"):
            items = re.split(r"\n(?=\S)", textwrap.dedent(rest))
            lines = (
                re.sub(r"^(\*{0,2}\w+)(?: \([^)]*\))?:", r"`\1`:", _one_line(item))
                for item in items
            )
            out.append("\n".join(f"- {line}" for line in lines))
        elif _is_code(paragraph):
            code = textwrap.dedent(paragraph)
            previous = out[-1] if out else ""
            if previous.endswith("\n```"):
                out[-1] = previous.removesuffix("\n```") + f"\n\n{code}\n```"
            else:
                out.append(f"```py\n{code}\n```")
        else:
            out.append(_plain(paragraph))
    return "\n\n".join(out) + "\n" if doc.strip() else ""


def _is_code(paragraph: str) -> bool:
    if all(line.startswith("    ") for line in paragraph.splitlines()):
        return True
    try:
        parsed = ast.parse(paragraph)
    except SyntaxError:
        return False
    return any(
        not isinstance(node, ast.Expr) or isinstance(node.value, ast.Call) for node in parsed.body
    )


def _summary(value: Any) -> str:
    doc = inspect.getdoc(value) or ""
    return _one_line(doc.split("\n\n")[0])


def _one_line(text: str) -> str:
    return _plain(" ".join(text.split()))


def _plain(text: str) -> str:
    """Escape what Markdown would take for HTML, outside code."""
    parts = text.split("`")
    parts[::2] = [part.replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


def _code(text: str) -> str:
    return f"`{text}`" if text and text != "required" else text


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    if not lines:
        return ""
    columns = list(head)
    return "\n".join([f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *lines]) + "\n\n"


def _anchor(name: str) -> str:
    return re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-")


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 110, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    current = pages()
    if "--check" in sys.argv:
        stored = {path: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
        sys.exit(0 if stored == current else "run `make reference`")
    FOLDER.mkdir(exist_ok=True)
    for path in {*FOLDER.glob("*.md")} - current.keys():
        path.unlink()
    for path, text in current.items():
        path.write_text(text, encoding="utf-8")
