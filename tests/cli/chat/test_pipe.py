"""A chat in a pipe: lines in, answers out, everything else apart."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import sennit
from sennit import ExistsError, ModelError, Tool, ToolError
from sennit.cli.chat import pipe as piped
from sennit.cli.chat.conversation import ChatOptions, ChatSession
from sennit.cli.load import mcp_servers
from sennit.services.models.request import ModelRequest
from sennit.testing import ScriptedModel, ToolCall


class Bell(StringIO):
    """Notes that ring when a line waits for another program."""

    def __init__(self) -> None:
        super().__init__()
        self.rung = Event()

    def write(self, text: str) -> int:
        if "waiting for it" in text:
            self.rung.set()
        return super().write(text)


class Pipe:
    """Runs lines through a talk."""

    def __init__(self, replies: list[Any], store: str | Path = ":memory:", **partner: Any) -> None:
        self.model = ScriptedModel(replies, chunk=3)
        self.client = sennit.open(store)
        self.talk = ChatSession(
            self.client.session("chat"), ChatOptions(model=self.model, **partner)
        )
        self.out = StringIO()
        self.notes = Bell()

    def run(self, *lines: bytes, kind: type[piped.TextAnswers] = piped.TextAnswers) -> int:
        return piped.run(self.talk, lines, kind(self.out, self.notes))

    @property
    def asked(self) -> list[str]:
        return [one.chat_msg["content"] for one in self.talk.questions]


def test_each_line_is_answered_and_only_answers_are_printed() -> None:
    pipe = Pipe(["One.", "Two.\n"])
    assert pipe.run(b"first\n", b"second") == 0
    assert pipe.out.getvalue() == "One.\nTwo.\n"
    assert pipe.notes.getvalue() == ""


def test_empty_lines_and_no_lines_are_fine() -> None:
    pipe = Pipe([])
    assert pipe.run(b"\n", b"  \r\n") == 0
    assert pipe.run() == 0
    assert pipe.out.getvalue() == ""


def test_a_line_that_looks_like_a_command_is_a_message() -> None:
    pipe = Pipe(["Bye."])
    pipe.run(b"/quit\n")
    assert pipe.asked == ["Instruction: /quit"]


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    pipe = Pipe(["Hm."])
    assert pipe.run(b"\xef\xbb\xbfcaf\xe9\r\n") == 0
    assert pipe.asked == ["Instruction: caf�"]


def test_a_line_that_cannot_be_stored_is_an_error_and_the_next_is_answered() -> None:
    pipe = Pipe(["Yes."])
    assert pipe.run(b"nul \x00\n", b"fine\n") == 0
    assert "NUL" in pipe.notes.getvalue()
    assert pipe.out.getvalue() == "Yes.\n"


def test_the_exit_code_tells_whether_the_last_answer_failed() -> None:
    gone = ModelError("The network is gone.", kind="network")
    pipe = Pipe([gone, "Back.", ["Half", gone]])
    assert pipe.run(b"a\n") == 1
    assert pipe.run(b"b\n") == 0
    assert pipe.run(b"c\n") == 1
    assert pipe.out.getvalue() == "Back.\nHalf\n"
    assert pipe.notes.getvalue() == "sennit: The network is gone.\n" * 2


def test_tool_calls_are_not_part_of_the_answer() -> None:
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    pipe = Pipe([["Hm.", ToolCall("add", {"a": 1, "b": 2})], "Three."], tools=(Tool(add),))
    assert pipe.run(b"1 + 2?\n") == 0
    assert pipe.out.getvalue() == "Hm.\nThree.\n"


def test_json_is_one_line_for_each_answer() -> None:
    pipe = Pipe(["One,\ntwo.", ModelError("gone", kind="network")])
    assert pipe.run(b"a\n", b"b\n", kind=piped.JsonAnswers) == 1
    first, second = map(json.loads, pipe.out.getvalue().splitlines())
    assert (first["answer"], first["stop_reason"]) == ("One,\ntwo.", "stable")
    assert (first["session"], first["branch"], first["model"]) == ("chat", "main", "scripted")
    assert first["tokens"]["out"] > 0
    assert (second["answer"], second["notices"][0]["text"]) == ("", "gone")


def test_a_reader_that_went_away_ends_it_and_the_message_is_kept() -> None:
    class Closed(StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    pipe = Pipe(["A long answer."])
    pipe.out = Closed()
    with pytest.raises(BrokenPipeError):
        pipe.run(b"Hello\n")
    assert pipe.asked == ["Instruction: Hello"]


@pytest.mark.parametrize("stage", ["ChatSession.open", "_exchange", "ChatSession.close"])
def test_ctrl_c_before_a_coroutine_has_started_leaves_no_warning(
    stage: str, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    usual = asyncio.Runner.run

    def interrupted(runner: asyncio.Runner, work: Any) -> Any:
        if work.__qualname__ == stage:
            raise KeyboardInterrupt  # where a signal is noticed that came during a read
        return usual(runner, work)

    monkeypatch.setattr(asyncio.Runner, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Pipe(["Hello."]).run(b"Hi\n")
    gc.collect()
    assert [str(one.message) for one in recwarn] == []


def last_said(request: ModelRequest) -> str:
    """An answer that repeats the question."""
    return str(request.messages[-1]["content"])


def test_two_chats_on_one_session_each_answer_their_own_lines(tmp_path: Path) -> None:
    store, second = tmp_path / "chat.db", list[Future[int]]()

    def while_the_second_says_its_line(request: ModelRequest) -> str:
        if not second:
            second.append(pool.submit(pipes[1].run, b"theirs\n"))
            assert pipes[1].notes.rung.wait(60)
        return last_said(request)

    with ThreadPoolExecutor() as pool:
        pipes = [
            Pipe([one] * 2, store=store) for one in (while_the_second_says_its_line, last_said)
        ]
        assert pipes[0].run(b"ours\n") == 0
        assert second[0].result() == 0
    assert pipes[0].out.getvalue() == "ours\n"
    assert pipes[1].out.getvalue() == "theirs\n"
    assert "Another process is answering on this branch" in pipes[1].notes.getvalue()
    said = pipes[1].talk.session.default_branch.messages
    assert [one.content.words for one in said][::2] == ["ours", "theirs"]


def delete(name: str) -> str:
    """Delete a file."""
    return f"deleted {name}"


def test_a_call_that_waits_for_approval_is_told_and_ends_it() -> None:
    call = [ToolCall("delete", {"name": "a.txt"}, "c1")]
    tool = Tool(delete, needs_approval=True)
    pipe = Pipe(["Hi.", call], tools=(tool,))
    assert pipe.run(b"Hello\n", b"Delete a.txt\n", b"And now?\n") == piped.APPROVAL_PENDING
    assert pipe.out.getvalue() == "Hi.\n"
    assert 'delete(name="a.txt") waits for approval' in pipe.notes.getvalue()
    assert "sennit chat --session chat" in pipe.notes.getvalue()
    assert "--yes" in pipe.notes.getvalue()
    assert pipe.asked[-1] == "Instruction: Delete a.txt"


def test_json_names_the_calls_that_wait() -> None:
    call = [ToolCall("delete", {"name": "a.txt"}, "c1")]
    pipe = Pipe([call], tools=(Tool(delete, needs_approval=True),))
    assert pipe.run(b"Delete a.txt\n", kind=piped.JsonAnswers) == piped.APPROVAL_PENDING
    told = json.loads(pipe.out.getvalue())
    assert (told["stop_reason"], told["waiting"]) == ("suspended", ["c1"])


SERVER = f"{sys.executable} {Path(__file__).parents[2] / 'services/tools/mcp_server.py'} stdio"


def test_tools_of_a_server_are_offered_and_ask_unless_told_otherwise() -> None:
    call = [ToolCall("add", {"a": 1}, "c1")]
    pipe = Pipe([call, "Three."], servers=mcp_servers([SERVER], ask=False))
    assert pipe.run(b"1 + 2?\n") == 0
    assert pipe.out.getvalue() == "Three.\n"
    assert pipe.notes.getvalue().startswith("Tools: add, ")
    pipe = Pipe([call], servers=mcp_servers([SERVER]))
    assert pipe.run(b"1 + 2?\n") == piped.APPROVAL_PENDING
    assert "add (asks first)" in pipe.notes.getvalue()


def test_a_server_that_cannot_be_reached_or_has_a_tool_of_ours_is_an_error() -> None:
    with pytest.raises(ToolError):
        Pipe([], servers=mcp_servers(["/no/such/program"])).run(b"Hi\n")

    def add(a: int) -> int:
        """Another one."""
        return a

    with pytest.raises(ExistsError, match="Duplicate tool name 'add'"):
        Pipe([], tools=(Tool(add),), servers=mcp_servers([SERVER])).run(b"Hi\n")
