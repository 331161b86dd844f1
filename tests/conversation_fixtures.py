"""A conversation with a scripted model, for tests of turns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from sennit import Branch, InstructionContent, Message, Session
from sennit.events import AnyEvent, RunEnded
from sennit.testing import ScriptedModel
from sennit.turns.conversation import ConversationSession
from sennit.turns.options import SessionOptions, StreamingOptions
from sennit.turns.result import Return
from sennit.turns.stream import RunStream

PLAIN = StreamingOptions(coalesce_tokens=False)


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def fail(reason: str) -> None:
    """Always fails."""
    raise RuntimeError(reason)


class Talk:
    """A session, a branch with a first instruction, and a model that says what it was told to."""

    def __init__(
        self,
        *replies: Any,
        tools: Iterable[Any] = (add, fail),
        say: str | None = "Go.",
        session: Session | None = None,
        **options: Any,
    ) -> None:
        self.model = ScriptedModel(list(replies), name="scripted", **options)
        self.session = session or Session()
        self.session.services.register(self.model, replace=True)
        for tool in tools:
            self.session.services.register(tool)
        self.branch: Branch = self.session.create_branch("talk", resources="*")
        self.tools = list(tools)
        if say is not None:
            self.say(say)

    def say(self, text: str) -> None:
        self.session.add_message(
            Message(InstructionContent(instruction=text)), branches=self.branch
        )

    def conversation(self, **more: Any) -> ConversationSession:
        return self.session.conversation(self.branch, model="scripted", tools=self.tools, **more)

    def run(self, options: SessionOptions | None = None, **more: Any) -> Return:
        return asyncio.run(self.conversation(**more).run_to_stable_result(options))

    def stream(
        self,
        options: SessionOptions | None = None,
        streaming: StreamingOptions | None = PLAIN,
        **more: Any,
    ) -> list[Return]:
        async def watch() -> list[Return]:
            async with self.conversation(**more).stream(options, streaming) as pieces:
                return [piece async for piece in pieces]

        return asyncio.run(watch())

    def events(
        self,
        options: SessionOptions | None = None,
        streaming: StreamingOptions | None = PLAIN,
        **more: Any,
    ) -> list[AnyEvent]:
        async def watch() -> list[AnyEvent]:
            async with self.conversation(**more).events(options, streaming) as events:
                return [event async for event in events]

        return asyncio.run(watch())

    @property
    def said(self) -> list[str]:
        """What stands on the branch, in short."""
        return [in_short(message) for message in self.branch.messages]


async def rest_of(stream: RunStream[Any]) -> Return:
    """The result of a run, once the rest of its stream has been read."""
    async for _ in stream:
        pass
    return stream.result


def in_short(message: Message) -> str:
    """The kind and the gist of a message."""
    content: Any = message.content
    match type(content).__name__:
        case "ActionRequestContent":
            return f"call {content.function}"
        case "ActionResponseContent":
            return f"error {content.error}" if content.error else f"result {content.result}"
        case "AssistantResponseContent":
            return f"says {content.assistant_response or ''}".rstrip()
        case _:
            return f"user {content.instruction}"


def kinds(events: Iterable[AnyEvent]) -> list[str]:
    """The kinds of events, pieces of text left out."""
    return [event.kind for event in events if event.kind not in ("text.delta", "reasoning.delta")]


def ending(events: list[AnyEvent]) -> Return:
    """The end of a run, of which there is one, and it is the last."""
    ends = [event for event in events if isinstance(event, RunEnded)]
    assert len(ends) == 1
    assert events[-1] is ends[0]
    return ends[0].result
