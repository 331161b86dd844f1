"""Slash commands of `sennit chat` on a terminal.

A command does one thing to the talk and says what comes next as a value: another prompt, perhaps
with text already in it, an answer of the model, or the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from shlex import quote
from typing import TypeAlias

from sennit.cli.chat.conversation import ChatSession
from sennit.cli.chat.output import ChatOutput
from sennit.cli.memory import memory_lines
from sennit.cli.text import counted, nearest, one_line, said
from sennit.errors import SennitError
from sennit.messages.message import Message, MessageRole


@dataclass(frozen=True, slots=True)
class Prompt:
    """Ask the user again."""

    fill: str = ""
    """What already stands in the line."""


@dataclass(frozen=True, slots=True)
class AskModel:
    """Let the model answer."""

    say: str | None = None
    """What the user says first."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Let the model go on with an answer that was interrupted."""


@dataclass(frozen=True, slots=True)
class Decide:
    """Ask the user about the tool calls that wait."""


@dataclass(frozen=True, slots=True)
class Remember:
    """Commit the branch."""


@dataclass(frozen=True, slots=True)
class Quit:
    """End the program."""


Next: TypeAlias = Prompt | AskModel | Resume | Decide | Remember | Quit
_Run: TypeAlias = Callable[[ChatSession, ChatOutput, str], Next | None]


@dataclass(frozen=True, slots=True)
class Command:
    """A slash command: its name, its help and its function."""

    usage: str
    told: str
    run: _Run


COMMANDS: dict[str, Command] = {}
_ALIASES = {"/exit": "/quit"}
_DIGITS = 9  # of the number of a message; more of them are something to say


def _command(usage: str, told: str) -> Callable[[_Run], _Run]:
    def register(run: _Run) -> _Run:
        COMMANDS[usage.split()[0]] = Command(usage, told, run)
        return run

    return register


def take(talk: ChatSession, screen: ChatOutput, line: str) -> Next:
    """Do what a line says: a command, or something to be said to the model."""
    text = line.strip()
    if not text:
        return Prompt()
    if not text.startswith("/") or text.startswith("//"):
        return AskModel(text.removeprefix("/") if text.startswith("//") else text)
    try:
        return _obey(talk, screen, text)
    except SennitError as error:
        screen.error(str(error))
        return Prompt()


def _obey(talk: ChatSession, screen: ChatOutput, text: str) -> Next:
    typed, _, rest = text.partition(" ")
    name = typed.lower()
    command = COMMANDS.get(_ALIASES.get(name, name))
    if command is None:
        screen.error(
            f"Unknown command {typed}.{nearest(name, list(COMMANDS))} /help lists the commands; to "
            f"send a message that begins with a slash, type two slashes."
        )
        return Prompt()
    talk.session.refresh()
    return command.run(talk, screen, rest.strip()) or Prompt()


@_command("/help", "show this list")
def _help(_talk: ChatSession, screen: ChatOutput, _rest: str) -> None:
    width = max(len(command.usage) for command in COMMANDS.values())
    for command in COMMANDS.values():
        screen.line(f"{command.usage:<{width}}  {command.told}")
    screen.note("Alt-Enter starts a new line, Ctrl-C stops an answer, Ctrl-D quits.")


@_command("/fork [NAME]", "continue with the same history on a new branch")
def _fork(talk: ChatSession, screen: ChatOutput, rest: str) -> None:
    source = talk.branch.name
    screen.note(f"Now on {talk.fork(rest or None).name}, a fork of {source}.")


@_command("/branches", "list the branches")
def _branches(talk: ChatSession, screen: ChatOutput, _rest: str) -> None:
    for branch in talk.session.branches:
        mark = "*" if branch is talk.branch else " "
        last = one_line(said(talk.session.messages.get(branch[-1])), 40) if len(branch) else ""
        screen.line(f"{mark} {branch.name} ({counted(len(branch), 'message')})  {last}")


@_command("/switch NAME", "switch to another branch")
def _switch(talk: ChatSession, screen: ChatOutput, rest: str) -> None:
    if not rest:
        screen.error("The branch is missing: /switch NAME. /branches lists the branches.")
        return
    branch = talk.switch(rest)
    screen.note(f"Now on {branch.name} ({counted(len(branch), 'message')}).")
    recall(talk, screen)


@_command("/rename NAME", "rename this branch")
def _rename(talk: ChatSession, screen: ChatOutput, rest: str) -> None:
    if not rest:
        screen.error("The new name is missing: /rename NAME.")
        return
    talk.branch.rename(rest)
    screen.note(f"This branch is now named {talk.branch.name}.")


@_command("/tree", "draw the branches as a tree of forks")
def _tree(talk: ChatSession, screen: ChatOutput, _rest: str) -> None:
    screen.line(str(talk.session.tree()))
    screen.note(f"You are on {talk.branch.name}.")


@_command("/edit [N] [TEXT]", "edit your last message, or number N, on a fork")
def _edit(talk: ChatSession, screen: ChatOutput, rest: str) -> Next:
    first, _, more = rest.partition(" ")
    numbered = first.isascii() and first.isdigit() and len(first) <= _DIGITS
    number, text = (int(first), more.strip()) if numbered else (None, rest)
    if not text:
        old = talk.question(number)
        return Prompt(f"/edit {talk.number(old)} {said(old)}")
    _warn_of_repetition(talk, screen, talk.question(number))
    screen.note(f"Now on {talk.edit(number, text).name}.")
    return AskModel()


def _warn_of_repetition(talk: ChatSession, screen: ChatOutput, question: Message) -> None:
    """Name the tool calls of an answer that is about to be given anew."""
    for call in talk.started_since(question):
        screen.note(
            f"{call} was started in the answer above and may have taken effect; if the model calls "
            f"it again, it may happen twice."
        )


@_command("/resume", "resume an interrupted answer")
def _resume(talk: ChatSession, screen: ChatOutput, _rest: str) -> Next:
    if talk.pending_approvals():
        return Decide()
    if talk.interrupted() is not None:
        return Resume()
    screen.note("No answer was interrupted on this branch.")
    return Prompt()


@_command("/retry", "regenerate the last answer on a fork")
def _retry(talk: ChatSession, screen: ChatOutput, _rest: str) -> Next:
    _warn_of_repetition(talk, screen, talk.question())
    if talk.retry():
        screen.note(f"Now on {talk.branch.name}.")
    return AskModel()


@_command("/undo", "remove your last message and its answer")
def _undo(talk: ChatSession, screen: ChatOutput, _rest: str) -> None:
    screen.note(f"Removed: {one_line(said(talk.undo()))}")
    if talk.committed:
        screen.note(
            "It was committed before: its archive and the memories based on it are kept. /forget "
            "erases both."
        )


@_command("/forget", "erase committed messages that you removed, and the memories based on them")
def _forget(talk: ChatSession, screen: ChatOutput, _rest: str) -> None:
    if not talk.committed:
        screen.note(
            "None of the messages that you removed was committed; there is nothing to erase."
        )
        return
    screen.note(f"Erased {counted(talk.forget(), 'message')} and the memories based on them.")


@_command("/model", "show the current model, and how to use another")
def _model(talk: ChatSession, screen: ChatOutput, _rest: str) -> None:
    again = f"sennit chat --session {quote(talk.session.key or '')} --model NAME"
    screen.line(talk.partner.model.name)
    screen.note(f"To use another model: /quit, then {again}, such as openai:gpt-5.")


@_command("/tools", "list the tools the model may call")
def _tools(talk: ChatSession, screen: ChatOutput, _rest: str) -> None:
    for tool in talk.partner.tools:
        asks = " (asks you first)" if tool.needs_approval else ""
        screen.line(f"{tool.name}{asks}  {one_line(tool.description)}")
    if not talk.partner.tools:
        screen.note(
            "No tools. Add some with sennit chat --tool FILE.py, or use the built-in ones: --tool "
            "time --tool calculator"
        )


@_command("/approve", "approve or deny pending tool calls")
def _approve(talk: ChatSession, screen: ChatOutput, _rest: str) -> Next:
    if talk.pending_approvals():
        return Decide()
    screen.note("No tool call is waiting for approval.")
    show_interruption(talk, screen)
    return Prompt()


@_command("/commit", "archive the messages and extract memories from them")
def _commit(_talk: ChatSession, _screen: ChatOutput, _rest: str) -> Next:
    return Remember()


@_command("/memory", "show the memories and their evidence")
def _memory(talk: ChatSession, screen: ChatOutput, _rest: str) -> None:
    found = talk.session.memory.all()
    said_of = talk.session.memory.evidence(found)
    for one in found:
        for line in memory_lines(one, said_of):
            screen.line(line)
    if not found:
        screen.note("No memories yet; /commit extracts them from this chat.")
    if not talk.remembers:
        screen.note("This chat does not use them (--no-memory).")


@_command("/system [TEXT]", "show or set the system message; - removes it")
def _system(talk: ChatSession, screen: ChatOutput, rest: str) -> None:
    if rest:
        talk.instruct(None if rest == "-" else rest)
        screen.note("System message removed." if rest == "-" else "System message set.")
    elif (told := talk.instructions) is not None:
        screen.line(told)
    else:
        screen.note("There is no system message. Set one: /system TEXT")


@_command("/history", "show the whole branch with numbered messages")
def _history(talk: ChatSession, screen: ChatOutput, _rest: str) -> None:
    for number, message in enumerate(talk.branch.messages, 1):
        _show(screen, message, number)
    if not len(talk.branch):
        screen.note("There are no messages yet.")


@_command("/quit", "quit; the conversation is stored")
def _quit(_talk: ChatSession, _screen: ChatOutput, _rest: str) -> Next:
    return Quit()


def recall(talk: ChatSession, screen: ChatOutput) -> None:
    """Show the last exchange of the branch, to go on from."""
    asked = talk.questions
    if asked:
        first = talk.number(asked[-1])
        for number, message in enumerate(talk.branch.messages[first - 1 :], first):
            _show(screen, message, number)
    show_interruption(talk, screen)


def show_interruption(talk: ChatSession, screen: ChatOutput) -> None:
    """Show what is left of an answer that did not come to its end, and what can be done."""
    left = talk.interrupted()
    if left is None:
        return
    if left.text:
        screen.line(left.text)
    for sentence in (*left.reports, *left.choices):
        screen.note(sentence)


def _show(screen: ChatOutput, message: Message, number: int) -> None:
    match message.role:
        case MessageRole.USER:
            screen.line(f"{number}› {said(message)}", "bold")
        case MessageRole.SYSTEM:
            screen.note(f"{number}  system: {said(message)}")
        case _:
            screen.line(f"{number}  {said(message)}")
