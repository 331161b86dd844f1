"""Optional packages have one door each."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import sennit

SOURCE = Path(sennit.__file__).parent


@cache
def imports() -> dict[str, set[str]]:
    """The packages that each module of ours imports."""
    return {
        module.relative_to(SOURCE).as_posix(): set(imported(module))
        for module in SOURCE.rglob("*.py")
    }


def imported(module: Path) -> Iterator[str]:
    """The packages a module imports, wherever in it, those by name included."""
    for node in ast.walk(ast.parse(module.read_text())):
        match node:
            case ast.Import(names=names):
                yield from (name.name.partition(".")[0] for name in names)
            case ast.ImportFrom(module=str(name), level=0):
                yield name.partition(".")[0]
            case ast.Call(
                func=ast.Name(id="import_module"), args=[ast.Constant(value=str(name)), *_]
            ):
                yield name.partition(".")[0]
            case _:
                pass


@pytest.mark.parametrize(
    ("package", "doors"),
    [
        # Its model layer, which we use; and the framework, which we serve.
        (
            "pydantic_ai",
            [
                "adapters/pydantic_ai/__init__.py",
                "services/models/providers/client.py",
                "services/models/providers/files.py",
                "services/models/providers/translate.py",
            ],
        ),
        ("genai_prices", ["services/models/providers/translate.py"]),
        # Its client, whose tools we use; and its server, whose tools are ours.
        *(
            (
                package,
                [
                    *attachments,
                    "server/mcp/server.py",
                    "server/mcp/tasks.py",
                    "services/tools/mcp_call.py",
                    "services/tools/mcp_connection.py",
                ],
            )
            for package, attachments in (("mcp", []), ("mcp_types", ["server/mcp/attachments.py"]))
        ),
        ("xllamacpp", ["services/local/engine.py"]),
        ("agents", ["adapters/openai_agents.py"]),
        ("langchain_core", ["adapters/langchain.py"]),
        ("langgraph", ["adapters/langgraph/__init__.py"]),
    ],
)
def test_a_package_of_an_extra_is_imported_in_one_module(package: str, doors: list[str]) -> None:
    assert sorted(module for module, names in imports().items() if package in names) == doors
