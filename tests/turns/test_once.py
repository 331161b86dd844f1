"""A tool call takes effect once, however a run is cut off, approved and resumed.

A share of the matrix in `tests/torture/effects.py`, whose other cases `make torture` takes; and
what the matrix does not hold.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import sennit
from sennit import (
    ActionRequestContent,
    Branch,
    Client,
    Message,
    NotFoundError,
    Session,
    SessionOptions,
    Tool,
)
from sennit.services.models.request import ModelRequest
from sennit.services.tools.tool import Replay
from sennit.testing import ScriptedModel, ToolCall, faults
from sennit.turns.conversation import ConversationSession
from sennit.turns.tools.pending_calls import call_id_of
from tests.conversation_fixtures import in_short
from tests.torture.effects import CASES, Case, Matrix, share
from tests.torture.fork_server import ForkServer, Job, Say

pytest_plugins = ("tests.durable",)
Count: TypeAlias = Callable[[str, object], None]
STARTED_ELSEWHERE = "error Not run: this was started before, on another branch or in another store"
INTERRUPTED = "error Interrupted: the program ended while this ran; whether it took effect is"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", share(), ids=str)
def test_an_interrupted_call_takes_effect_as_often_as_it_may(
    tmp_path: Path, fork_server: ForkServer, case: Case, record_property: Count
) -> None:
    matrix = Matrix(str(tmp_path / "sennit.db"), tmp_path, fork_server)
    matrix.check(case)
    assert matrix.tally.trouble == []
    record_property("counted", ["calls interrupted on SQLite", matrix.tally.counts])


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(24))
def test_an_interrupted_call_takes_effect_as_often_as_it_may_on_postgresql(
    emptied: str, tmp_path: Path, fork_server: ForkServer, number: int
) -> None:
    matrix = Matrix(emptied, tmp_path, fork_server)
    for case in CASES[number::48]:
        matrix.check(case)
    assert matrix.tally.trouble == []


class Till:
    """Two calls that need approval, in a store; each payment is a line in a file."""

    def __init__(
        self,
        client: Client,
        folder: Path,
        *,
        replay: Replay = "never",
        needs_approval: bool = True,
    ) -> None:
        self.file = folder / "paid.txt"
        self.session = client.session("till", resources="*")
        tool = Tool(self._pay, "pay", replay=replay, needs_approval=needs_approval)
        self.tools: list[Any] = [tool]
        self.model = ScriptedModel([_reply] * 9)
        self.conversation: ConversationSession = self.session.conversation(
            self.session.default_branch, model=self.model, tools=self.tools
        )

    async def _pay(self, to: str) -> str:
        """Pay somebody."""
        with self.file.open("a") as file:
            file.write(f"{to}\n")
        if os.environ.get("SENNIT_TEST_DIE") == to:
            faults.kill("")
        return f"paid {to}"

    @property
    def paid(self) -> list[str]:
        return self.file.read_text().split() if self.file.exists() else []

    @property
    def said(self) -> list[str]:
        return [in_short(one) for one in self.session.default_branch.messages]


def _reply(request: ModelRequest) -> Any:
    if any(message["role"] == "tool" for message in request.messages):
        return "Done."
    return [ToolCall("pay", {"to": name}, f"c_{name}") for name in ("ada", "bob")]


def die_paying(job: Job, _: Say) -> None:
    """In a child: approve some calls, and die while the first is paid."""
    folder = Path(job["folder"])
    os.environ["SENNIT_TEST_DIE"] = "ada"
    with sennit.open(folder / "till.db") as client:
        till = Till(client, folder, replay=job["replay"])
        till.session.add_message("user", "Pay both.")
        options = SessionOptions(allow_parallel_tools=job.get("parallel", False))
        asyncio.run(till.conversation.run_to_stable_result(options))
        for call in job["approve"]:
            asyncio.run(till.conversation.aapprove(call, resume=False))
        asyncio.run(till.conversation.aresume())


def died(fork_server: ForkServer, folder: Path, **more: Any) -> None:
    job = {"do": "turns.test_once.die_paying", "folder": str(folder), "replay": "never"}
    assert fork_server.run({**job, "approve": ["c_ada", "c_bob"], **more}) == (-9, [])


def test_the_approval_of_a_call_that_was_not_started_still_counts(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    died(fork_server, tmp_path)
    with sennit.open(tmp_path / "till.db") as client:
        till = Till(client, tmp_path)
        assert asyncio.run(till.conversation.aresume()).success
        assert till.paid == ["ada", "bob"]
        assert [one.startswith(INTERRUPTED) for one in till.said[3:5]] == [True, False]


@pytest.mark.parametrize("parallel", [False, True])
def test_a_call_nobody_decided_waits_beside_one_that_was_interrupted(
    fork_server: ForkServer, tmp_path: Path, parallel: bool
) -> None:
    died(fork_server, tmp_path, approve=["c_ada"], parallel=parallel)
    with sennit.open(tmp_path / "till.db") as client:
        till = Till(client, tmp_path)
        assert asyncio.run(till.conversation.aresume()).stop_reason == "suspended"
        assert till.paid == ["ada"]
        assert [in_short(one) for one in till.conversation.pending_approvals()] == ["call pay"]
        result = asyncio.run(till.conversation.aapprove("c_bob"))
        assert result is not None
        assert result.success
        assert till.paid == ["ada", "bob"]


def test_an_approval_that_comes_again_after_a_crash_is_refused_until_somebody_asks(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    died(fork_server, tmp_path, replay="ask")
    with sennit.open(tmp_path / "till.db") as client:
        till = Till(client, tmp_path, replay="ask")
        for _ in range(2):
            with pytest.raises(NotFoundError, match="was started before"):
                asyncio.run(till.conversation.aapprove("c_ada"))
        assert asyncio.run(till.conversation.aresume()).stop_reason == "suspended"
        assert till.paid == ["ada", "bob"]
        result = asyncio.run(till.conversation.aapprove("c_ada"))
        assert result is not None
        assert result.success
        assert till.paid == ["ada", "bob", "ada"]
        with pytest.raises(NotFoundError):
            asyncio.run(till.conversation.aapprove("c_ada"))


def test_denying_an_interrupted_call_does_not_claim_that_it_was_not_run(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    died(fork_server, tmp_path, replay="ask", approve=["c_ada"])
    with sennit.open(tmp_path / "till.db") as client:
        till = Till(client, tmp_path, replay="ask")
        asyncio.run(till.conversation.aresume())
        asyncio.run(till.conversation.adeny("c_ada", "Once is enough.", resume=False))
        asyncio.run(till.conversation.adeny("c_bob"))
        assert till.said[3].startswith(INTERRUPTED)
        assert till.said[3].endswith("Not run again: denied. Once is enough.")
        assert till.said[4] == "error Not run: denied."
        assert till.paid == ["ada"]


def die_before_going_on(job: Job, _: Say) -> None:
    """In a child: start a new run on what a killed one left, and die before it does anything."""
    folder = Path(job["folder"])
    with (
        faults.arm("journal.after: run.started", faults.kill),
        sennit.open(folder / "till.db") as client,
    ):
        asyncio.run(Till(client, folder, needs_approval=False).conversation.run_to_stable_result())


def test_a_start_is_known_also_if_another_run_was_cut_off_since(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    died(fork_server, tmp_path)
    job = {"do": "turns.test_once.die_before_going_on", "folder": str(tmp_path)}
    assert fork_server.run(job) == (-9, [])
    with sennit.open(tmp_path / "till.db") as client:
        till = Till(client, tmp_path)
        asyncio.run(till.conversation.aresume())
        assert till.paid == ["ada", "bob"]
        assert till.said[3].startswith(INTERRUPTED)


def test_a_start_is_known_also_if_a_run_that_ended_left_the_call_pending(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    died(fork_server, tmp_path)
    with sennit.open(tmp_path / "till.db") as client:
        till = Till(client, tmp_path)
        none = SessionOptions(max_tool_passes=0)
        assert till.conversation.run(none).stop_reason == "max_turns"
        for _ in range(9):  # runs in between that have nothing to do with it
            assert till.conversation.run(none).stop_reason == "max_turns"
        assert till.conversation.run().success
        assert till.paid == ["ada", "bob"]
        assert till.said[3].startswith(INTERRUPTED)


def test_a_fork_does_not_repeat_a_call_that_was_started_above(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    died(fork_server, tmp_path)
    with sennit.open(tmp_path / "till.db") as client:
        till = Till(client, tmp_path)
        fork = till.session.fork("main", name="other", resources=True)
        conversation = till.session.conversation(fork, model=till.model, tools=till.tools)
        assert conversation.run().stop_reason == "suspended"
        assert [in_short(one) for one in fork.messages][3].startswith(STARTED_ELSEWHERE)
        assert till.paid == ["ada"]


@pytest.mark.parametrize("kept", [False, True])
def test_a_session_of_the_same_conversations_does_not_repeat_a_call_that_was_started(
    fork_server: ForkServer, tmp_path: Path, kept: bool
) -> None:
    died(fork_server, tmp_path)
    with sennit.open(tmp_path / "till.db") as client:
        till = Till(client, tmp_path)
        store = tmp_path / "other.db" if kept else None
        with Session(conversations=till.session.conversations, store=store) as session:
            branch = session.get_branch("main")
            conversation = session.conversation(branch, model=till.model, tools=till.tools)
            assert conversation.run().stop_reason == "suspended"
            assert till.paid == ["ada"]
            assert in_short(branch.messages[3]).startswith(STARTED_ELSEWHERE)


@pytest.mark.parametrize("removed", ["main", "between"])
@pytest.mark.parametrize("replay", ["never", "ask"])
def test_a_fork_does_not_repeat_a_call_that_a_removed_branch_has_started(
    fork_server: ForkServer, tmp_path: Path, replay: Replay, removed: str
) -> None:
    died(fork_server, tmp_path, replay=replay)
    with sennit.open(tmp_path / "till.db") as client:
        till = Till(client, tmp_path, replay=replay)
        till.session.fork("main", name="between", resources=True)
        fork = till.session.fork("between", name="last", resources=True)
        till.session.remove_branch(removed)
        conversation = till.session.conversation(fork, model=till.model, tools=till.tools)
        result = conversation.run()
        assert till.paid == ["ada"]
        assert result.stop_reason == "suspended"
        assert len(conversation.pending_approvals()) == (2 if replay == "ask" else 1)
        if replay == "never":
            assert [in_short(one) for one in fork.messages][3].startswith(STARTED_ELSEWHERE)


def on_fork(till: Till, fork: Branch) -> ConversationSession:
    return till.session.conversation(fork, model=till.model, tools=till.tools)


@pytest.mark.parametrize("replay", ["never", "ask", "safe"])
def test_a_branch_takes_the_result_of_a_call_that_was_made_on_another_one(
    tmp_path: Path, replay: Replay
) -> None:
    with sennit.open(tmp_path / "till.db") as client:
        till = Till(client, tmp_path, replay=replay, needs_approval=False)
        till.session.add_message("user", "Pay both.")
        till.conversation.run(SessionOptions(max_tool_passes=0))
        fork = till.session.fork("main", name="other", resources=True)
        assert till.conversation.run().success
        till.session.add_message("user", "Thank you.")
        assert on_fork(till, fork).run().success
        assert till.paid == ["ada", "bob"]
        assert fork.messages[3:5] == till.session.default_branch.messages[3:5]


def test_a_session_without_a_store_makes_a_call_once_for_all_branches() -> None:
    paid: list[str] = []

    def pay(to: str) -> str:
        """Pay somebody."""
        paid.append(to)
        return f"paid {to}"

    session = Session()
    model = ScriptedModel([_reply] * 3)
    first = session.conversation(model=model, tools=[pay])
    session.add_message("user", "Pay both.")
    first.run(SessionOptions(max_tool_passes=0))
    second = session.conversation(session.fork("main", name="other"), model=model, tools=[pay])
    assert first.run().success
    assert second.run().success
    assert paid == ["ada", "bob"]
    results = [in_short(one) for one in second.request.branch.messages[3:5]]
    assert results == ["result paid ada", "result paid bob"]


def test_an_approval_given_before_another_branch_started_the_call_is_void(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    with sennit.open(tmp_path / "till.db") as client:
        till = Till(client, tmp_path, replay="ask")
        till.session.add_message("user", "Pay both.")
        till.conversation.run()
        fork = till.session.fork("main", name="other", resources=True)
        other = on_fork(till, fork)
        assert other.run().stop_reason == "suspended"
        asyncio.run(other.aapprove("c_ada", resume=False))
    job = {"do": "turns.test_once.die_resuming", "folder": str(tmp_path)}
    assert fork_server.run(job) == (-9, [])
    with sennit.open(tmp_path / "till.db") as client:
        till = Till(client, tmp_path, replay="ask")
        other = on_fork(till, till.session.get_branch("other"))
        assert asyncio.run(other.aresume()).stop_reason == "suspended"
        assert till.paid == ["ada"]
        asyncio.run(other.aapprove("c_ada", resume=False))
        asyncio.run(other.adeny("c_bob"))
        assert till.paid == ["ada", "ada"]


def die_resuming(job: Job, _: Say) -> None:
    """In a child: approve the first call on the main branch, and die while it is paid."""
    folder = Path(job["folder"])
    os.environ["SENNIT_TEST_DIE"] = "ada"
    with sennit.open(folder / "till.db") as client:
        till = Till(client, folder, replay="ask")
        asyncio.run(till.conversation.aapprove("c_ada", resume=False))
        asyncio.run(till.conversation.aapprove("c_bob"))


@pytest.mark.parametrize("replay", ["never", "ask", "safe"])
def test_an_approval_is_void_if_another_branch_starts_the_call_while_an_earlier_one_runs(
    tmp_path: Path, replay: Replay
) -> None:
    with sennit.open(tmp_path / "till.db") as client:
        till = Till(client, tmp_path, replay=replay)
        till.session.add_message("user", "Pay both.")
        till.conversation.run()
        other = on_fork(till, till.session.fork("main", name="other", resources=True))

        def pay_bob_there(_: str) -> None:
            with ThreadPoolExecutor() as pool:
                pool.submit(_decide_for_bob, other).result()

        asyncio.run(till.conversation.aapprove("c_ada", resume=False))
        asyncio.run(till.conversation.aapprove("c_bob", resume=False))
        with faults.arm("tool.after: pay", pay_bob_there, at=1):
            assert asyncio.run(till.conversation.aresume()).stop_reason == "stable"
        assert till.paid == ["ada", "bob"]
        assert till.said[3:5] == ["result paid ada", "result paid bob"]


def _decide_for_bob(conversation: ConversationSession) -> None:
    conversation.run()
    asyncio.run(conversation.aapprove("c_bob", resume=False))
    for call in conversation.pending_approvals():
        asyncio.run(conversation.adeny(call_id_of(call), resume=False))
    asyncio.run(conversation.aresume())


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
def test_a_call_that_two_branches_start_at_the_same_moment_is_made_once(
    emptied: str, tmp_path: Path, kind: str
) -> None:
    urls = {"memory": ":memory:", "sqlite": str(tmp_path / "till.db"), "postgres": emptied}
    with sennit.open(urls[kind]) as client:
        till = Till(client, tmp_path, needs_approval=False)
        till.session.add_message("user", "Pay both.")
        till.conversation.run(SessionOptions(max_tool_passes=0))
        fork = till.session.fork("main", name="other", resources=True)
        other, ends = on_fork(till, fork), list[str]()

        def run_the_other(_: str) -> None:
            # Blocking calls share the loop that waits here, so this one has a loop of its own.
            with ThreadPoolExecutor() as pool:
                ends.append(str(pool.submit(asyncio.run, other.arun()).result().stop_reason))

        with faults.arm("journal.before: tool.started", run_the_other, at=1):
            assert till.conversation.run().success
        assert ends == ["stable"]
        assert till.paid == ["ada", "bob"]
        assert till.said[3:5] == ["result paid ada", "result paid bob"]


def run_on(job: Job, say: Say) -> None:
    """In a child: run one branch beside another program that runs another one."""
    folder = Path(job["folder"])
    with sennit.open(job["store"]) as client:
        till = Till(client, folder, needs_approval=False)
        conversation = on_fork(till, till.session.get_branch(job["branch"]))
        say(str(conversation.run().stop_reason))


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_processes_that_run_branches_with_the_same_call_at_once_make_it_once(
    emptied: str, fork_server: ForkServer, tmp_path: Path, kind: str
) -> None:
    store = emptied if kind == "postgres" else str(tmp_path / "till.db")
    names = ["main", "left", "right"]
    with sennit.open(store) as client:
        till = Till(client, tmp_path, needs_approval=False)
        till.session.add_message("user", "Pay both.")
        till.conversation.run(SessionOptions(max_tool_passes=0))
        for name in names[1:]:
            till.session.fork("main", name=name, resources=True)
    job = {"do": "turns.test_once.run_on", "folder": str(tmp_path), "store": store}
    ends = fork_server.run_all([{**job, "branch": name} for name in names])
    assert ends == [(0, ["stable"])] * 3
    assert sorted(till.paid) == ["ada", "bob"]


@pytest.mark.parametrize("replay", ["never", "ask"])
def test_an_imported_session_knows_which_calls_were_started(
    fork_server: ForkServer, tmp_path: Path, replay: Replay
) -> None:
    died(fork_server, tmp_path, replay=replay)
    with sennit.open(tmp_path / "till.db") as client:
        client.export(tmp_path / "till.zip")
    with sennit.open(":memory:") as client:
        for _ in range(2):
            client.import_sessions(tmp_path / "till.zip")
        till = Till(client, tmp_path, replay=replay)
        till.session.default_branch.grant(resources="*")
        till.conversation.run()
        assert till.paid == ["ada"]
        waiting = [in_short(one) for one in till.conversation.pending_approvals()]
        assert waiting == ["call pay"] * (2 if replay == "ask" else 1)
        if replay == "never":
            assert till.said[3].startswith(STARTED_ELSEWHERE)


def test_a_call_put_on_a_fork_is_made_though_the_branch_above_was_removed(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "till.db") as client:
        till = Till(client, tmp_path, needs_approval=False)
        till.session.add_message("user", "Pay.")
        fork = till.session.fork("main", name="other", resources=True)
        till.session.remove_branch("main")
        call = ActionRequestContent(function="pay", arguments={"to": "eve"}, call_id="c_eve")
        till.session.add_message(Message(call), branches=fork)
        conversation = till.session.conversation(fork, model=till.model, tools=till.tools)
        assert conversation.run().success
        assert till.paid == ["eve"]


def test_something_said_before_the_resume_leaves_an_interrupted_call_alone(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    died(fork_server, tmp_path)
    with sennit.open(tmp_path / "till.db") as client:
        till = Till(client, tmp_path)
        till.conversation.steer("Stop.")
        assert asyncio.run(till.conversation.aresume()).stop_reason == "stable"
        assert till.paid == ["ada"]


def test_two_programs_that_resume_at_once_make_one_call(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    died(fork_server, tmp_path, replay="safe", approve=["c_ada"])
    path = tmp_path / "till.db"
    with sennit.open(path) as first, sennit.open(path) as second:
        tills = [
            Till(one, tmp_path, replay="safe", needs_approval=False) for one in (first, second)
        ]

        async def both() -> list[Any]:
            return await asyncio.gather(*(till.conversation.aresume() for till in tills))

        reasons = sorted(str(one.stop_reason) for one in asyncio.run(both()))
        assert reasons in (["invalid", "stable"], ["stable", "stable"])
        assert sorted(tills[0].paid) == ["ada", "ada", "bob"]


def test_two_programs_that_decide_at_once_decide_once(tmp_path: Path) -> None:
    path = tmp_path / "till.db"
    with sennit.open(path) as first, sennit.open(path) as second:
        tills = [Till(one, tmp_path) for one in (first, second)]
        tills[0].session.add_message("user", "Pay both.")
        tills[0].conversation.run()
        tills[1].session.refresh()

        async def decide(till: Till, approve: bool) -> bool:
            act = till.conversation.aapprove if approve else till.conversation.adeny
            try:
                await act("c_ada", resume=False)
            except sennit.SennitError:
                return False
            return True

        async def both() -> tuple[bool, bool]:
            return await asyncio.gather(decide(tills[0], True), decide(tills[1], False))

        approved, denied = asyncio.run(both())
        assert approved != denied
        asyncio.run(tills[0].conversation.aapprove("c_bob"))
        assert tills[0].paid == (["ada", "bob"] if approved else ["bob"])


def test_a_call_cancelled_between_its_recorded_start_and_the_call_has_a_result(
    tmp_path: Path,
) -> None:
    with sennit.open(tmp_path / "till.db") as client:
        till = Till(client, tmp_path, needs_approval=False)
        till.session.add_message("user", "Pay both.")
        with faults.arm("journal.before: tool.started", lambda _: till.conversation.cancel()):
            assert till.conversation.run().stop_reason == "cancelled"
        assert till.said[3:] == ["error Cancelled: this was stopped before it ran."]
        assert till.conversation.run().success
        assert till.paid == ["bob"]


def die_after_a_denial(job: Job, _: Say) -> None:
    """In a child: deny one call, approve the other, and die before either is worked off."""
    folder = Path(job["folder"])
    with sennit.open(folder / "till.db") as client:
        till = Till(client, folder)
        till.session.add_message("user", "Pay both.")
        till.conversation.run()
        asyncio.run(till.conversation.adeny("c_ada", "Too much.", resume=False))
        asyncio.run(till.conversation.aapprove("c_bob", resume=False))
        with faults.arm(job["point"], faults.kill):
            asyncio.run(till.conversation.aresume())


@pytest.mark.parametrize("point", ["journal.before: tool.started", "journal.after: tool.started"])
def test_a_denial_holds_after_a_crash_before_the_first_start(
    fork_server: ForkServer, tmp_path: Path, point: str
) -> None:
    job = {"do": "turns.test_once.die_after_a_denial", "folder": str(tmp_path), "point": point}
    assert fork_server.run(job) == (-9, [])
    with sennit.open(tmp_path / "till.db") as client:
        till = Till(client, tmp_path)
        assert asyncio.run(till.conversation.aresume()).success
        started = point == "journal.after: tool.started"
        assert till.paid == ([] if started else ["bob"])
        assert till.said[3] == "error Not run: denied. Too much."
        assert till.said[4].startswith(INTERRUPTED) == started
        assert till.said[-1] == "says Done."


def die_making_one_call(job: Job, _: Say) -> None:
    """In a child: leave both calls pending, make one of them, and die while it is paid."""
    folder = Path(job["folder"])
    os.environ["SENNIT_TEST_DIE"] = "ada"
    with sennit.open(folder / "till.db") as client:
        till = Till(client, folder, replay=job["replay"], needs_approval=False)
        till.session.add_message("user", "Pay both.")
        till.conversation.run(SessionOptions(max_tool_passes=0))
        asyncio.run(till.conversation.aexecute_tool_call("c_ada"))


@pytest.mark.parametrize("replay", ["never", "ask", "safe"])
def test_one_call_that_was_interrupted_is_made_again_only_as_its_tool_allows(
    fork_server: ForkServer, tmp_path: Path, replay: Replay
) -> None:
    job = {"do": "turns.test_once.die_making_one_call", "folder": str(tmp_path), "replay": replay}
    assert fork_server.run(job) == (-9, [])
    with sennit.open(tmp_path / "till.db") as client:
        till = Till(client, tmp_path, replay=replay, needs_approval=False)
        result = asyncio.run(till.conversation.aexecute_tool_call("c_ada"))
        assert till.paid == (["ada", "ada"] if replay == "safe" else ["ada"])
        if replay == "ask":
            assert result.stop_reason == "suspended"
            assert [in_short(one) for one in till.conversation.pending_approvals()] == ["call pay"]
        elif replay == "never":
            assert till.said[3].startswith(INTERRUPTED)
        else:
            assert till.said[3] == "result paid ada"


def resume_once(job: Job, say: Say) -> None:
    """In a child: resume beside another program that does the same."""
    folder = Path(job["folder"])
    with sennit.open(folder / "till.db") as client:
        till = Till(client, folder, replay="safe", needs_approval=False)
        say(str(asyncio.run(till.conversation.aresume()).stop_reason))


def test_two_processes_that_resume_at_once_make_each_call_once(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    died(fork_server, tmp_path, approve=["c_ada"])
    job = {"do": "turns.test_once.resume_once", "folder": str(tmp_path)}
    ends = fork_server.run_all([job] * 3)
    assert [code for code, _ in ends] == [0] * 3
    assert "stable" in [word for _, said in ends for word in said]
    with sennit.open(tmp_path / "till.db") as client:
        till = Till(client, tmp_path)
        assert sorted(till.paid) == ["ada", "ada", "bob"]
        assert till.said[-1] == "says Done."
