"""Tools of real MCP servers: one of the SDK, over stdio and HTTP, and one that misbehaves."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

import sennit
from sennit import (
    ActionResponseContent,
    AudioPart,
    ExistsError,
    FilePart,
    ImagePart,
    MissingExtraError,
    ServiceRegistry,
    Session,
    Tool,
    ToolError,
)
from sennit.errors import InvalidTypeError, ValidationError
from sennit.messages.media import part_record
from sennit.services.tools import mcp_connection
from sennit.services.tools.mcp import MCPServer, mcp_tools, schema_of
from sennit.services.tools.mcp_call import Elicitation
from sennit.services.tools.mcp_results import result_of
from sennit.services.tools.tool import ToolOutcome
from sennit.testing import ScriptedModel, ToolCall
from tests.http_server import Gate, serving

_T = TypeVar("_T")
HERE = Path(__file__).parent
DECLINED = {"action": "decline"}
STDIO = [sys.executable, str(HERE / "mcp_server.py"), "stdio"]


PNG = b"\x89PNG\r\n\x1a\n"
PDF = b"%PDF-1.7"
WAV = b"RIFF\x2a\0\0\0WAVEfmt "


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def odd(how: str) -> list[str]:
    return [sys.executable, str(HERE / "odd_mcp_server.py"), how]


def run(work: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run(work)


class HTTPServer:
    """The server made with the SDK, in a process of its own."""

    def __init__(self, port: int = 0) -> None:
        command = [sys.executable, str(HERE / "mcp_server.py"), "http", str(port)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}/mcp"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = HTTPServer()
    yield server.url
    server.kill()


async def called(server: MCPServer, name: str, /, **arguments: Any) -> ToolOutcome:
    [tool] = [tool for tool in server.tools if tool.name == name]
    return await tool.arun(arguments)


# Calling


async def _check_calls(server: MCPServer) -> None:
    assert {"add", "weather", "fail"} <= {tool.name for tool in server.tools}
    [add] = [tool for tool in server.tools if tool.name == "add"]
    assert add.description == "Add two numbers."
    assert add.schema.parameters["required"] == ["a"]
    assert (await called(server, "add", a=1)).value == {"result": 3}
    assert (await called(server, "weather", city="Oslo")).value == {"city": "Oslo", "degrees": 21.5}
    assert (await called(server, "say", words="hello")).value == "hello"


def test_the_tools_of_a_started_program_are_listed_and_called() -> None:
    async def main() -> None:
        async with MCPServer(STDIO, env={"BRAID": "three"}) as server:
            await _check_calls(server)
            assert (await called(server, "variable", name="BRAID")).value == {"result": "three"}
            assert (await called(server, "variable", name="PYTEST_CURRENT_TEST")).value == {
                "result": None
            }

    run(main())


def test_the_tools_of_a_server_on_the_network_are_listed_and_called(url: str) -> None:
    async def main() -> None:
        async with MCPServer(url, headers={"X-Braid": "three"}) as server:
            await _check_calls(server)
            assert (await called(server, "header", name="x-braid")).value == {"result": "three"}

    run(main())


def test_a_command_may_be_given_as_one_text() -> None:
    async def main() -> None:
        command = " ".join(f"'{word}'" for word in odd("sound"))
        async with mcp_tools(command) as tools:
            assert [tool.name for tool in tools] == ["one", "change"]
            assert await tools[0].invoke() == "done"

    run(main())


def test_a_session_asks_a_tool_of_a_server_like_any_other(url: str) -> None:
    async def main() -> None:
        session = Session()
        branch = session.create_branch("main", resources={"calc_add"})
        async with MCPServer(url, prefix="calc", needs_approval=True, replay="safe") as server:
            server.register(session.services)
            assert await session.request("calc_add", branch=branch, a=1) == {"result": 3}
            tool = session.services.tool("calc_add")
            assert (tool.needs_approval, tool.replay, tool.timeout) == (True, "safe", 60)
            with pytest.raises(PermissionError):
                await session.request("calc_say", branch=branch, words="no")

    run(main())


def test_what_the_server_says_of_a_failure_is_the_error(url: str) -> None:
    async def main() -> None:
        async with MCPServer(url) as server:
            failed = await called(server, "fail", message="too much yarn")
            assert "too much yarn" in (failed.error or "")
            assert "valid integer" in ((await called(server, "add", a="x")).error or "")
            with pytest.raises(ToolError, match="Unknown tool: nothing"):
                await server.acall("nothing", {})
            tool = server.tools[0]
            assert "not valid JSON" in ((await tool.arun("{")).error or "")

    run(main())


def test_a_picture_is_a_file_of_the_result(url: str) -> None:
    async def main() -> None:
        async with MCPServer(url) as server:
            outcome = await called(server, "picture", size=300_000)
        assert outcome.value == "A dot."
        assert outcome.files == (ImagePart(PNG + bytes(300_000)),)

    run(main())


def test_a_picture_of_a_server_s_tool_reaches_the_model_in_the_result(url: str) -> None:
    model = ScriptedModel([[ToolCall("picture", {"size": 3})], "A dot."])
    with MCPServer(url) as server:
        session = Session()
        chat = session.conversation(model=model, tools=server.tools)
        assert chat.say("Draw.").text == "A dot."
    result = session.default_branch.messages[2].content
    assert isinstance(result, ActionResponseContent)
    assert (result.result, result.files) == ("A dot.", [part_record(ImagePart(PNG + bytes(3)))])
    assert [block["type"] for block in model.requests[1].messages[-1]["content"]] == [
        "text",
        "image_url",
    ]


def test_a_result_may_not_be_larger_than_the_option_says(url: str) -> None:
    async def main() -> None:
        async with MCPServer(url, max_result_bytes=50) as server:
            error = (await called(server, "say", words="x" * 100)).error or ""
            assert "has 102 bytes and 50 are allowed" in error

    run(main())


def test_calls_run_side_by_side(url: str) -> None:
    async def main() -> None:
        async with MCPServer(url) as server:
            calls = [called(server, "meet", place="inn", people=5) for _ in range(5)]
            assert [one.value for one in await asyncio.gather(*calls)] == [{"result": 5}] * 5

    run(main())


# Time and cancelling


def test_a_call_that_takes_too_long_fails_and_is_cancelled_at_the_server(url: str) -> None:
    async def main() -> None:
        async with MCPServer(url, timeout=0.2) as server:
            error = (await called(server, "hang", mark="slow")).error or ""
            assert "took longer than 0.2 seconds" in error
            assert await server.acall("wait_for", {"event": "slow cancelled"}) == {"result": True}

    run(main())


@pytest.mark.parametrize("kind", ["stdio", "http"])
def test_cancelling_a_call_cancels_it_at_the_server_and_keeps_the_connection(
    kind: str, url: str
) -> None:
    async def main() -> None:
        async with MCPServer(url if kind == "http" else STDIO) as server:
            call = asyncio.create_task(called(server, "hang", mark=kind))
            await server.acall("wait_for", {"event": f"{kind} begun"})
            call.cancel()
            await asyncio.wait({call})
            assert call.cancelled()
            await server.acall("wait_for", {"event": f"{kind} cancelled"})

    run(main())


# Questions and tasks


class Asked:
    """A user who is asked, and answers always the same."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.questions: list[Elicitation] = []

    def __call__(self, question: Elicitation) -> Any:
        self.questions.append(question)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def later(self, question: Elicitation) -> Any:
        return self(question)


@pytest.mark.parametrize(
    ("answer", "said"),
    [({"sure": True}, "dropped"), ({"sure": False}, "kept"), (None, "kept"), (OSError(), "kept")],
)
def test_a_question_that_is_the_result_of_a_call_reaches_the_program(
    url: str, answer: Any, said: str
) -> None:
    async def main() -> None:
        user = Asked(answer)
        for handler in (user, user.later):
            async with MCPServer(url, on_elicitation=handler) as server:
                assert (await called(server, "drop_it")).value == {"result": said}
        assert [(one.server, one.message) for one in user.questions] == [
            ("127.0.0.1", "Drop it?")
        ] * 2
        assert user.questions[0].schema is not None
        assert list(user.questions[0].schema["properties"]) == ["sure"]

    run(main())


@pytest.mark.parametrize(
    ("answer", "said"),
    [({"sure": True}, {"action": "accept", "content": {"sure": True}}), (None, DECLINED)],
)
def test_a_question_of_an_older_server_reaches_the_program(answer: Any, said: Any) -> None:
    async def main() -> None:
        user = Asked(answer)
        async with MCPServer(odd("asking"), on_elicitation=user) as server:
            assert json.loads(str((await called(server, "one")).value)) == said
        assert user.questions[0].message == "Sure?"

    run(main())


def test_without_a_handler_every_question_is_declined(url: str) -> None:
    async def main() -> None:
        async with MCPServer(odd("asking")) as server:
            assert json.loads(str((await called(server, "one")).value)) == DECLINED
        async with MCPServer(url) as server:
            assert (await called(server, "drop_it")).value == {"result": "kept"}

    run(main())


def slow_server(store: Path, gate: Gate, port: int = 0, *, opened: bool = False) -> Any:
    """A server of our own, whose tool answers with a task."""

    async def slow(_request: Any) -> str:
        if not opened:
            await gate.pass_through()
        return "The sheet bend."

    return serving(store, models=[ScriptedModel([slow], name="sage")], port=port)


@pytest.fixture
def knots(tmp_path: Path) -> Path:
    path = tmp_path / "s.db"
    with sennit.open(path) as client:
        client.session("knots").add_message("user", "Which knot does not slip?")
    return path


GIVEN: dict[str, Any] = {"session": "knots", "text": "Another?"}


def test_a_call_that_becomes_a_task_returns_its_result(knots: Path) -> None:
    gate = Gate()

    async def main(address: str) -> Any:
        async with MCPServer(address) as server:
            call = asyncio.create_task(called(server, "continue_session", **GIVEN))
            await asyncio.to_thread(gate.reached)
            gate.open()
            return (await call).value

    with slow_server(knots, gate) as running:
        assert run(main(f"{running.url}/mcp"))["answer"] == "The sheet bend."


def test_a_task_goes_on_when_its_server_comes_back(knots: Path) -> None:
    gate = Gate()

    async def main() -> Any:
        first = slow_server(knots, gate)
        running = await asyncio.to_thread(first.__enter__)
        async with MCPServer(f"{running.url}/mcp") as server:
            call = asyncio.create_task(called(server, "continue_session", **GIVEN))
            await asyncio.to_thread(gate.reached)
            await asyncio.to_thread(first.__exit__, None, None, None)
            second = slow_server(knots, gate, running.port, opened=True)
            await asyncio.to_thread(second.__enter__)
            try:
                return (await call).value
            finally:
                await asyncio.to_thread(second.__exit__, None, None, None)

    assert run(main())["answer"] == "The sheet bend."


def test_a_task_asks_the_program(knots: Path) -> None:
    paid: list[int] = []

    def pay(sum_: int) -> str:
        """Pay a bill."""
        paid.append(sum_)
        return "paid"

    async def main(address: str) -> Any:
        user = Asked({"approve": True})
        async with MCPServer(address, on_elicitation=user) as server:
            value = (await called(server, "continue_session", **GIVEN)).value
        assert [one.message for one in user.questions] == [
            "The model asks to run the tool 'pay' with these arguments: {\"sum_\":5}"
        ]
        return value

    model = ScriptedModel([[ToolCall("pay", {"sum_": 5})], "Done."], name="sage")
    tools = [Tool(pay, needs_approval=True)]
    with serving(knots, models=[model], tools=tools) as running:
        assert run(main(f"{running.url}/mcp"))["answer"] == "Done."
    assert paid == [5]


def test_a_task_whose_call_is_cancelled_is_cancelled_at_the_server(knots: Path) -> None:
    def pay(sum_: int) -> str:
        """Pay a bill."""
        raise AssertionError(sum_)

    async def main(address: str) -> None:
        asked = asyncio.Event()

        async def think(_question: Elicitation) -> None:
            asked.set()
            await asyncio.Event().wait()

        async with MCPServer(address, on_elicitation=think) as server:
            call = asyncio.create_task(called(server, "continue_session", **GIVEN))
            await asked.wait()
            call.cancel()
            await asyncio.wait({call})
            assert call.cancelled()

    model = ScriptedModel([[ToolCall("pay", {"sum_": 5})], "Done."], name="sage")
    tools = [Tool(pay, needs_approval=True)]
    with serving(knots, models=[model], tools=tools) as running:
        run(main(f"{running.url}/mcp"))
        branch = "/api/sessions/knots/branches/main"
        assert running.get(f"{branch}/waiting").json()["waiting"] == []


# Servers that die


def test_a_program_killed_in_the_middle_of_a_call_fails_it_and_is_started_again() -> None:
    async def main() -> None:
        async with MCPServer(STDIO) as server:
            pid = (await server.acall("pid", {}))["result"]
            calls = [asyncio.create_task(called(server, "hang", mark=str(n))) for n in range(2)]
            for number in range(2):
                await server.acall("wait_for", {"event": f"{number} begun"})
            os.kill(pid, signal.SIGKILL)
            for call in calls:
                error = (await call).error or ""
                assert "was lost while 'hang' ran, which may or may not have taken effect" in error
            again = await asyncio.gather(*(server.acall("pid", {}) for _ in range(3)))
            assert len({one["result"] for one in again} - {pid}) == 1

    run(main())


def test_a_server_on_the_network_that_dies_fails_calls_until_it_is_back() -> None:
    async def main() -> None:
        first = HTTPServer()
        async with MCPServer(first.url) as server:
            call = asyncio.create_task(called(server, "hang", mark="x"))
            await server.acall("wait_for", {"event": "x begun"})
            await asyncio.to_thread(first.kill)
            assert (await call).error
            for _ in range(2):
                assert "127.0.0.1" in ((await called(server, "add", a=1)).error or "")
            second = await asyncio.to_thread(HTTPServer, first.port)
            try:
                assert (await called(server, "add", a=1)).value == {"result": 3}
            finally:
                second.kill()

    run(main())


def test_a_program_that_does_not_start_says_why_to_people_only() -> None:
    async def main() -> ToolError:
        with pytest.raises(
            ToolError, match=r"'python odd_mcp_server\.py' cannot be used"
        ) as raised:
            await MCPServer(["python", *odd("broken")[1:]]).aconnect()
        return raised.value

    error = run(main())
    assert "braids" not in str(error)
    assert error.__notes__ == ["It wrote:\nNo module named 'braids'"]


def test_a_program_that_is_not_there_is_a_clear_error() -> None:
    with pytest.raises(ToolError, match="'no-such-program' cannot be used: FileNotFoundError"):
        run(MCPServer("no-such-program").aconnect())


def test_a_host_that_is_not_there_is_a_clear_error() -> None:
    with pytest.raises(ToolError, match=r"'127\.0\.0\.1' cannot be used: ConnectError"):
        run(MCPServer("http://127.0.0.1:9/mcp").aconnect())


def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_connection, "_CONNECT_TIMEOUT_SECONDS", 0.5)
    with pytest.raises(ToolError, match=r"no answer within 0\.5 seconds"):
        run(MCPServer(odd("silent")).aconnect())


def test_connecting_may_be_cancelled() -> None:
    async def main() -> None:
        server = MCPServer(odd("silent"))
        connecting = asyncio.create_task(server.aconnect())
        await asyncio.sleep(0)
        connecting.cancel()
        await asyncio.wait({connecting})
        assert connecting.cancelled()
        with pytest.raises(ToolError, match="is closed"):
            await server.acall("one", {})

    run(main())


def test_an_error_of_the_servers_own_does_not_end_the_connection() -> None:
    async def main() -> None:
        async with MCPServer(odd("error")) as server:
            for _ in range(2):
                with pytest.raises(ToolError, match="failed to run 'one': Out of yarn"):
                    await server.acall("one", {})

    run(main())


def test_an_answer_that_cannot_be_read_is_a_failed_call() -> None:
    async def main() -> None:
        async with MCPServer(odd("garbage")) as server:
            for _ in range(2):
                error = (await called(server, "one")).error or ""
                assert "invalid response to 'one': ValidationError" in error

    run(main())


# Closing


def test_a_closed_server_takes_its_tools_along_and_can_be_connected_again() -> None:
    async def main() -> None:
        services = ServiceRegistry()
        server = await MCPServer(odd("sound")).aconnect()
        [one, _] = server.register(services)
        assert services.list_names() == ["one", "change"]
        services.register(Tool(run_nothing, "change"), replace=True)
        await server.aclose()
        await server.aclose()
        assert services.list_names() == ["change"]
        assert "'python odd_mcp_server.py' is closed; connect() it first" in (
            ((await one.arun()).error or "").replace(Path(sys.executable).name, "python")
        )
        async with server:
            assert (await one.arun()).value == "done"

    run(main())


def run_nothing() -> None: ...


def test_a_connection_may_be_closed_by_another_task_than_the_one_that_made_it() -> None:
    async def main() -> None:
        server = MCPServer(odd("sound"))
        await asyncio.create_task(server.aconnect())
        assert (await asyncio.create_task(called(server, "one"))).value == "done"
        await asyncio.create_task(server.aclose())

    run(main())


def test_a_connection_that_nobody_closed_ends_with_its_loop() -> None:
    async def main() -> MCPServer:
        return await MCPServer(odd("sound")).aconnect()

    server = run(main())
    assert server.tools


def test_a_name_that_is_taken_is_refused_before_any_tool_is_registered() -> None:
    async def main() -> None:
        services = ServiceRegistry()
        services.register(Tool(run_nothing, "change"))
        async with MCPServer(odd("sound")) as server:
            with pytest.raises(ExistsError, match="'change'"):
                server.register(services)
            assert services.list_names() == ["change"]

    run(main())


# Lists that change


class Watched(ServiceRegistry):
    """A registry that tells when a name has come or gone."""

    def __init__(self) -> None:
        super().__init__()
        self.events: dict[str, asyncio.Event] = {}

    def register(self, service: Any, name: str | None = None, *, replace: bool = False) -> Any:
        kept = super().register(service, name, replace=replace)
        self.happened(f"+{kept.name}").set()
        return kept

    def unregister(self, name: str) -> Any:
        gone = super().unregister(name)
        self.happened(f"-{name}").set()
        return gone

    def happened(self, what: str) -> asyncio.Event:
        return self.events.setdefault(what, asyncio.Event())


@pytest.mark.parametrize("kind", ["stdio", "http"])
def test_tools_that_come_and_go_at_the_server_come_and_go_in_the_registry(
    kind: str, url: str
) -> None:
    async def main() -> None:
        services = Watched()
        async with MCPServer(url if kind == "http" else STDIO) as server:
            server.register(services)
            kept = services.get("add")
            await server.acall("grow", {"name": "extra"})
            await services.happened("+extra").wait()
            assert await services.tool("extra").invoke(x=4) == {"result": 4}
            await server.acall("shrink", {"name": "extra"})
            await services.happened("-extra").wait()
            assert not services.has("extra")
            assert services.get("add") is kept

    run(main())


def test_an_older_server_tells_of_changes_too() -> None:
    async def main() -> None:
        services = Watched()
        async with MCPServer(odd("sound")) as server:
            server.register(services)
            await server.acall("change", {})
            await services.happened("+two").wait()
            assert sorted(services) == ["change", "two"]

    run(main())


# Strangers


def test_what_a_hostile_server_lists_is_bounded_or_left_out_with_the_reason() -> None:
    async def main() -> None:
        async with MCPServer(odd("hostile")) as server:
            tools = {tool.name: tool for tool in server.tools}
            assert list(tools) == ["good", "files_read_all_now", "round"]
            assert len(tools["files_read_all_now"].description) == 10_001
            assert "another tool is named" in server.refused["files_read_all now"]
            assert "bytes, and 100,000 are allowed" in server.refused["huge"]
            assert "nested deeper" in server.refused["deep"]
            assert "longer than 64" in server.refused["n" * 65]
            assert "no name" in server.refused[""]
            assert (await tools["round"].arun()).value == "done"

    run(main())


def test_a_listing_without_end_is_cut() -> None:
    async def main() -> None:
        async with MCPServer(odd("endless")) as server:
            assert [tool.name for tool in server.tools] == ["again"]

    run(main())


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ({}, None),
        ({"content": []}, None),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"content": [{"type": "text", "text": "1"}], "structuredContent": {"x": 1}}, {"x": 1}),
        (
            {"content": [{"type": "resource", "resource": {"uri": "u:1", "text": "t"}}]},
            [{"type": "resource", "uri": "u:1", "text": "t"}],
        ),
        (
            {
                "content": [{"type": "resource_link", "uri": "u:1", "name": "n"}],
                "structuredContent": 5,
            },
            [
                {"type": "structured", "value": 5},
                {"type": "resource_link", "uri": "u:1", "name": "n"},
            ],
        ),
    ],
)
def test_every_kind_of_result_becomes_plain_data(answer: Any, value: Any) -> None:
    assert result_of(answer) == value


@pytest.mark.parametrize(
    ("block", "file"),
    [
        ({"type": "image", "mimeType": "image/gif", "data": b64(PNG)}, ImagePart(PNG)),
        ({"type": "audio", "mimeType": "audio/wav", "data": b64(WAV)}, AudioPart(WAV)),
        (
            {"type": "resource", "resource": {"uri": "file:///tmp/a.pdf?v=1", "blob": b64(PDF)}},
            FilePart(PDF, "a.pdf"),
        ),
        (
            {"type": "image", "mimeType": "image/png", "data": b64(b"no picture")},
            FilePart(b"no picture", None, "application/octet-stream"),
        ),
        (
            {"type": "resource", "resource": {"uri": "x:/a.pdf", "blob": b64(b"no PDF")}},
            FilePart(b"no PDF", "a.pdf", "application/octet-stream"),
        ),
    ],
)
def test_bytes_of_a_result_become_a_part_of_it(block: Any, file: Any) -> None:
    assert result_of({"content": [block]}) == [file]
    text = {"type": "text", "text": "Here."}
    assert result_of({"content": [text, block]}) == ["Here.", file]
    assert result_of({"content": [block], "structuredContent": {"x": 1}}) == [{"x": 1}, file]


def test_bytes_that_are_no_base64_are_described() -> None:
    (block,) = result_of({"content": [{"type": "image", "mimeType": "image/png", "data": "%"}]})
    assert block == {"type": "image", "mimeType": "image/png", "left_out": "1 characters of base64"}


def test_a_failure_without_words_is_a_failure() -> None:
    with pytest.raises(ToolError, match="without a message"):
        result_of({"isError": True})


@pytest.mark.parametrize("schema", [None, {}, {"type": "string"}, {"type": "object", "x": 2**70}])
def test_a_schema_that_no_provider_takes_is_refused(schema: Any) -> None:
    with pytest.raises(ValidationError):
        schema_of({"name": "x", "inputSchema": schema}, None)


def test_a_server_whose_listing_breaks_the_protocol_is_a_clear_error() -> None:
    with pytest.raises(ToolError, match="cannot be used: ValidationError") as raised:
        run(MCPServer(odd("unsound")).aconnect())
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize(
    ("server", "more"),
    [
        ("", {}),
        ([], {}),
        (5, {}),
        ("ftp://host/mcp", {}),
        ("https://", {}),
        ("https://host", {"env": {}}),
        ("python x", {"headers": {}}),
        ("python x", {"prefix": "a b"}),
        ("python x", {"replay": "always"}),
    ],
)
def test_an_address_or_option_that_makes_no_sense_is_refused(server: Any, more: Any) -> None:
    with pytest.raises((ValidationError, InvalidTypeError)):
        MCPServer(server, **more)


def test_what_it_is_called_in_messages_holds_no_secrets() -> None:
    assert MCPServer("https://me:secret@host.org/mcp?key=secret").name == "host.org"
    assert MCPServer("/usr/bin/npx --key=secret files secret").name == "npx"
    assert MCPServer("python /opt/server.py secret").name == "python server.py"
    for server in (
        MCPServer("https://host.org/mcp", headers={"Authorization": "Bearer secret"}),
        MCPServer("python server.py", env={"KEY": "secret"}),
    ):
        assert "secret" not in repr(vars(server))


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(MissingExtraError, match=r"sennit\[mcp\]"):
        run(MCPServer(odd("sound")).aconnect())


def test_a_server_of_another_loop_is_refused_clearly() -> None:
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(MCPServer(odd("sound")).aconnect())
    with pytest.raises(ToolError, match="connected in another event loop"):
        run(server.acall("one", {}))
    loop.run_until_complete(server.aclose())
    loop.close()


def test_a_program_without_an_event_loop_calls_it_too() -> None:
    with MCPServer(odd("sound")) as server:
        assert server.tools[0].run().value == "done"
    with pytest.raises(ToolError, match="closed"):
        server.call("one", {})
