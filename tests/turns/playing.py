"""Conversations that go wrong in every way a script can say, to look at what is left of them.

A script is what the model says, delta by delta, with failures in between, and what people do when
the n-th event is seen. Tools misbehave in ways of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from hypothesis import strategies as st

from sennit import ModelError, Tool
from sennit.services.models.reply import (
    CallDelta,
    Delta,
    Finished,
    FinishReason,
    ReasoningDelta,
    Reply,
    ReplyAssembler,
    TextDelta,
    Usage,
)
from sennit.services.models.request import ModelRequest
from sennit.testing import run_instantly
from sennit.turns.events import AnyEvent
from sennit.turns.observers import ConversationObserver
from sennit.turns.options import SessionOptions
from sennit.turns.result import Return
from tests.conversation_fixtures import PLAIN, Talk

Act = Literal["cancel", "cancel after turn", "steer", "cancel the task", "cancel it twice"]
ACTS: tuple[Act, ...] = (
    "cancel",
    "cancel after turn",
    "steer",
    "cancel the task",
    "cancel it twice",
)


class Speaker:
    """A model that says deltas, raises what stands among them, and answers "Done." afterwards."""

    name = "scripted"
    window = None
    streams = True
    supports_output_schema = False

    def __init__(self, replies: list[list[Delta | Exception]]) -> None:
        self._replies = iter(replies)

    async def aask(self, request: ModelRequest) -> Reply:
        assembly = ReplyAssembler()
        async with self.stream(request) as deltas:
            async for delta in deltas:
                assembly.feed(delta)
        return assembly.reply()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        assert request.messages
        yield _told(next(self._replies, [TextDelta("Done."), Finished("stop")]))


async def _told(reply: list[Delta | Exception]) -> AsyncIterator[Delta]:
    for one in reply:
        if isinstance(one, Exception):
            raise one
        yield one


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def fail(reason: str = "no") -> None:
    """Always fails."""
    raise RuntimeError(reason)


async def hang() -> None:
    """Never comes back."""
    await asyncio.Event().wait()


async def linger() -> str:
    """Takes a while."""
    await asyncio.sleep(1)
    return "at last"


async def odd() -> Any:
    """Gives what nobody can store."""
    return {"value": float("nan")}


async def leave() -> None:
    """Cancels itself."""
    raise asyncio.CancelledError


def tools() -> list[Any]:
    return [add, fail, Tool(hang, timeout=5), linger, odd, leave]


@dataclass(frozen=True)
class Script:
    """What is said, and what is done at which event."""

    replies: list[list[Delta | Exception]]
    acts: Mapping[int, Act] = field(default_factory=dict[int, Act])
    options: SessionOptions = field(default_factory=SessionOptions)


class Recorder(ConversationObserver):
    """Notes the ends it is told of."""

    def __init__(self) -> None:
        self.ends: list[str] = []

    def on_delta(self, interaction: Any) -> None:
        self.ends.append("delta")

    def on_error(self, error: Exception) -> None:
        self.ends.append("error")

    def on_final(self, result: Return) -> None:
        self.ends.append("final")


class Played:
    """A script that was played as events."""

    def __init__(self, script: Script, talk: Talk | None = None) -> None:
        self.script, self.talk = script, talk or Talk(tools=tools())
        self.talk.session.services.register(Speaker(script.replies), replace=True)
        self.seen: list[AnyEvent] = []
        self.watcher = Recorder()
        run_instantly(self._play())

    async def _play(self) -> None:
        conversation = self.talk.conversation(observers=[self.watcher])
        playing = asyncio.current_task()
        assert playing is not None

        async def watch() -> None:
            async with conversation.events(self.script.options, PLAIN) as events:
                async for event in events:
                    self.seen.append(event)
                    self._act(conversation, watching)

        watching = asyncio.create_task(watch())
        with suppress(asyncio.CancelledError):
            await watching

    def _act(self, conversation: Any, watching: asyncio.Task[None]) -> None:
        match self.script.acts.get(len(self.seen)):
            case "cancel":
                conversation.cancel()
            case "cancel after turn":
                conversation.cancel("after_turn")
            case "steer":
                conversation.steer("In feet, please.")
            case "cancel the task":
                watching.cancel()
            case "cancel it twice":
                watching.cancel()
                asyncio.get_running_loop().call_soon(watching.cancel)
            case None:
                pass


_WORDS = st.sampled_from(
    ["Hm.", " ", "\n", "", "Knots ", "half \ud83d", "\ude00 of it", "a\0b", "żółw", "x" * 70]
)
_IDS = st.sampled_from(["", "same", "same", "call_1", "odd id", "é" * 3, "i" * 90, "a\0", "\ud800"])
_NAMES = st.sampled_from(
    ["add", "add", "fail", "hang", "linger", "odd", "leave", "no such tool", "", "a\0", "n" * 99]
)
_ARGUMENTS = st.sampled_from(
    [
        '{"a": 1, "b": 2}',
        "",
        "{}",
        '{"a": 1,',
        "[1, 2]",
        "null",
        '{"reason": "\\u0000"}',
        '{"reason": "\ud800"}',
        '{"a": NaN}',
        '{"a": 123456789012345678901234567890}',
        '{"a": ' + "[" * 150 + "]" * 150 + "}",
    ]
)
_ENDS: st.SearchStrategy[FinishReason] = st.sampled_from(
    ["stop", "stop", "tool_calls", "length", "refusal", "error"]
)
_FAILURES = st.sampled_from(
    [ModelError("down", kind="overloaded"), ModelError("gone", kind="network"), ValueError("oops")]
)


@st.composite
def _replies(draw: st.DrawFn, *, failing: bool) -> list[Delta | Exception]:
    """The deltas of a reply: texts, thoughts and calls that grow beside one another."""
    said: list[Delta | Exception] = []
    for index in draw(st.lists(st.integers(-3, 2), max_size=7)):
        if index < -1:
            kind = TextDelta if index == -2 else ReasoningDelta
            said.append(kind(draw(_WORDS)))
        elif index == -1 and failing:
            said.append(draw(_FAILURES))
        elif index >= 0:
            said.append(CallDelta(index, draw(_IDS), draw(_NAMES), draw(_ARGUMENTS)))
    usage = Usage(draw(st.integers(0, 50)), draw(st.integers(0, 50)))
    if not failing or draw(st.integers(0, 9)):
        said.append(Finished(draw(_ENDS), usage, "m1"))
    return said


_OPTIONS = st.builds(
    SessionOptions,
    process_tools=st.sampled_from([True, True, True, False]),
    max_turns=st.integers(1, 5),
    max_tool_passes=st.integers(0, 4),
    allow_parallel_tools=st.booleans(),
    on_cancel=st.sampled_from(["keep_partial", "discard_partial"]),
)


def scripts(*, undisturbed: bool = False) -> st.SearchStrategy[Script]:
    """Any script; an undisturbed one has no failures and nobody does anything."""
    acts = st.dictionaries(st.integers(1, 15), st.sampled_from(ACTS), max_size=3)
    return st.builds(
        Script,
        st.lists(_replies(failing=not undisturbed), min_size=1, max_size=4),
        st.just({}) if undisturbed else acts,
        _OPTIONS,
    )
