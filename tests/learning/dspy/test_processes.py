"""A conversation outlives its processes, and several may speak on it, on either store."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any

import dspy
import pytest

from tests.torture.fork_server import ForkServer
from tests.torture.ground import opened
from tests.torture.programs import model, wrapped

pytest_plugins = ("tests.durable",)

TURNS = 4


@pytest.fixture(scope="module")
def fork_server() -> Generator[ForkServer]:
    with ForkServer() as fork_server:
        yield fork_server


def job(address: str, do: str, **more: Any) -> dict[str, Any]:
    return {
        "do": f"torture.programs.{do}",
        "address": address,
        "name": "one",
        "count": TURNS,
        **more,
    }


def asked(turns: list[Any]) -> list[str]:
    return [turn.inputs["question"] for turn in turns]


def heard(turn: Any) -> list[str]:
    return [one["question"] for one in turn.history_snapshot.messages]


@pytest.mark.parametrize(
    "kills", [3, pytest.param(60, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
def test_killed_at_any_point_it_goes_on_with_all_that_was_answered(
    fork_server: ForkServer, address: str, kills: int
) -> None:
    opened(address).close()  # laying out the store takes points of its own
    code, [points] = fork_server.run(job(address, "count_points"))
    assert code == 0
    places = [int(points) * number // (kills + 1) for number in range(1, kills + 1)]
    for at in places:
        with opened(address) as client:
            client.delete_session("bot")
        code, answered = fork_server.run(job(address, "speak_until_killed", at=at))
        assert code == -9, answered
        with model(), opened(address) as client:
            session = wrapped(client)
            found = asked(session.turns)
            assert found[: len(answered)] == answered
            assert len(found) <= len(answered) + 1
            session(question="next")
            assert asked(session.turns) == [*found, "next"]
            assert heard(session.turns[-1]) == found
            planned = asked(session.state.nodes.of("plan").turns)
            assert planned[: len(found)] == found
            assert client.doctor() == []


def test_processes_on_one_conversation_lose_no_turn_and_each_hears_only_what_was(
    fork_server: ForkServer, address: str
) -> None:
    names = ["one", "two", "three"]
    endings = fork_server.run_all([job(address, "speak", name=name, count=6) for name in names])
    assert [code for code, _ in endings] == [0, 0, 0], endings
    with model(), opened(address) as client:
        session = wrapped(client)
        found = asked(session.turns)
        for name in names:
            mine = [question for question in found if question.startswith(f"{name} ")]
            assert mine == [f"{name} {number}" for number in range(6)]
        for at, turn in enumerate(session.turns):
            assert heard(turn) == found[: len(heard(turn))]
            assert len(heard(turn)) <= at
        assert sorted(asked(session.state.nodes.of("plan").turns)) == sorted(found)
        session.undo(len(found))
        assert [len(node.turns) for node in session.state.nodes.all().values()] == [0, 0]


def test_threads_and_the_workers_of_dspy_on_one_stored_conversation_lose_no_turn(
    address: str,
) -> None:
    with model(), opened(address) as client:
        session = wrapped(client)
        examples = [dspy.Example(question=f"p{n}").with_inputs("question") for n in range(6)]
        dspy.Parallel(num_threads=3, disable_progress_bar=True)([(session, e) for e in examples])
        threads = [threading.Thread(target=lambda n=n: say(f"t{n}")) for n in range(3)]

        def say(question: str) -> None:
            with model():
                session(question=question)

        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expected = [*(f"p{n}" for n in range(6)), *(f"t{n}" for n in range(3))]
        assert sorted(asked(session.turns)) == expected
    with opened(address) as client:
        assert sorted(asked(wrapped(client).turns)) == expected
