"""Output of commands: JSON, or text without control sequences.

A model's text may contain control sequences that rewrite the screen, the window title or the
clipboard. They are removed from everything written to a terminal.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from datetime import datetime
from shutil import get_terminal_size
from typing import Any, TextIO

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.status import Status

from sennit.cli.word_wrap import wrap_text
from sennit.clock import from_datetime, to_iso
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    InstructionContent,
)
from sennit.messages.media import label, part_of_block, part_of_record
from sennit.messages.message import Message
from sennit.messages.render import block_text
from sennit.messages.unset import Unset

# The last two ranges are bidirectional controls, which reorder the text after them.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# Invisible characters too: a person who approves a call must see them.
_INVISIBLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    r"\U000e0000-\U000e007f]"
)
LINE_WIDTH = 72
_USUAL_WIDTH = 100  # of a terminal


def emit(as_json: bool, value: Any, lines: Iterable[str], empty: str = "") -> None:
    """Print a value as a JSON document, or lines of text; `empty` is a note if there are none."""
    if as_json:
        typer.echo(json.dumps(value, ensure_ascii=False, indent=2, default=_to_plain))
        return
    for line in lines:
        typer.echo(wrapped(clean(line), sys.stdout))
        empty = ""
    if empty:
        note(empty)


def note(text: str) -> None:
    """Print a line that is not part of the result, to stderr."""
    typer.echo(wrapped(clean(text), sys.stderr), err=True)


def output_width() -> int:
    """Return the width of the terminal, or that of a usual one if stdout is none."""
    return get_terminal_size((_USUAL_WIDTH, 0)).columns if sys.stdout.isatty() else _USUAL_WIDTH


def wrapped(text: str, stream: TextIO) -> str:
    """Return the text wrapped between words if the stream is a terminal, else unchanged."""
    return wrap_text(text, get_terminal_size().columns) if stream.isatty() else text


def _to_plain(value: Any) -> str:
    return to_iso(from_datetime(value)) if isinstance(value, datetime) else str(value)


def working(text: str) -> Status:
    """Return a spinner that is shown while its block runs, if stderr is a terminal."""
    return Console(stderr=True).status(text)


@contextmanager
def progress_bar(
    what: str, *columns: ProgressColumn
) -> Generator[Callable[[int, int | None], None]]:
    """Show a progress bar while its block runs, if stderr is a terminal."""
    console = Console(stderr=True)
    columns = columns or (MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    task = bar.add_task(what, total=None)

    def update(done: int, total: int | None = None) -> None:
        bar.update(task, completed=done, total=total)

    with bar:
        yield update


def clean(text: str) -> str:
    """Return the text without control characters; newlines and tabs stay."""
    return _CONTROL.sub("", text)


def one_line(text: str, width: int = LINE_WIDTH) -> str:
    """Return the text in one line, truncated to `width`."""
    flat = " ".join(clean(text[: 4 * width]).split())
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"


def message_text(message: Message) -> str:
    """Return the text of a message; a tool call or result takes one line."""
    if (about := message.about) is not None:
        return f"[{clean(about)}]"
    match message.content:
        case ActionRequestContent() as call:
            return call_card(call)
        case ActionResponseContent() as result:
            return result_card(result)
        case InstructionContent(instruction=str(text)) as instruction if _is_plain(instruction):
            return clean(text)
        case content:
            rendered = content.rendered
            return clean(rendered if isinstance(rendered, str) else _blocks_text(rendered))


def call_card(call: ActionRequestContent, width: int = LINE_WIDTH) -> str:
    """Return a tool call in one line, with an arrow."""
    return f"→ {call_text(call, width - 2)}"


def call_text(call: ActionRequestContent, width: int = LINE_WIDTH) -> str:
    """Return a tool call in one line."""
    return one_line(full_call_text(call), width)


def full_call_text(call: ActionRequestContent) -> str:
    """Return a tool call with all its arguments, for a person who approves it.

    Invisible characters are written as JSON escapes.
    """
    arguments = {} if call.arguments is Unset else call.arguments
    rendered = ", ".join(f"{name}={_to_json(value)}" for name, value in arguments.items())
    return _INVISIBLE.sub(_escape, f"{call.function or '?'}({rendered})")


def result_card(result: ActionResponseContent, width: int = LINE_WIDTH) -> str:
    """Return a tool result in one line."""
    if not result.success:
        return one_line(f"✗ {result.error}", width)
    value = None if result.result is Unset else result.result
    files = [label(part_of_record(file)) for file in result.files or ()]
    shown = [] if value is None and files else [_to_json(value)]
    return one_line(f"← {' '.join([*shown, *files])}", width)


def pluralize(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun in singular or plural, by default with an "s"."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def _is_plain(instruction: InstructionContent) -> bool:
    return not (
        instruction.context
        or instruction.has_media
        or instruction.tool_schemas
        or instruction.response_model
    )


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _blocks_text(blocks: list[dict[str, Any]]) -> str:
    return "\n".join(map(_block_text, blocks))


def _block_text(block: dict[str, Any]) -> str:
    part = part_of_block(block)
    return block_text(block) if part is None else label(part)
