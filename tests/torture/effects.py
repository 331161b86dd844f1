"""Kill a tool call at each of its stages, resume, and count its side effects outside the process.

A case says whether the tool needs approval, what a person does after the restart, the tool's
`replay`, how many calls are made at once, at which stage the program ends, and who resumes. The
program is a real child process that kills itself (for "the same process", the run is suspended at
that stage instead). Each effect is a line in a file. What must follow is computed from three facts
per call: whether its start was recorded, whether its result is known, and how often it took effect.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, Protocol, get_args
from uuid import UUID, uuid4

from sennit import Client, NotFoundError, Tool, failpoints
from sennit.services.models.request import ModelRequest
from sennit.services.tools.backend import ToolContext
from sennit.services.tools.tool import Replay
from sennit.testing import ScriptedModel, ToolCall, faults
from sennit.turns.events import (
    ApprovalDecided,
    ToolCalled,
    ToolCompleted,
    ToolResultBuffered,
    ToolStarted,
)
from sennit.turns.options import SessionOptions
from tests.http_server import Running, all_events, serving
from tests.torture.crashes import Tally
from tests.torture.fork_server import ForkServer, Job, Say
from tests.torture.ground import opened

STAGES = {
    "before the start": "journal.before: tool.started",
    "before the call": "journal.after: tool.started",
    "inside": "effects.inside",
    "after the effect": "effects.after",
    "before the result": "journal.before: tool.completed",
    "after the result": "journal.after: tool.completed",
}
REPLAYS: tuple[Replay, ...] = get_args(Replay)
LATER = ("nothing", "approve", "deny")
SAME, PROCESS, SERVER = "the same process", "another process", "another server"


@dataclass(frozen=True)
class Case:
    """One way in which a call is interrupted and resumed."""

    approval: bool
    """Whether the tool needs approval; if so, every call is approved before its first start."""
    later: str
    """What a person does with calls that wait after the restart: nothing, approve or deny."""
    replay: Replay
    calls: int
    stage: str
    resumed_by: str

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in asdict(self).items())


CASES = [
    Case(*one)
    for one in product(
        (False, True),
        LATER,
        REPLAYS,
        (1, 2),
        STAGES,
        (SAME, PROCESS, SERVER),
    )
]


@dataclass(frozen=True)
class Known:
    """The facts about one call."""

    started: bool
    finished: bool
    effects: int
    starts: int = 0
    approvals: int = 0


class World:
    """A session in a store, its model and tool, and the file that counts effects."""

    def __init__(self, case: Case, key: str, folder: Path) -> None:
        self.case, self.key, self.file = case, key, folder / f"{key}.txt"
        self.suspend: Callable[[], object] | None = None
        self.tool = Tool(self._pay, "pay", replay=case.replay, needs_approval=case.approval)
        self.model = ScriptedModel([self._reply] * 20, name="scripted")
        self.options = SessionOptions(allow_parallel_tools=True)

    def _reply(self, request: ModelRequest) -> Any:
        if any(message["role"] == "tool" for message in request.messages):
            return "Done."
        return [ToolCall("pay", {}, call) for call in self.calls]

    @property
    def calls(self) -> list[str]:
        return [f"c{number}" for number in range(self.case.calls)]

    async def _pay(self, context: ToolContext) -> str:
        """Pay."""
        await self._pass("effects.inside")
        with self.file.open("a") as file:
            file.write(f"{context.call_id}\n")
        await self._pass("effects.after")
        return "paid"

    async def _pass(self, stage: str) -> None:
        failpoints.reach(stage)
        if self.suspend is not None and stage == STAGES.get(self.case.stage):
            await asyncio.Event().wait()  # until the suspended run cancels it

    @property
    def effects(self) -> Counter[str]:
        return Counter(self.file.read_text().split() if self.file.exists() else ())

    def known(self, client: Client) -> dict[str, Known]:
        """The facts about each call, from the journal and the file."""
        session = client.session(self.key, resources="*")
        session.refresh()
        history = session.conversation("main", model=self.model, tools=[self.tool]).history()
        requests: dict[UUID, str] = {}
        starts, approvals, finished = Counter[str](), Counter[str](), set[str]()
        for event in history:
            match event:
                case ToolCalled():
                    requests[event.message.id] = _call_id(event.message.content)
                case ToolStarted():
                    starts[requests[event.message.id]] += 1
                case ApprovalDecided(approved=True):
                    approvals[requests[event.message.id]] += 1
                case ToolCompleted():
                    finished.add(event.message.content.to_dict()["request_id"])
                case ToolResultBuffered():
                    finished.add(requests[event.request_id])
                case _:
                    pass
        return {
            call: Known(
                call in starts, call in finished, self.effects[call], starts[call], approvals[call]
            )
            for call in self.calls
        }

    def results(self, client: Client) -> list[str]:
        """The errors of calls on the branch ("" for a good result)."""
        branch = client.session(self.key).get_branch("main")
        contents = [one.content.to_dict() for one in branch.messages]
        return [str(one.get("error", "")) for one in contents if "request_id" in one]


def _call_id(content: Any) -> str:
    return content.call_id


class Program(Protocol):
    """A program that runs the conversation: in Python, or over HTTP."""

    def run(self) -> str:
        """Start the run; gives its stop reason."""
        ...

    def resume(self) -> str:
        """Resume the run; gives its stop reason, "invalid" if there is nothing to resume."""
        ...

    def pending_approvals(self) -> list[str]: ...

    def decide(self, call: str, approve: bool) -> bool:
        """Decide about a call; False if it does not wait."""
        ...


class InPython:
    """The library, used by a program with its own client."""

    def __init__(self, world: World, client: Client) -> None:
        session = client.session(world.key, resources="*")
        self._options = world.options
        self.conversation = session.conversation("main", model=world.model, tools=[world.tool])

    def run(self) -> str:
        result = self._now(self.conversation.run_to_stable_result(self._options))
        return str(result.stop_reason)

    def resume(self) -> str:
        return str(self._now(self.conversation.aresume()).stop_reason)

    def pending_approvals(self) -> list[str]:
        return [_call_id(one.content) for one in self.conversation.pending_approvals()]

    def decide(self, call: str, approve: bool) -> bool:
        act = self.conversation.aapprove if approve else self.conversation.adeny
        try:
            self._now(act(call, resume=False))
        except NotFoundError:
            return False
        return True

    def _now(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run(work)


class OverHTTP:
    """A client of a server."""

    def __init__(self, world: World, server: Running) -> None:
        self._server, self._options = server, asdict(world.options)
        self._branch = f"/api/sessions/{world.key}/branches/main"

    def run(self) -> str:
        asked = {"options": self._options, "memory": False}
        return self._ended(self._server.post(f"{self._branch}/runs", asked))

    def resume(self) -> str:
        answer = self._server.post(f"{self._branch}/resume", {"options": self._options})
        return "invalid" if answer.status_code == 422 else self._ended(answer)

    def _ended(self, answer: Any) -> str:
        assert answer.status_code == 202, answer.text
        started = answer.json()
        events = all_events(self._server, f"{self._branch}/events?after={started['after']}")
        last = [one for one in events if one.kind == "run.ended"][-1]
        return last.data["result"]["stop_reason"]

    def pending_approvals(self) -> list[str]:
        listed = self._server.get(f"{self._branch}/waiting").json()["waiting"]
        return [one["call"]["call_id"] for one in listed]

    def decide(self, call: str, approve: bool) -> bool:
        answer = self._server.post(f"{self._branch}/approvals/{call}", {"approve": approve})
        assert answer.status_code in (202, 404), answer.text
        if answer.status_code == 202 and (run := answer.json()["run"]) is not None:
            all_events(self._server, run["events"])
        return answer.status_code == 202


def begin(program: Program) -> str:
    """Run, and approve what waits until the run goes on to its end (or is cut off)."""
    reason = program.run()
    if reason == "suspended" and (waiting := program.pending_approvals()):
        for call in waiting:
            assert program.decide(call, approve=True)
        return program.resume()
    return reason


def work(job: Job, say: Say) -> None:
    """In a child: run a case and die at its stage."""
    world = World(Case(**json.loads(job["case"])), job["key"], Path(job["folder"]))
    with faults.arm(STAGES[world.case.stage], faults.kill), _program(world, job["address"]) as one:
        say(begin(one))


@contextmanager
def _program(world: World, address: str) -> Iterator[Program]:
    if world.case.resumed_by == SERVER:
        with serving(address, models=[world.model], tools=[world.tool]) as server:
            yield OverHTTP(world, server)
    else:
        with opened(address) as client:
            yield InPython(world, client)


class Matrix:
    """Cases on one store, and what came of them."""

    def __init__(self, address: str, folder: Path, fork_server: ForkServer) -> None:
        self.address, self.folder, self.fork_server = address, folder, fork_server
        self.tally = Tally()

    def check(self, case: Case) -> None:
        """Interrupt a call, resume it, and compare with what must follow."""
        world = World(case, uuid4().hex, self.folder)
        with opened(self.address) as client:
            client.session(world.key, resources="*").add_message("user", "Pay.")
        if case.resumed_by == SAME:
            with opened(self.address) as client:
                program = InPython(world, client)
                _begin_and_suspend(world, program)
                self._resumed(world, program)
            return
        job = {"do": "torture.effects.work", "case": json.dumps(asdict(case)), "key": world.key}
        ended = self.fork_server.run({**job, "folder": str(self.folder), "address": self.address})
        if ended != (-9, []):
            self.tally.note("sick", str(case), ended)
            return
        with _program(world, self.address) as program:
            self._resumed(world, program)

    def _resumed(self, world: World, program: Program) -> None:
        case = world.case
        with opened(self.address) as client:
            self.tally.killed += 1
            before = world.known(client)
            if case.resumed_by != SAME:
                self._check_stage(case, before["c0"])
            if case.later == "approve":  # an approval sent again after the crash
                self._send_again(world, program, before)
            reason = self._settled(program, case)
            after = world.known(client)
            self._compare(case, before, after, reason, world.results(client))
            again = program.resume()
            if world.known(client) != after or again not in ("invalid", "suspended"):
                self.tally.note("doubled", str(case), ("resumed again", again, after))

    def _check_stage(self, case: Case, known: Known) -> None:
        started = case.stage != "before the start"
        taken = case.stage in ("after the effect", "before the result", "after the result")
        if (known.started, bool(known.effects)) != (started, taken):
            self.tally.note("sick", f"{case}: not at that stage", known)

    def _send_again(self, world: World, program: Program, before: dict[str, Known]) -> None:
        for call, known in before.items():
            if known.started and not known.finished and program.decide(call, approve=True):
                self.tally.note("doubled", f"{world.case}: a stale approval counted", known)

    def _settled(self, program: Program, case: Case) -> str:
        reason = program.resume()
        if reason == "invalid":  # the program died before anything of its run was stored
            reason = begin(program)
        if reason == "suspended" and case.later != "nothing":
            for call in program.pending_approvals():
                if not program.decide(call, approve=case.later == "approve"):
                    self.tally.note("sick", f"{case}: could not be decided", call)
            resumed = program.resume()
            return "stable" if resumed == "invalid" else resumed  # the last decision resumed it
        return reason

    def _compare(
        self,
        case: Case,
        before: dict[str, Known],
        after: dict[str, Known],
        reason: str,
        results: list[str],
    ) -> None:
        wanted = {call: _wanted(case, known) for call, known in before.items()}
        for call, (effects, _) in wanted.items():
            if after[call].effects != effects:
                kind = "doubled" if after[call].effects > effects else "lost"
                self.tally.note(kind, f"{case}: {call}", (before[call], after[call], effects))
            if case.approval and after[call].starts > after[call].approvals:
                self.tally.note("doubled", f"{case}: started more often than approved", after)
        waits = any(error is None for _, error in wanted.values())
        if reason != ("suspended" if waits else "stable"):
            self.tally.note("sick", str(case), (reason, wanted))
        told = sorted(error for _, error in wanted.values() if error is not None)
        if sorted(_gist(one) for one in results) != told:
            self.tally.note("torn", str(case), (results, told))


def _begin_and_suspend(world: World, program: InPython) -> None:
    world.suspend = program.conversation.suspend
    with faults.arm(STAGES[world.case.stage], lambda _: program.conversation.suspend()):
        begin(program)
    world.suspend = None


def _wanted(case: Case, known: Known) -> tuple[int, str | None]:
    """How many effects a call has in the end, and the gist of its error; None if it still waits."""
    if known.finished or not known.started:
        return 1, ""
    if case.replay == "never":
        return known.effects, "interrupted"
    asks = case.replay == "ask" or case.approval
    if asks and case.later == "nothing":
        return known.effects, None
    if asks and case.later == "deny":
        return known.effects, "interrupted, denied"
    return known.effects + 1, ""


def _gist(error: str) -> str:
    gist = "interrupted" if error.startswith("Interrupted") else error
    return f"{gist}, denied" if "denied" in error else gist


def check_all(address: str, folder: Path, every: int = 1) -> Tally:
    """Check every so many-th case; gives what came of it."""
    with ForkServer() as fork_server:
        matrix = Matrix(address, folder, fork_server)
        for case in CASES[::every]:
            matrix.check(case)
    return matrix.tally


def share() -> list[Case]:
    """The cases for `make test`: each value of each field, with most pairs of them."""
    inside = product((False, True), LATER, REPLAYS)
    killed = [
        Case(*one, 1 + number % 2, "after the effect", PROCESS) for number, one in enumerate(inside)
    ]
    stages = product(STAGES, REPLAYS)
    suspended = [
        Case(True, "approve", replay, 1 + number % 2, stage, SAME)
        for number, (stage, replay) in enumerate(stages)
    ]
    served = [
        Case(True, "approve", "never", 2, "after the effect", SERVER),
        Case(True, "deny", "ask", 2, "after the effect", SERVER),
    ]
    early = [
        Case(True, "nothing", "never", 2, stage, PROCESS)
        for stage in STAGES
        if stage != "after the effect"
    ]
    return killed + suspended + served + early
