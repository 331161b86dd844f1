"""Active runs of this process, as tasks independent of connections.

A run continues when its client disconnects; its events are in the store, where a client that
reconnects reads on. At shutdown each run is suspended, and any process can resume it.
"""

from __future__ import annotations

import logging
import sys
from asyncio import (
    Future,
    Task,
    create_task,
    get_running_loop,
    shield,
    to_thread,
    wait,
)
from collections.abc import AsyncGenerator, Hashable, Iterable, Mapping
from contextlib import aclosing
from typing import Any, TypedDict

from sennit.errors import NotFoundError
from sennit.messages.message import Message
from sennit.server.http.callers import Caller
from sennit.server.http.errors import HTTPError, error_for, log_unexpected, stopping
from sennit.server.http.limits import ActiveCounts
from sennit.sessions.branch import Branch
from sennit.sessions.run_repository import RunRepository
from sennit.turns.conversation import ConversationSession
from sennit.turns.events import AnyEvent, RunEnded, RunStarted
from sennit.turns.options import SessionOptions, StreamingOptions
from sennit.turns.stream import RunStream

_log = logging.getLogger(__name__)

# The HTTP status of a run that was rejected, by the code of its notice.
_REJECTION_STATUSES = {"busy": 409, "access": 403}
_CANCEL_TIMEOUT_SECONDS = 5.0  # a tool may not be cancellable


class ActiveRuns:
    """The runs that are active in this process."""

    def __init__(self, counts: ActiveCounts | None = None) -> None:
        """Start without runs; `counts` limits those of each token and user."""
        self._counts = counts or ActiveCounts("runs", sys.maxsize, 1)
        self._tasks: dict[Task[Any], ConversationSession] = {}
        self._by_branch: dict[Hashable, ConversationSession] = {}
        self._detached: dict[str, Task[None]] = {}
        self._stopping = False

    def check(self, caller: Caller) -> None:
        """Raise HTTPError 429 if the caller has as many runs as are allowed."""
        self._counts.check(caller)

    def on(self, branch: Branch) -> ConversationSession | None:
        """Return the conversation that is running on a branch; None if none is, in this process."""
        return self._by_branch.get(RunRepository(branch).place)

    async def start(
        self,
        conversation: ConversationSession,
        options: SessionOptions | None = None,
        streaming: StreamingOptions | None = None,
        *,
        caller: Caller | None,
        say: str | Message | None = None,
        resume: bool = False,
    ) -> RunStarted:
        """Start or resume a run; raise HTTPError if it is rejected."""
        model = conversation.request.model
        # Reading `streams` may connect to the model, which may block.
        streams = await to_thread(lambda: model.streams)
        started: Future[AnyEvent] = get_running_loop().create_future()
        if self._stopping:  # may be set since the request was accepted
            raise stopping()
        stream = conversation.events(say, options, streaming, resume=resume, pieces=streams)
        self._counts.add(caller)
        task = create_task(self._run(conversation, started, stream))
        self._tasks[task] = conversation
        task.add_done_callback(self._tasks.pop)
        task.add_done_callback(lambda _: self._counts.remove(caller))
        event = await shield(started)  # the run continues if the request is cancelled
        if isinstance(event, RunEnded):
            raise _rejection(event)
        assert isinstance(event, RunStarted)
        return event

    async def _run(
        self,
        conversation: ConversationSession,
        started: Future[AnyEvent],
        stream: RunStream[AnyEvent],
    ) -> None:
        key = RunRepository(conversation.request.branch).place
        try:
            async with stream as events:
                async for event in events:
                    if not started.done():
                        if isinstance(event, RunStarted):
                            self._by_branch[key] = conversation
                        started.set_result(event)
                    if isinstance(event, RunEnded):  # subscribers may start the next run at once
                        self._remove(key, conversation)
        except Exception as error:
            if not started.done():
                started.set_exception(error)
            else:  # no one awaits it; the run is recovered as after a crash
                log_unexpected(_log, "a run", error)
        finally:
            self._remove(key, conversation)
            if not started.done():
                started.cancel()

    def _remove(self, key: Hashable, conversation: ConversationSession) -> None:
        if self._by_branch.get(key) is conversation:
            del self._by_branch[key]

    async def detach(self, name: str, events: AsyncGenerator[AnyEvent], *, caller: Caller) -> None:
        """Run in the background, under a name, and return when the run has started.

        Raises what the run raises before that, and HTTPError 429 if the caller has as many as are
        allowed.
        """
        if self._stopping:
            raise stopping()
        self._counts.add(caller)
        started: Future[None] = get_running_loop().create_future()
        self._detached[name] = task = create_task(_run_detached(events, started))
        task.add_done_callback(lambda _: self._detached.pop(name))
        task.add_done_callback(lambda _: self._counts.remove(caller))
        await shield(started)

    async def cancel_detached(self, name: str) -> None:
        """Cancel a run in the background, if there is one, and wait until it has ended."""
        task = self._detached.get(name)
        if task is not None:
            task.cancel()
            await wait([task])

    async def stop_on(self, branches: Iterable[Branch]) -> None:
        """Cancel the runs on branches, and wait until they have ended or a timeout passes."""
        running = set(filter(None, map(self.on, branches)))
        for conversation in running:
            conversation.cancel("now")
        if ending := [task for task, active in self._tasks.items() if active in running]:
            await wait(ending, timeout=_CANCEL_TIMEOUT_SECONDS)

    async def suspend_all(self, seconds: float) -> None:
        """Suspend all runs, and wait at most so many seconds until they have ended."""
        self._stopping = True
        for conversation in list(self._tasks.values()):
            conversation.suspend()
        for task in self._detached.values():
            task.cancel()
        if ending := [*self._tasks, *self._detached.values()]:
            await wait(ending, timeout=seconds)


async def _run_detached(events: AsyncGenerator[AnyEvent], started: Future[None]) -> None:
    try:
        async with aclosing(events):
            async for _ in events:
                if not started.done():
                    started.set_result(None)
    except Exception as error:
        if started.done():
            log_unexpected(_log, "a run in the background", error)
        else:
            started.set_exception(error)
    finally:
        if not started.done():
            started.cancel()


def _rejection(event: RunEnded) -> HTTPError:
    notice = event.result.notices[0]
    if event.result.stop_reason == "cancelled":
        return stopping()
    if event.result.stop_reason == "error":
        if isinstance(event.result.error, NotFoundError):
            return error_for(event.result.error)
        return HTTPError(503, notice.code, notice.text)
    return HTTPError(_REJECTION_STATUSES.get(notice.code, 422), notice.code, notice.text)


class MemoryOptions(TypedDict):
    """The use of memory in the prompts of a run."""

    recalled: bool
    other_sessions: bool


def run_notes(params: Mapping[str, Any], memory: MemoryOptions) -> dict[str, Any]:
    """Return the options that a run stores, to be resumed with the same.

    Extra headers are omitted, since they may contain credentials.
    """
    stored_params = {name: value for name, value in params.items() if name != "extra_headers"}
    return {"memory": memory, **({"params": stored_params} if stored_params else {})}
