"""Terminal output of a run: the answer as it streams, and one line for everything else.

Text is written as it arrives and never redrawn, so nothing flickers, the scrollback is complete and
a copy of the screen is a transcript. Markdown is rendered, and lines are wrapped between words at
the current width of the terminal. While the model or a tool works and no line is open, a spinner
says so; it is the only thing that disappears again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from itertools import groupby
from typing import TextIO, cast
from uuid import UUID

from rich.console import Console
from rich.status import Status
from rich.style import Style
from rich.text import Text

from sennit.cli.chat.clipboard import copy
from sennit.cli.chat.markdown import MarkdownStream
from sennit.cli.text import call_card, clean, message_text, result_card
from sennit.cli.word_wrap import Pieces, WordWrap, joined, wrap_text
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
)
from sennit.messages.message import Message
from sennit.turns.events import (
    AnyEvent,
    DraftDropped,
    HistoryReplaced,
    MessageCompleted,
    ReasoningAdded,
    RunEnded,
    TextAdded,
    ToolCalled,
    ToolCompleted,
    ToolStarted,
    TurnStarted,
    WarningIssued,
)
from sennit.turns.result import Notice, Return

_REASONING = Style(dim=True, italic=True)
_PLAIN = Style()
_TAB = "    "  # a terminal's own tabs would break the wrapping
_SPINNER_DELAY = 0.3  # seconds without output after which the spinner appears


class ChatOutput:
    """A writer of chat events and notes to a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._line_open = False
        self._markdown = MarkdownStream(console)
        self._wrap = WordWrap(_PLAIN)  # for text that is not Markdown
        self._reasoning = False
        self._shown: set[UUID] = set()
        self._spinner: Status | None = None
        self._spinner_timer: asyncio.TimerHandle | None = None
        self._working = ""  # the text of the spinner; empty if nothing is waited for

    def line(self, text: str, style: str = "") -> None:
        """Print a separate line, without control characters."""
        self._hide_spinner()
        self._close_line()
        lines = wrap_text(clean(text), self._console.width)
        self._console.print(Text(lines, style=style), soft_wrap=True)

    def note(self, text: str) -> None:
        """Print a dimmed line that is not part of the conversation."""
        self.line(text, "dim")

    def error(self, text: str) -> None:
        """Print an error in one line."""
        self.line(" ".join(text.split()), "red")

    def answer(self, text: str, label: str = "") -> None:
        """Print a complete answer of the model, after a label."""
        self._hide_spinner()
        self._close_line()
        if label:
            self._write(self._markdown.label(label))
        self._write_answer(clean(text))
        self._close_line()

    @contextmanager
    def working(self) -> Generator[None]:
        """Show a spinner in this block whenever nothing else is shown for a moment."""
        self._working = "Thinking…"
        self._plan_spinner()
        try:
            yield
        finally:
            self._working = ""
            self._hide_spinner()

    def _plan_spinner(self) -> None:
        self._hide_spinner()
        if self._working and not self._line_open and self._console.is_terminal:
            loop = asyncio.get_running_loop()
            self._spinner_timer = loop.call_later(_SPINNER_DELAY, self._show_spinner)

    def _show_spinner(self) -> None:
        self._spinner = self._console.status(f"[dim]{self._working}[/dim]")
        self._spinner.start()

    def _hide_spinner(self) -> None:
        if self._spinner_timer is not None:
            self._spinner_timer.cancel()
            self._spinner_timer = None
        if self._spinner is not None:
            self._spinner.stop()
            self._spinner = None

    def copy(self, text: str) -> bool:
        """Copy a text to the clipboard; return False if only the terminal was asked to."""
        return copy(text, cast("TextIO", self._console.file))

    def status(self, text: str) -> Status:
        """Return a spinner that is shown while its block runs."""
        self._close_line()
        return self._console.status(text)

    def event(self, event: AnyEvent) -> None:
        """Show an event of a run."""
        self._hide_spinner()
        self._show(event)
        self._plan_spinner()

    def _show(self, event: AnyEvent) -> None:
        match event:
            case TextAdded():
                self._add(event.message_id, event.text)
            case ReasoningAdded():
                self._add(event.message_id, event.text, reasoning=True)
            case DraftDropped():
                self.note("(the text above was discarded)")
            case MessageCompleted() if event.message.id not in self._shown:
                self._add_message(event.message)
            case ToolCalled() | ToolCompleted():
                self._card(event.message)
            case ToolStarted() if self._working:
                self._working = "Running…"
            case TurnStarted() if self._working:
                self._working = "Thinking…"
            case HistoryReplaced():
                self.note(f"(a summary has replaced the {event.count} messages above)")
            case WarningIssued():
                self.note(event.notice.text)
            case RunEnded():
                self._end(event.result)
            case _:
                pass

    def _add(self, message: UUID, text: str, *, reasoning: bool = False) -> None:
        if reasoning != self._reasoning or message not in self._shown:
            self._close_line()
        self._reasoning = reasoning
        self._shown.add(message)
        if reasoning:
            self._write(self._wrap.add(clean(text), self._console.width, _REASONING))
        else:
            self._write_answer(clean(text))

    def _write_answer(self, text: str) -> None:
        text = text.replace("\t", _TAB)
        if self._console.is_dumb_terminal:  # without styles the markup says more
            self._write(self._wrap.add(text, self._console.width, _PLAIN))
        else:
            self._write(self._markdown.add(text))

    def _add_message(self, message: Message) -> None:
        content = message.content
        if isinstance(content, AssistantResponseContent) and not content.empty:
            self._add(message.id, message_text(message))

    def _card(self, message: Message) -> None:
        width = max(self._console.width - 1, 20)
        match message.content:
            case ActionRequestContent() as call:
                self.line(call_card(call, width), "cyan")
            case ActionResponseContent() as result:
                self.line(result_card(result, width), "cyan" if result.success else "red")
            case _:
                pass

    def _end(self, result: Return) -> None:
        self._close_line()
        self._shown.clear()
        if result.stop_reason == "cancelled":
            self.note("(stopped; the text so far is kept)")
        if result.stop_reason in ("cancelled", "suspended"):  # pending approvals are asked next
            return
        for notice in result.notices:
            self._notice(notice)

    def _notice(self, notice: Notice) -> None:
        if notice.severity == "error":
            self.error(notice.text)
        elif notice.severity == "info":
            self.note(notice.text)

    def _close_line(self) -> None:
        self._write([*self._markdown.end(), *self._wrap.end()])
        if self._line_open:
            self._write([("\n", _PLAIN)])

    def _write(self, pieces: Pieces[Style]) -> None:
        for style, run in groupby(pieces, _style_of):
            text = joined(list(run))
            self._console.out(text, style=style or None, end="", highlight=False)
            self._line_open = not text.endswith("\n") if text else self._line_open
        self._console.file.flush()


def _style_of(piece: tuple[str, Style]) -> Style:
    return piece[1]
