"""`sennit chat` with piped input: one answer per line.

Only answers go to the standard output, as they come; everything else goes to the standard error.
Each line is a message as it stands, also one that begins with a slash: programs type no commands.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Coroutine, Iterable
from typing import Any, TextIO, TypeVar
from uuid import UUID

from sennit.cli.chat.conversation import ChatSession
from sennit.cli.chat.interrupted import InterruptedAnswer, called
from sennit.cli.text import call_text, clean, one_line, said
from sennit.errors import SennitError
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
_ANSWERED = ("stable", "length")
WAITING = 3
"""The exit code of a chat that waits for a person."""


class TextAnswers:
    """Writes answers to one stream and everything else to another."""

    def __init__(self, out: TextIO, notes: TextIO) -> None:
        self._out, self._notes = out, notes
        self._safe = clean if out.isatty() else str
        self._line_open = False
        self._shown: set[UUID] = set()

    def note(self, text: str) -> None:
        """Something beside the answers."""
        self._notes.write(f"{clean(text)}\n")
        self._notes.flush()

    def event(self, event: AnyEvent) -> None:
        """Write what belongs to the answer."""
        match event:
            case TextAdded():
                self._add(event.message_id, event.text)
            case MessageCompleted() if event.message.id not in self._shown:
                if isinstance(event.message.content, AssistantResponseContent):
                    self._add(event.message.id, said(event.message))
            case WarningIssued():
                self.note(f"sennit: {event.notice.text}")
            case MessageCompleted() | ToolCalled() | RunEnded():
                self._close_line()
            case _:
                pass

    def ended(self, talk: ChatSession, result: Return) -> None:
        """Write what there is to say about the end of a run."""
        del talk
        for notice in result.messages:
            if notice.severity == "error":
                self.note(f"sennit: {notice.text}")

    def busy(self) -> None:
        """Say why the next answer takes a while."""
        self.note("sennit: Another process is answering on this branch; waiting for it.")

    def waits(self, talk: ChatSession, calls: list[Message]) -> None:
        """Say what waits for a person, and how to decide."""
        for call in calls:
            self.note(f"sennit: {call_text(called(call))} waits for approval.")
        self.note(
            f"sennit: No more lines are read. To decide, open the chat in a terminal with the same "
            f"tools: {_chat(talk)}. To run tools without approval, send the line again with --yes."
        )

    def left_undone(self, calls: list[Message]) -> None:
        """Say which calls of an earlier line are passed over."""
        for call in calls:
            self.note(f"sennit: {call_text(called(call))} was waiting for approval and is not run.")

    def interrupted(self, talk: ChatSession, left: InterruptedAnswer) -> None:
        """Say what is left of an answer that did not come to its end."""
        for report in left.reports:
            self.note(f"sennit: {report}")
        if left.text:
            self.note(f"sennit: Its text so far: {one_line(left.text)}")
        if not left.elsewhere:
            self.note(
                f"sennit: It is kept, and the lines are sent after it. To resume it instead, open "
                f"the chat in a terminal and type /resume: {_chat(talk)}"
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
        """Nothing is written before the end."""

    def ended(self, talk: ChatSession, result: Return) -> None:
        """Write the answer and how it came about."""
        usage = result.metrics.usage
        told: dict[str, Any] = {
            "answer": result.text,
            "stop_reason": result.stop_reason,
            "session": talk.session.key,
            "branch": talk.branch.name,
            "model": result.metrics.model or talk.partner.model.name,
            "messages": [str(one.id) for one in result.body.interactions if one.role != _USER],
            "notices": [
                {"severity": one.severity, "code": one.code, "text": one.text}
                for one in result.messages
            ],
            "tokens": {"in": usage.input_tokens, "out": usage.output_tokens},
        }
        if result.stop_reason == "suspended":
            told["waiting"] = [called(one).call_id for one in talk.pending_approvals()]
        self._out.write(f"{json.dumps(told, ensure_ascii=False)}\n")
        self._out.flush()


def run(talk: ChatSession, lines: Iterable[bytes], answers: TextAnswers) -> int:
    """Answer each line; gives the exit code, 1 if the last answer failed.

    An answer that waits for a person's decision is the end: what is said after it would be said
    over it.
    """
    answered = True
    with asyncio.Runner() as runner:
        try:
            _run(runner, talk.open())
            if talk.partner.tools:
                answers.note(talk.partner.offered)
            if (waiting := talk.pending_approvals()) and not _passed_over(talk, waiting, answers):
                return WAITING
            if (left := talk.interrupted()) is not None:
                answers.interrupted(talk, left)
            for line in lines:
                text = line.decode("utf-8-sig", "replace").strip("\r\n")
                if text.strip():
                    answered = _run(runner, _exchange(talk, text, answers))
                if not answered and (waiting := talk.pending_approvals()):
                    answers.waits(talk, waiting)
                    return WAITING
        finally:
            _run(runner, talk.close())
    return 0 if answered else 1


def _run(runner: asyncio.Runner, work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine; one that Ctrl-C has kept from starting is closed, lest Python warn of it."""
    try:
        return runner.run(work)
    finally:
        work.close()


def _passed_over(talk: ChatSession, waiting: list[Message], answers: TextAnswers) -> bool:
    """Tell if lines may be said over calls that an earlier line left waiting.

    That is so with --yes. They are not made: whoever was told of --yes says the line again.
    """
    asking = {tool.name for tool in talk.partner.tools if tool.needs_approval}
    if any(called(one).function in asking or not talk.has_tool_of(one) for one in waiting):
        answers.waits(talk, waiting)
        return False
    answers.left_undone(waiting)
    return True


def _chat(talk: ChatSession) -> str:
    return f"sennit chat --session {shlex.quote(talk.session.key or '')}"


async def _exchange(talk: ChatSession, text: str, answers: TextAnswers) -> bool:
    try:
        result = await talk.answer_in_turn(answers.event, text, answers.busy)
    except SennitError as error:
        answers.note(f"sennit: {error}")
        return False
    answers.ended(talk, result)
    return result.stop_reason in _ANSWERED
