"""`sennit chat` with piped input: one answer per line.

Answers are streamed to stdout, everything else goes to stderr. Each line is sent as it is, even if
it begins with a slash: scripts do not use slash commands.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Coroutine, Iterable
from typing import Any, TextIO, TypeVar
from uuid import UUID

from sennit.cli.chat.conversation import ChatSession
from sennit.cli.chat.interrupted import InterruptedAnswer, tool_call
from sennit.cli.text import call_text, clean, message_text, one_line
from sennit.errors import NotFoundError, SennitError
from sennit.messages.content import AssistantResponseContent, MessageRole
from sennit.messages.message import Message
from sennit.turns.events import (
    AnyEvent,
    MessageCompleted,
    RunEnded,
    TextAdded,
    ToolCalled,
    WarningIssued,
)
from sennit.turns.result import Return

_T = TypeVar("_T")
_USER = MessageRole.USER
_COMPLETE_STOP_REASONS = ("stable", "length")
APPROVAL_PENDING = 3
"""The exit code of a chat with a tool call that needs approval."""


class TextAnswers:
    """Writes answers to one stream and everything else to another."""

    def __init__(self, out: TextIO, notes: TextIO) -> None:
        self._out, self._notes = out, notes
        self._safe = clean if out.isatty() else str
        self._line_open = False
        self._shown: set[UUID] = set()

    def note(self, text: str) -> None:
        """Write a line that is not part of an answer."""
        self._notes.write(f"{clean(text)}\n")
        self._notes.flush()

    def event(self, event: AnyEvent) -> None:
        """Write the text of an answer as its events arrive."""
        match event:
            case TextAdded():
                self._add(event.message_id, event.text)
            case MessageCompleted() if event.message.id not in self._shown:
                if isinstance(event.message.content, AssistantResponseContent):
                    self._add(event.message.id, message_text(event.message))
            case WarningIssued():
                self.note(f"sennit: {event.notice.text}")
            case MessageCompleted() | ToolCalled() | RunEnded():
                self._close_line()
            case _:
                pass

    def ended(self, chat: ChatSession, result: Return) -> None:
        """Write the errors of a finished run."""
        del chat
        for notice in result.notices:
            if notice.severity == "error":
                self.note(f"sennit: {notice.text}")

    def note_busy(self) -> None:
        """Report that another process holds the branch."""
        self.note("sennit: Another process is answering on this branch; waiting for it.")

    def note_pending(self, chat: ChatSession, calls: list[Message]) -> None:
        """Report the calls that need approval, and how to decide."""
        for call in calls:
            self.note(f"sennit: {call_text(tool_call(call))} waits for approval.")
        self.note(
            f"sennit: No more lines are read. To decide, open the chat in a terminal with the same "
            f"tools: {_chat_command(chat)}, or use sennit approve. To run tools without approval, "
            f"send the line again with --yes."
        )

    def note_undecided(self, chat: ChatSession, calls: list[Message]) -> None:
        """Report the calls that an answer cannot be resumed without."""
        for call in calls:
            self.note(f"sennit: {call_text(tool_call(call))} waits for approval.")
        name = shlex.quote(chat.session.key or str(chat.session.id))
        self.note(f"sennit: Decide with sennit approve {name}, or sennit deny {name}.")

    def note_skipped(self, calls: list[Message]) -> None:
        """Report the pending calls of an earlier line, which are not run."""
        for call in calls:
            self.note(
                f"sennit: {call_text(tool_call(call))} was waiting for approval and is not run."
            )

    def note_interrupted(self, chat: ChatSession, answer: InterruptedAnswer) -> None:
        """Report an interrupted answer, and how to resume it."""
        for report in answer.reports:
            self.note(f"sennit: {report}")
        if answer.text:
            self.note(f"sennit: Its text so far: {one_line(answer.text)}")
        if not answer.elsewhere:
            self.note(
                f"sennit: It is kept, and the lines are sent after it. To resume it instead, open "
                f"the chat in a terminal and type /resume: {_chat_command(chat)}"
            )

    def _add(self, message: UUID, text: str) -> None:
        if message not in self._shown:
            self._close_line()
            self._shown.add(message)
        if text:
            self._out.write(self._safe(text))
            self._out.flush()
            self._line_open = not text.endswith("\n")

    def _close_line(self) -> None:
        if self._line_open:
            self._out.write("\n")
            self._out.flush()
            self._line_open = False


class JsonAnswers(TextAnswers):
    """Writes each answer as one line of JSON."""

    def event(self, event: AnyEvent) -> None:
        """Ignore events: the answer is written when the run has ended."""

    def ended(self, chat: ChatSession, result: Return) -> None:
        """Write the answer, its stop reason, notices and token counts."""
        usage = result.metrics.usage
        record: dict[str, Any] = {
            "answer": result.answer,
            "stop_reason": result.stop_reason,
            "session": chat.session.key,
            "branch": chat.branch.name,
            "model": result.metrics.model or chat.options.model.name,
            "messages": [
                str(message.id) for message in result.body.interactions if message.role != _USER
            ],
            "notices": [
                {"severity": notice.severity, "code": notice.code, "text": notice.text}
                for notice in result.notices
            ],
            "tokens": {"in": usage.input_tokens, "out": usage.output_tokens},
        }
        if result.stop_reason == "suspended":
            record["waiting"] = [tool_call(call).call_id for call in chat.pending_approvals()]
        self._out.write(f"{json.dumps(record, ensure_ascii=False)}\n")
        self._out.flush()


def run(chat: ChatSession, lines: Iterable[bytes], answers: TextAnswers) -> int:
    """Answer each line and return the exit code: 1 if the last answer failed.

    Stops at an answer that needs approval, because the next line would abandon its tool call.
    """
    answered = True
    with asyncio.Runner() as runner:
        try:
            _run(runner, chat.open())
            if chat.options.tools:
                answers.note(chat.options.tools_summary)
            if (pending := chat.pending_approvals()) and not _skip_pending(chat, pending, answers):
                return APPROVAL_PENDING
            if (interrupted := chat.interrupted()) is not None:
                answers.note_interrupted(chat, interrupted)
            for line in lines:
                text = line.decode("utf-8-sig", "replace").strip("\r\n")
                if text.strip():
                    answered = _run(runner, _exchange(chat, text, answers))
                if not answered and (pending := chat.pending_approvals()):
                    answers.note_pending(chat, pending)
                    return APPROVAL_PENDING
        finally:
            _run(runner, chat.close())
    return 0 if answered else 1


def resume(chat: ChatSession, answers: TextAnswers) -> int:
    """Resume the last answer and return the exit code, as `run` does."""
    with asyncio.Runner() as runner:
        try:
            _run(runner, chat.open())
            if pending := chat.pending_approvals():
                answers.note_undecided(chat, pending)
                return APPROVAL_PENDING
            if chat.interrupted() is None:
                raise NotFoundError(f"No answer was interrupted on branch {chat.branch.name!r}.")
            result = _run(runner, chat.resume(answers.event))
            answers.ended(chat, result)
            if pending := chat.pending_approvals():
                answers.note_undecided(chat, pending)
                return APPROVAL_PENDING
        finally:
            _run(runner, chat.close())
    return 0 if result.stop_reason in _COMPLETE_STOP_REASONS else 1


def _run(runner: asyncio.Runner, work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine; close it, so that Python does not warn if Ctrl-C kept it from starting."""
    try:
        return runner.run(work)
    finally:
        work.close()


def _skip_pending(chat: ChatSession, pending: list[Message], answers: TextAnswers) -> bool:
    """Return whether to go on despite calls that an earlier line left pending.

    True with --yes. Those calls are not run: the hint about --yes says to send the line again.
    """
    needs_approval = {tool.name for tool in chat.options.tools if tool.needs_approval}
    if any(
        tool_call(call).function in needs_approval or not chat.has_tool_of(call) for call in pending
    ):
        answers.note_pending(chat, pending)
        return False
    answers.note_skipped(pending)
    return True


def _chat_command(chat: ChatSession) -> str:
    return f"sennit chat --session {shlex.quote(chat.session.key or str(chat.session.id))}"


async def _exchange(chat: ChatSession, text: str, answers: TextAnswers) -> bool:
    try:
        result = await chat.answer_when_free(answers.event, text, answers.note_busy)
    except SennitError as error:
        answers.note(f"sennit: {error}")
        return False
    answers.ended(chat, result)
    return result.stop_reason in _COMPLETE_STOP_REASONS
