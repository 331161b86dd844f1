"""Background commits of a chat, which block neither keys nor answers.

Whoever does not want to wait goes on talking; what came of it is shown before the next prompt. At
the end of the talk those under way are waited for. One that is cut off there all the same is in the
store, open, and finished by the next start.
"""

from __future__ import annotations

import asyncio

from sennit.cli.chat.conversation import ChatSession
from sennit.cli.chat.output import ChatOutput
from sennit.cli.memory import commit_lines
from sennit.errors import SennitError
from sennit.memory.commit.result import CommitResult


class BackgroundCommits:
    """The commits of one talk that are under way."""

    def __init__(self, talk: ChatSession, screen: ChatOutput) -> None:
        self._talk, self._screen = talk, screen
        self._under_way: list[asyncio.Task[CommitResult]] = []

    async def make(self, enough: asyncio.Event) -> None:
        """Commit the branch and show what came of it, unless somebody has had enough of waiting."""
        made = asyncio.create_task(asyncio.to_thread(self._talk.commit))
        self._under_way.append(made)
        impatient = asyncio.create_task(enough.wait())
        with self._screen.working("Extracting memories…"):
            await asyncio.wait([made, impatient], return_when=asyncio.FIRST_COMPLETED)
        impatient.cancel()
        if not made.done():
            self._screen.note("(the commit continues in the background; its result is shown later)")
        self.report()

    def report(self) -> None:
        """Show what came of those that are done by now."""
        done = [one for one in self._under_way if one.done()]
        self._under_way = [one for one in self._under_way if not one.done()]
        for one in done:
            self._show(one)

    def _show(self, made: asyncio.Task[CommitResult]) -> None:
        try:
            for line in commit_lines(self._talk.session.memory, made.result()):
                self._screen.line(line)
        except SennitError as error:
            self._screen.error(str(error))

    async def finish(self) -> None:
        """Wait for all of them."""
        if self._under_way:
            with self._screen.working("Extracting memories…"):
                await asyncio.wait(self._under_way)
        self.report()
