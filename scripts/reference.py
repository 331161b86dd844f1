"""Writes docs/reference.md from the code: every public name, how it is called, what it is for.

    python -m scripts.reference          writes the page
    python -m scripts.reference --check  says whether it is up to date

What is not in the code cannot be in the page, and a test checks that the two agree.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

PAGE = Path(__file__).parent.parent / "docs" / "reference.md"
MODULES = {
    "sennit": "The engine: sessions, messages, turns, tools, models.",
    "sennit.testing": "For your own tests: a model that says what it is told to, failpoints.",
    "sennit.learning.dspy": "DSPy programs that remember.",
}
HEAD = """# Reference

Every public name, written from the code by `make docs`. Other pages explain; this one lists.
"""
_listed: set[type] = set()
_DEFAULT = re.compile(r"<([\w.]+) object at 0x[0-9a-f]+>")


def page() -> str:
    """The whole page."""
    return HEAD + "".join(_module(name, about) for name, about in MODULES.items())


def _module(name: str, about: str) -> str:
    module = import_module(name)
    # A star import leaves `open` out, so as not to hide the builtin.
    names = sorted({*module.__all__, *({"open"} & vars(module).keys())}, key=str.lower)
    _listed.update(one for one in map(partial(getattr, module), names) if isinstance(one, type))
    return f"\n## {name}\n\n{about}\n" + "".join(_entry(one, getattr(module, one)) for one in names)


def _entry(name: str, thing: Any) -> str:
    if isinstance(thing, type):
        return f"\n### {name}{_bases(thing)}\n\n{_said(thing)}{_class(name, thing)}"
    if inspect.isroutine(thing):
        return f"\n### {name}\n\n```text\n{name}{_signature(thing)}\n```\n\n{_said(thing)}"
    return f"\n### {name}\n\n{_value(thing)}\n"


def _class(name: str, thing: type) -> str:
    lines = [f"- `{one}`: {said}" for one, said in _members(thing)]
    above = [one.__name__ for one in thing.__mro__[1:] if one in _listed]
    if above and not _hidden(thing):
        lines.append(f"- and what {' and '.join(f'`{one}`' for one in above)} can do")
    made = "" if _hidden(thing) else f"\n```text\n{name}{_signature(thing)}\n```\n"
    return made + ("\n" + "\n".join(lines) + "\n" if lines else "")


def _hidden(thing: type) -> bool:
    """Whether how it is made is nobody's business: errors and protocols."""
    return issubclass(thing, BaseException) or getattr(thing, "_is_protocol", False)


def _members(thing: type) -> Iterator[tuple[str, str]]:
    """Public methods and properties of ours, with their first line."""
    for name in sorted(dir(thing)):
        member = inspect.getattr_static(thing, name)
        if name.startswith("_") or _from_outside(thing, name):
            continue
        if isinstance(member, property) or hasattr(member, "func"):
            yield name, _first(member)
        elif isinstance(member, FunctionType | classmethod | staticmethod):
            called = getattr(thing, name)
            yield f"{name}{_signature(called, skip_self=True)}", _first(called)


def _from_outside(thing: type, name: str) -> bool:
    """Whether a member comes from a class that is not ours, or that is listed itself."""
    owner = next(one for one in thing.__mro__ if name in vars(one))
    if owner is not thing and owner in _listed:
        return True
    return not owner.__module__.startswith("sennit")


def _signature(called: Any, *, skip_self: bool = False) -> str:
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):
        return "(…)"
    given = list(signature.parameters.values())
    if skip_self and given and given[0].name in ("self", "cls"):
        given = given[1:]
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in given]
    shown = str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    return _DEFAULT.sub(r"\1", shown)


def _bases(thing: type) -> str:
    named = [one.__name__ for one in thing.__bases__ if one.__module__.startswith("sennit")]
    return f" ({', '.join(named)})" if named and issubclass(thing, BaseException) else ""


def _said(thing: Any) -> str:
    said = inspect.getdoc(thing) or ""
    if is_dataclass(thing) and said.startswith(f"{getattr(thing, '__name__', '')}("):
        said = ""  # what dataclasses make up by themselves
    first = said.split("\n\n")[0].strip()
    return f"{_plain(first)}\n" if first else ""


def _first(thing: Any) -> str:
    said = inspect.getdoc(thing) or ""
    return _plain(" ".join(said.split("\n\n")[0].split())) or "."


def _value(thing: Any) -> str:
    """A value or an alias, which has nothing to say of itself."""
    return f"`{type(thing).__name__}`"


def _plain(text: str) -> str:
    return text.replace("<", "&lt;")


if __name__ == "__main__":
    written = page()
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text(encoding="utf-8") == written else "run `make docs`")
    PAGE.write_text(written, encoding="utf-8")
