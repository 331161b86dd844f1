"""`sennit chat` on a terminal: the line editor and the prompt loop.

The terminal stays in raw mode from start to end. So Ctrl-C is a key and not a signal, which would
also hit whoever started us (make, a script); and what is typed while the model answers does not get
into its words but waits for the next prompt.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app_session
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.shortcuts import CompleteStyle

from sennit import settings
from sennit.cli.chat.background_commits import BackgroundCommits
from sennit.cli.chat.conversation import ChatSession
from sennit.cli.chat.interrupted import called
from sennit.cli.chat.output import ChatOutput
from sennit.cli.chat.slash_commands import (
    COMMANDS,
    AskModel,
    Decide,
    Prompt,
    Quit,
    Remember,
    Resume,
    take,
)
from sennit.cli.text import LINE, call_in_full, call_text, clean
from sennit.errors import SennitError
from sennit.paths import create_private, make_private_folder
from sennit.turns.events import AnyEvent

_NO_TOOL = (
    "This chat was started without its tool: start it with the same --tool or --mcp to decide, or "
    "send another message to abandon the call."
)
_TWICE = "It may have taken effect; if you approve it now, it may happen twice."


async def run(talk: ChatSession, screen: ChatOutput) -> int:
    """Talk until the user has had enough; gives the exit code."""
    lines, commits = LineEditor(talk), BackgroundCommits(talk, screen)
    fill = ""
    with get_app_session().input.raw_mode(), _ended_by_signals() as told:
        await settle(talk, screen, lines)  # what waited when one stopped
        while (line := await lines.next(screen, fill)) is not None:
            commits.report()
            match take(talk, screen, line):
                case Prompt(fill):
                    continue
                case Remember():
                    await remember(commits)
                case AskModel(say):
                    await answer(talk, screen, lines, partial(talk.answer, say=say))
                case Resume():
                    await answer(talk, screen, lines, talk.go_on)
                case Decide():
                    await settle(talk, screen, lines)
                case Quit():
                    break
            fill = ""
    await commits.finish()
    return told.code


async def answer(
    talk: ChatSession,
    screen: ChatOutput,
    lines: LineEditor,
    run: Callable[[Callable[[AnyEvent], object]], Awaitable[object]],
) -> None:
    """Show an answer; Ctrl-C stops it. Whatever goes wrong is one line, and the talk goes on."""
    with _outlived(screen), _listening(talk.cancel):
        await run(screen.event)
    await settle(talk, screen, lines)


async def remember(commits: BackgroundCommits) -> None:
    """Commit, and show what came of it; Ctrl-C lets it go on in the background."""
    enough = asyncio.Event()
    with _listening(enough.set):
        await commits.make(enough)


async def settle(talk: ChatSession, screen: ChatOutput, lines: LineEditor) -> None:
    """Ask about the tool calls that wait, and let the answer go on, until none waits any more."""
    with _outlived(screen):
        while waiting := talk.pending_approvals():
            for call in waiting:
                text = call_text(called(call))
                if not talk.has_tool_of(call):
                    screen.note(f"{text} waits for your approval. {_NO_TOOL}")
                    return
                if talk.started_before(call):
                    screen.note(f"{text} was started before. {_TWICE}")
                decision = await lines.decide(screen, call_in_full(called(call)))
                if decision is None:
                    screen.note("(the call stays pending; /approve asks you again)")
                    return
                await talk.decide(call, decision.reason)
            with _listening(talk.cancel):
                await talk.go_on(screen.event)


@contextmanager
def _outlived(screen: ChatOutput) -> Generator[None]:
    try:
        yield
    except SennitError as error:
        screen.error(str(error))
    except Exception as error:  # of a model or a tool that is not ours: the talk outlives it
        screen.error(f"{type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True)
class ApprovalDecision:
    """A person's decision about a tool call."""

    reason: str | None
    """Why not; None if it is allowed."""


def decision_in(line: str) -> ApprovalDecision | None:
    """Parse a decision: y, or n with an optional reason; None if the line is neither."""
    word, _, reason = line.strip().partition(" ")
    match word.lower().rstrip(",.:;"):
        case "y" | "yes" if not reason:
            return ApprovalDecision(None)
        case "n" | "no":
            return ApprovalDecision(reason.strip())
        case _:
            return None


class LineEditor:
    """Reads what the user types."""

    def __init__(self, talk: ChatSession) -> None:
        self._talk = talk
        self._interrupted = False
        self._asking: PromptSession[str] = PromptSession(
            history=InMemoryHistory(), key_bindings=_keys()
        )
        self._session: PromptSession[str] = PromptSession(
            self._prompt,
            completer=_Commands(talk),
            complete_style=CompleteStyle.READLINE_LIKE,
            complete_while_typing=False,
            history=_history(),
            key_bindings=_keys(),
            multiline=True,
            prompt_continuation="  ",
        )

    async def next(self, screen: ChatOutput, fill: str = "") -> str | None:
        """The next line; None for the end: Ctrl-D, or Ctrl-C twice on an empty line."""
        while True:
            try:
                line = _readable(await self._session.prompt_async(default=fill))
            except EOFError:
                return None
            except KeyboardInterrupt:
                fill, cleared = "", bool(self._session.default_buffer.text)
                if self._interrupted and not cleared:
                    return None
                self._interrupted = not cleared
                if not cleared:
                    screen.note("(Ctrl-C again, or Ctrl-D, quits)")
            else:
                self._interrupted = False
                return line

    async def decide(self, screen: ChatOutput, call: str) -> ApprovalDecision | None:
        """Ask the user about a tool call; None leaves it undecided.

        What was typed before the question is no answer to it, and waits for the next line. A long
        call is written above the line: an editor that has more lines than the terminal shows none.
        """
        source = get_app_session().input
        ahead = get_typeahead(source)
        question, choice, decision = f"Allow {call}? ", "y/n", None
        if len(question) > LINE:
            screen.line(question.rstrip())
            question = ""
        try:
            while decision is None:
                asked = [("", question), ("bold", f"{choice} › ")]
                line = _readable(await self._asking.prompt_async(FormattedText(asked)))
                decision = decision_in(line)
                choice = "y, or n and a reason; Ctrl-C decides later"
        except (EOFError, KeyboardInterrupt):
            return None
        finally:
            store_typeahead(source, ahead)
        return decision

    def _prompt(self) -> FormattedText:
        name = self._talk.branch.name
        where = [] if name == "main" else [("fg:ansicyan", clean(name)), ("", " ")]
        return FormattedText([*where, ("bold", "› ")])


class _Commands(Completer):
    """Completes commands, and the branch after /switch."""

    def __init__(self, talk: ChatSession) -> None:
        self._talk = talk

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Yield completions of the text before the cursor."""
        del complete_event
        typed = document.text_before_cursor
        command, space, rest = typed.partition(" ")
        if not space:
            known = [name for name in COMMANDS if typed.startswith("/")]
            typed = command
        elif command == "/switch":
            known, typed = [branch.name for branch in self._talk.session.branches], rest
        else:
            return
        for name in known:
            if name.startswith(typed):
                yield Completion(name, start_position=-len(typed))


def _readable(line: str) -> str:
    """Return a line in which bytes that are no UTF-8 are replaced, as they are in a pipe."""
    return line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add(Keys.Vt100MouseEvent)
    def _ignore(_event: KeyPressEvent) -> None:
        """Drop what looks like a mouse: pasted colours (ESC[31m) break the usual binding."""

    del _send, _new_line, _ignore  # the bindings hold them
    return keys


class _FileHistory(FileHistory):
    """The input history in a file, as far as that can be read and written."""

    def load_history_strings(self) -> Iterable[str]:
        """Return the lines of the file, the newest first; none if it cannot be read."""
        with suppress(OSError):
            return super().load_history_strings()
        return ()

    def store_string(self, string: str) -> None:
        """Append a line, unless the disk is full or the file is somebody else's."""
        with suppress(OSError):
            super().store_string(string)


def _history() -> History:
    """Return the input history, in a file that only its owner can read, where one can be
    written.
    """
    file = settings.data_folder() / "chat_history"
    try:
        make_private_folder(file.parent)
        create_private(file)
    except OSError:
        return InMemoryHistory()
    return _FileHistory(str(file))


@contextmanager
def _listening(interrupt: Callable[[], None]) -> Generator[None]:
    """While the model answers: Ctrl-C interrupts, other keys wait for the next prompt."""
    source = get_app_session().input
    ahead: list[KeyPress] = []

    def take(keys: list[KeyPress]) -> bool:
        """Keep keys for later; tells whether one of them was Ctrl-C."""
        ahead.extend(key for key in keys if key.key != Keys.ControlC)
        return any(key.key == Keys.ControlC for key in keys)

    def read() -> None:
        if take(source.read_keys()) or source.closed:
            interrupt()

    if take(get_typeahead(source)):  # what the prompt has read past Enter
        asyncio.get_running_loop().call_soon(interrupt)  # once there is an answer to be stopped
    with source.attach(read), _on_signal(signal.SIGINT, interrupt):
        yield
    store_typeahead(source, ahead)


@dataclass(slots=True)
class _Told:
    """The exit code of a talk: 0, or that of a program which a signal has told to end."""

    code: int = 0


@contextmanager
def _ended_by_signals() -> Generator[_Told]:
    """Being told to end is ending in good order: the answer is kept, the terminal put back."""
    task, told = asyncio.current_task(), _Told()
    assert task is not None

    def end(number: int) -> None:
        told.code = 128 + number
        task.cancel()

    term, hangup = signal.SIGTERM, _hangup()
    with _on_signal(term, partial(end, term)), _on_signal(hangup, partial(end, hangup)):
        try:
            yield told
        except asyncio.CancelledError:
            if not told.code:
                raise


def _hangup() -> int:
    return getattr(signal, "SIGHUP", signal.SIGTERM)


@contextmanager
def _on_signal(number: int, act: Callable[[], object]) -> Generator[None]:
    loop = asyncio.get_running_loop()
    # Not every system has signals, and only the main thread of a program gets them.
    unable = (NotImplementedError, RuntimeError, ValueError)
    with suppress(*unable):
        loop.add_signal_handler(number, act)
    try:
        yield
    finally:
        with suppress(*unable):
            loop.remove_signal_handler(number)
