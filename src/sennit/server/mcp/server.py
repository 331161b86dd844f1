"""The MCP server over stdio and HTTP.

Over stdio it serves the owner who started it; over HTTP it is behind the authentication middleware,
and each request has the access of its Caller. It is stateless, so any process can answer the next
request. The `mcp` package is imported on the first request: without one the server does not need
it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError as Misfit

from sennit.errors import MissingExtraError, NotFoundError, SennitError, short_repr
from sennit.messages.media import MediaPart
from sennit.server.http.endpoint import MAX_INLINE_BYTES, check_value_count
from sennit.server.http.errors import INTERNAL_ERROR, HTTPError, log_unexpected
from sennit.server.http.limits import read_body, replay_body
from sennit.server.mcp.attachments import file_result
from sennit.server.mcp.resources import (
    PROMPTS,
    complete_argument,
    list_resources,
    prompt_messages,
    read_resource,
)
from sennit.server.mcp.runs import ClientRun
from sennit.server.mcp.scope import McpScope
from sennit.server.mcp.tasks import (
    TASKS_EXTENSION,
    answer_run,
    cancel_task,
    continue_run,
    error_result,
    get_task,
    has_tasks,
    tool_result,
    update_task,
)
from sennit.server.mcp.tools import TOOLS, McpTool, allowed_tools

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp_types import (
        CallToolRequestParams,
        CompleteRequestParams,
        GetPromptRequestParams,
        GetPromptResult,
        ListPromptsResult,
        ListResourcesResult,
        ListResourceTemplatesResult,
        ListToolsResult,
        PaginatedRequestParams,
        Prompt,
        ReadResourceRequestParams,
        ReadResourceResult,
        ResourceTemplate,
        Tool,
    )

    from sennit.server.http.callers import Caller
    from sennit.server.http.starlette_imports import ASGIApp, HttpScope, Receive, Send
    from sennit.server.state import ServerState

    Context = ServerRequestContext[Any, Any]
    WhoAsks = Callable[[Context], McpScope]

_log = logging.getLogger(__name__)
_RESOURCE_NOT_FOUND, _INVALID_PARAMS, _INTERNAL_ERROR = -32002, -32602, -32603  # of the protocol
_MISSING_CAPABILITY = -32021
_SUSPEND_TIMEOUT_SECONDS = 5.0
_MAX_VALUES = 10_000  # in a body, which the library decodes on the event loop
_INSTRUCTIONS = (
    "Sennit keeps this user's conversations with language models, in sessions that branch, and "
    "what is remembered of them. Search first; read_session and read_file show the whole of what "
    "was found. To try another way, fork_session rather than change what was said."
)


def mcp_server(who_asks: WhoAsks) -> Server[Any]:
    """Return an MCP server; `who_asks` maps a request to its scope."""
    try:
        from mcp.server.lowlevel import Server
        from mcp.shared.exceptions import MCPError
        from mcp_types import (
            CompleteResult,
            Completion,
            ListPromptsResult,
            ListResourceTemplatesResult,
            ListToolsResult,
        )
    except ImportError as error:
        raise MissingExtraError.of("The MCP server", "mcp") from error

    async def list_tools(context: Context, _page: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[_tool_of(tool) for tool in allowed_tools(who_asks(context))])

    async def call_tool(context: Context, params: CallToolRequestParams) -> Any:
        if params.name not in TOOLS:
            names = ", ".join(tool.name for tool in allowed_tools(who_asks(context)))
            message = f"There is no tool {short_repr(params.name)}; available: {names}."
            raise MCPError(_INVALID_PARAMS, message)
        return await _call_tool(context, who_asks(context), params)

    async def resources(
        context: Context, page: PaginatedRequestParams | None
    ) -> ListResourcesResult:
        return await _list_resources(who_asks(context), None if page is None else page.cursor)

    async def templates(
        _context: Context, _page: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        return ListResourceTemplatesResult(resource_templates=_templates())

    async def read(context: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        return await _read_resource(who_asks(context), str(params.uri))

    async def prompts(context: Context, _page: PaginatedRequestParams | None) -> ListPromptsResult:
        allowed = who_asks(context).allows("read")
        return ListPromptsResult(prompts=_prompts() if allowed else [])

    async def prompt(context: Context, params: GetPromptRequestParams) -> GetPromptResult:
        return await _get_prompt(who_asks(context), params.name, params.arguments or {})

    async def complete(context: Context, params: CompleteRequestParams) -> CompleteResult:
        given = {} if params.context is None else params.context.arguments or {}
        argument = params.argument
        with _protocol_errors():
            values = await complete_argument(
                who_asks(context), argument.name, argument.value, given
            )
        return CompleteResult(completion=Completion(values=values))

    server = Server(
        "sennit",
        version=version("sennit"),
        title="Sennit",
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=resources,
        on_list_resource_templates=templates,
        on_read_resource=read,
        on_list_prompts=prompts,
        on_get_prompt=prompt,
        on_completion=complete,
    )
    _add_tasks(server, who_asks)
    return server


def _add_tasks(server: Server[Any], who_asks: WhoAsks) -> None:
    """Add the methods of the tasks extension, which the library does not have."""
    from mcp_types import InputResponses, RequestParams

    class TaskParams(RequestParams):
        task_id: str

    class UpdateTaskParams(TaskParams):
        input_responses: InputResponses

    async def get(context: Context, params: TaskParams) -> dict[str, Any]:
        with _protocol_errors(not_found=_INVALID_PARAMS):
            return await get_task(context, _task_scope(context, who_asks), params.task_id)

    async def update(context: Context, params: UpdateTaskParams) -> dict[str, Any]:
        with _protocol_errors(not_found=_INVALID_PARAMS):
            access = _task_scope(context, who_asks)
            return await update_task(access, params.task_id, params.input_responses)

    async def cancel(context: Context, params: TaskParams) -> dict[str, Any]:
        with _protocol_errors(not_found=_INVALID_PARAMS):
            return await cancel_task(_task_scope(context, who_asks), params.task_id)

    server.extensions[TASKS_EXTENSION] = {}
    server.add_request_handler("tasks/get", TaskParams, get)
    server.add_request_handler("tasks/update", UpdateTaskParams, update)
    server.add_request_handler("tasks/cancel", TaskParams, cancel)


def _task_scope(context: Context, who_asks: WhoAsks) -> McpScope:
    """Return the scope of a request about a task; raise MCPError without the extension."""
    from mcp.shared.exceptions import MCPError

    if not has_tasks(context):
        message = f"Declare the extension {TASKS_EXTENSION!r} in the capabilities of the client."
        data: Any = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
        raise MCPError(_MISSING_CAPABILITY, message, data)
    access = who_asks(context)
    if not access.allows("run"):
        raise HTTPError(403, "scope", "This needs a token with the scope 'run'.")
    return access


async def _list_resources(access: McpScope, after: str | None) -> ListResourcesResult:
    from mcp_types import ListResourcesResult, Resource

    with _protocol_errors():
        entries, following = await list_resources(access, after)
    return ListResourcesResult(
        resources=[
            Resource(
                uri=entry.uri,
                name=entry.uri,
                title=entry.title,
                description=entry.description,
                mime_type=entry.media_type,
            )
            for entry in entries
        ],
        next_cursor=following,
    )


def _templates() -> list[ResourceTemplate]:
    from mcp_types import ResourceTemplate

    return [
        ResourceTemplate(
            uri_template="viking://session/{session}",
            name="session",
            description="The last messages of a session, by its key or id.",
            mime_type="text/plain",
        ),
        ResourceTemplate(
            uri_template="viking://{+path}",
            name="file",
            description="A memory, skill or resource, such as viking://user/memories/profile.md.",
            mime_type="text/markdown",
        ),
    ]


async def _read_resource(access: McpScope, uri: str) -> ReadResourceResult:
    from mcp_types import ReadResourceResult, TextResourceContents

    with _protocol_errors():
        _require_read(access)
        text, media_type = await read_resource(access, uri)
    return ReadResourceResult(
        contents=[TextResourceContents(uri=uri, mime_type=media_type, text=text)]
    )


def _prompts() -> list[Prompt]:
    from mcp_types import Prompt, PromptArgument

    return [
        Prompt(
            name=entry.name,
            description=entry.description,
            arguments=[
                PromptArgument(name=name, description=text, required=required)
                for required, arguments in ((True, entry.required), (False, entry.optional))
                for name, text in arguments
            ],
        )
        for entry in PROMPTS.values()
    ]


async def _get_prompt(access: McpScope, name: str, arguments: dict[str, str]) -> GetPromptResult:
    from mcp_types import GetPromptResult, PromptMessage, TextContent

    with _protocol_errors():
        _require_read(access)
        messages = await prompt_messages(access, name, arguments)
    return GetPromptResult(
        description=PROMPTS[name].description,
        messages=[
            PromptMessage(
                role="assistant" if role == "assistant" else "user", content=TextContent(text=text)
            )
            for role, text in messages
        ],
    )


def _require_read(access: McpScope) -> None:
    if not access.allows("read"):
        raise HTTPError(403, "scope", "This needs a token with the scope 'read'.")


@contextmanager
def _protocol_errors(not_found: int = _RESOURCE_NOT_FOUND) -> Generator[None]:
    """Turn errors into those of the protocol; the message of an unexpected one is not shown."""
    from mcp.shared.exceptions import MCPError

    try:
        yield
    except MCPError:
        raise
    except NotFoundError as error:
        raise MCPError(not_found, str(error)) from None
    except (SennitError, HTTPError) as error:
        raise MCPError(_INVALID_PARAMS, str(error)) from None
    except Exception as error:
        log_unexpected(_log, "an MCP request", error)
        raise MCPError(_INTERNAL_ERROR, INTERNAL_ERROR) from None


def _tool_of(tool: McpTool) -> Tool:
    from mcp_types import Tool, ToolAnnotations

    return Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.arguments.model_json_schema(),
        annotations=ToolAnnotations(
            read_only_hint=tool.reads_only, destructive_hint=False, open_world_hint=False
        ),
    )


async def _call_tool(context: Context, access: McpScope, params: CallToolRequestParams) -> Any:
    """Call a tool; errors become results, so that the model can correct its call."""
    name = params.name
    try:
        tool = _find_tool(access, name)
        parsed = tool.arguments.model_validate(params.arguments or {})
        if access.check_quota is not None and not tool.reads_only:
            await access.check_quota()
        answers = params.input_responses or {}
        if params.request_state is not None:  # the client sends the call again, with answers
            value = await continue_run(access, params.request_state, answers)
        else:
            value = await tool.run(access, parsed)
        if isinstance(value, ClientRun):
            return await answer_run(context, access, value, answers)
        return file_result(value) if isinstance(value, MediaPart) else tool_result(value)
    except Misfit as error:
        return error_result(f"Invalid arguments for {name!r}: {_format_errors(error)}")
    except (SennitError, HTTPError) as error:
        return error_result(str(error))
    except Exception as error:
        log_unexpected(_log, f"the tool {name}", error)
        return error_result(INTERNAL_ERROR)


def _find_tool(access: McpScope, name: str) -> McpTool:
    allowed = {tool.name: tool for tool in allowed_tools(access)}
    if name in allowed:
        return allowed[name]
    if name in TOOLS and not access.allows(TOOLS[name].scope):
        raise HTTPError(
            403, "scope", f"{name!r} needs a token with the scope {TOOLS[name].scope!r}."
        )
    raise HTTPError(
        404, "not_found", f"There is no tool {short_repr(name)}; available: {', '.join(allowed)}."
    )


def _format_errors(error: Misfit) -> str:
    messages = [
        f"{'.'.join(map(str, detail['loc'])) or 'arguments'}: {detail['msg']}, "
        f"got {short_repr(detail['input'])}"
        for detail in error.errors(include_url=False)
    ]
    return "; ".join(messages[:10]) + "."


async def serve_stdio(reach: McpScope) -> None:
    """Serve one owner on standard input and output until the input ends; then suspend its tasks."""
    server = mcp_server(lambda _context: reach)
    from mcp.server.stdio import stdio_server

    try:
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
    finally:
        await reach.runs.suspend_all(_SUSPEND_TIMEOUT_SECONDS)


class McpApp:
    """The MCP server over HTTP, as an ASGI app behind the authentication middleware."""

    def __init__(self, server: ServerState) -> None:
        self._server = server
        self._starting = asyncio.Lock()
        self._managers: tuple[StreamableHTTPSessionManager, ...] = ()
        self._task: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Stop the session managers at the end, if they were started."""
        try:
            yield
        finally:
            self._ended.set()
            if self._task is not None:
                await self._task

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            # No GET stream: the server sends no notifications between requests.
            message = f"{scope['method']} is not allowed here; use POST."
            raise HTTPError(405, "method", message, headers={"allow": "POST"})
        caller: Caller = scope["state"]["caller"]
        limits = caller.limits
        headers = dict(scope["headers"])
        body = await read_body(headers, receive, limits)
        scope["state"]["body_bytes"] = len(body)
        if len(body) > MAX_INLINE_BYTES:
            values = min(limits.values, _MAX_VALUES)
            await self._server.work.run(caller, check_value_count, body, values)
        streams = b"text/event-stream" in headers.get(b"accept", b"")
        app = await self._app(streams)
        async with self._server.work.slot(caller, "mcp"):
            await app(scope, replay_body(body, receive), send)

    async def _app(self, streams: bool) -> ASGIApp:
        async with self._starting:
            if not self._managers:
                managers = await asyncio.to_thread(self._create_managers)
                ready = asyncio.Event()
                self._task = asyncio.create_task(self._run_managers(managers, ready), name="MCP")
                await ready.wait()
                self._managers = managers
            return self._managers[streams].handle_request

    def _create_managers(self) -> tuple[StreamableHTTPSessionManager, ...]:
        """Return a manager that answers with JSON, and one that may answer with streams.

        A stream tells of the progress, and the request is cancelled when the client closes it.
        """
        server = mcp_server(self._who_asks)
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        body_bytes = self._server.settings.limits.for_local_user().body_bytes
        return tuple(
            StreamableHTTPSessionManager(
                server, json_response=not streams, stateless=True, max_request_body_size=body_bytes
            )
            for streams in (False, True)
        )

    async def _run_managers(
        self, managers: tuple[StreamableHTTPSessionManager, ...], ready: asyncio.Event
    ) -> None:
        json, streams = managers
        async with json.run(), streams.run():  # in one task, as their cancel scopes demand
            ready.set()
            await self._ended.wait()

    def _who_asks(self, context: Context) -> McpScope:
        request: Any = context.request
        caller: Caller = request.scope["state"]["caller"]
        model = next(iter(self._server.models.values()), None)
        size: int = request.scope["state"]["body_bytes"]
        quota = partial(self._server.quotas.check, caller, size)
        return McpScope(
            caller.client,
            caller.scopes,
            model,
            self._server.runs,
            quota,
            tuple(self._server.tools.values()),
            caller,
        )
