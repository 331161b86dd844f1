"""Programs that begin at once: forks of a process that has imported what they need.

Most of the time of a short chat goes into importing. What has to be a fresh interpreter, such as
`python -m sennit`, is started as one; the scripted chat is the tests' own program, so it may be
forked. It has a session, a terminal, an environment and a normal end of its own all the same.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 30.0  # seconds; a test that needs them has failed
_IMPORTED = ("tests.cli.scripted_chat", "sennit.cli.chat.terminal", "sennit.stores.sqlite.store")


class Forked:
    """A program that was forked, as `subprocess.Popen` would show it."""

    def __init__(self, status: int) -> None:
        self._status = os.fdopen(status, closefd=True)
        self._pid = int(self._status.readline())
        self._code: int | None = None

    def poll(self) -> int | None:
        """Give the exit code, if the program has ended."""
        if self._code is None and select.select([self._status], [], [], 0)[0]:
            self._end()
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the program, and give its exit code."""
        if self._code is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise TimeoutError(f"process {self._pid} has not ended in {timeout} seconds")
            self._end()
        assert self._code is not None
        return self._code

    def _end(self) -> None:
        self._code = int(self._status.readline())
        self._status.close()

    def send_signal(self, which: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self._pid, which)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork(arguments: list[str], streams: Sequence[int], env: dict[str, str]) -> Forked:
    """Start a program of Python with these three standard streams, in a session of its own."""
    reading, writing = os.pipe()
    job = json.dumps([arguments, env]).encode()
    socket.send_fds(_server(), [job], [*streams, writing])
    os.close(writing)
    return Forked(reading)


def run_forked(
    arguments: list[str], lines: str, env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a program of Python with these lines as its input, like `subprocess.run`."""
    with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as err:
        given.write(lines.encode())
        streams = (given, out, err)
        given.seek(0)
        code = fork(arguments, [one.fileno() for one in streams], env).wait(PATIENCE)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(
            arguments, code, out.read().decode(), err.read().decode()
        )


@cache
def _server() -> socket.socket:
    """Start the process that forks, which ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.forking", str(theirs.fileno())],
        cwd=ROOT,
        pass_fds=[theirs.fileno()],
        start_new_session=True,
    )
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _serve(channel: socket.socket) -> list[str] | None:
    """Fork for each job until nobody can ask any more; gives the arguments, in a fork."""
    keepers: list[int] = []
    while True:
        job, given, _, _ = socket.recv_fds(channel, 1_000_000, 4)
        if not job:
            return None
        *streams, status = given
        keepers = [one for one in keepers if os.waitpid(one, os.WNOHANG) == (0, 0)]
        keeper = os.fork()
        if keeper == 0:
            channel.close()
            return _keep(json.loads(job), streams, status)
        keepers.append(keeper)
        for number in given:
            os.close(number)


def _keep(job: tuple[list[str], dict[str, str]], streams: Sequence[int], status: int) -> list[str]:
    """Fork the program, and tell who it is and how it ends; only the program comes back."""
    child = os.fork()
    if child:
        for number in streams:
            os.close(number)
        os.write(status, f"{child}\n".encode())
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.write(status, f"{code}\n".encode())
        os._exit(0)
    os.close(status)
    os.setsid()
    for standard, number in enumerate(streams):
        os.dup2(number, standard)
        os.close(number)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - for as long as it lives
        for number, mode in enumerate("rww")
    )
    arguments, env = job
    os.environ.clear()
    os.environ.update(env)
    return arguments


if __name__ == "__main__":
    for name in _IMPORTED:
        import_module(name)
    if arguments := _serve(socket.socket(fileno=int(sys.argv[1]))):
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")
