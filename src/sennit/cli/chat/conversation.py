"""A chat session: the session, the current branch and the model that answers.

What both faces of `sennit chat` do, the terminal and the pipe, is said here once, in terms of the
conversation itself; nothing here prints. Rewriting what was said happens on a fork, so that every
version stays; only `undo` shortens the branch one is on.
"""

from __future__ import annotations

from asyncio import sleep, to_thread
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from sennit.api.session import Session
from sennit.cli.chat.interrupted import (
    InterruptedAnswer,
    called,
    interrupted,
    started,
    started_before,
)
from sennit.cli.targets import branch_named, latest_branch
from sennit.errors import ExistsError, NotFoundError, OutOfRangeError
from sennit.memory.commit.result import CommitResult
from sennit.memory.retrieval.prompt_context import MemoryContext
from sennit.messages.content import SystemContent
from sennit.messages.message import Message, MessageRole
from sennit.services.models.protocol import Model
from sennit.services.tools.tool import Tool
from sennit.sessions.branch import Branch
from sennit.turns.conversation import ConversationSession
from sennit.turns.events import (
    AnyEvent,
    MessageCompleted,
    RunEnded,
    RunStarted,
    ToolCalled,
    ToolCompleted,
)
from sennit.turns.result import Return

if TYPE_CHECKING:
    from sennit.services.tools.mcp import MCPServer


Show: TypeAlias = Callable[[AnyEvent], object]
_PAUSE = 0.1  # seconds between two looks whether another program still answers


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """The model that answers, and its options."""

    model: Model
    tools: tuple[Tool, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    servers: tuple[MCPServer, ...] = ()
    """Servers whose tools are offered too, from `ChatSession.open` on."""

    @property
    def offered(self) -> str:
        """The tools there are, and which of them ask."""
        asking = {one.name: " (asks first)" if one.needs_approval else "" for one in self.tools}
        return f"Tools: {', '.join(f'{name}{asks}' for name, asks in asking.items())}."


class ChatSession:
    """A conversation as somebody leads it; every change is durable when a method returns."""

    def __init__(
        self,
        session: Session,
        partner: ChatOptions,
        branch: str | None = None,
        *,
        remembers: bool = True,
        other_sessions: bool = False,
    ) -> None:
        """`remembers` puts what is remembered of the user into prompts.

        With `other_sessions` messages of other sessions that fit come too.
        """
        self.session, self.partner, self.remembers = session, partner, remembers
        self.committed: list[Message] = []
        """What was taken back last and had been committed before."""
        self._other_sessions = other_sessions
        self.branch = self._branch(branch)
        self._running = _Running(None)

    @property
    def questions(self) -> list[Message]:
        """The user's messages on the branch, in order."""
        return [one for one in self.branch.messages if one.role is MessageRole.USER]

    async def answer(self, show: Show, say: str | None = None) -> Return:
        """Let the model answer, showing events as they come; gives how it ended.

        What the user says is put on the branch as the answer begins, so that no other program
        answers it. Being cancelled from outside ends the run too; what was said until then is kept.
        """
        return await self._run(show, say=say)

    async def go_on(self, show: Show) -> Return:
        """Go on with an answer that waited for a decision, or was interrupted."""
        return await self._run(show, resume=True)

    async def answer_in_turn(self, show: Show, say: str, waits: Callable[[], object]) -> Return:
        """Answer as `answer` does; while another program answers on the branch, wait for that.

        `waits` is called once if that is so.
        """
        result = await self._run(_unless_busy(show), say=say)
        if _is_busy(result):
            waits()
        while _is_busy(result):
            await sleep(_PAUSE)
            result = await self._run(_unless_busy(show), say=say)
        return result

    def pending_approvals(self) -> list[Message]:
        """The tool calls of the answer that wait for a decision."""
        return self._conversation().pending_approvals()

    def interrupted(self) -> InterruptedAnswer | None:
        """Return the last answer if it did not come to its end and waits for no decision."""
        return None if self.pending_approvals() else interrupted(self.branch, self.partner.tools)

    def has_tool_of(self, call: Message) -> bool:
        """Tell if the tool of a call is among those that the model may call here."""
        return any(tool.name == called(call).function for tool in self.partner.tools)

    def started_since(self, question: Message) -> list[str]:
        """Return the tool calls behind a question that were started."""
        return started(self.branch, self.branch.messages[self.branch.index(question) + 1 :])

    def started_before(self, call: Message) -> bool:
        """Tell if a call, or one just like it, was started before."""
        return started_before(self.branch, call)

    async def decide(self, call: Message, reason: str | None) -> None:
        """Allow a call that waits; with a reason, even an empty one, refuse it."""
        conversation, call_id = self._conversation(), called(call).call_id or str(call.id)
        if reason is None:
            await conversation.approve(call_id, resume=False)
        else:
            await conversation.deny(call_id, reason, resume=False)

    def _conversation(self) -> ConversationSession:
        model, tools = self.partner.model, self.partner.tools
        if self.branch.fenced:  # the user of the terminal has chosen the model and the tools
            self.branch.grant(resources={model.name, *(tool.name for tool in tools)})
        memory = MemoryContext(self.session.memory, other_sessions=self._other_sessions)
        contexts = [memory] if self.remembers else []
        return self.session.conversation(
            self.branch, model=model, tools=tools, contexts=contexts, **self.partner.params
        )

    async def _run(self, show: Show, *, resume: bool = False, say: str | None = None) -> Return:
        model, conversation = self.partner.model, self._conversation()
        self._running = running = _Running(conversation)
        try:
            # Whether a model streams is known once it is connected, which may take a while.
            if not await to_thread(lambda: model.streams):
                running.begin()
                before = set(self.branch)
                if say is not None:
                    return _told(await conversation.say(say), before, show)
                run = conversation.resume if resume else conversation.run_to_stable_result
                return _told(await run(), before, show)
            async with conversation.events(resume=resume, say=say) as events:
                async for event in events:
                    if isinstance(event, RunStarted):
                        running.begin()
                    if not _is_left_over(event):
                        show(event)
                return await events.result
        finally:
            self._running = _Running(None)

    def cancel(self) -> None:
        """Stop the answer, if there is one; what was said so far is kept."""
        self._running.cancel()

    async def open(self) -> None:
        """Connect to the servers; raises ToolError, and ExistsError for a tool there twice."""
        tools = {tool.name: tool for tool in self.partner.tools}
        for server in self.partner.servers:
            for tool in (await server.connect()).tools:
                if tools.setdefault(tool.name, tool) is not tool:
                    raise ExistsError(
                        f"Duplicate tool name {tool.name!r} from MCP server {server.name!r}."
                    )
        self.partner = replace(self.partner, tools=tuple(tools.values()))

    async def close(self) -> None:
        """Let go of what the model and the servers hold open."""
        for server in self.partner.servers:
            await server.close()
        close = getattr(self.partner.model, "aclose", None)
        if close is not None:
            await close()

    def commit(self) -> CommitResult:
        """Archive what is new on the branch, and remember what matters of it."""
        self.session.refresh()
        return self.session.commit(branch=self.branch)

    def fork(self, name: str | None = None) -> Branch:
        """Go on with the same history on a new branch."""
        self.branch = self.branch.fork(name=name, capabilities=True, resources=True, system=True)
        return self.branch

    def switch(self, name: str) -> Branch:
        """Go to another branch; raises NotFoundError with the nearest name."""
        self.branch = self._branch(name)
        return self.branch

    def edit(self, number: int | None, text: str) -> Branch:
        """Go to a fork on which a question, the last or that number, says `text` instead."""
        self.branch = self.branch.edit(self.question(number), text)
        return self.branch

    def question(self, number: int | None = None) -> Message:
        """Return the last question, or that of a number; raises OutOfRangeError for any other."""
        asked = self.questions
        if not asked:
            raise NotFoundError("You have not sent a message on this branch yet.")
        if number is None:
            return asked[-1]
        numbered = {self.number(one): one for one in asked}
        if number not in numbered:
            told = f"Message {number} is not one of your messages"
            raise OutOfRangeError(f"{told}; /history shows their numbers.")
        return numbered[number]

    def number(self, message: Message) -> int:
        """Return the number of a message: its place on the branch, counted from 1."""
        return self.branch.index(message) + 1

    def retry(self) -> bool:
        """Make room for another answer to the last question; tells whether that took a fork.

        A question that got no answer, not a word of it, is asked again where it stands.
        """
        position, left = self.branch.index(self.question()), self.interrupted()
        if position + 1 == len(self.branch) and (left is None or not left.text):
            return False
        self.branch = self.branch.fork(at=position, capabilities=True, resources=True, system=True)
        return True

    def undo(self) -> Message:
        """Take the last question and all that came after it off the branch; gives the question."""
        question = self.question()
        since = self.branch.index(question)
        known = self.session.archives.covering
        self.committed = [one for one in self.branch.messages[since:] if one.id.int in known]
        del self.branch[since:]
        return question

    def forget(self) -> int:
        """Erase what was taken back last, with what was learnt from it; gives how many messages.

        For what had been committed; all else that was taken back is erased by itself.
        """
        gone, self.committed = self.committed, []
        self.session.remove_messages(gone)
        return len(gone)

    def instruct(self, text: str | None) -> None:
        """Give the branch a system message, or none."""
        system = None if text is None else Message(SystemContent(system_message=text))
        self.session.set_branch_system(self.branch, system)

    @property
    def instructions(self) -> str | None:
        """The text of the branch's system message, if it has one."""
        system = self.branch.system
        return None if system is None else str(system.rendered)

    def _branch(self, name: str | None) -> Branch:
        """The branch of that name, or the one used last; the main one is made if need be."""
        self.session.refresh()
        if name is not None and name != "main":
            return branch_named(self.session, name)
        last = latest_branch(self.session) if name is None else None
        return self.session.default_branch if last is None else last


@dataclass(slots=True)
class _Running:
    """An answer under way. A run is cancelled once, and not before it has begun: the conversation
    would take no notice, and somebody who presses Ctrl-C right after Enter would wait in vain."""

    conversation: ConversationSession | None
    begun: bool = False
    cancelled: bool = False

    def begin(self) -> None:
        self.begun = True
        if self.cancelled and self.conversation is not None:
            self.conversation.cancel()

    def cancel(self) -> None:
        if self.begun and not self.cancelled and self.conversation is not None:
            self.conversation.cancel()
        self.cancelled = True


def _told(result: Return, before: set[UUID], show: Show) -> Return:
    """Show what a run that was not streamed has added, as if it had been."""
    kinds = {"action_request": ToolCalled, "action_response": ToolCompleted}
    where: dict[str, Any] = {"seq": result.seq, "run_id": result.run_id}
    for message in (one for one in result.body.interactions if one.id not in before):
        event = kinds.get(message.content.kind, MessageCompleted)(message=message, **where)
        if not _is_left_over(event):
            show(event)
    show(RunEnded(result=result, **where))
    return result


def _is_busy(result: Return) -> bool:
    """Tell if a run was refused because another one holds the branch."""
    return result.stop_reason == "invalid" and any(one.code == "busy" for one in result.messages)


def _unless_busy(show: Show) -> Show:
    def shown(event: AnyEvent) -> None:
        if not (isinstance(event, RunEnded) and _is_busy(event.result)):
            show(event)

    return shown


def _is_left_over(event: AnyEvent) -> bool:
    """Tell if an event puts the words of an earlier, interrupted answer on the branch."""
    return (
        isinstance(event, MessageCompleted)
        and event.message.metadata.get("finish_reason") == "interrupted"
    )
