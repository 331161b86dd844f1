"""Blocking calls: one event loop in the background, whose connections survive from call to call."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import (
    IPU,
    ActionResponseContent,
    Branch,
    Client,
    ConversationSession,
    Operation,
    Request,
    Session,
    Tool,
    UsageError,
    iModel,
)
from sennit.blocking import run_blocking
from sennit.memory.files.filesystem import FileSystem
from sennit.memory.memory import Memory
from sennit.services import MCPServer
from sennit.testing import ScriptedModel, ToolCall
from sennit.turns.result import Return
from sennit.turns.stream import RunStream
from tests.services import wire_server
from tests.services.wire_server import STALL, WireServer

MCP_PROGRAM = Path(__file__).parent / "services/tools/mcp_server.py"
NAMES_OF_DOCUMENTS = {
    *{"request", "conduct", "invoke", "execute", "queue", "exec", "execute_special_turn"},
}
"""Async methods whose names the founding documents give."""
INTERNAL = {"admit"}


@pytest.fixture
def server() -> Generator[WireServer]:
    with wire_server.running() as running:
        running.says(wire_server.answer(wire_server.completion("Hello.")))
        yield running


def model(server: WireServer) -> iModel:
    return iModel("openai:wire-1", base_url=f"{server.url}/v1", api_key="none")


def test_twenty_calls_in_a_row_share_one_connection(server: WireServer) -> None:
    conversation = sennit.conversation(model=model(server))
    assert [conversation.say(f"{n}?").text for n in range(20)] == ["Hello."] * 20
    assert (len(server.asked), server.connections) == (20, 1)


def test_an_mcp_server_stays_connected_between_calls() -> None:
    server = MCPServer([sys.executable, str(MCP_PROGRAM), "stdio"])
    calls = [[[ToolCall("add", {"a": n}, f"c{n}")], f"{n}."] for n in range(3)]
    run_blocking(server.__aenter__(), "await")
    try:
        talker = ScriptedModel([reply for pair in calls for reply in pair], name="talker")
        tools = [tool for tool in server.tools if tool.name == "add"]
        conversation = sennit.conversation(model=talker, tools=tools)
        results = [conversation.say(f"{n}?").body.interactions[2].content for n in range(3)]
    finally:
        run_blocking(server.aclose(), "await")
    values = [one.result for one in results if isinstance(one, ActionResponseContent)]
    assert values == [{"result": n + 2} for n in range(3)]


@pytest.mark.parametrize("is_async", [False, True])
def test_closing_a_client_closes_the_connections_of_models_named_by_strings(
    server: WireServer, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "none")

    async def talk() -> bool:
        async with sennit.open(":memory:") as client:
            chat = client.session("ada").conversation(model="openai:wire-1")
            assert (await chat.asay("1?")).text == "Hello."
        return await asyncio.to_thread(server.closed.acquire, timeout=10)

    if is_async:
        assert asyncio.run(talk())
        return
    with sennit.open(":memory:") as client:
        chat = client.session("ada").conversation(model="openai:wire-1")
        assert chat.say("1?").text == "Hello."
    assert server.closed.acquire(timeout=10)
    assert (chat.request.model_name, server.connections) == ("openai:wire-1", 1)


def test_a_stream_and_a_call_share_one_connection(server: WireServer) -> None:
    conversation = sennit.conversation(model=model(server))
    conversation.say("1?")
    server.says(
        wire_server.completed(wire_server.piece(content="Hel"), wire_server.piece(content="lo."))
    )
    assert "".join(map(str, conversation.stream("2?"))) == "Hello."
    server.says(wire_server.answer(wire_server.completion("Hello.")))
    conversation.say("3?")
    assert server.connections == 1


def test_threads_that_call_at_once_share_the_loop(server: WireServer) -> None:
    shared, started = model(server), threading.Barrier(5)

    def talk(number: int) -> list[str]:
        conversation = sennit.conversation(model=shared)
        started.wait()
        return [conversation.say(f"{number}.{n}?").text for n in range(4)]

    with ThreadPoolExecutor(5) as threads:
        assert list(threads.map(talk, range(5))) == [["Hello."] * 4] * 5
    assert len(server.asked) == 20
    assert server.connections <= 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_calls_on_a_loop_and_a_connection_of_its_own(server: WireServer) -> None:
    conversation = sennit.conversation(model=model(server))
    conversation.say("1?")
    child = os.fork()
    if child == 0:
        os._exit(0 if conversation.say("2?").text == "Hello." else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert conversation.say("3?").text == "Hello."
    assert server.connections == 2


INTERRUPTED = """
import sys
import sennit

client = sennit.open(sys.argv[1])
model = sennit.iModel("openai:wire-1", base_url=sys.argv[2], api_key="none")
chat = client.session("ada").conversation(model=model)
try:
    {ask}
except KeyboardInterrupt:
    print("interrupted", [m.content.words for m in client.session("ada").default_branch.messages])
sys.stdout.flush()
client.close()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
@pytest.mark.parametrize(
    "ask",
    ['chat.say("One?")', 'for piece in chat.stream("One?"): print(piece, end="", flush=True)'],
)
def test_ctrl_c_ends_the_run_and_keeps_what_was_said(
    server: WireServer, tmp_path: Path, ask: str
) -> None:
    streamed = wire_server.chunks(wire_server.piece(content="Hel" * 40), STALL)
    server.says(streamed if "stream" in ask else [STALL])
    program = [sys.executable, "-c", INTERRUPTED.format(ask=ask)]
    arguments = [str(tmp_path / "chat.db"), f"{server.url}/v1"]
    with subprocess.Popen([*program, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if "stream" in ask:
            assert process.stdout.read(3) == "Hel"
        else:
            wait_until(lambda: bool(server.asked) or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        output = process.stdout.read()
        assert process.wait(20) == 0
    kept = ", 'HelHel" if "stream" in ask else ""
    assert f"interrupted ['One?'{kept}" in output
    assert server.hung_up.wait(10)


def wait_until(true: Callable[[], bool]) -> None:
    waiting = threading.Event()
    while not true():
        waiting.wait(0.01)


def test_an_exception_reaches_the_caller_of_a_blocking_call() -> None:
    session = Session()
    session.services.register(failing)
    with pytest.raises(sennit.ToolError, match="no rope"):
        session.request_sync("failing")


def failing() -> None:
    """Fail."""
    raise ValueError("no rope")


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_an_exit_raised_by_a_model_ends_its_call_and_no_later_one(
    kind: type[BaseException],
) -> None:
    for stop in (
        lambda chat: chat.say("One?"),
        lambda chat: list(chat.stream("One?")),
    ):
        with pytest.raises(kind):
            stop(sennit.conversation(model=ScriptedModel([kind()])))
        assert sennit.conversation(model=ScriptedModel(["Yes."])).say("Two?").text == "Yes."


def test_a_call_while_python_shuts_down_is_refused_and_does_not_hang() -> None:
    program = """
import builtins
import sennit
from sennit.testing import ScriptedModel

class Late:
    def __init__(self, chat):
        self.chat = chat

    def __del__(self):
        try:
            self.chat.say("Two?")
        except sennit.UsageError as error:
            print(error)

builtins.late = Late(sennit.conversation(model=ScriptedModel(["Yes.", "No."])))
builtins.late.chat.say("One?")
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout.startswith("Python is shutting down"), ended.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_cannot_read_the_stream_of_its_parent() -> None:
    stream = sennit.conversation(model=ScriptedModel(["One two three."], chunk=2)).stream("One?")
    pieces = iter(stream)
    next(pieces)
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # ends a child that hangs
        try:
            next(pieces)
        except UsageError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert list(pieces)[-1].text == "One two three."


def test_a_blocking_call_on_an_event_loop_names_its_async_twin(server: WireServer) -> None:
    conversation = sennit.conversation(model=model(server))
    calls: dict[str, Callable[[], Any]] = {
        "asay": lambda: conversation.say("Hi"),
        "arun": conversation.run,
        "aresume": conversation.resume,
        "aapprove": lambda: conversation.approve("c1"),
        "adeny": lambda: conversation.deny("c1"),
        "aexecute_tool_call": lambda: conversation.execute_tool_call("c1"),
        "async for": lambda: list(conversation.stream("Hi")),
        "async with": conversation.stream("Hi").__enter__,
        "request": lambda: conversation.request.session.request_sync("x"),
        "exec": conversation.request.exec_sync,
    }

    async def call_all() -> None:
        for name, call in calls.items():
            with pytest.raises(UsageError, match=name):
                call()

    asyncio.run(call_all())
    assert server.asked == []


def test_a_loop_that_is_left_early_cancels_its_run(server: WireServer) -> None:
    server.says(wire_server.chunks(wire_server.piece(content="Hel" * 40), STALL))
    conversation = sennit.conversation(model=model(server))
    for piece in conversation.stream("One?"):
        if piece.is_delta:
            break
    assert server.hung_up.wait(10)
    words = [message.content.words for message in conversation.request.branch.messages]
    assert words == ["One?", "Hel" * 40]


def test_a_loop_that_is_dropped_on_an_event_loop_cancels_its_run(server: WireServer) -> None:
    server.says(wire_server.chunks(wire_server.piece(content="Hel" * 40), STALL))
    stream = sennit.conversation(model=model(server)).stream("One?")
    pieces = iter(stream)
    assert not next(pieces).is_delta

    async def drop() -> None:
        pieces.close()

    asyncio.run(drop())
    assert list(stream)[-1].stop_reason == "cancelled"


def test_all_readers_of_one_stream_see_its_end() -> None:
    def read(pieces: RunStream[Return[None], None]) -> int:
        return len(list(pieces))

    pieces = sennit.conversation(model=ScriptedModel(["One two."], chunk=1)).stream("One?")
    with ThreadPoolExecutor(5) as threads:
        readers = [threads.submit(read, pieces) for _ in range(5)]
        try:
            assert sum(reader.result(10) for reader in readers) > 0
        finally:
            for _ in readers:  # lets those go that hang
                pieces._blocking_events.put(None)  # pyright: ignore


def test_all_async_readers_of_one_stream_see_its_end() -> None:
    async def read_all() -> None:
        pieces = sennit.conversation(model=ScriptedModel(["One two."], chunk=1)).stream("One?")

        async def read() -> None:
            async for _ in pieces:
                pass

        async with asyncio.timeout(10):
            await asyncio.gather(*(read() for _ in range(5)))

    asyncio.run(read_all())


def test_an_async_loop_that_is_left_early_cancels_its_run(server: WireServer) -> None:
    server.says(wire_server.chunks(wire_server.piece(content="Hel" * 40), STALL))
    conversation = sennit.conversation(model=model(server))

    async def leave() -> bool:
        async for piece in conversation.stream("One?"):
            if piece.is_delta:
                break
        gc.collect()
        return await asyncio.to_thread(server.hung_up.wait, 10)

    assert asyncio.run(leave())


def test_each_async_method_has_a_blocking_twin_and_each_is_named_by_the_rule() -> None:
    broken: list[str] = []
    for kind in (
        *(ConversationSession, Session, Branch, Client, Operation, IPU, Request),
        *(Memory, FileSystem, iModel, Tool),
    ):
        members = dict(inspect.getmembers(kind, inspect.isfunction))
        for name, member in members.items():
            if name in INTERNAL or name.startswith("_") or not inspect.iscoroutinefunction(member):
                continue
            if name in NAMES_OF_DOCUMENTS:
                twin = f"{name}_sync"
            elif name == "run_to_stable_result":
                twin = "run"
            else:
                twin = name.removeprefix("a")
            blocking = members.get(twin)
            if name == twin or blocking is None or inspect.iscoroutinefunction(blocking):
                broken.append(f"{kind.__name__}.{name} has no blocking twin {twin!r}")
    assert broken == []
