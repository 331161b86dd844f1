"""Kill a conversation at each point of its journal, go on with it, and compare.

A scenario is what the model says; what it says depends on what it is asked, not on who asks. It is
rehearsed first: which points it passes, and what it comes to. Then, for each point, a child process
runs it on a session of its own and kills itself there. Whoever comes next goes on: the transcript,
the end and the turns must be those of the rehearsal, and what tools have done was done once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from sennit import Client, PersistenceStrategy, SpecialTurn, Tool
from sennit.services.models.reply import Reply, ReplyCall, ReplyReasoning, ReplyText, Usage
from sennit.services.models.request import ModelRequest
from sennit.services.tools.backend import ToolContext
from sennit.testing import ScriptedModel, ToolCall, faults
from sennit.testing.scripted_model import Scripted
from sennit.turns.conversation import ConversationSession
from sennit.turns.events import RunEnded
from sennit.turns.options import SessionOptions, StreamingOptions
from sennit.turns.result import Return
from tests.torture.crashes import Point, Tally, numbered, share
from tests.torture.fork_server import ForkServer, Say
from tests.torture.ground import opened

PLAIN = StreamingOptions(coalesce_tokens=False)
INTERRUPTED = "Interrupted: the program ended while this ran; whether it took effect is unknown."
LOOK, BOOK, PAY = (ToolCall(name, {}, f"c_{name}") for name in ("look", "book", "pay"))
ERASE, LINGER = (ToolCall(name, {}, f"c_{name}") for name in ("erase", "linger"))
STEERED = "journal.after: message.queued"
WINDOW = 2_000
BESIDE = {"Greet": "Welcome!", "Summarise": "It was about rope.", "Title": "Knots."}
TITLE = SpecialTurn(
    name="title", instruction="Title this.", strategy=PersistenceStrategy.PERSIST_ALL, tools=()
)


@dataclass(frozen=True)
class Scenario:
    """What a model says, by how many results it has been shown, and how it is run."""

    replies: tuple[Scripted, ...]
    options: SessionOptions = field(default_factory=SessionOptions)
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What else `session.conversation` is given."""
    earlier: str = ""
    """What was said and answered before."""
    aside: SpecialTurn | None = None
    """What is asked beside the conversation, before the run."""
    steer: str = ""
    """What is said to the run when its first tool is called."""

    def reply(self, request: ModelRequest) -> Scripted:
        """What is said next."""
        asked = str(request.messages[-1]["content"])
        if asked.startswith(tuple(BESIDE)):
            return BESIDE[asked.split()[0]]
        results = sum(message["role"] == "tool" for message in request.messages)
        return self.replies[min(results, len(self.replies) - 1)]


SCENARIOS = {
    "a text": Scenario(("A bowline does not slip.",)),
    "a thought and a text": Scenario(
        (Reply((ReplyReasoning("Hm, knots."), ReplyText("A bowline."))),)
    ),
    "a text cut off": Scenario((Reply((ReplyText("Once upon a"),), "length", Usage(5, 5)),)),
    "a tool call": Scenario((["I look.", LOOK], "I have seen it.")),
    "a tool that must run once": Scenario((["I look.", LOOK], ["I book.", BOOK], "Booked.")),
    "a tool with an idempotency key": Scenario(([PAY, "One moment."], "Paid.")),
    "calls at once": Scenario(
        (["All three.", LOOK, PAY, BOOK], "?", "?", "Done."),
        SessionOptions(allow_parallel_tools=True),
    ),
    "a call that is done behind a slower one": Scenario(
        (["Both.", LINGER, BOOK], "?", "Done."), SessionOptions(allow_parallel_tools=True)
    ),
    "something said meanwhile": Scenario((["I look.", LOOK], "Seen."), steer="Quickly."),
    "a call that is no JSON": Scenario(([ToolCall("look", '{"a', "c1")], "Sorry.")),
    "a call cut off": Scenario((Reply((ReplyCall("c1", "pay", "{}"),), "length"), "Too long.")),
    "no turn to spare": Scenario(
        (["I look.", LOOK], [PAY], "Paid."), SessionOptions(max_turns=3, max_tool_passes=2)
    ),
    "a call that waits for a person": Scenario((["May I?", ERASE], "Erased.")),
    "special turn": Scenario((["I look.", LOOK], "Seen."), aside=TITLE),
    "greeting": Scenario((["I look.", LOOK], "Seen."), given={"generate_greeting": True}),
    "summary": Scenario((["I look.", LOOK], "Seen."), earlier="Rope. " * WINDOW),
}


class World:
    """A session in a store, its tools, and a file in which tools note what they did."""

    def __init__(self, client: Client, key: str, scenario: Scenario, effects: Path) -> None:
        self.effects, self.scenario = effects, scenario
        self.session = client.session(key, resources="*")
        self.branch = self.session.default_branch
        # Time between the pieces, so that most of them are written one by one.
        model = ScriptedModel([scenario.reply] * 50, chunk=6, delay=0.001, window=WINDOW)
        tools = [
            Tool(_look, "look", replay="safe"),
            Tool(self._book, "book", replay="never"),
            Tool(self._pay, "pay", replay="safe"),
            Tool(self._pay, "erase", replay="safe", needs_approval=True),
            Tool(self._linger, "linger", replay="safe"),
        ]
        self._booked = asyncio.Event()
        self.conversation: ConversationSession = self.session.conversation(
            self.branch, model=model, tools=tools, **scenario.given
        )

    async def _book(self) -> str:
        """Book a table."""
        self._note("book")
        asyncio.get_running_loop().call_later(0.05, self._booked.set)
        return "booked"

    async def _linger(self) -> str:
        """Wait until a table was booked, and that was noted; if it was cut off, for nothing."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._booked.wait(), 0 if "book" in self.done else 0.5)
        return "waited"

    async def _pay(self, context: ToolContext) -> str:
        """Pay, once for each key."""
        if context.idempotency_key not in self.done:
            self._note(context.idempotency_key or "")
        return "paid"

    def _note(self, effect: str) -> None:
        with self.effects.open("a") as file:
            file.write(f"{effect}\n")

    @property
    def done(self) -> list[str]:
        """What tools have done."""
        return self.effects.read_text().splitlines() if self.effects.exists() else []

    async def begin(self) -> Return:
        """Run to the end, and allow what waits."""
        await self._ask_aside()
        async with self.conversation.events(self.scenario.options, PLAIN) as events:
            async for event in events:
                if event.kind == "tool.started" and self.scenario.steer:
                    self.conversation.steer(self.scenario.steer)
            return await self._allowed(events.result)

    async def _ask_aside(self) -> None:
        """Ask the special turn, unless what it leaves is there."""
        turn = self.scenario.aside
        there = any("special_turn" in message.metadata for message in self.branch.messages)
        if turn is not None and not there:
            (await self.conversation.execute_special_turn(turn)).raise_for_error()

    async def go_on(self) -> Return:
        """Go on with a run that was cut off, or begin if it never was."""
        result = await self.conversation.aresume(streaming_options=PLAIN)
        if result.stop_reason == "invalid":
            last = self.last
            return await self.begin() if last is None else last
        return await self._allowed(result)

    async def _allowed(self, result: Return) -> Return:
        while result.stop_reason == "suspended":
            waiting = self.conversation.request.pending()
            for request in waiting:
                call_id: str = request.content.to_dict()["call_id"]
                decided = await self.conversation.aapprove(call_id, resume=False)
                assert decided is None
            result = await self.conversation.aresume(streaming_options=PLAIN)
        return result

    @property
    def last(self) -> Return | None:
        """How the last run ended, if one did."""
        ends = [one.result for one in self.conversation.history() if isinstance(one, RunEnded)]
        return ends[-1] if ends else None

    @property
    def transcript(self) -> list[Any]:
        """What stands on the branch, without ids and times."""
        return [
            (type(message.content).__name__, message.content.to_dict(), _noted(message.metadata))
            for message in self.branch.messages
        ]


def _look() -> str:
    """Look around."""
    return "seen"


def _noted(metadata: Mapping[str, Any]) -> dict[str, Any]:
    # How much was sent depends on the words of a result.
    # What was replaced has another branch each time.
    left_out = ("group", "usage", "replaced")
    return {name: value for name, value in metadata.items() if name not in left_out}


@dataclass
class Rehearsal:
    """What is known of a scenario."""

    name: str
    points: list[Point]
    transcript: list[Any]
    end: tuple[Any, ...]
    done: int


def rehearse(address: str, folder: Path, name: str) -> Rehearsal:
    """Run a scenario and look at it closely."""
    with faults.record() as reached, opened(address) as client:
        world = _world(client, name, folder)
        result = asyncio.run(world.begin())
        passed = [one for one in reached if one.startswith(("journal.", "tool."))]
        points = numbered(passed)
        if world.scenario.steer:  # what was not kept yet, nobody will say again
            points = points[passed.index(STEERED) :]
        return Rehearsal(name, points, world.transcript, _end(result), len(world.done))


def _end(result: Return) -> tuple[Any, ...]:
    codes = tuple(notice.code for notice in result.notices)
    return result.stop_reason, codes, result.metrics.turns, result.metrics.usage.output_tokens


def _world(client: Client, name: str, folder: Path) -> World:
    key = f"{name} {uuid4()}"
    world = World(client, key, SCENARIOS[name], folder / f"{key}.txt")
    if world.scenario.earlier:
        world.session.add_message("user", world.scenario.earlier)
        world.session.add_message("assistant", "I see.")
    world.session.add_message("user", "Go.")
    return world


def work(job: dict[str, Any], say: Say) -> None:
    """In a child: go on with a session that was prepared, and die at a point of its run."""
    with faults.record(), opened(job["address"]) as client:
        world = World(client, job["key"], SCENARIOS[job["scenario"]], Path(job["effects"]))
        with faults.arm(job["point"], faults.kill, at=job["at"]):
            asyncio.run(world.begin())
        say("done")


def try_to_run(job: dict[str, Any], say: Say) -> None:
    """In a child: run on a branch that somebody else may hold, and say what came of it."""
    _in_child(job, say, lambda world: world.conversation.run_to_stable_result())


def stream(job: dict[str, Any], say: Say) -> None:
    """In a child: run a scenario, shown piece by piece."""
    _in_child(job, say, lambda world: world.begin())


def allow(job: dict[str, Any], say: Say) -> None:
    """In a child: allow the calls of a run that waits, and go on with it."""
    _in_child(job, say, lambda world: world.go_on())


def _in_child(
    job: dict[str, Any], say: Say, act: Callable[[World], Coroutine[Any, Any, Return]]
) -> None:
    scenario = SCENARIOS[job.get("scenario", "a text")]
    with opened(job["address"]) as client:
        world = World(client, job["key"], scenario, Path(job.get("effects", "nothing.txt")))
        result = asyncio.run(act(world))
        say(f"{result.stop_reason} {' '.join(notice.code for notice in result.notices)}".strip())


class Killing:
    """Kills on one store, and what came of them."""

    def __init__(self, address: str, folder: Path, fork_server: ForkServer) -> None:
        self.address, self.folder, self.fork_server = address, folder, fork_server
        self.tally = Tally()

    def kill(self, rehearsal: Rehearsal, point: Point) -> None:
        """Run a scenario in a child that dies at a point, go on here, and compare."""
        where = f"{rehearsal.name}, {point}"
        with opened(self.address) as client:
            world = self.left_at(client, rehearsal, point)
            if world is not None:
                self._judge(rehearsal, where, world, asyncio.run(world.go_on()))

    def left_at(self, client: Client, rehearsal: Rehearsal, point: Point) -> World | None:
        """What is left of a scenario when a child that runs it has died at a point, if it did."""
        world = _world(client, rehearsal.name, self.folder)
        job = {"do": "torture.turns.work", "address": self.address, "key": world.session.key}
        job |= {"scenario": rehearsal.name, "effects": str(world.effects)}
        code, said = self.fork_server.run({**job, "point": point[0], "at": point[1]})
        if code == -9:
            self.tally.killed += 1
            world.session.refresh()
            return world
        # Pieces that were written together have fewer points: then it came to its end.
        if (code, said) != (0, ["done"]):
            self.tally.note("sick", f"{rehearsal.name}, {point}", (code, said))
        return None

    def _judge(self, rehearsal: Rehearsal, where: str, world: World, result: Return) -> None:
        wanted, found = rehearsal.transcript, world.transcript
        if found != wanted and found != _interrupted(wanted, found):
            self.tally.note("torn", where, _apart(found, wanted))
        if _end(result) != rehearsal.end:
            self.tally.note("sick", where, (_end(result), rehearsal.end))
        counted = Counter(world.done)
        if any(times > 1 for times in counted.values()) or len(counted) > rehearsal.done:
            self.tally.note("doubled", where, counted)
        if len(counted) < rehearsal.done and found == wanted:
            self.tally.note("lost", where, counted)
        events = world.conversation.history()
        if [event.seq for event in events] != list(range(1, len(events) + 1)):
            self.tally.note("torn", where, [event.seq for event in events])
        ends = [one for one in events if isinstance(one, RunEnded) and _is_last(one)]
        if len(ends) != 1 or events[-1] is not ends[0]:
            self.tally.note("doubled", where, [event.kind for event in events])


def _is_last(end: RunEnded) -> bool:
    return end.result.stop_reason != "suspended"


def _interrupted(wanted: list[Any], found: list[Any]) -> list[Any]:
    """The transcript if the tool that must not run twice was under way."""
    return [
        (kind, {**rest, "error": INTERRUPTED}, noted)
        if content.get("result") == "booked" and "error" in dict(found[at][1])
        else (kind, content, noted)
        for at, (kind, content, noted) in enumerate(wanted[: len(found)])
        for rest in [{name: value for name, value in content.items() if name != "result"}]
    ]


def _apart(found: list[Any], wanted: list[Any]) -> Any:
    for at, (one, other) in enumerate(zip(found, wanted, strict=False)):
        if one != other:
            return at, one, other
    return len(found), len(wanted), found[len(wanted) :]


def kill_all(address: str, folder: Path, every: int = 1) -> Tally:
    """Kill each scenario at every so many-th of its points; gives what came of it."""
    with ForkServer() as fork_server:
        killing = Killing(address, folder, fork_server)
        for name in SCENARIOS:
            rehearsal = rehearse(address, folder, name)
            for point in share(rehearsal.points, every, name):
                killing.kill(rehearsal, point)
    return killing.tally
