"""Terminal output of a run: the answer as it streams, and one line for everything else.

Text is written as it arrives and never drawn over, so nothing flickers, whatever was said can be
scrolled back to, and a copy of the screen is a transcript. Markdown stays as the model wrote it:
half a table or half a code block cannot be drawn without drawing it again. Lines are broken between
words, at the width that the terminal has as they are written.
"""

from __future__ import annotations

from uuid import UUID

from rich.console import Console
from rich.status import Status
from rich.text import Text

from sennit.cli.chat.word_wrap import WordWrap, wrapped
from sennit.cli.text import call_card, clean, result_card, said
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
    WarningIssued,
)
from sennit.turns.result import Notice, Return


class ChatOutput:
    """Writes to a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._line_open = False
        self._wrap = WordWrap()
        self._style = ""
        self._shown: set[UUID] = set()

    def line(self, text: str, style: str = "") -> None:
        """A line of its own; what a model or a store says in it is made safe."""
        self._close_line()
        lines = wrapped(clean(text), self._console.width)
        self._console.print(Text(lines, style=style), soft_wrap=True)

    def note(self, text: str) -> None:
        """Something beside the conversation."""
        self.line(text, "dim")

    def error(self, text: str) -> None:
        """Print an error in one line."""
        self.line(" ".join(text.split()), "red")

    def working(self, text: str) -> Status:
        """Something that moves while something else is done, and is gone afterwards."""
        self._close_line()
        return self._console.status(text)

    def event(self, event: AnyEvent) -> None:
        """Show what happens in a run."""
        match event:
            case TextAdded():
                self._add(event.message_id, event.text, "")
            case ReasoningAdded():
                self._add(event.message_id, event.text, "dim italic")
            case DraftDropped():
                self.note("(the text above was discarded)")
            case MessageCompleted() if event.message.id not in self._shown:
                self._whole(event.message)
            case ToolCalled() | ToolCompleted():
                self._card(event.message)
            case HistoryReplaced():
                self.note(f"(a summary has replaced the {event.count} messages above)")
            case WarningIssued():
                self.note(event.notice.text)
            case RunEnded():
                self._end(event.result)
            case _:
                pass

    def _add(self, message: UUID, text: str, style: str) -> None:
        if style != self._style or message not in self._shown:
            self._close_line()
        self._style = style
        self._shown.add(message)
        safe = clean(text)
        self._write(self._wrap.add(safe, self._console.width))
        self._line_open = not safe.endswith("\n")

    def _whole(self, message: Message) -> None:
        content = message.content
        if isinstance(content, AssistantResponseContent) and not content.empty:
            self._add(message.id, said(message), "")

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
        if result.stop_reason in ("cancelled", "suspended"):  # who waits is asked next
            return
        for notice in result.messages:
            self._notice(notice)

    def _notice(self, notice: Notice) -> None:
        if notice.severity == "error":
            self.error(notice.text)
        elif notice.severity == "info":
            self.note(notice.text)

    def _close_line(self) -> None:
        if self._line_open:
            self._write(f"{self._wrap.end()}\n")
            self._line_open = False

    def _write(self, text: str) -> None:
        self._console.out(text, style=self._style or None, end="", highlight=False)
        self._console.file.flush()
