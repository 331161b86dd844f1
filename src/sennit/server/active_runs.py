"""Runs of this server, as tasks that no connection owns.

A run goes on whoever listens; its events are in the store, so whoever comes back reads on from
there. When the server ends, each run is suspended, and any server can go on with it.
"""

from __future__ import annotations

import logging
from asyncio import (
    Future,
    Task,
    create_task,
    current_task,
    get_running_loop,
    shield,
    to_thread,
    wait,
)
from collections.abc import Generator, Hashable, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, TypedDict

from sennit.messages.message import Message
from sennit.server.http.callers import Caller
from sennit.server.http.errors import HTTPError, log_unforeseen
from sennit.server.http.limits import ActiveCounts
from sennit.sessions.branch import Branch
from sennit.sessions.run_repository import RunRepository
from sennit.turns.conversation import ConversationSession
from sennit.turns.events import AnyEvent, RunEnded, RunStarted
from sennit.turns.options import SessionOptions, StreamingOptions

_log = logging.getLogger(__name__)

# What a run that was not begun says of why, and which status that is.
_REFUSED = {"busy": 409, "access": 403}
_PATIENCE = 5.0  # seconds for runs to end on what is deleted; a tool may not let itself be stopped


class ActiveRuns:
    """The runs that are under way here."""

    def __init__(self, counts: ActiveCounts | None = None) -> None:
        """`counts` limits the runs of each token and each user."""
        self._counts = counts
        self._tasks: dict[Task[Any], ConversationSession] = {}
        self._by_place: dict[Hashable, ConversationSession] = {}
        self._stopping = False

    def check(self, caller: Caller) -> None:
        """Raise HTTPError 429 if the caller has as many runs as are allowed."""
        if self._counts is not None:
            self._counts.check(caller)

    def on(self, branch: Branch) -> ConversationSession | None:
        """The conversation that runs on a branch, if one does so here."""
        return self._by_place.get(RunRepository(branch).place)

    async def start(
        self,
        conversation: ConversationSession,
        options: SessionOptions | None = None,
        streaming: StreamingOptions | None = None,
        *,
        caller: Caller,
        say: str | Message | None = None,
        resume: bool = False,
    ) -> RunStarted:
        """Start a run, or go on with one; raises Problem if it is refused."""
        model = conversation.request.model
        # Whether a model streams is known once it is connected, which may take a while.
        streams = await to_thread(lambda: model.streams)
        started: Future[AnyEvent] = get_running_loop().create_future()
        if self._stopping:  # whoever came in before that must not begin after it
            raise _stopping()
        arguments: dict[str, Any] = {"say": say, "resume": resume, "pieces": streams}
        if self._counts is not None:
            self._counts.add(caller)
        task = create_task(self._run(conversation, started, options, streaming, arguments))
        self._tasks[task] = conversation
        task.add_done_callback(self._tasks.pop)
        if self._counts is not None:
            counts = self._counts
            task.add_done_callback(lambda _: counts.take_off(caller))
        event = await shield(started)  # the run goes on if whoever asked for it is gone
        if isinstance(event, RunEnded):
            raise _refused(event)
        assert isinstance(event, RunStarted)
        return event

    async def _run(
        self,
        conversation: ConversationSession,
        started: Future[AnyEvent],
        options: SessionOptions | None,
        streaming: StreamingOptions | None,
        arguments: dict[str, Any],
    ) -> None:
        key = RunRepository(conversation.request.branch).place
        try:
            async with conversation.events(options, streaming, **arguments) as events:
                async for event in events:
                    if not started.done():
                        if isinstance(event, RunStarted):
                            self._by_place[key] = conversation
                        started.set_result(event)
                    if isinstance(event, RunEnded):  # who hears that acts on it at once
                        self._leave(key, conversation)
        except Exception as error:
            if not started.done():
                started.set_exception(error)
            else:  # nobody waits for it; the run is found as after a crash
                log_unforeseen(_log, "a run", error)
        finally:
            self._leave(key, conversation)
            if not started.done():
                started.cancel()

    def _leave(self, key: Hashable, conversation: ConversationSession) -> None:
        if self._by_place.get(key) is conversation:
            del self._by_place[key]

    @contextmanager
    def including(self, conversation: ConversationSession) -> Generator[None]:
        """A run of the task that is running now counts as one of these: it is suspended too."""
        task = current_task()
        assert task is not None
        self._tasks[task] = conversation
        try:
            yield
        finally:
            self._tasks.pop(task, None)

    async def stop_on(self, branches: Iterable[Branch]) -> None:
        """Cancel the runs that are under way on branches, and wait until they have ended."""
        running = {conversation_on for branch in branches if (conversation_on := self.on(branch)) is not None}
        for conversation in running:
            conversation.cancel("now")
        if ending := [task for task, one in self._tasks.items() if one in running]:
            await wait(ending, timeout=_PATIENCE)

    async def suspend_all(self, seconds: float) -> None:
        """Suspend all runs, and wait until that is durable, but no longer than that."""
        self._stopping = True
        for conversation in list(self._tasks.values()):
            conversation.suspend()
        if self._tasks:
            await wait(self._tasks, timeout=seconds)


def _refused(event: RunEnded) -> HTTPError:
    notice = event.result.messages[0]
    if event.result.stop_reason == "cancelled":
        return _stopping()
    if event.result.stop_reason == "error":
        return HTTPError(503, notice.code, notice.text)
    return HTTPError(_REFUSED.get(notice.code, 422), notice.code, notice.text)


def _stopping() -> HTTPError:
    return HTTPError(503, "stopping", "The server is shutting down; try again in a moment.")


class MemoryOptions(TypedDict):
    """The parts of memory that a run puts into its prompts."""

    recalled: bool
    other_sessions: bool


def run_notes(params: Mapping[str, Any], memory: MemoryOptions) -> dict[str, Any]:
    """Return what a run records so that it is resumed as it was asked for.

    Headers are left out: they may hold a credential.
    """
    stored_params = {name: value for name, value in params.items() if name != "extra_headers"}
    return {"memory": memory, **({"params": stored_params} if stored_params else {})}
