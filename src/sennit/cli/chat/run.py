"""The run of a chat: on the terminal or through the pipe, with a commit at the end if asked for."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from importlib.metadata import version

from rich.console import Console

from sennit.api.client import Client
from sennit.cli.chat import BETTER, TINY, pipe, terminal
from sennit.cli.chat.conversation import ChatOptions, ChatSession
from sennit.cli.chat.output import ChatOutput
from sennit.cli.chat.slash_commands import show_last_exchange
from sennit.cli.memory import commit_lines
from sennit.cli.text import one_line, pluralize
from sennit.errors import NotFoundError, ValidationError
from sennit.sessions.title import stored_title


def run(
    client: Client,
    options: ChatOptions,
    name: str = "chat",
    branch: str | None = None,
    *,
    system: str | None = None,
    as_json: bool = False,
    commit: bool = False,
) -> int:
    """Open the session and chat on the terminal or through the pipe; return the exit code."""
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if on_terminal and as_json:
        raise ValidationError("--json needs piped input, one message per line.")
    new = _is_new(client, name)
    is_first = not client.sessions(limit=1)
    if new and branch not in (None, "main"):
        raise NotFoundError(
            f"Session {name!r} is new and has no branch {branch!r}; /fork creates one."
        )
    chat = ChatSession(client.session(name), options, branch, client=client)
    if system is not None and system != chat.system_text:
        chat.set_system(system or None)
    if on_terminal:
        output = ChatOutput(Console(highlight=False))
        code, show = (
            asyncio.run(_run_terminal(chat, output, name, new=new, first=is_first)),
            output.note,
        )
    else:
        answers = (pipe.JsonAnswers if as_json else pipe.TextAnswers)(sys.stdout, sys.stderr)
        if is_first and options.model.name == "local":
            answers.note(f"{TINY} {BETTER}")
        code, show = pipe.run(chat, sys.stdin.buffer, answers), answers.note
    return _commit(chat, show) or code if commit else code


def _commit(chat: ChatSession, show: Callable[[str], object]) -> int:
    """Commit and show the result; return 1 if the commit failed."""
    result = chat.commit()
    for line in commit_lines(chat.session.memory, result):
        show(line)
    return 1 if result.status == "failed" else 0


def _is_new(client: Client, name: str) -> bool:
    try:
        client.session(name, create=False)
    except NotFoundError:
        return True
    return False


async def _run_terminal(
    chat: ChatSession, output: ChatOutput, name: str, *, new: bool, first: bool
) -> int:
    try:
        await chat.open()
        _greet(chat, output, name, new=new, first=first)
        return await terminal.run(chat, output)
    finally:
        await chat.close()


def _greet(chat: ChatSession, output: ChatOutput, name: str, *, new: bool, first: bool) -> None:
    count = pluralize(len(chat.branch), "message")
    branch_info = "new" if new else f"{chat.branch.name}, {count}"
    title = stored_title(chat.session.metadata)
    titled = "" if title is None else f" · {one_line(title)}"
    output.line(
        f"sennit {version('sennit')} · {name}{titled} ({branch_info}) · {chat.options.model.name}"
    )
    if first and chat.options.model.name == "local":
        output.note(TINY)
        output.note(BETTER)
    if chat.options.tools:
        output.note(chat.options.tools_summary)
    output.note("/help lists the commands. Ctrl-C stops an answer, Ctrl-D quits.")
    show_last_exchange(chat, output)
