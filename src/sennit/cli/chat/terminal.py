"""`sennit chat` on a terminal: the line editor and the prompt loop.

The terminal stays in raw mode from start to end. So Ctrl-C is a key and not a signal, which would
also reach the parent process (make, a script); and keys typed during an answer are not echoed into
it but buffered for the next prompt.
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
from sennit.cli.chat.interrupted import tool_call, was_started_before
from sennit.cli.chat.output import ChatOutput
from sennit.cli.chat.slash_commands import (
    COMMANDS,
    AskModel,
    Commit,
    Connect,
    Decide,
    Discard,
    Prompt,
    Quit,
    Resume,
    handle_line,
    show_model,
)
from sennit.cli.text import LINE_WIDTH, call_text, clean, full_call_text
from sennit.errors import SennitError
from sennit.paths import create_private, make_private_folder
from sennit.turns.events import AnyEvent

_MISSING_TOOL_HINT = (
    "This chat was started without its tool: start it with the same --tool or --mcp to decide, or "
    "send another message to abandon the call."
)
_REPEAT_WARNING = "It may have taken effect; if you approve it now, it may happen twice."


async def run(chat: ChatSession, output: ChatOutput) -> int:
    """Run the prompt loop until the user quits; return the exit code."""
    editor, commits = LineEditor(chat), BackgroundCommits(chat, output)
    with get_app_session().input.raw_mode(), _exit_on_signals() as status:
        fill = await decide_open_questions(chat, output, editor)  # open since the last start
        asyncio.get_running_loop().call_soon(chat.connect)  # while the user types
        while (line := await editor.next(output, fill)) is not None:
            commits.report()
            match handle_line(chat, output, line):
                case Prompt(fill):
                    continue
                case Connect():
                    with output.working():
                        connected = await _is_connected(chat)
                    if connected:
                        show_model(chat, output, chat.connect().result())
                case Commit():
                    await run_commit(commits)
                case AskModel(say):
                    if not await answer(chat, output, editor, partial(chat.answer, say=say)):
                        output.note("(stopped; your message was not sent)")
                        fill = say or ""
                        continue
                case Resume():
                    await answer(chat, output, editor, chat.resume)
                case Discard():
                    fill = await discard(chat, output)
                    continue
                case Decide():
                    fill = await decide_open_questions(chat, output, editor)
                    continue
                case Quit():
                    break
            fill = ""
    await commits.finish()
    return status.code


async def answer(
    chat: ChatSession,
    output: ChatOutput,
    editor: LineEditor,
    run: Callable[[Callable[[AnyEvent], object]], Awaitable[object]],
) -> bool:
    """Show an answer as it streams; Ctrl-C stops it. An error is printed, and the chat goes on.

    Return False if it was stopped before the model was connected, and nothing was sent.
    """
    with _reporting_errors(output), output.working():
        if not await _is_connected(chat):
            return False
        with _interruptible(chat.cancel):
            await run(output.event)
    await resolve_approvals(chat, output, editor)
    return True


async def _is_connected(chat: ChatSession) -> bool:
    """Wait until the model is connected; return False at Ctrl-C."""
    connecting, stop = chat.connect(), asyncio.Event()
    if connecting.done():
        return True
    with _interruptible(stop.set):
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait([connecting, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
    return not stop.is_set()


async def run_commit(commits: BackgroundCommits) -> None:
    """Commit and show the result; Ctrl-C moves the commit to the background."""
    enough = asyncio.Event()
    with _interruptible(enough.set):
        await commits.run(enough)


async def decide_open_questions(chat: ChatSession, output: ChatOutput, editor: LineEditor) -> str:
    """Ask about pending tool calls and about an interrupted answer; return the next input."""
    await resolve_approvals(chat, output, editor)
    interrupted = chat.interrupted()
    if interrupted is None or not interrupted.choices:
        return ""
    for choice, effect in interrupted.choices:
        output.note(f"  {choice:<7}  {effect}")
    match await editor.choose(tuple(choice for choice, _ in interrupted.choices)):
        case "resume":
            await answer(chat, output, editor, chat.resume)
        case "discard":
            return await discard(chat, output)
        case _ if editor.queued is None:
            output.note("(left as it is; /resume and /discard decide later)")
        case _:
            pass
    return ""


async def discard(chat: ChatSession, output: ChatOutput) -> str:
    """Discard an interrupted answer; return the user's message, for the next input."""
    with _reporting_errors(output):
        text = await chat.discard()
        output.note("Discarded. Your message is in the input line again.")
        return text
    return ""


async def resolve_approvals(chat: ChatSession, output: ChatOutput, lines: LineEditor) -> None:
    """Ask about pending tool calls and resume the answer, until no call is pending."""
    with _reporting_errors(output):
        while waiting := chat.pending_approvals():
            for call in waiting:
                text = call_text(tool_call(call))
                if not chat.has_tool_of(call):
                    output.note(f"{text} waits for your approval. {_MISSING_TOOL_HINT}")
                    return
                if was_started_before(chat.branch, call):
                    output.note(f"{text} was started before. {_REPEAT_WARNING}")
                decision = await lines.decide(output, full_call_text(tool_call(call)))
                if decision is None:
                    output.note("(the call stays pending; /approve asks you again)")
                    return
                await chat.decide(call, decision.reason)
            with output.working():
                if not await _is_connected(chat):
                    return
                with _interruptible(chat.cancel):
                    await chat.resume(output.event)


@contextmanager
def _reporting_errors(output: ChatOutput) -> Generator[None]:
    try:
        yield
    except SennitError as error:
        output.error(str(error))
    except Exception as error:  # from a provider or a user's tool: must not end the chat
        output.error(f"{type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True)
class ApprovalDecision:
    """A person's decision about a tool call."""

    reason: str | None
    """The reason for a refusal, perhaps empty; None if the call is approved."""


def parse_decision(line: str) -> ApprovalDecision | None:
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
    """A line editor with history and completion."""

    def __init__(self, chat: ChatSession) -> None:
        self._chat = chat
        self._interrupted = False
        self.queued: str | None = None
        """A message or command typed instead of an answer to `choose`; the next line."""
        self._asking: PromptSession[str] = PromptSession(
            history=InMemoryHistory(), key_bindings=_key_bindings()
        )
        self._session: PromptSession[str] = PromptSession(
            self._prompt,
            completer=_CommandCompleter(chat),
            complete_style=CompleteStyle.READLINE_LIKE,
            complete_while_typing=False,
            history=_input_history(),
            key_bindings=_key_bindings(),
            multiline=True,
            prompt_continuation="  ",
        )

    async def next(self, output: ChatOutput, fill: str = "") -> str | None:
        """Return the next line; None at Ctrl-D, or at Ctrl-C twice on an empty line."""
        if (queued := self.queued) is not None:
            self.queued = None
            return queued
        while True:
            try:
                line = _replace_invalid_utf8(await self._session.prompt_async(default=fill))
            except EOFError:
                return None
            except KeyboardInterrupt:
                fill, cleared = "", bool(self._session.default_buffer.text)
                if self._interrupted and not cleared:
                    return None
                self._interrupted = not cleared
                if not cleared:
                    output.note("(Ctrl-C again, or Ctrl-D, quits)")
            else:
                self._interrupted = False
                return line

    async def decide(self, output: ChatOutput, call: str) -> ApprovalDecision | None:
        """Ask the user about a tool call; None leaves it undecided.

        Keys typed before the question do not answer it, but are kept for the next prompt. A long
        call is printed above the prompt: an editor taller than the terminal shows nothing.
        """
        question, choice, decision = f"Allow {call}? ", "y/n", None
        if len(question) > LINE_WIDTH:
            output.line(question.rstrip())
            question = ""
        with _ignoring_typeahead(), suppress(EOFError, KeyboardInterrupt):
            while decision is None:
                decision = parse_decision(await self._ask(question, choice))
                choice = "y, or n and a reason; Ctrl-C decides later"
        return decision

    async def choose(self, choices: tuple[str, ...]) -> str | None:
        """Ask the user to choose a word, by itself or its first letter; None chooses nothing.

        Another single word is asked about again, a message or a command is queued.
        """
        by_answer = {answer: choice for choice in choices for answer in (choice[0], choice)}
        letters = "/".join(dict.fromkeys(choice[0] for choice in choices))
        words = ", ".join(dict.fromkeys(choices[:-1]))
        question = f"{words.capitalize()} or {choices[-1]}? "
        with _ignoring_typeahead(), suppress(EOFError, KeyboardInterrupt):
            while line := (await self._ask(question, letters)).strip():
                if chosen := by_answer.get(line.removeprefix("/").lower()):
                    return chosen
                if " " in line or line.startswith("/"):
                    self.queued = line
                    return None
        return None

    async def _ask(self, question: str, choice: str) -> str:
        prompt = FormattedText([("", question), ("bold", f"{choice} › ")])
        return _replace_invalid_utf8(await self._asking.prompt_async(prompt))

    def _prompt(self) -> FormattedText:
        name = self._chat.branch.name
        prefix = [] if name == "main" else [("fg:ansicyan", clean(name)), ("", " ")]
        return FormattedText([*prefix, ("bold", "› ")])


@contextmanager
def _ignoring_typeahead() -> Generator[None]:
    """Keep the keys typed before a question for the next prompt."""
    source = get_app_session().input
    typeahead = get_typeahead(source)
    try:
        yield
    finally:
        store_typeahead(source, typeahead)


class _CommandCompleter(Completer):
    """Completion of slash commands, and of the branch after /switch."""

    def __init__(self, chat: ChatSession) -> None:
        self._chat = chat

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Yield completions of the text before the cursor."""
        del complete_event
        typed = document.text_before_cursor
        command, space, rest = typed.partition(" ")
        if not space:
            candidates = [name for name in COMMANDS if typed.startswith("/")]
            typed = command
        elif command == "/switch":
            candidates, typed = [branch.name for branch in self._chat.session.branches], rest
        elif command == "/open":
            sessions = self._chat.client.sessions(contains=rest or None)
            candidates, typed = [session.key for session in sessions if session.key], rest
        else:
            return
        for name in candidates:
            if name.startswith(typed):
                yield Completion(name, start_position=-len(typed))


def _replace_invalid_utf8(line: str) -> str:
    """Replace bytes that are not valid UTF-8, as the pipe does."""
    return line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _key_bindings() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add(Keys.Vt100MouseEvent)
    def _ignore(_event: KeyPressEvent) -> None:
        """Ignore mouse events: pasted colours (ESC[31m) break the default binding."""

    del _send, _new_line, _ignore  # the bindings hold them
    return keys


class _FileHistory(FileHistory):
    """An input history in a file that ignores I/O errors."""

    def load_history_strings(self) -> Iterable[str]:
        """Return the lines of the file, the newest first; none if it cannot be read."""
        with suppress(OSError):
            return super().load_history_strings()
        return ()

    def store_string(self, string: str) -> None:
        """Append a line; ignore a full disk or missing permissions."""
        with suppress(OSError):
            super().store_string(string)


def _input_history() -> History:
    """Return a history file readable only by its owner, or one in memory if that fails."""
    file = settings.data_folder() / "chat_history"
    try:
        make_private_folder(file.parent)
        create_private(file)
    except OSError:
        return InMemoryHistory()
    return _FileHistory(str(file))


@contextmanager
def _interruptible(interrupt: Callable[[], None]) -> Generator[None]:
    """Call `interrupt` at Ctrl-C during an answer; buffer other keys for the next prompt."""
    source = get_app_session().input
    pending_keys: list[KeyPress] = []

    def buffer_keys(keys: list[KeyPress]) -> bool:
        """Buffer keys; return whether one of them was Ctrl-C."""
        pending_keys.extend(key for key in keys if key.key != Keys.ControlC)
        return any(key.key == Keys.ControlC for key in keys)

    def read() -> None:
        if buffer_keys(source.read_keys()) or source.closed:
            interrupt()

    if buffer_keys(get_typeahead(source)):  # keys that the prompt read past Enter
        asyncio.get_running_loop().call_soon(interrupt)  # after the answer has started
    with source.attach(read), _on_signal(signal.SIGINT, interrupt):
        yield
    store_typeahead(source, pending_keys)


@dataclass(slots=True)
class _ExitStatus:
    """The exit code of a chat: 0, or 128 plus the number of the signal that ended it."""

    code: int = 0


@contextmanager
def _exit_on_signals() -> Generator[_ExitStatus]:
    """Turn SIGTERM and SIGHUP into a clean exit that keeps the answer and resets the terminal."""
    task, status = asyncio.current_task(), _ExitStatus()
    assert task is not None

    def end(number: int) -> None:
        status.code = 128 + number
        task.cancel()

    term, hangup = signal.SIGTERM, _hangup()
    with _on_signal(term, partial(end, term)), _on_signal(hangup, partial(end, hangup)):
        try:
            yield status
        except asyncio.CancelledError:
            if not status.code:
                raise


def _hangup() -> int:
    return getattr(signal, "SIGHUP", signal.SIGTERM)


@contextmanager
def _on_signal(number: int, act: Callable[[], object]) -> Generator[None]:
    loop = asyncio.get_running_loop()
    # Windows event loops have no signal handlers, and only the main thread may set them.
    unable = (NotImplementedError, RuntimeError, ValueError)
    with suppress(*unable):
        loop.add_signal_handler(number, act)
    try:
        yield
    finally:
        with suppress(*unable):
            loop.remove_signal_handler(number)
