"""A server as its own process: `python -m tests.http_server_process STORE [WORDS]` prints its port.

Its model says so many words, waits for ever after them, and is asked in vain for more; without a
number it repeats what was said. For tests that kill servers and start them again.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from sennit.server.run import listen, serve
from sennit.server.settings import Limits, ServerSettings
from sennit.services.models.reply import Delta, Finished, TextDelta, Usage
from tests.http_server import Gate, Running, Talker


class Stalling(Talker):
    """Says some words and then nothing more."""

    async def _deltas(self, words: list[str]):
        for word in words:
            yield TextDelta(word)
        await Gate().pass_through()
        finished: Delta = Finished("stop", Usage(), self.name)
        yield finished


class Served(Running):
    """A server in another process."""

    def __init__(self, url: str, process: subprocess.Popen[str]) -> None:
        super().__init__(url, None)
        self.process = process

    def end(self, how: signal.Signals) -> int:
        """Send a signal, and give how the process ended."""
        self.close()
        self.process.send_signal(how)
        return self.process.wait(30)


@contextmanager
def served(store: str | Path, words: int = 0) -> Generator[Served]:
    """Start a server; if the test has not ended it, it is killed."""
    command = [sys.executable, "-m", "tests.http_server_process", str(store), str(words)]
    root = Path(__file__).parent.parent
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            server = Served(f"http://127.0.0.1:{port}", process)
            yield server
            server.close()
        finally:
            if process.poll() is None:
                process.kill()


def main(store: str, words: str) -> None:
    model = Stalling(words=int(words)) if int(words) else Talker()
    settings = ServerSettings(url=store, port=0, models=(model,), limits=Limits(rate=None))
    listener = listen(settings)
    print(listener.getsockname()[1], flush=True)
    serve(settings, listener)


if __name__ == "__main__":
    main(*sys.argv[1:])
