"""Generator of docs/cli.md: `make docs`, or `python -m scripts.cli_page`.

A test checks that the page is up to date.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from sennit.cli.app import app
from sennit.cli.help import default_of, name_of, usage_name, value_name

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"
_HEADER = """\
# Command line

Install the `sennit` program with `pip install 'sennit[cli]'`, or run `make chat` in this folder,
which installs it in `.venv/bin`. [Chat](chat.md) describes the chat in detail. Exit codes: 0 for
success, 1 for an error (with a one-line message), 2 for a wrong option, 130 after an interrupt.

Shell completion covers the commands, your sessions and their branches:

```sh
sennit --install-completion     # for the current shell; open a new one afterwards
```

This page is generated from the program by `make docs`.
"""


def page() -> str:
    """Return the whole page."""
    program: Any = typer.main.get_command(app)
    sections = [_HEADER, *_first_steps(program)]
    for name, command in _commands(program, "sennit"):
        sections.append("\n".join(_section(name, command)))
    return "\n".join(sections)


def _commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield all commands, those of a group after the group."""
    for name, command in group.commands.items():
        yield f"{prefix} {name}", command
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix} {name}")


def _first_steps(program: Any) -> Iterator[str]:
    _, steps, *more = _paragraphs(program.help)
    yield f"```sh\n{steps}\n```\n"
    yield from (f"{paragraph}\n" for paragraph in more)


def _paragraphs(text: str) -> list[str]:
    blocks = inspect.cleandoc(text).split("\n\n")
    return [
        block.removeprefix("\b").strip("\n") if block.startswith("\b") else " ".join(block.split())
        for block in blocks
    ]


def _section(name: str, command: Any) -> Iterator[str]:
    yield f"## {name}\n"
    for paragraph in _paragraphs(command.help or ""):
        yield f"{paragraph}\n"
    if hasattr(command, "commands"):
        inside = ", ".join(f"[`{child}`](#{name} {child})" for child in command.commands)
        yield inside.replace(f"#{name} ", f"#{name.replace(' ', '-')}-") + "\n"
        return
    shown = [
        parameter
        for parameter in command.params
        if not parameter.hidden and parameter.name != "help"
    ]
    arguments = " ".join(
        usage_name(parameter) for parameter in shown if parameter.param_type_name == "argument"
    )
    yield f"```text\n{' '.join(filter(None, (name, '[OPTIONS]', arguments)))}\n```\n"
    yield "| | |\n|---|---|"
    yield from (f"| {_name_cell(parameter)} | {_description(parameter)} |" for parameter in shown)
    yield ""


def _name_cell(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return _cell(f"`{name_of(parameter)}`")
    names = " / ".join(f"`{option}`" for option in (*parameter.opts, *parameter.secondary_opts))
    return names if parameter.is_flag else _cell(f"{names} `{value_name(parameter)}`")


def _description(parameter: Any) -> str:
    text = _cell(" ".join((parameter.help or "").split()))
    default = default_of(parameter)
    return text if default is None else f"{text} Default: `{default}`.".strip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
