"""A tool call on an MCP server: the questions that it asks the user, and the task it may become.

A server may ask the user by elicitation, in the middle of a call or as its result, upon which the
call is sent again with the answers. A server with the tasks extension may answer with a task, which
is polled until it ends; it outlives the connection. A server is not trusted: it reaches the user
only through the program's handler, and without one every question is declined.
"""

from __future__ import annotations

import logging
from asyncio import CancelledError, sleep, to_thread, wait_for
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from sennit.errors import ToolError
from sennit.finish_uncancelled import finish_uncancelled

if TYPE_CHECKING:
    from mcp import ClientSession
    from mcp_types import ElicitResult

TASKS_EXTENSION = "io.modelcontextprotocol/tasks"
_MAX_ROUNDS = 20
_STATE_POLL_SECONDS = 0.25  # for a server that wants the call again, but asks nothing
_DEFAULT_POLL_MS, _MIN_POLL_MS, _MAX_POLL_MS = 1_000, 50, 60_000
_CANCEL_TIMEOUT_SECONDS = 1.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Elicitation:
    """A question of an MCP server to the user."""

    server: str
    """The program or host that asks."""
    message: str
    """The question."""
    schema: Mapping[str, Any] | None = None
    """The JSON schema of the answer, an object with plain fields; None for a URL."""
    url: str | None = None
    """An address that the user is asked to open; None for a question."""


Answer: TypeAlias = Mapping[str, Any] | None
"""The fields of the schema, empty for a URL that the user opened; None to decline."""
ElicitationHandler: TypeAlias = Callable[[Elicitation], Answer | Awaitable[Answer]]
"""Answers questions of MCP servers; a plain function is called in a thread."""
Ask: TypeAlias = "Callable[[Any], Awaitable[ElicitResult]]"
"""Answers the parameters of an elicitation."""


class RemoteCall:
    """The state of one call: its parameters, and its task if it became one."""

    def __init__(self, server: str, name: str, arguments: Mapping[str, Any], ask: Ask) -> None:
        self._server, self._ask = server, ask
        self._params: dict[str, Any] = {"name": name, "arguments": dict(arguments)}
        self._task: dict[str, Any] | None = None
        self._answered: set[str] = set()

    @property
    def is_task(self) -> bool:
        """True if the call became a task, which a new connection can continue."""
        return self._task is not None

    async def finish(self, session: ClientSession) -> dict[str, Any]:
        """Return the final result, on the wire; raises MCPError, ToolError."""
        if self._task is None:
            result = await self._call(session)
            if result.get("resultType") != "task":
                return result
            self._task = result
        try:
            return await self._poll(session, str(self._task.get("taskId")))
        except CancelledError:
            with suppress(Exception):
                cancel = self._send(session, "tasks/cancel", taskId=self._task.get("taskId"))
                await finish_uncancelled(wait_for(cancel, _CANCEL_TIMEOUT_SECONDS))
            raise

    async def _call(self, session: ClientSession) -> dict[str, Any]:
        """Call the tool until the server asks no more questions."""
        for _ in range(_MAX_ROUNDS):
            result = await self._send(session, "tools/call", **self._params)
            if result.get("resultType") != "input_required":
                return result
            requests = cast("dict[str, Any]", result.get("inputRequests") or {})
            if not requests:
                await sleep(_STATE_POLL_SECONDS)
            self._params["inputResponses"] = await self._answers(requests)
            self._params["requestState"] = result.get("requestState")
        raise ToolError(
            f"MCP server {self._server!r} asked more than {_MAX_ROUNDS} times during one call."
        )

    async def _poll(self, session: ClientSession, task_id: str) -> dict[str, Any]:
        """Wait for the end of the task and return its result."""
        while True:
            assert self._task is not None
            await sleep(_poll_seconds(self._task.get("pollIntervalMs")))
            self._task = await self._send(session, "tasks/get", taskId=task_id)
            match self._task.get("status"):
                case "completed":
                    return cast("dict[str, Any]", self._task.get("result") or {})
                case "failed" | "cancelled" as status:
                    error = cast("dict[str, Any]", self._task.get("error") or {})
                    reason = error.get("message") or self._task.get("statusMessage") or ""
                    raise ToolError(f"The task {status}: {reason}" if reason else f"It {status}.")
                case "input_required":
                    await self._update(session, task_id)
                case _:
                    pass

    async def _update(self, session: ClientSession, task_id: str) -> None:
        """Answer the questions of the task that were not answered yet."""
        assert self._task is not None
        requests = cast("dict[str, Any]", self._task.get("inputRequests") or {})
        new = {key: asked for key, asked in requests.items() if key not in self._answered}
        if new:
            answers = await self._answers(new)
            self._answered.update(new)
            await self._send(session, "tasks/update", taskId=task_id, inputResponses=answers)

    async def _answers(self, requests: Mapping[str, Any]) -> dict[str, Any]:
        from mcp_types import ElicitRequest

        answers: dict[str, Any] = {}
        for key, request in requests.items():
            if request.get("method") != "elicitation/create":
                raise ToolError(
                    f"MCP server {self._server!r} needs {request.get('method')!r} of its client, "
                    f"which is not supported."
                )
            parsed = ElicitRequest.model_validate(request, by_name=False)
            answer = await self._ask(parsed.params)
            answers[key] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
        return answers

    async def _send(self, session: ClientSession, method: str, **params: Any) -> dict[str, Any]:
        """Send a request and return its result as it is on the wire.

        It is not sent by `call_tool`, which validates the result against the server's output
        schema: its patterns are untrusted regular expressions, which may never finish.
        """
        from mcp_types import Request

        class TaskRequest(Request[dict[str, Any], str]):
            name_param = "taskId"  # sent as a header, by which a balancer finds the process

        kind = TaskRequest if method.startswith("tasks/") else Request[dict[str, Any], str]
        return await session.send_request(kind(method=method, params=params), _json_object())


@cache
def _json_object() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(dict[str, Any])


def _poll_seconds(interval: Any) -> float:
    milliseconds = interval if isinstance(interval, int) else _DEFAULT_POLL_MS
    return min(max(milliseconds, _MIN_POLL_MS), _MAX_POLL_MS) / 1_000


async def answer_elicitation(
    server: str, handler: ElicitationHandler | None, params: Any
) -> ElicitResult:
    """Return the answer of a handler to elicitation parameters; without one it is declined."""
    from mcp_types import ElicitResult

    if handler is None:
        return ElicitResult(action="decline")
    url = getattr(params, "url", None)
    schema = getattr(params, "requested_schema", None)
    question = Elicitation(server, str(params.message), schema, url)
    try:
        if iscoroutinefunction(handler):
            content = await handler(question)
        else:
            answer = await to_thread(handler, question)
            content = await answer if isawaitable(answer) else answer
        if content is None:
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content=dict(content) if url is None else None)
    except Exception:
        _log.exception("The handler of questions of MCP server %r failed; it is declined", server)
        return ElicitResult(action="decline")
