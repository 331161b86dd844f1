"""`sennit chat`: a stored conversation with any model.

On a terminal it is a line editor with commands; otherwise it reads lines and prints answers.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated

import typer
from rich.console import Console

from sennit.api.client import Client
from sennit.api.open import open as open_client
from sennit.cli.chat import pipe, terminal
from sennit.cli.chat.conversation import ChatOptions, ChatSession
from sennit.cli.chat.options import ModelArgument, chat_options
from sennit.cli.chat.output import ChatOutput
from sennit.cli.chat.slash_commands import show_last_exchange
from sennit.cli.memory import commit_lines
from sennit.cli.targets import (
    AskOption,
    BaseUrlOption,
    BranchOption,
    McpOption,
    MemoryOption,
    StoreOption,
    ToolOption,
    session_names,
)
from sennit.cli.text import one_line, pluralize
from sennit.errors import NotFoundError, ValidationError
from sennit.sessions.title import stored_title

TINY = (
    "The embedded model (SmolLM2-135M) runs on this machine, without an API key. It is tiny: it "
    "gets facts wrong and makes things up."
)
BETTER = (
    "For better answers use --model openai:gpt-5 (with OPENAI_API_KEY set) or --model "
    'ollama:llama3.2; with make: make chat ARGS="--model …".'
)


def chat(
    session: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Session; an existing one is continued.",
            autocompletion=session_names,
        ),
    ] = "chat",
    model: ModelArgument = "local",
    base_url: BaseUrlOption = None,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="System message.")] = None,
    branch: BranchOption = None,
    tool: ToolOption = None,
    mcp: McpOption = None,
    ask: AskOption = None,
    memory: MemoryOption = True,
    other_sessions: Annotated[
        bool,
        typer.Option(
            "--other-sessions", help="Add relevant messages of other sessions to the prompt."
        ),
    ] = False,
    commit: Annotated[
        bool, typer.Option("--commit", help="Extract memories when the chat ends.")
    ] = False,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Maximum answer length in tokens.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0, metavar="N", help="Sampling temperature.")
    ] = None,
    store: StoreOption = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one line of JSON per answer; only with piped input."),
    ] = False,
) -> None:
    """Chat with a model; with piped input, answer each line."""
    options = chat_options(
        model,
        base_url=base_url,
        tool=tool,
        mcp=mcp,
        ask=ask,
        use_memory=memory,
        other_sessions=other_sessions,
        max_tokens=max_tokens,
        temperature=temperature,
    )
    with open_client(store) as client:
        code = start(
            client, options, session, branch, system=system, as_json=as_json, commit=commit
        )
    raise typer.Exit(code)


def start(
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
    if new and branch not in (None, "main"):
        raise NotFoundError(
            f"Session {name!r} is new and has no branch {branch!r}; /fork creates one."
        )
    chat = ChatSession(client.session(name), options, branch, client=client)
    if system is not None and system != chat.system_text:
        chat.set_system(system or None)
    if on_terminal:
        output = ChatOutput(Console(highlight=False))
        code, show = asyncio.run(_run_terminal(chat, output, name, new=new)), output.note
    else:
        answers = (pipe.JsonAnswers if as_json else pipe.TextAnswers)(sys.stdout, sys.stderr)
        if new and options.model.name == "local":
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


async def _run_terminal(chat: ChatSession, output: ChatOutput, name: str, *, new: bool) -> int:
    try:
        await chat.open()
        _greet(chat, output, name, new=new)
        return await terminal.run(chat, output)
    finally:
        await chat.close()


def _greet(chat: ChatSession, output: ChatOutput, name: str, *, new: bool) -> None:
    count = pluralize(len(chat.branch), "message")
    branch_info = "new" if new else f"{chat.branch.name}, {count}"
    title = stored_title(chat.session.metadata)
    titled = "" if title is None else f" · {one_line(title)}"
    output.line(
        f"sennit {version('sennit')} · {name}{titled} ({branch_info}) · {chat.options.model.name}"
    )
    if new and chat.options.model.name == "local":
        output.note(TINY)
        output.note(BETTER)
    if chat.options.tools:
        output.note(chat.options.tools_summary)
    output.note("/help lists the commands. Ctrl-C stops an answer, Ctrl-D quits.")
    show_last_exchange(chat, output)
