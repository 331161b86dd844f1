"""Runs: start, follow, steer, cancel, resume, edit, regenerate."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from sennit.errors import ExistsError, ValidationError, did_you_mean, listed
from sennit.memory.retrieval.prompt_context import MemoryContext
from sennit.messages.codec import loads
from sennit.messages.content import InstructionContent
from sennit.messages.message import Message
from sennit.server.active_runs import MemoryOptions, run_notes
from sennit.server.http.endpoint import HTTPRequest, RequestModel, ResponseModel, Routes
from sennit.server.http.errors import HTTPError
from sennit.server.http.event_stream import MEDIA, EventStream, sse_event
from sennit.server.rest.branches import BRANCH_PATH
from sennit.server.rest.event_schemas import EventShape, RunShape, event_shape, run_shapes
from sennit.server.schemas import BranchShape, MessageShape, branch_shape, message_shape
from sennit.services.models.params import check_params
from sennit.services.models.protocol import Model
from sennit.services.tools.tool import Tool
from sennit.sessions.branch import Branch
from sennit.sessions.run_repository import RunRepository
from sennit.turns.context import ContextProvider
from sennit.turns.conversation import ConversationSession, last_answer
from sennit.turns.events import RunStarted
from sennit.turns.options import Budget, SessionOptions, StreamingOptions
from sennit.turns.request import Request
from sennit.turns.subscription import Subscription

routes: Final = Routes()

KEPT_NOTES = ("page",)
"""Notes of a run that it keeps when it is resumed."""
_RETRY_FIELD = b"retry: 1000\n\n"


class RunRequest(RequestModel):
    """A run to start: by default with the server's first model and all its tools."""

    text: str | None = None
    """A user message, appended in the same transaction that starts the run."""
    id: UUID | None = None
    """The id of that message, chosen by the client; an existing id is rejected."""
    model: str | None = None
    tools: list[str] | UnsetType = UNSET
    options: dict[str, Any] | None = None
    """Fields of SessionOptions."""
    streaming: dict[str, Any] | None = None
    """Fields of StreamingOptions."""
    params: dict[str, Any] | None = None
    """Model parameters, such as temperature and max_tokens."""
    memory: bool | UnsetType = UNSET
    """Whether memories are added to the prompt."""
    other_sessions: bool = False
    """Whether they include messages of other sessions."""


class StartedRun(ResponseModel):
    """A run that was started."""

    id: UUID
    branch_id: UUID
    state: str


class Started(ResponseModel):
    """A run that was started, and where to read its events."""

    run: StartedRun
    after: int
    """The sequence number of the last event before it."""
    events: str
    """The path of its events."""


class EditRequest(RequestModel):
    """A message to edit, on a fork."""

    message: UUID | int
    text: str
    name: str | None = None
    run: RunRequest | None = None


class RegenerateRequest(RequestModel):
    """An answer to regenerate, on a fork; without a message, the last one."""

    message: UUID | int | None = None
    name: str | None = None
    run: RunRequest | None = None


class Forked(ResponseModel):
    """A fork, and the run on it if one was requested."""

    branch: BranchShape
    run: Started | None


class RunsQuery(RequestModel):
    """A page of runs."""

    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class RunList(ResponseModel):
    """The runs of a branch, the newest first."""

    runs: list[RunShape]


class EventsQuery(RequestModel):
    """The sequence number to read after, and whether to follow after the run."""

    after: Annotated[int, Meta(ge=0, lt=10**18)] = 0
    follow: bool = False


class CancelRequest(RequestModel):
    """The way to stop: at once, or after the current turn."""

    mode: Literal["now", "after_turn"] = "now"


class Cancelled(ResponseModel):
    """The result of a cancel request."""

    cancelled: bool


class SteerRequest(RequestModel):
    """A message to an active run."""

    text: Annotated[str, Meta(min_length=1)]
    id: UUID | None = None
    """The id of that message, chosen by the client; an existing id is rejected."""


class SteerResult(ResponseModel):
    """The message that was sent to the run."""

    message: MessageShape
    running: bool
    """Whether a run reads it; otherwise it was appended to the branch."""


_PROVIDER_FIELDS = ("extra_body", "extra_headers")


def _params(request: HTTPRequest, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params of a run; raise HTTPError 403 for provider fields with a token.

    Those are sent unchanged with the operator's key, so they could select another model or account.
    """
    params = check_params(values)
    if request.caller.token is not None:
        for name in _PROVIDER_FIELDS:
            if name in params:
                message = f"{name!r} is allowed only for the local user; leave it out."
                raise HTTPError(403, "params", message, param=f"params.{name}")
    return params


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The validated request of a run."""

    model: Model
    tools: list[Tool]
    contexts: Sequence[ContextProvider]
    memory: MemoryOptions
    params: dict[str, Any]
    options: SessionOptions | None
    streaming: StreamingOptions | None
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What else the run stores, under the keys of `KEPT_NOTES`."""

    async def conversation(self, branch: Branch) -> ConversationSession:
        """Return the conversation of a branch with this model and these tools.

        A request grants nothing: raises AccessError if the branch does not allow them.
        """
        request = Request.of(
            branch, model=self.model, tools=self.tools, contexts=self.contexts, **self.params
        )
        notes = {**run_notes(self.params, self.memory), **self.notes}
        return ConversationSession(replace(request, notes=notes))


def plan_run(request: HTTPRequest, body: RunRequest) -> RunPlan:
    """Validate a run request; raise HTTPError 422 for unknown names."""
    server = request.server
    server.runs.check(request.caller)  # before a fork is created for the run
    model = body.model or next(iter(server.models))
    if model not in server.models:
        names, hint = listed(server.models), did_you_mean(model, server.models)
        message = f"No model {model!r}; available: {names}.{hint}"
        raise HTTPError(422, "model", message, param="model")
    tools = [*server.tools.values()] if body.tools is UNSET else _tools(request, body.tools or [])
    use_memory = server.settings.memory if body.memory is UNSET else body.memory
    memory = request.caller.client.memory
    return RunPlan(
        server.models[model],
        tools,
        [MemoryContext(memory, other_sessions=body.other_sessions)] if use_memory else [],
        MemoryOptions(recalled=use_memory, other_sessions=body.other_sessions),
        _params(request, body.params or {}),
        _options(SessionOptions, body.options, "options"),
        _options(StreamingOptions, body.streaming, "streaming"),
    )


@routes.post(BRANCH_PATH + "/runs", scope="run", status=202)
async def start(request: HTTPRequest, body: RunRequest) -> Started:
    """Start a run, which continues if the client disconnects.

    Raises HTTPError 409 if one is active.
    """
    branch = await request.branch()
    return await start_run(request, branch, plan_run(request, body), _first_message(branch, body))


async def start_run(
    request: HTTPRequest, branch: Branch, plan: RunPlan, say: Message | None
) -> Started:
    """Start a run, as a plan says; raise HTTPError 409 if one is active."""
    conversation = await plan.conversation(branch)
    event = await request.server.runs.start(
        conversation, plan.options, plan.streaming, caller=request.caller, say=say
    )
    return _started(branch, event)


def _first_message(branch: Branch, body: RunRequest) -> Message | None:
    """Return the first message of a run; raise ExistsError if its id exists."""
    uid = body.id
    if body.text is None:
        if uid is not None:
            raise HTTPError(422, "invalid", "Send 'id' only with a 'text'.", param="id")
        return None
    if uid is not None and uid in branch.session.messages:
        raise ExistsError(f"Message {uid} already exists; read the branch's messages.")
    return Message(InstructionContent(instruction=body.text), sender=branch.session.user, id=uid)


def _started(branch: Branch, event: RunStarted) -> Started:
    path = f"/api/sessions/{branch.session.id}/branches/{branch.id}/events"
    return Started(
        run=StartedRun(id=event.run_id, branch_id=branch.id, state="running"),
        after=event.seq - 1,
        events=f"{path}?after={event.seq - 1}",
    )


def _tools(request: HTTPRequest, names: list[str]) -> list[Tool]:
    tools = request.server.tools
    if unknown := [name for name in names if name not in tools]:
        available = ", ".join(map(repr, tools)) or "none"
        message = f"No tool {unknown[0]!r}; available: {available}."
        raise HTTPError(422, "tool", message, param="tools")
    return [tools[name] for name in names]


def _options(kind: Any, values: dict[str, Any] | None, name: str) -> Any:
    """Return options of a kind; raise HTTPError 422 for an unknown field or invalid value."""
    if values is None:
        return None
    fields = dict(values)
    try:
        if isinstance(fields.get("budget"), dict):
            fields["budget"] = Budget(**fields["budget"])
        return kind(**fields)
    except ValidationError as error:
        raise HTTPError(422, "invalid", str(error), param=name) from None
    except TypeError:
        expected = ", ".join(kind.__slots__)
        message = f"Unknown option in {name}; expected: {expected}."
        raise HTTPError(422, "invalid", message, param=name) from None


@routes.post(BRANCH_PATH + "/edit", scope="write", status=201)
async def edit(request: HTTPRequest, body: EditRequest) -> Forked:
    """Edit a message on a fork, and optionally start a run."""
    branch = await request.branch()

    async def fork() -> Branch:
        return await branch.aedit(body.message, body.text, name=body.name)

    return await _forked(request, branch, body.run, fork)


@routes.post(BRANCH_PATH + "/regenerate", scope="write", status=201)
async def regenerate(request: HTTPRequest, body: RegenerateRequest) -> Forked:
    """Regenerate an answer on a fork."""
    branch = await request.branch()

    async def fork() -> Branch:
        old = last_answer(branch) if body.message is None else body.message
        return await branch.aregenerate(old, name=body.name)

    return await _forked(request, branch, body.run, fork)


async def _forked(
    request: HTTPRequest,
    branch: Branch,
    body: RunRequest | None,
    make: Callable[[], Awaitable[Branch]],
) -> Forked:
    """Create a fork and start a requested run on it, which is validated before the fork."""
    if body is None:
        fork, run = await make(), None
    else:
        request.caller.require("run")
        plan, say = plan_run(request, body), _first_message(branch, body)
        fork = await make()
        run = await start_run(request, fork, plan, say)
    return Forked(branch=await to_thread(branch_shape, fork), run=run)


@routes.get(BRANCH_PATH + "/runs", scope="read")
async def list_runs(request: HTTPRequest, query: RunsQuery) -> RunList:
    """List the runs of a branch, newest first."""
    branch = await request.branch()
    return RunList(runs=await to_thread(run_shapes, branch, query.limit))


@routes.get(BRANCH_PATH + "/events", scope="read", media=MEDIA, answer=EventShape)
async def watch(request: HTTPRequest, query: EventsQuery) -> EventStream:
    """Stream the events of a branch; resume with Last-Event-ID.

    A stream has no state of its own: it reads the events after a sequence number, live from a run
    of this process, else from the store. So a client that reconnects with its last number misses
    none and sees none twice, even after a restart, and a slow reader costs no memory.
    """
    branch = await request.branch()
    after = query.after
    if (last_id := request.header("last-event-id")) is not None:
        if not last_id.isdecimal() or len(last_id) > 18:
            message = f"Last-Event-ID must be the number of an event, got {last_id[:50]!r}."
            raise HTTPError(422, "invalid", message, param="Last-Event-ID")
        after = int(last_id)
    request.open_stream()
    chunks = _event_chunks(branch, Subscription(RunRepository(branch), after, follow=query.follow))
    server = request.server
    return EventStream(chunks, server.settings.limits, open_streams=server.streams)


async def _event_chunks(branch: Branch, subscription: Subscription) -> AsyncGenerator[bytes]:
    yield _RETRY_FIELD
    async with subscription:
        while events := await subscription.batch():
            yield b"".join(
                sse_event(event_shape(event, branch), event.kind, event.seq) for event in events
            )


@routes.post(BRANCH_PATH + "/cancel", scope="run", status=202, stops=True)
async def cancel(request: HTTPRequest, body: CancelRequest) -> Cancelled:
    """Cancel the run; its messages are kept.

    Raises HTTPError 409 if it is in another process.
    """
    branch = await request.branch()
    running = request.server.runs.on(branch)
    if running is None:
        shape = await to_thread(branch_shape, branch)
        if shape.running:
            message = "The run belongs to another server process; only that process can stop it."
            raise HTTPError(409, "elsewhere", message)
        return Cancelled(cancelled=False)
    running.cancel(body.mode)
    return Cancelled(cancelled=True)


@routes.post(BRANCH_PATH + "/steer", scope="run", status=202)
async def steer(request: HTTPRequest, body: SteerRequest) -> SteerResult:
    """Send a message to an active run."""
    branch = await request.branch()
    running = request.server.runs.on(branch)
    message = Message(
        InstructionContent(instruction=body.text), sender=branch.session.user, id=body.id
    )
    # The run may end meanwhile; a message that it has not read is appended instead.
    if running and await running.asteer_run(message):
        return SteerResult(message=message_shape(message), running=True)
    [added] = await branch.session.aadd_messages([message], branches=branch)
    return SteerResult(message=message_shape(added, branch.index(added.id)), running=False)


@routes.post(BRANCH_PATH + "/resume", scope="run", status=202)
async def resume(request: HTTPRequest, body: RunRequest) -> Started:
    """Resume a run that was interrupted."""
    branch = await request.branch()
    if body.text is not None or body.id is not None:
        raise HTTPError(422, "invalid", "resume takes no text; start a run to send a message.")
    plan = await plan_resume(request, branch, body)
    return await resume_run(request, plan, await plan.conversation(branch))


async def resume_run(
    request: HTTPRequest, plan: RunPlan, conversation: ConversationSession
) -> Started:
    """Resume a run, as a plan says."""
    event = await request.server.runs.start(
        conversation, plan.options, plan.streaming, caller=request.caller, resume=True
    )
    return _started(conversation.request.branch, event)


async def plan_resume(request: HTTPRequest, branch: Branch, body: RunRequest) -> RunPlan:
    """Return a plan with the options of the last run, as far as its model and tools still exist."""
    last = await to_thread(RunRepository(branch).last)
    notes: dict[str, Any] = {} if last is None else loads(last.body)
    server = request.server
    if body.model is None and notes.get("model") in server.models:
        body = msgspec.structs.replace(body, model=notes["model"])
    tools = [name for name in notes.get("tools", ()) if name in server.tools]
    if body.params is None and (params := notes.get("params")):
        if body.tools is not UNSET or tools != notes.get(
            "tools"
        ):  # the choice may name a missing tool
            params.pop("tool_choice", None)
        body = msgspec.structs.replace(body, params=params)
    if body.tools is UNSET:
        body = msgspec.structs.replace(body, tools=tools)
    if body.memory is UNSET and (memory := notes.get("memory")):
        other = memory["other_sessions"]
        body = msgspec.structs.replace(body, memory=memory["recalled"], other_sessions=other)
    kept = {name: notes[name] for name in KEPT_NOTES if name in notes}
    return replace(plan_run(request, body), notes=kept)
