"""Special turns, greetings and summaries cut off by kill -9: all of one is there, or nothing."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import PersistenceStrategy, Session, SessionOptions, SpecialTurn
from sennit.services.models.reply import Reply, ReplyText, Usage
from sennit.services.models.request import ModelRequest
from sennit.testing import ScriptedModel, faults
from sennit.turns import summarize
from sennit.turns.result import Return
from tests.conversation_fixtures import in_short, kinds
from tests.torture.fork_server import ForkServer, Job, Say

pytest_plugins = ("tests.durable",)

COMMITS, STATEMENTS = "sqlite.before: COMMIT", "sqlite.before*"
TITLE = SpecialTurn(
    name="title", instruction="Find a title.", strategy=PersistenceStrategy.PERSIST_ALL
)


def reply(request: ModelRequest) -> Any:
    """What the model says depends on what it is asked, not on who asks."""
    asked = request.messages[-1]["content"]
    if asked.startswith("Greet"):
        return "Welcome!"
    if asked.startswith("Summarise"):
        return "In short."
    if asked == "Find a title.":
        return "A title."
    return Reply((ReplyText(f"Yes: {asked}"),), "stop", Usage(800, 10))


class Talk:
    """A conversation in a file."""

    def __init__(self, session: Session) -> None:
        self.session = session
        model = ScriptedModel([reply] * 9, window=1_000)
        session.services.register(model)
        self.branch = session.default_branch
        self.conversation = session.conversation(self.branch, model=model)
        self.greeting = session.conversation(self.branch, model=model, generate_greeting=True)

    @property
    def said(self) -> list[str]:
        return [in_short(message) for message in self.branch.messages]

    @property
    def above(self) -> list[str] | None:
        """What was replaced, if anything was."""
        old = self.session.get_branch("main_above_1", None)
        return None if old is None else [in_short(message) for message in old.messages]


@contextmanager
def talk(folder: Path) -> Generator[Talk]:
    with sennit.open(folder / "sennit.db", durability="normal") as client:
        yield Talk(client.session("chat", resources="*"))


def title(talk: Talk) -> Return:
    return asyncio.run(talk.conversation.execute_special_turn(TITLE))


def replace_above(talk: Talk) -> Return:
    return asyncio.run(talk.conversation.execute_special_turn(summarize()))


def run(talk: Talk) -> Return:
    return asyncio.run(talk.conversation.run_to_stable_result())


def greet_and_run(talk: Talk) -> Return:
    return asyncio.run(talk.greeting.run_to_stable_result())


def talked(folder: Path) -> None:
    """One turn that nearly fills the window."""
    with talk(folder) as first:
        first.session.add_message("user", "One?")
        asyncio.run(first.conversation.run_to_stable_result(SessionOptions(summarize_at=None)))


def asked_again(folder: Path) -> None:
    talked(folder)
    with talk(folder) as first:
        first.session.add_message("user", "Two?")


def asked(folder: Path) -> None:
    with talk(folder) as first:
        first.session.add_message("user", "One?")


TALKED = ["user One?", "says Yes: One?"]
Case = tuple[Callable[[Path], None], Callable[[Talk], Return], list[str], list[str]]
SPECIAL: dict[str, Case] = {
    "persist": (talked, title, TALKED, [*TALKED, "user Find a title.", "says A title."]),
    "replace": (talked, replace_above, TALKED, ["says In short."]),
}
RUNS: dict[str, Case] = {
    "summary": (
        asked_again,
        run,
        [*TALKED, "user Two?"],
        ["says In short.", "user Two?", "says Yes: Two?"],
    ),
    "greeting": (
        asked,
        greet_and_run,
        ["user One?"],
        ["says Welcome!", "user One?", "says Yes: One?"],
    ),
}


def act_and_die(job: Job, _: Say) -> None:
    """In a child: go on with a talk, and die at a point of what is done."""
    point, folder, act = job["point"], Path(job["folder"]), globals()[job["act"]]
    with faults.record(point), talk(folder) as there, faults.arm(point, faults.kill, at=job["at"]):
        act(there)


def killed_everywhere(
    fork_server: ForkServer, tmp_path: Path, case: Case, point: str, step: int = 1
) -> Generator[tuple[int, Talk]]:
    """The conversation as it is after a kill at each point of what is done, one after another."""
    prepare, act, _, after = case
    start = tmp_path / "start"
    start.mkdir()
    prepare(start)
    whole = tmp_path / "whole"
    shutil.copytree(start, whole)
    with faults.record(point), talk(whole) as there, faults.record(point) as reached:
        assert act(there).success
        assert there.said == after
    for at in range(1, len(reached) + 1, step):
        folder = tmp_path / str(at)
        shutil.copytree(start, folder)
        job = {"do": "turns.test_special_killed.act_and_die", "folder": str(folder)}
        ended = fork_server.run({**job, "act": act.__name__, "point": point, "at": at})
        assert ended == (-9, []), at
        with talk(folder) as there:
            yield at, there
        shutil.rmtree(folder)


def check_special(
    fork_server: ForkServer, tmp_path: Path, case: Case, point: str, step: int = 1
) -> None:
    _, act, before, after = case
    found: list[bool] = []
    for at, there in killed_everywhere(fork_server, tmp_path, case, point, step):
        assert there.said in (before, after), at
        assert (there.above == before) == (there.said == after != before and act is replace_above)
        resumed = asyncio.run(there.conversation.aresume())
        assert resumed.notices[0].code == "nothing_to_resume", at
        found.append(there.said == after)
        if there.said == before:
            assert act(there).success, at
            assert there.said == after, at
    assert False in found


def check_run(
    fork_server: ForkServer, tmp_path: Path, case: Case, point: str, step: int = 1
) -> None:
    _, act, before, after = case
    resumed = 0
    for at, there in killed_everywhere(fork_server, tmp_path, case, point, step):
        # made without a greeting: that the run greets is noted
        result = asyncio.run(there.conversation.aresume())
        resumed += result.success
        if not result.success:
            assert result.notices[0].code == "nothing_to_resume", (at, result)
            assert there.said in (before, after), at
        if there.said == before:
            assert act(there).success, at
        assert there.said == after, at
        history = there.conversation.history()
        assert [event.seq for event in history] == list(range(1, len(history) + 1))
        assert kinds(history).count("history.replaced") <= 1
    assert resumed


@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", SPECIAL.values(), ids=SPECIAL)
def test_a_special_turn_killed_at_a_commit_is_there_whole_or_not_at_all(
    fork_server: ForkServer, tmp_path: Path, case: Case
) -> None:
    check_special(fork_server, tmp_path, case, COMMITS)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", RUNS.values(), ids=RUNS)
def test_a_run_killed_at_a_commit_is_resumed_to_the_same_end(
    fork_server: ForkServer, tmp_path: Path, case: Case
) -> None:
    check_run(fork_server, tmp_path, case, COMMITS)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", SPECIAL.values(), ids=SPECIAL)
def test_a_special_turn_killed_at_a_statement_is_there_whole_or_not_at_all(
    fork_server: ForkServer, tmp_path: Path, case: Case
) -> None:
    check_special(fork_server, tmp_path, case, STATEMENTS, 4)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", RUNS.values(), ids=RUNS)
def test_a_run_killed_at_a_statement_is_resumed_to_the_same_end(
    fork_server: ForkServer, tmp_path: Path, case: Case
) -> None:
    check_run(fork_server, tmp_path, case, STATEMENTS, 4)


def test_what_cannot_be_written_leaves_the_branch_as_it_was(tmp_path: Path) -> None:
    asked_again(tmp_path)
    broken = faults.raising(OSError("the disk is gone"))
    with faults.record("sqlite.*"), talk(tmp_path) as there:
        before = there.said
        with faults.arm(COMMITS, broken, at=3):
            result = replace_above(there)
        assert result.stop_reason == "error"
        assert there.said == before
        assert there.above is None
        assert replace_above(there).success
        assert there.said == ["says In short.", "user Two?"]
