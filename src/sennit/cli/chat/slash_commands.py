"""Slash commands of `sennit chat` on a terminal.

A command changes the chat and returns the next step as a value: another prompt, perhaps with
prefilled text, an answer of the model, or the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from sennit.cli.chat.conversation import ChatSession
from sennit.cli.chat.interrupted import started_calls
from sennit.cli.chat.output import ChatOutput
from sennit.cli.memory import memory_lines
from sennit.cli.sessions import session_lines, session_rows
from sennit.cli.targets import find_message
from sennit.cli.text import message_text, one_line, pluralize
from sennit.errors import SennitError, did_you_mean
from sennit.messages.content import AssistantResponseContent
from sennit.messages.message import Message, MessageRole
from sennit.sessions.title import stored_title


@dataclass(frozen=True, slots=True)
class Prompt:
    """Ask the user again."""

    fill: str = ""
    """The prefilled text of the prompt."""


@dataclass(frozen=True, slots=True)
class AskModel:
    """Let the model answer."""

    say: str | None = None
    """The user's message, or None to answer the branch as it is."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Resume an interrupted answer."""


@dataclass(frozen=True, slots=True)
class Discard:
    """Discard an interrupted answer."""


@dataclass(frozen=True, slots=True)
class Decide:
    """Ask the user about pending tool calls, or about an interrupted answer."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit the branch."""


@dataclass(frozen=True, slots=True)
class Quit:
    """End the program."""


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect to the model, and say what is missing."""


Next: TypeAlias = Prompt | Connect | AskModel | Resume | Discard | Decide | Commit | Quit
_Run: TypeAlias = Callable[[ChatSession, ChatOutput, str], Next | None]


@dataclass(frozen=True, slots=True)
class Command:
    """A slash command: its name, its help and its function."""

    usage: str
    summary: str
    run: _Run


COMMANDS: dict[str, Command] = {}
_ALIASES = {"/exit": "/quit"}
_WORDS = {"help": "/help", "quit": "/quit", "exit": "/quit", "?": "/help"}
"""Lines that are commands without a slash, too."""
_MAX_SESSIONS = 20
_MAX_NUMBER_DIGITS = 9  # of a message number; a longer one is text


def _command(usage: str, summary: str) -> Callable[[_Run], _Run]:
    def register(run: _Run) -> _Run:
        COMMANDS[usage.split()[0]] = Command(usage, summary, run)
        return run

    return register


def handle_line(chat: ChatSession, output: ChatOutput, line: str) -> Next:
    """Run the command on a line, or return the line as a message to the model."""
    text = line.strip()
    if not text:
        return Prompt()
    text = _WORDS.get(text.lower(), text)
    if not text.startswith("/") or text.startswith("//"):
        return AskModel(text.removeprefix("/") if text.startswith("//") else text)
    try:
        return _run_command(chat, output, text)
    except SennitError as error:
        output.error(str(error))
        return Prompt()


def _run_command(chat: ChatSession, output: ChatOutput, text: str) -> Next:
    typed, _, rest = text.partition(" ")
    name = typed.lower()
    command = COMMANDS.get(_ALIASES.get(name, name))
    if command is None:
        meant = did_you_mean(name, (*COMMANDS, *_ALIASES))
        output.error(
            f"Unknown command {typed}.{meant} /help lists the commands; "
            f"to send a message that begins with a slash, type two slashes."
        )
        return Prompt()
    if rest.strip() and " " not in command.usage:
        output.error(f"{command.usage} takes nothing after it; got {rest.strip()!r}.")
        return Prompt(text)
    chat.session.refresh()
    return command.run(chat, output, rest.strip()) or Prompt()


@_command("/help", "show this list")
def _help(_chat: ChatSession, output: ChatOutput, _rest: str) -> None:
    width = max(len(command.usage) for command in COMMANDS.values())
    for command in COMMANDS.values():
        output.line(f"{command.usage:<{width}}  {command.summary}")
    output.note("Alt-Enter starts a new line, Ctrl-C stops an answer, Ctrl-D quits.")


@_command("/fork [NAME]", "continue with the same history on a new branch")
def _fork(chat: ChatSession, output: ChatOutput, rest: str) -> None:
    source = chat.branch.name
    output.note(f"Now on {chat.fork(rest or None).name}, a fork of {source}.")


@_command("/branches", "list the branches")
def _branches(chat: ChatSession, output: ChatOutput, _rest: str) -> None:
    for branch in chat.session.branches:
        mark = "*" if branch is chat.branch else " "
        last = (
            one_line(message_text(chat.session.messages.get(branch[-1])), 40) if len(branch) else ""
        )
        output.line(f"{mark} {branch.name} ({pluralize(len(branch), 'message')})  {last}")


@_command("/switch NAME", "switch to another branch")
def _switch(chat: ChatSession, output: ChatOutput, rest: str) -> Next:
    if not rest:
        output.error("The branch is missing: /switch NAME. /branches lists the branches.")
        return Prompt()
    branch = chat.switch(rest)
    output.note(f"Now on {branch.name} ({pluralize(len(branch), 'message')}).")
    show_last_exchange(chat, output)
    return Decide()


@_command("/rename NAME", "rename this branch")
def _rename(chat: ChatSession, output: ChatOutput, rest: str) -> None:
    if not rest:
        output.error("The new name is missing: /rename NAME.")
        return
    chat.branch.rename(rest)
    output.note(f"This branch is now named {chat.branch.name}.")


@_command("/tree", "draw the branches as a tree of forks")
def _tree(chat: ChatSession, output: ChatOutput, _rest: str) -> None:
    output.line(str(chat.session.tree()))
    output.note(f"You are on {chat.branch.name}.")


@_command("/edit [N] [TEXT]", "edit your last message, or number N, on a fork")
def _edit(chat: ChatSession, output: ChatOutput, rest: str) -> Next:
    first, _, tail = rest.partition(" ")
    numbered = first.isascii() and first.isdigit() and len(first) <= _MAX_NUMBER_DIGITS
    number, text = (int(first), tail.strip()) if numbered else (None, rest)
    if not text:
        question = chat.question(number)
        return Prompt(f"/edit {chat.number(question)} {message_text(question)}")
    _warn_of_repetition(chat, output, chat.question(number))
    output.note(f"Now on {chat.edit(number, text).name}.")
    return AskModel()


def _warn_of_repetition(chat: ChatSession, output: ChatOutput, question: Message) -> None:
    """Warn of started tool calls in an answer that is about to be regenerated."""
    since = chat.branch.messages[chat.number(question) :]
    for call in started_calls(chat.branch, since):
        output.note(
            f"{call} was started in the answer above and may have taken effect; if the model calls "
            f"it again, it may happen twice."
        )


@_command("/resume", "resume an interrupted answer")
def _resume(chat: ChatSession, output: ChatOutput, rest: str) -> Next:
    if rest:
        output.error(f"/resume takes no name. To open session {rest}: /open {rest}")
        return Prompt()
    if chat.pending_approvals():
        return Decide()
    if chat.interrupted() is not None:
        return Resume()
    output.note("No answer was interrupted on this branch.")
    return Prompt()


@_command("/discard", "discard an interrupted answer, and take your message back")
def _discard(chat: ChatSession, output: ChatOutput, _rest: str) -> Next:
    if chat.interrupted() is not None or chat.pending_approvals():
        return Discard()
    output.note("No answer was interrupted on this branch; /undo removes a complete one.")
    return Prompt()


@_command("/retry", "regenerate the last answer on a fork")
def _retry(chat: ChatSession, output: ChatOutput, _rest: str) -> Next:
    _warn_of_repetition(chat, output, chat.question())
    if chat.retry():
        output.note(f"Now on {chat.branch.name}.")
    return AskModel()


@_command("/undo", "remove your last message and its answer")
def _undo(chat: ChatSession, output: ChatOutput, _rest: str) -> None:
    output.note(f"Removed: {one_line(message_text(chat.undo()))}")
    if chat.removed_committed:
        output.note(
            "It was committed before: its archive and the memories based on it are kept. /forget "
            "erases both."
        )


@_command("/forget", "erase committed messages that you removed, and the memories based on them")
def _forget(chat: ChatSession, output: ChatOutput, _rest: str) -> None:
    if not chat.removed_committed:
        output.note(
            "None of the messages that you removed was committed; there is nothing to erase."
        )
        return
    output.note(f"Erased {pluralize(chat.forget(), 'message')} and the memories based on them.")


@_command("/model [NAME]", "show the model, or use another one")
def _model(chat: ChatSession, output: ChatOutput, rest: str) -> Next:
    if rest:
        chat.use_model(rest)
        return Connect()
    output.line(chat.options.model.name)
    output.note("/model NAME uses another one, such as openai:gpt-5, ollama:llama3.2 or local.")
    return Prompt()


def show_model(chat: ChatSession, output: ChatOutput, error: SennitError | None) -> None:
    """Show the model that answers from now on, and what it lacks."""
    output.note(f"The next answers come from {chat.options.model.name}.")
    if error is not None:
        output.error(str(error))


@_command("/sessions [TEXT]", "list the sessions, or those that contain a text")
def _sessions(chat: ChatSession, output: ChatOutput, rest: str) -> None:
    rows = list(session_rows(chat.client, rest or None, _MAX_SESSIONS))
    chat.listed_sessions = [row["id"] for row in rows]
    for line in session_lines(rows, numbered=True):
        output.line(line)
    output.note("/open NAME or NUMBER opens a session." if rows else "There is no such session.")


@_command("/open NAME", "open another session, by its name or its number in /sessions")
def _open(chat: ChatSession, output: ChatOutput, rest: str) -> Next:
    if not rest:
        output.error("The session is missing: /open NAME. /sessions lists the sessions.")
        return Prompt()
    numbers = {str(number): uid for number, uid in enumerate(chat.listed_sessions, 1)}
    chat.open_session(numbers.get(rest, rest))
    show_place(chat, output)
    show_last_exchange(chat, output)
    return Decide()


@_command("/new [NAME]", "begin a new session")
def _new(chat: ChatSession, output: ChatOutput, rest: str) -> None:
    chat.new_session(rest or None)
    show_place(chat, output)


@_command("/title [TEXT]", "show or set the title of this session; - removes it")
def _title(chat: ChatSession, output: ChatOutput, rest: str) -> None:
    if rest:
        chat.session.set_title(None if rest == "-" else rest)
    title = chat.session.title
    output.note("There is no title yet. Set one: /title TEXT" if title is None else title)


@_command("/copy [N]", "copy the last answer, or message N, to the clipboard")
def _copy(chat: ChatSession, output: ChatOutput, rest: str) -> None:
    message = (
        chat.last_answer() if not rest else chat.branch.messages[find_message(chat.branch, rest)]
    )
    text = message_text(message)
    size = pluralize(len(text), "character")
    if output.copy(text):
        output.note(f"Copied message {chat.number(message)} ({size}).")
    else:
        output.note(f"Sent message {chat.number(message)} ({size}) to the terminal's clipboard.")


@_command("/tools", "list the tools the model may call")
def _tools(chat: ChatSession, output: ChatOutput, _rest: str) -> None:
    for tool in chat.options.tools:
        asks = " (asks you first)" if tool.needs_approval else ""
        output.line(f"{tool.name}{asks}  {one_line(tool.description)}")
    if not chat.options.tools:
        output.note(
            "No tools. Add some with sennit chat --tool FILE.py, or use the built-in ones: --tool "
            "time --tool calculator"
        )


@_command("/approve", "approve or deny pending tool calls")
def _approve(chat: ChatSession, output: ChatOutput, _rest: str) -> Next:
    if chat.pending_approvals():
        return Decide()
    output.note("No tool call is waiting for approval.")
    show_interruption(chat, output)
    return Decide()


@_command("/commit", "archive the messages and extract memories from them")
def _commit(_chat: ChatSession, _output: ChatOutput, _rest: str) -> Next:
    return Commit()


@_command("/memory", "show the memories and their evidence")
def _memory(chat: ChatSession, output: ChatOutput, _rest: str) -> None:
    memories = chat.session.memory.all()
    evidence = chat.session.memory.evidence(memories)
    for memory in memories:
        for line in memory_lines(memory, evidence):
            output.line(line)
    if not memories:
        output.note("No memories yet; /commit extracts them from this chat.")
    if not chat.options.use_memory:
        output.note("This chat does not use them (--no-memory).")


@_command("/system [TEXT]", "show or set the system message; - removes it")
def _system(chat: ChatSession, output: ChatOutput, rest: str) -> None:
    if rest:
        chat.set_system(None if rest == "-" else rest)
        output.note("System message removed." if rest == "-" else "System message set.")
    elif (text := chat.system_text) is not None:
        output.line(text)
    else:
        output.note("There is no system message. Set one: /system TEXT")


@_command("/history", "show the whole branch with numbered messages")
def _history(chat: ChatSession, output: ChatOutput, _rest: str) -> None:
    for number, message in enumerate(chat.branch.messages, 1):
        _show(output, message, number)
    if not len(chat.branch):
        output.note("There are no messages yet.")


@_command("/quit", "quit; the conversation is stored")
def _quit(_chat: ChatSession, _output: ChatOutput, _rest: str) -> Next:
    return Quit()


def show_place(chat: ChatSession, output: ChatOutput) -> None:
    """Show which session and branch the chat is on."""
    count = pluralize(len(chat.branch), "message")
    title = stored_title(chat.session.metadata)
    titled = "" if title is None else f" · {one_line(title)}"
    output.note(f"Now in session {chat.name}{titled} ({chat.branch.name}, {count}).")


def show_last_exchange(chat: ChatSession, output: ChatOutput) -> None:
    """Show the last question of the branch and everything after it."""
    questions = chat.questions
    if questions:
        first = chat.number(questions[-1])
        for number, message in enumerate(chat.branch.messages[first - 1 :], first):
            _show(output, message, number)
    show_interruption(chat, output)


def show_interruption(chat: ChatSession, output: ChatOutput) -> None:
    """Show the text of an interrupted answer, and what is known of its end."""
    answer = chat.interrupted()
    if answer is None:
        return
    if answer.text:
        output.answer(answer.text)
    for sentence in answer.reports:
        output.note(sentence)


def _show(output: ChatOutput, message: Message, number: int) -> None:
    match message.role:
        case MessageRole.USER:
            output.line(f"{number}› {message_text(message)}", "bold")
        case MessageRole.SYSTEM:
            output.note(f"{number}  system: {message_text(message)}")
        case MessageRole.ASSISTANT if isinstance(message.content, AssistantResponseContent):
            output.answer(message_text(message), f"{number}  ")
        case _:
            output.line(f"{number}  {message_text(message)}")
