"""The three ways to answer a tool call that starts a run: a result, a question, a task.

- A client waits for the result. It is told of the progress, and cancels the run with its request.
- If a tool call of the run needs approval, a client with elicitation asks its user. Since protocol
  version 2026-07-28 it gets the question as the result and sends the call again with the answer;
  before, the server asks while the client waits.
- A client that declares the extension `io.modelcontextprotocol/tasks` gets a task at once, and
  polls it. The task is the handle of the run, so it outlives connections and restarts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, cast

from sennit.errors import SennitError
from sennit.messages.codec import dumps
from sennit.messages.message import Message
from sennit.server.mcp.runs import (
    ClientRun,
    Decision,
    RunStatus,
    cancel_run,
    decide_calls,
    find_run,
    follow_run,
    outcome,
    resume_run,
    run_status,
    tool_arguments,
    tool_name,
)
from sennit.server.mcp.scope import McpScope, cut

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp_types import CallToolResult, ElicitRequest, InputRequiredResult

    Context = ServerRequestContext[Any, Any]

TASKS_EXTENSION = "io.modelcontextprotocol/tasks"
_POLL_INTERVAL_MS = 1_000
_MAX_QUESTION_CHARS = 4_000
_DECLINED = "The user declined the call."
_APPROVAL_SCHEMA = {
    "type": "object",
    "properties": {
        "approve": {"type": "boolean", "title": "Run the tool"},
        "reason": {"type": "string", "title": "Reason", "description": "Told to the model."},
    },
    "required": ["approve"],
}


async def answer_run(
    context: Context, access: McpScope, run: ClientRun, asked: Collection[str] = ()
) -> CallToolResult | InputRequiredResult | dict[str, Any]:
    """Answer the call that started a run, or that brought the answers to the questions `asked`."""
    if has_tasks(context):
        return {"resultType": "task", **_task(run, await run_status(run))}
    steps = 0

    async def report(text: str) -> None:
        nonlocal steps
        steps += 1
        await context.session.report_progress(steps, message=text)

    while True:
        status = await follow_run(run, report)
        dismissed = not status.waiting.keys().isdisjoint(asked)
        if not status.waiting or dismissed or not _has_elicitation(context):
            return tool_result(outcome(run, status))
        if not context.session.can_send_request:
            return _input_required(run, status)
        if not (decisions := await _ask_user(context, status)):
            return tool_result(outcome(run, status))
        run = await decide_calls(access, run, decisions)


async def continue_run(access: McpScope, handle: str, responses: Mapping[str, Any]) -> ClientRun:
    """Apply the answers to the questions of a run, and return the run; raise NotFoundError."""
    run = await find_run(access, handle)
    return await decide_calls(access, run, _decisions(responses))


async def get_task(context: Context, access: McpScope, task: str) -> dict[str, Any]:
    """Return a task; a run that a restart interrupted is resumed. Raises NotFoundError."""
    run = await find_run(access, task)
    status = await run_status(run)
    if status.state == "interrupted":
        run = await resume_run(access, run)
        status = await run_status(run)
    return _task(run, status) | _details(context, run, status)


async def update_task(access: McpScope, task: str, responses: Mapping[str, Any]) -> dict[str, Any]:
    """Apply answers to the questions of a task; others are ignored. Raises NotFoundError."""
    await continue_run(access, task, responses)
    return {}


async def cancel_task(access: McpScope, task: str) -> dict[str, Any]:
    """Cancel the run of a task. Raises NotFoundError."""
    await cancel_run(access, await find_run(access, task))
    return {}


def has_tasks(context: Context) -> bool:
    """Return whether the client declares the tasks extension for this request."""
    capabilities = context.session.client_capabilities
    return TASKS_EXTENSION in ((capabilities and capabilities.extensions) or {})


def _has_elicitation(context: Context) -> bool:
    """Return whether the client can show a form; an empty capability says so, too."""
    capabilities = context.session.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def _task(run: ClientRun, status: RunStatus) -> dict[str, Any]:
    state = {"waiting": "input_required", "ended": "completed"}.get(status.state, "working")
    if status.result is not None and status.result.stop_reason == "cancelled":
        state = "cancelled"
    return {
        "taskId": run.handle,
        "status": state,
        "createdAt": status.created_at,
        "lastUpdatedAt": status.updated_at,
        "ttlMs": None,
        "pollIntervalMs": _POLL_INTERVAL_MS,
    }


def _details(context: Context, run: ClientRun, status: RunStatus) -> dict[str, Any]:
    """Return the fields of a task that depend on its status."""
    if status.waiting:
        names = ", ".join(repr(tool_name(call)) for call in status.waiting.values())
        message = {"statusMessage": f"Waits for approval of {names}."}
        if not _has_elicitation(context):  # then a person decides elsewhere
            return {"status": "working", **message}
        questions = {key: _dumped(_question(call)) for key, call in status.waiting.items()}
        return {"inputRequests": questions, **message}
    if status.result is None or status.result.stop_reason == "cancelled":
        return {}
    try:
        result = tool_result(outcome(run, status))
    except SennitError as error:
        result = error_result(str(error))
    return {"result": _dumped(result)}


def _dumped(value: Any) -> dict[str, Any]:
    return value.model_dump(by_alias=True, mode="json", exclude_none=True)


def _question(call: Message) -> ElicitRequest:
    from mcp_types import ElicitRequest, ElicitRequestFormParams

    given = cut(dumps(tool_arguments(call)).decode(), _MAX_QUESTION_CHARS)
    message = f"The model asks to run the tool {tool_name(call)!r} with these arguments: {given}"
    params = ElicitRequestFormParams(message=message, requested_schema=_APPROVAL_SCHEMA)
    return ElicitRequest(params=params)


def _input_required(run: ClientRun, status: RunStatus) -> InputRequiredResult:
    from mcp_types import InputRequiredResult

    questions = {key: _question(call) for key, call in status.waiting.items()}
    return InputRequiredResult(input_requests=questions, request_state=run.handle)  # type: ignore[arg-type]


async def _ask_user(context: Context, status: RunStatus) -> dict[str, Decision]:
    """Ask the user of a client before protocol version 2026-07-28, one question at a time."""
    from mcp_types import ElicitRequestFormParams

    answers: dict[str, Any] = {}
    for key, call in status.waiting.items():
        params = cast("ElicitRequestFormParams", _question(call).params)
        answers[key] = await context.session.elicit_form(
            params.message, params.requested_schema, context.request_id
        )
    return _decisions(answers)


def _decisions(responses: Mapping[str, Any]) -> dict[str, Decision]:
    """Return the decisions in elicitation results; a dismissed question stays open."""
    from mcp_types import ElicitResult

    decisions: dict[str, Decision] = {}
    for key, response in responses.items():
        if not isinstance(response, ElicitResult) or response.action == "cancel":
            continue
        content = response.content or {}
        approve = response.action == "accept" and content.get("approve") is True
        reason = content.get("reason")
        decisions[key] = Decision(approve, reason if isinstance(reason, str) else _DECLINED)
    return decisions


def tool_result(value: dict[str, Any]) -> CallToolResult:
    """Return the result of a tool."""
    from mcp_types import CallToolResult, TextContent

    return CallToolResult(
        content=[TextContent(text=dumps(value).decode())], structured_content=value
    )


def error_result(text: str) -> CallToolResult:
    """Return the result of a tool that failed, with a text that a model can act on."""
    from mcp_types import CallToolResult, TextContent

    return CallToolResult(content=[TextContent(text=text)], is_error=True)
