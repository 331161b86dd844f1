"""Workers of a PostgreSQL store: each commit has its job, and is finished once, whoever dies."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import procrastinate
import pytest

import sennit
from sennit import StoreError, ValidationError
from sennit.api.worker import run_worker
from sennit.memory.commit.job_handler import ATTEMPTS
from sennit.stores.job_queue import WorkerOptions
from sennit.stores.postgres import job_queue
from sennit.testing import ScriptedModel, faults
from tests.memory.remembering import memories, talk
from tests.memory.test_crashes import CutOffError, answers, begun, seen
from tests.postgres_server import Server
from tests.torture.fork_server import ForkServer

pytest_plugins = ("tests.durable",)

DRAIN = WorkerOptions(drain=True)
STEPS = ["read", "thought", "write", "finished"]
Ask = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture
def ask(server: Server, shared_database: str, emptied: str) -> Ask:
    """Asks the database itself."""
    del emptied
    return lambda statement: server.execute(statement, shared_database)


@pytest.fixture
def served(emptied: str, ask: Ask) -> str:
    """The address of a store that a worker says it serves, however long a test takes."""
    ask(
        "INSERT INTO sennit.procrastinate_workers (last_heartbeat)"
        " VALUES (now() + interval '1 hour')"
    )
    return emptied


def jobs(ask: Ask) -> list[tuple[str, str, bool]]:
    """The commit of each job, how far that is, and whether it is kept back for a while."""
    return ask(
        "SELECT args ->> 'commit', status::text, coalesce(scheduled_at > now(), false)"
        " FROM sennit.procrastinate_jobs ORDER BY id"
    )


def left(url: str, user: str | None = None, session: str = "chat") -> str:
    """Commit what a worker is to finish; gives its task id."""
    with sennit.open(url, user=user) as client:
        result = client.session(session).commit(wait=False)
        assert (result.status, result["archived"]) == ("pending", True)
        return result["task_id"]


def forget_the_dead(ask: Ask) -> None:
    """Let it be long ago that any worker gave a sign of life."""
    ask("UPDATE sennit.procrastinate_workers SET last_heartbeat = now() - interval '1 hour'")


def due_now(ask: Ask) -> None:
    """Let the time be over for which jobs are kept back."""
    ask("UPDATE sennit.procrastinate_jobs SET scheduled_at = NULL WHERE status = 'todo'")


def test_what_is_committed_in_the_background_is_left_to_a_worker(served: str, ask: Ask) -> None:
    begun(served)
    task = left(served)
    assert jobs(ask) == [(task, "todo", False)]
    told: list[Any] = []
    run_worker(served, DRAIN, on_result=told.append)
    assert [(one.task_id, one.status) for one in told] == [(task, "committed")]
    assert jobs(ask) == []
    with sennit.open(served) as client:
        assert client.get_task(task).status == "committed"
        assert memories(client)


def test_without_a_worker_the_program_finishes_it_itself(emptied: str, ask: Ask) -> None:
    begun(emptied)
    with sennit.open(emptied) as client:
        client.session("chat").commit(wait=False)
    assert jobs(ask) == []
    with sennit.open(emptied) as client:
        assert memories(client)


def test_who_waits_for_a_commit_has_its_job_kept_back(emptied: str, ask: Ask) -> None:
    begun(emptied)
    there: list[Any] = []

    def look(_: str) -> None:
        there.extend(jobs(ask))

    with sennit.open(emptied) as client, faults.arm("memory.commit: thought", look):
        result = client.session("chat").commit()
    assert there == [(result.task_id, "todo", True)]
    assert jobs(ask) == []


def test_a_program_killed_while_it_waits_leaves_the_rest_to_a_worker(
    emptied: str, ask: Ask, fork_server: ForkServer
) -> None:
    begun(emptied)
    commit = {"do": "torture.commits.commit", "url": emptied, "session": "chat", "wait": True}
    code, _ = fork_server.run({**commit, "point": "memory.commit: write"})
    assert code == -9
    run_worker(emptied, DRAIN)
    assert [held for _, _, held in jobs(ask)] == [True]
    due_now(ask)
    run_worker(emptied, DRAIN)
    assert jobs(ask) == []
    with sennit.open(emptied) as client:
        assert memories(client)


def test_cut_off_anywhere_an_archive_has_its_job_and_a_job_its_archive(
    served: str, ask: Ask
) -> None:
    with faults.record("postgres.*") as points, sennit.open(served) as client:
        session = client.session("measure")
        talk(session, "My name is Ada.")
        points.clear()
        session.commit(wait=False)
        reached = len(points)
    for at in range(1, reached + 1, 4):
        with faults.record(), sennit.open(served) as client:
            session = client.session(f"chat {at}")
            talk(session, "My name is Ada.")
            with (
                faults.arm("postgres.*", faults.raising(CutOffError()), at=at),
                pytest.raises(CutOffError),
            ):
                session.commit(wait=False)
        open_ones = ask("SELECT id::text FROM sennit.commits WHERE state = 'open'")
        assert sorted(one for (one,) in open_ones) == sorted(one for one, _, _ in jobs(ask))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is left when nothing happens."""
    path = str(tmp_path_factory.mktemp("undisturbed") / "chat.db")
    begun(path)
    with sennit.open(path) as client:
        client.session("chat").commit()
        return seen(client)


@pytest.mark.parametrize("step", STEPS)
def test_the_job_of_a_worker_killed_at_a_step_is_taken_over(
    served: str, ask: Ask, fork_server: ForkServer, undisturbed: dict[str, Any], step: str
) -> None:
    begun(served)
    task = left(served)
    killed = {"do": "torture.commits.work", "url": served, "point": f"memory.commit: {step}"}
    assert fork_server.run(killed)[0] == -9
    assert jobs(ask) == [(task, "doing", False)]
    run_worker(served, DRAIN)  # as long as the dead may be alive, nobody takes it over
    assert jobs(ask) == [(task, "doing", False)]
    forget_the_dead(ask)
    assert fork_server.run({"do": "torture.commits.work", "url": served}) == (
        0,
        [json.dumps([task, "committed"])],
    )
    assert jobs(ask) == []
    with sennit.open(served) as client:
        assert seen(client) == undisturbed
        assert client.doctor() == []


def test_who_takes_over_asks_no_model_for_what_it_has_said_already(
    served: str, ask: Ask, fork_server: ForkServer
) -> None:
    with sennit.open(served) as client:
        talk(client.session("chat"), "Hello, my name is Ada.")
    task = left(served)
    killed = {"answers": answers(), "point": "memory.commit: marked"}
    assert fork_server.run({"do": "torture.commits.work", "url": served, **killed})[0] == -9
    forget_the_dead(ask)
    silent = ScriptedModel([])
    run_worker(served, DRAIN, model=lambda: silent)
    assert silent.requests == []
    with sennit.open(served) as client:
        result = client.get_task(task)
        assert (result.status, result["method"]) == ("committed", "model")


def test_a_worker_told_to_stop_finishes_what_it_is_at_and_takes_nothing_more(
    served: str, ask: Ask, fork_server: ForkServer
) -> None:
    with sennit.open(served) as client:
        for name in ("one", "two"):
            talk(client.session(name), "My name is Ada.")
    first, second = left(served, session="one"), left(served, session="two")
    stopped = {"waits": True, "point": "memory.commit: thought", "fate": "told to stop"}
    ended = fork_server.run({"do": "torture.commits.work", "url": served, **stopped})
    assert ended == (0, [json.dumps([first, "committed"])])
    assert jobs(ask) == [(second, "todo", False)]


def test_two_workers_finish_the_commits_of_many_users_each_once_and_for_its_user(
    served: str, ask: Ask, fork_server: ForkServer
) -> None:
    names = {f"user{number}": f"Name{number}" for number in range(4)}
    tasks: list[str] = []
    for user, name in names.items():
        with sennit.open(served, user=user, agent=f"agent of {user}") as client:
            for number in range(3):
                session = client.session(f"chat {number}")
                talk(session, f"My name is {name}.", f"My sister is called Sister{number}.")
                tasks.append(session.commit(wait=False)["task_id"])
    worker = {"do": "torture.commits.work", "url": served, "concurrency": 2}
    endings = fork_server.run_all([worker, worker])
    assert [code for code, _ in endings] == [0, 0], endings
    told = [json.loads(line) for _, said in endings for line in said]
    assert sorted(told) == sorted([task, "committed"] for task in tasks)
    assert jobs(ask) == []
    for user, name in names.items():
        with sennit.open(served, user=user) as client:
            said = "\n".join(memories(client).values())
            assert said.count(f"My name is {name}.") == 1
            assert all(said.count(f"Sister{number}") == 1 for number in range(3))
            assert not any(other in said for other in names.values() if other != name)
            assert client.doctor() == []


def test_a_commit_that_cannot_be_finished_is_tried_a_few_times_and_then_failed(
    served: str, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    begun(served)
    task = left(served)
    caplog.set_level(logging.CRITICAL, "procrastinate")
    with (
        sennit.open(served) as client,
        faults.arm("memory.commit: thought", faults.raising(RuntimeError("no")), at=None) as tried,
    ):
        for number in range(1, ATTEMPTS + 1):
            due_now(ask)
            run_worker(served, DRAIN)
            assert tried.fired == number
            result = client.get_task(task)
            assert result.status == ("failed" if number == ATTEMPTS else "pending")
            assert result.reasons == ["RuntimeError: no"]
    assert jobs(ask) == []
    with sennit.open(served) as client:
        assert client.retry_task(task).status == "committed"
        assert client.get_task(task).reasons == []
    assert jobs(ask) == []


def test_a_commit_that_workers_die_of_is_failed_in_the_end(served: str, ask: Ask) -> None:
    begun(served)
    task = left(served)
    ask(f"UPDATE sennit.procrastinate_jobs SET attempts = {ATTEMPTS}")
    run_worker(served, DRAIN)
    with sennit.open(served) as client:
        result = client.get_task(task)
        assert result.status == "failed"
        assert "crashed" in result.reasons[0]
        assert memories(client) == {}


def test_a_job_that_waits_to_be_tried_again_does_not_hold_up_its_user(
    served: str, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "procrastinate")
    with sennit.open(served) as client:
        for name in ("one", "two"):
            talk(client.session(name), "My name is Ada.")
    first = left(served, session="one")
    with faults.arm("memory.commit: thought", faults.raising(RuntimeError("no"))):
        run_worker(served, DRAIN)
    second = left(served, session="two")
    run_worker(served, DRAIN)
    assert jobs(ask) == [(first, "todo", True)]
    with sennit.open(served) as client:
        assert client.get_task(second).status == "committed"


def test_a_deleted_session_takes_its_job_along(served: str, ask: Ask) -> None:
    begun(served)
    left(served)
    with sennit.open(served) as client:
        client.delete_session("chat")
    assert jobs(ask) == []


def test_a_session_deleted_while_a_worker_is_at_it_is_no_trouble(served: str, ask: Ask) -> None:
    begun(served)
    left(served)

    def delete(_: str) -> None:
        with sennit.open(served) as client:
            client.delete_session("chat")

    with faults.arm("memory.commit: thought", delete):
        run_worker(served, DRAIN)
    assert jobs(ask) == []
    with sennit.open(served) as client:
        assert memories(client) == {}


def test_a_job_of_one_owner_reaches_no_commit_of_another(served: str, ask: Ask) -> None:
    with sennit.open(served, user="eve") as client:
        talk(client.session("chat"), "My name is Eve.")
    begun(served)
    task = left(served)
    (eve,) = ask("SELECT no FROM sennit.owners WHERE name = 'eve'")[0]
    for number in (eve, 999_999):
        ask(
            "INSERT INTO sennit.procrastinate_jobs (queue_name, task_name, args) VALUES"
            f" ('sennit', 'sennit.commit', '{{\"owner\": {number}, \"commit\": \"{task}\"}}')"
        )
    ask("DELETE FROM sennit.procrastinate_jobs WHERE lock IS NOT NULL")
    run_worker(served, DRAIN)
    assert jobs(ask) == []
    with sennit.open(served) as client:
        assert client.get_task(task).status == "pending"
        assert client.finish_commits()[0].status == "committed"


def test_a_worker_finishes_for_the_agent_that_committed(served: str) -> None:
    with sennit.open(served, agent="helper") as client:
        session = client.session("chat")
        session.add_message("user", "The build fails with a linker error.")
        session.add_message("assistant", "Solved: the library was missing; install libfoo.")
        session.add_message("user", "Thanks, that fixed it.")
        session.commit(wait=False)
    run_worker(served, DRAIN)
    with sennit.open(served) as other, sennit.open(served, agent="helper") as client:
        mine = {uri for uri in memories(client) if uri.startswith("viking://agent/")}
        assert mine
        assert not mine & set(memories(other))


def test_a_worker_can_think_with_a_model(served: str) -> None:
    with sennit.open(served) as client:
        talk(client.session("chat"), "Hello, my name is Ada.")
    task = left(served)
    run_worker(served, DRAIN, model=lambda: ScriptedModel(answers()))
    with sennit.open(served) as client:
        assert client.get_task(task)["method"] == "model"


def test_a_queue_of_the_users_own_in_the_same_database_is_left_alone(
    url: str, server: Server, database: str
) -> None:
    theirs = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=url))
    with theirs.open():
        theirs.schema_manager.apply_schema()
        theirs.configure_task("theirs", queue="sennit").defer(owner=1)
        begun(url)
        server.execute("INSERT INTO sennit.procrastinate_workers DEFAULT VALUES", database)
        task = left(url)
        run_worker(url, DRAIN)
        with sennit.open(url) as client:
            assert client.get_task(task).status == "committed"
    ask = "SELECT task_name, status::text FROM public.procrastinate_jobs"
    assert server.execute(ask, database) == [("theirs", "todo")]


def test_tables_of_a_newer_queue_are_brought_up_to_date_once(
    url: str, server: Server, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sennit.open(url).close()
    new = tmp_path / "99.00.00_01_new.sql"
    new.write_text("CREATE FUNCTION procrastinate_new() RETURNS text LANGUAGE sql AS 'SELECT 1'")
    there = job_queue._migrations()
    monkeypatch.setattr(job_queue, "_migrations", lambda: [*there, new])
    for _ in range(2):
        run_worker(url, DRAIN)
    ask = "SELECT proconfig::text FROM pg_proc WHERE proname = 'procrastinate_new'"
    assert "sennit" in server.execute(ask, database)[0][0]
    assert server.execute("SELECT queue FROM sennit.schema", database) == [(new.name,)]


def test_workers_are_for_stores_that_have_them(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="PostgreSQL"):
        run_worker(tmp_path / "a.db", DRAIN)


def test_a_drain_that_cannot_reach_the_queue_says_so() -> None:
    with pytest.raises(StoreError):
        run_worker("postgresql://nobody@127.0.0.1:1/none", DRAIN)


@pytest.mark.parametrize(
    "wrong", [{"concurrency": 0}, {"heartbeat": 0}, {"heartbeat": 30, "silence": 10}]
)
def test_a_worker_that_could_not_serve_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        WorkerOptions(**wrong)
