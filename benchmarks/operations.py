"""Operations: what `communicate` adds to a model that answers at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager

from benchmarks.harness import Result, Work, compare
from sennit import AssistantResponseContent, InstructionContent, Message, Session
from sennit.services.models.protocol import Model
from sennit.services.models.reply import Delta, Reply, ReplyText, Usage
from sennit.services.models.request import ModelRequest
from sennit.testing import ScriptedModel

CALLS = 20
SHORT, LONG = 20, 1_000
_QUESTION = "What holds better in wet rope, and why would a sailor choose it?"
_ANSWER = "A bowline holds well when wet and can still be untied after a heavy load. " * 4


class Instant:
    """A model that has its answer ready, whatever it is sent."""

    name = "a model that answers at once"
    window = None
    streams = False
    supports_output_schema = False

    def __init__(self) -> None:
        self._reply = Reply((ReplyText(_ANSWER),), "stop", Usage(100, 80), self.name)

    async def aask(self, request: ModelRequest) -> Reply:  # noqa: ARG002 - the same to all
        return self._reply

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        raise NotImplementedError


def run() -> Iterator[Result]:
    """All results of this step, one after another."""
    for make in (Instant, _scripted):
        yield compare(
            f"communicate at {LONG:,} messages beside {SHORT}, {make().name}",
            Work(_communicate, _with_history(LONG, make)),
            Work(_communicate, _with_history(SHORT, make)),
            floor_name=f"at {SHORT} messages",
            count=CALLS,
            bar=3,
        )
    for size in (SHORT, LONG):
        yield compare(
            f"communicate, {size:,} messages",
            Work(_communicate, _with_history(size, Instant)),
            Work(_dumped, _with_history(SHORT, Instant)),
            floor_name="json.dumps of the two new messages",
            count=CALLS,
            bar=100,
        )


def _scripted() -> Model:
    """The one people test with, which also estimates the tokens of all it is sent."""
    return ScriptedModel([_ANSWER] * (CALLS + 2), "ScriptedModel")


def _with_history(size: int, make: Callable[[], Model]) -> Callable[[], Session]:
    """A session whose branch has been talked on before; reading it the first time costs more."""

    def prepare() -> Session:
        session = Session()
        session.services.register(make(), name="model")
        main = session.create_branch("main", resources={"model"})
        for _ in range(size // 2):
            session.add_message(Message(InstructionContent(instruction=_QUESTION)), branches=main)
            session.add_message(Message(AssistantResponseContent(_ANSWER)), branches=main)
        asyncio.run(_ask(session, 2))
        return session

    return prepare


def _communicate(session: Session) -> None:
    asyncio.run(_ask(session, CALLS))


async def _ask(session: Session, times: int) -> None:
    for _ in range(times):
        operation = await session.conduct(
            branch="main", operation="communicate", instruction=_QUESTION, imodel="model"
        )
        await operation.invoke()


def _dumped(session: Session) -> None:
    messages = [message.to_dict() for message in session.messages[-2:]]
    for _ in range(CALLS):
        for message in messages:
            json.dumps(message)
