"""Background commits of a chat, which block neither keys nor answers.

The user may go on chatting; the result is shown before the next prompt. At the end of the chat the
running commits are awaited. One that is killed nevertheless stays open in the store, and the next
start finishes it.
"""

from __future__ import annotations

import asyncio

from sennit.cli.chat.conversation import ChatSession
from sennit.cli.chat.output import ChatOutput
from sennit.cli.memory import commit_lines
from sennit.errors import SennitError
from sennit.memory.commit.result import CommitResult


class BackgroundCommits:
    """The running commits of one chat."""

    def __init__(self, chat: ChatSession, output: ChatOutput) -> None:
        self._chat, self._output = chat, output
        self._under_way: list[asyncio.Task[CommitResult]] = []

    async def run(self, stop_waiting: asyncio.Event) -> None:
        """Commit the branch and show the result, or return as soon as `stop_waiting` is set."""
        commit = asyncio.create_task(asyncio.to_thread(self._chat.commit))
        self._under_way.append(commit)
        interrupted = asyncio.create_task(stop_waiting.wait())
        with self._output.status("Extracting memories…"):
            await asyncio.wait([commit, interrupted], return_when=asyncio.FIRST_COMPLETED)
        interrupted.cancel()
        if not commit.done():
            self._output.note("(the commit continues in the background; its result is shown later)")
        self.report()

    def report(self) -> None:
        """Show the results of finished commits."""
        done = [task for task in self._under_way if task.done()]
        self._under_way = [task for task in self._under_way if not task.done()]
        for task in done:
            self._show(task)

    def _show(self, commit: asyncio.Task[CommitResult]) -> None:
        try:
            for line in commit_lines(self._chat.session.memory, commit.result()):
                self._output.line(line)
        except SennitError as error:
            self._output.error(str(error))

    async def finish(self) -> None:
        """Wait for all running commits and show their results."""
        if self._under_way:
            with self._output.status("Extracting memories…"):
                await asyncio.wait(self._under_way)
        self.report()
