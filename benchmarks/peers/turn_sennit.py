"""Sennit's conversations, in memory or on SQLite with its defaults.

The variant has the word `sqlite` for SQLite, and `new` for a new ConversationSession each turn.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any
from uuid import uuid4

import sennit
from benchmarks.peers.turning import ANSWER, ARGUMENTS, FOUND, QUESTION, Turner, serve
from sennit import Client, ConversationSession, Session
from sennit.messages.codec import dumps
from sennit.services.models.reply import Reply, ReplyCall, ReplyText, Usage
from sennit.services.models.request import ModelRequest


class Instant:
    """Asks for the tool, then answers, and so on."""

    name = "instant"
    window = None
    streams = False
    supports_output_schema = False

    async def aask(self, request: ModelRequest) -> Reply:
        if request.messages[-1]["role"] == "tool":
            return Reply((ReplyText(ANSWER),), "stop", Usage(150, 80))
        call = ReplyCall(uuid4().hex, "look_up", dumps(ARGUMENTS).decode())
        return Reply((call,), "tool_calls", Usage(100, 20))

    def stream(self, request: ModelRequest) -> Any:
        raise NotImplementedError


class Sennit(Turner):
    _client: Client | None = None

    def about(self) -> dict[str, Any]:
        return {"versions": {"sennit": version("sennit")}}

    async def prepare(self) -> None:
        if "sqlite" in self.variant:
            self._client = sennit.open(self.folder / f"{uuid4()}.db")
            session = await self._client.asession("chat")
        else:
            session = Session()

        async def look_up(knot: str) -> str:
            """Look up a knot."""
            assert knot
            self.looked += 1
            return FOUND

        session.services.register(Instant())
        session.services.register(look_up)
        self._session = session
        self._branch = session.create_branch("main", resources="*")
        self._conversation = self._new_conversation()

    def _new_conversation(self) -> ConversationSession:
        return self._session.conversation(self._branch, model="instant", tools=["look_up"])

    async def turn(self) -> str:
        await self._session.aadd_message("user", QUESTION)
        new = "new" in self.variant
        conversation = self._new_conversation() if new else self._conversation
        return (await conversation.run_to_stable_result()).raise_for_error().text

    async def tidy(self) -> None:
        await super().tidy()
        if self._client is not None:
            await self._client.aclose()


if __name__ == "__main__":
    serve(Sennit)
