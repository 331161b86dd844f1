"""A process stopped (SIGSTOP) in the middle of a run, which goes on after its lease expired."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import Client, Tool, clock
from sennit.services.models.request import ModelRequest
from sennit.testing import ScriptedModel, ToolCall
from sennit.turns.conversation import ConversationSession
from tests.conversation_fixtures import in_short

_SECONDS = 120  # more than any lease lasts


def _reply(request: ModelRequest) -> Any:
    if any(message["role"] == "tool" for message in request.messages):
        return "Done."
    return [ToolCall("pay", {}, "c1")]


def conversation(client: Client, folder: Path) -> ConversationSession:
    """A conversation whose tool writes a line per call, and in a child waits for its parent."""

    async def pay() -> str:
        """Pay once."""
        with (folder / "paid").open("a") as file:
            file.write("x\n")
        if __name__ == "__main__":
            print("paying", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
        return "paid"

    session = client.session("till", resources="*")
    model = ScriptedModel([_reply] * 9)
    return session.conversation(session.default_branch, model=model, tools=[Tool(pay, "pay")])


def _child(folder: Path) -> None:
    with sennit.open(folder / "till.db") as client:
        talk = conversation(client, folder)
        talk.request.branch.session.add_message("user", "Pay.")
        result = asyncio.run(talk.run_to_stable_result())
        print(result.stop_reason, flush=True)


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="the system cannot stop a process")
def test_a_stopped_run_keeps_its_branch_until_the_lease_expires_and_then_writes_nothing(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "tests.turns.test_stopped", str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "paying\n"
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        with sennit.open(tmp_path / "till.db") as client:
            talk = conversation(client, tmp_path)
            assert asyncio.run(talk.aresume()).stop_reason == "invalid"
            with clock.monotonic_clock_from(lambda: time.monotonic() + _SECONDS):
                assert asyncio.run(talk.aresume()).stop_reason == "stable"
            said = [in_short(one) for one in talk.request.branch.messages]
            child.send_signal(signal.SIGCONT)
            child.stdin.write("go on\n")
            child.stdin.flush()
            assert child.stdout.read() == "error\n"
            assert client.doctor() == []
    with sennit.open(tmp_path / "till.db") as client:
        talk = conversation(client, tmp_path)
        assert [in_short(one) for one in talk.request.branch.messages] == said
    assert said[2].startswith("error Interrupted")
    assert (tmp_path / "paid").read_text() == "x\n"


if __name__ == "__main__":
    _child(Path(sys.argv[1]))
