"""Runs of MCP clients: approval by elicitation, tasks, progress and cancellation."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Literal

import httpx2
import pytest
from mcp import Client as McpClient
from mcp import StdioServerParameters
from mcp.client.extension import ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult, Request, RequestParams, Result
from pydantic import ConfigDict

import sennit
from sennit.server.http.tokens import Scope, add_token, new_token
from sennit.server.settings import Limits
from sennit.services.tools.tool import Tool
from sennit.testing import ScriptedModel, ToolCall
from tests.http_server import Gate, Running, all_events, serving
from tests.services.provider_replies import CHAT
from tests.services.wire_server import running as provider

PROGRAM = Path(__file__).parent / "mcp_stdio_server.py"
BRANCH = "/api/sessions/knots/branches/main"


class TaskHandle(Result):
    """A task in place of a result."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str


class TaskState(Result):
    """What `tasks/get` gives."""

    model_config = ConfigDict(extra="allow")
    task_id: str
    status: str
    result: dict[str, Any] | None = None


class TaskParams(RequestParams):
    task_id: str
    input_responses: dict[str, Any] | None = None


class GetTask(Request[TaskParams, Literal["tasks/get"]]):
    name_param: ClassVar[str | None] = "taskId"
    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams


class UpdateTask(Request[TaskParams, Literal["tasks/update"]]):
    name_param: ClassVar[str | None] = "taskId"
    method: Literal["tasks/update"] = "tasks/update"
    params: TaskParams


class CancelTask(Request[TaskParams, Literal["tasks/cancel"]]):
    name_param: ClassVar[str | None] = "taskId"
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskParams


class Tasks(ClientExtension):
    """The tasks extension, without a resolver: these tests poll themselves."""

    identifier = "io.modelcontextprotocol/tasks"

    def claims(self) -> list[ResultClaim[Any]]:
        async def resolve(_task: TaskHandle, _context: Any) -> Any:
            raise AssertionError("call through the session")

        return [ResultClaim(result_type="task", model=TaskHandle, resolve=resolve)]


@asynccontextmanager
async def over_http(url: str, token: str | None = None, **more: Any) -> AsyncGenerator[McpClient]:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False, timeout=30) as http,
        McpClient(streamable_http_client(f"{url}/mcp", http_client=http), **more) as client,
    ):
        yield client


@asynccontextmanager
async def over_stdio(store: Path, *args: str, **more: Any) -> AsyncGenerator[McpClient]:
    program = StdioServerParameters(
        command=sys.executable, args=[str(PROGRAM), str(store), *args], env=dict(os.environ)
    )
    async with McpClient(program, **more) as client:
        yield client


class User:
    """A user who is asked by elicitation, and answers always the same."""

    def __init__(self, action: str, **content: Any) -> None:
        self.questions: list[str] = []
        self._answer: Any = ElicitResult(action=action, content=content or None)  # type: ignore[arg-type]

    async def __call__(self, context: Any, params: Any) -> Any:
        del context
        self.questions.append(params.message)
        return self._answer


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "s.db"
    with sennit.open(path) as client:
        client.session("knots").add_message("user", "Which knot does not slip?")
    return path


class Till:
    """A tool that needs approval, and what it was called with."""

    def __init__(self) -> None:
        self.paid: list[int] = []

        def pay(sum_: int) -> str:
            """Pay a bill."""
            self.paid.append(sum_)
            return "paid"

        self.tool = Tool(pay, needs_approval=True)


@pytest.fixture
def till() -> Till:
    return Till()


PAYING: list[Any] = [[ToolCall("pay", {"sum_": 5})], "Done."]


@pytest.fixture
def paying(store: Path, till: Till) -> Iterator[Running]:
    model = ScriptedModel(PAYING, name="scripted")
    with serving(store, models=[model], tools=[till.tool]) as running:
        yield running


async def continued(client: McpClient, **more: Any) -> Any:
    result: Any = await client.call_tool(
        "continue_session", {"session": "knots", "text": "Pay."}, **more
    )
    assert not result.is_error, result.content
    return result.structured_content


ASKED = "The model asks to run the tool 'pay' with these arguments: {\"sum_\":5}"

# Approval


def test_over_http_a_user_is_asked_to_approve_a_call(paying: Running, till: Till) -> None:
    user = User("accept", approve=True)

    async def talk() -> Any:
        async with over_http(paying.url, elicitation_callback=user) as client:
            return await continued(client)

    answer = asyncio.run(talk())
    assert (answer["answer"], answer["stop_reason"]) == ("Done.", "stable")
    assert (user.questions, till.paid) == ([ASKED], [5])


@pytest.mark.parametrize(
    ("user", "reason"),
    [
        (User("decline"), "The user declined the call."),
        (User("accept", approve=False), "The user declined the call."),
        (User("accept", approve="true", reason="Too dear."), "Too dear."),
    ],
)
def test_a_call_that_the_user_does_not_approve_is_denied(
    paying: Running, till: Till, user: User, reason: str
) -> None:
    async def talk() -> Any:
        async with over_http(paying.url, elicitation_callback=user) as client:
            return await continued(client)

    assert asyncio.run(talk())["answer"] == "Done."
    assert till.paid == []
    said = paying.get(f"{BRANCH}/messages").json()["messages"]
    assert any(reason in str(one) for one in said)


@pytest.mark.parametrize("user", [None, User("cancel")])
def test_a_call_that_nobody_decides_waits_for_a_person(
    paying: Running, till: Till, user: User | None
) -> None:
    async def talk() -> Any:
        async with over_http(paying.url, elicitation_callback=user) as client:
            return await continued(client)

    answer = asyncio.run(talk())
    assert answer["stop_reason"] == "suspended"
    assert answer["waiting"] == [{"tool": "pay", "arguments": {"sum_": 5}}]
    assert till.paid == []
    [call] = paying.get(f"{BRANCH}/waiting").json()["waiting"]
    decided = paying.post(f"{BRANCH}/approvals/{call['call']['call_id']}", {"approve": True}).json()
    all_events(paying, decided["run"]["events"])
    assert till.paid == [5]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_over_stdio_a_user_is_asked_to_approve_a_call(store: Path, mode: str) -> None:
    user = User("accept", approve=True)

    async def talk() -> Any:
        async with over_stdio(store, elicitation_callback=user, mode=mode) as client:
            return await continued(client)

    assert asyncio.run(talk())["answer"] == "Done."
    assert user.questions == [ASKED]
    assert (store.parent / "paid.txt").read_text() == "5\n"


def test_the_command_asks_the_user_before_a_tool_runs(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = store.parent / "till.py"
    tools.write_text("def add(a: int, b: int) -> int:\n    'Add.'\n    return a + b\n")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    user = User("accept", approve=True)

    async def talk(url: str) -> Any:
        args = ["mcp", "--store", str(store), "--tool", f"{tools}:add", "--ask"]
        args += ["--model", "openai:wire-model", "--base-url", url]
        program = StdioServerParameters(
            command=sys.executable, args=["-m", "sennit", *args], env=dict(os.environ)
        )
        async with McpClient(program, elicitation_callback=user) as client:
            return await continued(client)

    with provider() as server:
        server.says(CHAT.streamed([CHAT.call()]), CHAT.streamed([CHAT.text("It is 3.")]))
        assert asyncio.run(talk(f"{server.url}/v1"))["answer"] == "It is 3."
    assert "'add'" in user.questions[0]


def test_an_answer_to_a_question_of_another_user_is_refused(
    store: Path, till: Till, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens.json"
    mine, stranger = (token_for(tokens, user, "read", "run") for user in ("default", "mallory"))

    async def talk(url: str) -> tuple[Any, str]:
        given: dict[str, Any] = {"session": "knots", "text": "Pay."}
        async with over_http(url, mine, elicitation_callback=User("accept")) as client:
            asked: Any = await client.session.call_tool(
                "continue_session", given, allow_input_required=True
            )
        [key] = asked.input_requests
        approval = ElicitResult(action="accept", content={"approve": True})
        answers: dict[str, Any] = {key: approval}
        async with over_http(url, stranger) as client:
            stolen: Any = await client.call_tool(
                "continue_session",
                given,
                input_responses=answers,
                request_state=asked.request_state,
            )
        return asked, stolen.content[0].text

    model = ScriptedModel(PAYING, name="scripted")
    with serving(store, models=[model], tools=[till.tool], tokens=tokens) as server:
        asked, why = asyncio.run(talk(server.url))
    assert asked.request_state
    assert "There is no task" in why
    assert till.paid == []


def token_for(path: Path, user: str, *scopes: Scope) -> str:
    secret, line = new_token(user=user, tenant=None, agent=None, scopes=scopes, note="")
    add_token(path, line)
    return secret


# Tasks


async def started(client: McpClient) -> TaskHandle:
    given = {"session": "knots", "text": "Another?"}
    task: Any = await client.session.call_tool("continue_session", given, allow_claimed=True)
    assert isinstance(task, TaskHandle), task
    return task


async def state_of(client: McpClient, task: str) -> Any:
    request = GetTask(params=TaskParams(task_id=task))
    return await client.session.send_request(request, TaskState)


async def reached(client: McpClient, task: str, *statuses: str) -> Any:
    """The state of a task once it has one of these."""
    async with asyncio.timeout(30):
        while (state := await state_of(client, task)).status not in statuses:
            await asyncio.sleep(0)
    return state


async def sent(client: McpClient, request: Any) -> None:
    await client.session.send_request(request, Result)


def test_a_task_outlives_its_connection(store: Path) -> None:
    gate = Gate()

    async def slow(_request: Any) -> str:
        await gate.pass_through()
        return "The sheet bend."

    async def begin(url: str) -> str:
        async with over_http(url, extensions=[Tasks()]) as client:
            task = (await started(client)).task_id
            assert (await state_of(client, task)).status == "working"
            return task

    async def fetch(url: str, task: str) -> Any:
        async with over_http(url, extensions=[Tasks()]) as client:
            return await reached(client, task, "completed")

    with serving(store, models=[ScriptedModel([slow], name="sage")]) as server:
        task = asyncio.run(begin(server.url))
        gate.reached()
        gate.open()
        state = asyncio.run(fetch(server.url, task))
    assert state.result["structuredContent"]["answer"] == "The sheet bend."
    assert state.result["structuredContent"]["stop_reason"] == "stable"


def test_a_task_survives_a_restart_of_the_server(store: Path) -> None:
    gate = Gate()

    async def slow(_request: Any) -> str:
        await gate.pass_through()
        return "Never said."

    async def begin(url: str) -> str:
        async with over_http(url, extensions=[Tasks()]) as client:
            return (await started(client)).task_id

    async def fetch(url: str, task: str) -> Any:
        async with over_http(url, extensions=[Tasks()]) as client:
            return await reached(client, task, "completed")

    with serving(store, models=[ScriptedModel([slow], name="sage")]) as server:
        task = asyncio.run(begin(server.url))
        gate.reached()
    with serving(store, models=[ScriptedModel(["The sheet bend."], name="sage")]) as server:
        state = asyncio.run(fetch(server.url, task))
    assert state.result["structuredContent"]["answer"] == "The sheet bend."


def test_a_task_over_stdio_survives_the_program(store: Path) -> None:
    async def talk() -> Any:
        async with over_stdio(store, "hang", extensions=[Tasks()]) as client:
            task = (await started(client)).task_id
        async with over_stdio(store, "The sheet bend.", extensions=[Tasks()]) as client:
            return await reached(client, task, "completed")

    state = asyncio.run(talk())
    assert state.result["structuredContent"]["answer"] == "The sheet bend."


def test_a_task_asks_the_user_and_goes_on_with_the_answer(paying: Running, till: Till) -> None:
    async def talk() -> Any:
        user = User("accept")  # declares that the client can ask; the test answers itself
        async with over_http(paying.url, extensions=[Tasks()], elicitation_callback=user) as client:
            task = (await started(client)).task_id
            state = await reached(client, task, "input_required")
            [(key, question)] = state.inputRequests.items()
            assert question["params"]["message"] == ASKED
            answers = {
                key: {"action": "accept", "content": {"approve": True}},
                "unknown": {"action": "accept", "content": {"approve": True}},
            }
            await sent(client, UpdateTask(params=TaskParams(task_id=task, input_responses=answers)))
            return await reached(client, task, "completed")

    state = asyncio.run(talk())
    assert state.result["structuredContent"]["answer"] == "Done."
    assert till.paid == [5]


def test_a_task_that_nobody_can_be_asked_about_says_what_it_waits_for(paying: Running) -> None:
    async def talk() -> Any:
        async with over_http(paying.url, extensions=[Tasks()]) as client:
            task = (await started(client)).task_id
            async with asyncio.timeout(30):
                while True:
                    state = await state_of(client, task)
                    if getattr(state, "statusMessage", None):
                        return state

    state = asyncio.run(talk())
    assert (state.status, state.statusMessage) == ("working", "Waits for approval of 'pay'.")


def test_a_task_whose_model_fails_is_completed_with_the_error(store: Path) -> None:
    async def talk(url: str) -> Any:
        async with over_http(url, extensions=[Tasks()]) as client:
            return await reached(client, (await started(client)).task_id, "completed")

    with serving(store, models=[ScriptedModel([], name="sage")]) as server:
        state = asyncio.run(talk(server.url))
    assert state.result["isError"] is True
    assert state.result["content"][0]["text"]


def test_a_task_that_runs_can_be_cancelled(store: Path) -> None:
    gate = Gate()

    async def slow(_request: Any) -> str:
        await gate.pass_through()
        return "Never said."

    async def talk(url: str) -> None:
        async with over_http(url, extensions=[Tasks()]) as client:
            task = (await started(client)).task_id
            await asyncio.to_thread(gate.reached)
            await sent(client, CancelTask(params=TaskParams(task_id=task)))
            await reached(client, task, "cancelled")
            await sent(client, CancelTask(params=TaskParams(task_id=task)))

    with serving(store, models=[ScriptedModel([slow], name="sage")]) as server:
        asyncio.run(talk(server.url))
        assert server.get(BRANCH).json()["running"] is False


def test_a_task_that_waits_can_be_cancelled(paying: Running, till: Till) -> None:
    async def talk() -> None:
        user = User("accept")
        async with over_http(paying.url, extensions=[Tasks()], elicitation_callback=user) as client:
            task = (await started(client)).task_id
            await reached(client, task, "input_required")
            await sent(client, CancelTask(params=TaskParams(task_id=task)))
            assert (await state_of(client, task)).status == "cancelled"

    asyncio.run(talk())
    assert till.paid == []
    assert paying.get(f"{BRANCH}/waiting").json()["waiting"] == []


def test_tasks_of_another_user_are_not_there(store: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    mine, stranger = (token_for(tokens, user, "read", "run") for user in ("default", "mallory"))
    reader = token_for(tokens, "default", "read")

    async def refusal(url: str, token: str, request: Any, **more: Any) -> MCPError:
        async with over_http(url, token, **more) as client:
            with pytest.raises(MCPError) as caught:
                await sent(client, request)
            return caught.value

    async def talk(url: str) -> None:
        async with over_http(url, mine, extensions=[Tasks()]) as client:
            task = (await started(client)).task_id
            await reached(client, task, "completed")
        params = TaskParams(task_id=task)
        update = UpdateTask(params=TaskParams(task_id=task, input_responses={}))
        for request in (GetTask(params=params), CancelTask(params=params), update):
            error = await refusal(url, stranger, request, extensions=[Tasks()])
            assert (error.code, "There is no task" in str(error)) == (-32602, True)
            error = await refusal(url, reader, request, extensions=[Tasks()])
            assert "scope 'run'" in str(error)
            assert (await refusal(url, mine, request)).code == -32021
        for wrong in ("", "x", "A" * 64, task[:-1], task + "A"):
            request = GetTask(params=TaskParams(task_id=wrong))
            error = await refusal(url, mine, request, extensions=[Tasks()])
            assert error.code == -32602

    with serving(store, models=[ScriptedModel(["Yes."], name="sage")], tokens=tokens) as server:
        asyncio.run(talk(server.url))


def test_a_token_has_only_as_many_tasks_as_its_limit_says(store: Path, tmp_path: Path) -> None:
    tokens, gate = tmp_path / "tokens.json", Gate()
    mine = token_for(tokens, "default", "read", "write", "run")

    async def slow(_request: Any) -> str:
        await gate.pass_through()
        return "Yes."

    async def talk(url: str) -> str:
        async with over_http(url, mine, extensions=[Tasks()]) as client:
            given: dict[str, Any] = {"session": "other", "role": "user", "text": "Hello."}
            await client.call_tool("add_message", given)
            await started(client)
            again: Any = await client.session.call_tool(
                "continue_session", {"session": "other", "text": "Hello?"}, allow_claimed=True
            )
            gate.open()
            return again.content[0].text

    limits = Limits(token_runs=1, owner_factor=1)
    model = ScriptedModel([slow], name="sage")
    with serving(store, models=[model], tokens=tokens, limits=limits) as server:
        assert "runs under way, the maximum" in asyncio.run(talk(server.url))


# Progress and cancellation


def noted() -> tuple[list[tuple[float, str | None]], Callable[..., Any]]:
    steps: list[tuple[float, str | None]] = []

    async def note(done: float, _total: float | None, message: str | None) -> None:
        steps.append((done, message))

    return steps, note


PROGRESS = [(1, "Model call 1"), (2, "Tool 'look' runs"), (3, "Model call 2")]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_that_waits_is_told_of_the_progress(store: Path, mode: str) -> None:
    def look() -> str:
        """Look."""
        return "A knot."

    steps, note = noted()

    async def talk(url: str) -> None:
        async with over_http(url, mode=mode) as client:
            assert (await continued(client, progress_callback=note))["answer"] == "Done."

    model = ScriptedModel([[ToolCall("look", {})], "Done."], name="sage")
    with serving(store, models=[model], tools=[look]) as server:
        asyncio.run(talk(server.url))
    assert steps == PROGRESS


def test_cancelling_the_request_cancels_the_run(store: Path) -> None:
    gate = Gate()

    async def slow(_request: Any) -> str:
        await gate.pass_through()
        return "Never said."

    async def talk(url: str) -> None:
        async with over_http(url) as client:
            call = asyncio.create_task(continued(client))
            await asyncio.to_thread(gate.reached)
            call.cancel()
            with suppress(asyncio.CancelledError):
                await call

    with serving(store, models=[ScriptedModel([slow], name="sage")]) as server:
        asyncio.run(talk(server.url))
        events = all_events(server, f"{BRANCH}/events?after=0")
        assert events[-1].data["result"]["stop_reason"] == "cancelled"
