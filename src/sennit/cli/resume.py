"""`sennit approve`, `deny` and `resume`: decide about pending tool calls, and continue answers.

A decision is only recorded, so neither the model nor the tools are needed; `sennit resume` then
continues the answer.
"""

from __future__ import annotations

import asyncio
import sys
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sennit.cli.targets import (
    AskOption,
    BaseUrlOption,
    BranchOption,
    JsonOption,
    McpOption,
    MemoryOption,
    ModelArgument,
    SessionArgument,
    StoreOption,
    ToolOption,
    find_branch,
    find_session,
    open_store,
)
from sennit.cli.text import emit, full_call_text, note
from sennit.errors import NotFoundError, ValidationError, did_you_mean

if TYPE_CHECKING:
    from sennit.api.session import Session
    from sennit.messages.content import ActionRequestContent
    from sennit.sessions.branch import Branch

_ALL = "all"
CallArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="CALL", help="Id of the call, or all (default: the only one that waits)."
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


def approve(
    name: SessionArgument,
    call: CallArgument = None,
    branch: BranchOption = None,
    yes: YesOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Approve a tool call that waits; sennit resume then runs it."""
    with open_store(store) as client:
        target, calls = _find_calls(find_session(client, name), branch, call)
        if not yes:
            for content in calls.values():
                typer.echo(full_call_text(content), err=True)
            which = "this call" if len(calls) == 1 else f"these {len(calls)} calls"
            typer.confirm(f"Approve {which}?", abort=True, err=True)
        _decide(target, calls, approved=True)
    _report(name, target, calls, "approved", as_json=as_json)


def deny(
    name: SessionArgument,
    call: CallArgument = None,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="The reason, which the model is told.")
    ] = "",
    branch: BranchOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Deny a tool call that waits; sennit resume then tells the model."""
    with open_store(store) as client:
        target, calls = _find_calls(find_session(client, name), branch, call)
        _decide(target, calls, approved=False, reason=reason)
    _report(name, target, calls, "denied", as_json=as_json)


def resume(
    name: SessionArgument,
    branch: BranchOption = None,
    model: ModelArgument = "local",
    base_url: BaseUrlOption = None,
    tool: ToolOption = None,
    mcp: McpOption = None,
    ask: AskOption = None,
    memory: MemoryOption = True,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Continue an answer that was interrupted, or whose tool calls are decided."""
    from sennit.cli.chat import pipe
    from sennit.cli.chat.conversation import ChatSession
    from sennit.cli.chat.options import chat_options

    options = chat_options(model, base_url=base_url, tool=tool, mcp=mcp, ask=ask, use_memory=memory)
    with open_store(store) as client:
        chat = ChatSession(find_session(client, name), options, branch)
        answers = (pipe.JsonAnswers if as_json else pipe.TextAnswers)(sys.stdout, sys.stderr)
        code = pipe.resume(chat, answers)
    raise typer.Exit(code)


def _find_calls(
    session: Session, branch_name: str | None, call: str | None
) -> tuple[Branch, dict[str, ActionRequestContent]]:
    """Return the calls to decide about, by id, and their branch."""
    branches = session.branches if branch_name is None else [find_branch(session, branch_name)]
    waiting = {branch: calls for branch in branches if (calls := _waiting_calls(branch))}
    if not waiting:
        raise NotFoundError("No tool call is waiting for approval in this session.")
    if len(waiting) > 1:
        names = ", ".join(branch.name for branch in waiting)
        raise ValidationError(f"Tool calls wait on several branches: {names}. Name one: --branch.")
    ((branch, calls),) = waiting.items()
    if call == _ALL or (call is None and len(calls) == 1):
        return branch, calls
    listing = "; ".join(f"{uid}: {full_call_text(content)}" for uid, content in calls.items())
    if call is None:
        raise ValidationError(f"{len(calls)} tool calls wait; name one, or all: {listing}.")
    if call not in calls:
        problem = f"No tool call {call!r} is waiting.{did_you_mean(call, calls)}"
        raise NotFoundError(f"{problem} There are: {listing}.")
    return branch, {call: calls[call]}


def _waiting_calls(branch: Branch) -> dict[str, ActionRequestContent]:
    from sennit.cli.chat.interrupted import tool_call
    from sennit.turns.tools.pending_calls import call_id_of, pending_approvals

    return {call_id_of(message): tool_call(message) for message in pending_approvals(branch)}


def _decide(branch: Branch, calls: dict[str, Any], *, approved: bool, reason: str = "") -> None:
    from sennit.turns.tools.approval import decide

    async def decide_all() -> None:
        for call in calls:
            await decide(branch, call, approved=approved, reason=reason)

    asyncio.run(decide_all())


def _report(
    name: str,
    branch: Branch,
    calls: dict[str, ActionRequestContent],
    outcome: str,
    *,
    as_json: bool,
) -> None:
    value = {"session": name, "branch": branch.name, outcome: list(calls)}
    lines = (f"{outcome}: {full_call_text(content)}" for content in calls.values())
    emit(as_json, value, lines)
    if not as_json:
        options = "" if branch.name == "main" else f" --branch {quote(branch.name)}"
        note(f"To continue, with the same tools: sennit resume {quote(name)}{options} --tool …")
