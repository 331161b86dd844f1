"""The size of a program: its lines, and the names of a library that its reader has to know.

A line counts unless it is blank, a comment, or part of the docstring of the program. A concept is a
distinct public name of the library: each name imported from it, and each attribute, method and
keyword argument used on something that comes from it. The origin of a value follows from imports,
assignments, `with`, `for` and calls; the standard library, other packages, names of the program
itself and methods of strings, lists and dicts do not count. The rule is the same for all programs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

_BUILTIN_METHODS = {name for kind in (str, list, dict, set, bytes) for name in dir(kind)}


def lines(path: Path) -> int:
    """Return the number of lines of code."""
    source = path.read_text()
    body = ast.parse(source).body
    docstring = range(0)
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        docstring = range(body[0].lineno, (body[0].end_lineno or 0) + 1)
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and number not in docstring
        for number, line in enumerate(source.splitlines(), 1)
    )


def concepts(path: Path, packages: Iterable[str]) -> list[str]:
    """Return the names of these packages that the program uses."""
    visitor = _Concepts(frozenset(packages))
    tree = ast.parse(path.read_text())
    # Twice: a function's body may use a variable that is assigned after it.
    visitor.visit(tree)
    visitor.visit(tree)
    return sorted(visitor.names)


@dataclass
class _Concepts(ast.NodeVisitor):
    packages: frozenset[str]
    names: set[str] = field(default_factory=set[str])
    ours: set[str] = field(default_factory=set[str])
    """The variables of the program that hold something of the packages."""

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if self._is_package(alias.name):
                self.ours.add(alias.asname or alias.name.partition(".")[0])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if self._is_package(node.module or ""):
            for alias in node.names:
                self.names.add(alias.name)
                self.ours.add(alias.asname or alias.name)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            self._bind(target, node.value)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.generic_visit(node)
        self._bind(node.target, node.value)

    def visit_For(self, node: ast.For) -> None:
        self._bind(node.target, node.iter)
        self.generic_visit(node)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> None:
        self._bind(node.target, node.iter)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._bind(node.target, node.iter)
        self.generic_visit(node)

    def visit_withitem(self, node: ast.withitem) -> None:
        if node.optional_vars is not None:
            self._bind(node.optional_vars, node.context_expr)
        self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> None:
        if node.annotation is not None and self._is_ours(node.annotation):
            self.ours.add(node.arg)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.generic_visit(node)
        if self._is_ours(node.value) and node.attr not in _BUILTIN_METHODS:
            self.names.add(node.attr)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        if self._is_ours(node.func):
            self.names.update(keyword.arg for keyword in node.keywords if keyword.arg)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if self._is_ours(value):
            self.ours.update(name.id for name in ast.walk(target) if isinstance(name, ast.Name))

    def _is_ours(self, value: ast.expr) -> bool:
        return any(
            isinstance(source, ast.Name) and source.id in self.ours for source in _sources(value)
        )

    def _is_package(self, module: str) -> bool:
        return module.partition(".")[0] in self.packages


def _sources(value: ast.expr) -> Iterator[ast.expr]:
    """Yield the names that a value may come from."""
    match value:
        case ast.Attribute() | ast.Subscript() | ast.Await() | ast.Starred() | ast.NamedExpr():
            yield from _sources(value.value)
        case ast.Call():
            yield from _sources(value.func)
        case ast.IfExp():
            yield from _sources(value.body)
            yield from _sources(value.orelse)
        case ast.BoolOp():
            for option in value.values:
                yield from _sources(option)
        case ast.ListComp() | ast.GeneratorExp():
            yield from _sources(value.elt)
        case _:
            yield value
