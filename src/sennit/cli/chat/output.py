"""Terminal output of a run: the answer as it streams, and one line for everything else.

Text is written as it arrives and never redrawn, so nothing flickers, the scrollback is complete and
a copy of the screen is a transcript. Markdown is not rendered: a partial table or code block would
have to be redrawn. Lines are wrapped between words, at the current width of the terminal.
"""

from __future__ import annotations

from uuid import UUID

from rich.console import Console
from rich.status import Status
from rich.text import Text

from sennit.cli.text import call_card, clean, message_text, result_card
from sennit.cli.word_wrap import WordWrap, wrap_text
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
    """A writer of chat events and notes to a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._line_open = False
        self._wrap = WordWrap()
        self._style = ""
        self._shown: set[UUID] = set()

    def line(self, text: str, style: str = "") -> None:
        """Print a separate line, without control characters."""
        self._close_line()
        lines = wrap_text(clean(text), self._console.width)
        self._console.print(Text(lines, style=style), soft_wrap=True)

    def note(self, text: str) -> None:
        """Print a dimmed line that is not part of the conversation."""
        self.line(text, "dim")

    def error(self, text: str) -> None:
        """Print an error in one line."""
        self.line(" ".join(text.split()), "red")

    def status(self, text: str) -> Status:
        """Return a spinner that is shown while its block runs."""
        self._close_line()
        return self._console.status(text)

    def event(self, event: AnyEvent) -> None:
        """Show an event of a run."""
        match event:
            case TextAdded():
                self._add(event.message_id, event.text, "")
            case ReasoningAdded():
                self._add(event.message_id, event.text, "dim italic")
            case DraftDropped():
                self.note("(the text above was discarded)")
            case MessageCompleted() if event.message.id not in self._shown:
                self._add_message(event.message)
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

    def _add_message(self, message: Message) -> None:
        content = message.content
        if isinstance(content, AssistantResponseContent) and not content.empty:
            self._add(message.id, message_text(message), "")

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
        if self._line_open:
            self._write(f"{self._wrap.end()}\n")
            self._line_open = False

    def _write(self, text: str) -> None:
        self._console.out(text, style=self._style or None, end="", highlight=False)
        self._console.file.flush()
