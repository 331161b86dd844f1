"""Talks with scripted models, shown on a screen that is a text."""

from __future__ import annotations

import asyncio
from io import StringIO
from typing import Any

from rich.console import Console

import sennit
from sennit.cli.chat.background_commits import BackgroundCommits
from sennit.cli.chat.conversation import ChatOptions, ChatSession
from sennit.cli.chat.output import ChatOutput
from sennit.cli.chat.slash_commands import (
    AskModel,
    Commit,
    Connect,
    Next,
    handle_line,
    show_model,
)
from sennit.testing import ScriptedModel


class Desk:
    """A talk on a desk: type lines, read what the screen shows."""

    def __init__(self, replies: list[Any], *, store: str = ":memory:", **partner: Any) -> None:
        self.model = ScriptedModel(replies, chunk=4)
        self.client = sennit.open(store)
        self.paper = StringIO()
        self.screen = ChatOutput(Console(file=self.paper, width=80, highlight=False))
        self.talk = ChatSession(
            self.client.session("chat"),
            ChatOptions(model=self.model, **partner),
            client=self.client,
        )

    def type(self, line: str) -> str:
        """What a line shows, the answer included."""
        self.step(line)
        return self.shown()

    def step(self, line: str) -> Next:
        """What comes next after a line, with the answer given if it is that."""
        following = handle_line(self.talk, self.screen, line)
        if isinstance(following, AskModel):
            asyncio.run(self.talk.answer(self.screen.event, following.say))
        if isinstance(following, Connect):
            asyncio.run(self._connect())
        if isinstance(following, Commit):
            asyncio.run(self._remember())
        return following

    async def _connect(self) -> None:
        show_model(self.talk, self.screen, await self.talk.connect())

    async def _remember(self) -> None:
        await BackgroundCommits(self.talk, self.screen).run(asyncio.Event())

    def shown(self) -> str:
        """What the screen shows since the last time."""
        text = self.paper.getvalue()
        self.paper.seek(0)
        self.paper.truncate()
        return text

    @property
    def branch(self) -> str:
        return self.talk.branch.name

    def said(self, branch: str) -> list[str]:
        """Who said what on a branch."""
        messages = self.talk.session.get_branch(branch).messages
        return [f"{one.role.value}: {one.chat_msg['content']}" for one in messages]
