"""A real pseudo-terminal with a program in it, for tests that type and read."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.forking import PATIENCE, Forked, fork

SCRIPTED_CHAT = str(Path(__file__).parent / "scripted_chat.py")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[()][AB0]|\x1b[=>78]")


class Terminal:
    """Types into a program and waits for what it shows."""

    def __init__(self, process: subprocess.Popen[bytes] | Forked, master: int) -> None:
        self.process, self._master = process, master
        self._unread = ""
        self.shown = ""

    def type(self, text: str) -> None:
        self.send(text.encode())

    def send(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def say(self, line: str, answer: str) -> None:
        """Type a line once the prompt is there, and wait for something that the line has not."""
        self.expect("›")
        self.type(f"{line}\r")
        self.expect(answer)

    def expect(self, text: str) -> str:
        """Wait until a text is shown; gives what came before it, and goes on behind it."""
        while text not in self._unread:
            piece = self._read()
            assert piece, f"{text!r} was not shown; there is {self.shown[-2000:]!r}"
        before, _, self._unread = self._unread.partition(text)
        return before

    def end(self) -> int:
        """Wait for the program to end; gives its exit code."""
        while self._read():
            pass
        return self.process.wait(PATIENCE)

    def _read(self) -> str:
        ready, _, _ = select.select([self._master], [], [], PATIENCE)
        try:
            piece = os.read(self._master, 65536).decode(errors="replace") if ready else ""
        except OSError:  # how Linux says that the program has closed it
            piece = ""
        text = _ESCAPES.sub("", piece).replace("\r", "").replace("\b", "")
        self.shown += text
        self._unread += text
        return piece


@contextmanager
def terminal(
    arguments: list[str], folder: Path, columns: int = 200, **env: str
) -> Generator[Terminal]:
    """A program on a terminal of its own."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    process = _started(arguments, slave, environment(folder, **env))
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
        os.close(master)


def _started(
    arguments: list[str], slave: int, env: dict[str, str]
) -> subprocess.Popen[bytes] | Forked:
    if arguments[0] == SCRIPTED_CHAT:
        return fork(arguments, [slave] * 3, env)
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=env,
        start_new_session=True,
    )


_NOT_THEIRS = ("COLUMNS", "LINES", "SENNIT_URL", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")


def environment(folder: Path, **more: str) -> dict[str, str]:
    """The environment of a user whose files are all in one folder, and who is not inside make."""
    return {
        **{name: value for name, value in os.environ.items() if name not in _NOT_THEIRS},
        "XDG_DATA_HOME": str(folder / "data"),
        "OMP_WAIT_POLICY": "passive",
        "PROMPT_TOOLKIT_NO_CPR": "1",
        "TERM": "xterm",
        **more,
    }
