"""A chat session: the session, the current branch and the model that answers.

The terminal and the pipe share this logic; nothing here prints. An edit or a retry happens on a
fork, so that every version stays; only `undo` shortens the current branch.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop, sleep
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from sennit.api.client import Client
from sennit.api.local_models import check_model
from sennit.api.session import Session
from sennit.cli.chat.interrupted import (
    InterruptedAnswer,
    end_interrupted_run,
    interrupted_answer,
    tool_call,
)
from sennit.cli.targets import find_branch, find_session, latest_branch
from sennit.cli.text import message_text, pluralize
from sennit.errors import (
    ExistsError,
    NotFoundError,
    OutOfRangeError,
    SennitError,
    UsageError,
)
from sennit.memory.commit.result import CommitResult
from sennit.memory.retrieval.prompt_context import MemoryContext
from sennit.messages.content import AssistantResponseContent, SystemContent
from sennit.messages.message import Message, MessageRole
from sennit.services.models.imodel import iModel
from sennit.services.models.protocol import Model
from sennit.services.tools.tool import Tool
from sennit.sessions.branch import Branch
from sennit.sessions.unarchived import archives_of
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
from sennit.turns.tools.pending_calls import messages_from_end

if TYPE_CHECKING:
    from sennit.services.tools.mcp import MCPServer


Show: TypeAlias = Callable[[AnyEvent], object]
_DEFAULT_NAME = "chat"
_BUSY_POLL_INTERVAL = 0.1  # seconds between two attempts while another process holds the branch


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """The model that answers, and its options."""

    model: Model
    base_url: str | None = None
    """The server of the model, which a model chosen later uses too."""
    tools: tuple[Tool, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    servers: tuple[MCPServer, ...] = ()
    """Servers whose tools are offered too, from `ChatSession.open` on."""
    use_memory: bool = True
    """True to add memories to prompts."""
    other_sessions: bool = False
    """True to add relevant messages of other sessions to prompts too."""

    @property
    def tools_summary(self) -> str:
        """The names of the tools, and which of them need approval."""
        marks = {tool.name: " (asks first)" if tool.needs_approval else "" for tool in self.tools}
        return f"Tools: {', '.join(f'{name}{mark}' for name, mark in marks.items())}."


class ChatSession:
    """The state of one chat; every change is durable when a method returns."""

    def __init__(
        self,
        session: Session,
        options: ChatOptions,
        branch: str | None = None,
        *,
        client: Client | None = None,
    ) -> None:
        """Open a branch, by default the one used last; a `client` opens other sessions."""
        self.session, self.options = session, options
        self._client = client
        self.listed_sessions: list[UUID] = []
        """The sessions that /sessions has shown, in order: /open takes their numbers."""
        self._former_models: list[Model] = []
        self._connecting: Future[SennitError | None] | None = None
        self.removed_committed: list[Message] = []
        """The messages removed by the last `undo` that had been committed before."""
        self.branch = self._find_branch(branch)
        self._running = _Running(None)

    @property
    def questions(self) -> list[Message]:
        """The user's messages on the branch, in order."""
        return [message for message in self.branch.messages if message.role is MessageRole.USER]

    async def answer(self, show: Show, say: str | None = None) -> Return:
        """Run the model, passing events to `show` as they arrive; return the result.

        `say` is appended as the run starts, so that no other process answers it. Cancelling the
        task ends the run too; the text so far is kept.
        """
        return await self._run(show, say=say)

    async def resume(self, show: Show) -> Return:
        """Resume an answer that waited for approval or was interrupted."""
        return await self._run(show, resume=True)

    async def answer_when_free(self, show: Show, say: str, on_busy: Callable[[], object]) -> Return:
        """Run `answer`, retrying while another process holds the branch.

        `on_busy` is called once, before the first retry.
        """
        result = await self._run(_skip_busy(show), say=say)
        if _is_busy(result):
            on_busy()
        while _is_busy(result):
            await sleep(_BUSY_POLL_INTERVAL)
            result = await self._run(_skip_busy(show), say=say)
        return result

    def pending_approvals(self) -> list[Message]:
        """Return the tool calls that need approval."""
        return self._conversation().pending_approvals()

    def interrupted(self) -> InterruptedAnswer | None:
        """Return the last answer if it was interrupted and has no pending approval."""
        if self.pending_approvals():
            return None
        return interrupted_answer(self.branch, self.options.tools)

    def has_tool_of(self, call: Message) -> bool:
        """Return whether the tool of a call is offered in this chat."""
        return any(tool.name == tool_call(call).function for tool in self.options.tools)

    async def decide(self, call: Message, reason: str | None) -> None:
        """Approve a pending call if `reason` is None, else deny it with that reason."""
        conversation, call_id = self._conversation(), tool_call(call).call_id or str(call.id)
        if reason is None:
            await conversation.aapprove(call_id, resume=False)
        else:
            await conversation.adeny(call_id, reason, resume=False)

    def _conversation(self) -> ConversationSession:
        model, tools = self.options.model, self.options.tools
        if self.branch.fenced:  # the user has chosen the model and the tools
            self.branch.grant(resources={model.name, *(tool.name for tool in tools)})
        memory = MemoryContext(self.session.memory, other_sessions=self.options.other_sessions)
        contexts = [memory] if self.options.use_memory else []
        return self.session.conversation(
            self.branch, model=model, tools=tools, contexts=contexts, **self.options.params
        )

    async def _run(self, show: Show, *, resume: bool = False, say: str | None = None) -> Return:
        model, conversation = self.options.model, self._conversation()
        self._running = running = _Running(conversation)
        try:
            if not model.streams:
                running.start()
                known_ids = set(self.branch)
                if say is not None:
                    return _show_result(await conversation.asay(say), known_ids, show)
                run = conversation.aresume if resume else conversation.arun
                return _show_result(await run(), known_ids, show)
            async with conversation.events(say, resume=resume) as events:
                async for event in events:
                    if isinstance(event, RunStarted):
                        running.start()
                    if not _is_interrupted_text(event):
                        show(event)
                return events.result
        finally:
            self._running = _Running(None)

    def cancel(self) -> None:
        """Stop the running answer, if any; its text so far is kept."""
        self._running.cancel()

    async def open(self) -> None:
        """Connect to the MCP servers; raise ToolError, or ExistsError for a duplicate tool name."""
        tools = {tool.name: tool for tool in self.options.tools}
        for server in self.options.servers:
            for tool in (await server.aconnect()).tools:
                if tools.setdefault(tool.name, tool) is not tool:
                    raise ExistsError(
                        f"Duplicate tool name {tool.name!r} from MCP server {server.name!r}."
                    )
        self.options = replace(self.options, tools=tuple(tools.values()))

    async def close(self) -> None:
        """Close the connections of the MCP servers and the model."""
        for server in self.options.servers:
            await server.aclose()
        for model in (*self._former_models, self.options.model):
            close = getattr(model, "aclose", None)
            if close is not None:
                await close()

    def commit(self) -> CommitResult:
        """Archive the new messages of the branch and extract memories from them."""
        self.session.refresh()
        return self.session.commit(branch=self.branch)

    @property
    def client(self) -> Client:
        """The client that opens other sessions."""
        if self._client is None:
            raise UsageError("This chat has no client, so it cannot open another session.")
        return self._client

    @property
    def name(self) -> str:
        """The name of the session, or its id."""
        return self.session.key or str(self.session.id)

    def open_session(self, name: str | UUID) -> None:
        """Continue another session; raise NotFoundError with the closest name."""
        listing = "/sessions"
        if isinstance(name, str) and name.isdecimal():
            shown = pluralize(len(self.listed_sessions), "session")
            listing = f"The last list has {shown}; /sessions"
        self.session = find_session(self.client, name, list_command=listing)
        self.removed_committed = []
        self.branch = self._find_branch(None)

    def new_session(self, name: str | None) -> None:
        """Begin a session, by default under a free name; raise ExistsError."""
        if name is None:
            numbers = count(2)
            while self._exists(name := f"{_DEFAULT_NAME}-{next(numbers)}"):
                pass
        elif self._exists(name):
            raise ExistsError(f"There is already a session {name!r}; /open {name} opens it.")
        self.session = self.client.session(name)
        self.removed_committed = []
        self.branch = self._find_branch(None)

    def _exists(self, name: str) -> bool:
        try:
            self.client.session_info(name)
        except NotFoundError:
            return False
        return True

    def use_model(self, name: str) -> None:
        """Answer with another model from now on; raise ValidationError for a wrong name.

        A model of the same provider is on the same server.
        """
        base_url = self.options.base_url
        if name.partition(":")[0] != self.options.model.name.partition(":")[0]:
            base_url = None
        model = iModel(name, base_url=base_url)
        check_model(name)
        self._former_models.append(self.options.model)
        self.options = replace(self.options, model=model, base_url=base_url)
        self._connecting = None

    def connect(self) -> Future[SennitError | None]:
        """Start to connect to the model, unless it has been started; return a future of the end.

        Its result is the error that an answer would raise, if any. Importing a provider may take
        seconds. The thread is a daemon, so that the end of the program does not wait for it, and
        the answer waits for it, since imports in two threads may collide.
        """
        if self._connecting is None:
            loop, model = get_running_loop(), self.options.model
            self._connecting = future = loop.create_future()

            def connect() -> None:
                error: SennitError | None = None
                with suppress(Exception):
                    if isinstance(model, iModel):
                        error = model.ready()
                    else:
                        _ = model.window  # connects
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(_finish, future, error)

            Thread(target=connect, daemon=True).start()
        return self._connecting

    async def discard(self) -> str:
        """Discard an interrupted answer and remove its question; return the text of that."""
        await end_interrupted_run(self.branch)
        return message_text(self.undo())

    def fork(self, name: str | None = None) -> Branch:
        """Fork the branch and switch to the fork."""
        self.branch = self.branch.fork(name=name, capabilities=True, resources=True, system=True)
        return self.branch

    def switch(self, name: str) -> Branch:
        """Switch to another branch; raise NotFoundError with the closest name."""
        self.branch = self._find_branch(name)
        return self.branch

    def edit(self, number: int | None, text: str) -> Branch:
        """Switch to a fork on which a question, the last or number `number`, is `text`."""
        self.branch = self.branch.edit(self.question(number), text)
        return self.branch

    def question(self, number: int | None = None) -> Message:
        """Return the last question, or the one numbered `number`; raise OutOfRangeError."""
        questions = self.questions
        if not questions:
            raise NotFoundError("You have not sent a message on this branch yet.")
        if number is None:
            return questions[-1]
        numbered = {self.number(message): message for message in questions}
        if number not in numbered:
            raise OutOfRangeError(
                f"Message {number} is not one of your messages; /history shows their numbers."
            )
        return numbered[number]

    def last_answer(self) -> Message:
        """Return the last answer on the branch; raise NotFoundError."""
        for message in messages_from_end(self.branch):
            if isinstance(message.content, AssistantResponseContent) and not message.content.empty:
                return message
        raise NotFoundError("There is no answer on this branch yet.")

    def number(self, message: Message) -> int:
        """Return the position of a message on the branch, counted from 1."""
        return self.branch.index(message) + 1

    def retry(self) -> bool:
        """Prepare another answer to the last question; return whether that took a fork.

        A question without any answer text is answered on the same branch.
        """
        position, interrupted = self.branch.index(self.question()), self.interrupted()
        if position + 1 == len(self.branch) and (interrupted is None or not interrupted.text):
            return False
        self.branch = self.branch.fork(at=position, capabilities=True, resources=True, system=True)
        return True

    def undo(self) -> Message:
        """Remove the last question and everything after it from the branch; return the question."""
        question = self.question()
        since = self.branch.index(question)
        archived = archives_of(self.session).covering
        self.removed_committed = [
            message for message in self.branch.messages[since:] if message.id.int in archived
        ]
        del self.branch[since:]
        return question

    def forget(self) -> int:
        """Erase the committed messages removed by the last `undo`, and the memories based on them.

        Return their number. Removed messages that were never committed are purged by retention.
        """
        messages, self.removed_committed = self.removed_committed, []
        self.session.remove_messages(messages)
        return len(messages)

    def set_system(self, text: str | None) -> None:
        """Set the system message of the branch, or remove it."""
        system = None if text is None else Message(SystemContent(system_message=text))
        self.session.set_branch_system(self.branch, system)

    @property
    def system_text(self) -> str | None:
        """The text of the branch's system message, if it has one."""
        system = self.branch.system
        return None if system is None else str(system.rendered)

    def _find_branch(self, name: str | None) -> Branch:
        """Return the branch of that name, or the one used last; create main if there is none."""
        self.session.refresh()
        if name is not None and name != "main":
            return find_branch(self.session, name)
        latest = latest_branch(self.session) if name is None else None
        return self.session.default_branch if latest is None else latest


@dataclass(slots=True)
class _Running:
    """A running answer. A cancellation before the run has started is deferred until then: the
    conversation would ignore it, and Ctrl-C right after Enter would have no effect."""

    conversation: ConversationSession | None
    started: bool = False
    cancelled: bool = False

    def start(self) -> None:
        self.started = True
        if self.cancelled and self.conversation is not None:
            self.conversation.cancel()

    def cancel(self) -> None:
        if self.started and not self.cancelled and self.conversation is not None:
            self.conversation.cancel()
        self.cancelled = True


def _finish(future: Future[SennitError | None], error: SennitError | None) -> None:
    if not future.done():
        future.set_result(error)


def _show_result(result: Return, known_ids: set[UUID], show: Show) -> Return:
    """Pass the messages of a run that was not streamed to `show`, as events."""
    kinds = {"action_request": ToolCalled, "action_response": ToolCompleted}
    event_ids: dict[str, Any] = {"seq": result.seq, "run_id": result.run_id}
    for message in (added for added in result.body.interactions if added.id not in known_ids):
        event = kinds.get(message.content.kind, MessageCompleted)(message=message, **event_ids)
        if not _is_interrupted_text(event):
            show(event)
    show(RunEnded(result=result, **event_ids))
    return result


def _is_busy(result: Return) -> bool:
    """Return whether a run was refused because another one holds the branch."""
    return result.stop_reason == "invalid" and any(
        notice.code == "busy" for notice in result.notices
    )


def _skip_busy(show: Show) -> Show:
    def show_unless_busy(event: AnyEvent) -> None:
        if not (isinstance(event, RunEnded) and _is_busy(event.result)):
            show(event)

    return show_unless_busy


def _is_interrupted_text(event: AnyEvent) -> bool:
    """Return whether an event stores the text of an earlier, interrupted answer."""
    return (
        isinstance(event, MessageCompleted)
        and event.message.metadata.get("finish_reason") == "interrupted"
    )
